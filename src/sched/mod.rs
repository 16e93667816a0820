//! The scheduler, in five rooms, of which a room calls only those below it: lifecycle, services, core, types,
//! prim. `README.md` beside this file says where each protocol is written down.

pub mod core;
pub mod lifecycle;
pub mod prim;
pub mod services;
pub mod types;
