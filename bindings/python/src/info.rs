//! What the runtime is and does.

use crate::errors;
use crate::ffi::*;
use crate::worker::{current, procs, start};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::CStr;

/// The version of libgosched, such as "0.1.0".
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

/// Writes a line for each goroutine, native ones too, to a file descriptor.
#[pyfunction]
pub fn _dump(py: Python<'_>, fd: i32) -> PyResult<()> {
    // SAFETY: without the GIL.
    errors::check(current::call(py, || unsafe { gs_dump(fd) }))
}
