//! G, M, P, Node and what they hold.

pub mod cxa;
pub mod g;
pub mod m;
pub mod node;
pub mod p;
pub mod runtime;
pub mod task;
