//! Starts the goroutine that looks for memory that waits for its thread (`look`).
//!
//! Without a GIL, an object belongs to the thread that made it. If another thread drops the last
//! reference, the owner frees the object the next time that the owner runs Python code. A thread of
//! goroutines may have nothing to run for a long time. So, a while after some goroutine has left
//! Python (`left`), a goroutine on the first thread checks the other threads, and wakes those for
//! which objects wait (`settle`). It sleeps while no goroutine leaves Python.

use super::{closing, group, left};
use crate::goroutine::spawn;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// The goroutine that checks the threads has been started.
static RUNS: AtomicBool = AtomicBool::new(false);

/// Starts the goroutine that looks, unless it runs or there is only one thread.
pub fn start(py: Python<'_>) -> PyResult<()> {
    if !group::has_threads() {
        return Ok(());
    }
    let settle = py.import("gosched._signals")?.getattr("_settle")?;
    if !RUNS.load(Ordering::Relaxed) {
        closing::open(py);
        spawn::spawn_own(&settle, "gosched-settle")?;
        RUNS.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// In the child of a fork.
pub fn forked() {
    left::forked();
    RUNS.store(false, Ordering::Relaxed);
}
