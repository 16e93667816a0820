//! What a goroutine looks like from another thread.

use super::{state, threads};
use crate::goroutine::list;
use crate::goroutine::object::Goroutine;
use pyo3::prelude::*;
use std::collections::HashMap;

/// The frame that a goroutine is in. `None`: it isn't running, or belongs to the parent of this
/// process.
pub fn frame(py: Python<'_>, g: &Goroutine) -> PyResult<Option<Py<PyAny>>> {
    if g.is_lost() {
        return Ok(None);
    }
    let state = g.state(py);
    // SAFETY: null, or the state of a goroutine that has not ended.
    Ok(unsafe { state.as_ref() }.and_then(|state| unsafe { state.frame(py) }))
}

/// What `watch` reports of a goroutine that runs on a thread: its frame.
pub fn stack_on(
    py: Python<'_>,
    _worker: &threads::Worker,
    g: &Goroutine,
) -> PyResult<Option<Py<PyAny>>> {
    frame(py, g)
}

/// Whether a goroutine has begun, has not ended, and waits or has given way.
pub fn is_away(py: Python<'_>, g: &Goroutine) -> bool {
    g.is_running(py) && threads::all().iter().all(|w| !w.runs(g))
}

/// From now on the interpreter knows goroutines as threads with the identities of the goroutines.
pub fn are_threads(py: Python<'_>) {
    state::are_threads(py);
    list::for_each(py, |g| {
        // SAFETY: the state of a goroutine that has not ended.
        g.with_state(py, |state| unsafe { state.identify(py, g.ident()) });
    });
}

/// Calls `f`, which keeps the GIL, while the interpreter knows each goroutine by its identity: for
/// Pythons that don't know them all the time.
pub fn as_threads<R>(py: Python<'_>, f: impl FnOnce() -> R) -> R {
    let mut before = HashMap::new();
    list::for_each(py, |g| {
        // SAFETY: the state of a goroutine that has not ended.
        g.with_state(py, |state| unsafe {
            before.insert(g.ident(), state.exchange_identity(py, g.ident()));
        });
    });
    let result = f();
    list::for_each(py, |g| {
        if let Some(&ident) = before.get(&g.ident()).filter(|ident| **ident != 0) {
            // SAFETY: as above.
            g.with_state(py, |state| unsafe { state.exchange_identity(py, ident) });
        }
    });
    result
}
