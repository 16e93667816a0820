//! Starting M's: work that was added, and P's that were handed off, find a thread.

use super::owner::{acquire_p, make_idle, take_idle_p};
use super::preempted::{self, waiting_in_handler, with_its_m};
use super::{post, ready, steal};
use crate::os::forking::is_forking;
use crate::os::thread::Thread;
use crate::os::time;
use crate::sched::prim::idle::StartOne;
use crate::sched::types::attention::STOP;
use crate::sched::types::m::{self, MRef};
use crate::sched::types::node::{Node, priority};
use crate::sched::types::p::{PRef, count};
use crate::sched::types::runtime::{Runtime, rt};
use crate::sched::types::task::Task;
use crate::sched::wait::timers;
use core::sync::atomic::{Ordering, fence};

/// Announces work: wakes an M if a P is idle and no M spins. `near`: the P that the work was given
/// to.
#[inline(always)]
pub fn work_added(near: Option<PRef>, node: usize) {
    if let Some(one) = rt().idle.work_added() {
        wake(one, near, node);
    }
}

/// [`work_added`] for work in the queues of the P, or of its node.
#[inline(always)]
pub fn work_added_on(p: PRef) {
    if let Some(one) = p.rt().idle.work_added() {
        wake(one, None, p.node as usize);
    }
}

/// Whether the P has kept work for itself that other M's could do.
#[inline(always)]
pub fn keeps_anything(p: PRef) -> bool {
    !p.private.is_empty() && !p.alone.get()
}

/// Wakes an M for the work that the P may have kept for itself: the P makes no decisions for a
/// while.
#[inline(always)]
pub fn share_what_is_kept(p: PRef) {
    if keeps_anything(p) {
        p.set_quick(false);
        work_added_on(p);
    }
}

/// [`start_one`] out of line: mostly no M need be woken.
#[cold]
#[inline(never)]
fn wake(one: StartOne, near: Option<PRef>, node: usize) {
    start_one(one, near, node);
}

/// Up to this number of M's for each P are made at once; sysmon makes more, one each time it
/// checks. seed: S11
pub const PROMPT: usize = 2;

/// Lets an M look for work on an idle P: `near` if it is idle, else a P of the node, else any.
pub fn start_one(_one: StartOne, near: Option<PRef>, node: usize) {
    let rt = rt();
    if let Some(p) = take_idle_p(rt, near, node) {
        return start_m(rt, p, true);
    }
    // Other M's have taken all idle P's and will look for work. But a P may have become idle since,
    // and a thread that added work since then has relied on this spinner.
    rt.idle.spin_ended();
    if steal::work_anywhere(rt)
        && let Some(p) = take_idle_p(rt, near, node)
    {
        rt.idle.spin_begins();
        start_m(rt, p, true);
    }
}

/// Runs a P, which the caller owns: on the M that ran it last, on an idle M of its node, or on a
/// new M if there are few. Else sysmon finds an M. seed: N1, N3
pub fn start_m(rt: &Runtime, p: PRef, spinning: bool) {
    match m_for(rt, p, may_create(rt)) {
        Some(m) => {
            give(m, Some(p), None, spinning);
        }
        None => {
            if spinning {
                rt.idle.spin_ended();
            }
            match waiting_in_handler(rt, p) {
                Some((m, task)) => {
                    if spinning {
                        // That M doesn't look for the work for which this P was taken, and other
                        // P's may be idle.
                        rt.ms_wanted.store(true, Ordering::SeqCst);
                    }
                    give(m, Some(p), task, false);
                }
                None => leave_to_sysmon(rt, p),
            }
        }
    }
}

/// [`start_m`] with the M's first task.
pub fn start_with(rt: &Runtime, p: PRef, task: Task) {
    match m_for(rt, p, may_create(rt)) {
        Some(m) => give(m, Some(p), Some(task), false),
        None => {
            // Prefer `Node::placed`, where other nodes don't find the task at once.
            let kept = if rt.nodes.len() > 1 { p.of_node().place(task) } else { Err(task) };
            if let Err(task) = kept.or_else(|task| p.inbox.try_push(task)) {
                ready::push_global(task, priority::NORMAL);
            }
            start_m(rt, p, false);
        }
    }
}

/// Whether the caller may make an M itself. A new thread inherits the CPU mask, the nice value and
/// more from the thread that makes it. What the host has set on a plain thread concerns only that
/// thread, so sysmon makes the M instead. Go's `newm`, for threads that C has started.
fn may_create(rt: &Runtime) -> bool {
    m::current().is_some() && rt.m_count.load(Ordering::Relaxed) < PROMPT * rt.procs() + 1
}

/// [`start_m`] for sysmon, which makes a new M however many there are. Returns false if there is no
/// M yet.
pub fn start_m_patiently(rt: &Runtime, p: PRef) -> bool {
    if let Some(m) = m_for(rt, p, true) {
        // Several threads may each have asked for an M. As a spinner this M wakes the next if it
        // finds work and there is more.
        rt.idle.spin_begins();
        give(m, Some(p), None, true);
        return true;
    }
    if let Some((m, task)) = waiting_in_handler(rt, p) {
        // Other threads still want an M.
        rt.ms_wanted.store(true, Ordering::SeqCst);
        give(m, Some(p), task, false);
        return true;
    }
    make_idle(rt, p);
    rt.ms_wanted.store(true, Ordering::SeqCst);
    // Pairs with the fence in `stop`: either an M that goes to sleep sees `ms_wanted`, or this
    // thread sees the M.
    fence(Ordering::SeqCst);
    if rt.nodes.iter().any(Node::has_idle_m) {
        rt.sysmon.wake();
    }
    false
}

/// Takes an M for the P: out of its pool the M that ran the P last or an M of the node, else a new
/// M if `may_create`, else an idle M of another node.
pub fn m_for(rt: &Runtime, p: PRef, may_create: bool) -> Option<MRef> {
    let node = p.of_node();
    let last = p.last_m.load(Ordering::Relaxed);
    // SAFETY: `last` is an M where it isn't null.
    let last = (!last.is_null()).then(|| unsafe { MRef::from_ptr(last) });
    last.filter(|&m| node.take_idle_m(m))
        .or_else(|| node.pop_idle_m())
        .or_else(|| if may_create { another(rt, node) } else { None })
        .or_else(|| node.neighbours.iter().find_map(|&n| rt.nodes[n].pop_idle_m()))
}

/// Makes a new M if none of the node is idle. `None`: see `new_m`, or an M is about to be idle.
pub fn another(rt: &Runtime, node: &Node) -> Option<MRef> {
    if rt.is_any_m_between() {
        return None;
    }
    // An M may have gone to sleep just before this check.
    node.pop_idle_m().or_else(|| new_m(rt, node.id))
}

/// Ends the sleep of an M that the caller has taken out of its pool.
pub fn give(m: MRef, p: Option<PRef>, task: Option<Task>, spinning: bool) {
    match p {
        None => m.set_between(true),
        Some(p) if p.loan.is_open() => m.ask_for_short_turns(),
        Some(_) => {}
    }
    m.gift.put(p, task, spinning, if rt().nodes.len() > 1 { time::now() } else { 0 });
    m.notify();
    // sysmon is woken here: otherwise the M would have to wake sysmon before it runs its first
    // goroutine.
    if p.is_some() {
        rt().sysmon.wake_if_long_asleep();
    }
}

/// Wakes an idle M without giving it a P or a task: the M checks what it is wanted for.
pub fn nudge(m: MRef) {
    if rt().nodes[m.node.seen()].take_idle_m(m) {
        give(m, None, None, false);
    }
}

/// Makes the P, which the caller owns, idle until sysmon finds or makes an M for it.
pub fn leave_to_sysmon(rt: &Runtime, p: PRef) {
    make_idle(rt, p);
    ask_for_m(rt);
}

/// Asks sysmon to find or make an M: work waits, and perhaps a P is idle.
pub fn ask_for_m(rt: &Runtime) {
    // SeqCst: pairs with the fence in `stop`: either an M that goes idle now sees `ms_wanted`, or
    // sysmon finds the M.
    rt.ms_wanted.store(true, Ordering::SeqCst);
    rt.sysmon.wake();
}

/// [`work_added`] for a caller that must make no thread, such as the signal handler: sysmon finds
/// or makes the M.
pub fn work_added_quietly(rt: &Runtime) {
    if rt.idle.needs_spinner() {
        ask_for_m(rt);
    }
}

/// Passes on a P that the caller owns and whose M can't run it: another M runs the P if there is
/// work, else the P becomes idle. Go's `handoffp`.
pub fn hand_off(p: PRef) {
    let rt = rt();
    count(&p.stats.handoffs, 1);
    if let Some((m, task)) = only_preempted(p) {
        give(m, Some(p), Some(task), false);
        return;
    }
    if let Some((m, task)) = holds_up_threads(rt, p) {
        give(m, Some(p), Some(task), false);
        return;
    }
    // A timer of another P that this P serves is in no queue.
    let serves = p.serves.load(Ordering::Relaxed) != 0;
    if serves || p.has_work() || steal::work_anywhere(rt) {
        start_m(rt, p, false);
        return;
    }
    make_idle(rt, p);
    // Work that came before the P was idle was not announced to it.
    if steal::work_anywhere(rt)
        && let Some(one) = rt.idle.work_added()
    {
        start_one(one, Some(p), p.node as usize);
    }
    // The M may also have been watching other P's timers.
    rt.timer_added(timers::next_of_idle_ps());
    post::ensure_watched(rt, p.of_node());
}

/// Takes a preempted goroutine out of its queue if nothing else waits for the P. Returns it with
/// the M on which it waits, so the P needs no other thread.
fn only_preempted(p: PRef) -> Option<(MRef, Task)> {
    let node = p.of_node();
    let others = p.attention.load(Ordering::Relaxed) != 0
        || p.serves.load(Ordering::Relaxed) != 0
        || p.has_work()
        || p.loan.is_open()
        || steal::work_but_preempted(p)
        || node.preempted.is_empty()
        || p.timers.next() <= time::now();
    if others { None } else { node.preempted.pop().map(with_its_m) }
}

/// Takes a preempted goroutine out of its queue if threads are in the hook `thread_start`. Returns
/// it with the M on which it waits. Those threads may wait for a lock that such a goroutine holds
/// (a collector's). A new thread that got the P would only join them, and so would the next,
/// without end.
fn holds_up_threads(rt: &Runtime, p: PRef) -> Option<(MRef, Task)> {
    let stops = p.attention.load(Ordering::Relaxed) & STOP != 0;
    if stops || preempted::threads_starting() == 0 {
        return None;
    }
    rt.nodes_from(p.node as usize).find_map(|n| n.preempted.pop()).map(with_its_m)
}

/// Makes an M with a thread of its own, not yet notified. `None`, for one of these reasons: the
/// limit is reached; the system gives no thread; a thread forks (sysmon makes the M afterwards); a
/// goroutine waits in the signal handler (the template thread makes an idle M); or the caller's
/// thread is locked by a goroutine. A new thread would inherit what that goroutine has done to its
/// thread (a table of files of its own, a namespace), so sysmon must make it.
pub fn new_m(rt: &Runtime, node: usize) -> Option<MRef> {
    if is_locked() || is_forking() {
        return None;
    }
    match rt.template.gate.begin_making() {
        Some(_alone) => new_m_as(rt, node, false),
        None => {
            rt.template.want_spare(rt, node);
            None
        }
    }
}

/// Whether the caller's thread is locked by a goroutine.
pub fn is_locked() -> bool {
    m::current().is_some_and(|m| m.is_locked())
}

/// Makes an M that goes into its pool as soon as its thread runs. Returns false if there is no
/// thread.
pub fn make_spare(rt: &Runtime, node: usize) -> bool {
    new_m_as(rt, node, true).is_some()
}

/// [`new_m`] without its checks. Notes whether the system gives threads.
fn new_m_as(rt: &Runtime, node: usize, is_spare: bool) -> Option<MRef> {
    // If as many threads as there are P's are in `thread_start`, where they may wait for a lock,
    // one more thread would wait too. That says nothing about whether the system has threads.
    if preempted::threads_starting() >= rt.procs() {
        return None;
    }
    let m = make_m(rt, node, is_spare);
    rt.lacks_threads.store(m.is_none(), Ordering::Relaxed);
    m
}

fn make_m(rt: &Runtime, node: usize, is_spare: bool) -> Option<MRef> {
    if !rt.count_m_in() {
        return None;
    }
    let Some(m) = rt.add_m(node) else {
        rt.count_m_out();
        rt.warn_no_thread(-libc::ENOMEM);
        return None;
    };
    m.is_spare.set(is_spare);
    match Thread::start(rt.thread_main, m.as_ptr().cast()) {
        // The thread notes itself in its M, for the thread that joins it.
        Ok(_) => Some(m),
        Err(e) => {
            rt.forget_m(m);
            rt.warn_no_thread(e);
            None
        }
    }
}

/// Takes the P and the task that came with a notification.
pub fn take_gift(m: MRef) {
    m.stash.set(m.gift.take_task());
    if let Some(p) = m.gift.take_p() {
        if rt().nodes.len() > 1 {
            rt().learn_theft_time(time::now() - m.gift.put_at());
        }
        acquire_p(m, p);
        m.spinning.set(m.gift.spins());
    }
}

/// Waits for a P that is, or will be, on its way to this M, and takes the P. `sleep` returns when
/// the M has been notified.
pub fn wait_for_gift(m: MRef, sleep: impl FnOnce()) {
    m.set_between(false);
    sleep();
    take_gift(m);
}
