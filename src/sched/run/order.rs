//! The order in which a P serves its own queues, and the other queues that must not starve.

use super::{group, preempted, ready};
use crate::arch;
use crate::os::{cpu, time};
use crate::sched::prim::ring::Taken;
use crate::sched::types::attention;
use crate::sched::types::m::{MRef, on_goroutine};
use crate::sched::types::p::PRef;
use crate::sched::types::runtime::rt;
use crate::sched::types::task::{Task, TaskKind};
use crate::sched::wait::netpoll;
use core::sync::atomic::Ordering;

/// One scheduling decision in this number begins with the node's global queue. A prime, as in Go.
/// seed: W1
pub const GLOBAL: u32 = 61;

/// Once in this number of decisions the scheduler measures how long a goroutine waits from ready to
/// running, which takes two readings of the clock. A multiple of [`GLOBAL`], since only unusual
/// decisions check this.
const MEASURED: u32 = GLOBAL * 17;

/// One decision in this number begins with one of the other queues that could starve: see
/// [`now_and_then`].
pub const OTHERS: u32 = 53;

/// Goroutines that hand over to each other through `runnext` share a turn of this length, in ns, if
/// others wait. Goroutines that events have made ready don't wait for its end.
pub const TURN: i64 = 2_000_000;

/// The other queues wait for at most this time, in ns, while goroutines hand over to each other.
/// [`TURN`] alone would not bound that wait: a turn starts over, before the clock ends it, whenever
/// an event's goroutine runs in between.
pub const OTHERS_WAIT: i64 = 2 * TURN;

/// After this number of turns the other queues are served too, even if no turn lasted for [`TURN`]:
/// the newest goroutines of the private queue may go on beginning short turns while its oldest
/// waits.
pub const TURNS: u32 = 8;

/// The clock is read about every `LOOK_GAP` ns, and at the latest after `LOOK_DECISIONS` decisions,
/// to see whether the turn of goroutines that hand over to each other is over.
const LOOK_GAP: i64 = TURN / 32;
const LOOK_DECISIONS: i64 = 512;

/// From this number of tasks left in a ring on, the next goroutines are prefetched: their data does
/// not stay in the L1 cache from turn to turn.
const MANY: u32 = 16;

/// Takes the next task of the M's own P, for a direct switch. The caller may hold the lock of the
/// object that it is about to wait for, so this wakes no goroutine and no M. Returns `None` when a
/// timer or the poller is due: g0 serves them.
#[inline(always)]
pub fn next_direct(m: MRef, p: PRef) -> Option<Task> {
    let tick = next_tick(p);
    if p.attention.load(Ordering::Relaxed) != 0 {
        return None;
    }
    if is_unusual(p, tick) { next_unusual_direct(m, p, tick) } else { next_in_order(m, p) }
}

#[cold]
#[inline(never)]
fn next_unusual_direct(m: MRef, p: PRef, tick: u32) -> Option<Task> {
    if netpoll::is_due(p) || own_timer_due(p).is_some() {
        return None;
    }
    next_unusual(m, p, tick)
}

/// Whether the M that runs the P has been asked for something (`P::attention`).
#[inline(always)]
pub fn is_asked(p: PRef) -> bool {
    p.attention.load(Ordering::Relaxed) & !attention::GANG != 0
}

/// Counts a scheduling decision; returns the new tick.
#[inline(always)]
pub fn next_tick(p: PRef) -> u32 {
    let tick = p.tick.load(Ordering::Relaxed).wrapping_add(1);
    p.tick.store(tick, Ordering::Relaxed);
    tick
}

#[inline(always)]
pub fn timer_is_due(p: PRef) -> bool {
    let next = p.timers.next();
    next != i64::MAX && next <= time::now()
}

/// Returns the time if a timer of the caller's own P is due. Each reading of the clock also
/// measures how fast the P decides ([`Pace`](crate::sched::types::p::Pace)).
pub fn own_timer_due(p: PRef) -> Option<i64> {
    let (next, tick) = (p.timers.next(), p.tick.load(Ordering::Relaxed));
    if next == i64::MAX {
        return None;
    }
    let now = time::now();
    p.pace.note(tick, now, next <= now);
    (next <= now).then_some(now)
}

/// Takes the next task of the M's own P, on g0.
pub fn next_local(m: MRef, p: PRef) -> Option<Task> {
    let tick = next_tick(p);
    if is_asked(p) {
        None
    } else if is_unusual(p, tick) {
        next_unusual(m, p, tick)
    } else {
        next_in_order(m, p)
    }
}

/// Whether this decision is unusual: something besides the queues in their order may be due. Most
/// decisions make only this check.
#[inline(always)]
pub fn is_unusual(p: PRef, tick: u32) -> bool {
    tick.wrapping_sub(p.unusual_at.load(Ordering::Relaxed)) as i32 >= 0
}

/// Sets the tick of the next unusual decision after this one. `at_once`: the very next decision is
/// unusual.
pub fn plan_unusual(p: PRef, tick: u32, at_once: bool) {
    let until = |of: u32| of - tick % of;
    let ordinary = match at_once {
        true => 1,
        false => ticks_until_look(p).min(until(GLOBAL)).min(until(OTHERS)),
    };
    p.unusual_at.store(tick.wrapping_add(ordinary), Ordering::Relaxed);
}

/// [`plan_unusual`] for a P that has nothing else to run, so no queue needs its turn.
pub fn plan_look(p: PRef, tick: u32) {
    p.unusual_at.store(tick.wrapping_add(ticks_until_look(p)), Ordering::Relaxed);
}

/// The number of decisions until the P looks at its timers and files again. The first timer, and
/// the first goroutine that waits for a file, make an earlier decision unusual (`read_clock_next`).
#[inline(always)]
fn ticks_until_look(p: PRef) -> u32 {
    let clock = if p.timers.next() == i64::MAX { OTHERS } else { p.pace.every() };
    clock.min(netpoll::ticks_between_polls(p))
}

#[cold]
#[inline(never)]
fn next_unusual(m: MRef, p: PRef, tick: u32) -> Option<Task> {
    let random_order = rt().debug.random_order;
    plan_unusual(p, tick, random_order || p.pace.events.get() > 0);
    if tick.is_multiple_of(MEASURED) {
        p.measure_next(0);
    }
    let out_of_order = tick.is_multiple_of(GLOBAL) || tick.is_multiple_of(OTHERS);
    let hands_over = p.runnext.load(Ordering::Relaxed) != 0 && !random_order;
    let ends_turn = !hands_over || oldest_waits(p) || turn_is_over(p, tick);
    let task = if (out_of_order || random_order) && ends_turn {
        p.pace.others_wait_since.set(0);
        p.pace.others_turn.set(p.turn());
        let task = now_and_then(m, p, tick);
        if task.is_some() {
            end_turn(p);
        }
        task
    } else if hands_over && (out_of_order || p.pace.events.get() > 0) {
        of_event(m, p)
    } else {
        // The usual order reaches the goroutines that events have made ready, if there are any.
        p.pace.events.set(p.pace.events.get().saturating_sub(1));
        None
    };
    task.or_else(|| next_in_order(m, p))
}

/// Whether the oldest goroutine of the private queue has waited for `TURNS` turns. False for a
/// newborn: a program that spawns a tree of goroutines would have far more of them at once if it
/// began with the oldest.
fn oldest_waits(p: PRef) -> bool {
    let turns = p.turn().wrapping_sub(p.pace.others_turn.get());
    turns >= TURNS && !p.private.is_empty() && p.oldest_has_run(0)
}

/// Whether goroutines that hand over to each other through `runnext` have done so for `TURN`, or
/// the other queues have waited for `OTHERS_WAIT`. Reading the clock takes as long as a decision,
/// so it is read less often in a turn whose goroutines are quick. If they become slow, sysmon ends
/// the turn.
fn turn_is_over(p: PRef, tick: u32) -> bool {
    let (turn, pace) = (p.turn(), &p.pace);
    let is_new = pace.turn.replace(turn) != turn;
    let is_known = pace.turn_is_over.get() || pace.others_wait_since.get() != 0;
    if !is_new && is_known && (tick.wrapping_sub(pace.look_tick.get()) as i32) < 0 {
        return pace.turn_is_over.get();
    }
    let now = time::now();
    if is_new {
        pace.turn_seen_at.set(now);
        pace.look_tick.set(tick);
    } else {
        let decisions = i64::from(tick.wrapping_sub(pace.looked_tick.get()));
        let until = decisions * LOOK_GAP / (now - pace.looked_at.get()).max(1);
        pace.look_tick.set(tick.wrapping_add(until.min(LOOK_DECISIONS) as u32));
    }
    pace.looked_tick.set(tick);
    pace.looked_at.set(now);
    if pace.others_wait_since.get() == 0 {
        pace.others_wait_since.set(now);
    }
    let is_over =
        now - pace.turn_seen_at.get() >= TURN || now - pace.others_wait_since.get() >= OTHERS_WAIT;
    pace.turn_is_over.set(is_over);
    is_over
}

/// Ends the turn of the goroutines that hand over through `runnext`: moves the goroutine there to
/// the end of the shared queue.
pub fn end_turn(p: PRef) {
    if let Some(task) = empty_runnext(p, p.alone.get()) {
        ready::push_shared(p, task);
    }
}

/// Takes a goroutine that an event has made ready: it runs before the turn of the goroutines in
/// `runnext` is over.
fn of_event(m: MRef, p: PRef) -> Option<Task> {
    let events = p.pace.events.get();
    p.pace.events.set(events.saturating_sub(1));
    let alone = p.alone.get();
    let task = p.of_node().high.pop().or_else(|| p.inbox.pop()).or_else(|| m.pinned.pop());
    match events {
        0 => task,
        _ => task.or_else(|| next_private(p, alone)).or_else(|| next_shared(p, alone)),
    }
}

/// Takes the next task from the queues in their usual order. Wakes no M. seed: B7, N4, N5, N8, W1
#[inline(always)]
fn next_in_order(m: MRef, p: PRef) -> Option<Task> {
    let alone = p.alone.get();
    // Not a chain of `or_else`, which isn't inlined as a whole.
    if let Some(task) = take_runnext(p, alone) {
        return Some(task);
    }
    if !m.pinned.is_empty()
        && let Some(task) = m.pinned.pop()
    {
        return Some(task);
    }
    let high = &p.of_node().high;
    if !high.is_empty()
        && let Some(task) = high.pop()
    {
        return Some(task);
    }
    if let Some(task) = next_private(p, alone) {
        return Some(task);
    }
    next_shared(p, alone)
}

/// Takes the newest task of the private queue.
#[inline(always)]
fn next_private(p: PRef, alone: bool) -> Option<Task> {
    let taken = p.private.take_back(alone)?;
    if taken.left >= MANY {
        fetch(p.private.at(taken.at.wrapping_sub(1)), p.private.at(taken.at.wrapping_sub(2)));
    }
    // SAFETY: rings hold tasks.
    unsafe { Task::from_word(taken.entry) }
}

/// Takes a task from the queues that could starve; each of them comes first in turn. So two
/// goroutines that wake each other through `runnext` don't keep all others waiting.
pub fn now_and_then(m: MRef, p: PRef, tick: u32) -> Option<Task> {
    const QUEUES: u32 = 7;
    if nothing_waits(m, p) {
        return None;
    }
    let node = p.of_node();
    let alone = p.alone.get();
    let pick = |queue: u32| match queue % QUEUES {
        0 => next_global(p, tick / GLOBAL),
        1 => next_shared(p, alone),
        // SAFETY: rings hold tasks.
        2 => p.private.pop_front(alone).and_then(|word| unsafe { Task::from_word(word) }),
        3 => m.pinned.pop().or_else(|| group::steal(m)),
        4 => node.high.pop(),
        // A goroutine that was preempted just now must not run before the goroutines for which it
        // was preempted. Nor does a preempted goroutine get a P on loan, which soon goes back to a
        // goroutine that computes.
        5 if p.loan.is_open() => None,
        5 => node.preempted.pop_if(preempted::has_waited),
        _ => node.low.pop(),
    };
    let first = match tick {
        _ if rt().debug.random_order => m.random() % QUEUES,
        _ if tick.is_multiple_of(GLOBAL) => 0,
        _ => 1 + tick / OTHERS % (QUEUES - 1),
    };
    (first..first + QUEUES).find_map(pick)
}

/// Takes a goroutine that was preempted and has since waited for a slice, once the other goroutines
/// have had the P for as long as the last preempted goroutine had it. Returns `None` while the P is
/// on loan. [`now_and_then`] serves preempted goroutines only once in some hundred decisions. That
/// is too late if each of the other goroutines blocks its thread until sysmon takes the P: all of
/// them may block on a lock that the preempted goroutine holds.
pub fn preempted_in_turn(p: PRef) -> Option<Task> {
    let waiting = &p.of_node().preempted;
    if waiting.is_empty() || p.loan.is_open() {
        return None;
    }
    let (now, pace) = (time::now(), &p.pace);
    let since = pace.preempted_since.replace(0);
    if since != 0 {
        pace.others_until.set(now + (now - since).min(rt().slice));
    }
    if now < pace.others_until.get() {
        return None;
    }
    let task = waiting.pop_if(preempted::has_waited)?;
    pace.preempted_since.set(now);
    next_tick(p);
    Some(task)
}

/// Preempted goroutines wait for this time, in ns, after a P has been taken for an event: the M
/// that gets the P may have to wait for a CPU.
const EVENTS_FIRST: i64 = 1_000_000;

/// Makes preempted goroutines wait until the goroutine of the event for which the P was taken has
/// run: they would keep the P for a slice. Only the P's owner may call this.
pub fn events_come_first(p: PRef, now: i64) {
    let until = &p.pace.others_until;
    until.set(until.get().max(now + EVENTS_FIRST));
}

/// Takes a task from the node's global queue or from the tasks that were spawned for the node. The
/// two come first alternately, because either may be refilled without end.
fn next_global(p: PRef, turn: u32) -> Option<Task> {
    let node = p.of_node();
    match turn.is_multiple_of(2) {
        true => node.take_placed().or_else(|| node.runq.pop()),
        false => node.runq.pop().or_else(|| node.take_placed()),
    }
}

/// Takes the task in `runnext`, which runs in its predecessor's turn.
#[inline(always)]
#[must_use]
fn take_runnext(p: PRef, alone: bool) -> Option<Task> {
    let task = empty_runnext(p, alone)?;
    p.inherited.store(p.inherited.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    Some(task)
}

#[inline(always)]
fn empty_runnext(p: PRef, alone: bool) -> Option<Task> {
    let word = p.runnext.load(Ordering::Relaxed);
    if word == 0 {
        return None;
    }
    if alone {
        p.runnext.store(0, Ordering::Relaxed);
        // SAFETY: `runnext` holds a task.
        return unsafe { Task::from_word(word) };
    }
    // Acquire: pairs with the Release of the goroutine that set `runnext`. A thief may have taken
    // the task meanwhile.
    // SAFETY: `runnext` holds a task or 0.
    unsafe { Task::from_word(p.runnext.swap(0, Ordering::Acquire)) }
}

/// Moves the inbox to the shared queue, and takes the oldest task there.
#[inline(always)]
fn next_shared(p: PRef, alone: bool) -> Option<Task> {
    if !p.inbox.is_empty() {
        drain_inbox(p);
    }
    let taken = p.shared.take_front(alone)?;
    fetch_next_shared(p, &taken);
    // SAFETY: rings hold tasks.
    unsafe { Task::from_word(taken.entry) }
}

#[inline(always)]
pub fn fetch_next_shared(p: PRef, taken: &Taken) {
    if taken.left >= MANY {
        fetch(p.shared.at(taken.at.wrapping_add(1)), p.shared.at(taken.at.wrapping_add(2)));
    }
}

/// Prefetches for the next two goroutines, which last ran long ago: the stack of the first, and the
/// descriptor of the second, which holds the address of its stack.
#[inline(always)]
pub fn fetch(first: usize, second: usize) {
    arch::prefetch(second);
    // SAFETY: the word is 0 or a task. The task may have left the ring already, but its memory
    // stays mapped.
    if let Some(TaskKind::Goroutine(g)) = unsafe { Task::from_word(first) }.as_ref().map(Task::kind)
    {
        g.fetch_stack();
    }
}

/// Moves the inbox to the shared queue. Goroutines there that events have made ready still don't
/// wait for the end of a turn.
#[cold]
#[inline(never)]
fn drain_inbox(p: PRef) {
    let mut batch = p.inbox.pop_batch(|len| len);
    let mut moved = 0;
    while let Some(task) = batch.pop() {
        ready::push_shared(p, task);
        moved += 1;
    }
    p.pace.set_events(p.pace.events.get() + moved);
}

/// Whether nothing but the running goroutine could run here now. For yielding, and for
/// [`may_spin`].
#[inline(always)]
pub fn nothing_else(m: MRef, p: PRef) -> bool {
    are_empty(m, p, || p.runnext.load(Ordering::Relaxed))
}

/// Whether no task waits for its turn behind the goroutines that hand over to each other through
/// `runnext`. Any thread may call this; the answer may be outdated.
#[inline(always)]
pub fn nothing_waits(m: MRef, p: PRef) -> bool {
    are_empty(m, p, || usize::from(m.is_member()))
}

/// Whether three things hold: the queues from which the P serves itself are empty, `runnext` apart;
/// no thread asks the M for anything; and `besides` gives 0.
#[inline(always)]
fn are_empty(m: MRef, p: PRef, besides: impl FnOnce() -> usize) -> bool {
    // First the queues of goroutines that yield or were just made ready.
    if !p.shared.is_empty() || !p.private.is_empty() {
        return false;
    }
    let node = p.of_node();
    // One branch for all others.
    let others = besides()
        | p.inbox.len()
        | m.pinned.len()
        | node.runq.len()
        | node.placed()
        | node.high.len()
        | node.low.len()
        | node.preempted.len()
        | p.attention.load(Ordering::Relaxed) as usize;
    others == 0
}

/// Whether it makes sense to wait for another goroutine without parking: another P runs a
/// goroutine, and no goroutine but the caller could run here meanwhile. Go's
/// `sync_runtime_canSpin`. seed: S12
pub fn may_spin() -> bool {
    let Some(m) = on_goroutine() else { return cpu::count() > 1 };
    let (rt, p) = (rt(), m.p());
    !p.alone.get()
        && cpu::count() > 1
        && (rt.idle.ps() + rt.idle.spinning() + 1) < rt.procs() as u32
        && nothing_else(m, p)
}
