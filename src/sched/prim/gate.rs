//! Two activities that exclude each other. Several threads may do the same activity at once.

use crate::atomic::{AtomicUsize, Ordering, fence};

/// Keeps threads from being made while goroutines wait in the signal handler, and the other way
/// round. `take/PREEMPTION.md` says why; the model test is in `tests/models`.
pub struct Gate {
    making: AtomicUsize,
    waiting: AtomicUsize,
}

impl Gate {
    pub fn new() -> Gate {
        Gate { making: AtomicUsize::new(0), waiting: AtomicUsize::new(0) }
    }

    /// Enters to make a thread; `None`: not now.
    #[must_use]
    pub fn begin_making(&self) -> Option<Through<'_>> {
        enter(&self.making, &self.waiting)
    }

    /// Keeps threads from beginning to wait, until [`Gate::open`]. Threads that wait already go on
    /// waiting.
    pub fn close(&self) {
        self.making.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `enter`: a thread that begins to wait sees this store, or
        // `waiting` counts the thread.
        fence(Ordering::SeqCst);
    }

    /// Undoes one [`Gate::close`].
    pub fn open(&self) {
        // Release: as in `Through::drop`.
        self.making.fetch_sub(1, Ordering::Release);
    }

    /// The number of threads that wait in the signal handler, or are about to give up waiting.
    pub fn waiting(&self) -> usize {
        // Acquire: pairs with the Release in `Through::drop`.
        self.waiting.load(Ordering::Acquire)
    }

    /// Enters to wait in the signal handler; `None`: not now.
    #[must_use]
    pub fn begin_waiting(&self) -> Option<Through<'_>> {
        enter(&self.waiting, &self.making)
    }
}

/// Announces the caller in `own`, fences, and then reads the other side's count: of two sides at
/// least one sees the other.
#[must_use]
fn enter<'a>(own: &'a AtomicUsize, other: &AtomicUsize) -> Option<Through<'a>> {
    own.fetch_add(1, Ordering::Relaxed);
    let through = Through(own);
    fence(Ordering::SeqCst);
    // Acquire: pairs with the Release in `Through::drop`.
    (other.load(Ordering::Acquire) == 0).then_some(through)
}

/// Keeps the other side out while it lives.
pub struct Through<'a>(&'a AtomicUsize);

impl Drop for Through<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `enter`: the other side comes after this side's work.
        self.0.fetch_sub(1, Ordering::Release);
    }
}
