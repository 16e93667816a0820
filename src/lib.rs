//! libgosched

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod arch;
pub mod atomic;
pub mod capi;
pub mod chan;
pub mod numa;
pub mod os;
pub mod sched;
pub mod stack;
pub mod sync;
pub mod time;
