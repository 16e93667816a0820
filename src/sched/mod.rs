//! The scheduler. `README.md` beside this file states its protocols.

pub mod core;
pub mod life;
pub mod watch;
pub mod who;
pub mod words;
