//! The functions by which the library gets the frames of goroutines, for dumps and traces.

use super::object::Goroutine;
use crate::errors;
use crate::ffi::*;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Whether Python is at its end: goroutines have no frames.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// The frames of a goroutine whose data is its object, or null.
unsafe extern "C" fn hook(
    _ctx: *mut c_void,
    g: *mut gs_g,
    frames: *mut gs_frame,
    room: usize,
) -> usize {
    // SAFETY: `g` is a goroutine. A `Py` is the address of its object, which the goroutine keeps as
    // long as its data is the object; a frozen object may be read without the GIL.
    unsafe {
        let object: *mut ffi::PyObject = gs_data(g).cast();
        if object.is_null() || IS_OVER.load(Ordering::Relaxed) {
            return 0;
        }
        let g = std::mem::transmute::<*mut ffi::PyObject, ManuallyDrop<Py<Goroutine>>>(object);
        g.get().shown.frames(frames, room)
    }
}

/// The main goroutine.
static MAIN: AtomicPtr<gs_g> = AtomicPtr::new(ptr::null_mut());

/// The frames of the main goroutine. Other attached goroutines are not Python's.
unsafe extern "C" fn main_hook(
    ctx: *mut c_void,
    g: *mut gs_g,
    frames: *mut gs_frame,
    room: usize,
) -> usize {
    if g != MAIN.load(Ordering::Relaxed) {
        return 0;
    }
    // SAFETY: the main goroutine's data is its object.
    unsafe { hook(ctx, g, frames, room) }
}

/// The main goroutine is this; null: there is none.
pub fn set_main(g: *mut gs_g) {
    MAIN.store(g, Ordering::Relaxed);
}

/// At the end of Python, which frees what frames are read from.
pub fn close() {
    IS_OVER.store(true, Ordering::Relaxed);
}

/// At import: the library asks here for the frames of the goroutines with this function, and of the
/// main one.
pub fn init(entry: gs_fn) -> PyResult<()> {
    // SAFETY: the functions stay, as the module is never unloaded.
    unsafe {
        errors::check(gs_add_frames(Some(entry), hook, ptr::null_mut()))?;
        errors::check(gs_add_frames(None, main_hook, ptr::null_mut()))
    }
}
