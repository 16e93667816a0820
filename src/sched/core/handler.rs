//! Goroutines that wait in the signal handler, and the M's that they wait on.

use super::gang;
use super::start::m_for;
use crate::sched::who::hooks::STARTING;
use crate::sched::who::m::MRef;
use crate::sched::who::node::Node;
use crate::sched::who::p::PRef;
use crate::sched::who::runtime::Runtime;
use crate::sched::who::task::{Task, TaskKind};
use crate::sched::words::forking::is_forking;
use core::ptr;
use core::sync::atomic::Ordering;

/// Makes sure that an M is idle before a P is taken from a running M: making a thread takes the lock of the C library's
/// heap, which the running M's goroutine may have. False: no M is idle yet. If there can be no more threads, or a
/// thread forks, an M that waits in the handler will do.
pub fn keep_a_spare(rt: &Runtime, p: PRef) -> bool {
    if rt.nodes_from(p.node as usize).any(Node::has_idle_m) {
        return true;
    }
    if is_forking() {
        return true;
    }
    // A thread in `thread_start` isn't idle, and may wait for a lock that a goroutine in the handler has: that
    // goroutine gets the P, and needs no other thread.
    if threads_starting() > 0 && rt.nodes.iter().any(|n| !n.preempted.is_empty()) {
        return true;
    }
    if rt.is_any_m_between() {
        return false;
    }
    rt.template.want_spare(rt, p.node as usize);
    rt.lacks_threads.load(Ordering::Relaxed) || rt.template.is_stuck()
}

/// How many threads are in the hook `thread_start`, where they may wait for a lock that a goroutine has.
pub fn threads_starting() -> usize {
    STARTING.load(Ordering::Relaxed)
}

/// The M that can have the P at once: an idle M, already out of its pool; if there can be no more threads, an M whose
/// goroutine waits in the handler, with that goroutine.
pub fn heir_for(rt: &Runtime, p: PRef) -> Option<(MRef, Option<Task>)> {
    m_for(rt, p, false).map(|m| (m, None)).or_else(|| waiting_in_handler(rt, p))
}

/// Takes a goroutine that waits in the signal handler out of its queue, if there can be no more threads for now. (The
/// goroutine may have a lock for which a thread waits that makes another thread, or a new thread in the hook
/// `thread_start`.)
pub fn waiting_in_handler(rt: &Runtime, p: PRef) -> Option<(MRef, Option<Task>)> {
    let lacks = rt.lacks_threads.load(Ordering::Relaxed) || rt.template.is_stuck();
    if !lacks && !is_forking() && threads_starting() == 0 {
        return None;
    }
    let others = || rt.nodes_from(p.node as usize).find_map(|n| n.preempted.pop());
    let (m, task) = with_its_m(gang::waiting_in_handler(rt, p, others)?);
    Some((m, Some(task)))
}

/// Any goroutine that waits in the signal handler, taken out of its queue, and its M.
pub fn any_in_handler(rt: &Runtime) -> Option<(MRef, Task)> {
    let task = rt.nodes.iter().find_map(|n| n.preempted.pop());
    task.or_else(|| gang::any_in_handler(rt)).map(with_its_m)
}

/// Lets a goroutine that waits in the signal handler go on without a P.
pub fn let_go(m: MRef, task: Task) {
    m.next_p.store(ptr::null_mut(), Ordering::Relaxed);
    m.handed.set(Some(task));
    m.notify();
}

/// A goroutine that waits in the handler, with the M that it waits on.
pub fn with_its_m(task: Task) -> (MRef, Task) {
    match task.kind() {
        // SAFETY: a goroutine that waits in the handler is bound to an M, and M's stay mapped.
        TaskKind::Goroutine(g) => (unsafe { MRef::from_ptr(g.bound_m.get()) }, task),
        TaskKind::Newborn(_) => unreachable!("what has not run was not preempted"),
    }
}
