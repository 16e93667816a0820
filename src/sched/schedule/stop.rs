//! Stopping M's: an M without work gives its P up and sleeps until another M or an event wakes it.

use crate::os::time;
use crate::sched::run::bound::{give_own_away, is_wanted};
use crate::sched::run::owner::{acquire_p, make_idle, release_p, take_idle_p};
use crate::sched::run::post::{Post, Woken};
use crate::sched::run::requests;
use crate::sched::run::start::{leave_to_sysmon, take_gift};
use crate::sched::run::steal::work_for_thieves;
use crate::sched::take::events::{self, Heir};
use crate::sched::take::loan;
use crate::sched::types::m::MRef;
use crate::sched::types::p::{PRef, PStatus};
use crate::sched::types::runtime::{Runtime, rt};
use crate::sched::wait::{netpoll, timers};
use core::sync::atomic::{Ordering, fence};

/// Gives up the P of an M that has nothing to do, and sleeps, unless work has come meanwhile.
pub fn go_idle(rt: &Runtime, m: MRef) {
    let attended = Some(m.p()).filter(|&p| netpoll::attend(p));
    m.set_between(true);
    let p = release_p(m);
    make_idle(rt, p);
    if m.spinning.replace(false) {
        rt.idle.spin_ended();
    }
    // Work that came before the counters changed has woken no M.
    let due = timers::next_of_idle_ps();
    if (work_for_thieves(rt, p.node as usize) || due <= time::now())
        && let Some(new) = take_idle_p(rt, Some(p), m.node.get())
    {
        acquire_p(m, new);
        m.spinning.set(true);
        rt.idle.spin_begins();
        if let Some(post) = attended.map(Post::P) {
            post.leave();
            post.pass_on(rt);
        }
        return;
    }
    stop(m, attended);
}

/// Gives back the P that an idle M has on loan, and sleeps. Meanwhile the M watches the P's files,
/// because the lender's goroutine computes and polls none. Returns false if the M keeps the P.
pub fn end_loan(m: MRef) -> bool {
    let attended = Some(m.p()).filter(|&p| netpoll::attend(p));
    m.set_between(true);
    if !loan::end(m) {
        attended.into_iter().for_each(netpoll::stop_attending);
        m.set_between(false);
        return false;
    }
    m.ask_for_short_turns();
    stop(m, attended);
    true
}

/// Sleeps until another M gives this M, which has no P, a P, or until a timer or a file of an idle
/// P is ready. `attended`: the P that the M attends to. Go's `stopm`.
pub fn stop(m: MRef, mut attended: Option<PRef>) {
    let rt = rt();
    let node = &rt.nodes[m.node.get()];
    loop {
        m.set_between(true);
        let post = attended.take().map_or_else(|| Post::find(rt, m), Post::P);
        node.add_idle_m(m, post.is_needed());
        // Pairs with the fences of threads that look for an idle M after they have published
        // something for it.
        fence(Ordering::SeqCst);
        if is_wanted(m) && node.leave_idle_ms(m) {
            post.leave();
            if answer_call(m) {
                post.pass_on(rt);
                return;
            }
            continue;
        }
        // Work may wait for any M. If another M takes the work meanwhile, or no P is idle, sysmon
        // asks again.
        if rt.ms_wanted.load(Ordering::Relaxed)
            && let Some(p) = take_idle_p(rt, None, m.node.get())
        {
            if node.leave_idle_ms(m) {
                acquire_p(m, p);
                post.leave();
                post.pass_on(rt);
                return;
            }
            // While this M had the P, sysmon may have found none for the work, and adders of work
            // may have seen no idle P.
            leave_to_sysmon(rt, p);
        }
        let deadline = rt.watch(m);
        let mut woken = post.sleep(rt, m, deadline);
        rt.unwatch(m);
        if woken.notified || !node.leave_idle_ms(m) {
            return answer_notification(rt, m, woken, &post);
        }
        // A file or a timer is ready. This M takes the P of the file or timer, if it is still idle,
        // or a P whose goroutine computes.
        let taken = woken.take_p(rt).or_else(|| woken.take_computing_p(rt));
        if let Some(p) = taken.or_else(|| take_p_with_event(rt)) {
            acquire_p(m, p);
            woken.deliver(m);
            post.leave();
            post.pass_on(rt);
            return;
        }
        woken.deliver_to_inbox();
        match post {
            Post::P(p) if p.status() == PStatus::Idle => attended = Some(p),
            // The P's goroutine computes, so no other M polls its files.
            Post::P(p) if events::computes_for_long(p) => {
                m.ask_for_short_turns();
                attended = Some(p);
            }
            _ => post.leave(),
        }
    }
}

/// Takes the P and the task that come with a notification. Another thread has taken this M out of
/// the pool, and has notified it or is about to.
fn answer_notification(rt: &Runtime, m: MRef, woken: Woken, post: &Post) {
    if !woken.notified {
        m.sleep(-1);
    }
    take_gift(m);
    // The events stay out of the queues of this M's P: a goroutine that was preempted may get the P
    // first, and compute for long.
    woken.leave_events(rt);
    post.leave();
    if !m.p.get().is_null() || m.must_leave() {
        post.pass_on(rt);
    }
}

/// Takes an idle P with a timer that is due, or a P whose goroutine computes while an event waits.
#[must_use]
fn take_p_with_event(rt: &Runtime) -> Option<PRef> {
    let now = time::now();
    let idle = rt.ps().find(|&p| p.timers.next() <= now && rt.take_idle_p(p));
    if idle.is_some() || requests::is_stopping() {
        return idle;
    }
    let take = |p| events::take_p(rt, p, now, Heir::Taker);
    rt.ps().filter(|p| p.next_event() <= now).find_map(take)
}

/// Finds a P for an M that was wanted before it slept, and has left its pool. Returns true if the M
/// has a P, or is to leave.
fn answer_call(m: MRef) -> bool {
    let rt = rt();
    if m.must_leave() {
        return true;
    }
    if let Some(p) = take_idle_p(rt, None, m.node.get()) {
        acquire_p(m, p);
        return true;
    }
    give_own_away(m);
    false
}
