//! The worker group in which goroutines begin: that of the first thread, which is the only one.

use crate::ffi::gs_workers;
use crate::worker::first;
use pyo3::prelude::*;

/// The group in which goroutines begin.
#[inline(always)]
pub fn group() -> *mut gs_workers {
    first::group()
}

/// Whether goroutines begin on other threads than the first.
pub fn has_threads() -> bool {
    false
}

/// Makes sure that there are threads for `n` goroutines at a time.
pub fn grow(_py: Python<'_>, _n: usize) -> PyResult<()> {
    Ok(())
}

/// Makes sure that there is a thread for each P.
pub fn grow_to_procs(_py: Python<'_>) -> PyResult<()> {
    Ok(())
}

/// In the child of a fork.
pub fn forked() {}
