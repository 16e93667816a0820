//! How P's change hands and goroutines find a P.

pub mod aside;
pub mod back_from_call;
pub mod blocking;
pub mod bound;
pub mod boundary;
pub mod call;
pub mod events;
pub mod exceptions;
pub mod g0;
pub mod gang;
pub mod group;
pub mod handler;
pub mod hooks;
pub mod loan;
pub mod netpoll;
pub mod order;
pub mod owner;
pub mod park;
pub mod post;
pub mod preempt;
pub mod ready;
pub mod registers;
pub mod stacks;
pub mod start;
pub mod steal;
pub mod stop;
pub mod switch;
pub mod template;
pub mod timers;
pub mod world;
pub mod yielding;

#[cfg(test)]
mod tests;
