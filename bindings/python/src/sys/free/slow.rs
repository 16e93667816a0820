//! A lock whose holder may wait for other threads.

use crate::outside::outside;
use pyo3::prelude::*;
use std::cell::UnsafeCell;
use std::sync::{Mutex, MutexGuard};

/// A lock whose holder may wait for other threads. It may be part of a static.
pub struct Slow(UnsafeCell<Mutex<()>>);

// SAFETY: the lock may be used by all threads, and is replaced where there is only one.
unsafe impl Sync for Slow {}

impl Slow {
    pub const fn new() -> Slow {
        Slow(UnsafeCell::new(Mutex::new(())))
    }

    /// Takes the lock. Others may run Python code while the caller waits.
    pub fn lock(&self, py: Python<'_>) -> MutexGuard<'_, ()> {
        // Detached: the holder waits for other threads, which the interpreter may stop.
        // SAFETY: only `forked` replaces the lock, where there is one thread.
        outside(py, || unsafe { &*self.0.get() }.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// In the child of a fork: the thread that may have it is the parent's.
    pub fn forked(&self) {
        // SAFETY: there is no other thread.
        unsafe { *self.0.get() = Mutex::new(()) };
    }
}
