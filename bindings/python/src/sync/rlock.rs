//! `RLock`.

use super::lock::{Kind, Lock, lock_timeout, truth};
use crate::bubble;
use crate::errors;
use crate::park::{self, Timeout};
use crate::shared::Shared;
use crate::worker::current::get_ident;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

/// A lock that its owner, a goroutine or thread, may take again, as threading.RLock.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct RLock {
    /// The owner, 0 for none, and how often it has taken the lock.
    held: Shared<(u64, u64)>,
    lock: Lock,
}

impl RLock {
    fn free(kind: Kind) -> RLock {
        RLock { held: Shared::new((0, 0)), lock: Lock::unlocked(kind) }
    }

    /// Takes it if it is free or the caller's. Whether it has.
    #[inline(always)]
    pub fn take_now(&self, py: Python<'_>) -> bool {
        let me = get_ident(py);
        self.held.with(py, |h| {
            if h.0 == me && h.1 > 0 {
                h.1 += 1;
                return true;
            }
            let taken = self.lock.take_now(py);
            if taken {
                *h = (me, 1);
            }
            taken
        })
    }

    /// Gives it back once if it is the caller's and nothing waits for it. Whether it has.
    #[inline(always)]
    pub fn give_now(&self, py: Python<'_>) -> bool {
        let me = get_ident(py);
        self.held.with(py, |h| {
            if h.0 != me || h.1 == 0 {
                return false;
            }
            if h.1 > 1 {
                h.1 -= 1;
                return true;
            }
            // The next owner writes its name here when `held` is free again.
            let is_given = self.lock.give_now(py);
            if is_given {
                *h = (0, 0);
            }
            is_given
        })
    }

    fn take(&self, py: Python<'_>, timeout: Timeout) -> PyResult<bool> {
        bubble::step(py);
        if self.take_now(py) {
            return Ok(true);
        }
        let me = get_ident(py);
        let taken = self.lock.take(py, timeout)?;
        if taken {
            self.held.with(py, |h| *h = (me, 1));
        }
        Ok(taken)
    }

    fn give(&self, py: Python<'_>) -> PyResult<()> {
        let me = get_ident(py);
        let left = self.held.with(py, |h| {
            if h.0 != me || h.1 == 0 {
                return None;
            }
            h.1 -= 1;
            if h.1 == 0 {
                h.0 = 0;
            }
            Some(h.1)
        });
        match left {
            None => Err(errors::runtime("cannot release un-acquired lock")),
            Some(0) => self.lock.release_it(py),
            Some(_) => Ok(()),
        }
    }
}

#[pymethods]
impl RLock {
    /// Arguments are ignored; from Python 3.15 on only those of a subclass are.
    #[new]
    #[classmethod]
    #[pyo3(signature = (*args, **kwargs))]
    fn new(
        cls: &Bound<'_, PyType>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<RLock> {
        let is_bare = args.is_empty() && kwargs.is_none_or(|kwargs| kwargs.is_empty());
        let py = cls.py();
        if !is_bare && cls.is(py.get_type::<RLock>()) && py.version_info() >= (3, 15) {
            return Err(PyTypeError::new_err("RLock() takes no arguments"));
        }
        Ok(RLock::free(Kind::Usual))
    }

    /// Takes the lock; waits for it if blocking, at most timeout seconds (-1: for ever). Whether it is held.
    #[pyo3(signature = (blocking=true, timeout=-1.0))]
    fn acquire(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = truth)] blocking: bool,
        timeout: f64,
    ) -> PyResult<bool> {
        self.take(py, lock_timeout(blocking, timeout)?)
    }

    /// Gives it back once. RuntimeError: the caller isn't the owner.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.give(py)
    }

    /// Whether it is held.
    fn locked(&self, py: Python<'_>) -> bool {
        self.held.with(py, |h| h.1 > 0)
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<bool> {
        self.take(py, Timeout::Forever)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.give(py)
    }

    fn _is_owned(&self, py: Python<'_>) -> bool {
        let me = get_ident(py);
        self.held.with(py, |h| h.0 == me && h.1 > 0)
    }

    fn _recursion_count(&self, py: Python<'_>) -> u64 {
        let me = get_ident(py);
        self.held.with(py, |h| if h.0 == me { h.1 } else { 0 })
    }

    fn _release_save(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let held = self.held.with(py, std::mem::take);
        if held.1 == 0 {
            return Err(errors::runtime("cannot release un-acquired lock"));
        }
        self.lock.release_it(py)?;
        Ok((held.1, held.0))
    }

    fn _acquire_restore(&self, py: Python<'_>, state: (u64, u64)) -> PyResult<()> {
        self.lock.take_through(py, false)?;
        self.held.with(py, |h| *h = (state.1, state.0));
        park::raise_end(py)
    }

    fn _at_fork_reinit(&self, py: Python<'_>) {
        self.held.with(py, |h| *h = (0, 0));
        self.lock.forget(py);
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let kind = slf.get_type().fully_qualified_name()?;
        let (owner, count) = slf.get().held.with(slf.py(), |h| *h);
        let state = if count > 0 { "locked" } else { "unlocked" };
        let at = slf.as_ptr() as usize;
        Ok(format!("<{state} {kind} object owner={owner} count={count} at {at:#x}>"))
    }
}

/// As `lock::_inner_lock`, an RLock.
#[pyfunction]
pub fn _inner_rlock() -> RLock {
    RLock::free(Kind::Inner)
}
