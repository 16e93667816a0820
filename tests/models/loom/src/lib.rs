//! Parts of the library, compiled from its own files with loom's atomics, and
//! what they need of the rest.

// The library's rooms are private: lints for what others can call don't fit.
#![allow(dead_code, clippy::len_without_is_empty, clippy::new_without_default)]

extern crate loom_core as core;

#[path = "../../../../src/atomic.rs"]
pub mod atomic;
pub mod check;
pub mod os;
pub mod sched;

/// There is no trace.
pub mod trace {
    pub fn is_on() -> bool {
        false
    }

    pub fn proc_was_taken(_proc: u16) {}
}

pub mod stack {
    pub struct StackPool;

    impl StackPool {
        pub fn new(_node: u16, _memory: Option<usize>) -> StackPool {
            StackPool
        }
    }

    #[derive(Default)]
    pub struct Warm;

    #[derive(Clone, Copy)]
    pub struct SizeClass;

    pub struct StackKind;

    impl StackKind {
        pub fn new(_class: SizeClass, _node: u16) -> StackKind {
            StackKind
        }
    }
}
