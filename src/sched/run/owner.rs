//! How a P changes its owner.

use super::{requests, traced};
use crate::sched::types::attention::TO_G0;
use crate::sched::types::m::MRef;
use crate::sched::types::p::{P, PRef, PStatus};
use crate::sched::types::runtime::{Runtime, rt};
use crate::sched::wait::netpoll;
use core::ptr;
use core::sync::atomic::{Ordering, fence};

/// Puts a P into its node's set of idle P's. Afterwards the caller looks for work once more, or
/// knows that another M will.
pub fn make_idle(rt: &Runtime, p: PRef) {
    debug_assert_eq!(p.status(), PStatus::Idle);
    // A gang's member may have left the P without a decision here: it is locked to its thread, or
    // in a call.
    (rt.points.member_left)(p);
    // Counted before the P is in the set: the thread that takes the P out of the set counts it out.
    rt.idle.p_idle();
    p.of_node().add_idle_p(p);
    // Pairs with the fences in `Idle::work_added` and `ready::push_to_node`: either the adder of
    // work finds the P in the set, or the caller finds the work. Also pairs with the fences in
    // `netpoll::wait_begins`, `netpoll::stop_attending` and `world::stop`.
    fence(Ordering::SeqCst);
    netpoll::runner_left(p);
    if requests::is_stopping() {
        requests::arrived();
    }
}

/// Takes the P from its M; the caller alone owns the P then.
pub fn release_p(m: MRef) -> PRef {
    let p = m.p();
    if m.is_traced() {
        traced::gives_up_p(m);
    }
    m.p.set(ptr::null());
    p.become_idle();
    p
}

/// Gives the M a P that the caller owns. seed: N3
pub fn acquire_p(m: MRef, p: PRef) {
    debug_assert!(m.p.get().is_null());
    p.last_m.store(m.as_ptr(), Ordering::Relaxed);
    p.become_running(m);
    m.p.set(p.as_ptr().cast_const().cast::<P>());
    traced::follow(m, p);
    m.set_between(false);
    m.node.set(p.node as usize);
    m.bind_to(p.node as usize);
    rt().sysmon.wake_if_long_asleep();
    if m.is_runner() {
        // The P's new owner was a plain store: see `M::is_wanted_back`.
        fence(Ordering::SeqCst);
    }
    go_to_g0_if_wanted_back(m, p);
}

/// Sends the M, which has taken `p`, to g0 if the thread's owner wants the thread back.
#[inline(always)]
pub fn go_to_g0_if_wanted_back(m: MRef, p: PRef) {
    if m.is_wanted_back() {
        requests::ask(p, TO_G0);
    }
}

/// Takes a P that an M has left for a system call, among the `most` P's that follow `after`. The
/// caller owns the P then.
#[must_use]
pub fn take_left_p(rt: &Runtime, after: PRef, most: usize) -> Option<PRef> {
    rt.ps_after(after, most).find(|p| p.take_from_call(PStatus::Idle))
}

/// Takes an idle P out of its set: `near` if that is idle, else a P of the node, else the nearest.
#[must_use]
pub fn take_idle_p(rt: &Runtime, near: Option<PRef>, node: usize) -> Option<PRef> {
    near.filter(|&p| rt.take_idle_p(p))
        .or_else(|| rt.nodes_from(node).find_map(|n| rt.take_idle_p_of(n)))
}
