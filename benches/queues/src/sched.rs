//! What the queue uses of the library's `sched`.

#[path = "../../../src/sched/words/limits.rs"]
pub mod limits;
#[path = "../../../src/sched/words/ring.rs"]
pub mod ring;
/// For Miri, which checks its tests.
#[cfg(miri)]
#[path = "../../../src/sched/words/pool.rs"]
pub mod pool;
