//! References that go to another goroutine.

use pyo3::ffi;
use pyo3::prelude::*;

unsafe extern "C" {
    fn gosched_object_give(o: *mut ffi::PyObject);
}

/// One more reference to an object, for another goroutine, maybe on another thread.
#[inline(always)]
pub fn give(object: &Bound<'_, PyAny>) -> *mut ffi::PyObject {
    // SAFETY: the caller has a reference.
    unsafe { gosched_object_give(object.as_ptr()) };
    object.as_ptr()
}
