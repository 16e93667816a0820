//! Worker groups. `core::group` has the protocol.

use super::m::M;
use super::task::Fifo;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};

/// The most threads that a group may have.
pub const LARGEST: usize = crate::sched::prim::limits::PROCS;

/// Goroutines that all begin on the same few threads.
pub struct Group {
    /// The threads; null: not there yet. Changed with `ALL`'s lock held.
    pub members: Vec<AtomicPtr<M>>,
    /// How many of the first members must be threads that call `gs_run`.
    pub runners: usize,
    /// The runtime to which the members belong.
    pub runtime: AtomicU32,
    /// Goroutines that were spawned and have not ended.
    pub alive: AtomicUsize,
    /// Goroutines that wait for a thread to call `gs_run`, because they can begin on no other.
    pub waiting: Fifo,
    /// `gs_workers_free` was called.
    pub freed: AtomicBool,
}
