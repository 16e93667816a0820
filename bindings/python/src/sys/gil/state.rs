//! The thread state of a goroutine.

use crate::interpreter;
use crate::shared::Shared;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_ulong, c_void};
use std::ptr;

unsafe extern "C" {
    fn gosched_state_make(interp: *mut ffi::PyInterpreterState) -> *mut ffi::PyThreadState;
    fn gosched_state_limit_recursion(ts: *mut ffi::PyThreadState, stack_size: usize);
    fn gosched_state_is_clean(ts: *mut ffi::PyThreadState) -> c_int;
    fn gosched_state_are_threads();
    fn gosched_state_identify(ts: *mut ffi::PyThreadState, ident: c_ulong);
    fn gosched_state_exchange_identity(ts: *mut ffi::PyThreadState, ident: c_ulong) -> c_ulong;
    fn PyThreadState_GetFrame(ts: *mut ffi::PyThreadState) -> *mut ffi::PyObject;
}

/// Thread states of goroutines that have ended, for the next ones. They keep the memory of their
/// frames.
static FREE: Shared<Vec<*mut ffi::PyThreadState>> = Shared::new(Vec::new());

/// How many states `FREE` keeps at most.
const FREE_STATES: usize = 256;

/// What a goroutine runs Python code in. It stays where it is from `begin` or `adopt` on.
pub struct State {
    /// The goroutine's own; null before.
    ts: *mut ffi::PyThreadState,
}

impl State {
    pub const fn new() -> State {
        State { ts: ptr::null_mut() }
    }

    /// Makes this the state of a goroutine that is in Python already, the main one.
    ///
    /// # Safety
    /// The caller is that goroutine, attached. It never ends.
    pub unsafe fn adopt(&mut self) {
        // SAFETY: as the caller says.
        self.ts = unsafe { ffi::PyThreadState_Get() };
    }

    /// Enters Python at the beginning of a goroutine with the identity `ident`. `is_usual`: its
    /// stack has the usual size, so it may take a state that another such goroutine has left.
    /// False: no memory.
    ///
    /// # Safety
    /// On the stack of a goroutine that has no state, without the GIL.
    pub unsafe fn begin(
        &mut self,
        interp: *mut ffi::PyInterpreterState,
        stack_size: usize,
        is_usual: bool,
        ident: u64,
    ) -> bool {
        // Only this thread uses the list: goroutines of Python all run here.
        let kept = if is_usual { FREE.with_thread(Vec::pop) } else { None };
        // SAFETY: the interpreter is the main one, which lives as long as goroutines may enter it.
        unsafe {
            self.ts = match kept {
                Some(ts) => ts,
                None => gosched_state_make(interp),
            };
            if self.ts.is_null() {
                return false;
            }
            gosched_state_limit_recursion(self.ts, stack_size);
            interpreter::enter(self.ts);
            gosched_state_identify(self.ts, ident as c_ulong);
        }
        true
    }

    /// Leaves Python at the end of a goroutine. `is_usual`: as in `begin`.
    ///
    /// # Safety
    /// The state is the calling thread's, and nothing refers to it.
    pub unsafe fn end(&mut self, is_usual: bool) {
        // SAFETY: as the caller says.
        unsafe {
            let reusable = is_usual
                && gosched_state_is_clean(self.ts) != 0
                && FREE.with_thread(|free| free.len() < FREE_STATES);
            if reusable {
                gosched_state_identify(self.ts, 0);
                ffi::PyEval_SaveThread();
                FREE.with_thread(|free| free.push(self.ts));
            } else {
                ffi::PyThreadState_Clear(self.ts);
                ffi::PyThreadState_DeleteCurrent();
            }
        }
    }

    /// Deletes the state of a goroutine that never runs again, unless it is in a frame: other objects
    /// may refer to that.
    ///
    /// # Safety
    /// The goroutine is given up: its run is over.
    pub unsafe fn discard(&self, py: Python<'_>) {
        // SAFETY: as the caller says: attached with another state.
        unsafe {
            if self.frame(py).is_none() {
                ffi::PyThreadState_Clear(self.ts);
                ffi::PyThreadState_Delete(self.ts);
            }
        }
    }

    /// What `frames.c` finds the goroutine's frames by.
    pub fn owner(&self) -> *mut c_void {
        self.ts.cast()
    }

    /// Drops what the goroutine has put into its thread state: thread-local data. Runs destructors.
    ///
    /// # Safety
    /// Called by the goroutine, in Python.
    pub unsafe fn clear(&self) {
        // SAFETY: as the caller says.
        unsafe { interpreter::reset(self.ts) };
    }

    /// Has the goroutine call the handlers of signals soon.
    pub fn interrupt(&self, _py: Python<'_>) {
        // SAFETY: attached; the state is the goroutine's as long as this is here.
        unsafe { interpreter::interrupt(self.ts) };
    }

    /// Gives the state the goroutine's identity: for a goroutine that has begun before
    /// `are_threads` was called.
    ///
    /// # Safety
    /// The goroutine has not ended.
    pub unsafe fn identify(&self, _py: Python<'_>, ident: u64) {
        // SAFETY: as the caller says.
        unsafe { gosched_state_identify(self.ts, ident as c_ulong) };
    }

    /// Gives the state another identity for a moment. Gives the former; 0: it keeps what it has.
    ///
    /// # Safety
    /// The goroutine has not ended.
    pub unsafe fn exchange_identity(&self, _py: Python<'_>, ident: u64) -> u64 {
        // SAFETY: as the caller says.
        unsafe { gosched_state_exchange_identity(self.ts, ident as c_ulong) as u64 }
    }

    /// The frame in which the goroutine is. `None`: it has none.
    ///
    /// # Safety
    /// The goroutine has not ended.
    pub unsafe fn frame(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        // SAFETY: as the caller says; a new reference or null.
        unsafe { Bound::from_owned_ptr_or_opt(py, PyThreadState_GetFrame(self.ts)) }
            .map(Bound::unbind)
    }
}

/// From now on the interpreter knows goroutines as threads with the identities of the goroutines.
pub fn are_threads(_py: Python<'_>) {
    // SAFETY: attached.
    unsafe { gosched_state_are_threads() };
}

/// In the child of a fork, where Python has deleted all states but the running one.
pub fn forked() {
    FREE.with_thread(Vec::clear);
}
