//! The life of an M on g0, the thread's own stack: it looks for goroutines and runs them until the
//! thread leaves.

use super::ordered;
use super::stop::{self, go_idle};
use crate::arch::{self, Place};
use crate::os::signal::AltStack;
use crate::os::thread::{self, Thread};
use crate::sched::ext::{exceptions, gang, hooks};
use crate::sched::run::bound::{self, is_own, may_run};
use crate::sched::run::order::{
    OTHERS, is_asked, next_local, next_tick, own_timer_due, preempted_in_turn,
};
use crate::sched::run::owner::{make_idle, release_p};
use crate::sched::run::start::{self, take_gift};
use crate::sched::run::steal::{
    from_global, more_for_thieves, of_low_priority, steal, work_anywhere,
};
use crate::sched::run::switch::{Away, Left, assign};
use crate::sched::run::{group, ready, stacks, traced};
use crate::sched::take::{blocking, events, loan, preempt, world};
use crate::sched::types::attention;
use crate::sched::types::g::{GRef, flags};
use crate::sched::types::m::{self, M, MRef};
use crate::sched::types::p::{self, PRef, count};
use crate::sched::types::runtime::{Runtime, rt};
use crate::sched::types::task::{Task, TaskKind};
use crate::sched::wait::{netpoll, timers};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering;

/// After a goroutine has run this number of times in a row on a node other than its stack's, its
/// stack is moved to that node.
const REMOTE_RUNS: u16 = 8;

/// The loop of an M on g0: runs goroutines until the thread is to leave.
pub fn run(m: MRef) {
    while let Some(g) = next(m) {
        if (m.is_hooked() || g.has(flags::HELD)) && !hooks::enter(m, g) {
            continue;
        }
        if m.is_traced() {
            traced::runs(m.p(), g);
        }
        let mut goes_on = switch_to(m, g);
        while let Some(g) = goes_on {
            goes_on = switch_to(m, g);
        }
    }
    hooks::stop(m);
    group::leave(m);
}

/// Runs the goroutine until it leaves for g0. Returns the goroutine if it left for `gs_blocking`,
/// and goes on without a P.
#[inline(always)]
fn switch_to(m: MRef, g: GRef) -> Option<GRef> {
    let mut here = Place::new();
    here.note_modes();
    m.curg.set(g.as_ptr());
    count(&m.switches, 1);
    let away = Away::to(m, g.context.load(Ordering::Relaxed), false);
    // SAFETY: the goroutine is at rest, and this M owns it.
    let left = unsafe {
        let to = g.context.load(Ordering::Relaxed);
        Left::nothing(m).switch(m.g0_context.as_ptr(), to, &mut here)
    };
    away.back();
    let from = left.arg;
    if m.is_hooked() {
        hooks::left(m, left);
    } else {
        // SAFETY: the switch has just given `left`, and it is settled once.
        unsafe { left.settle() };
    }
    exceptions::save_left(m);
    if m.blocking.get().is_null() {
        return None;
    }
    // SAFETY: the goroutine at that address has left for g0 and waits for that call.
    blocking::run_on_g0(m, unsafe { GRef::at(from) })
}

/// Finds the next goroutine for this M. `None` if the thread leaves. Go's `schedule`.
#[inline(always)]
pub fn next(m: MRef) -> Option<GRef> {
    loop {
        hooks::follow(m);
        if m.p.get().is_null() {
            if leaves_without_p(m) {
                return None;
            }
            wait_for_p(m);
            continue;
        }
        if stops_for_world(m) {
            continue;
        }
        if m.must_leave() {
            leave_with_p(m);
            return None;
        }
        let Some(task) = next_task(m) else {
            if ordered::is_over(m) {
                return None;
            }
            continue;
        };
        stop_spinning(m);
        if let Some(g) = make_current(m, task) {
            return Some(g);
        }
    }
}

/// Whether the thread of an M without a P leaves.
fn leaves_without_p(m: MRef) -> bool {
    hooks::idle(m);
    let leaves = m.must_leave();
    if leaves {
        m.set_between(false);
        leave_timers(rt());
    }
    leaves
}

/// Sleeps until the M has a P, or something else to do.
fn wait_for_p(m: MRef) {
    if m.is_locked() {
        bound::stop_locked(m);
    } else {
        stop::stop(m, None);
    }
}

/// Does what the M has been asked for. Returns true if the world is being stopped and the M has
/// given its P to the stopper.
#[inline(always)]
fn stops_for_world(m: MRef) -> bool {
    let p = m.p();
    if !is_asked(p) {
        return false;
    }
    hooks::leave_entered(m);
    world::give_way(m, p)
}

/// Passes the P on: the thread leaves.
#[cold]
#[inline(never)]
fn leave_with_p(m: MRef) {
    hooks::leave_entered(m);
    hooks::idle(m);
    ready::put_back_stash(m, m.p());
    if m.spinning.replace(false) {
        rt().idle.spin_ended();
    }
    if loan::end(m) {
        return;
    }
    let p = release_p(m);
    if rt().exiting.load(Ordering::Acquire) {
        // No hand-off: an M that got this P would leave as well, and would start yet another M for
        // the P.
        make_idle(rt(), p);
    } else {
        start::hand_off(p);
    }
}

/// Takes the task that this M was given, or finds a task. `None`: the caller looks again from the
/// start.
#[inline(always)]
fn next_task(m: MRef) -> Option<Task> {
    if m.is_free() {
        return m.stash.take().or_else(|| find_runnable(m));
    }
    if !m.is_locked() || m.bubble().is_some() {
        return ordered::next_task(m);
    }
    let given = m.stash.take();
    let task = next_bound(m, m.p(), given);
    if task.is_none() {
        stop_spinning(m);
        hooks::idle(m);
        if !loan::end(m) {
            start::hand_off(release_p(m));
        }
    }
    task
}

/// Prepares a task that the M has taken to run next. `None`: the task is for another M, or waits
/// for a stack.
#[inline(always)]
fn make_current(m: MRef, mut task: Task) -> Option<GRef> {
    if let TaskKind::Goroutine(g) = task.kind()
        && !may_run(m, g)
    {
        hooks::leave_entered(m);
        hooks::idle(m);
        bound::pass_on(m, g);
        return None;
    }
    if m.is_attached() && !is_own(m, &task) {
        task = bound::move_away(m, task).err()?;
    }
    match task.kind() {
        TaskKind::Goroutine(g) if g.has(flags::UNBORN) && stacks::equip(m, g).is_none() => {
            if !ordered::ends_for_want_of_stack(m, g) {
                rt().aside.wait_for_stack(task);
            }
            None
        }
        TaskKind::Goroutine(g) => {
            let p = m.p();
            if g.has(flags::REMOTE) {
                run_remote(p, g);
            }
            if g.has(flags::TIMED) {
                p.note_wait(g);
            }
            assign(p, g);
            Some(g)
        }
        TaskKind::Newborn(n) => {
            let p = m.p();
            let Some(g) = stacks::descriptor(p) else {
                p.rt().aside.wait_for_stack(task);
                return None;
            };
            // SAFETY: the newborn came out of a queue, so this M owns it.
            unsafe { stacks::begin_on(p, n, g) };
            if !p.rt().aside.tasks.is_empty() {
                // There was a stack, so there may be more: a task that waits aside tries again.
                p.rt().aside.try_next(p);
            }
            Some(g)
        }
    }
}

/// Chooses what a locked M runs next with its P: `task`, or another goroutine that is bound to the
/// M or may begin on it. `None`: there is no such goroutine, or others have waited for the P for
/// long enough.
#[cold]
#[inline(never)]
fn next_bound(m: MRef, p: PRef, task: Option<Task>) -> Option<Task> {
    let is_bound = |t: &Task| matches!(t.kind(), TaskKind::Goroutine(g) if g.has(flags::BOUND));
    if let Some(task) = task {
        if is_bound(&task) {
            return Some(task);
        }
        hooks::leave_entered(m);
        ready::push_shared(p, task);
        return None;
    }
    if make_due_ready(m, p) {
        start::work_added_on(p);
    }
    // A locked M never serves the P's own queues. So once in `OTHERS` decisions it gives the P up
    // if tasks wait.
    if next_tick(p).is_multiple_of(OTHERS) && (p.has_work() || work_anywhere(rt())) {
        return None;
    }
    m.pinned.pop().or_else(|| group::steal(m))
}

/// Passes the watch over the timers of idle P's to another M: this thread leaves without a P. Its M
/// may have been the timer watcher, and other M's may have gone to sleep meanwhile without a
/// deadline.
fn leave_timers(rt: &Runtime) {
    if !rt.exiting.load(Ordering::Acquire) {
        rt.timer_added(timers::next_of_idle_ps());
    }
}

/// Stops the M's spinning: the M has found work, or something else to do.
fn stop_spinning(m: MRef) {
    if m.spinning.replace(false)
        && let Some(one) = rt().idle.spin_found(|| more_for_thieves(m.node.get()))
    {
        start::start_one(one, None, m.node.get());
    }
}

/// Fires the timers of the M's own P that are due, and polls its files if a poll is due. Goroutines
/// made ready here run before the turn of the goroutines in `runnext` is over. Returns true if
/// other M's were not told of goroutines whose deadlines have passed.
#[inline(always)]
fn make_due_ready(m: MRef, p: PRef) -> bool {
    let (mut events, mut owes) = (0, false);
    if let Some(now) = own_timer_due(p) {
        // In an ordered run one deadline after the other, however late the clock was read.
        let until = if m.course().is_some() { p.timers.next().min(now) } else { now };
        (events, owes) = p.tell_later(|| p.timers.run(until));
    }
    if netpoll::is_due(p) {
        events += netpoll::poll(m, p);
    }
    if events > 0 {
        p.pace.set_events(events);
        p::read_clock_next(p);
    }
    owes
}

/// Looks for work, first in the P's own queues and then farther and farther away. `None`: the
/// caller looks again from the start. Go's `findRunnable`. seed: B7, N4, S10
#[must_use]
#[inline(always)]
pub fn find_runnable(m: MRef) -> Option<Task> {
    let p = m.p();
    // Timers and files that are due make goroutines ready in the queues below.
    let owes = make_due_ready(m, p);
    let task = find_in_queues(m, p);
    // A single goroutine is this M's own next work: waking another M first would only delay it.
    if owes && p.queued() > 0 {
        start::work_added_on(p);
    }
    task
}

/// The part of [`find_runnable`] after timers and files.
#[inline(always)]
fn find_in_queues(m: MRef, p: PRef) -> Option<Task> {
    let rt = p.rt();
    // Events of another P: this P was taken from its M to serve them (`P::serves`).
    if p.serves.load(Ordering::Relaxed) != 0
        && let Some(task) = events::take_events_to_serve(rt, m, p)
    {
        return Some(task);
    }

    // A gang's member, if it is the gang's turn.
    if p.attention.load(Ordering::Relaxed) & attention::GANG != 0
        && let Some(task) = gang::next(rt, p)
    {
        return Some(task);
    }
    // A goroutine that waits to begin on another member of the M's worker group, in every second
    // decision: that member may be in a call for long, and this M may always have other work.
    if p.tick.load(Ordering::Relaxed).is_multiple_of(2)
        && let Some(task) = group::steal(m)
    {
        next_tick(p);
        return Some(task);
    }
    // The loan of this P ends once the events for which it was borrowed are served.
    if p.loan.is_open() && ends_loan(m) {
        return None;
    }
    // A goroutine that was preempted long ago.
    if let Some(task) = preempted_in_turn(p) {
        return Some(task);
    }
    // The P's own queues; the node's global queue.
    if let Some(task) = next_local(m, p).or_else(|| from_global(p)) {
        return Some(task);
    }
    // The P's files, even if they are not due.
    if netpoll::poll_before_idle(m, p) > 0
        && let Some(task) = next_local(m, p)
    {
        return Some(task);
    }
    if netpoll::poll_after_writes(m, p) > 0
        && let Some(task) = next_local(m, p)
    {
        return Some(task);
    }
    if is_asked(p) {
        return None;
    }
    hooks::idle(m);
    // Other members of the M's worker group.
    if let Some(task) = group::steal(m) {
        return Some(task);
    }
    // Other P's of the node; then node by node its global queue and its P's.
    if !p.alone.get()
        && let Some(task) = steal(rt, m, p)
    {
        netpoll::poll_after_queue(p);
        return Some(task);
    }
    // A gang's member out of turn; goroutines of low priority.
    if let Some(task) = gang::out_of_turn(rt).or_else(|| of_low_priority(rt, p)) {
        return Some(task);
    }
    if is_asked(p) {
        return None;
    }
    // Nothing: the M gives its P up and sleeps.
    go_idle(rt, m);
    None
}

/// Ends the loan of the M's P if the M has nothing else to do: gives the P back and sleeps. Returns
/// false if the M keeps the P.
#[cold]
#[inline(never)]
fn ends_loan(m: MRef) -> bool {
    let p = m.p();
    if bound::is_wanted(m)
        || loan::is_needed(p)
        || p.poll.is_waited_for() && netpoll::poll(m, p) > 0
    {
        return false;
    }
    hooks::idle(m);
    stop_spinning(m);
    stop::end_loan(m)
}

/// Counts a run of a goroutine whose stack belongs to another node. After [`REMOTE_RUNS`] such runs
/// in a row, moves the stack's memory to this node. On g0. seed: N9
#[cold]
#[inline(never)]
fn run_remote(p: PRef, g: GRef) {
    let (rt, stack) = (rt(), g.stack_of_running());
    if stack.node() == p.node {
        return;
    }
    let runs = g.remote_runs.get() + 1;
    g.remote_runs.set(runs);
    if runs < REMOTE_RUNS {
        return;
    }
    g.remote_runs.set(0);
    g.set_flag(flags::REMOTE, false);
    // The nodes of a synthetic machine have no memory of their own.
    if let Some(os_node) = p.of_node().memory {
        let pool = &rt.nodes[stack.home()].stacks;
        // SAFETY: the goroutine is at rest, and this M owns it.
        let from = unsafe { arch::lowest_in_use(g.context.load(Ordering::Relaxed)) };
        let (stack, pages) = pool.migrate(stack, from, p.node, os_node);
        g.stack.set(Some(stack));
        count(&p.stats.migrations, 1);
        count(&p.stats.pages_moved, pages as u64);
    }
}

/// The main function of the library's own threads that run goroutines.
pub extern "C" fn thread_main(arg: *mut c_void) -> *mut c_void {
    // SAFETY: `make_m` has passed an M.
    let m = unsafe { MRef::from_ptr(arg.cast::<M>()) };
    m.thread.set(Some(Thread::current()));
    thread::set_up_current(c"gosched");
    let alt = AltStack::set_up();
    m.alt_stack.set(alt.as_ref().map_or(0, AltStack::start));
    m.bind_to_thread();
    // SAFETY: the M is bound to this thread.
    unsafe { m::set_current(Some(m)) };
    m.bind_to(m.node.get());
    preempt::allow();
    if m.is_spare.replace(false) {
        rt().nodes[m.node.get()].add_idle_m(m, false);
        rt().template.spare_came(rt());
    }
    m.sleep(-1);
    take_gift(m);
    run(m);
    // SAFETY: the thread has left its last goroutine.
    unsafe { m::set_current(None) };
    m.alt_stack.set(0);
    drop(alt);
    rt().thread_leaves(m);
    ptr::null_mut()
}
