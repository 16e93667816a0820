//! Leaving and entering Python around waits, and thread states of goroutines.
//!
//! Each goroutine has a `PyThreadState`. It leaves Python (gives the GIL back, with its state) before each
//! call of the library that may switch, and enters again afterwards, on the same thread. So another
//! goroutine always finds the GIL free, and nothing of pyo3's is told: its count of attached frames is
//! the thread's, and as goroutines stay on theirs the sum stays right. For the same reason no wait
//! happens inside `Python::detach`, which sets that count back by force.

use crate::shared::Shared;
use crate::worker;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_ulong, c_void};

unsafe extern "C" {
    fn gosched_python_compiled_for() -> c_ulong;
    fn gosched_state_init() -> c_int;
    fn gosched_is_finalizing() -> c_int;
    fn gosched_state_enter(ts: *mut ffi::PyThreadState);
    fn gosched_state_new(
        interp: *mut ffi::PyInterpreterState,
        stack_size: usize,
    ) -> *mut ffi::PyThreadState;
    fn gosched_state_stack(usual: usize) -> usize;
    fn gosched_state_reset(ts: *mut ffi::PyThreadState);
    fn gosched_state_before_fork();
    fn gosched_state_after_fork();
    fn gosched_state_forked();
    fn gosched_state_interrupt(ts: *mut ffi::PyThreadState);
    fn gosched_state_is_clean(ts: *mut ffi::PyThreadState) -> c_int;
}

/// A thread state that has left Python.
pub struct Away(*mut ffi::PyThreadState);

impl Away {
    /// For C: see `capi`.
    pub fn into_raw(self) -> *mut c_void {
        self.0.cast()
    }

    pub fn from_raw(ts: *mut c_void) -> Away {
        Away(ts.cast())
    }
}

/// Gives the GIL back.
///
/// # Safety
/// The caller has it, and uses nothing of Python's until `enter`.
#[inline(always)]
pub unsafe fn leave() -> Away {
    // SAFETY: as the caller says.
    Away(unsafe { ffi::PyEval_SaveThread() })
}

/// Takes the GIL for the state that has left.
///
/// # Safety
/// On the thread that has left, by the goroutine that has.
#[inline(always)]
pub unsafe fn enter(away: Away) {
    worker::stop_if_finalizing();
    // SAFETY: as the caller says.
    unsafe { gosched_state_enter(away.0) };
}

/// Whether the exit functions have run, and Python is being taken apart.
#[inline(always)]
pub fn is_finalizing() -> bool {
    // SAFETY: no preconditions.
    unsafe { gosched_is_finalizing() != 0 }
}

/// Calls `f`, which may switch, without the GIL.
#[inline(always)]
pub fn outside<R>(_py: Python<'_>, f: impl FnOnce() -> R) -> R {
    // SAFETY: `_py` says that the caller has the GIL; `f` gets nothing of Python's.
    unsafe {
        let away = leave();
        let result = f();
        enter(away);
        result
    }
}

/// Thread states of goroutines that have ended, for the next ones. They keep the memory of their frames.
static FREE: Shared<Vec<*mut ffi::PyThreadState>> = Shared::new(Vec::new());
/// How many of them are kept.
const FREE_STATES: usize = 256;

/// At import. An error: this Python is not the version that the module was compiled for, or keeps its
/// thread state in an unknown place.
pub fn init(py: Python<'_>) -> PyResult<()> {
    // SAFETY: the GIL is held.
    let (compiled_for, known) = unsafe { (gosched_python_compiled_for(), gosched_state_init()) };
    let here = py.version_info();
    let (major, minor) = (here.major as c_ulong, here.minor as c_ulong);
    if compiled_for >> 16 != (major << 8 | minor) || known != 0 {
        return Err(pyo3::exceptions::PyImportError::new_err(
            "gosched was built for another version of Python",
        ));
    }
    Ok(())
}

/// Bytes of stack for a goroutine whose code may recurse as deeply as Python allows; `usual` if that has not
/// been raised.
#[inline(always)]
pub fn stack_for(_py: Python<'_>, usual: usize) -> usize {
    // SAFETY: the GIL is held.
    unsafe { gosched_state_stack(usual) }
}

/// Enters Python at the beginning of a goroutine. `None`: no memory.
///
/// # Safety
/// On the stack of a goroutine that has no state, without the GIL.
pub unsafe fn begin(
    interp: *mut ffi::PyInterpreterState,
    stack_size: usize,
    is_usual: bool,
) -> Option<*mut ffi::PyThreadState> {
    worker::stop_if_finalizing();
    // Only this thread uses the list: goroutines of Python all run here.
    let kept = if is_usual { FREE.with_thread(Vec::pop) } else { None };
    // SAFETY: the interpreter is the main one, which lives as long as goroutines may enter it.
    unsafe {
        let ts = match kept {
            Some(ts) => ts,
            None => gosched_state_new(interp, stack_size),
        };
        if ts.is_null() {
            return None;
        }
        gosched_state_enter(ts);
        Some(ts)
    }
}

/// Drops what the goroutine has put into its thread state: thread-local data. Runs destructors.
///
/// # Safety
/// It is the current state.
pub unsafe fn clear(ts: *mut ffi::PyThreadState) {
    // SAFETY: as the caller says.
    unsafe { gosched_state_reset(ts) };
}

/// Leaves Python at the end of a goroutine.
///
/// # Safety
/// It is the current state, and nothing refers to it.
pub unsafe fn end(ts: *mut ffi::PyThreadState, is_usual: bool) {
    // SAFETY: as the caller says.
    unsafe {
        let reusable = is_usual
            && gosched_state_is_clean(ts) != 0
            && FREE.with_thread(|free| free.len() < FREE_STATES);
        if reusable {
            ffi::PyEval_SaveThread();
            FREE.with_thread(|free| free.push(ts));
        } else {
            ffi::PyThreadState_Clear(ts);
            ffi::PyThreadState_DeleteCurrent();
        }
    }
}

/// Has the goroutine that runs in a state call the handlers of signals soon.
///
/// # Safety
/// The state is a goroutine's that has not ended.
pub unsafe fn interrupt(_py: Python<'_>, ts: *mut ffi::PyThreadState) {
    // SAFETY: as the caller says.
    unsafe { gosched_state_interrupt(ts) };
}

/// Before a fork: no thread makes a thread state until it is over.
#[pyfunction]
pub fn _before_fork() {
    // SAFETY: the caller's thread forks next, and calls one of the others then.
    unsafe { gosched_state_before_fork() };
}

/// After a fork, in the parent.
#[pyfunction]
pub fn _after_fork() {
    // SAFETY: `_before_fork` was called on this thread.
    unsafe { gosched_state_after_fork() };
}

/// In the child of a fork Python has deleted all states but the running one.
pub fn forked() {
    // SAFETY: the child has one thread.
    unsafe { gosched_state_forked() };
    FREE.with_thread(Vec::clear);
}
