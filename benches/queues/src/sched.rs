//! What the queue uses of the library's `sched`.

#[path = "../../../src/sched/prim/limits.rs"]
pub mod limits;
#[path = "../../../src/sched/prim/ring.rs"]
pub mod ring;
/// For Miri, which checks its tests.
#[cfg(miri)]
#[path = "../../../src/sched/prim/pool.rs"]
pub mod pool;
