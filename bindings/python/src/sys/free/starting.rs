//! How the first thread begins: one thread at a time starts it.

use super::slow::Slow;
use super::threads;
use pyo3::prelude::*;
use std::sync::MutexGuard;

/// Held by the thread that starts the first one.
static STARTS: Slow = Slow::new();

/// The calling thread starts the first one. Other threads that want to do so wait until this is
/// dropped.
pub struct Starting {
    _locked: MutexGuard<'static, ()>,
}

impl Starting {
    /// Waits until no other thread does so.
    pub fn begin(py: Python<'_>) -> Starting {
        Starting { _locked: STARTS.lock(py) }
    }

    /// Does nothing: other threads wait in `begin`.
    pub fn announce(&self) {}
}

/// The calling thread, the main one, runs goroutines: the caller does all that this needs.
pub fn attached() {}

/// Makes a state for the calling thread, which was made for goroutines. False: no memory.
pub fn prepare() -> bool {
    threads::prepare()
}

/// The calling thread, which was made for goroutines, runs them: `prepare` has done all that this
/// needs.
pub fn attached_made() {}

/// In the child of a fork: no other thread starts the first one.
pub fn forked() {
    STARTS.forked();
}
