//! Errors that no caller asks for.

use super::object::Goroutine;
use crate::bubble;
use crate::ffi::*;
use crate::sys::threads;
use crate::worker::{current, ending};
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many reports are put off because a caller may still ask for the error.
static LATE: AtomicU64 = AtomicU64::new(0);

/// How many reports are put off.
pub fn late() -> u64 {
    LATE.load(Ordering::Relaxed)
}

/// How long a report is put off at most, and for how long the goroutine sleeps between looks, in
/// ns.
const LATE_MOST: i64 = 20_000_000;

const LATE_STEP: i64 = 500_000;

/// Whether a caller asks for the error with which the goroutine has ended. If goroutines run at the
/// same time, the goroutine's starter may be about to ask: this waits up to `LATE_MOST` for that.
pub(super) fn will_be_watched(slf: &Bound<'_, Goroutine>) -> bool {
    let (py, g) = (slf.py(), slf.get());
    let is_watched = || g.inner.with(py, |i| i.watched || i.asking > 0);
    if threads::IS_PARALLEL && !is_watched() {
        // SAFETY: no preconditions.
        let until = unsafe { gs_now() } + LATE_MOST;
        // False: no other reference is left, or the holders wait in join().
        let may_ask = || {
            // SAFETY: attached. One reference is the goroutine's own.
            let references = unsafe { py_ffi::Py_REFCNT(slf.as_ptr()) };
            references > 1 && g.joiners.with(py, |_, [waiting]| waiting) == 0
        };
        LATE.fetch_add(1, Ordering::Relaxed);
        // SAFETY: no preconditions.
        while !is_watched() && may_ask() && !ending::is_ending() && unsafe { gs_now() } < until {
            // SAFETY: outside of Python, on this goroutine.
            current::call(py, || unsafe {
                gs_cancel_disable();
                gs_sleep_until(gs_now() + LATE_STEP);
                gs_cancel_enable();
            });
        }
        LATE.fetch_sub(1, Ordering::Relaxed);
    }
    is_watched()
}

/// Reports an exception that no caller has asked for. `context`: what the goroutine's function ran
/// in; without one the report is made in the caller's.
pub(super) fn report(
    py: Python<'_>,
    g: &Bound<'_, Goroutine>,
    e: &Py<PyAny>,
    context: Option<&Py<PyAny>>,
) {
    if bubble::unhandled(py, g, e) {
        return;
    }
    let told = py.import("gosched").and_then(|m| match context {
        Some(context) => context.bind(py).call_method1("run", (m.getattr("excepthook")?, g, e)),
        None => m.call_method1("excepthook", (g, e)),
    });
    if let Err(e) = told {
        e.write_unraisable(py, None);
    }
}

/// In the child of a fork: no report of the child's is put off.
pub fn forked() {
    LATE.store(0, Ordering::Relaxed);
}
