//! A lock guards each `Shared` value.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Guards a value.
pub struct Guard(Mutex<()>);

impl Guard {
    pub const fn new() -> Guard {
        Guard(Mutex::new(()))
    }

    /// The value is the caller's until the result is dropped.
    #[inline(always)]
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        // A panic of another holder has been reported as an exception; the value is as that holder
        // left it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
