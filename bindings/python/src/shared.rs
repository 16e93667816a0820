//! Data that the GIL guards.

use pyo3::Python;
use std::cell::UnsafeCell;

/// A value that is used with the GIL held, or by one thread only.
pub struct Shared<T>(UnsafeCell<T>);

// SAFETY: whoever uses the value has the GIL, or is the only thread that does.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: the same.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    pub const fn new(value: T) -> Shared<T> {
        Shared(UnsafeCell::new(value))
    }

    /// Calls `f` with the value. `f` must not run Python code, nor drop what may do so: that could
    /// come here again.
    #[inline(always)]
    pub fn with<R>(&self, _py: Python<'_>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the GIL is held, and `f` doesn't come here again.
        f(unsafe { &mut *self.0.get() })
    }

    /// As `with`, for what only the thread that runs goroutines uses.
    #[inline(always)]
    pub fn with_thread<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as the caller promises.
        f(unsafe { &mut *self.0.get() })
    }
}
