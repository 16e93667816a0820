//! How many threads are blocked in this library without a deadline: what the deadlock detector counts.

use super::m;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Plain threads that are blocked in this library without a deadline, and that no waker has
/// taken yet.
pub static BLOCKED_THREADS: AtomicU32 = AtomicU32::new(0);

/// M's in an announced call that are blocked in this library as a plain thread would be.
pub static BLOCKED_CALLS: AtomicU32 = AtomicU32::new(0);

/// How often a thread has begun to block in either way.
pub static BLOCKS: AtomicU64 = AtomicU64::new(0);

/// How a thread that blocks without a deadline is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    Not,
    Thread,
    /// The thread is an M's in an announced call, and counted among these.
    Call,
}

/// A plain thread, or a thread in a system call, is about to block without a deadline.
pub fn thread_blocks() -> Counted {
    let counted = if m::current().is_some() { Counted::Call } else { Counted::Thread };
    change(counted, 1);
    BLOCKS.fetch_add(1, Ordering::SeqCst);
    counted
}

/// The caller is about to wake the thread. It calls this first, because the woken thread may take long to run and can
/// then wake others.
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

/// How many of the M's in a call are blocked in this library without a deadline.
pub fn blocked_calls() -> usize {
    BLOCKED_CALLS.load(Ordering::SeqCst) as usize
}
