//! Tests of concurrent code: runs of a function in a bubble (`sched::lifecycle::bubble`), and, if one
//! fails, the shortest schedule that fails too. `README.md` lists the files.

pub mod explore;
mod report;
mod shrink;

pub use explore::{Plan, explore, run};
