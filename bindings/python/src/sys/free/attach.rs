//! Leaving and entering Python: each thread has a thread state, and each goroutine its frames.

use super::left;
use super::state::{Frames, State};
use super::threads;
use crate::interpreter;
use crate::worker::ending;
use pyo3::ffi;
use std::ffi::c_void;

unsafe extern "C" {
    fn gosched_frames_leave(f: *mut Frames);
    fn gosched_frames_enter(f: *mut Frames);
}

/// What has left Python: a thread state, or with the lowest bit set the `Frames` of a goroutine.
pub struct Away(usize);

impl Away {
    /// For C: see `capi`.
    pub fn into_raw(self) -> *mut c_void {
        self.0 as *mut c_void
    }

    pub fn from_raw(away: *mut c_void) -> Away {
        Away(away as usize)
    }
}

/// Gives Python back.
///
/// # Safety
/// The caller is attached, and uses nothing of Python's until `enter`.
#[inline(always)]
pub unsafe fn leave() -> Away {
    if let Some(frames) = threads::take_frames() {
        // SAFETY: those of the goroutine that is in Python here, which calls this.
        unsafe { gosched_frames_leave(frames) };
        left::note(frames);
        return Away(frames as usize | 1);
    }
    // SAFETY: as the caller says.
    Away(unsafe { ffi::PyEval_SaveThread() } as usize)
}

/// Takes Python again.
///
/// # Safety
/// On the thread that has left, by the goroutine that has.
#[inline(always)]
pub unsafe fn enter(away: Away) {
    ending::stop_if_finalizing();
    if away.0 & 1 != 0 {
        let frames = (away.0 & !1) as *mut Frames;
        // SAFETY: as the caller says; the goroutine is on its thread.
        unsafe { gosched_frames_enter(frames) };
        threads::set_frames(frames);
        return;
    }
    // SAFETY: as the caller says.
    unsafe { interpreter::enter(away.0 as *mut ffi::PyThreadState) };
}

/// Makes this the state of a goroutine that is in Python already, the main one.
///
/// # Safety
/// The caller is that goroutine, attached. It never ends.
pub unsafe fn adopt(state: &mut State) {
    // SAFETY: as the caller says.
    threads::set_frames(unsafe { state.adopt() });
}

/// Enters Python at the beginning of a goroutine. False: no memory.
///
/// # Safety
/// On the stack of a goroutine that has no state, on its thread, outside of Python.
pub unsafe fn begin(state: &mut State, stack_size: usize, _is_usual: bool, _ident: u64) -> bool {
    ending::stop_if_finalizing();
    // SAFETY: the thread's own state; as the caller says.
    threads::set_frames(unsafe { state.begin(threads::thread_state(), stack_size) });
    true
}

/// Leaves Python at the end of a goroutine.
///
/// # Safety
/// Called by the goroutine, in Python. `State::clear` was called.
pub unsafe fn end(state: &mut State, _is_usual: bool) {
    threads::take_frames();
    // SAFETY: as the caller says.
    unsafe { state.end() };
}
