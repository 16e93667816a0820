//! The scheduler, in five rooms, of which a room calls only those below it: life, watch, core, who,
//! words. `README.md` beside this file says where each protocol is written down.

pub mod core;
pub mod life;
pub mod watch;
pub mod who;
pub mod words;
