//! Which M may run a goroutine, and how a goroutine gets to the M that it is bound to.

use super::owner::{acquire_p, release_p, take_idle_p};
use super::start::{give, new_m, take_gift, wait_for_gift};
use super::{group, preempted, ready};
use crate::os::forking::is_forking;
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::m::{self, MRef};
use crate::sched::types::node::priority;
use crate::sched::types::p::count;
use crate::sched::types::runtime::rt;
use crate::sched::types::task::{Task, TaskKind};
use core::sync::atomic::{Ordering, fence};

/// Binds the goroutine to this M until the goroutine has run: see [`flags::HELD`].
pub fn hold(m: MRef, g: GRef) {
    g.set_status(Status::Runnable);
    if !g.has(flags::BOUND) {
        g.bound_m.set(m.as_ptr());
        g.set_flag(flags::BOUND | flags::HELD, true);
        m::count_pinned(m, 1);
    }
}

/// Undoes a [`hold`].
pub fn release_held(m: MRef, g: GRef) {
    g.set_flag(flags::BOUND | flags::HELD, false);
    m::count_pinned(m, -1);
}

/// Whether this M may run the goroutine. If so, clears the flags by which the goroutine avoids M's:
/// they count for one choice.
pub fn may_run(m: MRef, g: GRef) -> bool {
    let bound_elsewhere = g.has(flags::BOUND) && g.bound_m.get() != m.as_ptr().cast_const();
    let fits = !bound_elsewhere && !group::is_elsewhere(m, g) && !avoids(g, m);
    if fits {
        g.set_flag(flags::AVOID_RUNNER | flags::AVOID_PINNED, false);
    }
    fits
}

/// Whether the task is for this M and no other: a goroutine that is bound to it, or begins in its
/// group.
pub fn is_own(m: MRef, task: &Task) -> bool {
    let TaskKind::Goroutine(g) = task.kind() else { return false };
    let is_bound = g.has(flags::BOUND) && g.bound_m.get() == m.as_ptr().cast_const();
    is_bound || (g.has(flags::GROUP) && group::may_begin(m, g))
}

/// Whether the goroutine has asked not to run on an M like this next: see `flags::AVOID_RUNNER`,
/// `flags::AVOID_PINNED`.
pub fn avoids(g: GRef, m: MRef) -> bool {
    (g.has(flags::AVOID_RUNNER) && is_borrowed(g, m))
        || (g.has(flags::AVOID_PINNED) && is_for_pinned(m))
}

/// Whether the goroutine runs on a thread that `gs_run` has borrowed for another goroutine, its
/// root.
#[inline(always)]
pub fn is_borrowed(g: GRef, m: MRef) -> bool {
    m.is_runner() && m.root.get() != g.as_ptr().cast_const()
}

/// Whether goroutines are pinned to the M's thread, or may begin there because it belongs to a
/// worker group.
#[inline(always)]
pub fn is_for_pinned(m: MRef) -> bool {
    m.pinned() > 0 || m.is_member()
}

/// Whether goroutines are pinned to the M's thread.
#[inline(always)]
pub fn has_pinned(m: MRef) -> bool {
    m.pinned() > 0
}

/// Sleeps until another M hands this locked M, which has no P, a P for a goroutine that is bound to
/// it. `THREADS.md` has the protocol. seed: S9
pub fn stop_locked(m: MRef) {
    let rt = rt();
    m.set_between(false);
    loop {
        // Release: pairs with the exchange of the thread that gives this M a P, and writes
        // `handed`.
        m.sleeps_locked.store(true, Ordering::Release);
        // Pairs with the fence in `wake_owner`: either the M that hands over sees that this M
        // sleeps, or this M sees the pushed task.
        fence(Ordering::SeqCst);
        let notified = !is_wanted(m) && m.sleep(-1);
        if !m.sleeps_locked.swap(false, Ordering::Acquire) {
            // Another M gives this M a P, and notifies this M once.
            return if notified {
                take_gift(m)
            } else {
                wait_for_gift(m, || {
                    m.sleep(-1);
                })
            };
        }
        // No M gives this M a P: a task waits, or the runtime ends.
        if m.must_leave() {
            return;
        }
        if let Some(p) = take_idle_p(rt, None, m.node.get()) {
            return acquire_p(m, p);
        }
        // The M's that have the P's take these goroutines out and hand them over.
        give_own_away(m);
    }
}

/// Whether an M that has said that it sleeps must not: a goroutine is there that is pinned to the M
/// or may begin on it, or the M is to leave.
pub fn is_wanted(m: MRef) -> bool {
    !m.pinned.is_empty() || group::has_work(m) || m.must_leave()
}

/// Moves the goroutines that are pinned to this M, which finds no P, and those that wait to begin
/// on other members of its group, to a global queue. An M with a P finds them there.
pub fn give_own_away(m: MRef) {
    while let Some(task) = m.pinned.pop().or_else(|| group::steal(m)) {
        ready::push_global(task, priority::NORMAL);
    }
}

/// Hands the goroutine, which is bound to `owner`, over to that M, together with the P of `m` if
/// `owner` sleeps. seed: S9
pub fn hand_over(m: MRef, owner: MRef, g: GRef) {
    let task = Task::goroutine(g);
    // The M of a goroutine that waits in the handler may get a P only for that goroutine.
    if g.has(flags::INTERRUPTED) {
        // Tells idle M's when they can take the P for an event.
        let p = m.p();
        preempted::computes_from_now(p);
        if p.pace.events.get() > 0 && p.has_work() {
            p.let_event_wait();
        }
        return give_own_p(m, owner, Some(task));
    }
    if owner.sleeps_locked.swap(false, Ordering::AcqRel) {
        return give_own_p(m, owner, Some(task));
    }
    owner.pinned.push(task);
    wake_owner(m, owner);
}

/// Gives the P of `m` to `owner` if that M sleeps. A task was pushed to the `pinned` of `owner`, or
/// of another member of its group. Returns false if `owner` is awake.
pub fn wake_owner(m: MRef, owner: MRef) -> bool {
    // Pairs with the fences in `stop` and `stop_locked`: either the owner, which is about to sleep,
    // sees the task, or this M sees that the owner sleeps.
    fence(Ordering::SeqCst);
    let sleeps = owner.sleeps_locked.swap(false, Ordering::AcqRel)
        || rt().nodes[owner.node.seen()].take_idle_m(owner);
    if sleeps {
        give_own_p(m, owner, None);
    }
    sleeps
}

/// Gives the P of `m` to a sleeping M, which the caller alone may wake.
fn give_own_p(m: MRef, to: MRef, task: Option<Task>) {
    let p = release_p(m);
    count(&p.stats.handoffs, 1);
    give(to, Some(p), task, false);
}

/// Passes on a goroutine that belongs to another M, with the P of `m`. seed: S9
pub fn pass_on(m: MRef, g: GRef) {
    if g.has(flags::BOUND) && g.bound_m.get() != m.as_ptr().cast_const() {
        // SAFETY: `bound_m` of a bound goroutine is an M, and M's stay mapped until shutdown.
        return hand_over(m, unsafe { MRef::from_ptr(g.bound_m.get()) }, g);
    }
    if group::is_elsewhere(m, g) {
        return group::pass_on(m, g);
    }
    move_off(m, g);
}

/// Moves a task away from the M of an attached thread. If the task's goroutine computed there, and
/// the preemption signal stopped it, the goroutines that are bound to the thread could not run
/// meanwhile. The task goes to another M with the P of `m`, or waits aside for a thread. Gives the
/// task back if there is no other M, and never will be.
pub fn move_away(m: MRef, task: Task) -> Result<(), Task> {
    let rt = rt();
    let node = m.p().node as usize;
    let mut nodes = rt.nodes_from(node);
    let idle = nodes.find_map(|n| n.pop_idle_m_that(|other| !other.is_attached()));
    match idle.or_else(|| new_m(rt, node)) {
        Some(other) => {
            (rt.points.leave_entered)(m);
            (rt.points.idle)(m);
            give(other, Some(release_p(m)), Some(task), false);
        }
        None if rt.lacks_threads.load(Ordering::Relaxed) && rt.own_ms() == 0 => return Err(task),
        None => rt.aside.wait(task),
    }
    Ok(())
}

/// Moves the goroutine, which avoids the thread of `m` (see `avoids`), to another M, with the P of
/// `m`. If there is no other M the goroutine waits aside, and `m` keeps its P.
fn move_off(m: MRef, g: GRef) {
    let rt = rt();
    let task = Task::goroutine(g);
    let find = || {
        let mut nodes = rt.nodes_from(m.p().node as usize);
        nodes.find_map(|n| n.pop_idle_m_that(|m| !avoids(g, m)))
    };
    let give_to = |other, task| give(other, Some(release_p(m)), Some(task), false);
    if let Some(other) = find().or_else(|| new_m(rt, m.p().node as usize)) {
        return give_to(other, task);
    }
    // A newborn that is pinned, or a goroutine that locks the thread, is bound to the thread from
    // now on. A goroutine that begins a call only blocks the thread.
    let is_to_stay = g.has(flags::UNBORN) || g.lock_depth.get() > 0;
    if rt.lacks_threads.load(Ordering::Relaxed) && !is_forking() {
        // There will be no new thread. The goroutine can stay beside pinned goroutines, which run
        // while it is parked.
        let beside = g.has(flags::AVOID_PINNED);
        g.set_flag(flags::AVOID_PINNED, false);
        if !avoids(g, m) {
            return m.stash.set(Some(task));
        }
        if let Some(other) = find() {
            return give_to(other, task);
        }
        g.set_flag(flags::AVOID_PINNED, beside);
    }
    // A goroutine that only blocks the borrowed thread delays the thread's return. A goroutine that
    // is bound to the borrowed thread would be lost when the thread goes back, so it stays only if
    // there is no other thread at all.
    let gives_none = rt.lacks_threads.load(Ordering::Relaxed) || is_forking();
    let has_none = rt.lacks_threads.load(Ordering::Relaxed) && rt.own_ms() == 0;
    let stays = if is_to_stay { has_none } else { gives_none };
    if stays {
        g.set_flag(flags::AVOID_RUNNER | flags::AVOID_PINNED, false);
        m.stash.set(Some(task));
    } else {
        rt.aside.wait(task);
    }
}
