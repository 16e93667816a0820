//! The threads that run goroutines of Python.
//!
//! The first thread that uses a goroutine becomes such a thread, if it is the main thread of the
//! process. That thread is attached (`gs_attach`), and what it runs from then on is the main
//! goroutine. If another thread is first, a thread is made for goroutines. With a GIL there is only
//! this one thread. The goroutines belong to a worker group of that thread.
//!
//! Without a GIL, and with several P's, there is also a second worker group (`sys::group`), of as
//! many threads as there are P's. All goroutines begin there, except those that handle signals.
//!
//! - `activity`: what a thread is doing.
//! - `first`: the first thread.
//! - `ending`: whether Python is about to end.
//! - `current`: the running goroutine.
//! - `stay`: a thread that runs goroutines for ever.
//! - `procs`: the number of P's.
//! - `start`: makes sure that there is a thread for goroutines.
//! - `finish`: the end of Python, and forks.

pub mod activity;
pub mod current;
pub mod ending;
pub mod finish;
pub mod first;
pub mod procs;
pub mod start;
pub mod stay;
