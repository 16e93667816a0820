//! The number of locked threads. `lifecycle::lock_thread` has the protocol.

use super::waiter::WaitQueue;
use crate::os::spin::SpinLock;
use core::cell::Cell;

/// How many threads are locked, and the goroutines that wait to lock a thread.
pub struct Slots {
    pub lock: SpinLock,
    pub taken: Cell<usize>,
    pub queue: WaitQueue,
}

// SAFETY: the cell and the queue are used only with `lock` held.
unsafe impl Sync for Slots {}

impl Slots {
    pub fn new() -> Slots {
        Slots { lock: SpinLock::new(), taken: Cell::new(0), queue: WaitQueue::default() }
    }

    /// How many threads are locked.
    pub fn taken(&self) -> usize {
        self.lock.with(|| self.taken.get())
    }
}
