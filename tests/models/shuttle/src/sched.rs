//! The scheduler, from its own files. Of what users ask the runtime, only what embedders see: dumps and leaks read
//! memory, files and stacks that the machine doesn't have.

#[path = "../../../../src/sched/ext/mod.rs"]
pub mod ext;
pub mod inspect;
#[path = "../../../../src/sched/lifecycle/mod.rs"]
pub mod lifecycle;
#[path = "../../../../src/sched/prim/mod.rs"]
pub mod prim;
#[path = "../../../../src/sched/run/mod.rs"]
pub mod run;
#[path = "../../../../src/sched/schedule/mod.rs"]
pub mod schedule;
#[path = "../../../../src/sched/services/mod.rs"]
pub mod services;
#[path = "../../../../src/sched/take/mod.rs"]
pub mod take;
#[path = "../../../../src/sched/types/mod.rs"]
pub mod types;
#[path = "../../../../src/sched/wait/mod.rs"]
pub mod wait;
