//! The handler of the preemption signal: goroutines that wait there for a P, and the M's that they wait on.
//! `PREEMPTION.md`, "Preemption", has the protocol.

use super::back_from_call::{replace_p, stop_going_on};
use super::boundary;
use super::events;
use super::gang;
use super::order;
use super::owner::{acquire_p, release_p};
use super::preempt::{holds_p, is_interruptible};
use super::registers;
use super::start::{self, m_for};
use super::stop;
use super::switch;
use super::world;
use crate::arch;
use crate::os::spin::backoff;
use crate::os::{KeepErrno, cpu, signal, time};
use crate::sched::prim::forking::is_forking;
use crate::sched::types::attention::{self, STOP};
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::hold::Hold;
use crate::sched::types::hooks::STARTING;
use crate::sched::types::m::{self, INSIDE, MRef};
use crate::sched::types::node::{Node, priority};
use crate::sched::types::p::{P, PRef, count};
use crate::sched::types::runtime::{Runtime, rt};
use crate::sched::types::task::{Task, TaskKind};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::Ordering;

/// The handler, on the alternate stack of the thread. Async-signal-safe: the interrupted code is the user's, so it holds
/// no lock of this library, and the handler calls no other library.
pub fn on_signal(context: *mut c_void) {
    let Some(m) = m::current() else { return };
    if m.outside.load(Ordering::Relaxed) == INSIDE || m.curg.get().is_null() {
        // The library checks for the request.
        return;
    }
    // SAFETY: the kernel has given it to this handler.
    if unsafe { arch::was_on_alternate_stack(context) } {
        // The signal has interrupted a handler of the host's, which must not wait: the goroutine is asked again.
        return;
    }
    let _errno = KeepErrno::new();
    boundary::go_inside(m);
    registers::show_if_wanted(m, context);
    // While a thread is being made the goroutine goes on, and is asked again later.
    if let Some(_waits) = rt().template.may_wait() {
        m.context.set(context);
        stop_here(m);
        leave_context(m);
    }
    // A Release: what was done here comes before it.
    boundary::leave(m);
}

/// The M's goroutine doesn't wait in the handler any more.
fn leave_context(m: MRef) {
    m.context.set(ptr::null_mut());
    // Release: pairs with the Acquire in `preempt::stop_strays`, which then sees that there is no context.
    m.is_let_go.store(false, Ordering::Release);
}

/// In the handler: waits if the goroutine has lost its P, or has to give it away.
fn stop_here(m: MRef) {
    if !m.hold.is_held() && is_interruptible(m.g()) && m.hold.has_lost_p() {
        // The goroutine has lost its P in a block or a call, and runs without a P.
        ensure_p_here(m);
    } else if !m.p.get().is_null() && is_interruptible(m.g()) {
        let p = m.p();
        // Acquire: pairs with the stopper's SeqCst.
        let asked = p.attention.load(Ordering::Acquire);
        let heir = match asked & (STOP | attention::SLICE) {
            attention::SLICE => heir_for(rt(), p),
            _ => None,
        };
        // Without an heir for the P the goroutine goes on; sysmon makes an M and asks again.
        if asked & STOP != 0 || heir.is_some() {
            give_away(m, heir);
        }
    }
}

/// Gives the P to `heir`, or to the stopper of the world, and waits in the handler for another P.
fn give_away(m: MRef, heir: Option<(MRef, Option<Task>)>) {
    let p = m.p();
    // `go_to_g0_if_wanted_back` sets `TO_G0` again on the next P.
    p.attention.fetch_and(!(attention::TO_G0 | attention::SLICE), Ordering::Relaxed);
    wait_here(m, p.as_ptr(), |g| {
        p.is_lost_on(m.cpu.load(Ordering::Relaxed), time::now());
        queue(p, g);
        release_p(m);
        match heir {
            Some((heir, task)) => {
                count(&p.stats.handoffs, 1);
                start::give(heir, Some(p), task, false);
                // The heir may find other work first.
                start::work_added_quietly(rt());
            }
            None => {
                p.become_stopped();
                world::arrived();
            }
        }
    });
}

/// For an M without a P: takes an idle P, or waits for a P.
fn ensure_p_here(m: MRef) {
    stop_going_on(m);
    if replace_p(m) {
        return;
    }
    let has_p = wait_here(m, m.old_p.get(), |g| {
        let rt = rt();
        rt.push_quietly(rt.any_node(), Task::goroutine(g), preempted(g));
        start::ask_for_m(rt);
    });
    if has_p {
        m.hold.end();
    }
}

/// Waits in the handler until another M hands the goroutine over with a P. `publish` queues the goroutine, which is bound
/// to this thread until it goes on. False: a thread forks, so the goroutine goes on without a P, as if its P, `lost`, had
/// been taken from it.
fn wait_here(m: MRef, lost: *const P, publish: impl FnOnce(GRef)) -> bool {
    let g = m.g();
    let was_bound = g.has(flags::BOUND);
    m.by_g0.set(m.by_g0.get() + 1);
    g.set_flag(flags::BOUND | flags::INTERRUPTED, true);
    g.bound_m.set(m.as_ptr());
    g.set_status(Status::Runnable);
    g.left_at.set(time::now());
    note_cpu(m);
    m.ask_for_usual_turns();
    publish(g);
    // The handler sleeps here, and holds nothing: signals of the host need not wait for the P.
    let (context, signal) = (m.context.get(), rt().preempt_signal);
    // The goroutine comes back with a P, or without one: see `let_go`.
    while !m.has_stash() && m.p.get().is_null() {
        stop::wait_for_gift(m, || {
            // SAFETY: `on_signal` was given this context, and has not returned.
            unsafe { signal::let_others_through(context, signal, || m.sleep(-1)) };
        });
    }
    m.stash.set(None::<Task>);
    g.set_flag(flags::INTERRUPTED, false);
    g.set_flag(flags::BOUND, was_bound);
    m.by_g0.set(m.by_g0.get() - 1);
    if m.p.get().is_null() {
        m.p.set(lost);
        m.was_blocked.store(false, Ordering::Relaxed);
        g.set_status(Status::Running);
        m.hold.lose(Hold::Taken);
        return false;
    }
    computes_from_now(m.p());
    note_cpu(m);
    m.bind_to(m.p().node as usize);
    switch::assign(m.p(), g);
    true
}

/// A preempted goroutine runs on this P from now on; the caller owns the P. The new tick tells sysmon that the P has another
/// goroutine, with a time slice of its own. The goroutine runs undisturbed for as long as others had the P since a
/// preempted goroutine last ran there. The thread that gives the P calls this, and then the goroutine's thread, which may
/// wait for a CPU in between.
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
        rt().sysmon.wake_by(since + events::WAKE_UP);
    }
}

/// Notes the CPU of the calling thread, which is the M's.
fn note_cpu(m: MRef) {
    m.cpu.store(cpu::current().unwrap_or(0) as u32, Ordering::Relaxed);
}

/// [`next_waiting`] looks at this number of goroutines.
const NEAR: usize = 8;

/// Takes a goroutine that waits in the handler out of the node's queue, for the P `p`. The oldest, if it has waited for
/// a slice. Else the first of the oldest `NEAR` that was last on the CPU which the P's last goroutine leaves, else the
/// oldest. PREEMPTION.md, "The CPU of a preempted goroutine", has the reason.
#[must_use]
pub fn next_waiting(node: &Node, p: PRef) -> Option<Task> {
    let cpu = p.freed_cpu.load(Ordering::Relaxed);
    let is_near = |task: &Task| its_m(task).cpu.load(Ordering::Relaxed) == cpu;
    node.preempted.pop_if(has_waited).or_else(|| node.preempted.pop_among(NEAR, is_near))
}

/// Puts a goroutine that waits in the handler into the queue where M's look for such goroutines.
pub fn queue(p: PRef, g: GRef) {
    rt().push_quietly(p.node as usize, Task::goroutine(g), preempted(g));
}

/// The priority, and so the queue, of a goroutine that waits in the handler.
fn preempted(g: GRef) -> i8 {
    if g.priority.get() == priority::MEMBER { priority::MEMBER } else { priority::PREEMPTED }
}

/// Whether a goroutine that was preempted has waited for as long as others may run.
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

/// For a goroutine or thread that wants to stop the world while another has stopped it: waits for `pause` ns, or until
/// the world goes on. A goroutine gives its P up and waits for a P as in the handler, on its thread: it may be in the middle
/// of changing something of that thread's, such as a collector's lists of free memory.
pub fn wait_for_stopper(pause: i64) {
    let Some(m) = m::current().filter(|m| !m.curg.get().is_null()) else {
        time::sleep(pause);
        return;
    };
    // Acquire: pairs with the stopper's SeqCst.
    let stops = holds_p() && m.p().attention.load(Ordering::Acquire) & STOP != 0;
    if !(stops && wait_as_in_handler(m, || give_away(m, None))) {
        // The stopper takes the P if it comes to that.
        sleep_outside(m, pause);
    }
}

/// For a goroutine that is in the library: runs `wait`, in which it waits for a P as in the handler, on its thread.
/// False: it must not wait now, because a thread is being made, or there is no template thread yet.
fn wait_as_in_handler(m: MRef, wait: impl FnOnce()) -> bool {
    let rt = rt();
    if !rt.template.is_ready(rt) {
        return false;
    }
    let Some(_waits) = rt.template.may_wait() else { return false };
    let mut context = MaybeUninit::<libc::ucontext_t>::zeroed();
    // Here and not in `os`: the context is to describe this frame, which stays while the goroutine waits.
    // SAFETY: `getcontext` writes only to `context`.
    unsafe { libc::getcontext(context.as_mut_ptr()) };
    m.context.set(context.as_mut_ptr().cast());
    wait();
    leave_context(m);
    true
}

/// For a goroutine that is in the library: sleeps on its thread. Outside, so that a stopper of the world sees the
/// registers, and others may take the P.
fn sleep_outside(m: MRef, ns: i64) {
    boundary::leave(m);
    time::sleep(ns);
    boundary::go_inside(m);
}

/// How often a goroutine that is to keep its P, and has lost it, tries to wait for a P, and the pause between two tries,
/// in ns: a second in all.
const TRIES: u32 = 10_000;
const PAUSE: i64 = 100_000;

/// The calling goroutine is to keep its P from here on, on this thread. If it has lost its P in a block or a call, it waits
/// for a P as in the handler. If a thread is being made for so long that the goroutine can't wait, it goes on without a P: a
/// signal handler of the host's may have interrupted it while it had a lock that the maker waits for. The caller is
/// inside, and was outside before.
pub fn ensure_p_on_thread(m: MRef) {
    for _ in 0..TRIES {
        if !m.hold.has_lost_p() {
            return;
        }
        if !wait_as_in_handler(m, || ensure_p_here(m)) {
            sleep_outside(m, PAUSE);
        }
    }
}

/// The caller has stopped the world. If the caller is a goroutine that has lost its P in a block or a call, it gets one of
/// the stopped P's.
pub fn take_stopped(rt: &Runtime) {
    let Some(m) = m::with_p() else { return };
    stop_going_on(m);
    let lost = m.p();
    let Some(p) = rt.ps().find(|&p| p == lost).or_else(|| rt.ps().next()) else { return };
    m.p.set(ptr::null());
    acquire_p(m, p);
    p.attention.fetch_and(!STOP, Ordering::Relaxed);
    m.hold.end();
}

/// For a thread that is about to fork: until it opens `template.gate` again no goroutine waits in the handler. A goroutine
/// that waits there may have a lock that fork waits for. It goes on without a P, as a goroutine does whose P was taken
/// while its thread was blocked.
pub fn empty_handlers(rt: &Runtime) {
    let gate = &rt.template.gate;
    gate.close();
    // A handler of the host's may have interrupted a goroutine that waits, and fork.
    let own = usize::from(m::current().is_some_and(|m| !m.context.get().is_null()));
    let mut round = 0;
    while gate.waiting() > own {
        while let Some((m, task)) = any_in_handler(rt) {
            let_go(m, task);
        }
        // Other goroutines are about to look at the gate, or have been given a P.
        round += 1;
        backoff(round);
    }
}

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
    STARTING.len()
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
    m.is_let_go.store(true, Ordering::Relaxed);
    m.notify();
}

/// A goroutine that waits in the handler, with the M that it waits on.
pub fn with_its_m(task: Task) -> (MRef, Task) {
    (its_m(&task), task)
}

/// The M that a goroutine in the handler waits on.
fn its_m(task: &Task) -> MRef {
    match task.kind() {
        // SAFETY: a goroutine that waits in the handler is bound to an M, and M's stay mapped.
        TaskKind::Goroutine(g) => unsafe { MRef::from_ptr(g.bound_m.get()) },
        TaskKind::Newborn(_) => unreachable!("what has not run was not preempted"),
    }
}
