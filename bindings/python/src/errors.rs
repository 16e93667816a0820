//! Errors of the library as exceptions.

use crate::ffi::gs_strerror;
use pyo3::exceptions::{
    PyException, PyMemoryError, PyOSError, PyRuntimeError, PyTimeoutError, PyTypeError,
    PyValueError,
};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;

pyo3::create_exception!(gosched, Closed, PyException, "The channel is closed.");
pyo3::create_exception!(
    gosched,
    Cancelled,
    pyo3::exceptions::PyBaseException,
    "The goroutine was cancelled: raised in it at its present or next wait."
);

pub fn runtime(text: &'static str) -> PyErr {
    PyRuntimeError::new_err(text)
}

pub fn value(text: &'static str) -> PyErr {
    PyValueError::new_err(text)
}

#[cold]
pub fn not_callable(object: &Bound<'_, PyAny>) -> PyErr {
    match object.get_type().name() {
        Ok(kind) if kind == "coroutine" => PyTypeError::new_err(
            "the first argument must be callable, not a coroutine: run_coroutine() waits for it",
        ),
        Ok(kind) => {
            PyTypeError::new_err(format!("the first argument must be callable, not {kind}"))
        }
        Err(e) => e,
    }
}

pub fn no_memory() -> PyErr {
    PyMemoryError::new_err(())
}

pub fn timed_out() -> PyErr {
    PyTimeoutError::new_err("timed out")
}

/// An exception as `raise` raises it: its context is the exception that is being handled.
#[cold]
pub fn raised(exception: &Bound<'_, PyAny>) -> PyErr {
    // SAFETY: the GIL is held; an error is set, so there is one to fetch.
    unsafe {
        ffi::PyErr_SetObject(exception.get_type().as_ptr(), exception.as_ptr());
        PyErr::fetch(exception.py())
    }
}

/// As `raised`, with that traceback instead of the exception's own, which holds the frames of those that raised it
/// before.
#[cold]
pub fn raised_anew(exception: &Bound<'_, PyAny>, traceback: Option<Py<PyAny>>) -> PyErr {
    let traceback = traceback.unwrap_or_else(|| exception.py().None());
    // SAFETY: an exception and a traceback or None, with the GIL held.
    unsafe { ffi::PyException_SetTraceback(exception.as_ptr(), traceback.as_ptr()) };
    raised(exception)
}

/// For a negative errno value of the library.
#[cold]
pub fn of(e: i32) -> PyErr {
    match -e {
        libc::ENOMEM => no_memory(),
        libc::EPIPE => Closed::new_err("the channel is closed"),
        libc::ETIMEDOUT | libc::EAGAIN => timed_out(),
        // SAFETY: a static string.
        n => match unsafe { CStr::from_ptr(gs_strerror(e)) }.to_str() {
            Ok(text) => PyOSError::new_err((n, text)),
            Err(_) => of_os(n),
        },
    }
}

/// For an errno value of a system call: `OSError(errno, text)`, which is the subclass for that errno.
#[cold]
pub fn of_os(errno: i32) -> PyErr {
    // SAFETY: a string that stays until the next call of this thread's.
    let text = unsafe { CStr::from_ptr(libc::strerror(errno)) };
    PyOSError::new_err((errno, text.to_string_lossy().into_owned()))
}

/// For the errno of the system call that has just failed.
#[cold]
pub fn last() -> PyErr {
    of_os(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// An error, if there is one.
pub fn check(e: i32) -> PyResult<()> {
    if e < 0 { Err(of(e)) } else { Ok(()) }
}
