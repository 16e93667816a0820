//! The threads that look after the others: `README.md` lists them.

pub mod deadlock;
pub mod follower;
pub mod inspector;
pub mod last_words;
pub mod poller;
pub mod quit;
pub mod strays;
pub mod sysmon;
pub mod workers;
