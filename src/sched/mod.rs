//! The scheduler, in ten rooms. `README.md` beside this file lists them from the top down, and says
//! where each protocol is written down.

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
