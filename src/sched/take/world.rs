//! Stopping the world, and changing GOMAXPROCS. seed: S1
//!
//! The stopper asks every P to stop (`attention`), takes the P's that no M runs, and waits for the
//! rest. A goroutine gives way when it next enters the library. If it doesn't for a while, the
//! stopper takes its P if its thread is blocked, or else sends the signal (`preempt`).

use super::preempt::{self, Doing};
use super::{call, handler};
use crate::numa;
use crate::os::{futex, time};
use crate::sched::prim::limits::PROCS as MAX;
use crate::sched::run::owner::{self, release_p};
use crate::sched::run::{order, preempted, ready, requests, stacks, start, steal};
use crate::sched::types::attention::{SLICE, STOP, TO_G0};
use crate::sched::types::g::{GRef, flags};
use crate::sched::types::m::{self, MRef};
use crate::sched::types::p::{PRef, PStatus};
use crate::sched::types::runtime::{Runtime, rt};
use crate::sched::types::task::{Task, TaskKind};
use crate::sched::wait::{netpoll, timers};
use core::sync::atomic::{Ordering, fence};

/// The pause between two checks of a stopper, in ns: a P may have entered a system call meanwhile.
const RECHECK: i64 = 100_000;

/// Proof that the owner of this value has stopped the world.
#[must_use]
pub struct Stopped(());

impl Stopped {
    /// Recreates a [`Stopped`] that was forgotten.
    ///
    /// # Safety
    /// The world is stopped, and its `Stopped` was forgotten. One call for each forgotten
    /// `Stopped`.
    pub unsafe fn again() -> Stopped {
        Stopped(())
    }
}

/// Stops every P but the caller's own: no other goroutine runs when this returns. A goroutine that
/// calls this stays on its thread, and no other goroutine runs there meanwhile. If it has no P
/// (lost in a block, or left behind after a call), it has a P when this returns.
pub fn stop() -> Stopped {
    let rt = rt();
    while !rt.world.lock.try_lock() {
        // Another stopper has the lock, and may be waiting for the caller.
        handler::wait_for_stopper(RECHECK);
    }
    let asked_at = time::now();
    rt.world.asked_at.store(asked_at, Ordering::Relaxed);
    // A caller that holds a P keeps it.
    let own = m::holds_p().then(m::with_p).flatten().map(|m| m.p());
    rt.world.stopping.store(true, Ordering::SeqCst);
    let others = || rt.ps().filter(|&p| Some(p) != own);
    others().for_each(|p| requests::ask(p, STOP));
    // Pairs with the fence in `make_idle`: either this thread finds the P in the set of idle P's,
    // or the thread that makes the P idle sees that the world is being stopped.
    fence(Ordering::SeqCst);
    loop {
        // Acquire: pairs with the Release in `arrived`.
        let seen = rt.world.note.load(Ordering::Acquire);
        if others().filter(|&p| !halt(rt, p)).count() == 0 {
            break;
        }
        if !futex::wait(&rt.world.note, seen, time::now() + RECHECK) {
            others().filter(|&p| !halt(rt, p)).for_each(|p| press(rt, p));
        }
    }
    rt.world.stops.note(time::now() - asked_at);
    if own.is_none() {
        handler::take_stopped(rt);
    }
    if let Some(m) = m::with_p() {
        m.stops_world.set(true);
    }
    Stopped(())
}

/// Takes the P if its thread is blocked, or sends the signal if its goroutine computes. For a P
/// whose goroutine doesn't call the library.
fn press(rt: &Runtime, p: PRef) {
    match preempt::doing(rt, p) {
        Doing::Blocked(m) => {
            preempt::take_outside(rt, p, m, PStatus::Stopped);
        }
        Doing::Computes => {
            preempt::interrupt(rt, p);
        }
        Doing::Library | Doing::Unknown => {}
    }
}

/// Whether the P has stopped. Takes a P that no M runs.
fn halt(rt: &Runtime, p: PRef) -> bool {
    if rt.take_idle_p(p) {
        p.become_stopped();
    }
    p.take_from_call(PStatus::Stopped) || p.status() == PStatus::Stopped
}

/// Whether the goroutine's time slice may end on this M.
fn sliceable(m: MRef, g: GRef) -> bool {
    !g.has(flags::NOPREEMPT) && !m.is_locked() && !m.stops_world.get()
}

/// On g0: answers the requests to the P. True: the world is being stopped, and the M has given up
/// its P.
pub fn give_way(m: MRef, p: PRef) -> bool {
    // Acquire: pairs with the stopper's SeqCst.
    let asked = p.attention.fetch_and(!(TO_G0 | SLICE), Ordering::Acquire);
    if asked & STOP == 0 {
        requests::forget_answered(rt());
    }
    match m.stash.take().as_ref().map(Task::kind) {
        Some(TaskKind::Goroutine(g))
            if asked & (STOP | SLICE) != 0 && preempted::is_interrupted(g) =>
        {
            ready::put_back(p, Task::goroutine(g));
        }
        // A goroutine that is back from a blocking call goes behind the others.
        Some(TaskKind::Goroutine(g))
            if asked & STOP != 0 || sliceable(m, g) && asked & SLICE != 0 =>
        {
            ready::push_yielded(p, g);
        }
        Some(TaskKind::Newborn(n)) if asked & STOP != 0 => ready::push_shared(p, Task::newborn(n)),
        Some(TaskKind::Goroutine(g)) => m.stash.set(Some(Task::goroutine(g))),
        Some(TaskKind::Newborn(n)) => m.stash.set(Some(Task::newborn(n))),
        None => {}
    }
    if asked & STOP == 0 {
        if asked & SLICE != 0 {
            order::end_turn(p);
            // The goroutine in the stash runs without another decision, but sysmon must see a new
            // turn.
            order::next_tick(p);
        }
        return false;
    }
    if m.spinning.replace(false) {
        rt().idle.spin_ended();
    }
    release_p(m);
    p.become_stopped();
    requests::arrived();
    true
}

/// Lets the world go on: P's with work get M's, the others become idle.
pub fn start(_: Stopped) {
    let rt = rt();
    // The stopper keeps its P even in a call that it has announced since: see `call::mark`.
    let own = m::current().and_then(|m| rt.ps().find(|p| p.is_run_by(m)));
    rt.world.pauses.note(time::now() - rt.world.asked_at.load(Ordering::Relaxed));
    rt.world.stopping.store(false, Ordering::SeqCst);
    let mut with_work = Vec::new();
    for p in rt.ps() {
        // `own` too: `set_procs` may have given the caller another P since the stop.
        p.attention.fetch_and(!STOP, Ordering::SeqCst);
        if Some(p) == own {
            continue;
        }
        p.become_idle();
        if p.has_work() {
            with_work.push(p);
        } else {
            owner::make_idle(rt, p);
        }
    }
    if let Some(m) = m::current().filter(|m| m.stops_world.replace(false)) {
        if (rt.points.has_old_hooks)(m)
            && let Some(p) = own
        {
            requests::ask(p, TO_G0);
        }
        call::leave_p_kept_for_stop(m);
    }
    for p in with_work {
        start::start_m(rt, p, false);
    }
    // SAFETY: the stopper holds the lock, as `Stopped` proves.
    unsafe { rt.world.lock.unlock() };
    if steal::work_anywhere(rt)
        && let Some(one) = rt.idle.work_added()
    {
        start::start_one(one, None, rt.any_node());
    }
    rt.timer_added(timers::next_of_idle_ps());
}

/// Changes the number of P's. The tasks, timers and caches of superfluous P's go to P 0. Go's
/// `procresize`. False: there is no memory, and the number is as before.
#[must_use]
fn set_procs(world: &Stopped, n: usize) -> bool {
    let _ = world;
    let rt = rt();
    let before = rt.procs();
    let n = n.clamp(1, MAX);
    // All steps that may fail come first. P's that were made before a failure stay unused.
    let first = rt.p(0);
    let timers = (n..before).map(|id| rt.p(id).timers.len()).sum();
    if (before..n).any(|id| rt.make_p(id, n).is_none()) || !first.timers.keep_places(timers) {
        return false;
    }
    for id in before..n {
        let p = rt.p(id);
        p.timers.close(false, None);
        // The inbox is new, or was closed: it is empty.
        let _ = p.inbox.close(false);
        p.attention.store(STOP, Ordering::Relaxed);
        p.become_stopped();
    }
    rt.set_proc_count(n);
    rt.gangs.begin_anew(rt);
    for id in n..before {
        retire(rt.p(id), first);
    }
    first.timers.give_places_back(timers);
    for p in rt.ps() {
        p.alone.set(n == 1);
    }
    if let Some(m) = m::with_p()
        && m.p().id as usize >= n
    {
        let old = release_p(m);
        old.become_dead();
        // As in `retire`, whose `runner_left` came before this M left the P.
        fence(Ordering::SeqCst);
        netpoll::runner_left(old);
        owner::acquire_p(m, first);
    }
    true
}

/// Moves the tasks, timers and caches of a superfluous P to `to` and its node.
fn retire(p: PRef, to: PRef) {
    let node = to.of_node();
    // SAFETY: the words of rings are tasks; that of `runnext` is a task or 0.
    let task = |word| unsafe { Task::from_word(word) };
    let local = core::iter::from_fn(|| task(p.runnext.swap(0, Ordering::Acquire)))
        .chain(core::iter::from_fn(|| p.private.pop_back(true).and_then(task)))
        .chain(core::iter::from_fn(|| p.shared.pop_front(true).and_then(task)));
    local.for_each(|task| node.runq.push(task));
    let mut inbox = p.inbox.close(true);
    while let Some(task) = inbox.pop() {
        node.runq.push(task);
    }
    p.timers.close(true, Some(to));
    stacks::flush_caches(p, p.of_node());
    p.become_dead();
    // Pairs with the fences in `netpoll::wait_begins` and `stop_attending`: the thread that fences
    // last sees that a goroutine waits and that no M runs the P.
    fence(Ordering::SeqCst);
    netpoll::runner_left(p);
}

/// Sets GOMAXPROCS and returns the former value; `n <= 0` only asks. `-ENOMEM`: nothing has
/// changed. In a bubble: 1, and nothing changes. GOMAXPROCS follows the machine no more.
pub fn gomaxprocs(n: i32) -> i32 {
    let rt = rt();
    if m::current().is_some_and(|m| m.bubble().is_some()) {
        return 1;
    }
    let before = rt.procs() as i32;
    // An ordered run has one P.
    if n <= 0 || rt.course.is_some() {
        return before;
    }
    // If GOMAXPROCS followed the machine so far, it may be about to change.
    let followed = rt.follower.turn(false);
    if n == before && !followed {
        return before;
    }
    let world = stop();
    let before = rt.procs() as i32;
    let done = set_procs(&world, n as usize);
    start(world);
    if done { before } else { -libc::ENOMEM }
}

/// What the process may use now.
pub struct Machine {
    /// The default GOMAXPROCS.
    pub procs: usize,
    /// The CPUs of each node, and all of them. `None`: as at the start.
    pub cpus: Option<(Vec<Vec<usize>>, Vec<usize>)>,
}

/// Sets the CPUs of the nodes as the machine is now, and GOMAXPROCS unless the host has chosen a
/// number meanwhile. Returns the former number. `-ENOMEM`: the number is as before.
pub fn follow(now: Machine) -> i32 {
    let rt = rt();
    let world = stop();
    let before = rt.procs();
    let changes = rt.follower.is_on() && now.procs != before;
    // The CPUs come first: new P's go where they are.
    if let Some((of_nodes, all)) = &now.cpus {
        rt.set_cpus(of_nodes, all);
    }
    let done = !changes || set_procs(&world, now.procs);
    if let Some((mut of_nodes, all)) = now.cpus {
        let ps: Vec<usize> = rt.nodes.iter().map(|node| node.ps.len()).collect();
        numa::deal(&mut of_nodes, &ps, |a, b| rt.topology.distances[a][b]);
        rt.set_cpus(&of_nodes, &all);
    }
    start(world);
    if done { before as i32 } else { -libc::ENOMEM }
}
