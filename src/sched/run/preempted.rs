//! Goroutines that wait in the handler of the preemption signal, each on its M's thread: their
//! queue, and which of them gets a P. `take/PREEMPTION.md` has the protocol.

use super::order;
use super::start::m_for;
use crate::os::forking::is_forking;
use crate::os::time;
use crate::sched::prim::headcount::Headcount;
use crate::sched::types::g::{GRef, flags};
use crate::sched::types::m::MRef;
use crate::sched::types::node::{Node, priority};
use crate::sched::types::p::PRef;
use crate::sched::types::runtime::{Runtime, rt};
use crate::sched::types::task::{Task, TaskKind};
use core::sync::atomic::Ordering;

/// A goroutine runs for this time, in ns, before it lends its P to an event, or makes room for a
/// goroutine that is back from a call. A preempted goroutine runs longer by the time for which it was kept from the
/// P, so a flood of events gets at most half of the P.
pub const WAKE_UP: i64 = 100_000;

/// Notes that a preempted goroutine runs on this P, which the caller owns, from now on. The new
/// tick tells sysmon that the P has another goroutine, with a time slice of its own. The goroutine
/// runs undisturbed for as long as others had the P since a preempted goroutine last ran there.
/// Called by the thread that gives the P, and again by the goroutine's thread, which may have
/// waited for a CPU in between.
pub fn computes_from_now(p: PRef) {
    let (now, event_waits) = (time::now(), p.event_waits());
    order::next_tick(p);
    let taken_at = p.taken_at.swap(0, Ordering::Relaxed);
    if taken_at != 0 {
        p.others_had.store((now - taken_at).clamp(0, rt().slice), Ordering::Relaxed);
    }
    let since = now + p.others_had.load(Ordering::Relaxed);
    p.seen_at(since);
    if event_waits {
        p.let_event_wait();
    }
    if p.next_event() <= now {
        rt().sysmon.wake_by(since + WAKE_UP);
    }
}

/// Puts a goroutine that waits in the handler into the queue where M's look for such goroutines.
pub fn queue(p: PRef, g: GRef) {
    rt().push_quietly(p.node as usize, Task::goroutine(g), priority_of(g));
}

/// The priority, and so the queue, of a goroutine that waits in the handler.
pub fn priority_of(g: GRef) -> i8 {
    if g.priority.get() == priority::MEMBER { priority::MEMBER } else { priority::PREEMPTED }
}

/// Whether a preempted goroutine has waited for a time slice. False for a newborn.
pub fn has_waited(task: &Task) -> bool {
    match task.kind() {
        TaskKind::Goroutine(g) => time::now() - g.left_at.get() >= rt().slice,
        TaskKind::Newborn(_) => false,
    }
}

/// Whether the goroutine waits in the handler. The caller owns it.
pub fn is_interrupted(g: GRef) -> bool {
    g.has(flags::INTERRUPTED)
}

/// Makes sure that an M is idle before a P is taken from a running M: making a thread takes the
/// lock of the C library's heap, which the running M's goroutine may hold. Returns false if no M is
/// idle yet. Returns true also if there can be no more threads, or a thread forks: then an M that
/// waits in the handler will do.
pub fn keep_a_spare(rt: &Runtime, p: PRef) -> bool {
    if rt.nodes_from(p.node as usize).any(Node::has_idle_m) {
        return true;
    }
    if is_forking() {
        return true;
    }
    // A thread in `thread_start` isn't idle, and may wait for a lock that a goroutine in the
    // handler holds: that goroutine gets the P, and needs no other thread.
    if threads_starting() > 0 && rt.nodes.iter().any(|n| !n.preempted.is_empty()) {
        return true;
    }
    if rt.is_any_m_between() {
        return false;
    }
    rt.template.want_spare(rt, p.node as usize);
    rt.lacks_threads.load(Ordering::Relaxed) || rt.template.is_stuck()
}

/// Counts the threads in the hook `thread_start`, where they may wait for a lock that a goroutine
/// holds.
pub static STARTING: Headcount = Headcount::new();

/// The count of [`STARTING`].
pub fn threads_starting() -> usize {
    STARTING.len()
}

/// Takes an M that can have the P at once: an idle M, out of its pool; else, if there can be no
/// more threads, an M whose goroutine waits in the handler, with that goroutine.
pub fn heir_for(rt: &Runtime, p: PRef) -> Option<(MRef, Option<Task>)> {
    m_for(rt, p, false).map(|m| (m, None)).or_else(|| waiting_in_handler(rt, p))
}

/// Takes a goroutine that waits in the signal handler out of its queue, if there can be no more
/// threads for now. That goroutine may hold a lock for which a thread waits that makes another
/// thread, or that is in the hook `thread_start`.
pub fn waiting_in_handler(rt: &Runtime, p: PRef) -> Option<(MRef, Option<Task>)> {
    let lacks = rt.lacks_threads.load(Ordering::Relaxed) || rt.template.is_stuck();
    if !lacks && !is_forking() && threads_starting() == 0 {
        return None;
    }
    let others = || rt.nodes_from(p.node as usize).find_map(|n| n.preempted.pop());
    let (m, task) = with_its_m((rt.points.member_in_handler)(rt, p, &others)?);
    Some((m, Some(task)))
}

/// Takes any goroutine that waits in the signal handler out of its queue; returns its M too.
pub fn any_in_handler(rt: &Runtime) -> Option<(MRef, Task)> {
    let task = rt.nodes.iter().find_map(|n| n.preempted.pop());
    task.or_else(|| (rt.points.any_member_in_handler)(rt)).map(with_its_m)
}

/// Pairs a goroutine that waits in the handler with the M on which it waits.
pub fn with_its_m(task: Task) -> (MRef, Task) {
    (its_m(&task), task)
}

/// The M that a goroutine in the handler waits on.
pub fn its_m(task: &Task) -> MRef {
    match task.kind() {
        // SAFETY: a goroutine that waits in the handler is bound to an M, and M's stay mapped.
        TaskKind::Goroutine(g) => unsafe { MRef::from_ptr(g.bound_m.get()) },
        TaskKind::Newborn(_) => unreachable!("what has not run was not preempted"),
    }
}

/// Whether the goroutine that another thread's M runs may be preempted. The M may leave that
/// goroutine at any moment, so the caller must check afterwards that the M is still outside.
pub fn runs_preemptible(m: MRef) -> bool {
    // SAFETY: `curg` is null or a descriptor, which stays mapped.
    unsafe { GRef::from_nullable(m.curg.seen()) }.is_some_and(is_preemptible)
}

pub fn is_preemptible(g: GRef) -> bool {
    g.flags.seen() & flags::NOPREEMPT == 0 && g.preempt_off.load(Ordering::Relaxed) == 0
}

/// Whether the signal may stop the goroutine that the M runs, wherever that goroutine is. A guess,
/// as with [`runs_preemptible`]: the M may run another goroutine by the time the caller acts.
pub fn may_be_interrupted(m: MRef) -> bool {
    // SAFETY: `curg` is null or a descriptor, which stays mapped.
    unsafe { GRef::from_nullable(m.curg.seen()) }.is_some_and(is_interruptible)
}

pub fn is_interruptible(g: GRef) -> bool {
    is_preemptible(g) && g.flags.seen() & flags::NOSIGNAL == 0
}

/// Whether events may get this P: not if the signal must not stop its goroutine. True also if no M
/// runs the P: the thread of a preempted goroutine may be about to run it.
pub fn may_lose_p(p: PRef) -> bool {
    p.runner().is_none_or(may_be_interrupted)
}
