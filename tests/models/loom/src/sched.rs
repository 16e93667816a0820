//! The scheduler's files that are checked, and stand-ins for their neighbours.

pub mod prim;
pub mod types;
