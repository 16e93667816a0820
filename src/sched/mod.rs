//! The scheduler. `README.md` beside this file states its protocols.

pub mod blocking;
pub mod config;
pub mod deadlock;
pub mod debug;
pub mod entry;
pub mod g;
pub mod idle;
pub mod keys;
pub mod limits;
pub mod lock_thread;
pub mod m;
pub mod node;
pub mod p;
pub mod park;
pub mod pool;
pub mod ready;
pub mod ring;
pub mod run;
pub mod runtime;
pub mod schedule;
pub mod spawn;
pub mod sysmon;
pub mod task;
pub mod threads;
pub mod timers;
pub mod world;
