//! Preemption: taking the P from a goroutine that doesn't call the library, because it blocks its thread without
//! announcing that, or because it computes without end. `PREEMPTION.md` has the protocols. seed: R2, B8
//!
//! Only the P moves. The goroutine stays on its thread, which resumes only when the goroutine has a P again.

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

/// Takes the P from the M that runs it, if that M is outside. `to`: the P's new status. False: the M is inside, or
/// doesn't run the P, or its goroutine must not be preempted, or another thread takes a P just now.
pub fn take(p: PRef, m: MRef, to: PStatus) -> bool {
    take_as(p, m, to, Hold::Taken)
}

/// [`take`] for an M that gives the P back soon (`core::loan`).
pub fn take_on_loan(p: PRef, m: MRef) -> bool {
    take_as(p, m, PStatus::Idle, Hold::Lent(p.id))
}

/// `taken`: the M's word from then on.
fn take_as(p: PRef, m: MRef, to: PStatus, taken: Hold) -> bool {
    // `try_lock`: this thread may be in a signal handler of the host's that has interrupted the holder of the lock, so
    // waiting could never end.
    let taking = &rt().taking;
    taking.try_lock() && {
        let taken = take_locked(p, m, to, taken);
        // SAFETY: `try_lock` has locked it.
        unsafe { taking.unlock() };
        taken
    }
}

/// [`take_as`] with the lock held.
fn take_locked(p: PRef, m: MRef, to: PStatus, taken: Hold) -> bool {
    if !m.hold.ask() {
        return false;
    }
    // Either the M sees `Asked` at its next entry, or this thread sees that the M is inside. If the system refuses the
    // barrier neither is certain, so the M keeps its P.
    let is_certain = membarrier::all_threads();
    // Acquire: pairs with the Release where the M goes outside.
    // An M that is outside in an announced system call runs no P, whichever M has its old P: then the M has no P to lose.
    // Nor does it run this P if a borrower is about to give it this P, but it has got another P meanwhile.
    let holds = is_certain
        && m.outside.load(Ordering::Acquire) == OUTSIDE
        && p.is_run_by(m)
        && ptr::eq(m.p.seen(), p.as_ptr())
        && preempted::runs_preemptible(m);
    let settled = m.hold.settle(if holds { taken } else { Hold::Held });
    if !(holds && settled) {
        return false;
    }
    // The P is this thread's: the M reads its word before it touches the P again.
    p.leave_m(to);
    if m.is_member() {
        requests::ask_member_without_p();
    }
    true
}

/// What a goroutine that holds a P does there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It is in the library, or just leaving it, or no M runs the P.
    Library,
    Computes,
    /// The thread of this M is blocked in the kernel.
    Blocked(MRef),
    /// The inspector has not answered yet.
    Unknown,
}

/// What the goroutine on this P does. Asks the kernel, which takes some microseconds, more if the
/// thread is on no CPU just now.
pub fn doing(rt: &Runtime, p: PRef) -> Doing {
    let Some(m) = p.runner().filter(|m| m.outside.load(Ordering::Relaxed) == OUTSIDE) else {
        return Doing::Library;
    };
    let id = m.tid.load(Ordering::Relaxed);
    if thread::is_on_cpu(id) {
        return Doing::Computes;
    }
    // The thread is blocked, or waits for a CPU; its clock doesn't tell these apart.
    match rt.inspector.state(rt, m) {
        Some(State::InCall | State::InFault) => Doing::Blocked(m),
        Some(State::Runs) => Doing::Computes,
        None => Doing::Unknown,
    }
}

/// Takes the P from this M if the M is outside, whether the user's code is blocked there, as in most cases, or
/// computes. `to`: the P's new status.
pub fn take_outside(rt: &Runtime, p: PRef, m: MRef, to: PStatus) -> bool {
    if rt.cooperative || !membarrier::is_there() {
        return false;
    }
    if to == PStatus::Idle && !preempted::keep_a_spare(rt, p) {
        return false;
    }
    take(p, m, to)
}

/// Takes the P from a member of a worker group whose goroutine computes and must not get the signal. The goroutine goes
/// on without a P, so no more threads do that than groups have members.
pub fn take_from_member(rt: &Runtime, p: PRef) -> bool {
    let Some(m) = p.runner().filter(|m| m.is_member()) else {
        return false;
    };
    // SAFETY: null or a descriptor, which stays mapped.
    let g = unsafe { GRef::from_nullable(m.curg.seen()) };
    let is_spared = g.is_some_and(|g| g.flags.seen() & flags::NOSIGNAL != 0);
    is_spared && take_outside(rt, p, m, PStatus::Idle)
}

/// Sends the signal to the thread that runs the P, which has been asked for
/// something: in the handler that thread gives the P away.
pub fn interrupt(rt: &Runtime, p: PRef) -> Sent {
    let Some(m) =
        p.runner().filter(|&m| rt.preempt_signal != 0 && preempted::may_be_interrupted(m))
    else {
        return Sent::Never;
    };
    if m.outside.load(Ordering::Relaxed) != OUTSIDE {
        // The library runs there, and sees the request.
        return Sent::Yes;
    }
    if !goroutine_may_wait(rt, p) {
        return Sent::NotYet;
    }
    thread::send_signal(m.tid.load(Ordering::Relaxed), rt.preempt_signal);
    Sent::Yes
}

/// Whether the goroutine that runs on the P may be made to wait in the handler.
fn goroutine_may_wait(rt: &Runtime, p: PRef) -> bool {
    rt.template.is_ready(rt) && (requests::is_stopping() || preempted::keep_a_spare(rt, p))
}

/// A request that the library has seen within a call that must return on the caller's thread. So the caller doesn't give
/// way in the call, but in the handler of a signal that its thread sends to itself afterwards.
#[must_use]
pub struct SignalToSelf(Option<(i32, i32)>);

impl SignalToSelf {
    /// For a caller that is inside. The signal is needed if the caller's P has been asked for something. Without it a
    /// goroutine that does nothing but make such calls would keep its P: the library ignores other threads' signals.
    pub fn if_asked() -> SignalToSelf {
        SignalToSelf(if requests::any_p_is_asked() { SignalToSelf::to_answer() } else { None })
    }

    #[cold]
    fn to_answer() -> Option<(i32, i32)> {
        let (rt, m) = (rt(), m::with_p()?);
        let wanted =
            rt.preempt_signal != 0 && order::is_asked(m.p()) && preempted::may_be_interrupted(m);
        (wanted && goroutine_may_wait(rt, m.p()))
            .then(|| (m.tid.load(Ordering::Relaxed), rt.preempt_signal))
    }

    /// For a caller that has gone outside.
    #[inline(always)]
    pub fn send(self) {
        if let Some((thread, signal)) = self.0 {
            thread::send_signal(thread, signal);
        }
    }
}

/// What has become of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The signal was sent, or is not needed: the thread is in the library, and sees the request itself.
    Yes,
    /// An idle M must be there first.
    NotYet,
    /// No M runs the P, or its goroutine is not to be preempted.
    Never,
}

/// Prepares the process for the signal of this runtime.
pub fn set_up(rt: &Runtime) {
    membarrier::set_up();
    if rt.preempt_signal != 0 {
        signal::on_preempt(rt.preempt_signal, handler::on_signal);
    }
}

/// Lets the signal reach the calling thread; returns the former mask, unless there
/// is no signal.
pub fn allow() -> Option<thread::SignalMask> {
    let signal = rt().preempt_signal;
    (signal != 0).then(|| thread::unblock(signal))
}

/// Whether the thread of an M that has lost its P has run since it was last known to be blocked. Otherwise it is still
/// blocked, or has been woken and has had no CPU yet.
pub fn has_run(m: &MRef) -> bool {
    // Acquire: pairs with the Release in `M::was_seen`.
    thread::cpu_time(m.tid.load(Ordering::Relaxed)) != Some(m.ran.load(Ordering::Acquire))
}

/// The M's whose goroutines have lost their P and may be stopped by the signal: blocked threads, and strays. Not the M's
/// that lend their P.
pub fn strays(rt: &Runtime) -> Vec<MRef> {
    if rt.preempt_signal == 0 {
        return Vec::new();
    }
    // Acquire: pairs with the Release where the M goes outside.
    rt.ms_that(|m| m.hold.get().is_lost() && m.outside.load(Ordering::Relaxed) == OUTSIDE)
        .into_iter()
        .filter(|&m| preempted::may_be_interrupted(m) && !loan::is_lending(rt, m))
        .collect()
}

/// Sends the signal to this M's thread if the thread runs the user's code without a P; through the inspector if the thread
/// is on no CPU, and so may be blocked.
pub fn stop_stray(rt: &Runtime, m: MRef) {
    if thread::is_on_cpu(m.tid.load(Ordering::Relaxed)) {
        interrupt_stray(rt, m);
    } else {
        rt.inspector.stop_stray(rt, m);
    }
}

/// Sends the signal to this M's thread, which is not blocked, if the thread runs the user's code without a P.
pub fn interrupt_stray(rt: &Runtime, m: MRef) {
    // Acquire: pairs with the Release where the M goes outside.
    let is_stray = rt.preempt_signal != 0
        && m.hold.get().is_lost()
        && m.outside.load(Ordering::Relaxed) == OUTSIDE
        && preempted::may_be_interrupted(m)
        && rt.template.is_ready(rt);
    if is_stray {
        thread::send_signal(m.tid.load(Ordering::Relaxed), rt.preempt_signal);
    }
}

/// For the stopper of the world: whether a thread without a P runs the user's code, or may be about to. Such a thread gets
/// the signal, unless its goroutine must not be stopped by a signal; so does a thread in a page fault.
pub fn stop_strays(rt: &Runtime) -> bool {
    let mut any = false;
    // Acquire: pairs with the Release where the M goes outside, and with that in `handler::leave_context`.
    let is_let_go = |m: &M| m.is_let_go.load(Ordering::Acquire);
    for m in rt.ms_that(|m| is_let_go(m) || m.hold.get().is_lost()) {
        if is_let_go(&m) {
            // A thread that forks has let it go, perhaps before its thread has run.
            any = true;
            continue;
        }
        // Looked at once, so an M that comes in or goes out meanwhile is not missed.
        if m.outside.load(Ordering::Relaxed) != OUTSIDE {
            // Unless the M's goroutine waits in the handler, or for the world to go on, it may go on without a P: a function
            // of the library that needs none returns, or `back_from_call::go_on` hasn't seen that the world is being stopped.
            any |= m.context.seen().is_null() && !m.waits_inside.load(Ordering::Relaxed);
            continue;
        }
        match state_of_stray(rt, m) {
            Some(State::Runs) => {
                interrupt_stray(rt, m);
                any = true;
            }
            Some(State::InFault) => {
                // The goroutine may be in the middle of what the stopper is about to move, so it must not go on when its
                // page is there. If it has not run since it was seen in the fault, the signal comes before it runs.
                interrupt_stray(rt, m);
                let may_be_stopped = rt.preempt_signal != 0 && preempted::may_be_interrupted(m);
                any |= may_be_stopped && (has_run(&m) || !rt.template.is_ready(rt));
            }
            Some(State::InCall) => {}
            None => {
                // The next question is the same, so an answer that comes late counts.
                any = true;
                break;
            }
        }
    }
    any
}

/// What the thread of an M does that has lost its P and is outside. `None`: ask again soon.
fn state_of_stray(rt: &Runtime, m: MRef) -> Option<State> {
    // A thread that was woken and has had no CPU yet looks as if it were blocked. A goroutine that announces its calls is
    // hardly ever blocked here.
    if m.hold.get() != Hold::GoesOn && !has_run(&m) {
        let in_fault = m.in_fault.load(Ordering::Relaxed);
        return Some(if in_fault { State::InFault } else { State::InCall });
    }
    match thread::is_on_cpu(m.tid.load(Ordering::Relaxed)) {
        true => Some(State::Runs),
        false => rt.inspector.state(rt, m),
    }
}
