//! Work stealing: what a P without work takes from other P's and other nodes, and what it leaves to
//! them.

use super::order::{is_asked, next_local, timer_is_due};
use super::{ready, traced};
use crate::os::spin::backoff;
use crate::os::time;
use crate::sched::types::m::MRef;
use crate::sched::types::node::Node;
use crate::sched::types::p::{PRef, PStatus, count};
use crate::sched::types::runtime::{Runtime, rt};
use crate::sched::types::task::{Fifo, Task};
use crate::sched::wait::netpoll;
use crate::trace::string;
use core::sync::atomic::{AtomicU64, Ordering};

/// At most this number of tasks are taken out of a list with its lock held: each costs a cache
/// miss.
const MANY_AT_ONCE: usize = 128;

/// The cost of a theft, in ns: waking the thief, and the thief's cache misses afterwards. Thieves
/// leave a P its few goroutines if the P gets to all of them in this time.
pub const STEAL_TIME: i64 = 5_000;

/// Takes a fair share of the global queue of the P's node: returns one task, and puts the rest into
/// the P's shared queue. If that queue is empty, takes a task that was spawned for the node, else a
/// goroutine that was preempted, unless the P is on loan.
pub fn from_global(p: PRef) -> Option<Task> {
    let node = p.of_node();
    take_share(&node.runq, p, node.ps.len().max(1))
        .or_else(|| node.take_placed())
        .or_else(|| if p.loan.is_open() { None } else { node.preempted.pop() })
}

/// Takes one of `sharers` equal shares of a queue: returns its first task, and puts the others into
/// the P's shared queue.
#[must_use]
pub fn take_share(queue: &Fifo, p: PRef, sharers: usize) -> Option<Task> {
    let most = MANY_AT_ONCE.min(rt().ring_capacity / 2);
    let mut batch = queue.pop_batch(|len| (len / sharers + 1).min(most));
    let first = batch.pop()?;
    while let Some(task) = batch.pop() {
        ready::push_shared(p, task);
    }
    Some(first)
}

/// Takes a goroutine of low priority, else of idle priority, from the nearest node that has one.
pub fn of_low_priority(rt: &Runtime, p: PRef) -> Option<Task> {
    let nodes = || rt.nodes_from(p.node as usize);
    nodes().find_map(|n| n.low.pop()).or_else(|| nodes().find_map(|n| n.idle_class.pop()))
}

/// Steals from the P's of the node, then node by node from global queues and P's. Gives up at once
/// if half as many M's spin as P's are busy. Makes two rounds over all victims, the last one also for
/// what takes time to find. Go makes four rounds; four with pauses between them made no benchmark
/// faster and a server slower (docs/performance.md). seed: S3, S6, N4
#[must_use]
pub fn steal(rt: &Runtime, m: MRef, p: PRef) -> Option<Task> {
    if !m.spinning.get() {
        let busy = rt.procs() as u32 - rt.idle.ps().min(rt.procs() as u32);
        if 2 * rt.idle.spinning() >= busy {
            return None;
        }
        m.spinning.set(true);
        rt.idle.spin_begins();
    }
    let own = p.of_node();
    for last in [false, true] {
        if is_asked(p) {
            return None;
        }
        if let Some(task) = steal_from_node(m, p, own.id, last) {
            note_steal(own, &p.stats.steals_near, own.id);
            if m.is_traced() {
                traced::steals(m, string::STOLEN_NEAR, own.id);
            }
            return Some(task);
        }
        for &n in &own.neighbours {
            let node = &rt.nodes[n];
            if let Some(task) = node
                .high
                .pop()
                .or_else(|| take_share(&node.runq, p, node.ps.len() + 1))
                .or_else(|| node.steal_placed(rt.theft_time()))
                .or_else(|| node.preempted.pop())
            {
                note_steal(own, &p.stats.steals_remote_queue, n);
                if m.is_traced() {
                    traced::steals(m, string::STOLEN_FROM_QUEUE, n);
                }
                return Some(task);
            }
            if let Some(task) = steal_from_node(m, p, n, last) {
                note_steal(own, &p.stats.steals_remote_p, n);
                if m.is_traced() {
                    traced::steals(m, string::STOLEN_FAR, n);
                }
                return Some(task);
            }
        }
        if !own.runq.is_empty() || own.placed() > 0 || !p.inbox.is_empty() {
            return next_local(m, p).or_else(|| from_global(p));
        }
    }
    None
}

/// Counts a theft by a P of `own`, by kind and by the node that it stole from.
fn note_steal(own: &Node, kind: &AtomicU64, from: usize) {
    count(kind, 1);
    own.steals_from[from].fetch_add(1, Ordering::Relaxed);
}

/// Steals from the P's of a node, in random order. `last`: takes a `runnext` too, and lets due
/// timers fire.
#[must_use]
fn steal_from_node(m: MRef, p: PRef, node: usize, last: bool) -> Option<Task> {
    let ps = &rt().nodes[node].ps;
    let n = ps.len();
    if n == 0 {
        return None;
    }
    let start = m.random() as usize % n;
    for i in 0..n {
        let victim = ps.get((start + i) % n);
        if victim == p {
            continue;
        }
        if last && timer_is_due(victim) {
            victim.timers.run(time::now());
            if let Some(task) = next_local(m, p) {
                return Some(task);
            }
        }
        if last
            && netpoll::is_neglected(victim)
            && netpoll::poll(m, victim) > 0
            && let Some(task) = next_local(m, p)
        {
            return Some(task);
        }
        let stolen =
            steal_from(p, victim, last).or_else(|| if last { steal_runnext(victim) } else { None });
        if stolen.is_some() {
            return stolen;
        }
    }
    None
}

/// Steals half of a P's shared work, else of its private work, else of its inbox. Leaves a quick P
/// its few goroutines.
#[must_use]
pub fn steal_from(p: PRef, victim: PRef, last: bool) -> Option<Task> {
    if let Some((word, _)) = victim.shared.steal_half(&p.shared) {
        // SAFETY: rings hold tasks.
        return unsafe { Task::from_word(word) };
    }
    if !victim.private.is_empty()
        && (!victim.has_few_goroutines() || (last && !turns_out_quick(victim)))
        && let Some((word, _)) = victim.private.steal_half(&p.private)
    {
        // SAFETY: rings hold tasks.
        return unsafe { Task::from_word(word) };
    }
    take_share(&victim.inbox, p, 2)
}

/// Watches whether a P gets to all of its private work in the time that stealing takes.
fn turns_out_quick(victim: PRef) -> bool {
    if victim.keeps_its_few() {
        return true;
    }
    let (decisions, took) = observe(victim);
    let queued = victim.private.len().max(1) as i64;
    let is_quick = i64::from(decisions) * STEAL_TIME >= queued * took;
    if is_quick {
        victim.set_quick(true);
    }
    is_quick
}

/// Counts the decisions that a P makes in [`STEAL_TIME`]. Also returns the time that passed, in ns:
/// longer if the calling thief loses its CPU.
pub fn observe(victim: PRef) -> (u32, i64) {
    let tick = victim.tick.load(Ordering::Relaxed);
    let before = time::now();
    loop {
        let took = time::now() - before;
        if took >= STEAL_TIME {
            return (victim.tick.load(Ordering::Relaxed).wrapping_sub(tick), took);
        }
        backoff(0);
    }
}

/// Steals the `runnext` of a P that has made no decision for a while, and may be stuck: the last
/// resort.
#[must_use]
fn steal_runnext(victim: PRef) -> Option<Task> {
    let word = victim.runnext.load(Ordering::Relaxed);
    if word == 0 {
        return None;
    }
    if observe(victim).0 != 0 {
        return None;
    }
    // Acquire: pairs with the Release of the goroutine that set `runnext`.
    let taken = victim.runnext.compare_exchange(word, 0, Ordering::Acquire, Ordering::Relaxed);
    // SAFETY: `runnext` holds a task or 0.
    taken.ok().and_then(|word| unsafe { Task::from_word(word) })
}

/// Whether tasks wait in the queues that this P's node shares among its P's.
pub fn work_in_node(p: PRef) -> bool {
    let node = p.of_node();
    !node.runq.is_empty() || !node.preempted.is_empty() || node.placed() > 0
}

/// Whether tasks other than preempted goroutines wait in the queues that this P's node shares.
pub fn work_but_preempted(p: PRef) -> bool {
    let node = p.of_node();
    !node.runq.is_empty() || !node.high.is_empty() || node.placed() > 0
}

/// Whether there is work that an idle P could take, now or soon.
pub fn work_anywhere(rt: &Runtime) -> bool {
    work_that(rt, |_| true, |n| n.placed() > 0)
}

/// Whether there is work that a P of this node would take now: thieves leave a quick P its few
/// goroutines, and leave tasks that were spawned for another node to that node for a while.
pub fn work_for_thieves(rt: &Runtime, node: usize) -> bool {
    let placed =
        |n: &Node| n.placed() > 0 && (n.id == node || n.placed_due(rt.theft_time()) <= time::now());
    work_that(rt, |p| !p.keeps_its_few(), placed)
}

/// Whether there is work. A P's private work counts if `private` says so, and tasks that were
/// spawned for a node if `placed` does.
fn work_that(rt: &Runtime, private: impl Fn(PRef) -> bool, placed: impl Fn(&Node) -> bool) -> bool {
    rt.nodes.iter().any(|n| {
        !n.runq.is_empty()
            || placed(n)
            || !n.high.is_empty()
            || !n.low.is_empty()
            || !n.idle_class.is_empty()
            || !n.preempted.is_empty()
    }) || rt.ps().any(|p| {
        (!p.private.is_empty() && private(p))
            || !p.shared.is_empty()
            || !p.inbox.is_empty()
            || (p.status() == PStatus::Idle && p.runnext.load(Ordering::Relaxed) != 0)
    }) || rt.gangs.any_ready()
}

/// Whether an M of this node that looks for work would find something to do.
pub fn more_for_thieves(node: usize) -> bool {
    let rt = rt();
    work_for_thieves(rt, node) || rt.lacks_timer_watcher()
}
