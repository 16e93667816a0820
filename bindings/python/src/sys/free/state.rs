//! The part of its thread's state that is a goroutine's, and the states of threads.

use crate::interpreter;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::ptr;

unsafe extern "C" {
    fn gosched_thread_state(interp: *mut ffi::PyInterpreterState) -> *mut ffi::PyThreadState;
    fn gosched_frames_adopt(f: *mut Frames);
    fn gosched_frames_begin(f: *mut Frames, ts: *mut ffi::PyThreadState, stack_size: usize);
    fn gosched_frames_end(f: *mut Frames);
    fn gosched_frames_hold(f: *mut Frames) -> c_int;
    fn gosched_frames_let_go(f: *mut Frames);
    fn gosched_frames_stack(f: *mut Frames) -> *mut ffi::PyObject;
    fn gosched_must_settle(ts: *mut ffi::PyThreadState) -> c_int;
    fn gosched_settle(ts: *mut ffi::PyThreadState);
    fn gosched_thread_stack(
        ts: *mut ffi::PyThreadState,
        running: *const *mut c_void,
        expected: *const c_void,
    ) -> *mut ffi::PyObject;
}

/// The part of its thread's state that is a goroutine's, while the goroutine is not in Python:
/// `struct gosched_frames`. It stays where it is once the goroutine has begun.
#[repr(C)]
pub struct Frames([u64; FRAMES_WORDS]);

/// The size of `Frames` in words of 64 bits: `FRAMES_WORDS` in state.c.
const FRAMES_WORDS: usize = 48;

/// What a goroutine runs Python code in. It stays where it is from `begin` or `adopt` on.
pub struct State {
    /// The thread's; null before.
    ts: *mut ffi::PyThreadState,
    frames: Frames,
}

impl State {
    pub const fn new() -> State {
        State { ts: ptr::null_mut(), frames: Frames([0; FRAMES_WORDS]) }
    }

    /// Makes this the state of a goroutine that is in Python already, the main one. Gives its
    /// frames.
    ///
    /// # Safety
    /// The caller is that goroutine, attached. It never ends.
    pub unsafe fn adopt(&mut self) -> *mut Frames {
        let frames = &raw mut self.frames;
        // SAFETY: as the caller says.
        unsafe {
            self.ts = ffi::PyThreadState_Get();
            gosched_frames_adopt(frames);
        }
        frames
    }

    /// Enters Python at the beginning of a goroutine, with the thread's state. Gives the
    /// goroutine's frames.
    ///
    /// # Safety
    /// On the stack of a goroutine that has no state, on the state's thread, outside of Python.
    pub unsafe fn begin(&mut self, ts: *mut ffi::PyThreadState, stack_size: usize) -> *mut Frames {
        self.ts = ts;
        let frames = &raw mut self.frames;
        // SAFETY: the thread's own state, outside of Python.
        unsafe { gosched_frames_begin(frames, self.ts, stack_size) };
        frames
    }

    /// Leaves Python at the end of a goroutine.
    ///
    /// # Safety
    /// Called by the goroutine, in Python; `clear` was.
    pub unsafe fn end(&mut self) {
        // SAFETY: as the caller says.
        unsafe { gosched_frames_end(&raw mut self.frames) };
    }

    /// Of a goroutine in a bubble, of which there are none here.
    ///
    /// # Safety
    /// The goroutine never runs again.
    pub unsafe fn discard(&self, _py: Python<'_>) {}

    /// What `frames.c` finds the goroutine's frames by.
    pub fn owner(&self) -> *mut c_void {
        (&raw const self.frames).cast_mut().cast()
    }

    /// Drops what the goroutine has put into its thread state: thread-local data. Runs destructors.
    ///
    /// # Safety
    /// Called by the goroutine, in Python.
    pub unsafe fn clear(&self) {
        // SAFETY: as the caller says.
        unsafe { interpreter::reset(self.ts) };
    }

    /// Has the goroutine, or another that runs on its thread meanwhile, call the handlers of
    /// signals soon.
    pub fn interrupt(&self, _py: Python<'_>) {
        // SAFETY: attached; the thread, which has the state, never ends.
        unsafe { interpreter::interrupt(self.ts) };
    }

    /// Keeps the goroutine out of Python until `let_go`. False: it is in Python, and runs on.
    ///
    /// # Safety
    /// The goroutine has not ended; the caller neither waits nor runs Python code before `let_go`.
    pub unsafe fn hold(&self) -> bool {
        // SAFETY: as the caller says.
        unsafe { gosched_frames_hold((&raw const self.frames).cast_mut()) != 0 }
    }

    /// Lets the goroutine into Python again after `hold`.
    ///
    /// # Safety
    /// `hold` gave true.
    pub unsafe fn let_go(&self) {
        // SAFETY: as the caller says.
        unsafe { gosched_frames_let_go((&raw const self.frames).cast_mut()) };
    }

    /// The stack of the goroutine, in the form that `stack` has. Then lets the goroutine into
    /// Python again.
    ///
    /// # Safety
    /// `hold` gave true.
    pub unsafe fn stack_and_let_go(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        // SAFETY: as the caller says; a new reference or an error.
        unsafe {
            let list = gosched_frames_stack((&raw const self.frames).cast_mut());
            Ok(Bound::from_owned_ptr_or_err(py, list)?.unbind())
        }
    }
}

/// A thread state for the calling thread, which keeps it. Null: no memory.
pub fn of_thread(interp: *mut ffi::PyInterpreterState) -> *mut ffi::PyThreadState {
    // SAFETY: the main interpreter.
    unsafe { gosched_thread_state(interp) }
}

/// Whether objects wait for the thread of this state, which alone can free them.
///
/// # Safety
/// The state of a thread that never ends.
pub unsafe fn must_settle(ts: *mut ffi::PyThreadState) -> bool {
    // SAFETY: as the caller says.
    unsafe { gosched_must_settle(ts) != 0 }
}

/// Frees the objects that wait for this thread.
///
/// # Safety
/// The calling thread's state; outside of Python.
pub unsafe fn settle(ts: *mut ffi::PyThreadState) {
    // SAFETY: as the caller says.
    unsafe { gosched_settle(ts) };
}

/// The stack of what runs on another thread while `running`, which only that thread changes, is
/// `expected`: a list of pairs of code and index of the instruction, innermost first. None:
/// `running` is something else by now.
pub fn stack<T>(
    py: Python<'_>,
    ts: *mut ffi::PyThreadState,
    running: &std::sync::atomic::AtomicPtr<T>,
    expected: &T,
) -> PyResult<Py<PyAny>> {
    let expected = ptr::from_ref(expected).cast();
    // SAFETY: attached; the state of a thread that never ends; a new reference or an error.
    unsafe {
        let list = gosched_thread_stack(ts, running.as_ptr().cast_const().cast(), expected);
        Ok(Bound::from_owned_ptr_or_err(py, list)?.unbind())
    }
}

/// In the child of a fork: no state is kept for later.
pub fn forked() {}
