//! What a goroutine looks like from another thread.

use super::threads;
use crate::goroutine::object::Goroutine;
use crate::worker::current;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ptr;

unsafe extern "C" {
    fn PyThreadState_GetFrame(ts: *mut ffi::PyThreadState) -> *mut ffi::PyObject;
}

/// A copy of what `traceback` uses of the frame that a goroutine is in, which may go on meanwhile;
/// the frame itself if it is the caller. `None`: it isn't running, or not in Python, or belongs to
/// the parent of this process.
pub fn frame(py: Python<'_>, g: &Goroutine) -> PyResult<Option<Py<PyAny>>> {
    if g.is_lost() {
        return Ok(None);
    }
    if current::current(py).is_some_and(|me| ptr::eq(me, g)) {
        // SAFETY: attached; a new reference or null.
        let frame = unsafe {
            let frame = PyThreadState_GetFrame(ffi::PyThreadState_Get());
            Bound::from_owned_ptr_or_opt(py, frame)
        };
        return Ok(frame.map(Bound::unbind));
    }
    let Some(stack) = stack(py, g)? else { return Ok(None) };
    let module = py.import("gosched._runtime")?;
    let frame = module.call_method1("_frame_of", (stack,))?;
    Ok((!frame.is_none()).then(|| frame.unbind()))
}

/// Where a goroutine is: see `State::stack_and_let_go`. `None`: it has not begun, or has ended.
fn stack(py: Python<'_>, g: &Goroutine) -> PyResult<Option<Py<PyAny>>> {
    loop {
        // The goroutine doesn't end before it is held.
        let held = g.with_state(py, |state| {
            // SAFETY: the goroutine doesn't end meanwhile.
            unsafe { state.hold() }.then_some(ptr::from_ref(state))
        });
        match held {
            None => return Ok(None),
            // SAFETY: held, so it doesn't end.
            Some(Some(state)) => return unsafe { (*state).stack_and_let_go(py) }.map(Some),
            Some(None) => {}
        }
        // It runs, unless it has stopped just now.
        if let Some(worker) = threads::all().into_iter().find(|worker| worker.runs(g)) {
            let stack = worker.stack(py, g)?;
            if !stack.is_none(py) {
                return Ok(Some(stack));
            }
        }
        // It begins, ends or changes over: for a moment, for which it may need this thread's
        // processor.
        current::call(py, std::thread::yield_now);
        py.check_signals()?;
    }
}

/// What `watch` reports of a goroutine that runs on a thread: a list of pairs of code and index of
/// the instruction, innermost first.
pub fn stack_on(
    py: Python<'_>,
    worker: &threads::Worker,
    g: &Goroutine,
) -> PyResult<Option<Py<PyAny>>> {
    worker.stack(py, g).map(Some)
}

/// Whether a goroutine has begun, has not ended, and waits or has given way.
pub fn is_away(py: Python<'_>, g: &Goroutine) -> bool {
    let held = g.with_state(py, |state| {
        // SAFETY: the goroutine doesn't end meanwhile; it is let go if it was held.
        unsafe {
            let is_held = state.hold();
            if is_held {
                state.let_go();
            }
            is_held
        }
    });
    held == Some(true)
}

/// From now on the interpreter would know goroutines as threads: needless, as a thread state is the
/// thread's.
pub fn are_threads(_py: Python<'_>) {}

/// Calls `f`. The interpreter knows threads, and no goroutines.
pub fn as_threads<R>(_py: Python<'_>, f: impl FnOnce() -> R) -> R {
    f()
}
