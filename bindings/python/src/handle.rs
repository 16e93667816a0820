//! The handles of channels that C code holds: `gosched_chan` of `gosched_python.h`.

use crate::ffi::gs_chan;
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `gosched_chan`: what C has of a channel. It has a reference to the Python object.
#[repr(C)]
pub struct Handle {
    chan: *mut gs_chan,
    object: *mut py_ffi::PyObject,
    next: *mut Handle,
}

impl Handle {
    /// A handle of a channel with its object, of which the handle takes a reference.
    pub fn make(chan: *mut gs_chan, object: *mut py_ffi::PyObject) -> *mut Handle {
        Box::into_raw(Box::new(Handle { chan, object, next: ptr::null_mut() }))
    }
}

/// The handles that C has given back, maybe without the GIL, and whose objects are still to be
/// dropped. A stack: it is only pushed to, and taken as a whole.
static RETURNED: AtomicPtr<Handle> = AtomicPtr::new(ptr::null_mut());

/// Drops what C has given back.
pub fn collect(py: Python<'_>) {
    if RETURNED.load(Ordering::Relaxed).is_null() {
        return;
    }
    // Acquire: pairs with the push.
    let mut next = RETURNED.swap(ptr::null_mut(), Ordering::Acquire);
    while !next.is_null() {
        // SAFETY: no other thread has the handle any more, and it has a reference to the object.
        let handle = unsafe { Box::from_raw(next) };
        next = handle.next;
        // SAFETY: the handle owned a reference to the object, which goes with it; `py` shows that
        // the caller has the GIL.
        drop(unsafe { Bound::from_owned_ptr(py, handle.object) });
    }
}

/// Takes a handle back, on any thread. `collect` drops it.
///
/// # Safety
/// The caller has the handle, and gives it up.
pub unsafe fn give_back(handle: *mut Handle) {
    let mut first = RETURNED.load(Ordering::Relaxed);
    loop {
        // SAFETY: as the caller says.
        unsafe { (*handle).next = first };
        // Release: pairs with the swap in `collect`.
        match RETURNED.compare_exchange_weak(first, handle, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}
