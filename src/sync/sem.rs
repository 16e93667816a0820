//! A weighted semaphore, first come first served: small requests don't overtake a large one.

use super::{errno_of, wait_in_line};
use crate::os::spin::SpinLock;
use crate::sched::run::park::ready_all;
use crate::sched::types::waiter::{Claimed, WaitQueue, Why};
use core::cell::Cell;

/// gs_sem. golang.org/x/sync/semaphore. All other fields are used with `lock` held.
#[repr(C)]
pub struct Sem {
    lock: SpinLock,
    count: Cell<i64>,
    queue: WaitQueue,
}

// SAFETY: the cell and the queue are only used with `lock` held.
unsafe impl Sync for Sem {}

impl Sem {
    /// A semaphore of the library's own, with `n` units.
    pub const fn with(n: i64) -> Sem {
        Sem { lock: SpinLock::new(), count: Cell::new(n), queue: WaitQueue::new() }
    }

    /// Resets the semaphore in the child of a fork.
    ///
    /// # Safety
    /// No thread or goroutine that has or wants a unit is there any more.
    pub unsafe fn reset(&self, n: i64) {
        // SAFETY: no other thread uses it, says the caller.
        unsafe { self.lock.reset() };
        self.lock.with(|| {
            self.count.set(n);
            self.queue.forget();
        });
    }

    /// Sets the units to `n`, before the first use. `-EINVAL`: `n` is negative.
    pub fn init(&self, n: i64) -> i32 {
        if n < 0 {
            return -libc::EINVAL;
        }
        self.lock.with(|| self.count.set(n));
        0
    }

    /// Takes `n` units. 0; the reason why the wait ended; `-EINVAL`: `n` is negative.
    pub fn acquire(&self, n: i64, deadline: i64) -> i32 {
        if n < 0 {
            return -libc::EINVAL;
        }
        self.lock.lock();
        if self.count.get() >= n && self.queue.is_empty() {
            self.count.set(self.count.get() - n);
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
            return 0;
        }
        // A waiter that gives up may have blocked smaller requests.
        let gave_up = || self.grant();
        let why = Why::Semaphore;
        let (lock, queue) = (&self.lock, &self.queue);
        // SAFETY: locked above.
        errno_of(unsafe { wait_in_line(lock, queue, n as u64, deadline, why, gave_up) })
    }

    /// Gives `n` units back. `-EINVAL`, and nothing changed: `n` is negative or
    /// too large.
    pub fn release(&self, n: i64) -> i32 {
        if n < 0 {
            return -libc::EINVAL;
        }
        self.lock.lock();
        let Some(count) = self.count.get().checked_add(n) else {
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
            return -libc::EINVAL;
        };
        self.count.set(count);
        let granted = self.grant();
        // SAFETY: locked above.
        unsafe { self.lock.unlock() };
        ready_all(granted);
        0
    }

    /// Takes the waiters that can be served out of the queue, and deducts their units.
    fn grant(&self) -> Claimed {
        let mut left = self.count.get();
        let list = self.queue.pop_while(|w| {
            let fits = w.tag.get() as i64 <= left;
            if fits {
                left -= w.tag.get() as i64;
            }
            fits
        });
        // Without the units of waiters that another waker has claimed meanwhile.
        let taken: i64 = list.iter().map(|waiter| waiter.tag.get() as i64).sum();
        self.count.set(self.count.get() - taken);
        list
    }
}
