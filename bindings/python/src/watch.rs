//! What the watchdog looks at: whether the worker thread gets on.
//!
//! `TICK` goes up whenever a goroutine enters Python and at each checkpoint. A worker that is busy (see
//! `worker::is_busy`) at the same tick for long is held up. The thread that watches does so without the GIL,
//! and takes it only to report.

use crate::ffi::gs_now;
use crate::goroutine::{self, Goroutine};
use crate::{errors, state, worker};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

static TICK: AtomicU32 = AtomicU32::new(0);

/// The worker thread gets on. Only that thread calls it.
#[inline(always)]
pub fn tick() {
    TICK.store(TICK.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// The tick at which the worker thread is busy.
fn busy_at() -> Option<u32> {
    worker::is_busy().then(|| TICK.load(Ordering::Relaxed))
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

    /// Waits until the worker thread is held up: the tick, and the time since which, as gs_now's.
    fn held(&self, py: Python<'_>) -> Option<(u32, i64)> {
        state::outside(py, || {
            let mut before = None;
            loop {
                if self.is_stopped.load(Ordering::Relaxed) {
                    return None;
                }
                let Some(at) = busy_at() else {
                    before = None;
                    std::thread::sleep(self.pause);
                    continue;
                };
                // SAFETY: no preconditions.
                let now = unsafe { gs_now() };
                match before {
                    Some((tick, since)) if tick == at => {
                        if now - since >= self.limit {
                            return Some((at, since));
                        }
                    }
                    _ => before = Some((at, now)),
                }
                std::thread::sleep(self.pause);
            }
        })
    }

    /// Waits until it is no more: for how long it was, in seconds.
    fn ended(&self, py: Python<'_>, tick: u32, since: i64) -> Option<f64> {
        state::outside(py, || {
            while busy_at() == Some(tick) {
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

/// The goroutine that runs on the worker thread and the present tick, for other threads. None: none does.
#[pyfunction]
pub fn _busy(py: Python<'_>) -> Option<(Py<Goroutine>, u32)> {
    let g = worker::busy(py)?;
    Some((goroutine::object_of(py, g)?, TICK.load(Ordering::Relaxed)))
}
