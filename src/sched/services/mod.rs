//! The threads that look after the others: `README.md` lists them.

pub mod deadlock;
pub mod inspector;
pub mod poller;
pub mod strays;
pub mod sysmon;
pub mod workers;
