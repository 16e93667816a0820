//! The threads that are blocked in this library without a deadline, as the deadlock detector counts
//! them.

use super::m;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Plain threads that are blocked in this library without a deadline, and that no waker has
/// taken yet.
pub static BLOCKED_THREADS: AtomicU32 = AtomicU32::new(0);

/// M's in an announced call that are blocked in this library as a plain thread would be.
pub static BLOCKED_CALLS: AtomicU32 = AtomicU32::new(0);

/// How often a thread has begun to block in one of these ways.
pub static BLOCKS: AtomicU64 = AtomicU64::new(0);

/// How a thread that blocks is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    Not,
    Thread,
    /// In [`BLOCKED_CALLS`]: the thread is an M's in an announced call.
    Call,
}

/// Counts the calling thread, which is about to block without a deadline: a plain thread, or an M's
/// in a call.
pub fn thread_blocks() -> Counted {
    let counted = if m::current().is_some() { Counted::Call } else { Counted::Thread };
    change(counted, 1);
    BLOCKS.fetch_add(1, Ordering::SeqCst);
    counted
}

/// Undoes [`thread_blocks`] for a thread that the caller wakes next: not later, because the woken
/// thread may take long to run and can then wake others.
pub fn thread_wakes(counted: Counted) {
    change(counted, -1);
}

pub fn change(counted: Counted, by: i32) {
    let count = match counted {
        Counted::Not => return,
        Counted::Thread => &BLOCKED_THREADS,
        Counted::Call => &BLOCKED_CALLS,
    };
    count.fetch_add(by as u32, Ordering::SeqCst);
}

/// How many M's in a call are blocked in this library without a deadline.
pub fn blocked_calls() -> usize {
    BLOCKED_CALLS.load(Ordering::SeqCst) as usize
}
