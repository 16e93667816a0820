//! `WaitGroup`.

use super::queues::Queue;
use crate::errors;
use crate::park::Timeout;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Waits for a number of goroutines, as sync.WaitGroup.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct WaitGroup {
    queue: Queue<i64>,
}

#[pymethods]
impl WaitGroup {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> WaitGroup {
        WaitGroup { queue: Queue::new(0) }
    }

    fn __init__(&self) {}

    /// Adds n, which may be negative, to the counter. ValueError: it would be below 0.
    #[pyo3(signature = (n=1))]
    fn add(&self, py: Python<'_>, n: i64) -> PyResult<()> {
        let mut is_wrong = false;
        self.queue.wake(py, |count, [waiting]| {
            let now = count.checked_add(n).filter(|now| *now >= 0);
            is_wrong = now.is_none();
            *count = now.unwrap_or(*count);
            [if now == Some(0) { waiting } else { 0 }]
        });
        if is_wrong {
            return Err(errors::value("the counter of a WaitGroup can't be negative"));
        }
        Ok(())
    }

    /// Takes one from the counter.
    fn done(&self, py: Python<'_>) -> PyResult<()> {
        self.add(py, -1)
    }

    /// Waits until the counter is 0, at most timeout seconds. Whether it was.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        if self.count(py) == 0 {
            return Ok(true);
        }
        let ended = self.queue.wait(py, 0, Timeout::after(timeout)?, |count, _| *count == 0);
        ended.map_err(|(e, _)| e)
    }

    /// The counter.
    #[getter]
    fn count(&self, py: Python<'_>) -> i64 {
        self.queue.with(py, |count, _| *count)
    }
}
