//! A thread that runs goroutines for ever.

use crate::ffi::*;
use crate::sys::settle;

/// The calling thread, a plain one, runs goroutines for ever. Calls `tell` with 0 when the thread
/// has become a worker; with a negative errno value if it can't, and returns then.
pub fn stay_attached(tell: impl FnOnce(i32)) {
    // SAFETY: a plain thread, which never ends.
    let e = unsafe { gs_attach(GS_SPAWN_NOSIGNAL) };
    tell(e);
    if e != 0 {
        return;
    }
    loop {
        // SAFETY: the goroutine only keeps the thread, and settles what is the thread's.
        unsafe { settle::wait() };
    }
}
