//! How the first thread begins: the GIL keeps other threads away until `Starting::announce`.

use super::threads;
use crate::worker::first;
use pyo3::prelude::*;
use std::ptr;

/// In the place of the first thread's number while the thread begins.
const STARTING: usize = 1;

/// The calling thread starts the first one. It has the GIL until `announce`, so no other thread
/// does.
pub struct Starting;

impl Starting {
    /// Begins; see there.
    pub fn begin(_py: Python<'_>) -> Starting {
        Starting
    }

    /// From here on the thread may give the GIL back: other threads take it that there is a first
    /// thread.
    pub fn announce(&self) {
        first::set_thread(STARTING);
    }
}

/// The calling thread, the main one, runs goroutines.
pub fn attached() {
    first::set_thread(first::this_thread());
}

/// Prepares the calling thread, which was made for goroutines: it needs no thread state. False: no
/// memory.
pub fn prepare() -> bool {
    true
}

/// The calling thread, which was made for goroutines, runs them.
pub fn attached_made() {
    first::set_thread(first::this_thread());
    threads::register(ptr::null_mut());
}

/// In the child of a fork.
pub fn forked() {}
