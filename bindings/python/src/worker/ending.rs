//! Whether Python is about to end.

use crate::sys::{door, threads};
use crate::worker::first;
use crate::{errors, ffi::*, interpreter};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether Python is about to end: see `is_ending`.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The functions that Python calls at its end have begun.
pub fn begin() {
    // SeqCst: pairs with the count of `blocking::with_gil`.
    ENDING.store(true, Ordering::SeqCst);
}

/// Whether the functions that Python calls at its end have begun.
#[inline(always)]
pub fn is_ending() -> bool {
    // SeqCst: pairs with the count of `blocking::with_gil`.
    ENDING.load(Ordering::SeqCst)
}

/// Whether the program is at its end: a call of `blocking` runs where its caller is then.
#[pyfunction]
pub fn _is_ending() -> bool {
    is_ending()
}

/// Whether Python has ended for goroutines: from then on only the main goroutine enters it. If
/// goroutines run on the main thread, that is when Python finalizes itself: until then functions of
/// atexit may use goroutines.
pub fn is_over() -> bool {
    is_ending() && (!first::is_main_worker() || interpreter::is_finalizing())
}

/// The error of what would need goroutines when there are none any more.
pub fn error() -> PyErr {
    errors::runtime("Python is about to end: no goroutine runs any more")
}

/// For a goroutine that is about to enter Python: if Python has ended for goroutines, the goroutine
/// waits for ever.
#[inline(always)]
pub fn stop_if_finalizing() {
    if is_ending() {
        stop_if_over();
    }
}

/// See `stop_if_finalizing`.
#[cold]
fn stop_if_over() {
    if threads::mine().is_none() || first::is_main_goroutine() {
        return;
    }
    door::wait_until_open();
    if is_over() {
        rest();
    }
}

/// Waits for ever, even if the goroutine is cancelled.
fn rest() -> ! {
    loop {
        // SAFETY: a goroutine.
        unsafe {
            gs_uncancel();
            gs_sleep_until(GS_FOREVER);
        }
    }
}
