//! `gosched._gosched`: libgosched's goroutines for Python.

use std::ffi::{CStr, c_char};

use pyo3::prelude::*;

unsafe extern "C" {
    fn gs_version() -> *const c_char;
}

/// The version of libgosched, such as "0.1.0".
#[pyfunction]
fn version() -> &'static str {
    // SAFETY: gs_version gives a static string.
    unsafe { CStr::from_ptr(gs_version()) }.to_str().unwrap_or("")
}

#[pymodule]
fn _gosched(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(version, module)?)
}
