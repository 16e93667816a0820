//! Python's methods of a goroutine.

use super::body::call_back;
use super::object::{Goroutine, Status};
use super::report::report;
use crate::errors::{self, Cancelled};
use crate::park::Timeout;
use crate::sys::inspect;
use crate::worker::current;
use pyo3::exceptions::{PyBaseException, PyTypeError};
use pyo3::prelude::*;
use std::ptr;

impl Goroutine {
    /// For a goroutine that has ended: fails if it has left no outcome in this process.
    fn outcome_is_known(&self, py: Python<'_>) -> PyResult<()> {
        if self.inner.with(py, |i| i.status == Status::Done) {
            return Ok(());
        }
        Err(Cancelled::new_err("the goroutine belongs to the process that forked this one"))
    }

    fn wait_for_end(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = Timeout::after(timeout)?;
        if self.is_done(py) {
            return Ok(true);
        }
        if current::current(py).is_some_and(|me| ptr::eq(me, self)) {
            return Err(errors::runtime("a goroutine can't wait for its own end"));
        }
        while !self.is_done(py) {
            let woken = self.joiners.wait(py, 0, timeout, |ended, _| *ended).map_err(|(e, _)| e)?;
            if !woken {
                return Ok(self.is_done(py));
            }
        }
        Ok(true)
    }

    /// For result() and exception(): waits until it has ended. The error is the caller's from then
    /// on.
    fn wait_for_outcome(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<()> {
        let (py, g) = (slf.py(), slf.get());
        g.inner.with(py, |i| i.asking += 1);
        let ended = g.wait_for_end(py, timeout).and_then(|has_ended| {
            if has_ended { g.outcome_is_known(py) } else { Err(errors::timed_out()) }
        });
        let has_it = ended.is_ok();
        let left = g.inner.with(py, |i| {
            i.asking -= 1;
            i.watched |= has_it;
            // It has ended meanwhile, and this caller is the last that gives up.
            let is_left = i.unreported && (has_it || i.asking == 0);
            i.unreported &= !is_left;
            if is_left && !i.watched { i.error.as_ref().map(|e| e.clone_ref(py)) } else { None }
        });
        if let Some(e) = left {
            report(py, slf, &e, None);
        }
        ended
    }
}

#[pymethods]
impl Goroutine {
    /// A number that no other goroutine alive has.
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// Its name, for reports.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        let name = self.inner.with(py, |i| i.name.as_ref().map(|n| n.clone_ref(py)));
        name.unwrap_or_else(|| {
            format!("goroutine-{}", self.id).into_pyobject(py).unwrap().into_any().unbind()
        })
    }

    #[setter]
    fn set_name(&self, py: Python<'_>, name: Py<PyAny>) {
        let before = self.inner.with(py, |i| i.name.replace(name));
        drop(before);
    }

    /// Waits until it has ended. False: the timeout, in seconds, has passed.
    #[pyo3(signature = (timeout=None))]
    fn join(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.wait_for_end(py, timeout)
    }

    /// Waits until it has ended; gives what its function has returned, or raises what that has raised.
    /// TimeoutError: the timeout, in seconds, has passed.
    #[pyo3(signature = (timeout=None))]
    fn result(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        Self::wait_for_outcome(slf, timeout)?;
        let py = slf.py();
        let (result, error, traceback) = slf.get().inner.with(py, |i| {
            let copy = |object: &Option<Py<PyAny>>| object.as_ref().map(|o| o.clone_ref(py));
            (copy(&i.result), copy(&i.error), copy(&i.traceback))
        });
        match error {
            Some(e) => Err(errors::raised_anew(e.bind(py), traceback)),
            None => Ok(result.unwrap_or_else(|| py.None())),
        }
    }

    /// Waits until it has ended; gives the exception that its function has raised, or None.
    /// TimeoutError: the timeout, in seconds, has passed.
    #[pyo3(signature = (timeout=None))]
    fn exception(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
        Self::wait_for_outcome(slf, timeout)?;
        let py = slf.py();
        Ok(slf.get().inner.with(py, |i| i.error.as_ref().map(|e| e.clone_ref(py))))
    }

    /// Whether it has ended.
    fn done(&self, py: Python<'_>) -> bool {
        self.is_done(py)
    }

    /// Whether it has ended by Cancelled.
    fn cancelled(&self, py: Python<'_>) -> bool {
        self.inner.with(py, |i| i.cancelled)
    }

    /// Raises Cancelled in it, once, at its present or next wait. False: it has ended already.
    #[pyo3(signature = (msg=None))]
    fn cancel(&self, py: Python<'_>, msg: Option<Py<PyAny>>) -> bool {
        let e = match msg {
            Some(msg) => Cancelled::new_err((msg,)),
            None => Cancelled::new_err(()),
        };
        self.throw_at(py, e.into_value(py).into_any())
    }

    /// Raises an exception in it, once, at its present or next wait. False: it has ended already.
    fn throw(&self, exc: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = exc.py();
        let is_class = exc
            .cast::<pyo3::types::PyType>()
            .is_ok_and(|c| c.is_subclass_of::<PyBaseException>().unwrap_or(false));
        let e = if is_class { exc.call0()? } else { exc.clone() };
        if !e.is_instance_of::<PyBaseException>() {
            return Err(PyTypeError::new_err("exceptions must derive from BaseException"));
        }
        Ok(self.throw_at(py, e.unbind()))
    }

    /// Has fn(goroutine) called when it has ended, by the goroutine itself; now, if it has already.
    fn add_done_callback(slf: &Bound<'_, Self>, function: &Bound<'_, PyAny>) -> PyResult<()> {
        if !function.is_callable() {
            return Err(errors::not_callable(function));
        }
        slf.get().inner.with(slf.py(), |i| i.watched = true);
        Self::_on_end(slf, function.clone().unbind());
        Ok(())
    }

    /// As add_done_callback, but an error of the goroutine is reported all the same.
    fn _on_end(slf: &Bound<'_, Self>, function: Py<PyAny>) {
        let (py, g) = (slf.py(), slf.get());
        let late = g.inner.with(py, |i| {
            if i.status == Status::Done {
                return Some(function);
            }
            i.callbacks.push(function);
            None
        });
        if let Some(function) = late {
            call_back(py, &function, slf);
        }
    }

    /// Takes back what was thrown at it and not raised yet. Whether it has.
    fn _take_back(&self, py: Python<'_>, exc: &Bound<'_, PyAny>) -> bool {
        self.take_back(py, exc)
    }

    /// Takes a callback back; gives how often it was there.
    fn remove_done_callback(&self, py: Python<'_>, function: &Bound<'_, PyAny>) -> PyResult<usize> {
        let all: Vec<_> =
            self.inner.with(py, |i| i.callbacks.iter().map(|f| f.clone_ref(py)).collect());
        // Comparing runs Python code, which may change the list.
        let mut equal = Vec::new();
        for f in all {
            if f.bind(py).eq(function)? {
                equal.push(f);
            }
        }
        let mut removed = Vec::new();
        self.inner.with(py, |i| {
            for f in &equal {
                if let Some(at) = i.callbacks.iter().position(|g| g.is(f)) {
                    removed.push(i.callbacks.remove(at));
                }
            }
        });
        Ok(removed.len())
    }

    /// The frame that it is in; None: it isn't running, or not in Python. On a free-threaded Python, where it may go
    /// on meanwhile, a copy of what traceback uses.
    #[getter]
    fn frame(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        inspect::frame(py, self)
    }

    /// Whether it has begun, has not ended, and waits or has given way.
    fn _is_away(&self, py: Python<'_>) -> bool {
        !self.is_lost() && inspect::is_away(py, self)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let g = slf.get();
        let py = slf.py();
        let state = g.inner.with(py, |i| match i.status {
            Status::New | Status::Running if g.is_lost() => "lost in a fork",
            Status::New => "new",
            Status::Running => "running",
            Status::Done if i.cancelled => "cancelled",
            Status::Done if i.error.is_some() => "failed",
            Status::Done => "done",
        });
        let name = g.name(py).bind(py).str()?.to_string();
        Ok(format!("<gosched.Goroutine {} {state}>", name))
    }

    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        // The collector runs with the GIL held.
        self.inner.with_thread(|i| {
            if let Some(call) = &i.call {
                visit.call(&call.function)?;
                visit.call(&call.args)?;
                visit.call(&call.kwargs)?;
                visit.call(&call.context)?;
            }
            visit.call(&i.result)?;
            visit.call(&i.error)?;
            visit.call(&i.traceback)?;
            visit.call(&i.name)?;
            i.thrown.iter().chain(&i.callbacks).try_for_each(|o| visit.call(o))?;
            i.timeouts.iter().try_for_each(|t| visit.call(&t.1))
        })
    }

    fn __clear__(&self) {
        let all = self.inner.with_thread(|i| {
            (
                i.call.take(),
                i.result.take(),
                i.error.take(),
                i.traceback.take(),
                i.name.take(),
                std::mem::take(&mut i.callbacks),
                std::mem::take(&mut i.thrown),
                std::mem::take(&mut i.timeouts),
            )
        });
        drop(all);
    }

    #[classmethod]
    fn __class_getitem__(
        cls: &Bound<'_, pyo3::types::PyType>,
        _item: &Bound<'_, PyAny>,
    ) -> Py<PyAny> {
        cls.clone().into_any().unbind()
    }
}
