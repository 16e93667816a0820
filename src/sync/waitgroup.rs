//! A counter that goroutines and threads wait on until it is 0: Go's `sync.WaitGroup`.

use super::wait_in;
use crate::os::spin::SpinLock;
use crate::sched::run::park::ready_all;
use crate::sched::types::waiter::{WaitQueue, Why};
use core::cell::Cell;

/// gs_waitgroup. sync.WaitGroup. All other fields are used with `lock` held.
#[repr(C)]
pub struct WaitGroup {
    lock: SpinLock,
    count: Cell<i64>,
    queue: WaitQueue,
}

impl WaitGroup {
    /// Adds to the counter; at 0 wakes all waiters. `-EINVAL`: the counter would be negative or too
    /// large; nothing has changed.
    #[inline]
    pub fn add(&self, delta: i64) -> i32 {
        self.lock.lock();
        let count = match self.count.get().checked_add(delta) {
            Some(n) if n >= 0 => n,
            _ => {
                // SAFETY: locked above.
                unsafe { self.lock.unlock() };
                return -libc::EINVAL;
            }
        };
        self.count.set(count);
        if count != 0 || self.queue.is_empty() {
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
            return 0;
        }
        let all = self.queue.pop_all();
        // SAFETY: locked above.
        unsafe { self.lock.unlock() };
        ready_all(all);
        0
    }

    /// Waits until the counter is 0. 0, or the reason why the wait ended.
    #[inline(always)]
    pub fn wait(&self, deadline: i64) -> i32 {
        self.lock.lock();
        if self.count.get() == 0 {
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
            return 0;
        }
        // SAFETY: locked above.
        unsafe { wait_in(&self.lock, &self.queue, deadline, Why::WaitGroup) }
    }
}
