//! Loans: an M that serves an event borrows the P of a goroutine that computes. The borrower gives
//! the P back when its own goroutine begins a call, or when it has nothing else to run. LOANS.md
//! has the protocol.

pub mod state;

use crate::os::time;
use crate::sched::run::{owner, preempted, requests, steal, traced};
use crate::sched::take::{back_from_call, preempt};
use crate::sched::types::attention::SLICE;
use crate::sched::types::hold::Hold;
use crate::sched::types::m::{MRef, OUTSIDE};
use crate::sched::types::p::{PRef, count};
use crate::sched::types::runtime::Runtime;
use crate::trace;
use core::ptr;
use core::sync::atomic::{Ordering, fence};

/// A loan that lasts for this time, in ns, ends: the borrower keeps the P, and the lender gets the
/// preemption signal.
const LONG: i64 = 200_000;

/// Whether the P may go on loan. Not if a thread asks it for anything but the end of the turn. Nor
/// if the turn is over and another task waits: a P that is lent again and again would never leave
/// its goroutine.
pub fn may_be_lent(rt: &Runtime, p: PRef, now: i64) -> bool {
    let had_turn = now.saturating_sub(p.stands_since()) >= rt.slice;
    p.attention.load(Ordering::Relaxed) & !SLICE == 0 && !(had_turn && steal::work_anywhere(rt))
}

/// Takes a P that [`may_be_lent`] from its M, if that M runs the user's code. The goroutine goes on
/// without a P.
pub fn lend(p: PRef, now: i64) -> bool {
    let lends = |m: &MRef| {
        m.outside.load(Ordering::Relaxed) == OUTSIDE && preempted::may_be_interrupted(*m)
    };
    let Some(m) = p.runner().filter(lends) else { return false };
    let stands_since = p.stands_since();
    if !preempt::take_on_loan(p, m) {
        return false;
    }
    // A request to end the turn is for the lender's goroutine: it comes back with the P.
    let asked = p.attention.fetch_and(!SLICE, Ordering::Relaxed) & SLICE != 0;
    p.loan.begin(m, now, asked, stands_since);
    count(&p.stats.loans, 1);
    m.was_blocked.store(false, Ordering::Relaxed);
    // The borrower's thread is to get a CPU before the lender's.
    m.ask_for_usual_turns();
    true
}

/// For an M whose goroutine begins a call: gives the P back if it is on loan and nothing else waits
/// for it. True: the M has no P, as if another thread had taken it from the call.
#[must_use]
pub fn give_back(m: MRef) -> bool {
    let p = m.p();
    let is_back = end(m);
    if is_back {
        back_from_call::begin_without_p(m, p);
    }
    is_back
}

/// [`give_back`] for an M that has nothing to run.
#[must_use]
pub fn end(m: MRef) -> bool {
    let p = m.p();
    let is_back = p.loan.is_open() && !is_needed(p) && give_to_lender(m, p);
    if is_back {
        m.p.set(ptr::null());
    }
    is_back
}

/// Gives the P to its lender; the caller then clears `m.p`. False: the M keeps the P, because the
/// loan is over or the lender has found out that it has no P.
pub fn give_to_lender(m: MRef, p: PRef) -> bool {
    let (is_asked, stands_since) = (p.loan.is_asked(), p.loan.stands_since());
    let Some(lender) = p.loan.end() else { return false };
    if lender.hold.get() != Hold::Lent(p.id) {
        return false;
    }
    if is_asked {
        requests::ask(p, SLICE);
    }
    // The borrower's scheduling decisions don't begin a new turn of the lender.
    if stands_since != i64::MAX {
        p.seen_at(stands_since);
    }
    let last = p.last_m.load(Ordering::Relaxed);
    p.last_m.store(lender.as_ptr(), Ordering::Relaxed);
    if trace::is_on() {
        // Before the lender can know, and leave the goroutine.
        traced::goes_on_with(lender, p);
    }
    p.pass_to(lender);
    if !lender.hold.end_loan(p.id) {
        p.pass_to(m);
        p.last_m.store(last, Ordering::Relaxed);
        return false;
    }
    // Pairs with the fence in `root_ended`: either `root_ended` sees that the lender runs the P, or
    // this thread sees that the lender is wanted back.
    fence(Ordering::SeqCst);
    owner::go_to_g0_if_wanted_back(lender, p);
    true
}

/// Whether a task other than the lender's goroutine waits for the P, or a thread asks for it.
pub fn is_needed(p: PRef) -> bool {
    requests::is_stopping()
        || p.attention.load(Ordering::Relaxed) != 0
        || p.serves.load(Ordering::Relaxed) != 0
        || p.has_work()
        || steal::work_but_preempted(p)
        || p.next_event() <= time::now()
}

/// For sysmon: ends a loan that lasts for `LONG`. The borrower keeps the P. The lender, which must
/// not compute on without a P, gets the signal. True: ended.
pub fn end_if_long(rt: &Runtime, p: PRef, now: i64) -> bool {
    if p.loan.began_before(now - LONG)
        && let Some(lender) = p.loan.end()
    {
        p.is_lost(now);
        preempt::stop_stray(rt, lender);
        return true;
    }
    false
}

/// Whether the M's P is on loan to an M that returns it soon, or else [`end_if_long`] ends the
/// loan. False while the world is stopped: then neither happens.
pub fn is_lending(rt: &Runtime, m: MRef) -> bool {
    match m.hold.get() {
        Hold::Lent(p) => !requests::is_stopping() && rt.p(p.into()).loan.is_open(),
        _ => false,
    }
}
