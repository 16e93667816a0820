//! What the runtime is and does.

use crate::errors;
use crate::ffi::*;
use crate::worker::{current, procs, start};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::CStr;

/// The version of libgosched, such as "1.1.0".
#[pyfunction]
pub fn version() -> &'static str {
    // SAFETY: a static string.
    unsafe { CStr::from_ptr(gs_version()) }.to_str().unwrap_or("")
}

/// How many goroutines may run at the same time; with n, sets that, and gives the number before. With a GIL those
/// of Python run one at a time: the others are native ones, and what blocking() calls.
#[pyfunction]
#[pyo3(signature = (n=None))]
pub fn gomaxprocs(py: Python<'_>, n: Option<i32>) -> PyResult<i32> {
    let before = procs::gomaxprocs(py, n)?;
    if let Some(n) = n {
        start::procs_changed(py, n)?;
    }
    Ok(before)
}

/// How many NUMA nodes the machine has.
#[pyfunction]
pub fn nodes(py: Python<'_>) -> PyResult<i32> {
    // SAFETY: without the GIL.
    let n = current::call(py, || unsafe { gs_numa_nodes() });
    errors::check(n)?;
    Ok(n)
}

/// What has been counted since the runtime started, native goroutines included.
#[pyfunction]
pub fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let mut s = gs_stats { size: size_of::<gs_stats>(), ..gs_stats::default() };
    // SAFETY: a struct of the size that it says.
    errors::check(current::call(py, || unsafe { gs_stats_read(&raw mut s) }))?;
    let all = PyDict::new(py);
    for (name, value) in [
        ("goroutines", s.goroutines),
        ("created", s.created),
        ("ended", s.ended),
        ("procs", s.procs),
        ("idle_procs", s.idle_procs),
        ("threads", s.threads),
        ("switches", s.switches),
        ("handoffs", s.handoffs),
        ("steals_near", s.steals_near),
        ("steals_remote_queue", s.steals_remote_queue),
        ("steals_remote_p", s.steals_remote_p),
        ("stacks_sent_home", s.stacks_sent_home),
        ("migrations", s.migrations),
        ("pages_moved", s.pages_moved),
    ] {
        all.set_item(name, value)?;
    }
    Ok(all)
}

/// Calls a function that writes to a file descriptor, or begins or ends that. OSError: by the error's
/// number, also where `errors::of` has an exception of its own.
fn write(py: Python<'_>, f: impl FnOnce() -> i32) -> PyResult<()> {
    match current::call(py, f) {
        e if e >= 0 => Ok(()),
        e if e == -libc::ENOMEM => Err(errors::no_memory()),
        e => Err(errors::of_os(-e)),
    }
}

/// Writes the state of each goroutine, native ones too, to a file descriptor.
#[pyfunction]
pub fn _dump(py: Python<'_>, fd: i32) -> PyResult<()> {
    // SAFETY: without the GIL.
    write(py, || unsafe { gs_dump(fd) })
}

/// Writes the state of each goroutine as JSON to a file descriptor.
#[pyfunction]
pub fn _dump_json(py: Python<'_>, fd: i32) -> PyResult<()> {
    // SAFETY: without the GIL.
    write(py, || unsafe { gs_dump_json(fd) })
}

/// Writes a report of goroutines that can never go on to a file descriptor.
#[pyfunction]
pub fn _leaks(py: Python<'_>, fd: i32) -> PyResult<()> {
    // SAFETY: without the GIL.
    write(py, || unsafe { gs_leaks(fd) })
}

/// Writes the statistics as OpenMetrics text to a file descriptor.
#[pyfunction]
pub fn _metrics(py: Python<'_>, fd: i32) -> PyResult<()> {
    // SAFETY: without the GIL.
    write(py, || unsafe { gs_stats_write(fd) })
}

/// Begins to write a trace to a file descriptor, which stays open until `_trace_stop`.
#[pyfunction]
pub fn _trace_start(py: Python<'_>, fd: i32) -> PyResult<()> {
    // SAFETY: without the GIL.
    write(py, || unsafe { gs_trace_start(fd) })
}

/// Ends the trace.
#[pyfunction]
pub fn _trace_stop(py: Python<'_>) -> PyResult<()> {
    // SAFETY: without the GIL.
    write(py, || unsafe { gs_trace_stop() })
}

/// Begins to keep the events of the last seconds.
#[pyfunction]
pub fn _flight_start(py: Python<'_>, seconds: f64) -> PyResult<()> {
    let ns = seconds * 1e9;
    if ns.is_nan() || ns < 1.0 {
        return Err(errors::value("a number of seconds above 0 is needed"));
    }
    // SAFETY: without the GIL. The conversion saturates.
    write(py, || unsafe { gs_flight_start(ns as i64) })
}

/// Keeps events no longer.
#[pyfunction]
pub fn _flight_stop(py: Python<'_>) -> PyResult<()> {
    // SAFETY: without the GIL.
    write(py, || unsafe { gs_flight_stop() })
}

/// Writes the events that are kept to a file descriptor.
#[pyfunction]
pub fn _flight_write(py: Python<'_>, fd: i32) -> PyResult<()> {
    // SAFETY: without the GIL.
    write(py, || unsafe { gs_flight_write(fd) })
}
