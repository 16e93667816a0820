//! G, M, P, Node and what they hold.

pub mod aside;
pub mod attachment;
pub mod attention;
pub mod blocked;
pub mod cxa;
pub mod g;
pub mod gang;
pub mod group;
pub mod hold;
pub mod hooks;
pub mod inspector;
pub mod loan;
pub mod m;
pub mod node;
pub mod p;
pub mod poll;
pub mod runtime;
pub mod slots;
pub mod sysmon;
pub mod task;
pub mod template;
pub mod timer;
pub mod values;
pub mod waiter;
pub mod workers;
pub mod world;
