//! System calls and other blocks that the caller announces. SYSCALLS.md has the protocol. seed: S7, B5
//!
//! Entering only marks the P; sysmon takes the P away when the call lasts long, or when it lasts a little and work
//! waits. Leaving takes the P back with one compare-and-swap, or takes an idle P, or goes on without a P, or queues the
//! goroutine for a P.
//!
//! Between the two the thread counts as a plain thread: functions that block, block the thread.

use super::back_from_call::{self, queue_after_call, take_again};
use super::boundary::{self, Entered};
use super::loan;
use crate::os::time;
use crate::sched::prim::clock;
use crate::sched::run::switch::{self, switch_away};
use crate::sched::run::yielding::yield_commit;
use crate::sched::run::{bound, start, steal};
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::m::{self, MRef};
use crate::sched::types::p::{PRef, PStatus};
use crate::sched::types::runtime::rt;
use core::sync::atomic::Ordering;

/// After this number of long calls in a row the next call is expected to be long.
pub const SURE: u8 = 2;

/// The running goroutine may be about to block its thread. Does nothing on a plain thread. Go's `entersyscall`.
pub fn enter() -> i32 {
    match m::current() {
        Some(m) if !m.curg.get().is_null() => enter_on(m, false),
        _ => 0,
    }
}

/// [`enter`] for a call that is sure to block for long: the P is free at once. Go's `entersyscallblock`.
pub fn enter_block() -> i32 {
    match m::current() {
        Some(m) if !m.curg.get().is_null() => enter_on(m, true),
        _ => 0,
    }
}

fn enter_on(m: MRef, at_once: bool) -> i32 {
    // SAFETY: a goroutine calls this.
    let g = unsafe { m.must_g() };
    let depth = g.syscall_depth.get();
    g.syscall_depth.set(depth + 1);
    if depth > 0 {
        return 0;
    }
    // SAFETY: the goroutine is in no call yet, so it has had a P since it entered the library.
    let p = unsafe { m.must_p() };
    // The fast path below calls no function except in tail position, so the compiler saves no registers.
    if at_once
        || must_leave_thread(m, g)
        || g.long_calls.get() == SURE
        || start::keeps_anything(p)
        || p.loan.is_open()
    {
        return begin_with_care(m, g, at_once);
    }
    note_begin(g);
    mark(m, p);
    0
}

/// [`enter_on`] where the P or the thread may be needed by others during the call.
#[cold]
#[inline(never)]
fn begin_with_care(m: MRef, g: GRef, at_once: bool) -> i32 {
    let m = find_own_thread(m, g);
    note_begin(g);
    leave_p(m, g, at_once);
    0
}

#[inline(always)]
fn note_begin(g: GRef) {
    g.since.set(clock::rough());
    g.set_status(Status::Syscall);
}

/// Before a goroutine that isn't pinned blocks or locks its thread, it moves to another thread, if it is on one of
/// these: a thread that `gs_run` has borrowed, which must be able to go back when `gs_run`'s function ends; or a thread
/// to which goroutines are pinned, or on which goroutines of a worker group may begin. Those goroutines could not run
/// while the thread is blocked or locked, although this goroutine may wait for them.
#[inline(always)]
pub fn find_own_thread(m: MRef, g: GRef) -> MRef {
    if must_leave_thread(m, g) { leave_thread(m, g) } else { m }
}

#[inline(always)]
fn must_leave_thread(m: MRef, g: GRef) -> bool {
    (bound::is_borrowed(g, m) || bound::is_for_pinned(m))
        && !g.has(flags::BOUND)
        && !m.stops_world.get()
}

#[cold]
#[inline(never)]
fn leave_thread(m: MRef, g: GRef) -> MRef {
    g.set_flag(flags::AVOID_RUNNER | flags::AVOID_PINNED, true);
    g.set_status(Status::Runnable);
    // SAFETY: `yield_commit` takes the address of a goroutine, which this M runs and so owns.
    unsafe { switch_away(m, yield_commit, g.address()) }
}

/// A call begins. `at_once`: hands the P off now, and not only when another goroutine needs it.
pub fn leave_p(m: MRef, g: GRef, at_once: bool) {
    start::share_what_is_kept(m.p());
    if loan::give_back(m) {
        g.left_at.set(time::now());
        return;
    }
    let at_once = at_once || will_be_missed(m, g);
    let p = m.p();
    mark(m, p);
    if at_once && p.take_from_call(PStatus::Idle) {
        start::hand_off(p);
    }
}

/// Whether the call that begins will most likely last so long that sysmon would hand the P off, as the goroutine's last
/// calls did. Then others need not wait for sysmon.
fn will_be_missed(m: MRef, g: GRef) -> bool {
    if g.long_calls.get() != SURE {
        return false;
    }
    g.left_at.set(time::now());
    let p = m.p();
    // The P's files and timers need an M that watches them from the moment of the call.
    let is_watched = p.poll.is_waited_for() || p.timers.next() != i64::MAX;
    is_watched || p.has_work() || steal::work_anywhere(rt())
}

/// From now on any thread that needs the P of this M may take it, unless this M's goroutine has stopped the world: no other
/// goroutine may run then, and the P must be there when the call is over.
pub fn mark(m: MRef, p: PRef) {
    p.syscall_tick.store(p.syscall_tick.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    back_from_call::begin_without_p(m, p);
    if !m.stops_world.get() {
        p.leave_to_call(m);
    }
}

/// The M's goroutine has started the world again, within a call: the call is an ordinary one from here on.
pub fn leave_p_kept_for_stop(m: MRef) {
    if m.p.get().is_null() {
        // SAFETY: set by `mark`.
        unsafe { PRef::from_ptr(m.old_p.get()) }.leave_to_call(m);
    }
}

/// The block is over, and the caller needs a P. `-EPERM` if none had begun. Go's `exitsyscall`.
pub fn exit() -> i32 {
    end::<false>()
}

/// [`exit`] for a function that returns next. The user's code may go on without a P.
#[inline(always)]
pub fn exit_from(entered: &Entered) -> i32 {
    if entered.is_from_user() { end::<true>() } else { exit() }
}

/// `TO_USER`: the caller returns to the user's code.
fn end<const TO_USER: bool>() -> i32 {
    let Some(m) = m::current().filter(|m| !m.curg.get().is_null()) else { return 0 };
    let g = m.g();
    let depth = g.syscall_depth.get();
    // In `gs_blocking` the outermost level belongs to `gs_blocking`.
    if depth == u32::from(!m.blocking.get().is_null()) {
        return -libc::EPERM;
    }
    g.syscall_depth.set(depth - 1);
    if depth > 1 {
        return 0;
    }
    if !take_again(m, g) {
        return end_without_p(m, g, TO_USER);
    }
    g.set_status(Status::Running);
    boundary::give_way_if_asked(m);
    0
}

/// [`end`] if there was no P for the goroutine at once.
#[cold]
#[inline(never)]
fn end_without_p(m: MRef, g: GRef, to_user: bool) -> i32 {
    if to_user && back_from_call::go_on(m, g) {
        return 0;
    }
    // No P: the goroutine waits in a queue for one. Without a P there is no queue to pick a successor from, so it
    // leaves for g0.
    g.set_status(Status::Runnable);
    // SAFETY: `queue_after_call` takes a goroutine's address.
    unsafe { switch::switch_to_g0(m, Some(queue_after_call)) };
    0
}
