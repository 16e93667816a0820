//! The door that keeps goroutines out of Python at its end.

use crate::ffi::*;
use crate::sem::Sem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Whether the door is closed: the program is at its end.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// How many goroutines wait until the door opens.
static OUTSIDE: AtomicUsize = AtomicUsize::new(0);

/// Has a unit for each of these goroutines when the door opens.
static OPENED: Sem = Sem::new();

/// Whether the door is closed.
#[inline(always)]
pub fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Goroutines that are outside of Python stay there from here on.
pub fn close() {
    // SeqCst: pairs with the loop in `wait_until_open`.
    CLOSED.store(true, Ordering::SeqCst);
}

/// Goroutines may enter Python again. Gives how many wait for that: `wake` is to wake them.
pub fn unlock() -> i64 {
    CLOSED.store(false, Ordering::SeqCst);
    OUTSIDE.load(Ordering::SeqCst) as i64
}

/// Wakes `n` goroutines that wait. Goroutines that find the door open take no unit: too many units
/// do no harm.
///
/// # Safety
/// Outside of Python: it may switch.
pub unsafe fn wake(n: i64) {
    // SAFETY: as the caller says.
    unsafe { OPENED.release(n) };
}

/// For a goroutine, not the main one, that is about to enter Python: waits until the door is open.
pub fn wait_until_open() {
    OUTSIDE.fetch_add(1, Ordering::SeqCst);
    while CLOSED.load(Ordering::SeqCst) {
        // SAFETY: a goroutine outside of Python. A cancel is for the wait in which the goroutine
        // is.
        unsafe {
            gs_cancel_disable();
            OPENED.acquire(GS_FOREVER);
            gs_cancel_enable();
        }
    }
    OUTSIDE.fetch_sub(1, Ordering::SeqCst);
}

/// In the child of a fork: the goroutines that waited are the parent's.
pub fn forked() {
    CLOSED.store(false, Ordering::Relaxed);
    OUTSIDE.store(0, Ordering::Relaxed);
    OPENED.forked();
}
