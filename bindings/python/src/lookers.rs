//! Waiting for the first of several files in a bubble, whose network is in no epoll file: a goroutine of
//! C looks at each.

use crate::errors;
use crate::ffi::*;
use crate::park::{self, Timeout};
use crate::worker::current;
use pyo3::prelude::*;
use std::ffi::c_void;
use std::ptr;

/// What a goroutine waits for; lives until the goroutine has ended.
struct Look {
    file: libc::pollfd,
    found: *mut gs_sem,
}

/// A goroutine that adds a unit to the semaphore when the file is ready.
unsafe extern "C" fn look(look: *mut c_void) {
    // SAFETY: `wait` keeps it.
    unsafe {
        let look = &*look.cast::<Look>();
        gs_poll_fd(look.file.fd, look.file.events.into(), GS_FOREVER);
        gs_sem_release(look.found, 1);
    }
}

/// Waits until one of the files may have an event. False: the time is up.
pub fn wait(py: Python<'_>, files: &[libc::pollfd], timeout: Timeout) -> PyResult<bool> {
    let mut found = gs_sem::new();
    let found = &raw mut found;
    let looks: Vec<Look> = files.iter().map(|&file| Look { file, found }).collect();
    let opts = gs_spawn_opts {
        size: size_of::<gs_spawn_opts>(),
        name: c"select".as_ptr(),
        stack_size: 0,
        priority: 0,
        node: 0,
        flags: 0,
        reserved: 0,
        data: ptr::null_mut(),
        workers: ptr::null_mut(),
    };
    let mut lookers: Vec<*mut gs_g> = Vec::with_capacity(looks.len());
    let mut result = 0;
    current::call(py, || {
        for one in &looks {
            let (mut g, arg) = (ptr::null_mut(), ptr::from_ref(one).cast_mut().cast());
            // SAFETY: `looks` stays until the goroutine has ended.
            result = unsafe { gs_spawn_with(look, arg, &raw const opts, &raw mut g) };
            if result < 0 {
                break;
            }
            lookers.push(g);
        }
    });
    let ended = match result {
        0 => park::wait(py, timeout, |d| {
            // SAFETY: the semaphore stays until the goroutines have ended; without the GIL.
            unsafe { gs_sem_acquire(found, 1, d) }
        }),
        e => Err(errors::of_os(-e)),
    };
    current::call(py, || {
        // SAFETY: references from above; on a goroutine.
        unsafe {
            gs_cancel_disable();
            for g in lookers {
                gs_cancel(g);
                gs_join(g, GS_FOREVER);
                gs_release(g);
            }
            gs_cancel_enable();
        }
    });
    Ok(ended? != park::Ended::TimedOut)
}
