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
        pub fn new(_node: u16, _memory: Option<usize>) -> Pool {
            Pool
        }
    }

    #[derive(Default)]
    pub struct Warm;

    #[derive(Clone, Copy)]
    pub struct Class;

    pub struct Kind;

    impl Kind {
        pub fn new(_class: Class, _node: u16) -> Kind {
            Kind
        }
    }
}
