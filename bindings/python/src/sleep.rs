//! Giving way, sleeping, and the `Timeout`s of Python.

use crate::bubble;
use crate::errors;
use crate::ffi::*;
use crate::park::{self, Timeout};
use crate::worker::{current, start};
use pyo3::prelude::*;

/// How often yield_() gives way at most until another goroutine has run. Now and then the scheduler
/// looks at its queues in another order, and takes the goroutine that has just yielded before those
/// that wait for longer.
const YIELDS: u32 = 4;

/// Lets other goroutines run.
#[pyfunction]
pub fn yield_(py: Python<'_>) -> PyResult<()> {
    start::ensure(py)?;
    let me = current::current(py);
    let raised = || me.and_then(|me| me.take_thrown(py).or_else(|| me.expired(py)));
    if let Some(e) = raised() {
        return Err(e);
    }
    _give_way(py);
    raised().map_or(Ok(()), Err)
}

/// As yield_(), but raises nothing.
#[pyfunction]
pub fn _give_way(py: Python<'_>) {
    let turns = current::turns();
    current::call(py, || {
        for _ in 0..YIELDS {
            // SAFETY: without the GIL.
            unsafe { gs_yield() };
            if current::turns() != turns {
                break;
            }
        }
    });
}

/// Waits for this number of seconds; for 0 it lets other goroutines run.
#[pyfunction]
pub fn sleep(py: Python<'_>, seconds: f64) -> PyResult<()> {
    if seconds < 0.0 {
        return Err(errors::value("sleep length must be non-negative"));
    }
    match Timeout::after(Some(seconds))? {
        Timeout::Never => yield_(py),
        timeout => {
            let until = match timeout {
                Timeout::At(at) => at,
                _ => GS_FOREVER,
            };
            // SAFETY: without the GIL. The end of the time is a timeout, as that of a `Timeout` is.
            park::wait(py, timeout, |d| match unsafe { gs_sleep_until(d) } {
                0 if d != until || until != GS_FOREVER => -libc::ETIMEDOUT,
                e => e,
            })?;
            Ok(())
        }
    }
}

/// time.monotonic(), which is the clock of deadlines: in a bubble its own.
#[pyfunction]
pub fn monotonic() -> f64 {
    // SAFETY: no preconditions.
    unsafe { gs_now() as f64 / 1e9 }
}

/// time.monotonic_ns(), as `monotonic`.
#[pyfunction]
pub fn monotonic_ns() -> i64 {
    // SAFETY: no preconditions.
    unsafe { gs_now() }
}

/// The time of time.time() at which a bubble's clock begins, which then shows one second: the beginning of
/// the year 2000, as in Go's synctest, in ns.
const EPOCH: i64 = 946_684_800_000_000_000;
const BEGIN: i64 = 1_000_000_000;

/// time.time_ns(): in a bubble by its clock.
#[pyfunction]
pub fn time_ns() -> i64 {
    if bubble::is_inside() {
        return EPOCH + monotonic_ns() - BEGIN;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writable.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// time.time(), as `time_ns`.
#[pyfunction]
pub fn time() -> f64 {
    time_ns() as f64 / 1e9
}

/// For gosched.Timeout: it expires in this number of seconds, in the running goroutine.
#[pyfunction]
pub fn _push_timeout(py: Python<'_>, timeout: Py<PyAny>, seconds: f64) -> PyResult<()> {
    start::ensure(py)?;
    let at = match Timeout::after(Some(seconds))? {
        Timeout::Never => 1,
        Timeout::At(at) => at,
        Timeout::Forever => i64::MAX,
    };
    match current::current(py) {
        Some(me) => me.push_timeout(py, at, timeout),
        None => return Err(errors::runtime("a Timeout needs a goroutine: this thread runs none")),
    }
    Ok(())
}

/// For gosched.Timeout: it is over.
#[pyfunction]
pub fn _pop_timeout(py: Python<'_>, timeout: &Bound<'_, PyAny>) {
    if let Some(me) = current::current(py) {
        me.pop_timeout(py, timeout);
    }
}
