//! Parts of the library, compiled from its own files with loom's atomics, and
//! what they need of the rest.

// The library's rooms are private: lints for what others can call don't fit.
#![allow(clippy::len_without_is_empty, clippy::new_without_default)]

extern crate loom_core as core;

#[path = "../../../../src/atomic.rs"]
pub mod atomic;
pub mod check;
pub mod os;
pub mod sched;

pub mod stack {
    pub struct Pool;

    impl Pool {
        pub fn new() -> Pool {
            Pool
        }
    }
}
