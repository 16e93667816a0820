//! The beginning and the end of the runtime, of goroutines, and of M's on the host's threads.

pub mod attach;
pub mod bubble;
pub mod cancel;
pub mod crash;
pub mod fault;
pub mod fork;
pub mod goroutine;
pub mod init;
pub mod keys;
pub mod lock_thread;
pub mod orphans;
pub mod run;
pub mod spawn;
pub mod stopping;
pub mod timer_calls;
pub mod tracing;
pub mod watch;
