//! The interpreter: whether the module was compiled for it, its end, forks, and what both builds
//! need of `interpreter.c`.

use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_ulong};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The main interpreter, in which the module was imported.
static MAIN: AtomicPtr<ffi::PyInterpreterState> = AtomicPtr::new(ptr::null_mut());

unsafe extern "C" {
    fn gosched_python_compiled_for() -> c_ulong;
    fn gosched_state_init() -> c_int;
    fn gosched_is_finalizing() -> c_int;
    fn gosched_state_enter(ts: *mut ffi::PyThreadState);
    fn gosched_state_stack(usual: usize) -> usize;
    fn gosched_state_borrow_stack(size: usize);
    fn gosched_state_return_stack();
    fn gosched_state_reset(ts: *mut ffi::PyThreadState);
    fn gosched_state_before_fork();
    fn gosched_state_after_fork();
    fn gosched_state_forked();
    fn gosched_state_interrupt(ts: *mut ffi::PyThreadState);
}

/// At import. ImportError: the module was compiled for another version of Python, or this Python
/// keeps the state of a thread in an unknown place.
pub fn init(py: Python<'_>) -> PyResult<()> {
    // SAFETY: the caller is attached.
    let (compiled_for, known) = unsafe { (gosched_python_compiled_for(), gosched_state_init()) };
    let here = py.version_info();
    let (major, minor) = (here.major as c_ulong, here.minor as c_ulong);
    if compiled_for >> 16 != (major << 8 | minor) || known != 0 {
        return Err(pyo3::exceptions::PyImportError::new_err(
            "gosched was built for another version of Python",
        ));
    }
    // SAFETY: the caller is attached.
    MAIN.store(unsafe { ffi::PyInterpreterState_Get() }, Ordering::Relaxed);
    Ok(())
}

/// The main interpreter.
pub fn main() -> *mut ffi::PyInterpreterState {
    MAIN.load(Ordering::Relaxed)
}

/// Whether the exit functions have run, and Python is being taken apart.
#[inline(always)]
pub fn is_finalizing() -> bool {
    // SAFETY: no preconditions.
    unsafe { gosched_is_finalizing() != 0 }
}

/// Bytes of stack for a goroutine whose code may recurse as deeply as Python allows; `usual` if
/// that has not been raised.
#[inline(always)]
pub fn stack_for(_py: Python<'_>, usual: usize) -> usize {
    // SAFETY: the caller is attached.
    unsafe { gosched_state_stack(usual) }
}

/// Calls `f` with the state of the thread, on the stack of a goroutine of which `size` bytes are
/// free: Python measures what C code has used there, and not on the thread's own stack. The caller
/// leaves Python next.
pub fn on_stack<R>(_py: Python<'_>, size: usize, f: impl FnOnce() -> R) -> R {
    // SAFETY: attached; the state is back on the thread's own stack when it is used again.
    unsafe { gosched_state_borrow_stack(size) };
    let result = f();
    // SAFETY: as above.
    unsafe { gosched_state_return_stack() };
    result
}

/// Attaches the calling thread to Python with this state, and takes the GIL, if there is one.
///
/// # Safety The thread is not attached. The state belongs to the thread, or to the goroutine that
/// runs there.
#[inline(always)]
pub unsafe fn enter(ts: *mut ffi::PyThreadState) {
    // SAFETY: as the caller says.
    unsafe { gosched_state_enter(ts) };
}

/// Drops what the goroutine has put into the state: thread-local data. Runs destructors.
///
/// # Safety
/// The caller is attached with this state.
pub unsafe fn reset(ts: *mut ffi::PyThreadState) {
    // SAFETY: as the caller says.
    unsafe { gosched_state_reset(ts) };
}

/// Has the goroutine that runs in the state call the handlers of signals soon.
///
/// # Safety
/// The caller is attached, and the state is not deleted meanwhile.
pub unsafe fn interrupt(ts: *mut ffi::PyThreadState) {
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

/// In the child of a fork, where Python has deleted all thread states but the running one.
pub fn forked() {
    // SAFETY: attached, on the only thread of the child.
    unsafe { gosched_state_forked() };
}
