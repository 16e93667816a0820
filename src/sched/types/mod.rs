//! G, M, P, Node and what they hold.

pub mod attachment;
pub mod attention;
pub mod blocked;
pub mod course;
pub mod g;
pub mod gift;
pub mod hold;
pub mod m;
pub mod node;
pub mod p;
pub mod points;
pub mod runtime;
pub mod scripts;
pub mod slots;
pub mod task;
pub mod values;
pub mod waiter;
