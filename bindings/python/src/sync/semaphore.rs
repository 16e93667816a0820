//! `Semaphore`.

use super::lock::truth;
use super::queues::Queue;
use crate::errors;
use crate::park::Timeout;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A semaphore: a limited number of holders at a time.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct Semaphore {
    /// How many units are free.
    queue: Queue<i64>,
}

/// Takes a unit if there is one. Whether it has.
#[inline(always)]
fn take_unit(units: &mut i64, _waiting: [u32; 1]) -> bool {
    let is_free = *units > 0;
    *units -= i64::from(is_free);
    is_free
}

impl Semaphore {
    /// Takes a unit if there is one. Whether it has.
    #[inline(always)]
    pub fn take_now(&self, py: Python<'_>) -> bool {
        self.queue.with(py, take_unit)
    }

    /// Gives a unit back if nothing waits for it. Whether it has.
    #[inline(always)]
    pub fn give_now(&self, py: Python<'_>) -> bool {
        self.queue.with(py, |units, [waiting]| {
            let unwanted = waiting == 0 && *units < i64::MAX;
            *units += i64::from(unwanted);
            unwanted
        })
    }

    fn take(&self, py: Python<'_>, timeout: Timeout) -> PyResult<bool> {
        self.queue.wait(py, 0, timeout, take_unit).map_err(|(e, was_given)| {
            match was_given.then(|| self.give(py, 1)) {
                Some(Err(too_many)) => too_many,
                _ => e,
            }
        })
    }

    fn give(&self, py: Python<'_>, n: u32) -> PyResult<()> {
        let mut is_too_many = false;
        self.queue.wake(py, |units, [waiting]| {
            let woken = waiting.min(n);
            let now = units.checked_add(i64::from(n - woken));
            is_too_many = now.is_none();
            *units = now.unwrap_or(*units);
            [if is_too_many { 0 } else { woken }]
        });
        if is_too_many {
            return Err(PyOverflowError::new_err("the semaphore has too many units"));
        }
        Ok(())
    }
}

#[pymethods]
impl Semaphore {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Semaphore {
        Semaphore { queue: Queue::new(1) }
    }

    #[pyo3(signature = (value=1))]
    fn __init__(&self, py: Python<'_>, value: i64) -> PyResult<()> {
        if value < 0 {
            return Err(errors::value("semaphore initial value must be >= 0"));
        }
        self.queue.with(py, |units, _| *units = value);
        Ok(())
    }

    /// Takes one unit; waits for it if blocking, at most timeout seconds. Whether it has one.
    #[pyo3(signature = (blocking=true, timeout=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = truth)] blocking: bool,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        if !blocking && timeout.is_some() {
            return Err(errors::value("can't specify timeout for non-blocking acquire"));
        }
        let timeout = if blocking { Timeout::after(timeout)? } else { Timeout::Never };
        self.take(py, timeout)
    }

    /// Gives n units back. OverflowError: the semaphore would have 2**63 units or more.
    #[pyo3(signature = (n=1))]
    fn release(&self, py: Python<'_>, n: i64) -> PyResult<()> {
        let n = match u32::try_from(n) {
            Ok(n) if n > 0 => n,
            Err(_) if n > 0 => return Err(errors::value("n is too large")),
            _ => return Err(errors::value("n must be one or more")),
        };
        self.give(py, n)
    }

    /// How many units are free.
    #[getter]
    fn value(&self, py: Python<'_>) -> i64 {
        self.queue.with(py, |units, _| *units)
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<bool> {
        self.take(py, Timeout::Forever)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.give(py, 1)
    }
}
