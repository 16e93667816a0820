//! Data that goroutines and threads share: guarded by the GIL, where Python has one, and by a lock
//! elsewhere.

use crate::sys::guard::Guard;
use pyo3::Python;
use std::cell::UnsafeCell;

/// A value that one thread uses at a time.
pub struct Shared<T> {
    guard: Guard,
    value: UnsafeCell<T>,
}

// SAFETY: every access to the value holds the GIL or the lock.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: a thread that gets the value uses it with the GIL or the lock, as for `Sync`.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    pub const fn new(value: T) -> Shared<T> {
        Shared { guard: Guard::new(), value: UnsafeCell::new(value) }
    }

    /// Calls `f` with the value. `f` must not run Python code, nor drop what may do so, nor wait:
    /// that could come here again. So a thread that holds the lock is attached to Python and comes
    /// to no point where Python stops threads, and neither the collector nor fork() finds a lock
    /// held.
    #[inline(always)]
    pub fn with<R>(&self, _py: Python<'_>, f: impl FnOnce(&mut T) -> R) -> R {
        self.locked(f)
    }

    /// As `with`, for the collector, which has the GIL or has stopped all other threads; and for
    /// what only one thread uses.
    #[inline(always)]
    pub fn with_thread<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.locked(f)
    }

    #[inline(always)]
    fn locked<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _held = self.guard.hold();
        // SAFETY: the GIL or the lock is held, and `f` doesn't come here again.
        f(unsafe { &mut *self.value.get() })
    }
}
