//! The library's run queue, compiled from the same files, beside crossbeam-deque.

#[path = "../../../src/atomic.rs"]
#[allow(dead_code, unused_imports)]
pub mod atomic;
#[allow(dead_code)]
pub mod os;
#[allow(dead_code)]
pub mod sched;

pub use sched::ring::Ring;
