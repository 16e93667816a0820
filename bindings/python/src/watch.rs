//! What the watchdog looks at: whether the threads that run goroutines get on.
//!
//! The tick of a worker goes up whenever a goroutine enters Python there and at each checkpoint. A
//! worker that is busy at the same tick for long is held up. The thread that watches looks from
//! outside of Python, and enters it only to report.

use crate::errors;
use crate::ffi::gs_now;
use crate::goroutine::list;
use crate::goroutine::object::Goroutine;
use crate::outside::outside;
use crate::sys::{inspect, threads};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A goroutine, and where it is: see `_busy`.
type Busy = (Py<Goroutine>, Option<Py<PyAny>>);

/// A worker's number and its tick, in which it is held up.
type Place = (usize, u32);

/// The tick at which a worker is busy.
fn busy_at(worker: usize) -> Option<u32> {
    threads::all().get(worker)?.busy_at()
}

/// For gosched.gunicorn: of each worker the tick at which it is busy, or None.
#[pyfunction]
pub fn _ticks() -> Vec<Option<u32>> {
    threads::all().into_iter().map(|worker| worker.busy_at()).collect()
}

/// How often it looks within the time that is too long, and at least and at most, in seconds.
const LOOKS: f64 = 10.0;
const SHORTEST: f64 = 0.001;
const LONGEST: f64 = 0.05;

/// For gosched.watchdog: what its thread calls.
#[pyclass(frozen, name = "_Watch", module = "gosched._gosched")]
pub struct Watch {
    /// What is too long, in ns.
    limit: i64,
    pause: Duration,
    is_stopped: AtomicBool,
}

#[pymethods]
impl Watch {
    #[new]
    fn new(seconds: f64) -> PyResult<Watch> {
        if !(seconds > 0.0 && seconds < 1e9) {
            return Err(errors::value("seconds must be more than 0"));
        }
        let pause = Duration::from_secs_f64((seconds / LOOKS).clamp(SHORTEST, LONGEST));
        Ok(Watch { limit: (seconds * 1e9) as i64, pause, is_stopped: AtomicBool::new(false) })
    }

    /// Makes the other methods return None.
    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Waits until a thread is held up: where, and the time since which, as gs_now's.
    fn held(&self, py: Python<'_>) -> Option<(Place, i64)> {
        outside(py, || {
            // Of each worker the tick at which it was busy, and since when.
            let mut before: Vec<Option<(u32, i64)>> = Vec::new();
            loop {
                if self.is_stopped.load(Ordering::Relaxed) {
                    return None;
                }
                let workers = threads::all();
                before.resize(workers.len(), None);
                // SAFETY: no preconditions.
                let now = unsafe { gs_now() };
                for (i, worker) in workers.into_iter().enumerate() {
                    match (worker.busy_at(), before[i]) {
                        (Some(at), Some((tick, since))) if tick == at => {
                            if now - since >= self.limit {
                                return Some(((i, at), since));
                            }
                        }
                        (at, _) => before[i] = at.map(|at| (at, now)),
                    }
                }
                std::thread::sleep(self.pause);
            }
        })
    }

    /// Waits until it is no more: for how long it was, in seconds.
    fn ended(&self, py: Python<'_>, place: Place, since: i64) -> Option<f64> {
        outside(py, || {
            while busy_at(place.0) == Some(place.1) {
                if self.is_stopped.load(Ordering::Relaxed) {
                    return None;
                }
                std::thread::sleep(self.pause);
            }
            Some(self.since(since))
        })
    }

    /// Seconds since a time of gs_now's.
    fn since(&self, at: i64) -> f64 {
        // SAFETY: no preconditions.
        (unsafe { gs_now() } - at) as f64 / 1e9
    }
}

/// The goroutine that holds a thread up, for other threads, and its stack: where there is a GIL the frame that
/// it is in, else a list of pairs of code and index of the instruction, innermost first. None: it is over.
#[pyfunction]
pub fn _busy(py: Python<'_>, place: Place) -> PyResult<Option<Busy>> {
    let Some(&worker) = threads::all().get(place.0) else { return Ok(None) };
    let Some(g) = list::running_on(py, worker) else { return Ok(None) };
    let stack = inspect::stack_on(py, worker, g.get())?;
    Ok((busy_at(place.0) == Some(place.1)).then_some((g, stack)))
}
