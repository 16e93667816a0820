//! The goroutine that is in Python on the calling thread.

use crate::goroutine::object::Goroutine;
use crate::outside::outside;
use crate::sys::{closing, threads};
use pyo3::prelude::*;
use std::ptr;

/// The running goroutine; `None` on threads that run none.
#[inline(always)]
pub fn current<'a>(_py: Python<'a>) -> Option<&'a Goroutine> {
    // SAFETY: null, or a goroutine that runs, and so keeps its object.
    unsafe { threads::mine()?.current().as_ref() }
}

/// The goroutine, which the calling thread runs, is in Python from here on. `None`: the thread runs
/// none.
#[inline(always)]
pub fn set_current(g: Option<&Goroutine>) {
    if let Some(g) = g {
        let worker = threads::of_goroutine();
        worker.set_current(ptr::from_ref(g).cast_mut());
        worker.tick();
        closing::entered();
    }
}

/// The goroutine, which the calling thread runs, is about to leave Python: it waits, gives way or
/// ends. `None`: the thread runs none.
#[inline(always)]
pub fn away(g: Option<&Goroutine>) {
    if g.is_some() {
        threads::of_goroutine().set_current(ptr::null_mut());
    }
}

/// Calls `f`, which may switch but is no wait, outside of Python.
#[inline(always)]
pub fn call<R>(py: Python<'_>, f: impl FnOnce() -> R) -> R {
    let me = current(py);
    away(me);
    let result = outside(py, f);
    set_current(me);
    result
}

/// As `call`, for the caller that knows that it is the goroutine `me`.
#[inline(always)]
pub fn call_as<R>(py: Python<'_>, me: &Goroutine, f: impl FnOnce() -> R) -> R {
    away(Some(me));
    let result = outside(py, f);
    set_current(Some(me));
    result
}

/// Notes that the calling thread gets on, if it runs goroutines.
#[inline(always)]
pub fn tick() {
    if let Some(worker) = threads::mine() {
        worker.tick();
    }
}

/// How often goroutines have come to run on the calling thread, or have got on there. 0: it runs
/// none.
#[inline(always)]
pub fn turns() -> u32 {
    threads::mine().map_or(0, |worker| worker.ticks())
}

/// The threads for goroutines of Python on which no goroutine is in Python now, as of gettid(2).
pub fn idle_threads() -> impl Iterator<Item = i32> {
    let idle = threads::all().into_iter().filter(|worker| worker.busy_at().is_none());
    idle.map(|worker| worker.id())
}

/// A number that no other goroutine or thread alive has: on a thread that runs no goroutines, and in the
/// main goroutine, that of threading.get_ident().
#[pyfunction]
pub fn get_ident(py: Python<'_>) -> u64 {
    // SAFETY: no preconditions.
    current(py).map_or_else(|| unsafe { libc::pthread_self() } as u64, Goroutine::ident)
}
