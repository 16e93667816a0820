//! All goroutines.

use super::object::{Goroutine, Status};
use crate::errors::Cancelled;
use crate::ffi::{gs_data, gs_set_data};
use crate::shared::Shared;
use crate::sys::threads::{self, Worker};
use crate::worker::first;
use pyo3::prelude::*;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// All goroutines that have begun and not ended, except the main one. Borrowed pointers: each
/// goroutine keeps its own object alive.
static ALL: Shared<Vec<*const Goroutine>> = Shared::new(Vec::new());

/// How many goroutines were spawned and have not ended, except the package's own.
static ALIVE: AtomicU64 = AtomicU64::new(0);

/// A goroutine was spawned, or is about to be; `is_own`: one of the package's own.
pub(super) fn note_spawned(is_own: bool) {
    ALIVE.fetch_add(u64::from(!is_own), Ordering::Relaxed);
}

/// A goroutine has ended, or was not spawned after all.
pub(super) fn note_ended(is_own: bool) {
    ALIVE.fetch_sub(u64::from(!is_own), Ordering::Relaxed);
}

/// Puts a goroutine that begins, and keeps its object, into the list.
pub(super) fn add(py: Python<'_>, g: &Goroutine) {
    ALL.with(py, |all| {
        g.inner.with(py, |i| i.at = all.len());
        all.push(g);
    });
}

/// Takes a goroutine that ends out of the list.
pub(super) fn remove(py: Python<'_>, g: &Goroutine) {
    ALL.with(py, |all| {
        let at = g.inner.with(py, |i| i.at);
        all.swap_remove(at);
        if let Some(moved) = all.get(at) {
            // SAFETY: a goroutine that has not ended keeps its object.
            unsafe { &**moved }.inner.with(py, |i| i.at = at);
        }
    });
}

/// A goroutine of a bubble that is over never runs again: to Python it has ended by `Cancelled`.
pub fn abandon(py: Python<'_>, object: &Bound<'_, Goroutine>) {
    let g = object.get();
    let e = Cancelled::new_err("the run of this goroutine is over").into_value(py).into_any();
    let (status, call, handle, state) = g.inner.with(py, |i| {
        let status = std::mem::replace(&mut i.status, Status::Done);
        if status != Status::Done {
            (i.error, i.cancelled) = (Some(e), true);
        }
        let state = std::mem::replace(&mut i.state, ptr::null());
        (status, i.call.take(), std::mem::replace(&mut i.handle, ptr::null_mut()), state)
    });
    if status != Status::Done {
        note_ended(g.is_own);
    }
    if !state.is_null() {
        remove(py, g);
    }
    g.shown.set_owner(ptr::null_mut());
    // SAFETY: the stack on which the state is stays as it was.
    if let Some(state) = unsafe { state.as_ref() } {
        // SAFETY: the goroutine never runs again.
        unsafe { state.discard(py) };
    }
    if !handle.is_null() {
        // SAFETY: never switches; the goroutine's descriptor stays.
        unsafe { gs_set_data(handle, ptr::null_mut()) };
    }
    drop(call);
}

/// Calls `f`, which neither runs Python code nor waits, with each goroutine except the main one. No
/// goroutine ends meanwhile.
pub fn for_each(py: Python<'_>, f: impl FnMut(&Goroutine)) {
    // SAFETY: a goroutine that is listed has not ended, and keeps its object.
    ALL.with(py, |all| all.iter().map(|g| unsafe { &**g }).for_each(f));
}

/// The object of a goroutine. `None`: the goroutine has not begun, or only its last destructors
/// run.
pub fn object_of(py: Python<'_>, g: &Goroutine) -> Option<Py<Goroutine>> {
    let handle = g.inner.with(py, |i| i.handle);
    if handle.is_null() {
        return None;
    }
    // SAFETY: its data is the object, which lives while it runs.
    unsafe {
        let object = Bound::<PyAny>::from_borrowed_ptr_or_opt(py, gs_data(handle).cast())?;
        Some(object.cast_into_unchecked::<Goroutine>().unbind())
    }
}

/// All goroutines that have begun and not ended, the main one first. Those with which the package waits for signals are
/// left out.
#[pyfunction]
pub fn goroutines(py: Python<'_>) -> Vec<Py<Goroutine>> {
    let mut others = Vec::new();
    for_each(py, |g| {
        if !g.is_own {
            others.extend(object_of(py, g));
        }
    });
    first::main(py).into_iter().chain(others).collect()
}

/// How many goroutines there are, the main one and those that have not begun yet included. Those with which the package
/// waits for signals are left out.
#[pyfunction]
pub fn num_goroutines(py: Python<'_>) -> u64 {
    ALIVE.load(Ordering::Relaxed) + u64::from(first::main(py).is_some())
}

/// The first goroutine for which `f` gives true. `f` neither runs Python code nor waits: it may run
/// with the list's lock held.
pub fn find(py: Python<'_>, f: impl Fn(&Goroutine) -> bool) -> Option<Py<Goroutine>> {
    let main = first::main(py).filter(|g| f(g.get()));
    main.or_else(|| {
        ALL.with(py, |all| {
            // SAFETY: as in `for_each`.
            let found = all.iter().map(|g| unsafe { &**g }).find(|g| f(g))?;
            object_of(py, found)
        })
    })
}

/// For other threads: the goroutine that runs Python code on a thread.
pub fn running_on(py: Python<'_>, worker: &Worker) -> Option<Py<Goroutine>> {
    find(py, |g| worker.runs(g))
}

/// For other threads: the goroutine that runs Python code on the first thread, or is in a call
/// there that gave the GIL back and is no wait of the library's.
pub fn busy(py: Python<'_>) -> Option<Py<Goroutine>> {
    running_on(py, threads::all().first()?)
}

/// In the child of a fork: there is no goroutine.
pub fn forked(py: Python<'_>) {
    ALL.with(py, Vec::clear);
    ALIVE.store(0, Ordering::Relaxed);
}
