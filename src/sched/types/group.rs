//! Worker groups. `core::group` has the protocol.

use super::m::M;
use super::task::Fifo;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};

/// The most threads that a group may have.
pub const LARGEST: usize = crate::sched::prim::limits::PROCS;

/// Goroutines that all begin on the same few threads.
pub struct Group {
    pub places: Vec<Place>,
    /// How many of the first places are for threads that call `gs_run`.
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

/// A place for one of the group's threads.
pub struct Place {
    /// The thread; null: the place is free. Changed with `ALL`'s lock held.
    pub member: AtomicPtr<M>,
    /// The member's next place, in another group, or null. Changed with that lock held. What it was when the member lost
    /// the place because the group was freed stays here: the member may look at it just then.
    pub next: AtomicPtr<Place>,
    /// The group that has the place.
    pub group: AtomicPtr<Group>,
}

impl Place {
    /// A free place, of no group yet.
    pub fn new() -> Place {
        Place {
            member: AtomicPtr::new(ptr::null_mut()),
            next: AtomicPtr::new(ptr::null_mut()),
            group: AtomicPtr::new(ptr::null_mut()),
        }
    }
}
