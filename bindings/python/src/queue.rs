//! The queue of `queue.SimpleQueue`.
//!
//! It is not written in Python: there the handler of a signal, such as that of Ctrl-C, may raise an
//! exception between any two steps, and an item would be in the queue that no call gives.

use crate::errors;
use crate::park::Timeout;
use crate::sync::lock::truth;
use crate::sync::queues::Queue;
use crate::sys::give::give;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::collections::VecDeque;

/// The items, oldest first.
struct Items {
    all: VecDeque<Py<PyAny>>,
    /// How many of them are for no caller of `get` that is about to take one.
    free: usize,
}

/// Simple, unbounded, reentrant FIFO queue.
#[pyclass(frozen, weakref, subclass, module = "gosched._queue")]
pub struct SimpleQueue {
    queue: Queue<Items>,
}

impl SimpleQueue {
    /// Waits for an item, which is then the caller's to take. Whether there is one.
    fn wait(&self, py: Python<'_>, timeout: Timeout) -> PyResult<bool> {
        let reserve = |items: &mut Items, _: [u32; 1]| {
            let is_free = items.free > 0;
            items.free -= usize::from(is_free);
            is_free
        };
        self.queue.wait(py, 0, timeout, reserve).map_err(|(e, was_given)| {
            if was_given {
                self.offer(py, |_| {});
            }
            e
        })
    }

    /// Calls `f` with the items. One more of them is for the caller of `get` that has waited
    /// longest.
    fn offer(&self, py: Python<'_>, f: impl FnOnce(&mut VecDeque<Py<PyAny>>)) {
        self.queue.wake(py, |items, [waiting]| {
            f(&mut items.all);
            items.free += usize::from(waiting == 0);
            [waiting.min(1)]
        });
    }
}

/// `queue.Empty`.
fn empty(py: Python<'_>) -> PyErr {
    static EMPTY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    match EMPTY.import(py, "gosched._queue", "Empty") {
        Ok(class) => PyErr::from_type(class.clone(), ()),
        Err(e) => e,
    }
}

#[pymethods]
impl SimpleQueue {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> SimpleQueue {
        SimpleQueue { queue: Queue::new(Items { all: VecDeque::new(), free: 0 }) }
    }

    fn __init__(&self) {}

    /// Put the item on the queue. It never blocks; block and timeout are as in Queue.put.
    #[pyo3(signature = (item, block=None, timeout=None))]
    #[pyo3(text_signature = "($self, item, block=True, timeout=None)")]
    fn put(
        &self,
        item: &Bound<'_, PyAny>,
        block: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) {
        let _ = (block, timeout);
        let py = item.py();
        // SAFETY: the reference that `give` makes.
        let item = unsafe { Bound::from_owned_ptr(py, give(item)) }.unbind();
        self.offer(py, |all| all.push_back(item));
    }

    /// Remove and return an item; Empty if there is none (in time).
    #[pyo3(signature = (block=true, timeout=None))]
    fn get(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = truth)] block: bool,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let timeout = match timeout {
            _ if !block => Timeout::Never,
            Some(t) if t < 0.0 => {
                return Err(errors::value("'timeout' must be a non-negative number"));
            }
            timeout => Timeout::after(timeout)?,
        };
        if !self.wait(py, timeout)? {
            return Err(empty(py));
        }
        self.queue.with(py, |items, _| items.all.pop_front()).ok_or_else(|| empty(py))
    }

    /// Put an item into the queue without blocking.
    fn put_nowait(&self, item: &Bound<'_, PyAny>) {
        self.put(item, None, None);
    }

    /// Remove and return an item, or raise Empty.
    fn get_nowait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.get(py, false, None)
    }

    /// Whether the queue is empty (which may have changed by now).
    fn empty(&self, py: Python<'_>) -> bool {
        self.qsize(py) == 0
    }

    /// The number of items (which may have changed by now).
    fn qsize(&self, py: Python<'_>) -> usize {
        self.queue.with(py, |items, _| items.all.len())
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        let class = slf.get_type().name()?;
        Err(PyTypeError::new_err(format!("cannot pickle '_queue.{class}' object")))
    }

    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        self.queue.with_thread(|items| items.all.iter().try_for_each(|item| visit.call(item)))
    }

    fn __clear__(&self) {
        drop(self.queue.with_thread(|items| std::mem::take(&mut items.all)));
    }

    #[classmethod]
    fn __class_getitem__<'py>(
        cls: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        cls.py().import("types")?.getattr("GenericAlias")?.call1((cls, item))
    }
}
