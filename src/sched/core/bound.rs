//! Which M may run a goroutine, and how a goroutine gets to the M that it is bound to.

use super::g0;
use super::group;
use super::hooks;
use super::owner::{acquire_p, release_p, take_idle_p};
use super::ready;
use super::start::{give, new_m};
use super::stop::{take_gift, wait_for_gift};
use crate::sched::who::g::{GRef, Status, flags};
use crate::sched::who::m::{self, MRef};
use crate::sched::who::p::count;
use crate::sched::who::runtime::rt;
use crate::sched::who::task::{Kind, Task};
use crate::sched::words::forking::is_forking;
use core::sync::atomic::{Ordering, fence};

/// The goroutine belongs to this M until it has run: see [`flags::HELD`].
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

/// Whether this M may run the goroutine.
pub fn may_run(m: MRef, g: GRef) -> bool {
    let bound_elsewhere = g.has(flags::BOUND) && g.bound_m.get() != m.as_ptr().cast_const();
    let fits = !bound_elsewhere && !group::is_elsewhere(m, g) && !avoids(g, m);
    if fits {
        g.set_flag(flags::AVOID_RUNNER | flags::AVOID_PINNED, false);
    }
    fits
}

/// Whether the task is for this M and no other: a goroutine that is bound to it, or begins in its group.
pub fn is_own(m: MRef, task: Task) -> bool {
    let Kind::Goroutine(g) = task.kind() else { return false };
    let is_bound = g.has(flags::BOUND) && g.bound_m.get() == m.as_ptr().cast_const();
    is_bound || (g.has(flags::GROUP) && group::may_begin(m, g))
}

/// Whether the goroutine has asked not to run on such an M next.
pub fn avoids(g: GRef, m: MRef) -> bool {
    let borrowed = m.is_runner() && m.root.get() != g.as_ptr().cast_const();
    (g.has(flags::AVOID_RUNNER) && borrowed)
        || (g.has(flags::AVOID_PINNED) && m.pinned_here.load(Ordering::Relaxed) > 0)
}

/// Whether goroutines are bound to the M. On a borrowed thread they are only where the system
/// gave no other thread; it goes back when they have ended.
pub fn has_bound(m: MRef) -> bool {
    m.is_locked() || m.pinned_here.load(Ordering::Relaxed) > 0
}

/// The goroutines that are bound to this locked M wait, and it has no P: sleeps until another M
/// hands it a P for one of them. `THREADS.md` has the protocol. seed: S9
pub fn stop_locked(m: MRef) {
    let rt = rt();
    m.set_between(false);
    loop {
        m.sleeps_locked.store(true, Ordering::Relaxed);
        // Pairs with the fence in `hand_over`: either that M sees that we sleep, or we see the
        // task it has pushed.
        fence(Ordering::SeqCst);
        let notified = m.pinned.is_empty() && !g0::must_leave(m) && m.sleep(-1);
        if !m.sleeps_locked.swap(false, Ordering::Acquire) {
            // Another M gives it a P, and notifies it once.
            return if notified {
                take_gift(m)
            } else {
                wait_for_gift(m, || {
                    m.sleep(-1);
                })
            };
        }
        // No M has given it a P: there is a task, or the runtime ends.
        if g0::must_leave(m) {
            return;
        }
        if let Some(p) = take_idle_p(rt, None, m.node.get()) {
            return acquire_p(m, p);
        }
        // The M's that have the P's hand them over.
        give_pinned_away(m);
    }
}

/// What is pinned to this M, which finds no P, goes to where an M with a P finds it.
pub fn give_pinned_away(m: MRef) {
    while let Some(task) = m.pinned.pop() {
        ready::push_global(task, crate::sched::who::node::priority::NORMAL);
    }
}

/// Hands the goroutine, which is bound to `owner`, over to that M, together with the P of `m` if
/// `owner` sleeps. seed: S9
pub fn hand_over(m: MRef, owner: MRef, g: GRef) {
    let task = Task::goroutine(g);
    // A goroutine that waits in the handler is the only task for which its M may get a P.
    if g.has(flags::INTERRUPTED) || owner.sleeps_locked.swap(false, Ordering::AcqRel) {
        return give_own_p(m, owner, Some(task));
    }
    owner.pinned.push(task);
    wake_owner(m, owner);
}

/// Gives the P of `m` to the owner of a task that was pushed to its `pinned`, if the owner sleeps.
/// False: the owner is awake.
pub fn wake_owner(m: MRef, owner: MRef) -> bool {
    // Pairs with the fences in `stop` and `stop_locked`: either the owner, which is about to
    // sleep, sees the task, or we see that it sleeps.
    fence(Ordering::SeqCst);
    let sleeps = owner.sleeps_locked.swap(false, Ordering::AcqRel)
        || rt().nodes[owner.node.seen()].take_idle_m(owner);
    if sleeps {
        give_own_p(m, owner, None);
    }
    sleeps
}

/// Gives the P of `m` to an M that sleeps and is the caller's to wake.
pub fn give_own_p(m: MRef, to: MRef, task: Option<Task>) {
    let p = release_p(m);
    count(&p.stats.handoffs, 1);
    give(to, Some(p), task, false);
}

/// The goroutine belongs on another M: hands it and the own P over. seed: S9
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

/// The task is for any other M than that of an attached thread: a goroutine that computes, and is stopped
/// there by the preemption signal, would keep those from running that are bound to the thread. It goes
/// along with the P of `m`, or waits aside for a thread. False: there is no such M, and never will be.
pub fn move_away(m: MRef, task: Task) -> bool {
    let rt = rt();
    let node = m.p().node as usize;
    let mut nodes = rt.nodes_from(node);
    let idle = nodes.find_map(|n| n.pop_idle_m_that(|other| !other.is_attached()));
    match idle.or_else(|| new_m(rt, node)) {
        Some(other) => {
            hooks::leave_entered(m);
            hooks::idle(m);
            give(other, Some(release_p(m)), Some(task), false);
        }
        None if rt.lacks_threads.load(Ordering::Relaxed) && rt.own_ms() == 0 => return false,
        None => rt.aside.wait_for_thread(task),
    }
    true
}

/// The goroutine wants another thread than that of `m`: see `avoids`. It goes along
/// with the P to an M that will do. Without one it waits aside, and `m` keeps its P.
pub fn move_off(m: MRef, g: GRef) {
    let rt = rt();
    let task = Task::goroutine(g);
    let find = || {
        let mut nodes = rt.nodes_from(m.p().node as usize);
        nodes.find_map(|n| n.pop_idle_m_that(|m| !avoids(g, m)))
    };
    let give_it = |other| give(other, Some(release_p(m)), Some(task), false);
    if let Some(other) = find().or_else(|| new_m(rt, m.p().node as usize)) {
        return give_it(other);
    }
    let is_to_stay = g.has(flags::UNBORN | flags::AVOID_PINNED);
    if rt.lacks_threads.load(Ordering::Relaxed) && !is_forking() {
        // There will be no new thread. Beside pinned goroutines it can stay: they run while it is
        // parked.
        let beside = g.has(flags::AVOID_PINNED);
        g.set_flag(flags::AVOID_PINNED, false);
        if !avoids(g, m) {
            return m.stash.set(Some(task));
        }
        if let Some(other) = find() {
            return give_it(other);
        }
        g.set_flag(flags::AVOID_PINNED, beside);
    }
    // A goroutine that only blocks the borrowed thread keeps its owner waiting for that long. A
    // goroutine that is to stay on its thread would be lost when that goes back.
    let gives_none = rt.lacks_threads.load(Ordering::Relaxed) || is_forking();
    let has_none = rt.lacks_threads.load(Ordering::Relaxed) && rt.own_ms() == 0;
    if if is_to_stay { has_none } else { gives_none } {
        g.set_flag(flags::AVOID_RUNNER | flags::AVOID_PINNED, false);
        m.stash.set(Some(task));
    } else {
        rt.aside.wait_for_thread(task);
    }
}
