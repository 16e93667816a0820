//! The worker group in which goroutines begin, and its threads: those beside the first.

use super::slow::Slow;
use super::threads;
use crate::errors;
use crate::ffi::*;
use crate::outside::outside;
use crate::worker::{first, procs, stay::stay_attached};
use pyo3::prelude::*;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Flag of `gs_workers_create`: the group is for several threads, each of which joins it by
/// `gs_attach`.
const GS_WORKERS_RUNNERS: u32 = 2;

/// Held by the thread that makes more threads.
static GROWS: Slow = Slow::new();

/// The worker group of these threads; null: there is none yet.
static GROUP: AtomicPtr<gs_workers> = AtomicPtr::new(ptr::null_mut());

/// How many threads the group has room for.
static ROOM: AtomicUsize = AtomicUsize::new(0);

/// How many threads the group has; 0: goroutines begin on the first thread.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether goroutines begin on other threads than the first.
pub fn has_threads() -> bool {
    // Acquire: pairs with the Release in `grow`.
    COUNT.load(Ordering::Acquire) > 0
}

/// The group in which goroutines begin.
pub fn group() -> *mut gs_workers {
    if has_threads() { GROUP.load(Ordering::Relaxed) } else { first::group() }
}

/// Makes sure that the group has `n` threads, if `n` is more than 1. The first call bounds their
/// number: by `n` or by the number of CPUs, whichever is more. No thread ends: goroutines that have
/// begun stay on their threads.
pub fn grow(py: Python<'_>, n: usize) -> PyResult<()> {
    let _locked = GROWS.lock(py);
    let before = COUNT.load(Ordering::Relaxed);
    if n < 2 || n <= before {
        return Ok(());
    }
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    let made = outside(py, || {
        if GROUP.load(Ordering::Relaxed).is_null() {
            let room = n.max(cpus);
            // SAFETY: a plain call.
            let group = unsafe { gs_workers_create(room as i32, GS_WORKERS_RUNNERS) };
            if group.is_null() {
                return Err(-libc::ENOMEM);
            }
            GROUP.store(group, Ordering::Relaxed);
            ROOM.store(room, Ordering::Relaxed);
        }
        for i in before..n.min(ROOM.load(Ordering::Relaxed)) {
            begin_thread(i)?;
            // Release: pairs with the Acquire in `has_threads`. A thread that sees the new count
            // finds thread `i` attached.
            COUNT.store(i + 1, Ordering::Release);
        }
        Ok(())
    });
    made.map_err(errors::of)
}

/// Makes sure that there is a thread for each P, as `grow`.
pub fn grow_to_procs(py: Python<'_>) -> PyResult<()> {
    grow(py, procs::gomaxprocs(py, None)? as usize)
}

/// Starts thread number `i`, which joins the group, and waits until it has. The error: a negative
/// errno value.
fn begin_thread(i: usize) -> Result<(), i32> {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name(format!("gosched-py-{i}")).spawn(move || {
        if !threads::prepare() {
            let _ = tell.send(-libc::ENOMEM);
            return;
        }
        stay_attached(|e| _ = tell.send(e));
    });
    if let Err(e) = thread {
        return Err(-e.raw_os_error().unwrap_or(libc::EAGAIN));
    }
    match told.recv().unwrap_or(-libc::EAGAIN) {
        0 => Ok(()),
        e => Err(e),
    }
}

/// In the child of a fork: the threads are the parent's, and the group has its room again.
pub fn forked() {
    GROWS.forked();
    COUNT.store(0, Ordering::Relaxed);
}
