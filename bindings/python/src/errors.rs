//! Errors of the library as exceptions.

use crate::ffi::gs_strerror;
use pyo3::exceptions::{
    PyException, PyMemoryError, PyOSError, PyRuntimeError, PyTimeoutError, PyValueError,
};
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

pub fn no_memory() -> PyErr {
    PyMemoryError::new_err(())
}

pub fn timed_out() -> PyErr {
    PyTimeoutError::new_err("timed out")
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

/// For an errno value of a system call.
#[cold]
pub fn of_os(errno: i32) -> PyErr {
    std::io::Error::from_raw_os_error(errno).into()
}

/// An error, if there is one.
pub fn check(e: i32) -> PyResult<()> {
    if e < 0 { Err(of(e)) } else { Ok(()) }
}
