//! The points at which gangs and the hooks of embedders hang on the scheduler. The rooms below `ext` know only these.

use super::m::MRef;
use super::p::PRef;
use super::runtime::Runtime;
use super::task::Task;

/// What finds a task, for [`Points::member_in_handler`].
pub type Finds<'a> = &'a dyn Fn() -> Option<Task>;

/// What `ext` does at these points. All are called without a lock held.
pub struct Points {
    /// The goroutine that ran on the P has left the P, which becomes idle. True: it was a gang's member, in its gang's turn.
    pub member_left: fn(PRef) -> bool,
    /// Queues a gang's member that is ready.
    pub push_member: fn(&Runtime, Task),
    /// [`Points::push_member`] without waking an M.
    pub push_member_quietly: fn(&Runtime, Task),
    /// A goroutine that waits in the handler of the preemption signal, for this P: a member if it is its gang's turn, else
    /// what the function finds, else any member.
    pub member_in_handler: fn(&Runtime, PRef, Finds) -> Option<Task>,
    /// Any gang's member that waits in the handler of the preemption signal.
    pub any_member_in_handler: fn(&Runtime) -> Option<Task>,
    /// The M runs another goroutine, or none, than the one for which the hook `switch_in` was called.
    pub leave_entered: fn(MRef),
    /// The M has nothing to run.
    pub idle: fn(MRef),
    /// Whether the M still has other hooks than the current ones.
    pub has_old_hooks: fn(MRef) -> bool,
}
