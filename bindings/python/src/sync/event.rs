//! `Event`.

use super::queues::Queue;
use crate::park::Timeout;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A flag that goroutines wait for.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct Event {
    queue: Queue<bool>,
}

#[pymethods]
impl Event {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Event {
        Event { queue: Queue::new(false) }
    }

    fn __init__(&self) {}

    /// Whether it is set.
    fn is_set(&self, py: Python<'_>) -> bool {
        self.queue.with(py, |is_set, _| *is_set)
    }

    /// Sets it: all that wait go on.
    fn set(&self, py: Python<'_>) {
        self.queue.wake(py, |is_set, waiting| {
            *is_set = true;
            waiting
        });
    }

    /// Resets it.
    fn clear(&self, py: Python<'_>) {
        self.queue.with(py, |is_set, _| *is_set = false);
    }

    /// Waits until it is set, at most timeout seconds. Whether it was.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        if self.is_set(py) {
            return Ok(true);
        }
        let ended = self.queue.wait(py, 0, Timeout::after(timeout)?, |is_set, _| *is_set);
        ended.map_err(|(e, _)| e)
    }
}
