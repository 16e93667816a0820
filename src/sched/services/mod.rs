//! The threads that watch the others.

pub mod deadlock;
pub mod inspector;
pub mod poller;
pub mod strays;
pub mod sysmon;
pub mod workers;
