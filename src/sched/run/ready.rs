//! Making a goroutine runnable: into which queue it goes.

use super::start::{self, work_added, work_added_on};
use super::{ordered, preempted, traced};
use crate::os::time;
use crate::sched::prim::ring::Ring;
use crate::sched::take::events;
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::m::{MRef, with_p};
use crate::sched::types::node::{Node, priority};
use crate::sched::types::p::PRef;
use crate::sched::types::runtime::{Guest, Runtime, rt};
use crate::sched::types::task::{Batch, Task, TaskKind};
use crate::sched::types::waiter::When;
use crate::trace;
use core::iter;
use core::sync::atomic::{Ordering, fence};

/// Makes a goroutine that the caller owns runnable. The goroutine's registers are saved, or, on a P
/// that is alone, will be saved before that P takes the goroutine from a queue. Go's `goready`.
#[inline(always)]
pub fn ready(g: GRef, when: When) {
    g.set_status(Status::Runnable);
    match with_p() {
        Some(m) => ready_here(m, g, when),
        None => ready_without_p(g),
    }
}

/// Whether the goroutine can't simply be pushed to the queues of the caller's P: it is bound, its
/// priority isn't normal, or `migrates` is set.
#[inline(always)]
pub fn is_special(g: GRef, migrates: bool) -> bool {
    g.flags.get() & flags::ELSEWHERE != 0 || g.priority.get() != priority::NORMAL || migrates
}

/// Makes the goroutine ready if it belongs in a special queue. Else returns false, and the caller
/// chooses the queue.
pub fn ready_if_special(task: &Task) -> bool {
    match task.kind() {
        TaskKind::Goroutine(g) if is_special(g, rt().debug.migrate) => {
            ready(g, When::Soon);
            true
        }
        _ => false,
    }
}

#[inline(always)]
fn ready_here(m: MRef, g: GRef, when: When) {
    let p = m.p();
    if is_special(g, p.is_careful.get()) {
        ready_special(m, g, when);
    } else {
        push_ready(p, g, when);
    }
}

/// Begins to measure, from `at` (ns) on, how long the goroutine, which the caller makes ready,
/// waits to run.
pub fn measure_wait(g: GRef, at: i64) {
    g.ready_at.set(at);
    g.set_flag(flags::TIMED, true);
}

#[inline(always)]
fn push_ready(p: PRef, g: GRef, when: When) {
    if when == When::Soon || (when == When::NextIfFree && p.runnext.load(Ordering::Relaxed) != 0) {
        push_private(p, Task::goroutine(g));
    } else {
        set_runnext(p, Task::goroutine(g));
    }
}

/// Makes the task the running goroutine's successor, for the rest of that goroutine's time slice.
/// The former successor goes to the private queue, where thieves find it. No M is woken for a
/// successor: the caller is most likely about to park, and a woken M would only race it for the
/// successor. If the caller runs on instead, sysmon wakes an M.
#[inline(always)]
fn set_runnext(p: PRef, task: Task) {
    if p.runnext.load(Ordering::Relaxed) == 0 {
        // A store suffices: thieves only empty `runnext`. Release: pairs with a thief's Acquire,
        // which then sees the goroutine.
        p.runnext.store(task.into_word(), Ordering::Release);
    } else {
        // Release: as above. Acquire: pairs with the Release that stored the former successor,
        // which is pushed below.
        let before = p.runnext.swap(task.into_word(), Ordering::AcqRel);
        // SAFETY: `runnext` holds a task or 0.
        if let Some(before) = unsafe { Task::from_word(before) } {
            push_private(p, before);
        }
    }
}

#[cold]
#[inline(never)]
fn ready_special(m: MRef, g: GRef, when: When) {
    let (rt, p) = (rt(), m.p());
    if g.is_in_bubble() {
        return ordered::ready_in_bubble(Some(m), g);
    }
    if trace::is_on() {
        traced::readies(g);
    }
    if let Some(from) = p.stop_measuring() {
        measure_wait(g, if from == 0 { time::now() } else { from });
    }
    if !is_special(g, p.migrates) {
        return push_ready(p, g, when);
    }
    let task = Task::goroutine(g);
    if g.has(flags::BOUND)
        && g.priority.get() != priority::MEMBER
        && g.bound_m.get() == m.as_ptr().cast_const()
    {
        m.pinned.push(task);
    } else if g.priority.get() != priority::NORMAL {
        rt.push(p.node as usize, task, g.priority.get());
    } else if p.migrates {
        rt.push(m.random() as usize % rt.nodes.len(), task, priority::NORMAL);
    } else {
        push_private(p, task);
    }
}

/// Queues a goroutine that a plain thread, or a thread in a system call, has made runnable: on the
/// P where the goroutine last ran. seed: S11
#[cold]
#[inline(never)]
fn ready_without_p(g: GRef) {
    if g.is_in_bubble() {
        return ordered::ready_in_bubble(None, g);
    }
    // The runtime stays until the goroutine has ended.
    let _inside = Guest::enter_if_there();
    let rt = rt();
    if trace::is_on() {
        traced::readies(g);
    }
    let (mut task, prio) = (Task::goroutine(g), g.priority.get());
    let home = g.last_p.get() as usize;
    measure_wait(g, time::now());
    if prio == priority::NORMAL && home < rt.procs() {
        let p = rt.p(home);
        match p.inbox.try_push(task) {
            Ok(()) => return event_added(rt, p),
            Err(back) => task = back,
        }
    }
    push_global(task, prio);
}

/// Finds a P for work that an event has put into the inbox of `p`, which the caller doesn't own: an
/// idle P, else a P that a system call has left, else `p` itself, once its goroutine has had its
/// share.
pub fn event_added(rt: &Runtime, p: PRef) {
    work_added(Some(p), p.node as usize);
    if rt.idle.ps() == 0 && rt.idle.spinning() == 0 {
        events::find_p(rt, p);
    }
}

/// Queues a goroutine that was spawned for this node. An idle P of the node gets the task with its
/// wake-up, as with a root goroutine. Else the task waits in `Node::placed`, from which other nodes
/// take it only after it has waited for longer than a theft costs. seed: N11
pub fn push_to_node(node: usize, task: Task, prio: i8) {
    let rt = rt();
    let n = &rt.nodes[node];
    if rt.nodes.len() == 1 || prio == priority::MEMBER {
        rt.push(node, task, prio);
        return;
    }
    let idle_p = || n.has_idle_p(rt.procs()).then(|| rt.take_idle_p_of(n)).flatten();
    if let Some(p) = idle_p() {
        return start::start_with(rt, p, task);
    }
    let placed = if prio == priority::NORMAL { n.place(task) } else { Err(task) };
    if let Err(task) = placed {
        return rt.push(node, task, prio);
    }
    // Pairs with the fence in `make_idle`: either the M that makes a P idle just now finds the
    // task, or this thread finds the P.
    fence(Ordering::SeqCst);
    if let Some(p) = idle_p() {
        start::start_m(rt, p, false);
    }
}

/// Queues a root goroutine: each goes to another node and P, in turn. seed: N7
#[cold]
#[inline(never)]
pub fn push_root(task: Task) {
    let rt = rt();
    let p = rt.next_root_p();
    // An idle P gets the task with the wake-up. In a queue, another P that looks for work just
    // then, mostly the P that has accepted the connection, would find the task first.
    if rt.take_idle_p(p) {
        return start::start_with(rt, p, task);
    }
    match p.inbox.try_push(task) {
        Ok(()) => work_added(Some(p), p.node as usize),
        Err(task) => push_global(task, priority::NORMAL),
    }
}

/// Pushes the task into the global queue of the caller's node, or of any node if the caller has no
/// P.
pub fn push_global(task: Task, prio: i8) {
    let rt = rt();
    let node = match with_p() {
        Some(m) => m.p().node as usize,
        None => rt.any_node(),
    };
    rt.push(node, task, prio);
}

/// Pushes the task to the newest end of the P's private queue, where thieves may take it. Wakes an
/// M, unless thieves would leave the task to the P (`P::keeps`).
#[inline(always)]
pub fn push_private(p: PRef, task: Task) {
    let is_told = !p.alone.get() && !p.keeps(&task);
    push_ring(p, &p.private, task);
    if is_told && !p.is_to_tell_later() {
        work_added_on(p);
    }
}

/// [`push_private`] without waking an M.
pub fn push_private_quietly(p: PRef, task: Task) {
    push_ring(p, &p.private, task);
}

/// Pushes the task to the end of the shared work, and wakes no M: the caller knows that M's are
/// awake, or wakes one.
pub fn push_shared(p: PRef, task: Task) {
    push_ring(p, &p.shared, task);
}

/// Puts a task back that was taken out of a queue. A goroutine that waits in the signal handler
/// goes to the queue of such goroutines: a thread that forks lets them go on without a P, and finds
/// them nowhere else.
pub fn put_back(p: PRef, task: Task) {
    match task.kind() {
        TaskKind::Goroutine(g) if preempted::is_interrupted(g) => preempted::queue(p, g),
        _ => push_shared(p, task),
    }
}

/// Puts the task that the M has already taken, and the tasks that are pinned to the M, back into
/// the P's queues.
pub fn put_back_stash(m: MRef, p: PRef) {
    for task in m.stash.take().into_iter().chain(iter::from_fn(|| m.pinned.pop())) {
        put_back(p, task);
    }
}

/// Queues a goroutine that yields, behind everything else.
#[inline(always)]
pub fn push_yielded(p: PRef, g: GRef) {
    if g.priority.get() != priority::NORMAL || p.migrates {
        return yield_special(p, g);
    }
    if let Err(task) = Task::goroutine(g).offer(|word| p.shared.push(word)) {
        return yield_to_full(p, task);
    }
    if !p.alone.get() {
        work_added_on(p);
    }
}

#[cold]
#[inline(never)]
fn yield_to_full(p: PRef, task: Task) {
    overflow(p, &p.shared, task);
    work_added_on(p);
}

#[cold]
#[inline(never)]
fn yield_special(p: PRef, g: GRef) {
    let rt = rt();
    let node = if p.migrates { rt.any_node() } else { p.node as usize };
    rt.push(node, Task::goroutine(g), g.priority.get());
}

#[inline(always)]
fn push_ring(p: PRef, ring: &Ring, task: Task) {
    if let Err(task) = task.offer(|word| ring.push(word)) {
        overflow(p, ring, task);
    }
}

/// Moves the older half of a full ring to the node's global queue, and pushes the task. If a thief
/// is taking that half, the task may go to the global queue instead. seed: B7
#[cold]
#[inline(never)]
fn overflow(p: PRef, ring: &Ring, task: Task) {
    let mut batch = Batch::default();
    // SAFETY: rings hold tasks.
    let task_of = |word| unsafe { Task::from_word(word) };
    ring.drain_half(|word| batch.push(task_of(word).expect("rings hold no zeros")));
    if batch.len() == 0 {
        // A thief is still copying that half; its places are free when the thief is done.
        if let Err(task) = task.offer(|word| ring.push(word)) {
            rt().push_quietly(p.node as usize, task, priority::NORMAL);
        }
        return;
    }
    let rt = rt();
    match rt.nodes.len() {
        1 => rt.nodes[0].runq.push_batch(batch),
        _ => spread(rt, p.of_node(), batch),
    }
    let pushed = ring.push(task.into_word());
    debug_assert!(pushed, "half of the ring is free and only we push");
}

/// Queues the older half of a full ring. Goroutines that have run stay on the node. Newborns come
/// from a burst that was faster than the P could begin them, and go to another node each time.
/// Wakes no M: the caller announces the work. seed: N7
#[cold]
fn spread(rt: &Runtime, own: &Node, mut batch: Batch) {
    let (mut newborn, mut others) = (Batch::default(), Batch::default());
    while let Some(task) = batch.pop() {
        let is_newborn = match task.kind() {
            TaskKind::Newborn(_) => true,
            TaskKind::Goroutine(g) => g.has(flags::UNBORN),
        };
        if is_newborn { newborn.push(task) } else { others.push(task) }
    }
    own.runq.push_batch(others);
    if newborn.len() > 0 {
        let node = rt.next_root_p().node as usize;
        rt.nodes[node].runq.push_batch(newborn);
    }
}

/// Makes a goroutine runnable in a global queue. Any thread may call this, with a P or without.
pub fn ready_global(g: GRef) {
    g.set_status(Status::Runnable);
    push_global(Task::goroutine(g), g.priority.get());
}

impl Runtime {
    /// Puts a task into the queue of a node, or of the nearest node that has P's, and announces the
    /// task.
    pub fn push(&self, node: usize, task: Task, priority: i8) {
        if priority == priority::MEMBER {
            return (self.points.push_member)(self, task);
        }
        let taken = self.push_quietly(node, task, priority);
        start::work_added(None, taken);
    }

    /// [`Runtime::push`] without announcing the task; returns the node that has it.
    pub fn push_quietly(&self, node: usize, task: Task, priority: i8) -> usize {
        if priority == priority::MEMBER {
            (self.points.push_member_quietly)(self, task);
            return node;
        }
        let wanted = &self.nodes[node];
        let mut candidates = iter::once(&node).chain(&wanted.neighbours).cycle();
        let mut task = Some(task);
        let mut takes = |n: usize| {
            task = task.take().and_then(|task| self.nodes[n].push(task, priority).err());
            task.is_none()
        };
        // The search ends, because P 0's node is always open.
        *candidates.find(|&&n| takes(n)).unwrap_or(&node)
    }
}
