//! The sizes that are fixed.

/// P's at most.
pub const PROCS: usize = 1024;
/// Tasks in each of a P's two rings at most.
pub const RING: usize = 1024;
/// Free descriptors with a stack that a P keeps at most, and free records of newborns.
pub const FREE_GS: usize = 128;
pub const NEWBORNS: usize = 1024;
/// Threads at most, by default. seed: B6
pub const THREADS: usize = 10_000;
/// A goroutine's time slice in ns: the default, as Go's forcePreemptNS, and the
/// bounds.
pub const SLICE: i64 = 10_000_000;
pub const SHORTEST_SLICE: i64 = 100_000;
pub const LONGEST_SLICE: i64 = 3_600_000_000_000;
