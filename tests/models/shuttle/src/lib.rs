//! The library from its own files, on a machine that shuttle runs: every
//! interleaving of its threads' atomic operations may come up. Stand-ins are the
//! rooms `os`, `numa` and the thread-local word of `arch`.

extern crate shuttle_core as core;

pub mod arch;
#[path = "../../../../src/atomic.rs"]
pub mod atomic;
pub mod bursts;
#[path = "../../../../src/chan/mod.rs"]
pub mod chan;
pub mod machine;
pub mod model;
pub mod numa;
pub mod os;
#[path = "../../../../src/sched/mod.rs"]
pub mod sched;
#[path = "../../../../src/stack/mod.rs"]
pub mod stack;
#[path = "../../../../src/sync/mod.rs"]
pub mod sync;
#[path = "../../../../src/time/mod.rs"]
pub mod time;
