//! Waiting in queues.

use super::queues::Queues;
use crate::bubble;
use crate::ffi::*;
use crate::park::{self, Ended, Timeout};
use crate::worker::{current, start};
use pyo3::prelude::*;

impl<S, const N: usize> Queues<S, N> {
    /// Returns at once if `ready`, called as by `with`, gives true. Otherwise the caller waits in
    /// queue number `at` until it is woken. `Ok(false)`: the time is up. `Err((e, woken))`: an
    /// exception ended the wait; `woken` says that the caller was also woken, and has to pass the
    /// wake-up on.
    #[inline(always)]
    pub fn wait(
        &self,
        py: Python<'_>,
        at: usize,
        timeout: Timeout,
        ready: impl Fn(&mut S, [u32; N]) -> bool,
    ) -> Result<bool, (PyErr, bool)> {
        bubble::step(py);
        if self.with(py, &ready) { Ok(true) } else { self.wait_in(py, at, timeout, ready) }
    }

    /// See `wait`.
    fn wait_in(
        &self,
        py: Python<'_>,
        at: usize,
        timeout: Timeout,
        ready: impl Fn(&mut S, [u32; N]) -> bool,
    ) -> Result<bool, (PyErr, bool)> {
        if let Err(e) = start::ensure(py) {
            return Err((e, false));
        }
        if timeout == Timeout::Never {
            // A caller that polls in a loop must give way now and then.
            park::checkpoint(py);
            return Ok(false);
        }
        self.wait_by(py, at, ready, |sem| park::wait(py, timeout, |d| acquire(sem, d)))
    }

    /// As `wait` without a limit, by `park::wait_through`.
    pub(super) fn wait_through(
        &self,
        py: Python<'_>,
        at: usize,
        may_end: bool,
        ready: impl Fn(&mut S, [u32; N]) -> bool,
    ) -> Result<bool, (PyErr, bool)> {
        bubble::step(py);
        if self.with(py, &ready) {
            return Ok(true);
        }
        self.wait_by(py, at, ready, |sem| park::wait_through(py, may_end, |d| acquire(sem, d)))
    }

    /// As `wait`; `park` waits for a unit of the semaphore at the address that it is given.
    #[inline(always)]
    fn wait_by(
        &self,
        py: Python<'_>,
        at: usize,
        ready: impl Fn(&mut S, [u32; N]) -> bool,
        park: impl FnOnce(usize) -> PyResult<Ended>,
    ) -> Result<bool, (PyErr, bool)> {
        // Checks once more: the state may be ready by now.
        let sem = self.join(py, at, ready);
        let Some(sem) = sem else { return Ok(true) };
        let ended = park(sem);
        let is_woken = matches!(ended, Ok(Ended::With(0)));
        let take = self.leave(py, at, is_woken);
        if take {
            // The waker may not have released the semaphore yet.
            // SAFETY: on this goroutine, around the call.
            current::call(py, || unsafe {
                gs_cancel_disable();
                acquire(sem, GS_FOREVER);
                gs_cancel_enable();
            });
        }
        match ended {
            Err(e) => Err((e, take)),
            Ok(_) => Ok(is_woken || take),
        }
    }
}

/// Waits for a unit of a queue's semaphore until `deadline`, a time of `gs_now`'s in ns.
#[inline(always)]
fn acquire(sem: usize, deadline: i64) -> i32 {
    // SAFETY: the object that has the queue is kept by the frame of the caller that waits.
    unsafe { gs_sem_acquire(sem as *mut gs_sem, 1, deadline) }
}
