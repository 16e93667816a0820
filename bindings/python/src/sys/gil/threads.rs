//! The thread that runs goroutines of Python.

use crate::worker::activity::Activity;
use crate::worker::first;
use pyo3::ffi;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether goroutines of Python run at the same time.
pub const IS_PARALLEL: bool = false;

/// The thread that runs goroutines of Python.
pub type Worker = Activity;

/// The only such thread, except those of bubbles.
static THE: Worker = Worker::new();

thread_local! {
    /// What the thread does, if it runs a bubble.
    static OWN: Cell<Option<&'static Worker>> = const { Cell::new(None) };
}

/// Whether a thread has run a bubble: until then no thread looks for its own worker.
static ANY: AtomicBool = AtomicBool::new(false);

#[inline(always)]
fn own() -> Option<&'static Worker> {
    if ANY.load(Ordering::Relaxed) { OWN.get() } else { None }
}

/// Sets what the calling thread does, which runs a bubble from here on; `None`: no longer.
pub fn set_own(worker: Option<&'static Worker>) {
    ANY.store(true, Ordering::Relaxed);
    OWN.set(worker);
}

/// The calling thread, if it runs goroutines.
#[inline(always)]
pub fn mine() -> Option<&'static Worker> {
    if first::this_thread() == first::thread() { Some(&THE) } else { own() }
}

/// The thread on which the goroutine runs that calls this.
#[inline(always)]
pub fn of_goroutine() -> &'static Worker {
    own().unwrap_or(&THE)
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
