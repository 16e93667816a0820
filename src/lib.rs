//! libgosched

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod arch;
mod atomic;
pub mod capi;
mod chan;
mod numa;
mod os;
mod sched;
mod stack;
mod sync;
mod time;
