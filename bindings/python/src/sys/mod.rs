//! What differs between a Python with a GIL and a free-threaded one.
//!
//! The folder `gil` is for the former, `free` for the latter, and both have the same functions in
//! files of the same names; `free` has a few more files, which only its own use. No other file asks
//! which build this is. The C files of the folders are compiled by `build.rs`, and what depends on
//! Python's version is in `src/cpython`.
//!
//! - `guard`: what guards a `Shared` value.
//! - `give`: references that go to another goroutine.
//! - `state`: what a goroutine runs Python code in.
//! - `threads`: the threads that run goroutines of Python.
//! - `group`: the worker group in which goroutines begin, and its threads.
//! - `door`: keeps goroutines out of Python at its end.
//! - `attach`: leaving and entering Python.
//! - `closing`: what else the end of Python needs.
//! - `starting`: how the first thread begins.
//! - `settle`, `settler`: memory that waits for its thread.
//! - `inspect`: what a goroutine looks like from another thread.

#[cfg(not(Py_GIL_DISABLED))]
mod gil;
#[cfg(not(Py_GIL_DISABLED))]
pub use gil::*;

#[cfg(Py_GIL_DISABLED)]
mod free;
#[cfg(Py_GIL_DISABLED)]
pub use free::*;
