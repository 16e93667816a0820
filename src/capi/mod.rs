//! The C API, a file for each section of `gosched.h`. A function here checks its
//! arguments, calls a room, and turns the answer into an errno value.

#![allow(non_camel_case_types)]

#[cfg(test)]
mod abi;
mod channels;
mod embed;
mod gangs;
mod goroutines;
mod hooks;
mod io;
pub(crate) mod layout;
mod numa;
mod sized;
mod start;
mod stats;
mod sync;
mod syscalls;
mod test;
mod timers;
mod trace;

pub use channels::*;
pub use embed::*;
pub use gangs::*;
pub use goroutines::*;
pub use hooks::*;
pub use io::*;
pub use layout::gs_debug_layout;
pub use numa::*;
pub use start::*;
pub use stats::*;
pub use sync::*;
pub use syscalls::*;
pub use test::*;
pub use timers::*;
pub use trace::*;

use core::ffi::c_int;

const EINVAL: c_int = -libc::EINVAL;
