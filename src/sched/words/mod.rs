//! What the scheduler is built of, that knows no goroutine.

pub mod clock;
pub mod config;
pub mod debug;
pub mod forking;
pub mod gate;
pub mod idle;
pub mod limits;
pub mod pool;
pub mod ring;
pub mod service;
