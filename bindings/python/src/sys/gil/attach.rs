//! Leaving and entering Python: each goroutine has a thread state.

use super::state::State;
use crate::interpreter;
use crate::worker::ending;
use pyo3::ffi;
use std::ffi::c_void;

/// A thread state that has left Python.
pub struct Away(*mut ffi::PyThreadState);

impl Away {
    /// For C: see `capi`.
    pub fn into_raw(self) -> *mut c_void {
        self.0.cast()
    }

    pub fn from_raw(away: *mut c_void) -> Away {
        Away(away.cast())
    }
}

/// Gives Python back, and the GIL.
///
/// # Safety
/// The caller is attached, and uses nothing of Python's until `enter`.
#[inline(always)]
pub unsafe fn leave() -> Away {
    // SAFETY: as the caller says.
    Away(unsafe { ffi::PyEval_SaveThread() })
}

/// Takes Python, and the GIL, again.
///
/// # Safety
/// On the thread that has left, by the goroutine that has.
#[inline(always)]
pub unsafe fn enter(away: Away) {
    ending::stop_if_finalizing();
    // SAFETY: as the caller says.
    unsafe { interpreter::enter(away.0) };
}

/// Makes this the state of a goroutine that is in Python already, the main one.
///
/// # Safety
/// The caller is that goroutine, attached. It never ends.
pub unsafe fn adopt(state: &mut State) {
    // SAFETY: as the caller says.
    unsafe { state.adopt() };
}

/// Enters Python at the beginning of a goroutine, with the identity `ident`. `is_usual`: its stack
/// has the usual size. False: no memory.
///
/// # Safety
/// On the stack of a goroutine that has no state, outside of Python.
pub unsafe fn begin(state: &mut State, stack_size: usize, is_usual: bool, ident: u64) -> bool {
    ending::stop_if_finalizing();
    // SAFETY: as the caller says; the main interpreter lives as long as goroutines may enter it.
    unsafe { state.begin(interpreter::main(), stack_size, is_usual, ident) }
}

/// Leaves Python at the end of a goroutine. `is_usual`: as in `begin`.
///
/// # Safety
/// Called by the goroutine, in Python. `State::clear` was called, and nothing refers to the state.
pub unsafe fn end(state: &mut State, is_usual: bool) {
    // SAFETY: as the caller says.
    unsafe { state.end(is_usual) };
}
