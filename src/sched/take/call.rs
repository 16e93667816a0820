//! System calls and other blocks that the caller announces. SYSCALLS.md has the protocol.
//! seed: S7, B5
//!
//! Entering only marks the P; sysmon takes the P away when it sees the same call twice. Leaving
//! takes the P back with one compare-and-swap, or takes an idle P, or goes on without a P, or queues
//! the goroutine for a P.
//!
//! During a call the thread counts as a plain thread: a function of the library that blocks, blocks
//! the thread.

use super::back_from_call::{self, SURE, queue_after_call, take_again};
use super::boundary::{self, Entered};
use super::loan;
use crate::os::time;
use crate::sched::prim::clock;
use crate::sched::run::switch::{self, switch_away};
use crate::sched::run::yielding::yield_commit;
use crate::sched::run::{bound, start, steal, traced};
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::m::{self, MRef};
use crate::sched::types::p::{PRef, PStatus};
use crate::sched::types::runtime::rt;
use core::sync::atomic::Ordering;

/// Announces that the running goroutine may block its thread. Does nothing on a plain thread. Go's
/// `entersyscall`.
pub fn enter() -> i32 {
    match m::current() {
        Some(m) if !m.curg.get().is_null() => enter_on(m, false),
        _ => 0,
    }
}

/// [`enter`] for a call that is sure to block for long: hands the P off at once. Go's
/// `entersyscallblock`.
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
    // The fast path below calls no function except in tail position, so the compiler saves no
    // registers.
    if at_once
        || bound::is_borrowed(g, m)
        || m.calls_carefully()
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

/// [`enter_on`] if others may need the P or the thread during the call.
#[cold]
#[inline(never)]
fn begin_with_care(m: MRef, g: GRef, at_once: bool) -> i32 {
    let m = find_own_thread(m, g);
    note_begin(g);
    if m.is_traced() {
        traced::begins_call(m, g);
    }
    leave_p(m, g, at_once);
    if m.is_traced() {
        back_from_call::note_traced(g);
    }
    0
}

#[inline(always)]
fn note_begin(g: GRef) {
    g.since.set(clock::rough());
    g.set_status(Status::Syscall);
}

/// Moves a goroutine that isn't pinned, and is about to block or lock its thread, to another thread
/// if others need this thread: `gs_run`, whose function may end, goroutines that are pinned here,
/// or goroutines of a worker group that may begin here. They could not run meanwhile, although this
/// goroutine may wait for them. Returns the goroutine's M.
#[inline(always)]
pub fn find_own_thread(m: MRef, g: GRef) -> MRef {
    if must_leave_thread(m, g) { leave_thread(m, g) } else { m }
}

#[inline(always)]
fn must_leave_thread(m: MRef, g: GRef) -> bool {
    (bound::is_borrowed(g, m) || bound::is_for_pinned(m))
        && !g.has(flags::BOUND | flags::BUBBLE)
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

/// Leaves the P to a call that begins, or gives it back to its lender. `at_once`: hands the P off
/// now, and not only when another goroutine needs it.
pub fn leave_p(m: MRef, g: GRef, at_once: bool) {
    start::share_what_is_kept(m.p());
    if loan::give_back(m) {
        g.left_at.set(time::now());
        return;
    }
    // Nothing but the goroutine's own M may run a bubble's P.
    let at_once = (at_once || will_be_missed(m, g)) && !g.has(flags::BUBBLE);
    let p = m.p();
    mark(m, p);
    if at_once && p.take_from_call(PStatus::Idle) {
        start::hand_off(p);
    }
}

/// Whether to hand the P off at the beginning of the call: the goroutine's last calls were long,
/// and work, files or timers need an M with a P, which would wait for sysmon otherwise.
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

/// Leaves the P to a call: from now on any thread may take it. A goroutine that has stopped the
/// world keeps its P: no other goroutine may run, and the P must be there after the call.
pub fn mark(m: MRef, p: PRef) {
    p.syscall_tick.store(p.syscall_tick.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    back_from_call::begin_without_p(m, p);
    if !m.stops_world.get() {
        p.leave_to_call(m);
    }
}

/// Leaves the P that [`mark`] has kept to the call in which the M's goroutine starts the world
/// again.
pub fn leave_p_kept_for_stop(m: MRef) {
    if m.p.get().is_null() {
        // SAFETY: set by `mark`.
        unsafe { PRef::from_ptr(m.old_p.get()) }.leave_to_call(m);
    }
}

/// Ends the announced call: the goroutine needs a P again. `-EPERM`: there is no such call. Go's
/// `exitsyscall`.
pub fn exit() -> i32 {
    end::<false>()
}

/// [`exit`] for a function that returns next: the user's code may go on without a P.
#[inline(always)]
pub fn exit_from(entered: &Entered) -> i32 {
    if entered.is_from_user() { end::<true>() } else { exit() }
}

/// `TO_USER`: the caller returns to the user's code next.
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

/// [`end`] for a goroutine that has found no P.
#[cold]
#[inline(never)]
fn end_without_p(m: MRef, g: GRef, to_user: bool) -> i32 {
    if to_user && back_from_call::go_on(m, g) {
        return 0;
    }
    // The goroutine waits in a queue for a P. Without a P the M has no queue with a successor, so
    // it switches to g0.
    g.set_status(Status::Runnable);
    // SAFETY: `queue_after_call` takes a goroutine's address.
    unsafe { switch::switch_to_g0(m, Some(queue_after_call)) };
    0
}
