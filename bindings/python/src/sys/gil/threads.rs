//! The thread that runs goroutines of Python.

use crate::testing;
use crate::worker::activity::Activity;
use crate::worker::first;
use pyo3::ffi;
use std::ptr;

/// Whether goroutines of Python run at the same time.
pub const IS_PARALLEL: bool = false;

/// The thread that runs goroutines of Python.
pub type Worker = Activity;

/// The only such thread, except those of bubbles.
static THE: Worker = Worker::new();

/// The calling thread, if it runs goroutines.
#[inline(always)]
pub fn mine() -> Option<&'static Worker> {
    if first::this_thread() == first::thread() { Some(&THE) } else { testing::worker() }
}

/// The thread on which the goroutine runs that calls this.
#[inline(always)]
pub fn of_goroutine() -> &'static Worker {
    testing::worker().unwrap_or(&THE)
}

/// All threads that run goroutines.
pub fn all() -> Vec<&'static Worker> {
    vec![&THE]
}

/// The calling thread runs goroutines from here on.
pub fn register(_ts: *mut ffi::PyThreadState) {
    THE.note_thread();
}

/// In the child of a fork: the thread runs no goroutine.
pub fn forked() {
    THE.set_current(ptr::null_mut());
}
