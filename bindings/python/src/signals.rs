//! Signals while no goroutine runs, or one computes.
//!
//! Python's own handler, in C, writes the signal's number to a pipe. A native goroutine reads the pipe: it wakes
//! the goroutine `gosched-signals`, which calls the handlers in Python if none has yet; and if the worker thread
//! computes, it has the goroutine that does so call them. (Until 3.12 the interpreter does that by itself; from
//! 3.13 on only in the thread state of the main goroutine.)

use crate::errors;
use crate::ffi::*;
use crate::park::{self, Timeout};
use crate::shared::Shared;
use crate::{blocking, worker};
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use std::ffi::c_void;
use std::ptr;

/// Released for each time that signals have come.
static COME: Shared<gs_sem> = Shared::new(gs_sem::new());

fn come() -> usize {
    COME.with_thread(|sem| ptr::from_mut(sem) as usize)
}

/// Reads the pipe, until it is closed.
unsafe extern "C" fn listen(fd: *mut c_void) {
    let fd = fd as usize as i32;
    let mut numbers = [0u8; 64];
    loop {
        // SAFETY: room for so many bytes.
        let n = unsafe { gs_read(fd, numbers.as_mut_ptr().cast(), numbers.len(), GS_FOREVER) };
        if n <= 0 {
            return;
        }
        // SAFETY: static.
        unsafe { gs_sem_release(come() as *mut gs_sem, 1) };
        // Others' handlers may raise what is not meant for the goroutine that computes.
        if numbers[..n as usize].contains(&(libc::SIGINT as u8)) {
            hurry();
        }
    }
}

/// How long a goroutine that was told to give way has for that, at first and at most, in ns.
const FIRST_PAUSE: i64 = 5_000_000;
const LAST_PAUSE: i64 = 100_000_000;

/// Sees to it that KeyboardInterrupt reaches the main goroutine while others compute: each that runs before it
/// is told to call the handler of the signal, which gives way.
fn hurry() {
    let mut pause = FIRST_PAUSE;
    let mut is_first = true;
    while worker::is_busy() {
        let look: fn(Python<'_>) -> bool = if is_first { first_look } else { next_look };
        if !blocking::with_gil(look) {
            return;
        }
        is_first = false;
        // SAFETY: a goroutine.
        unsafe { gs_sleep_until(gs_now() + pause) };
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

fn first_look(py: Python<'_>) -> bool {
    let running = worker::busy(py);
    running.inspect(|g| g.look_for_signals(py)).is_some()
}

/// The signal has been seen: is the exception still on its way to the main goroutine?
fn next_look(py: Python<'_>) -> bool {
    let waits = worker::main(py).is_some_and(|main| main.get().is_interrupted(py));
    if waits && let Some(running) = worker::busy(py) {
        // SAFETY: the GIL is held.
        unsafe { py_ffi::PyErr_SetInterrupt() };
        running.look_for_signals(py);
    }
    waits
}

/// Starts the native goroutine that reads the pipe.
#[pyfunction]
pub fn _listen(py: Python<'_>, fd: i32) -> PyResult<()> {
    // SAFETY: the pipe is closed in the child of a fork only, which has no goroutines.
    errors::check(park::call(py, || unsafe {
        gs_spawn_with(listen, fd as usize as *mut c_void, ptr::null(), ptr::null_mut())
    }))
}

/// Waits until signals have come.
#[pyfunction]
pub fn _wait_for_signal(py: Python<'_>) -> PyResult<()> {
    let sem = come();
    // SAFETY: static.
    park::wait(py, Timeout::Forever, |d| unsafe { gs_sem_acquire(sem as *mut gs_sem, 1, d) })
        .map(drop)
}

/// Lets other goroutines run, without raising what was thrown at the caller: for handlers of signals.
#[pyfunction]
pub fn _give_way(py: Python<'_>) {
    // SAFETY: without the GIL.
    park::call(py, || unsafe { gs_yield() });
}

/// In the child of a fork.
pub fn forked(py: Python<'_>) {
    COME.with(py, |sem| *sem = gs_sem::new());
}
