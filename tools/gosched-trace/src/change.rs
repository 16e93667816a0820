//! What an event changes: the states of goroutines and P's.

pub use crate::order::{GoState, ProcState};
use crate::reader::Event;
use crate::wire::{Kind, NONE};

/// A change of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A goroutine has come into a state; None: it has ended. `m` and `p`: where it runs or is in a system call.
    G { g: u64, to: Option<GoState>, m: u64, p: u64 },
    /// A P has come into a state.
    P { p: u64, to: ProcState },
}

/// The changes of an event, in order.
pub fn of(event: &Event) -> impl Iterator<Item = Change> + use<> {
    let Event { m, p, g, .. } = *event;
    let [a, _, c, _] = event.args;
    let go = |g: u64, to: GoState| Some(Change::G { g, to: Some(to), m, p });
    let gone = Some(Change::G { g, to: None, m, p });
    let proc = |p: u64, to: ProcState| Some(Change::P { p, to });
    let changes = match event.kind {
        Kind::ProcStatus => {
            [ProcState::from_number(event.args[1]).map(|to| Change::P { p: a, to }), None, None]
        }
        Kind::ProcStart => [proc(a, ProcState::Running), None, None],
        Kind::ProcStop => [proc(p, ProcState::Idle), None, None],
        Kind::ProcSteal => [proc(a, ProcState::Idle), None, None],
        Kind::GoStatus | Kind::GoStatusStack => {
            [GoState::from_number(c).map(|to| Change::G { g: a, to: Some(to), m, p }), None, None]
        }
        Kind::GoCreate | Kind::GoUnblock => [go(a, GoState::Runnable), None, None],
        Kind::GoCreateBlocked => [go(a, GoState::Waiting), None, None],
        Kind::GoCreateSyscall => [go(a, GoState::Syscall), None, None],
        Kind::GoStart => [go(a, GoState::Running), None, None],
        Kind::GoStop | Kind::GoSyscallEndBlocked => [go(g, GoState::Runnable), None, None],
        Kind::GoBlock => [go(g, GoState::Waiting), None, None],
        Kind::GoDestroy => [gone, None, None],
        Kind::GoDestroySyscall if p == NONE => [gone, None, None],
        Kind::GoDestroySyscall => [gone, proc(p, ProcState::Abandoned), None],
        Kind::GoSyscallBegin => [go(g, GoState::Syscall), proc(p, ProcState::Syscall), None],
        Kind::GoSyscallEnd => [go(g, GoState::Running), proc(p, ProcState::Running), None],
        Kind::GoSwitch => {
            [go(a, GoState::Runnable), go(g, GoState::Waiting), go(a, GoState::Running)]
        }
        Kind::GoSwitchDestroy => [go(a, GoState::Runnable), gone, go(a, GoState::Running)],
        _ => [None, None, None],
    };
    changes.into_iter().flatten()
}
