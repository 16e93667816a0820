//! The sizes that are fixed.

/// P's at most.
pub const PROCS: usize = 1024;
/// Tasks in each of a P's two rings at most.
pub const RING: usize = 256;
/// Threads at most, by default. seed: B6
pub const THREADS: usize = 10_000;
