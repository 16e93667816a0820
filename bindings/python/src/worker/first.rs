//! The first thread that runs goroutines, its worker group and the main goroutine.

use crate::ffi::*;
use crate::goroutine::object::Goroutine;
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The first thread that runs goroutines, as `pthread_self` gives it; 0: there is none.
/// `sys::starting` may put another mark here while the thread begins.
static WORKER: AtomicUsize = AtomicUsize::new(0);
/// The worker group of that thread; null: there is none yet.
static GROUP: AtomicPtr<gs_workers> = AtomicPtr::new(ptr::null_mut());
/// The main goroutine's object, of which this is a reference; null: there is none.
static MAIN: AtomicPtr<py_ffi::PyObject> = AtomicPtr::new(ptr::null_mut());

/// The calling thread, as `pthread_self` gives it.
pub fn this_thread() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// Whether the caller is the main thread of the process.
pub fn is_main_thread() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() == libc::getpid() }
}

/// The first thread, as `pthread_self` gives it; 0: there is none.
#[inline(always)]
pub fn thread() -> usize {
    WORKER.load(Ordering::Relaxed)
}

/// Whether there is such a thread. The caller sees then all that was done before `set_thread`.
pub fn has_begun() -> bool {
    // Acquire: pairs with the Release in `set_thread`.
    WORKER.load(Ordering::Acquire) != 0
}

/// Sets what `thread` gives.
pub fn set_thread(thread: usize) {
    // Release: pairs with the Acquire in `has_begun`.
    WORKER.store(thread, Ordering::Release);
}

/// The worker group of the first thread; null: there is none yet.
pub fn group() -> *mut gs_workers {
    // Acquire: pairs with the Release in `set_group`.
    GROUP.load(Ordering::Acquire)
}

/// Sets what `group` gives.
pub fn set_group(group: *mut gs_workers) {
    // Release: pairs with the Acquire in `group`.
    GROUP.store(group, Ordering::Release);
}

/// Sets the main goroutine.
pub fn set_main(main: Py<Goroutine>) {
    // Release: pairs with the Acquire in `main`.
    MAIN.store(main.into_ptr(), Ordering::Release);
}

/// The main goroutine, once there is one.
pub fn main(py: Python<'_>) -> Option<Py<Goroutine>> {
    // SAFETY: null, or an object that stays: the main goroutine never ends.
    let main = unsafe { Bound::from_borrowed_ptr_or_opt(py, MAIN.load(Ordering::Acquire)) }?;
    // SAFETY: `set_main` has put a Goroutine there.
    Some(unsafe { main.cast_into_unchecked::<Goroutine>() }.unbind())
}

/// Whether the caller, a goroutine, is the main one.
pub fn is_main_goroutine() -> bool {
    // SAFETY: the data of a goroutine of the group, or of the main one, is its object, which lives.
    let data = unsafe { gs_data(gs_self()) };
    !data.is_null() && ptr::eq(data, MAIN.load(Ordering::Relaxed).cast())
}

/// Whether goroutines run on the main thread, or on none yet.
pub fn is_main_worker() -> bool {
    // Only the main thread can become the first thread with a main goroutine.
    !MAIN.load(Ordering::Relaxed).is_null() || WORKER.load(Ordering::Relaxed) == 0
}

/// In the child of a fork: there is neither such a thread nor a main goroutine.
pub fn forked() {
    WORKER.store(0, Ordering::Relaxed);
    // The frames of the main goroutine are the thread's still: its object is not dropped.
    MAIN.store(ptr::null_mut(), Ordering::Relaxed);
}
