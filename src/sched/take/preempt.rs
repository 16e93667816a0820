//! Preemption: taking the P from a goroutine that doesn't call the library, because it blocks its
//! thread without announcing that, or because it computes without end. `PREEMPTION.md` has the
//! protocols. seed: R2, B8
//!
//! Only the P moves. The goroutine stays on its thread, which resumes only when the goroutine has a
//! P again.

use super::{handler, loan};
use crate::os::thread::{self, State};
use crate::os::{membarrier, signal};
use crate::sched::run::{order, preempted, requests};
use crate::sched::types::g::{GRef, flags};
use crate::sched::types::hold::Hold;
use crate::sched::types::m::{self, M, MRef, OUTSIDE};
use crate::sched::types::p::{PRef, PStatus};
use crate::sched::types::runtime::{Runtime, rt};
use core::ptr;
use core::sync::atomic::Ordering;

/// Takes the P from `m` if `m` runs it and is outside. `to`: the P's new status. False: `m` is
/// inside or runs another P, its goroutine must not be preempted, or another thread is taking a P.
pub fn take(p: PRef, m: MRef, to: PStatus) -> bool {
    take_as(p, m, to, Hold::Taken)
}

/// [`take`] for a borrower, which gives the P back soon ([`loan`]).
pub fn take_on_loan(p: PRef, m: MRef) -> bool {
    take_as(p, m, PStatus::Idle, Hold::Lent(p.id))
}

/// [`take`] that sets the M's `hold` to `taken`.
fn take_as(p: PRef, m: MRef, to: PStatus, taken: Hold) -> bool {
    // `try_lock`: a signal handler of the host's may have interrupted the holder of the lock on
    // this thread, and waiting would never end.
    let taking = &rt().taking;
    taking.try_lock() && {
        let taken = take_locked(p, m, to, taken);
        // SAFETY: `try_lock` has locked `taking`.
        unsafe { taking.unlock() };
        taken
    }
}

/// [`take_as`] with the lock held.
fn take_locked(p: PRef, m: MRef, to: PStatus, taken: Hold) -> bool {
    if !m.hold.ask() {
        return false;
    }
    // Either the M sees `Asked` at its next entry, or this thread sees the M inside. If the system
    // refuses the barrier, neither is certain, so the M keeps its P.
    let is_certain = membarrier::all_threads();
    // Acquire: pairs with the Release where the M goes outside. `is_run_by`: an M in an announced
    // call is outside, and has no P to lose. `m.p`: a late borrower may have named the M in
    // `P::owner` although the M has another P by now.
    let holds = is_certain
        && m.outside.load(Ordering::Acquire) == OUTSIDE
        && p.is_run_by(m)
        && ptr::eq(m.p.seen(), p.as_ptr())
        && preempted::runs_preemptible(m);
    let settled = m.hold.settle(if holds { taken } else { Hold::Held });
    if !(holds && settled) {
        return false;
    }
    // This thread owns the P: the M reads `hold` before it touches the P again.
    p.leave_m(to);
    if m.is_member() {
        requests::ask_member_without_p();
    }
    true
}

/// The activity of the goroutine on a P.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// The goroutine is in the library or just leaving it, or no M runs the P.
    Library,
    Computes,
    /// The P's M, whose thread is blocked in the kernel.
    Blocked(MRef),
    /// The inspector has not answered yet.
    Unknown,
}

/// Asks the kernel what the goroutine on the P does. Takes some us, more if the thread is on no
/// CPU.
pub fn doing(rt: &Runtime, p: PRef) -> Doing {
    let Some(m) = p.runner().filter(|m| m.outside.load(Ordering::Relaxed) == OUTSIDE) else {
        return Doing::Library;
    };
    let id = m.tid.load(Ordering::Relaxed);
    if thread::is_on_cpu(id) {
        return Doing::Computes;
    }
    // The thread is blocked or waits for a CPU: its CPU clock stands still in both cases.
    match rt.inspector.state(rt, m) {
        Some(State::InCall | State::InFault) => Doing::Blocked(m),
        Some(State::Runs) => Doing::Computes,
        None => Doing::Unknown,
    }
}

/// [`take`] where the system allows it: `m` may be blocked in the user's code, as in most cases, or
/// compute. An M that is to get the P (`Idle`) must be idle already.
pub fn take_outside(rt: &Runtime, p: PRef, m: MRef, to: PStatus) -> bool {
    if rt.cooperative || !membarrier::is_there() {
        return false;
    }
    if to == PStatus::Idle && !preempted::keep_a_spare(rt, p) {
        return false;
    }
    take(p, m, to)
}

/// Takes the P from a member of a worker group whose goroutine computes and must not get the
/// signal. The goroutine computes on without a P: at most one thread for each member of a group.
pub fn take_from_member(rt: &Runtime, p: PRef) -> bool {
    let Some(m) = p.runner().filter(|m| m.is_member()) else {
        return false;
    };
    // SAFETY: null or a descriptor, which stays mapped.
    let g = unsafe { GRef::from_nullable(m.curg.seen()) };
    let is_spared = g.is_some_and(|g| g.flags.seen() & flags::NOSIGNAL != 0);
    is_spared && take_outside(rt, p, m, PStatus::Idle)
}

/// Sends the signal to the thread that runs the P, after a request to the P: in the handler the
/// thread gives the P away.
pub fn interrupt(rt: &Runtime, p: PRef) -> Sent {
    let Some(m) =
        p.runner().filter(|&m| rt.preempt_signal != 0 && preempted::may_be_interrupted(m))
    else {
        return Sent::Never;
    };
    if m.outside.load(Ordering::Relaxed) != OUTSIDE {
        // The library runs on that thread, and sees the request.
        return Sent::Yes;
    }
    if !goroutine_may_wait(rt, p) {
        return Sent::NotYet;
    }
    thread::send_signal(m.tid.load(Ordering::Relaxed), rt.preempt_signal);
    Sent::Yes
}

/// Whether the goroutine on the P may be made to wait in the handler.
fn goroutine_may_wait(rt: &Runtime, p: PRef) -> bool {
    rt.template.is_ready(rt) && (requests::is_stopping() || preempted::keep_a_spare(rt, p))
}

/// A signal that a thread sends to itself after a call that must return on the same thread. The
/// goroutine can't give way in such a call, so it gives way in the signal's handler.
#[must_use]
pub struct SignalToSelf(Option<(i32, i32)>);

impl SignalToSelf {
    /// For a caller inside: a signal if the caller's P has a request. Other threads' signals don't
    /// help: a goroutine that only makes such calls is inside when they arrive, and the handler
    /// ignores them.
    pub fn if_asked() -> SignalToSelf {
        SignalToSelf(if requests::any_p_is_asked() { SignalToSelf::to_answer() } else { None })
    }

    #[cold]
    fn to_answer() -> Option<(i32, i32)> {
        // First: without a P the caller doesn't keep the runtime, which another thread may have ended.
        let m = m::with_p()?;
        let rt = rt();
        let wanted =
            rt.preempt_signal != 0 && order::is_asked(m.p()) && preempted::may_be_interrupted(m);
        (wanted && goroutine_may_wait(rt, m.p()))
            .then(|| (m.tid.load(Ordering::Relaxed), rt.preempt_signal))
    }

    /// Sends the signal, if the P has a request. The caller has gone outside.
    #[inline(always)]
    pub fn send(self) {
        if let Some((thread, signal)) = self.0 {
            thread::send_signal(thread, signal);
        }
    }
}

/// The outcome of [`interrupt`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Sent, or not needed: the thread is in the library, and sees the request itself.
    Yes,
    /// Not sent yet: the template thread or an idle M must be there first.
    NotYet,
    /// Not sent: no M runs the P, or its goroutine must not be preempted.
    Never,
}

/// Registers for `membarrier`, and installs the handler of the preemption signal.
pub fn set_up(rt: &Runtime) {
    membarrier::set_up();
    if rt.preempt_signal != 0 {
        signal::on_preempt(rt.preempt_signal, handler::on_signal);
    }
}

/// Unblocks the preemption signal on the calling thread; returns the former mask. `None`: the
/// runtime uses no signal.
pub fn allow() -> Option<thread::SignalMask> {
    let signal = rt().preempt_signal;
    (signal != 0).then(|| thread::unblock(signal))
}

/// Whether the thread of an M without a P has run since it was last known to be blocked. If not,
/// the thread is still blocked, or is awake and has had no CPU yet.
pub fn has_run(m: &MRef) -> bool {
    // Acquire: pairs with the Release in `M::was_seen`.
    thread::cpu_time(m.tid.load(Ordering::Relaxed)) != Some(m.ran.load(Ordering::Acquire))
}

/// The M's outside that have lost their P and that the signal may stop: blocked threads and strays.
/// M's that lend their P are left out.
pub fn strays(rt: &Runtime) -> Vec<MRef> {
    if rt.preempt_signal == 0 {
        return Vec::new();
    }
    rt.ms_that(|m| m.hold.get().is_lost() && m.outside.load(Ordering::Relaxed) == OUTSIDE)
        .into_iter()
        .filter(|&m| preempted::may_be_interrupted(m) && !loan::is_lending(rt, m))
        .collect()
}

/// Sends the signal to the M's thread if it runs the user's code without a P. If the thread is on
/// no CPU it may be blocked, so the inspector looks first.
pub fn stop_stray(rt: &Runtime, m: MRef) {
    if thread::is_on_cpu(m.tid.load(Ordering::Relaxed)) {
        interrupt_stray(rt, m);
    } else {
        rt.inspector.stop_stray(rt, m);
    }
}

/// [`stop_stray`] for a thread that is known not to be blocked in a call.
pub fn interrupt_stray(rt: &Runtime, m: MRef) {
    let is_stray = rt.preempt_signal != 0
        && m.hold.get().is_lost()
        && m.outside.load(Ordering::Relaxed) == OUTSIDE
        && preempted::may_be_interrupted(m)
        && rt.template.is_ready(rt);
    if is_stray {
        thread::send_signal(m.tid.load(Ordering::Relaxed), rt.preempt_signal);
    }
}

/// For the stopper of the world: sends the signal to threads that run the user's code without a P,
/// or are in a page fault there, unless their goroutines must not get it. True: such a thread runs
/// or may run soon, so the stopper looks again.
pub fn stop_strays(rt: &Runtime) -> bool {
    let mut any = false;
    // Acquire: pairs with the Release in `handler::leave_context`.
    let is_let_go = |m: &M| m.is_let_go.load(Ordering::Acquire);
    for m in rt.ms_that(|m| is_let_go(m) || m.hold.get().is_lost()) {
        if is_let_go(&m) {
            // A thread that forks has let the goroutine go, and its thread may not have run yet.
            any = true;
            continue;
        }
        // `outside` is read once: two reads would miss an M that goes in or out between them.
        if m.outside.load(Ordering::Relaxed) != OUTSIDE {
            // The goroutine may go on without a P: it returns from a function that needs none, or
            // `back_from_call::go_on` hasn't seen the stop. It doesn't go on if it waits in the
            // handler or until the world goes on.
            any |= m.context.seen().is_null() && !m.waits_inside.load(Ordering::Relaxed);
            continue;
        }
        match state_of_stray(rt, m) {
            Some(State::Runs) => {
                interrupt_stray(rt, m);
                any = true;
            }
            Some(State::InFault) => {
                // The goroutine may be using what the stopper is about to move, so it must not go
                // on when its page comes. If the thread has not run since it was seen in the fault,
                // the signal comes before its next instruction.
                interrupt_stray(rt, m);
                let may_be_stopped = rt.preempt_signal != 0 && preempted::may_be_interrupted(m);
                any |= may_be_stopped && (has_run(&m) || !rt.template.is_ready(rt));
            }
            Some(State::InCall) => {}
            None => {
                // The next look asks the inspector about this M again, so a late answer counts.
                any = true;
                break;
            }
        }
    }
    any
}

/// The state of the thread of an M that is outside without a P. `None`: ask again soon.
fn state_of_stray(rt: &Runtime, m: MRef) -> Option<State> {
    // A thread that is awake and has had no CPU yet counts as blocked. A goroutine that announces
    // its calls (`GoesOn`) is hardly ever blocked here.
    if m.hold.get() != Hold::GoesOn && !has_run(&m) {
        let in_fault = m.in_fault.load(Ordering::Relaxed);
        return Some(if in_fault { State::InFault } else { State::InCall });
    }
    match thread::is_on_cpu(m.tid.load(Ordering::Relaxed)) {
        true => Some(State::Runs),
        false => rt.inspector.state(rt, m),
    }
}
