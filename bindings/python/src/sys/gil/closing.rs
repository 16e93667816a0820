//! What the end of Python needs of the thread that runs goroutines.

use crate::ffi::*;
use crate::outside::outside;
use crate::worker::first;
use pyo3::prelude::*;
use std::ptr;

/// How long `leave_python` waits for a goroutine that computes on the worker thread, in ns.
const PATIENCE: i64 = 1_000_000_000;

/// For a goroutine that has just entered Python. No door can have been closed meanwhile: it has the
/// GIL.
#[inline(always)]
pub fn entered() {}

/// For a caller that uses goroutines. There is no door to be opened.
#[inline(always)]
pub fn open(_py: Python<'_>) {}

/// At the end of the program: there is no door to be closed, as a goroutine must get the GIL to
/// enter Python.
pub fn close(_py: Python<'_>) {}

/// Waits until the thread that runs goroutines has left Python. It doesn't enter it again.
pub fn leave_python(py: Python<'_>) {
    unsafe extern "C" fn tell(left: *mut std::ffi::c_void) {
        // SAFETY: the semaphore is leaked.
        unsafe { gs_sem_release(left.cast(), 1) };
    }
    let left = Box::leak(Box::new(gs_sem::new())) as *mut gs_sem as usize;
    let opts = gs_spawn_opts {
        size: size_of::<gs_spawn_opts>(),
        name: ptr::null(),
        stack_size: 0,
        priority: 0,
        node: -1,
        flags: GS_SPAWN_PINNED | GS_SPAWN_NOSIGNAL,
        reserved: 0,
        data: ptr::null_mut(),
        workers: first::group(),
    };
    outside(py, || {
        // SAFETY: when that goroutine runs on its thread, no other one there is in Python.
        unsafe {
            if gs_spawn_with(tell, left as *mut _, &raw const opts, ptr::null_mut()) == 0 {
                gs_sem_acquire(left as *mut gs_sem, 1, gs_now() + PATIENCE);
            }
        }
    });
}

/// In the child of a fork: there is no door.
pub fn forked() {}
