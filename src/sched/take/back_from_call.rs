//! M's without a P whose goroutines need a P, now or soon: back from an announced call, or from a
//! block in which another thread took the P. SYSCALLS.md draws the states ([`Hold`]). seed: S7, B8

use crate::os::{thread, time};
use crate::sched::prim::clock;
use crate::sched::run::{owner, preempted, probes, ready, requests, switch, traced};
use crate::sched::types::g::{GRef, Status};
use crate::sched::types::hold::Hold;
use crate::sched::types::m::{self, MRef};
use crate::sched::types::node::priority;
use crate::sched::types::p::PRef;
use crate::sched::types::runtime::rt;
use crate::trace;
use core::ptr;
use core::sync::atomic::{Ordering, fence};

/// After this number of long calls in a row the next call counts as long from its beginning.
pub const SURE: u8 = 2;
/// A call that takes less than this, in ns, is not long.
const SHORT: i64 = 20_000;
/// The CPU time without a P that a goroutine may use for each of its calls, in ns.
const PER_CALL: i32 = 25_000;
/// The limit of `G::used_without_p`, in ns: above it a goroutine needs a P after its call.
const MOST: i32 = 200_000;
/// Added to `G::used_without_p`, in ns, if a goroutine needs a P before its next call: the
/// allowance of 64 calls, most of which then end with a P.
const NEEDED_P: i32 = 64 * PER_CALL;

/// Notes that the M begins an announced call without a P. `p` becomes its old P.
#[inline(always)]
pub fn begin_without_p(m: MRef, p: PRef) {
    m.old_p.set(p.as_ptr());
    m.p.set(ptr::null());
    m.hold.begin_call();
}

/// Takes the M's old P if no other M has it, else an idle P. False: there is none, and the M counts
/// as in a call until its goroutine is queued.
#[inline(always)]
pub fn take_again(m: MRef, g: GRef) -> bool {
    // SAFETY: set by `mark`.
    let old = unsafe { PRef::from_ptr(m.old_p.get()) };
    if !take_back(m, old) {
        return take_another_and_learn(m, g, old);
    }
    if g.long_calls.get() != 0 {
        learn_kept(g, old);
    }
    restore_p(m, old);
    true
}

/// A bit of `G::long_calls` during a call that is traced: its end is traced, too.
const IS_TRACED: u8 = 1 << 7;

/// Lets the end of the call under way be traced.
pub fn note_traced(g: GRef) {
    g.long_calls.set(g.long_calls.get() | IS_TRACED);
}

#[cold]
#[inline(never)]
fn learn_kept(g: GRef, old: PRef) {
    let calls = g.long_calls.get();
    g.long_calls.set(calls & !IS_TRACED);
    if trace::is_on() {
        traced::runs(old, g);
    }
    if trace::is_on() && calls & IS_TRACED != 0 {
        probes::syscall_end(Some(old), g);
    }
    if calls & !IS_TRACED != 0 {
        learn(g, true);
    }
}

/// Takes the M's old P back after a call. True if no other thread has taken it, or if `mark` has
/// kept it for a stopper of the world.
#[inline(always)]
pub fn take_back(m: MRef, old: PRef) -> bool {
    old.take_back(m) || m.stops_world.get()
}

#[cold]
#[inline(never)]
fn take_another_and_learn(m: MRef, g: GRef, old: PRef) -> bool {
    m.ask_for_usual_turns();
    let calls = g.long_calls.get();
    g.long_calls.set(calls & !IS_TRACED);
    if !m.has_lost_p_before.replace(false) {
        learn(g, false);
    }
    let has_p = take_another(m, old);
    if trace::is_on() && calls & IS_TRACED != 0 {
        probes::syscall_end(has_p.then(|| m.p()), g);
    }
    if has_p && trace::is_on() {
        traced::runs(m.p(), g);
    }
    has_p
}

/// Makes `old`, which [`take_back`] has taken, the M's P.
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

/// Updates the count of long calls after a call. `kept`: the M has its old P back.
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

/// Lets a goroutine that found no P after its call return to the user's code without a P, as if its
/// P had been taken there. False: it needs a P.
#[cold]
#[inline(never)]
pub fn go_on(m: MRef, g: GRef) -> bool {
    let used = g.used_without_p.get();
    g.used_without_p.set((used - PER_CALL).max(0));
    if used > MOST || !may_go_on(m, g) {
        return false;
    }
    // The fields are as for any M that has lost its P in the user's code.
    m.p.set(m.old_p.get());
    m.went_on_at.set(thread::own_cpu_time());
    m.was_blocked.store(true, Ordering::Relaxed);
    m.hold.lose(Hold::GoesOn);
    // Pairs with the fence in `world::stop`: either the stopper sees `GoesOn`, and waits for this
    // goroutine, or this thread sees that the world is being stopped.
    fence(Ordering::SeqCst);
    if requests::is_stopping() {
        begin_without_p(m, m.p());
        return false;
    }
    g.set_status(Status::Running);
    true
}

/// Whether the goroutine may go on without a P. The signal must be able to stop it, and no hook,
/// worker group, gang or low priority may decide about its turns.
fn may_go_on(m: MRef, g: GRef) -> bool {
    let rt = rt();
    rt.preempt_signal != 0
        && !rt.cooperative
        && !requests::is_stopping()
        && !m.is_hooked()
        && !(rt.points.has_old_hooks)(m)
        && !m.is_member()
        && g.gang.get().is_null()
        && matches!(g.priority.get(), priority::NORMAL | priority::HIGH)
        && preempted::is_interruptible(g)
}

/// Adds the CPU time since [`go_on`] to what the goroutine has used without a P.
fn note_use(m: MRef, g: GRef) {
    let used = thread::own_cpu_time() - m.went_on_at.get();
    let used = i32::try_from(used).unwrap_or(i32::MAX);
    g.used_without_p.set(g.used_without_p.get().saturating_add(used));
}

/// Begins a call without a P if the goroutine has had none since its last call. The M is inside.
/// False: the goroutine has not gone on without a P, and no call has begun.
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

/// Changes `GoesOn` to `Taken`, as if the M's P had been taken in the user's code. For an M inside
/// whose goroutine needs a P before its next call: it uses the library, or the signal has stopped
/// it. True: the M was `GoesOn`.
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

/// Gets a P for an M inside that has lost its P; the goroutine waits in a queue if no P is free.
/// Returns the M on which the goroutine runs afterwards. Does nothing if the M has its P or is in
/// an announced call.
pub fn ensure_p(m: MRef) -> MRef {
    if !m.hold.has_lost_p() {
        return m;
    }
    let commit = if stop_going_on(m) { queue_after_call } else { queue_for_p };
    if replace_p(m) {
        if trace::is_on() {
            traced::runs(m.p(), m.g());
        }
        return m;
    }
    m.g().set_status(Status::Runnable);
    // SAFETY: both commits take a goroutine's address, and a goroutine runs this code.
    unsafe {
        switch::switch_to_g0(m, Some(commit));
        m::must_current()
    }
}

/// [`take_again`] for an M whose P was taken.
pub fn replace_p(m: MRef) -> bool {
    debug_assert!(!m.p.get().is_null(), "only a P that the M had can be taken from it");
    m.old_p.set(m.p.get());
    m.p.set(ptr::null());
    take_again(m, m.g())
}

/// On g0, without a P: queues the goroutine globally, and only then sets `hold` to `Held`. So the
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

/// [`queue_for_p`] for a goroutine that is back from a call. sysmon then makes room: it asks a
/// goroutine that has computed for [`preempted::WAKE_UP`] to give way.
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
