//! The number of P's.

use crate::errors;
use crate::ffi::gs_gomaxprocs;
use crate::worker::current::call;
use pyo3::prelude::*;

/// How many P's there are; with `n`, sets that, and gives the number before. ValueError: `n` is
/// less than 1, or too large.
pub fn gomaxprocs(py: Python<'_>, n: Option<i32>) -> PyResult<i32> {
    if n.is_some_and(|n| n < 1) {
        return Err(errors::value("gomaxprocs must be at least 1"));
    }
    // SAFETY: without the GIL.
    let before = call(py, || unsafe { gs_gomaxprocs(n.unwrap_or(0)) });
    if before == -libc::EINVAL {
        return Err(errors::value("gomaxprocs is too large"));
    }
    errors::check(before)?;
    Ok(before)
}
