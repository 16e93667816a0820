//! The end of Python, and forks.

use crate::goroutine::{frames, list, report};
use crate::outside::outside;
use crate::sys::{closing, group, settler, starting, state, threads};
use crate::worker::{ending, first};
use crate::{blocking, errors, forks, interpreter, io, own, signals, sleep};
use pyo3::prelude::*;

/// At the end of Python, after its threads have been joined: waits for the calls of `blocking`, and for the
/// thread that runs goroutines if that isn't this one. Other functions of atexit may still use goroutines,
/// unless these have a thread of their own: that could not be told later that it must not enter Python.
#[pyfunction]
pub fn _finalize(py: Python<'_>) -> PyResult<()> {
    ending::begin();
    while blocking::running() > 0 || report::late() > 0 {
        sleep::sleep(py, 0.001)?;
    }
    // These calls need no goroutine, and a goroutine that computes would not give the thread back.
    while blocking::brief() > 0 {
        outside(py, || std::thread::sleep(std::time::Duration::from_millis(1)));
    }
    if !first::is_main_worker() {
        closing::leave_python(py);
    }
    if group::has_threads() {
        closing::close(py);
    }
    frames::close();
    Ok(())
}

/// At import: has the child of each fork forget the goroutines and threads that slept in the
/// parent, before Python runs anything there. What runs before `_forked`, such as `threading`'s own
/// function, may use locks.
pub fn init() -> PyResult<()> {
    unsafe extern "C" fn forked() {
        forks::forked();
        frames::set_main(std::ptr::null_mut());
        settler::forked();
    }
    // SAFETY: the function allocates nothing and takes no lock.
    match unsafe { libc::pthread_atfork(None, None, Some(forked)) } {
        0 => Ok(()),
        e => Err(errors::of(-e)),
    }
}

/// In the child of a fork: no goroutine is left, and what runs is a plain thread.
#[pyfunction]
pub fn _forked(py: Python<'_>) {
    first::forked();
    threads::forked();
    starting::forked();
    group::forked();
    closing::forked();
    interpreter::forked();
    state::forked();
    blocking::forked();
    own::forked(py);
    io::forked(py);
    signals::forked();
    list::forked(py);
    report::forked();
}
