//! P's for events. An event is what a timer, a file or another thread makes ready. Where no P is idle, an event gets the
//! P of a system call or of a goroutine that computes. `PREEMPTION.md`, "Events", has the protocol.

use super::{loan, preempt};
use crate::os::{membarrier, time};
use crate::sched::run::owner::take_left_p;
use crate::sched::run::preempted::{self, WAKE_UP};
use crate::sched::run::{order, requests, start, steal};
use crate::sched::types::attention;
use crate::sched::types::m::{MRef, OUTSIDE};
use crate::sched::types::p::{PRef, PStatus};
use crate::sched::types::runtime::Runtime;
use crate::sched::types::task::Task;
use crate::sched::wait::netpoll;
use core::iter;
use core::sync::atomic::Ordering;

/// For an event, the thread that makes its goroutine ready checks this number of P's besides the event's home, for a P
/// that a system call has left or that can be preempted.
const OTHERS_LOOKED_AT: usize = 4;

/// An event waits in the inbox of `p`, and no P is idle. The event gets a P that a system call has left, or the P of a
/// goroutine that has run for `WAKE_UP`. Otherwise sysmon acts at its next look.
#[cold]
#[inline(never)]
pub fn find_p(rt: &Runtime, p: PRef) {
    let home = Some(p).filter(|p| p.take_from_call(PStatus::Idle));
    if let Some(left) = home.or_else(|| take_left_p(rt, p, OTHERS_LOOKED_AT)) {
        return start::hand_off(left);
    }
    if rt.cooperative {
        return;
    }
    let now = time::now();
    if !requests::is_stopping() && take_p(rt, p, now, Heir::IdleM).is_some() {
        return;
    }
    match p.stands_since() {
        // The goroutine there makes short calls, so it answers soon. No signal: a signal could end a call that begins
        // just now.
        i64::MAX if p.has_made_calls() => requests::ask(p, attention::SLICE),
        // It has switched since it was last looked at.
        i64::MAX => p.seen_at(now),
        since if now - since >= WAKE_UP => {
            requests::ask(p, attention::SLICE);
            rt.sysmon.wake();
        }
        since => rt.sysmon.wake_by(since + WAKE_UP),
    }
}

/// Whether events get P's of goroutines that compute.
pub fn may_take_ps(rt: &Runtime) -> bool {
    rt.preempt_signal != 0 && !rt.cooperative && membarrier::is_there()
}

/// Whether the goroutine on the P is known to have computed for [`WAKE_UP`], or has got the P again after it was
/// preempted. (The P then counts its time from a moment that is yet to come: `preempted::computes_from_now`.) Reads the
/// clock only where the goroutine is known to run without a switch or a call.
pub fn computes_for_long(p: PRef) -> bool {
    let since = p.stands_since();
    since != i64::MAX && {
        let now = time::now();
        !(now - WAKE_UP..=now).contains(&since)
    }
}

/// Which M gets a P that is taken for an event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Heir {
    /// An idle M: the P is handed off.
    IdleM,
    /// The caller, who is an M.
    Taker,
}

/// Takes a P of the node for an event of `p`: `p` itself or another P, whose goroutine is known to have run for `WAKE_UP`.
#[must_use]
pub fn take_p(rt: &Runtime, p: PRef, now: i64, heir: Heir) -> Option<PRef> {
    let stands = |q: &PRef| now.saturating_sub(q.stands_since()) >= WAKE_UP;
    p_and_others(rt, p).filter(stands).find(|&q| take_to_serve(rt, q, p, now, heir))
}

/// `p`, and the other P's of its node that are looked at for it.
pub fn p_and_others(rt: &Runtime, p: PRef) -> impl Iterator<Item = PRef> + '_ {
    let others = rt.ps_after(p, OTHERS_LOOKED_AT).filter(move |q| q.node == p.node);
    iter::once(p).chain(others)
}

/// Takes the P `q` from its M if the user's code runs there, for the events of `home`: the M that gets the P makes them
/// ready before anything else. The goroutine goes on without a P, which it lends (`core::loan`). If the P may not be lent
/// the goroutine loses it for good: the goroutine is a stray, and gets the signal if it is on a CPU, else from the
/// inspector.
///
/// A signal to the M that has the P would serve the event as well, but only when the kernel runs that M's thread. To find
/// out whether it does, a thread reads that thread's CPU clock, and Linux then ends the thread's turn if the turn is over.
#[must_use]
pub fn take_to_serve(rt: &Runtime, q: PRef, home: PRef, now: i64, heir: Heir) -> bool {
    let is_outside = |m: &MRef| m.outside.load(Ordering::Relaxed) == OUTSIDE;
    let Some(m) = q.runner().filter(|m| is_outside(m) && preempted::may_be_interrupted(*m)) else {
        return false;
    };
    let may_take = may_take_ps(rt) && (heir == Heir::Taker || preempted::keep_a_spare(rt, q));
    let on_loan = loan::may_be_lent(rt, q, now);
    let take = || match on_loan {
        true => loan::lend(q, now),
        false => preempt::take(q, m, PStatus::Idle),
    };
    if !(may_take && take()) {
        return false;
    }
    if q != home {
        q.serves.store(u32::from(home.id) + 1, Ordering::Relaxed);
    }
    if !on_loan {
        q.is_lost(now);
        // The goroutine's turn is over, and so is the request to end it. The P is this thread's until it is handed off.
        q.attention.fetch_and(!attention::SLICE, Ordering::Relaxed);
        order::events_come_first(q, now);
    }
    if heir == Heir::IdleM {
        start::hand_off(q);
    }
    if !on_loan {
        m.was_blocked.store(false, Ordering::Relaxed);
        preempt::stop_stray(rt, m);
    }
    true
}

/// On g0: makes the events ready that this P serves ([`take_to_serve`]), as a thief would. The first that
/// waited in the inbox is the caller's.
#[cold]
#[inline(never)]
pub fn take_events_to_serve(rt: &Runtime, m: MRef, p: PRef) -> Option<Task> {
    let home = rt.p(p.serves.load(Ordering::Relaxed).checked_sub(1)? as usize);
    if order::timer_is_due(home) {
        home.timers.run(time::now());
    }
    if netpoll::is_neglected(home) {
        netpoll::poll(m, home);
    }
    let task = steal::take_share(&home.inbox, p, 2);
    if home.inbox.is_empty() || task.is_none() {
        p.serves.store(0, Ordering::Relaxed);
    }
    let task = task?;
    // The new tick gives the task a time slice of its own: the goroutine before it had run for `WAKE_UP`.
    order::next_tick(p);
    Some(task)
}
