//! What the queue uses of the library's `sched`.

#[path = "../../../src/sched/limits.rs"]
pub mod limits;
#[path = "../../../src/sched/ring.rs"]
pub mod ring;
