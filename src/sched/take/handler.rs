//! The handler of the preemption signal: goroutines that wait there for a P, and the M's that they
//! wait on. `PREEMPTION.md`, "Preemption", has the protocol.

use super::back_from_call::{replace_p, stop_going_on};
use super::{boundary, registers};
use crate::arch;
use crate::os::spin::backoff;
use crate::os::{KeepErrno, halt, signal, time};
use crate::sched::run::owner::{acquire_p, release_p};
use crate::sched::run::preempted::{self, is_interruptible};
use crate::sched::run::{requests, start, switch, traced};
use crate::sched::types::attention::{self, STOP};
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::hold::Hold;
use crate::sched::types::m::{self, INSIDE, MRef, holds_p};
use crate::sched::types::p::{P, count};
use crate::sched::types::runtime::{Runtime, rt};
use crate::sched::types::task::Task;
use crate::trace;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering;

/// The signal handler, on the thread's alternate stack. Async-signal-safe: the interrupted code is
/// the user's, so it holds no lock of this library, and the handler calls no other library.
pub fn on_signal(context: *mut c_void) {
    let m = m::current();
    let Some(m) = m.filter(|m| m.blocking.get().is_null()) else {
        // A plain thread, or a function of `gs_blocking`.
        halt::in_handler(context);
        return;
    };
    if m.outside.load(Ordering::Relaxed) == INSIDE || m.curg.get().is_null() {
        // The library runs here, and checks for requests itself.
        return;
    }
    // SAFETY: the kernel has given `context` to this handler.
    if unsafe { arch::was_on_alternate_stack(context) } {
        // The signal has interrupted a handler of the host's, which must not wait: the goroutine is
        // asked again later.
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
    // A Release: all that the handler has done comes before it.
    boundary::leave(m);
}

/// Notes that the M's goroutine waits in the handler no longer.
fn leave_context(m: MRef) {
    m.context.set(ptr::null_mut());
    // Release: pairs with the Acquire in `preempt::stop_strays`, which then sees that there is no
    // context.
    m.is_let_go.store(false, Ordering::Release);
}

/// In the handler: waits if the goroutine has lost its P, or has to give it away.
fn stop_here(m: MRef) {
    if !is_interruptible(m.g()) {
        return;
    }
    if m.hold.has_lost_p() {
        // The goroutine has lost its P in a block or a call, and runs without a P.
        ensure_p_here(m);
    } else if !m.p.get().is_null() {
        let p = m.p();
        // Acquire: pairs with the stopper's SeqCst.
        let asked = p.attention.load(Ordering::Acquire);
        let heir = match asked & (STOP | attention::SLICE) {
            attention::SLICE => preempted::heir_for(rt(), p),
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
        p.is_lost(time::now());
        preempted::queue(p, g);
        release_p(m);
        match heir {
            Some((heir, task)) => {
                count(&p.stats.handoffs, 1);
                start::give(heir, Some(p), task, false);
                // The heir may find other work first, so the goroutine is announced.
                start::work_added_quietly(rt());
            }
            None => {
                p.become_stopped();
                requests::arrived();
            }
        }
    });
}

/// For an M without a P: takes an idle P, or waits for a P.
fn ensure_p_here(m: MRef) {
    stop_going_on(m);
    if replace_p(m) {
        if trace::is_on() {
            traced::runs(m.p(), m.g());
        }
        return;
    }
    let has_p = wait_here(m, m.old_p.get(), |g| {
        let rt = rt();
        rt.push_quietly(rt.any_node(), Task::goroutine(g), preempted::priority_of(g));
        start::ask_for_m(rt);
    });
    if has_p {
        m.hold.end();
    }
}

/// Waits in the handler until another M hands the goroutine over with a P. `publish` queues the
/// goroutine, which is bound to this thread until it goes on. False: a thread forks, so the
/// goroutine goes on without a P, as if its P, `lost`, had been taken from it.
fn wait_here(m: MRef, lost: *const P, publish: impl FnOnce(GRef)) -> bool {
    let g = m.g();
    let was_bound = g.has(flags::BOUND);
    m.by_g0.set(m.by_g0.get() + 1);
    g.set_flag(flags::BOUND | flags::INTERRUPTED, true);
    g.bound_m.set(m.as_ptr());
    g.set_status(Status::Runnable);
    g.left_at.set(time::now());
    m.ask_for_usual_turns();
    if trace::is_on() {
        traced::leaves(m, g);
    }
    publish(g);
    // The handler holds no lock while it sleeps, so signals of the host need not wait for the P.
    let (context, signal) = (m.context.get(), rt().preempt_signal);
    // The goroutine comes back with a P, or without one: see `let_go`.
    while !m.has_stash() && m.p.get().is_null() {
        start::wait_for_gift(m, || {
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
    preempted::computes_from_now(m.p());
    m.bind_to(m.p().node as usize);
    switch::assign(m.p(), g);
    if trace::is_on() {
        traced::runs(m.p(), g);
    }
    true
}

/// For a goroutine or thread that wants to stop the world while another has stopped it: waits for
/// `pause` ns, or until the world goes on. A goroutine gives its P up and waits for a P as in the
/// handler, on its thread: it may be in the middle of changing something of that thread's, such as
/// a collector's lists of free memory.
pub fn wait_for_stopper(pause: i64) {
    let Some(m) = m::current().filter(|m| !m.curg.get().is_null()) else {
        time::sleep(pause);
        return;
    };
    // Acquire: pairs with the stopper's SeqCst.
    let stops = holds_p() && m.p().attention.load(Ordering::Acquire) & STOP != 0;
    if !(stops && wait_as_in_handler(m, || give_away(m, None))) {
        // Outside, so the stopper can take the P.
        sleep_outside(m, pause);
    }
}

/// Runs `wait`, in which a goroutine inside waits for a P on its thread, as in the handler. False:
/// `wait` has not run, because a thread is being made, or there is no template thread yet.
fn wait_as_in_handler(m: MRef, wait: impl FnOnce()) -> bool {
    let rt = rt();
    if !rt.template.is_ready(rt) {
        return false;
    }
    let Some(_waits) = rt.template.may_wait() else { return false };
    let mut context = arch::context_here();
    m.context.set((&raw mut context).cast());
    wait();
    leave_context(m);
    true
}

/// Sleeps for `ns` on the thread of a goroutine inside. The M is outside meanwhile, so a stopper of
/// the world sees the registers, and others may take the P.
fn sleep_outside(m: MRef, ns: i64) {
    boundary::leave(m);
    time::sleep(ns);
    boundary::go_inside(m);
}

/// How often [`ensure_p_on_thread`] tries to wait for a P, and the pause between two tries, in ns:
/// a second in all.
const TRIES: u32 = 10_000;
const PAUSE: i64 = 100_000;

/// Gets a P for a goroutine that is to keep its P, on its thread, from here on: if it has lost its
/// P, it waits for a P as in the handler. If a thread is being made all the time, the goroutine
/// goes on without a P: a signal handler of the host's may have interrupted it while it held a lock
/// that the maker waits for. The caller is inside, and was outside before.
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

/// Gives a stopped P to the stopper of the world, if it is a goroutine that has lost its P.
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

/// Empties the handler before a fork: no goroutine waits there until the caller opens
/// `template.gate` again. Such a goroutine may hold a lock that fork needs. It goes on without a P,
/// as if its P had been taken while it was blocked.
pub fn empty_handlers(rt: &Runtime) {
    let gate = &rt.template.gate;
    gate.close();
    // 1 if the caller is a handler of the host's that has interrupted a waiting goroutine.
    let own = usize::from(m::current().is_some_and(|m| !m.context.get().is_null()));
    let mut round = 0;
    while gate.waiting() > own {
        while let Some((m, task)) = preempted::any_in_handler(rt) {
            let_go(m, task);
        }
        // The remaining goroutines are about to look at the gate, or have been given a P.
        round += 1;
        backoff(round);
    }
}

/// Lets a goroutine that waits in the signal handler go on without a P.
pub fn let_go(m: MRef, task: Task) {
    m.gift.put(None, Some(task), false, 0);
    m.is_let_go.store(true, Ordering::Relaxed);
    m.notify();
}
