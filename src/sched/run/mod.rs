//! How a P finds its next goroutine, how goroutines switch, park and become ready, and how M's are
//! woken for work. `README.md` lists the files.

pub mod aside;
pub mod bound;
pub mod group;
pub mod order;
pub mod ordered;
pub mod owner;
pub mod park;
pub mod post;
pub mod preempted;
pub mod probes;
pub mod ready;
pub mod requests;
pub mod stacks;
pub mod start;
pub mod steal;
pub mod switch;
pub mod traced;
pub mod yielding;
