//! A line that the process writes to standard error when it fails: when a fault or abort(3) ends it,
//! or its exit status isn't 0.

use super::write_all;
use crate::os;
use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, transmute, zeroed};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// The signals of a failure.
const SIGNALS: [i32; 5] =
    [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// The line, and its length. It is never freed.
static LINE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// The actions for [`SIGNALS`] before ours. Written once, before our handler is installed.
static mut BEFORE: [MaybeUninit<libc::sigaction>; SIGNALS.len()] =
    [const { MaybeUninit::uninit() }; SIGNALS.len()];

/// Sets the line, once for the process: later calls change only the text.
pub fn say(line: String) {
    let line = Box::leak(line.into_bytes().into_boxed_slice());
    LENGTH.store(0, Ordering::Relaxed);
    // Release: pairs with the Acquire in `write`.
    LINE.store(line.as_mut_ptr(), Ordering::Release);
    LENGTH.store(line.len(), Ordering::Release);
    static IS_SET: AtomicBool = AtomicBool::new(false);
    if IS_SET.swap(true, Ordering::Relaxed) {
        return;
    }
    for (i, &sig) in SIGNALS.iter().enumerate() {
        // SAFETY: all bytes zero are an action; `BEFORE` is written before the handler reads it.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_ONSTACK | libc::SA_NODEFER;
            let before = (&raw mut BEFORE[i]).cast::<libc::sigaction>();
            libc::sigaction(sig, ptr::null(), before);
            libc::sigaction(sig, &action, ptr::null_mut());
        }
    }
    type OnExit = unsafe extern "C" fn(extern "C" fn(c_int, *mut c_void), *mut c_void) -> c_int;
    // glibc's; other C libraries don't tell the exit status.
    let on_exit = os::symbol(c"on_exit");
    if !on_exit.is_null() {
        // SAFETY: the function of this name has this type.
        unsafe { transmute::<*mut c_void, OnExit>(on_exit)(at_exit, ptr::null_mut()) };
    }
}

fn write() {
    let length = LENGTH.swap(0, Ordering::Acquire);
    let line = LINE.load(Ordering::Acquire);
    if length > 0 {
        // SAFETY: `say` has leaked that many bytes.
        write_all(libc::STDERR_FILENO, unsafe { core::slice::from_raw_parts(line, length) });
    }
}

/// Writes the line, and leaves the signal to the action before: a fault comes again at once, and
/// abort(3) raises its signal again.
extern "C" fn on_signal(sig: c_int) {
    let _errno = super::KeepErrno::new();
    write();
    if let Some(i) = SIGNALS.iter().position(|&s| s == sig) {
        // SAFETY: `say` has written the action before this handler was installed.
        unsafe {
            libc::sigaction(sig, (&raw const BEFORE[i]).cast(), ptr::null_mut());
            // Another process's signal doesn't come again.
            if sig != libc::SIGABRT {
                return;
            }
            libc::raise(sig);
        }
    }
}

extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    if status != 0 {
        write();
    }
}
