//! Timers and files: waits outside the run queues, ended by the clock or the kernel. `README.md`
//! lists the files.

pub mod netpoll;
pub mod timers;
