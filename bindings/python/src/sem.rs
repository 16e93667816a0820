//! Semaphores of the library that are statics.

use crate::ffi::*;
use std::cell::UnsafeCell;

/// A semaphore of the library that is part of a static. Any thread may use it.
pub struct Sem(UnsafeCell<gs_sem>);

// SAFETY: the library guards its semaphores; `forked` replaces it where there is only one thread.
unsafe impl Sync for Sem {}

impl Sem {
    pub const fn new() -> Sem {
        Sem(UnsafeCell::new(gs_sem::new()))
    }

    /// Waits for a unit until `deadline`, a time of `gs_now`'s in ns. 0, or a negative errno value.
    ///
    /// # Safety
    /// Outside of Python: it may switch.
    pub unsafe fn acquire(&self, deadline: i64) -> i32 {
        // SAFETY: it lives as long as the process.
        unsafe { gs_sem_acquire(self.0.get(), 1, deadline) }
    }

    /// Adds `n` units.
    ///
    /// # Safety
    /// Outside of Python: it may switch.
    pub unsafe fn release(&self, n: i64) {
        // SAFETY: it lives as long as the process.
        unsafe { gs_sem_release(self.0.get(), n) };
    }

    /// In the child of a fork: the waiters are the parent's.
    pub fn forked(&self) {
        // SAFETY: there is no other thread.
        unsafe { *self.0.get() = gs_sem::new() };
    }
}
