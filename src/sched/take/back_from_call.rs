//! An M without a P whose goroutine needs one, or soon will: it is back from an announced call, or comes into the library
//! from a block in which another thread took its P. SYSCALLS.md draws the states ([`Hold`]). seed: S7, B8

use super::call::SURE;
use crate::os::{thread, time};
use crate::sched::prim::clock;
use crate::sched::run::{owner, preempted, ready, requests, switch};
use crate::sched::types::g::{GRef, Status};
use crate::sched::types::hold::Hold;
use crate::sched::types::m::{self, MRef};
use crate::sched::types::node::priority;
use crate::sched::types::p::PRef;
use crate::sched::types::runtime::rt;
use core::ptr;
use core::sync::atomic::{Ordering, fence};

/// A call that takes less than this, in ns, was not long.
const SHORT: i64 = 20_000;
/// The CPU time that a goroutine may use without a P for each call that it makes, in ns.
const PER_CALL: i32 = 25_000;
/// A goroutine that has used more than this without a P, in ns, less `PER_CALL` for each call, needs a P.
const MOST: i32 = 200_000;
/// This counts as used, in ns, if the goroutine needs a P before the next call. It then needs a P after the next 64 calls.
const NEEDED_P: i32 = 64 * PER_CALL;

/// The M begins an announced call, for which it leaves `p`, or which it begins without a P.
#[inline(always)]
pub fn begin_without_p(m: MRef, p: PRef) {
    m.old_p.set(p.as_ptr());
    m.p.set(ptr::null());
    m.hold.begin_call();
}

/// Takes a P again: the old P if no other M has it, else an idle P. If it finds none the M counts as in a system call
/// until its goroutine is queued.
#[inline(always)]
pub fn take_again(m: MRef, g: GRef) -> bool {
    // SAFETY: set by `mark`.
    let old = unsafe { PRef::from_ptr(m.old_p.get()) };
    if !take_back(m, old) {
        return take_another_and_learn(m, g, old);
    }
    if g.long_calls.get() != 0 {
        learn(g, true);
    }
    restore_p(m, old);
    true
}

/// Takes the M's old P back after a call. True: the M has it: no other thread has taken it, or `mark` has not left it.
#[inline(always)]
pub fn take_back(m: MRef, old: PRef) -> bool {
    old.take_back(m) || m.stops_world.get()
}

#[cold]
#[inline(never)]
fn take_another_and_learn(m: MRef, g: GRef, old: PRef) -> bool {
    m.ask_for_usual_turns();
    if !m.has_lost_p_before.replace(false) {
        learn(g, false);
    }
    take_another(m, old)
}

/// Makes the old P, which this M has taken back, its P again.
#[inline(always)]
pub fn restore_p(m: MRef, old: PRef) {
    m.hold.end();
    m.p.set(old.as_ptr());
    owner::go_to_g0_if_wanted_back(m, old);
}

#[cold]
#[inline(never)]
pub fn take_another(m: MRef, old: PRef) -> bool {
    let rt = rt();
    let Some(p) = owner::take_idle_p(rt, Some(old), m.node.get()) else { return false };
    owner::acquire_p(m, p);
    m.hold.end();
    rt.sysmon.wake_if_asleep();
    true
}

/// The call is over. `kept`: the M still has the P that it had before the call.
#[cold]
#[inline(never)]
fn learn(g: GRef, kept: bool) {
    let long = match g.long_calls.get() {
        SURE if time::now() - g.left_at.get() < SHORT => 0,
        SURE => SURE,
        _ if kept => 0,
        n => n + 1,
    };
    g.long_calls.set(long);
}

/// The M's goroutine is back from a call, has found no P, and returns to the user's code next. True: the goroutine goes on
/// without a P, as if its P had been taken from it there. False: it needs a P.
#[cold]
#[inline(never)]
pub fn go_on(m: MRef, g: GRef) -> bool {
    let used = g.used_without_p.get();
    g.used_without_p.set((used - PER_CALL).max(0));
    if used > MOST || !may_go_on(m, g) {
        return false;
    }
    // As for any M that has lost its P in the user's code.
    m.p.set(m.old_p.get());
    m.went_on_at.set(thread::own_cpu_time());
    m.was_blocked.store(true, Ordering::Relaxed);
    m.hold.lose(Hold::GoesOn);
    // Pairs with the fence in `world::stop`: either the stopper sees `GoesOn`, and waits for this goroutine, or this
    // thread sees that the world is being stopped.
    fence(Ordering::SeqCst);
    if requests::is_stopping() {
        begin_without_p(m, m.p());
        return false;
    }
    g.set_status(Status::Running);
    true
}

/// Whether a signal can stop the goroutine if it computes. Not a goroutine whose turns others arrange: an interpreter's, a
/// gang's, or one of low priority.
fn may_go_on(m: MRef, g: GRef) -> bool {
    let rt = rt();
    rt.preempt_signal != 0
        && !rt.cooperative
        && !requests::is_stopping()
        && !m.is_hooked()
        && !m.is_member()
        && g.gang.get().is_null()
        && matches!(g.priority.get(), priority::NORMAL | priority::HIGH)
        && preempted::is_interruptible(g)
}

/// The goroutine, which has gone on without a P, stops doing so.
fn note_use(m: MRef, g: GRef) {
    let used = thread::own_cpu_time() - m.went_on_at.get();
    let used = i32::try_from(used).unwrap_or(i32::MAX);
    g.used_without_p.set(g.used_without_p.get().saturating_add(used));
}

/// A call of the goroutine begins. The M is inside. True: the goroutine has been without a P, and goes into the call so.
#[cold]
#[inline(never)]
pub fn begin_call(m: MRef) -> bool {
    if m.hold.get() != Hold::GoesOn {
        return false;
    }
    let g = m.g();
    note_use(m, g);
    m.has_lost_p_before.set(true);
    let calls = m.calls_without_p.load(Ordering::Relaxed);
    m.calls_without_p.store(calls.wrapping_add(1), Ordering::Relaxed);
    g.syscall_depth.set(1);
    g.since.set(clock::rough());
    g.set_status(Status::Syscall);
    begin_without_p(m, m.p());
    true
}

/// The M, which is inside, needs a P, although no call begins: its goroutine uses the library, or was stopped by a signal.
/// From here on the M is like any M whose P was taken in the user's code. True: the goroutine had gone on without a P.
pub fn stop_going_on(m: MRef) -> bool {
    let went_on = m.hold.get() == Hold::GoesOn;
    if went_on {
        let g = m.g();
        note_use(m, g);
        g.used_without_p.set(g.used_without_p.get().saturating_add(NEEDED_P));
        m.has_lost_p_before.set(true);
        m.hold.lose(Hold::Taken);
    }
    went_on
}

/// Makes sure that the M, which is inside now, has a P: it keeps its P or, if it has lost it, gets another. Returns the
/// M on which the goroutine runs afterwards. An M in an announced call needs none.
pub fn ensure_p(m: MRef) -> MRef {
    if !m.hold.has_lost_p() {
        return m;
    }
    let commit = if stop_going_on(m) { queue_after_call } else { queue_for_p };
    if replace_p(m) {
        return m;
    }
    m.g().set_status(Status::Runnable);
    // SAFETY: both take a goroutine's address; and a goroutine runs this code.
    unsafe {
        switch::switch_to_g0(m, Some(commit));
        m::must_current()
    }
}

/// The M has lost its P: takes its old P back if no M runs that, or an idle P. False: there is none.
pub fn replace_p(m: MRef) -> bool {
    debug_assert!(!m.p.get().is_null(), "only a P that the M had can be taken from it");
    m.old_p.set(m.p.get());
    m.p.set(ptr::null());
    take_again(m, m.g())
}

/// On g0, without a P: queues the goroutine where an M with a P finds it. Only then is the M's word `Held`, so the
/// deadlock detector sees at each moment that the goroutine is on its way.
///
/// # Safety
/// `g` is the address of a goroutine that the caller owns.
unsafe fn queue_for_p(g: usize) {
    // SAFETY: the address of a goroutine, as the caller says.
    ready::ready_global(unsafe { GRef::at(g) });
    // SAFETY: on g0, as the caller says.
    unsafe { m::must_current() }.hold.end();
}

/// [`queue_for_p`] for a goroutine that is back from a call. sysmon makes room for it, once the goroutine on a P has
/// computed for [`preempted::WAKE_UP`].
///
/// # Safety
/// As for `queue_for_p`.
pub unsafe fn queue_after_call(g: usize) {
    // SAFETY: as the caller says.
    unsafe { queue_for_p(g) };
    let rt = rt();
    rt.back_from_call.store(true, Ordering::Relaxed);
    rt.sysmon.wake_by(time::now() + preempted::WAKE_UP);
}
