//! How many forks this process descends from.
//!
//! Goroutines and waiters remember the number of the process that made them: a child runs none of
//! its parent's.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of forks between the process that imported the module and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The number of forks behind this process.
#[inline(always)]
pub fn count() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// In the child of a fork: counts it.
pub fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
