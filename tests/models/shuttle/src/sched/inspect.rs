//! What embedders see of goroutines.

#[path = "../../../../../src/sched/inspect/embed.rs"]
pub mod embed;
