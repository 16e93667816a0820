//! How P's change hands and goroutines find a P.

pub mod aside;
pub mod blocking;
pub mod boundary;
pub mod gang;
pub mod group;
pub mod hooks;
pub mod netpoll;
pub mod park;
pub mod preempt;
pub mod ready;
pub mod start;
pub mod switch;
pub mod template;
pub mod timers;
pub mod world;
