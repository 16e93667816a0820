//! The parts of the scheduler that know nothing of goroutines.

pub mod clock;
pub mod config;
pub mod debug;
pub mod draws;
pub mod follower;
pub mod gate;
pub mod headcount;
pub mod histogram;
pub mod idle;
pub mod limits;
pub mod pool;
pub mod ring;
pub mod service;
