//! Gangs: goroutines that talk to each other run at the same time, each on a P of its own.
//! Ousterhout's matrix: the P's are its columns, time slices its rows; a row belongs to the gangs
//! that fit in side by side, or to all other goroutines. seed: R1
//!
//! A member that is ready is in its gang's queue and nowhere else. A P whose *turn* is the gang's
//! takes from that queue first. When the queue is empty the P waits a little for the members that
//! run, and then fills its slot with other work, which gives way when a member becomes ready. P's
//! with nothing at all to do take members out of turn. `GANGS.md` has the protocol.

use crate::sched::run::{preempted, requests};

pub mod state;

use super::gang::state::{Gang, Gangs, Matrix};
use crate::os::forking::is_forking;
use crate::os::locked::Locked;
use crate::os::spin::backoff;
use crate::os::{heap, time};
use crate::sched::run::order::{self, is_asked};
use crate::sched::run::start;
use crate::sched::take::preempt::{self, Sent};
use crate::sched::types::attention;
use crate::sched::types::g::GRef;
use crate::sched::types::node::priority;
use crate::sched::types::p::{PRef, PStatus};
use crate::sched::types::runtime::Runtime;
use crate::sched::types::task::{Task, TaskKind};
use core::ptr;
use core::sync::atomic::{Ordering, fence};

/// How long a P whose member has parked waits for the next member, in ns: about what it costs to
/// fill the slot and to get it back.
const LINGER: i64 = 100_000;

// The API's side

/// The list of free gangs: the first gang, with the others linked behind it.
static FREE: Locked<Option<&'static Gang>> = Locked::new(None);

/// Locks the list of free gangs around a fork, so that the child does not find it locked.
pub fn lock_free() {
    FREE.lock();
}

/// Undoes [`lock_free`].
///
/// # Safety
/// The calling thread holds the lock.
pub unsafe fn unlock_free() {
    // SAFETY: the caller holds the lock.
    unsafe { FREE.unlock() };
}

/// Makes a gang without members, with one reference. `None` if there is no memory.
pub fn create() -> Option<&'static Gang> {
    if heap::is_refused() {
        return None;
    }
    let used = FREE.with(|first| {
        let gang = (*first)?;
        *first = gang.next();
        Some(gang)
    });
    let gang = used.or_else(|| {
        let new = heap::boxed_to_keep(Gang::new());
        new.map(|gang| &*Box::leak(gang))
    })?;
    gang.refs.store(1, Ordering::Relaxed);
    Some(gang)
}

/// Gives a reference back. The gang is free when it has none.
pub fn release(gang: &'static Gang) {
    // AcqRel: pairs with the other releases, so that the gang is free only after all uses.
    if gang.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
        FREE.with(|first| {
            gang.set_next(*first);
            *first = Some(gang);
        });
    }
}

/// Makes a goroutine that has not run yet a member.
pub fn join(rt: &Runtime, gang: &'static Gang, g: GRef) {
    g.gang.set(gang);
    g.priority.set(priority::MEMBER);
    rt.gangs.add(rt, gang);
}

/// Takes a goroutine that has ended out of its gang, if it has a gang.
pub fn leave(rt: &Runtime, g: GRef) {
    // SAFETY: the pointer is null or a gang, which stays mapped.
    let Some(gang) = (unsafe { g.gang.replace(ptr::null()).as_ref() }) else { return };
    if gang.members.fetch_sub(1, Ordering::AcqRel) == 1 {
        rt.gangs.remove_if_empty(rt, gang);
    }
    release(gang);
}

// The member's side

/// Puts a member that is ready into its gang's queue, and wakes no M.
pub fn push_quietly(rt: &Runtime, task: Task) {
    let gang = gang_of(&task);
    rt.gangs.ready.fetch_add(1, Ordering::Relaxed);
    gang.ready.push(task);
}

/// [`push_quietly`], and makes sure that a P takes the task if it is the gang's turn, or if a P is
/// idle.
pub fn push(rt: &Runtime, task: Task) {
    let gang = gang_of(&task);
    push_quietly(rt, task);
    // Pairs with the fences in `linger`, `fill` and `activate`: either these see the task, or this
    // thread sees that a P lingers, fills or has a turn.
    fence(Ordering::SeqCst);
    if is_active(gang) {
        call_one(rt, gang);
    } else if rt.idle.ps() > 0 {
        rt.gangs.update_row(rt, time::now());
        if rt.ps().any(|p| p.gang.called.load(Ordering::Relaxed)) {
            rt.sysmon.wake();
        }
        start::work_added(None, rt.any_node());
    }
}

fn gang_of(task: &Task) -> &'static Gang {
    match task.kind() {
        // SAFETY: gangs stay mapped.
        TaskKind::Goroutine(g) => unsafe { g.gang.get().as_ref() }.expect("a member has a gang"),
        TaskKind::Newborn(_) => unreachable!("a member has a descriptor from the start"),
    }
}

/// Makes sure that a P takes a member that waits in the queue: a P of the gang that is idle or runs
/// something else. Starts any idle P too, because the gang may have grown since its turn began, and
/// because a goroutine that fills a slot may never give way. P's that wait for members, or run
/// members, check the queue anyway.
fn call_one(rt: &Runtime, gang: &Gang) {
    if gang.lingering.load(Ordering::Relaxed) != 0 {
        return;
    }
    let all_run = gang.running.load(Ordering::Relaxed) >= gang.columns.load(Ordering::Relaxed);
    let own = |p: &PRef| !all_run && p.gang.is_turn_of(gang);
    for p in rt.ps().filter(own) {
        if rt.take_idle_p(p) {
            start::start_m(rt, p, false);
            return;
        }
        if p.gang.filling.load(Ordering::Relaxed) && p.gang.filling.swap(false, Ordering::Relaxed) {
            call(p);
            rt.sysmon.wake();
            break;
        }
    }
    if rt.idle.ps() > 0 {
        start::work_added(None, rt.any_node());
    }
}

/// Asks the goroutine on the P to give way; sysmon interrupts it if it doesn't.
fn call(p: PRef) {
    p.gang.called.store(true, Ordering::Relaxed);
    requests::ask(p, attention::SLICE);
}

// The P's side

/// Takes the next member if it is a gang's turn on this P. Waits for a member if the last goroutine
/// that ran here was a member. On g0.
#[cold]
#[inline(never)]
pub fn next(rt: &Runtime, p: PRef) -> Option<Task> {
    let was_member = member_left(p);
    let Some(gang) = p.gang.turn() else {
        stop_looking(p);
        return None;
    };
    if is_time_for_low(p)
        && let Some(task) = p.of_node().low.pop()
    {
        p.gang.filling.store(false, Ordering::Relaxed);
        order::next_tick(p);
        return Some(task);
    }
    let task = take(rt, p, gang)
        .or_else(|| if was_member { linger(rt, p, gang) } else { None })
        .or_else(|| fill(rt, p, gang))?;
    // The new tick gives the member a time slice of its own with sysmon.
    order::next_tick(p);
    if !gang.ready.is_empty() {
        call_one(rt, gang);
    }
    Some(task)
}

/// Whether it is the turn of a goroutine of low priority, which comes at intervals whatever else is
/// ready.
fn is_time_for_low(p: PRef) -> bool {
    p.tick.load(Ordering::Relaxed).is_multiple_of(order::OTHERS)
}

/// Counts out the member that ran on the P in its gang's turn: the goroutine has left the P.
/// Returns whether there was such a member.
pub fn member_left(p: PRef) -> bool {
    // SAFETY: the pointer is null or a gang, which stays mapped.
    let gang = unsafe { p.gang.member.load(Ordering::Relaxed).as_ref() };
    p.gang.member.store(ptr::null_mut(), Ordering::Relaxed);
    gang.map(|gang| gang.running.fetch_sub(1, Ordering::Relaxed)).is_some()
}

#[must_use]
fn take(rt: &Runtime, p: PRef, gang: &Gang) -> Option<Task> {
    let task = pop(rt, gang)?;
    takes(p, gang);
    Some(task)
}

/// Notes that a member is about to run on the P, in its gang's turn.
fn takes(p: PRef, gang: &Gang) {
    p.gang.filling.store(false, Ordering::Relaxed);
    p.gang.member.store(ptr::from_ref(gang).cast_mut(), Ordering::Relaxed);
    gang.running.fetch_add(1, Ordering::Relaxed);
}

#[must_use]
fn pop(rt: &Runtime, gang: &Gang) -> Option<Task> {
    let task = gang.ready.pop()?;
    rt.gangs.ready.fetch_sub(1, Ordering::Relaxed);
    Some(task)
}

/// Waits until a member becomes ready, while other members run that may make it ready.
fn linger(rt: &Runtime, p: PRef, gang: &Gang) -> Option<Task> {
    gang.lingering.fetch_add(1, Ordering::SeqCst);
    let until = time::now() + LINGER;
    let mut round = 0;
    while gang.ready.is_empty()
        && gang.running.load(Ordering::Relaxed) > 0
        && p.gang.is_turn_of(gang)
        && !is_asked(p)
        && time::now() < until
    {
        backoff(round.min(4));
        round += 1;
    }
    gang.lingering.fetch_sub(1, Ordering::SeqCst);
    // A thread that saw this P linger has pushed its task before that. Pairs with the fence in
    // `push`.
    fence(Ordering::SeqCst);
    take(rt, p, gang)
}

/// Marks the P as filled with another goroutine in the gang's turn. If a member has become ready,
/// takes that member instead.
fn fill(rt: &Runtime, p: PRef, gang: &Gang) -> Option<Task> {
    p.gang.filling.store(true, Ordering::Relaxed);
    // Pairs with the fence in `push`: either this P sees the task, or `push` sees that this P
    // fills.
    fence(Ordering::SeqCst);
    take(rt, p, gang)
}

/// Makes the P stop looking for gangs, unless a turn has just begun.
fn stop_looking(p: PRef) {
    p.gang.filling.store(false, Ordering::Relaxed);
    // SeqCst: pairs with `activate`, which stores `turn` and then sets `GANG`. Either this thread
    // sees the new turn below, or `activate` sets the bit after this.
    p.attention.fetch_and(!attention::GANG, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if p.gang.turn().is_some() {
        p.attention.fetch_or(attention::GANG, Ordering::SeqCst);
    }
}

/// Takes a member of any gang, for a P that has nothing else to do.
pub fn out_of_turn(rt: &Runtime) -> Option<Task> {
    if !rt.gangs.any_ready() {
        return None;
    }
    rt.gangs.with(|m| m.iter().find_map(|gang| pop(rt, gang)))
}

/// Takes a goroutine that waits in the signal handler out of its queue, for a P that the caller
/// owns and that needs the goroutine's thread: a member if it is its gang's turn, else what
/// `others` finds, else any member.
pub fn waiting_in_handler(
    rt: &Runtime,
    p: PRef,
    others: &dyn Fn() -> Option<Task>,
) -> Option<Task> {
    if let Some(gang) = p.gang.turn()
        && let Some(task) = pop_interrupted(rt, gang)
    {
        member_left(p);
        takes(p, gang);
        return Some(task);
    }
    let task = others().or_else(|| any_in_handler(rt))?;
    member_left(p);
    p.gang.filling.store(true, Ordering::Relaxed);
    Some(task)
}

/// Takes a member of any gang that waits in the signal handler out of its queue.
pub fn any_in_handler(rt: &Runtime) -> Option<Task> {
    let any = || rt.gangs.with(|m| m.iter().find_map(|gang| pop_interrupted(rt, gang)));
    if rt.gangs.any_ready() { any() } else { None }
}

#[must_use]
fn pop_interrupted(rt: &Runtime, gang: &Gang) -> Option<Task> {
    if gang.ready.is_empty() {
        return None;
    }
    let task = gang.ready.pop_that(
        |task| matches!(task.kind(), TaskKind::Goroutine(g) if preempted::is_interrupted(g)),
    )?;
    rt.gangs.ready.fetch_sub(1, Ordering::Relaxed);
    Some(task)
}

// The matrix

impl Gangs {
    fn add(&self, rt: &Runtime, gang: &'static Gang) {
        self.with(|m| {
            if gang.runtime.swap(rt.number, Ordering::Relaxed) != rt.number {
                gang.forget_members();
            }
            gang.refs.fetch_add(1, Ordering::Relaxed);
            gang.members.fetch_add(1, Ordering::Relaxed);
            if !gang.is_listed() {
                m.append(gang);
                if self.count.fetch_add(1, Ordering::Relaxed) == 0 {
                    others_begin(rt, m, time::now());
                }
            }
        });
    }

    fn remove_if_empty(&self, rt: &Runtime, gang: &'static Gang) {
        self.with(|m| {
            if gang.members.load(Ordering::Acquire) == 0 && gang.is_listed() {
                end_turn(rt, gang);
                m.remove(gang);
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
        });
    }

    /// Changes the row if it is time, and interrupts goroutines that have to give way. Returns when
    /// sysmon must call this again, in ns.
    pub fn tick(&self, rt: &Runtime, now: i64) -> i64 {
        if self.count.load(Ordering::Relaxed) == 0 {
            return i64::MAX;
        }
        let next = self.update_row(rt, now);
        for p in rt.ps().filter(|p| p.gang.called.load(Ordering::Relaxed)) {
            p.gang.called.store(false, Ordering::Relaxed);
            if p.attention.load(Ordering::Relaxed) & attention::SLICE != 0 && !is_forking() {
                // If the goroutine can't be interrupted now, sysmon tries again next time.
                if preempt::interrupt(rt, p) == Sent::NotYet {
                    p.gang.called.store(true, Ordering::Relaxed);
                }
            }
        }
        next
    }

    /// Begins the next row if it is time, and adds the gangs that fit to the row under way. Returns
    /// when this must be called again, in ns.
    fn update_row(&self, rt: &Runtime, now: i64) -> i64 {
        if requests::is_stopping() {
            return now + rt.slice;
        }
        // A thread that has the lock does this already.
        let next = self.matrix.try_with(|m| change_row(rt, m, now));
        let Some(next) = next else { return now + rt.slice };
        rt.ps().for_each(|p| start_if_idle(rt, p));
        next
    }

    /// Ends all turns, so that they begin anew with other P's. The world is stopped.
    pub fn begin_anew(&self, rt: &Runtime) {
        self.with(|m| {
            m.iter().for_each(|gang| end_turn(rt, gang));
            // P's above GOMAXPROCS too, because they may come back.
            for p in rt.all_made_ps() {
                member_left(p);
                p.gang.turn.store(ptr::null_mut(), Ordering::Release);
                p.gang.called.store(false, Ordering::Relaxed);
            }
            m.ends = None;
            others_begin(rt, m, time::now());
        });
    }
}

/// Starts a P that was idle when a gang's turn began there, if a member is ready.
fn start_if_idle(rt: &Runtime, p: PRef) {
    if p.gang.turn().is_some_and(|gang| !gang.ready.is_empty()) && rt.take_idle_p(p) {
        start::start_m(rt, p, false);
    }
}

fn change_row(rt: &Runtime, m: &mut Matrix, now: i64) -> i64 {
    match m.ends {
        Some(end) if now < end => {}
        Some(_) if !others_wait(rt) && !m.iter().any(|g| !is_active(g) && !g.ready.is_empty()) => {
            m.ends = Some(now + rt.slice);
        }
        Some(_) => {
            m.iter().for_each(|gang| end_turn(rt, gang));
            m.ends = None;
            others_begin(rt, m, now);
        }
        None => {}
    }
    if m.ends.is_none() {
        let until = others_end(rt, m, now);
        if now < until {
            return until;
        }
    }
    let slices = begin_turns(rt, m);
    if m.ends.is_none() && slices > 0 {
        m.ends = Some(now + rt.slice * i64::from(slices));
    }
    m.ends.unwrap_or(now + rt.slice)
}

/// How many P's the gang has in its turn.
fn columns_of(rt: &Runtime, gang: &Gang) -> u32 {
    gang.members.load(Ordering::Relaxed).clamp(1, rt.procs() as u32)
}

fn is_active(gang: &Gang) -> bool {
    gang.columns.load(Ordering::Relaxed) > 0
}

fn is_idle(p: PRef) -> bool {
    p.status() == PStatus::Idle
}

/// How many tasks wait that are not members of gangs.
fn others_queued(rt: &Runtime) -> usize {
    let of_nodes =
        rt.nodes.iter().map(|n| n.runq.len() + n.placed() + n.high.len() + n.preempted.len());
    // Members that are pinned to a thread which runs another goroutine count too.
    let of_ms = rt.ps().filter_map(|p| p.runner()).map(|m| m.pinned.len());
    of_nodes.sum::<usize>() + rt.ps().map(|p| p.queued()).sum::<usize>() + of_ms.sum::<usize>()
}

fn others_wait(rt: &Runtime) -> bool {
    others_queued(rt) > 0
}

/// How many decisions the P's have made.
fn ticks(rt: &Runtime) -> u32 {
    rt.ps().fold(0, |sum, p| sum.wrapping_add(p.tick.load(Ordering::Relaxed)))
}

fn others_begin(rt: &Runtime, m: &mut Matrix, now: i64) {
    (m.others_since, m.ticks) = (now, ticks(rt));
}

/// Estimates the end of the turn of the goroutines that are in no gang, in ns: when each of them
/// has had a P once, for as long as each has kept a P so far. Returns `now` if none of them waits
/// and enough P's are idle for the next gang.
fn others_end(rt: &Runtime, m: &Matrix, now: i64) -> i64 {
    let queued = others_queued(rt);
    let wanted = m.iter().find(|g| !g.ready.is_empty()).map_or(0, |g| columns_of(rt, g));
    if queued == 0 && rt.idle.ps() >= wanted {
        return now;
    }
    let elapsed = now - m.others_since;
    if elapsed < rt.slice {
        return m.others_since + rt.slice;
    }
    let running = rt.ps().filter(|&p| !is_idle(p)).count();
    let decisions = i64::from(ticks(rt).wrapping_sub(m.ticks).max(1));
    let round = elapsed.saturating_mul((queued + running) as i64) / decisions;
    // At most one slice from now, so that the estimate is made again: fewer goroutines may wait by
    // then, or each may take less time.
    m.others_since.saturating_add(round).min(now + rt.slice)
}

/// Begins the turns of the gangs that are ready and fit in side by side, in the order of the list,
/// and moves them to the end of the list. Returns how many slices they need to run all their
/// members.
fn begin_turns(rt: &Runtime, m: &mut Matrix) -> u32 {
    let mut slices = 0;
    // Each of these gangs takes a P at least.
    for _ in 0..rt.procs() {
        let Some(gang) = m.iter().find(|g| !is_active(g) && !g.ready.is_empty()) else { break };
        let columns = columns_of(rt, gang);
        if !activate(rt, gang, columns as usize) {
            // The gang is the first of the next row.
            break;
        }
        m.remove(gang);
        m.append(gang);
        slices = slices.max(gang.members.load(Ordering::Relaxed).div_ceil(columns));
    }
    slices
}

/// Gives the gang `columns` P's that no other gang has, of one node if a node has enough. Returns
/// false if there are fewer.
fn activate(rt: &Runtime, gang: &'static Gang, columns: usize) -> bool {
    let is_free = |p: &PRef| p.gang.turn().is_none();
    if rt.ps().filter(is_free).count() < columns {
        return false;
    }
    let free = |node: usize| {
        let ps = &rt.nodes[node].ps;
        (0..ps.len()).filter(|&i| is_free(&ps.get(i))).count()
    };
    let most = (0..rt.nodes.len()).max_by_key(|&n| free(n)).unwrap_or(0);
    let node = Some(gang.node.load(Ordering::Relaxed))
        .filter(|&n| n < rt.nodes.len() && free(n) >= columns);
    let node = node.unwrap_or(most);
    gang.node.store(node, Ordering::Relaxed);
    gang.columns.store(columns as u32, Ordering::Relaxed);
    let ps = || {
        let all = rt.nodes_from(node).flat_map(|n| (0..n.ps.len()).map(|i| n.ps.get(i)));
        all.filter(is_free)
    };
    // Idle P's first, then any P without a turn.
    for p in ps().filter(|&p| is_idle(p)).chain(ps()).take(columns) {
        // Release: pairs with the Acquire in `Column::turn`. SeqCst: pairs with `stop_looking`.
        p.gang.turn.store(ptr::from_ref(gang).cast_mut(), Ordering::Release);
        p.attention.fetch_or(attention::GANG, Ordering::SeqCst);
        if !is_idle(p) {
            call(p);
        }
    }
    // Pairs with the fence in `push`: either `push` sees the gang's turn, or `update_row` sees the
    // task and starts idle P's.
    fence(Ordering::SeqCst);
    true
}

/// Ends the gang's turn on its P's; members that run give way.
fn end_turn(rt: &Runtime, gang: &Gang) {
    if gang.columns.swap(0, Ordering::Relaxed) == 0 {
        return;
    }
    for p in rt.ps().filter(|p| p.gang.is_turn_of(gang)) {
        p.gang.turn.store(ptr::null_mut(), Ordering::Release);
        if p.gang.runs_member() {
            call(p);
        }
    }
}
