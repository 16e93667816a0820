//! Waiting: what every call that may wait has in common.

use crate::errors;
use crate::ffi::*;
use crate::outside::outside;
use crate::worker::{current, ending, first, start};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::atomic::{AtomicPtr, Ordering};

/// How long a call may wait.
#[derive(Clone, Copy, PartialEq)]
pub enum Timeout {
    Forever,
    Never,
    /// A time of `gs_now`'s, in ns.
    At(i64),
}

/// The longest time that is different from for ever: a hundred years, in seconds.
const LONGEST: f64 = 100.0 * 365.25 * 86400.0;

impl Timeout {
    /// From `timeout`: seconds, or `None`.
    pub fn after(seconds: Option<f64>) -> PyResult<Timeout> {
        match seconds {
            None => Ok(Timeout::Forever),
            Some(s) if s.is_nan() => Err(errors::value("timeout is not a number")),
            Some(s) if s <= 0.0 => Ok(Timeout::Never),
            Some(s) if s > LONGEST => Ok(Timeout::Forever),
            // SAFETY: no preconditions.
            Some(s) => Ok(Timeout::At(unsafe { gs_now() } + (s * 1e9) as i64)),
        }
    }

    fn deadline(self) -> i64 {
        match self {
            Timeout::Forever => GS_FOREVER,
            Timeout::Never => GS_NOWAIT,
            Timeout::At(at) => at,
        }
    }
}

/// How a wait has ended.
#[derive(PartialEq)]
pub enum Ended {
    /// With this result, 0 or more, or an error of the library other than those of waiting.
    With(i32),
    TimedOut,
    /// The file for which it waited is about to be closed: see `io::cancel_fd`.
    Dropped,
}

/// How often the main thread checks for signals while it waits and runs no goroutines, in ns.
const LOOK_FOR_SIGNALS: i64 = 50_000_000;

/// Calls `f`, which waits until its deadline, without the GIL; raises what others have thrown at
/// the goroutine, or the `Timeout` within which it is.
#[inline(always)]
pub fn wait(py: Python<'_>, timeout: Timeout, f: impl FnMut(i64) -> i32) -> PyResult<Ended> {
    if ending::is_ending() && timeout == Timeout::Forever && ending::is_over() {
        return Err(ending::error());
    }
    wait_dropping(py, timeout, || false, f)
}

/// As [`wait`], for what no goroutine need do, such as that a file becomes ready: it may wait for
/// ever even if Python has ended for goroutines. `dropped` says whether a cancel that brought no
/// exception was to end this wait.
pub fn wait_dropping(
    py: Python<'_>,
    timeout: Timeout,
    dropped: impl Fn() -> bool,
    mut f: impl FnMut(i64) -> i32,
) -> PyResult<Ended> {
    start::ensure(py)?;
    let me = current::current(py);
    let deadline = timeout.deadline();
    let Some(me) = me else { return wait_on_thread(py, deadline, f) };
    loop {
        if let Some(e) = me.take_thrown(py) {
            return Err(e);
        }
        let outer = me.next_timeout(py);
        let until = match outer {
            Some(at) if deadline == GS_FOREVER || at < deadline => at,
            _ => deadline,
        };
        let e = current::call_as(py, me, || f(until));
        match -e {
            libc::ECANCELED => {
                if let Some(e) = me.take_thrown(py) {
                    return Err(e);
                }
                // SAFETY: never switches.
                unsafe { gs_uncancel() };
                if dropped() {
                    return Ok(Ended::Dropped);
                }
            }
            libc::ETIMEDOUT | libc::EAGAIN => {
                if until != deadline
                    && let Some(e) = me.expired(py)
                {
                    return Err(e);
                }
                if until == deadline {
                    return Ok(Ended::TimedOut);
                }
            }
            _ => return Ok(Ended::With(e)),
        }
    }
}

/// As [`wait`] without a limit, for a caller that must get what it waits for. Exceptions that are
/// thrown at the goroutine meanwhile, and its `Timeout`s, are for its next wait. `may_end` excepts
/// a KeyboardInterrupt or SystemExit that is thrown at the main goroutine or thread.
pub fn wait_through(
    py: Python<'_>,
    may_end: bool,
    mut f: impl FnMut(i64) -> i32,
) -> PyResult<Ended> {
    start::ensure(py)?;
    if ending::is_ending() && ending::is_over() {
        return Err(ending::error());
    }
    let Some(me) = current::current(py) else {
        return if may_end {
            wait_on_thread(py, GS_FOREVER, f)
        } else {
            Ok(Ended::With(outside(py, || f(GS_FOREVER))))
        };
    };
    if may_end && first::is_main_goroutine() {
        let ended = loop {
            if let Some(e) = me.take_end(py) {
                break Err(e);
            }
            match current::call_as(py, me, || f(GS_FOREVER)) {
                e if -e == libc::ECANCELED => {
                    // SAFETY: never switches.
                    unsafe { gs_uncancel() };
                }
                e => break Ok(Ended::With(e)),
            }
        };
        me.cancel_if_thrown(py);
        return ended;
    }
    // SAFETY: on this goroutine, around the call.
    Ok(Ended::With(current::call_as(py, me, || unsafe {
        gs_cancel_disable();
        let e = f(GS_FOREVER);
        gs_cancel_enable();
        e
    })))
}

/// After a [`wait_through`] that nothing ended: raises what was thrown at the main goroutine to end
/// the program.
pub fn raise_end(py: Python<'_>) -> PyResult<()> {
    let Some(me) = current::current(py).filter(|_| first::is_main_goroutine()) else {
        return Ok(());
    };
    let Some(e) = me.take_end(py) else { return Ok(()) };
    me.cancel_if_thrown(py);
    Err(e)
}

/// Calls fn(*args). Exceptions that are thrown at the goroutine meanwhile, and its `Timeout`s, end no wait in the call, and
/// are for the next one after it; but a KeyboardInterrupt or SystemExit that is thrown at the main goroutine does.
#[pyfunction]
#[pyo3(signature = (function, /, *args))]
pub fn _through<'py>(
    function: &Bound<'py, PyAny>,
    args: Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let Some(me) = current::current(py) else { return function.call1(args) };
    me.begin_through(py);
    let result = function.call1(args);
    me.end_through(py);
    result
}

/// For threads that run no goroutines. The main one sees signals meanwhile.
#[cold]
fn wait_on_thread(py: Python<'_>, deadline: i64, mut f: impl FnMut(i64) -> i32) -> PyResult<Ended> {
    let sees_signals = first::is_main_thread();
    loop {
        // SAFETY: no preconditions.
        let next = unsafe { gs_now() } + LOOK_FOR_SIGNALS;
        let until = match deadline {
            GS_FOREVER if sees_signals => next,
            d if sees_signals && d > next => next,
            d => d,
        };
        let e = outside(py, || f(until));
        match -e {
            libc::ETIMEDOUT | libc::EAGAIN if until == deadline => return Ok(Ended::TimedOut),
            libc::ETIMEDOUT | libc::EAGAIN => py.check_signals()?,
            _ => return Ok(Ended::With(e)),
        }
    }
}

/// After a call that could have waited and didn't: gives way if the goroutine has run for its time
/// slice while others wait.
#[inline(always)]
pub fn checkpoint(py: Python<'_>) {
    current::tick();
    // SAFETY: the word stays where it is until the process ends.
    if unsafe { std::ptr::read_volatile(FLAG.load(Ordering::Relaxed)) } != 0 {
        // SAFETY: without the GIL.
        current::call(py, || unsafe { gs_preempt_check() });
    }
}

/// checkpoint()
/// --
///
/// Gives way if the goroutine has run for its time slice while others wait: for calls that could have
/// waited and didn't.
#[pyfunction(name = "checkpoint")]
pub fn checkpoint_py(py: Python<'_>) {
    checkpoint(py);
}

static FLAG: AtomicPtr<u32> = AtomicPtr::new((&raw const NONE).cast_mut());

static NONE: u32 = 0;

/// At import.
pub fn init() {
    // SAFETY: never switches.
    FLAG.store(unsafe { gs_preempt_flag() }.cast_mut(), Ordering::Relaxed);
}
