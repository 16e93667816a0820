//! The points at which the scheduler calls gangs and the hooks of embedders. The rooms below `ext`
//! know only these.

use super::g::GRef;
use super::m::MRef;
use super::p::PRef;
use super::runtime::Runtime;
use super::task::Task;
use core::ffi::{CStr, c_char};
use core::ptr;

/// A frame of an interpreter's stack. `gs_frame`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ScriptFrame {
    /// C strings; null: not known.
    pub function: *const c_char,
    pub file: *const c_char,
    /// 0: not known.
    pub line: i64,
}

impl ScriptFrame {
    pub const NONE: ScriptFrame = ScriptFrame { function: ptr::null(), file: ptr::null(), line: 0 };

    /// The function with the name of its file, without directories, and the line.
    ///
    /// # Safety
    /// The strings are valid.
    pub unsafe fn describe(&self) -> String {
        let text = |string: *const c_char| {
            // SAFETY: not null, so it is a C string.
            (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_string_lossy())
        };
        let function = text(self.function).unwrap_or("?".into());
        match text(self.file) {
            Some(file) if self.line > 0 => {
                let file = file.rsplit('/').next().unwrap_or_default();
                format!("{function} ({file}:{})", self.line)
            }
            _ => function.into_owned(),
        }
    }
}

/// A function that finds a task, for [`Points::member_in_handler`].
pub type Finds<'a> = &'a dyn Fn() -> Option<Task>;

/// The functions of `ext` for these points. All are called without a lock held.
pub struct Points {
    /// Called when a P becomes idle, after its goroutine has left. True: that goroutine was a
    /// gang's member, in its gang's turn.
    pub member_left: fn(PRef) -> bool,
    /// Queues a gang's member that is ready.
    pub push_member: fn(&Runtime, Task),
    /// [`Points::push_member`] without waking an M.
    pub push_member_quietly: fn(&Runtime, Task),
    /// A goroutine for the P that waits in the handler of the preemption signal: a member if it is
    /// its gang's turn, else what the function finds, else any member.
    pub member_in_handler: fn(&Runtime, PRef, Finds) -> Option<Task>,
    /// Any gang's member that waits in the handler of the preemption signal.
    pub any_member_in_handler: fn(&Runtime) -> Option<Task>,
    /// Calls the hook `switch_out` for the goroutine in `M::entered`: the M runs another goroutine
    /// or none.
    pub leave_entered: fn(MRef),
    /// Called when the M has nothing to run.
    pub idle: fn(MRef),
    /// Whether the M still has other hooks than the current ones.
    pub has_old_hooks: fn(MRef) -> bool,
    /// Whether an interpreter gives the frames of goroutines.
    pub has_script_frames: fn() -> bool,
    /// The frames that an interpreter has for the calling goroutine.
    pub script_frames: for<'a> fn(GRef, &'a mut [ScriptFrame]) -> &'a [ScriptFrame],
}
