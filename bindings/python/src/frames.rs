//! What the library's dumps and traces show of a goroutine: `frames.c`.

use crate::ffi::*;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

unsafe extern "C" {
    fn gosched_frames_of(owner: *mut c_void, frames: *mut gs_frame, room: usize) -> usize;
    fn gosched_frames_hide(folder: *const c_char, length: usize);
    fn gosched_frames_of_new(callable: *mut ffi::PyObject, frame: *mut gs_frame) -> usize;
}

/// Called before a bubble begins: what is shown of a goroutine begins with the caller of the package, whose
/// folder this is, with a slash at its end.
#[pyfunction]
pub fn _hide_frames(folder: &str) {
    // SAFETY: attached, so one call at a time.
    unsafe { gosched_frames_hide(folder.as_ptr().cast(), folder.len()) };
}

/// What `frames.c` finds the frames of a goroutine by.
pub struct Shown {
    /// `State::owner` while the goroutine runs; else null.
    owner: AtomicPtr<c_void>,
    /// Before it runs: what it is to call, without a reference. The goroutine keeps that.
    callable: AtomicPtr<ffi::PyObject>,
}

impl Shown {
    /// For a goroutine that is to call this; `None`: one that runs already.
    pub fn new(callable: Option<&Py<PyAny>>) -> Shown {
        Shown {
            owner: AtomicPtr::new(ptr::null_mut()),
            callable: AtomicPtr::new(callable.map_or(ptr::null_mut(), Py::as_ptr)),
        }
    }

    /// The goroutine runs from here on, until this is called with null.
    pub fn set_owner(&self, owner: *mut c_void) {
        self.callable.store(ptr::null_mut(), Ordering::Relaxed);
        // Release: pairs with the Acquire in `frames`.
        self.owner.store(owner, Ordering::Release);
    }

    /// Writes the frames, the innermost first. Returns their number.
    pub fn frames(&self, frames: *mut gs_frame, room: usize) -> usize {
        // Acquire: pairs with the Release in `set_owner`.
        let owner = self.owner.load(Ordering::Acquire);
        let callable = self.callable.load(Ordering::Relaxed);
        // SAFETY: an owner is null before the state of its goroutine ends; the callable of a
        // goroutine that doesn't run yet stays.
        unsafe {
            if !owner.is_null() {
                gosched_frames_of(owner, frames, room)
            } else if !callable.is_null() && room > 0 {
                gosched_frames_of_new(callable, frames)
            } else {
                0
            }
        }
    }
}
