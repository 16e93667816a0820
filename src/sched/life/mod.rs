//! The beginning and the end: of the runtime, of goroutines, of threads.

pub mod attach;
pub mod cancel;
pub mod dump;
pub mod embed;
pub mod goroutine;
pub mod keys;
pub mod lock_thread;
pub mod run;
pub mod spawn;
pub mod stats;
