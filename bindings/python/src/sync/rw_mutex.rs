//! `RWMutex`.

use super::queues::Queues;
use crate::errors;
use crate::park::Timeout;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A lock for many readers or one writer. New readers wait while a writer waits.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct RWMutex {
    /// How many readers have it, -1: a writer has it. The queues are `READERS` and `WRITERS`.
    queues: Queues<i64, 2>,
}

const READERS: usize = 0;
const WRITERS: usize = 1;

/// How many readers and writers are to be woken. These hold the mutex from here on. After a writer
/// the readers come first, so that neither waits for ever.
fn pass_on(held: &mut i64, [readers, writers]: [u32; 2], after_writer: bool) -> [u32; 2] {
    if *held == 0 && writers > 0 && !(after_writer && readers > 0) {
        *held = -1;
        [0, 1]
    } else if *held >= 0 && readers > 0 && (after_writer || writers == 0) {
        *held += i64::from(readers);
        [readers, 0]
    } else {
        [0, 0]
    }
}

#[pymethods]
impl RWMutex {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> RWMutex {
        RWMutex { queues: Queues::new(0) }
    }

    fn __init__(&self) {}

    /// Takes it for writing; waits at most timeout seconds. Whether it is held.
    #[pyo3(signature = (timeout=None))]
    fn lock(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = Timeout::after(timeout)?;
        let free = |held: &mut i64, _| {
            let free = *held == 0;
            if free {
                *held = -1;
            }
            free
        };
        let result = self.queues.wait(py, WRITERS, timeout, free);
        // Readers that waited for this writer need not any more.
        let give_up = || self.queues.wake(py, |held, waiting| pass_on(held, waiting, false));
        match result {
            Ok(true) => Ok(true),
            Ok(false) => {
                give_up();
                Ok(false)
            }
            Err((e, true)) => {
                self.unlock(py)?;
                Err(e)
            }
            Err((e, false)) => {
                give_up();
                Err(e)
            }
        }
    }

    /// Gives it back. RuntimeError: no writer has it.
    fn unlock(&self, py: Python<'_>) -> PyResult<()> {
        let mut was_held = false;
        self.queues.wake(py, |held, waiting| {
            was_held = *held == -1;
            if !was_held {
                return [0, 0];
            }
            *held = 0;
            pass_on(held, waiting, true)
        });
        if !was_held {
            return Err(errors::runtime("unlock of an RWMutex that no writer has"));
        }
        Ok(())
    }

    /// Takes it for reading; waits at most timeout seconds. Whether it is held.
    #[pyo3(signature = (timeout=None))]
    fn rlock(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = Timeout::after(timeout)?;
        let free = |held: &mut i64, waiting: [u32; 2]| {
            let free = *held >= 0 && waiting[WRITERS] == 0;
            *held += i64::from(free);
            free
        };
        self.queues.wait(py, READERS, timeout, free).map_err(|(e, was_given)| {
            if was_given {
                let _ = self.runlock(py);
            }
            e
        })
    }

    /// Gives it back. RuntimeError: no reader has it.
    fn runlock(&self, py: Python<'_>) -> PyResult<()> {
        let mut was_held = false;
        self.queues.wake(py, |held, waiting| {
            was_held = *held > 0;
            if !was_held {
                return [0, 0];
            }
            *held -= 1;
            pass_on(held, waiting, false)
        });
        if !was_held {
            return Err(errors::runtime("runlock of an RWMutex that no reader has"));
        }
        Ok(())
    }
}
