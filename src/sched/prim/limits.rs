//! Fixed sizes and limits.

/// The largest number of P's.
pub const PROCS: usize = 1024;
/// The largest number of bubbles at one time.
pub const BUBBLES: usize = 64;
/// The largest number of tasks in each of a P's two rings.
pub const RING: usize = 1024;
/// The most free descriptors with a stack that a P keeps.
pub const FREE_GS: usize = 128;
/// The most free newborn records that a P keeps.
pub const NEWBORNS: usize = 1024;
/// The default limit of threads. seed: B6
pub const THREADS: usize = 10_000;
/// The default time slice of a goroutine, in ns: Go's `forcePreemptNS`.
pub const SLICE: i64 = 10_000_000;
/// The shortest time slice that can be set, in ns.
pub const SHORTEST_SLICE: i64 = 100_000;
/// The longest time slice that can be set, in ns: an hour.
pub const LONGEST_SLICE: i64 = 3_600_000_000_000;
