//! What waits outside the queues: timers, files, and the M's that sleep beside them. `README.md` lists the files.

pub mod netpoll;
pub mod timers;
