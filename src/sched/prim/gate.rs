//! Two activities that exclude each other. Several threads may do the same activity at once.

use crate::atomic::{AtomicUsize, Ordering, fence};

/// Threads are made, or goroutines wait in the signal handler, but not both at once. `take/PREEMPTION.md` says why; the
/// model test is in `tests/models`.
pub struct Gate {
    making: AtomicUsize,
    waiting: AtomicUsize,
}

impl Gate {
    pub fn new() -> Gate {
        Gate { making: AtomicUsize::new(0), waiting: AtomicUsize::new(0) }
    }

    /// The caller is about to make a thread; `None`: not now.
    #[must_use]
    pub fn begin_making(&self) -> Option<Through<'_>> {
        enter(&self.making, &self.waiting)
    }

    /// From here on no thread begins to wait, until [`Gate::open`]. Threads that wait already go on waiting.
    pub fn close(&self) {
        self.making.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `enter`: a thread that begins to wait sees this, or
        // `waiting` counts it.
        fence(Ordering::SeqCst);
    }

    /// Undoes one [`Gate::close`].
    pub fn open(&self) {
        // Release: as in `Through::drop`.
        self.making.fetch_sub(1, Ordering::Release);
    }

    /// How many threads wait in the signal handler, or are about to give up waiting.
    pub fn waiting(&self) -> usize {
        // Acquire: pairs with the Release in `Through::drop`.
        self.waiting.load(Ordering::Acquire)
    }

    /// The caller is about to wait in the signal handler; `None`: not now.
    #[must_use]
    pub fn begin_waiting(&self) -> Option<Through<'_>> {
        enter(&self.waiting, &self.making)
    }
}

/// Each side announces itself, fences, and then reads the other's count: at least one side sees the other.
#[must_use]
fn enter<'a>(own: &'a AtomicUsize, other: &AtomicUsize) -> Option<Through<'a>> {
    own.fetch_add(1, Ordering::Relaxed);
    let through = Through(own);
    fence(Ordering::SeqCst);
    // Acquire: pairs with the Release in `Through::drop`.
    (other.load(Ordering::Acquire) == 0).then_some(through)
}

/// While this lives the other side stays out.
pub struct Through<'a>(&'a AtomicUsize);

impl Drop for Through<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `enter`, so that the other side comes after what was done here.
        self.0.fetch_sub(1, Ordering::Release);
    }
}
