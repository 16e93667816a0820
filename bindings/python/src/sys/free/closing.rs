//! What the end of Python needs of the threads that run goroutines.

use super::{door, threads};
use crate::ffi::gs_now;
use crate::outside::outside;
use crate::sys::attach::{enter, leave};
use crate::worker::{ending, first};
use pyo3::prelude::*;
use std::ptr;

/// How long `leave_python` waits for goroutines that are in Python on other threads, in ns.
const PATIENCE: i64 = 1_000_000_000;

/// How long `close` waits for these, in ns: functions of atexit may run after it.
const SHORT_PATIENCE: i64 = 100_000_000;

/// For a goroutine that has just entered Python: leaves it again if the door was closed meanwhile.
#[inline(always)]
pub fn entered() {
    if ending::is_ending() {
        leave_if_closed();
    }
}

#[cold]
fn leave_if_closed() {
    if door::is_closed() && !first::is_main_goroutine() {
        let worker = threads::of_goroutine();
        let current = worker.current();
        worker.set_current(ptr::null_mut());
        // SAFETY: the goroutine is attached, and enters again on its thread.
        unsafe { enter(leave()) };
        worker.set_current(current);
    }
}

/// For a caller that uses goroutines: opens the door if the caller is the main thread. A function
/// of atexit that was registered before `_finalize`, and so runs after it, may use goroutines.
#[inline(always)]
pub fn open(py: Python<'_>) {
    if door::is_closed() && first::is_main_thread() {
        let n = door::unlock();
        // SAFETY: outside of Python.
        outside(py, || unsafe { door::wake(n) });
    }
}

/// At the end of the program: keeps the goroutines out of Python. Otherwise a goroutine may be in
/// the middle of `print` when Python ends and stops its thread. That thread has the lock of the
/// file for good, and Python aborts, because it can't flush the file.
pub fn close(py: Python<'_>) {
    door::close();
    wait_until_out(py, SHORT_PATIENCE);
}

/// Waits until the threads that run goroutines have left Python. They don't enter it again.
pub fn leave_python(py: Python<'_>) {
    wait_until_out(py, PATIENCE);
}

/// Waits up to `patience` ns until no goroutine is in Python on another thread than this one.
fn wait_until_out(py: Python<'_>, patience: i64) {
    let here = threads::mine().map_or(ptr::null(), ptr::from_ref);
    let is_busy = || threads::all().iter().any(|&w| !ptr::eq(w, here) && w.busy_at().is_some());
    // SAFETY: no preconditions.
    let until = unsafe { gs_now() } + patience;
    loop {
        // At least once: what another thread stored before it saw the end is visible here
        // afterwards.
        outside(py, || std::thread::sleep(std::time::Duration::from_millis(1)));
        // SAFETY: no preconditions.
        if !is_busy() || unsafe { gs_now() } >= until {
            return;
        }
    }
}

/// In the child of a fork: the door is open.
pub fn forked() {
    door::forked();
}
