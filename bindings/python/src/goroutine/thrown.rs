//! Exceptions that are thrown at a goroutine, and the `Timeout`s within which it is.

use super::object::{Goroutine, Status, retained};
use crate::errors;
use crate::ffi::*;
use crate::worker::{current, first};
use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::prelude::*;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the main goroutine is about to raise a KeyboardInterrupt: see `discard_repeated`.
static RAISING: AtomicBool = AtomicBool::new(false);

/// Whether the exception is a KeyboardInterrupt.
fn is_interrupt(py: Python<'_>, e: &Py<PyAny>) -> bool {
    e.bind(py).is_instance_of::<PyKeyboardInterrupt>()
}

/// Ends the present wait of a goroutine, or its next one. Takes the caller's reference; null: does
/// nothing.
pub fn cancel(py: Python<'_>, handle: *mut gs_g) {
    if !handle.is_null() {
        let handle = handle as usize;
        // SAFETY: the caller's reference.
        current::call(py, || unsafe {
            gs_cancel(handle as *mut gs_g);
            gs_release(handle as *mut gs_g);
        });
    }
}

impl Goroutine {
    /// Takes the first exception that was thrown at the goroutine, which runs now. Within
    /// `park::_through`: only what ends the program.
    #[inline(always)]
    pub fn take_thrown(&self, py: Python<'_>) -> Option<PyErr> {
        let (thrown, was_last, is_through) = self.inner.with(py, |i| {
            if i.thrown.is_empty() || i.through > 0 {
                return (None, false, !i.thrown.is_empty());
            }
            (i.thrown.pop_front(), i.thrown.is_empty(), false)
        });
        if is_through && first::is_main_goroutine() {
            return self.take_end(py);
        }
        let thrown = thrown?;
        if was_last {
            // SAFETY: never switches; the caller is this goroutine.
            unsafe { gs_uncancel() };
        }
        if is_interrupt(py, &thrown) && first::is_main_goroutine() {
            discard_repeated(py, self);
        }
        Some(errors::raised(thrown.bind(py)))
    }

    /// Takes the first KeyboardInterrupt or SystemExit that was thrown at the goroutine, which runs
    /// now.
    pub fn take_end(&self, py: Python<'_>) -> Option<PyErr> {
        let end = self.inner.with(py, |i| {
            let at = i
                .thrown
                .iter()
                .position(|e| is_interrupt(py, e) || e.bind(py).is_instance_of::<PySystemExit>())?;
            i.thrown.remove(at)
        })?;
        if is_interrupt(py, &end) {
            discard_repeated(py, self);
        }
        Some(errors::raised(end.bind(py)))
    }

    /// Tells the library whether the goroutine, which runs now, has something to raise at its next
    /// wait.
    pub fn cancel_if_thrown(&self, py: Python<'_>) {
        let handle = self
            .inner
            .with(py, |i| if i.thrown.is_empty() { ptr::null_mut() } else { retained(i) });
        if handle.is_null() {
            // SAFETY: never switches; the caller is this goroutine.
            unsafe { gs_uncancel() };
        }
        cancel(py, handle);
    }

    /// Has the goroutine, which runs now, raise at its next wait what has just ended a wait of it.
    pub fn put_back(&self, py: Python<'_>, e: PyErr) {
        let e = e.into_value(py).into_any();
        let handle = self.inner.with(py, |i| {
            if let Some(timeout) = i.timeouts.iter_mut().find(|t| t.1.is(&e)) {
                timeout.0 = 1;
                return Err(e);
            }
            i.thrown.push_front(e);
            Ok(retained(i))
        });
        if let Ok(handle) = handle {
            cancel(py, handle);
        }
    }

    /// Has the goroutine raise the exception at its present or next wait. False: the goroutine has
    /// ended.
    pub fn throw_at(&self, py: Python<'_>, exception: Py<PyAny>) -> bool {
        let handle = self.inner.with(py, |i| {
            if i.status == Status::Done || self.is_lost() {
                return Err(exception);
            }
            i.thrown.push_back(exception);
            Ok(retained(i))
        });
        match handle {
            Ok(handle) => {
                cancel(py, handle);
                true
            }
            Err(exception) => {
                drop(exception);
                false
            }
        }
    }

    /// Takes an exception back that was thrown at the goroutine and not raised yet. Whether it was
    /// there.
    pub(super) fn take_back(&self, py: Python<'_>, exc: &Bound<'_, PyAny>) -> bool {
        let gone = self.inner.with(py, |i| {
            let at = i.thrown.iter().position(|e| e.is(exc))?;
            i.thrown.remove(at)
        });
        gone.is_some()
    }

    /// Calls `f`, which neither runs Python code nor waits, if a KeyboardInterrupt was thrown at
    /// the goroutine and not raised yet. The goroutine doesn't raise the exception meanwhile.
    /// Whether `f` was called.
    pub fn if_interrupted(&self, py: Python<'_>, f: impl FnOnce()) -> bool {
        self.inner.with(py, |i| {
            let is_interrupted = i.thrown.iter().any(|e| is_interrupt(py, e));
            if is_interrupted {
                f();
            }
            is_interrupted
        })
    }

    /// When the first of the goroutine's `Timeout`s expires, a time of `gs_now`'s in ns. `None`:
    /// there is none, or the goroutine is within `park::_through`.
    #[inline(always)]
    pub fn next_timeout(&self, py: Python<'_>) -> Option<i64> {
        self.inner.with(py, |i| match i.through {
            0 => i.timeouts.iter().map(|t| t.0).min(),
            _ => None,
        })
    }

    /// The `Timeout` that has expired, as an exception. Each is given once.
    #[inline(always)]
    pub fn expired(&self, py: Python<'_>) -> Option<PyErr> {
        let is_none = self.inner.with(py, |i| i.timeouts.is_empty() || i.through > 0);
        if is_none { None } else { self.first_expired(py) }
    }

    /// See `expired`.
    #[cold]
    fn first_expired(&self, py: Python<'_>) -> Option<PyErr> {
        // SAFETY: no preconditions.
        let now = unsafe { gs_now() };
        let timeout = self.inner.with(py, |i| {
            let first = i.timeouts.iter_mut().filter(|t| t.0 <= now).min_by_key(|t| t.0)?;
            first.0 = i64::MAX;
            Some(first.1.clone_ref(py))
        })?;
        Some(errors::raised(timeout.bind(py)))
    }

    /// The goroutine, which runs now, begins a call of `park::_through`.
    pub fn begin_through(&self, py: Python<'_>) {
        self.inner.with(py, |i| i.through += 1);
    }

    /// The goroutine ends a call of `park::_through`. What was thrown at it meanwhile is for its
    /// next wait.
    pub fn end_through(&self, py: Python<'_>) {
        self.inner.with(py, |i| i.through -= 1);
        self.cancel_if_thrown(py);
    }

    /// The goroutine, which runs now, is within this `Timeout` from here on. `at`: when it expires,
    /// a time of `gs_now`'s in ns.
    pub fn push_timeout(&self, py: Python<'_>, at: i64, timeout: Py<PyAny>) {
        self.inner.with(py, |i| i.timeouts.push((at, timeout)));
    }

    /// The goroutine is no longer within this `Timeout`.
    pub fn pop_timeout(&self, py: Python<'_>, timeout: &Bound<'_, PyAny>) {
        let gone = self.inner.with(py, |i| {
            let at = i.timeouts.iter().rposition(|t| t.1.is(timeout))?;
            Some(i.timeouts.remove(at))
        });
        drop(gone);
    }
}

/// For the main goroutine, which has taken a KeyboardInterrupt to raise it: calls the handlers of
/// the signals that have come. The module `signals` may have asked for another call of SIGINT's
/// handler before the exception was taken. That call must not raise it a second time. A SIGINT that
/// comes until now counts with the first, as two do that come before Python calls their handler.
#[cold]
fn discard_repeated(py: Python<'_>, main: &Goroutine) {
    RAISING.store(true, Ordering::Relaxed);
    let called = py.check_signals();
    RAISING.store(false, Ordering::Relaxed);
    if let Err(e) = called {
        // Another signal's handler has raised it.
        main.throw_at(py, e.into_value(py).into_any());
    }
}

/// For the handler of SIGINT: whether this call is to be discarded.
#[pyfunction]
pub fn _is_raising() -> bool {
    RAISING.load(Ordering::Relaxed)
}
