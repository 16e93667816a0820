//! The scheduler, in five rooms, of which a room calls only those below it: lifecycle, services, core, types,
//! prim. `README.md` beside this file says where each protocol is written down.

pub mod ext;
pub mod inspect;
pub mod lifecycle;
pub mod prim;
pub mod run;
pub mod schedule;
pub mod services;
pub mod take;
pub mod types;
pub mod wait;
