//! The library from its own files, on a machine that shuttle runs: every
//! interleaving of its threads' atomic operations may come up. Stand-ins are the
//! rooms `os`, `numa` and the thread-local word of `arch`.

// The library's rooms are private: lints for what others can call don't fit.
#![allow(
    dead_code,
    clippy::drop_non_drop,
    clippy::len_without_is_empty,
    clippy::missing_safety_doc,
    clippy::new_without_default,
    clippy::not_unsafe_ptr_arg_deref
)]

extern crate shuttle_core as core;

pub mod arch;
#[path = "../../../../src/atomic.rs"]
pub mod atomic;
pub mod backtrace;
pub mod bursts;
#[path = "../../../../src/chan/mod.rs"]
pub mod chan;
#[path = "../../../../src/cxx/mod.rs"]
pub mod cxx;
pub mod io;
pub mod machine;
pub mod model;
pub mod numa;
pub mod os;
pub mod poll;
pub mod sched;
#[path = "../../../../src/stack/mod.rs"]
pub mod stack;
#[path = "../../../../src/sync/mod.rs"]
pub mod sync;
#[path = "../../../../src/time/mod.rs"]
pub mod time;
pub mod trace;
