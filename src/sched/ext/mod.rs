//! Extensions of the scheduler: gangs, worker groups, the hooks of embedders, C++ exceptions.
//! `README.md` lists the files.

pub mod exceptions;
pub mod gang;
pub mod hooks;

use super::types::points::Points;

/// What gangs and hooks do at the scheduler's points.
pub static POINTS: Points = Points {
    member_left: gang::member_left,
    push_member: gang::push,
    push_member_quietly: gang::push_quietly,
    member_in_handler: gang::waiting_in_handler,
    any_member_in_handler: gang::any_in_handler,
    leave_entered: hooks::leave_entered,
    idle: hooks::idle,
    has_old_hooks: hooks::has_old,
    has_script_frames: hooks::has_script_frames,
    script_frames: hooks::script_frames,
};
