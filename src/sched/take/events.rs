//! P's for events. An event is a goroutine that a timer, a file or another thread makes ready. If
//! no P is idle, the event gets the P of a system call or of a goroutine that computes.
//! `PREEMPTION.md`, "Events", has the protocol.

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

/// How many P's besides its home a waker checks for an event: for a P that a system call has left,
/// or that can be preempted.
const OTHERS_LOOKED_AT: usize = 4;

/// Finds a P for an event in the inbox of `p`, when no P is idle: a P that a system call has left,
/// or the P of a goroutine that has run for `WAKE_UP`. If there is none, sysmon acts at its next
/// look.
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
        // The goroutine on `p` makes short calls, so it answers soon. No signal: it could end a
        // call that begins just now.
        i64::MAX if p.has_made_calls() => requests::ask(p, attention::SLICE),
        // `p` has changed its goroutine since the last look.
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

/// Whether the goroutine on the P is known to have computed for [`WAKE_UP`], or has a preempted
/// goroutine's credit: then `stands_since` is a time to come (`preempted::computes_from_now`).
/// Reads the clock only if `stands_since` is known.
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
    /// The calling M.
    Taker,
}

/// Takes `p` or another P of its node for an event of `p`, from a goroutine that is known to have
/// run for `WAKE_UP`.
#[must_use]
pub fn take_p(rt: &Runtime, p: PRef, now: i64, heir: Heir) -> Option<PRef> {
    let stands = |q: &PRef| now.saturating_sub(q.stands_since()) >= WAKE_UP;
    p_and_others(rt, p).filter(stands).find(|&q| take_to_serve(rt, q, p, now, heir))
}

/// `p`, and up to `OTHERS_LOOKED_AT` other P's of its node.
pub fn p_and_others(rt: &Runtime, p: PRef) -> impl Iterator<Item = PRef> + '_ {
    let others = rt.ps_after(p, OTHERS_LOOKED_AT).filter(move |q| q.node == p.node);
    iter::once(p).chain(others)
}

/// Takes the P `q` from an M outside, for the events of `home`: the M that gets `q` makes them
/// ready before anything else. The goroutine on `q` goes on without a P, and lends it ([`loan`]).
/// If `q` may not be lent, the goroutine loses it for good: it is a stray, and gets the signal,
/// from the inspector if it is on no CPU.
///
/// Why not a signal to the M that runs `q`: the event would wait until the kernel runs that thread.
/// To find out whether it does, this thread would read that thread's CPU clock, and Linux then ends
/// that thread's turn if the turn is over.
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
        // The goroutine's turn is over, and so is the request to end it. The P is this thread's
        // until it is handed off.
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

/// On g0: makes the events ready that `p` serves ([`take_to_serve`]), as a thief would. Returns the
/// oldest task from the home's inbox.
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
    // The new tick gives the task a time slice of its own: the goroutine before it has run for
    // `WAKE_UP`.
    order::next_tick(p);
    Some(task)
}
