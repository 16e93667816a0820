//! A line that the process writes to standard error when it fails: when a fault or abort(3) ends it,
//! or its exit status isn't 0.

use super::{symbol, write_all};
use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// The line, and its length. It is never freed.
static LINE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static LENGTH: AtomicUsize = AtomicUsize::new(0);

type OnExit = unsafe extern "C" fn(extern "C" fn(c_int, *mut c_void), *mut c_void) -> c_int;

/// Sets the line. The caller sees to [`write_line`] when a signal ends the process.
pub fn say(line: String) {
    let line = Box::leak(line.into_bytes().into_boxed_slice());
    LENGTH.store(0, Ordering::Relaxed);
    LINE.store(line.as_mut_ptr(), Ordering::Relaxed);
    // Release: pairs with the Acquire in `write_line`.
    LENGTH.store(line.len(), Ordering::Release);
    static IS_SET: AtomicBool = AtomicBool::new(false);
    // glibc's; other C libraries don't tell the exit status.
    let on_exit = symbol(c"on_exit");
    if !on_exit.is_null() && !IS_SET.swap(true, Ordering::Relaxed) {
        // SAFETY: the function of this name has this type.
        unsafe { transmute::<*mut c_void, OnExit>(on_exit)(at_exit, ptr::null_mut()) };
    }
}

/// Writes the line, once. Async-signal-safe.
pub fn write_line() {
    let length = LENGTH.swap(0, Ordering::Acquire);
    let line = LINE.load(Ordering::Relaxed);
    if length > 0 {
        // SAFETY: `say` has leaked that many bytes.
        write_all(libc::STDERR_FILENO, unsafe { core::slice::from_raw_parts(line, length) });
    }
}

extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    if status != 0 {
        write_line();
    }
}
