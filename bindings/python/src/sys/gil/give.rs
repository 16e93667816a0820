//! References that go to another goroutine.

use pyo3::ffi;
use pyo3::prelude::*;

/// One more reference to an object, for another goroutine.
#[inline(always)]
pub fn give(object: &Bound<'_, PyAny>) -> *mut ffi::PyObject {
    object.clone().into_ptr()
}
