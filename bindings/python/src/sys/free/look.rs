//! The goroutine that looks for memory that waits for its thread: see `settler`.

use super::{left, threads};
use crate::park::{self, Timeout};
use crate::sleep;
use crate::worker::{current, ending};
use pyo3::prelude::*;

/// How long goroutines may go on after one has left Python and before the threads are looked at, in
/// seconds.
const PAUSE: f64 = 0.05;

/// For gosched._signals: waits until a goroutine leaves Python, and looks once. False: there is no next time.
#[pyfunction]
pub fn _settle(py: Python<'_>) -> PyResult<bool> {
    left::set_looker(threads::frames_here());
    // SAFETY: outside of Python.
    let waited = park::wait(py, Timeout::Forever, |d| unsafe { left::wait(d) });
    if ending::is_over() {
        return Ok(false);
    }
    waited?;
    sleep::sleep(py, PAUSE)?;
    left::forget();
    current::call(py, || {
        for worker in threads::all() {
            // The first thread is this one.
            if worker.must_settle() {
                // SAFETY: outside of Python.
                unsafe { worker.ask() };
            }
        }
    });
    Ok(true)
}
