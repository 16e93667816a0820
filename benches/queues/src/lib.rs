//! The library's run queue, compiled from the same files, beside crossbeam-deque.

/// What the pool uses of the library's `arch`, for Miri, which knows no assembly.
#[cfg(miri)]
pub mod arch {
    pub fn prefetch_to_write(_at: usize) {}
}

#[path = "../../../src/atomic.rs"]
#[allow(dead_code, unused_imports)]
pub mod atomic;
#[allow(dead_code)]
pub mod os;
#[allow(dead_code)]
pub mod sched;

pub use sched::ring::Ring;
