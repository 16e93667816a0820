//! `Lock`.

use super::queues::Queue;
use crate::errors;
use crate::park::{self, Timeout};
use crate::worker::current;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Python's own locks take any number, and older programs say `acquire(0)`.
pub fn truth(blocking: &Bound<'_, PyAny>) -> PyResult<bool> {
    blocking.is_truthy()
}

/// The timeout of `acquire(blocking, timeout)`, with the errors of `threading`'s locks.
pub(super) fn lock_timeout(blocking: bool, timeout: f64) -> PyResult<Timeout> {
    if !blocking {
        if timeout != -1.0 {
            return Err(errors::value("can't specify a timeout for a non-blocking call"));
        }
        return Ok(Timeout::Never);
    }
    if timeout < 0.0 && timeout != -1.0 {
        return Err(errors::value("timeout value must be a non-negative number"));
    }
    if timeout > TIMEOUT_MAX {
        return Err(PyOverflowError::new_err("timeout value is too large"));
    }
    Timeout::after((timeout != -1.0).then_some(timeout))
}

/// The longest timeout that `threading` takes, in seconds: `threading.TIMEOUT_MAX`.
const TIMEOUT_MAX: f64 = 9223372036.0;

/// A lock, as threading.Lock: any goroutine or thread may release it.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct Lock {
    /// Whether a goroutine or thread has it.
    queue: Queue<bool>,
    kind: Kind,
}

/// What happens if an exception is thrown at a goroutine that waits for a lock.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// It ends the wait.
    Usual,
    /// It ends the wait, unless the lock was handed to the goroutine at the same time: then the
    /// goroutine has the lock, and the exception is for its next wait. See `_waiter_lock`.
    Waiter,
    /// It is for the goroutine's next wait, unless it ends the program. See `_inner_lock`.
    Inner,
}

/// Takes the lock if it is free. Whether it has.
#[inline(always)]
fn take_lock(is_locked: &mut bool, _waiting: [u32; 1]) -> bool {
    !std::mem::replace(is_locked, true)
}

impl Lock {
    pub(super) fn unlocked(kind: Kind) -> Lock {
        Lock { queue: Queue::new(false), kind }
    }

    pub(super) fn take(&self, py: Python<'_>, timeout: Timeout) -> PyResult<bool> {
        if self.kind == Kind::Inner && timeout == Timeout::Forever {
            return self.take_through(py, true).map(|()| true);
        }
        self.queue.wait(py, 0, timeout, take_lock).or_else(|(e, was_given)| {
            if was_given {
                if self.kind == Kind::Waiter
                    && let Some(me) = current::current(py)
                {
                    me.put_back(py, e);
                    return Ok(true);
                }
                self.give(py);
            }
            Err(e)
        })
    }

    /// Takes it, whatever is thrown at the goroutine meanwhile, by `park::wait_through`.
    pub(super) fn take_through(&self, py: Python<'_>, may_end: bool) -> PyResult<()> {
        self.queue.wait_through(py, 0, may_end, take_lock).map(|_| ()).map_err(|(e, was_given)| {
            if was_given {
                self.give(py);
            }
            e
        })
    }

    /// Hands the lock over to the first that waits, or unlocks it.
    fn give(&self, py: Python<'_>) {
        self.queue.wake(py, |is_locked, [waiting]| {
            *is_locked = waiting > 0;
            [waiting.min(1)]
        });
    }

    /// Takes it if it is free. Whether it has.
    #[inline(always)]
    pub fn take_now(&self, py: Python<'_>) -> bool {
        self.queue.with(py, take_lock)
    }

    /// Unlocks it if it is locked and nothing waits for it. Whether it has.
    #[inline(always)]
    pub fn give_now(&self, py: Python<'_>) -> bool {
        self.queue
            .with(py, |is_locked, [waiting]| waiting == 0 && std::mem::replace(is_locked, false))
    }

    pub(super) fn release_it(&self, py: Python<'_>) -> PyResult<()> {
        if !self.queue.with(py, |is_locked, _| *is_locked) {
            return Err(errors::runtime("release unlocked lock"));
        }
        self.give(py);
        Ok(())
    }

    /// In the child of a fork: unlocks it, and forgets the goroutines and threads that wait.
    pub(super) fn forget(&self, py: Python<'_>) {
        self.queue.reset(py, false);
    }
}

#[pymethods]
impl Lock {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Lock {
        Lock::unlocked(Kind::Usual)
    }

    fn __init__(&self) {}

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

    #[pyo3(signature = (blocking=true, timeout=-1.0))]
    fn acquire_lock(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = truth)] blocking: bool,
        timeout: f64,
    ) -> PyResult<bool> {
        self.acquire(py, blocking, timeout)
    }

    /// Gives the lock to the goroutine that has waited longest. RuntimeError: it isn't locked.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.release_it(py)
    }

    fn release_lock(&self, py: Python<'_>) -> PyResult<()> {
        self.release_it(py)
    }

    /// Takes the lock, for ever if need be.
    fn lock(&self, py: Python<'_>) -> PyResult<()> {
        self.take(py, Timeout::Forever).map(|_| ())
    }

    /// release().
    fn unlock(&self, py: Python<'_>) -> PyResult<()> {
        self.release_it(py)
    }

    /// Takes the lock if it is free. Whether the caller holds it now.
    fn try_lock(&self, py: Python<'_>) -> PyResult<bool> {
        self.take(py, Timeout::Never)
    }

    /// Whether it is held.
    fn locked(&self, py: Python<'_>) -> bool {
        self.queue.with(py, |is_locked, _| *is_locked)
    }

    fn locked_lock(&self, py: Python<'_>) -> bool {
        self.locked(py)
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<bool> {
        self.take(py, Timeout::Forever)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.release_it(py)
    }

    // What a Condition asks for. Its caller holds the lock again when a wait ends, even if that
    // raises an exception. There is no `_is_owned`: the try to acquire the lock, in its place,
    // gives way now and then. Code that polls a queue relies on it.

    fn _release_save(&self, py: Python<'_>) -> PyResult<()> {
        self.release_it(py)
    }

    fn _acquire_restore(&self, py: Python<'_>, _state: &Bound<'_, PyAny>) -> PyResult<()> {
        self.take_through(py, false)?;
        park::raise_end(py)
    }

    fn _at_fork_reinit(&self, py: Python<'_>) {
        self.forget(py);
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let kind = slf.get_type().fully_qualified_name()?;
        let state = if slf.get().locked(slf.py()) { "locked" } else { "unlocked" };
        Ok(format!("<{state} {kind} object at {:#x}>", slf.as_ptr() as usize))
    }
}

/// For Condition, of threading: what a wait takes a second time until a notification releases it. The wait has that
/// notification even if the goroutine is cancelled at the same time, as no other waiter gets it.
#[pyfunction]
pub fn _waiter_lock() -> Lock {
    Lock::unlocked(Kind::Waiter)
}

/// A lock within an object, for calls that wait for nothing but that: no cancel and no Timeout ends the wait for it. What
/// ends the program does in the main goroutine, as in a main thread.
#[pyfunction]
pub fn _inner_lock() -> Lock {
    Lock::unlocked(Kind::Inner)
}
