//! A function that runs once, however many callers there are: Go's `sync.Once`.

use super::wait_in;
use crate::os::spin::SpinLock;
use crate::sched::run::park::{FOREVER, ready_all};
use crate::sched::take::boundary;
use crate::sched::types::m;
use crate::sched::types::waiter::{WaitQueue, Why};
use core::cell::Cell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};

const RUNNING: u32 = 1;
const DONE: u32 = 2;

// The header's inline functions know these words.
const _: () = assert!(DONE == 2 && size_of::<SpinLock>() == 4);
const _: () = assert!(offset_of!(Once, state) == 0 && offset_of!(Once, lock) == 4);

/// gs_once. sync.Once. All but `state` is used with `lock` held.
#[repr(C)]
pub struct Once {
    state: AtomicU32,
    lock: SpinLock,
    /// The caller that runs the function, by `m::caller`.
    owner: Cell<u64>,
    queue: WaitQueue,
}

impl Once {
    /// Whether the function has returned, and no thread touches the object any more.
    #[inline(always)]
    pub fn is_done(&self) -> bool {
        // Acquire: pairs with the Release below, so the caller sees what `f` did, and that the lock
        // was held then.
        self.state.load(Ordering::Acquire) == DONE && self.lock.is_free()
    }

    /// Runs `f` in the first call; further calls wait until `f` has returned. 0, `-ECANCELED` while
    /// it waits, `-EDEADLK`: called by `f` itself.
    pub fn run(&self, f: impl FnOnce()) -> i32 {
        if self.is_done() {
            return 0;
        }
        self.lock.lock();
        match self.state.load(Ordering::Acquire) {
            DONE => {
                // SAFETY: locked above.
                unsafe { self.lock.unlock() };
                0
            }
            RUNNING if self.owner.get() == m::caller() => {
                // SAFETY: locked above.
                unsafe { self.lock.unlock() };
                -libc::EDEADLK
            }
            // SAFETY: locked above.
            RUNNING => unsafe { wait_in(&self.lock, &self.queue, FOREVER, Why::Once) },
            _ => {
                self.state.store(RUNNING, Ordering::Relaxed);
                self.owner.set(m::caller());
                // SAFETY: locked above.
                unsafe { self.lock.unlock() };
                boundary::outside(f);
                self.lock.lock();
                self.state.store(DONE, Ordering::Release);
                let all = self.queue.pop_all();
                // SAFETY: locked above.
                unsafe { self.lock.unlock() };
                ready_all(all);
                0
            }
        }
    }
}
