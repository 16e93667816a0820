//! Goroutines that are back from an announced call, find no P, and go on without one until their next call. SYSCALLS.md,
//! "Going on without a P", has the protocol. seed: S7

use super::preempt;
use super::world;
use crate::os::thread;
use crate::sched::prim::clock;
use crate::sched::types::g::{GRef, Status};
use crate::sched::types::m::{MRef, claim};
use crate::sched::types::node::priority;
use crate::sched::types::runtime::rt;
use core::ptr;
use core::sync::atomic::{Ordering, fence};

/// The CPU time that a goroutine may use without a P for each call that it makes, in ns.
const PER_CALL: i32 = 25_000;
/// A goroutine that has used more than this without a P, in ns, less `PER_CALL` for each call, needs a P.
const MOST: i32 = 200_000;
/// This counts as used, in ns, if the goroutine needs a P before the next call. It then needs a P after the next 64 calls.
const NEEDED_P: i32 = 64 * PER_CALL;

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
    m.claim.store(claim::WITHOUT_P, Ordering::Relaxed);
    // Pairs with the fence in `world::stop`: either the stopper sees the claim, and waits for this goroutine, or this
    // thread sees that the world is being stopped.
    fence(Ordering::SeqCst);
    if world::is_stopping() {
        lose(m);
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
        && !world::is_stopping()
        && !m.is_hooked()
        && !m.is_member()
        && g.gang.get().is_null()
        && matches!(g.priority.get(), priority::NORMAL | priority::HIGH)
        && preempt::is_interruptible(g)
}

/// The goroutine, which has gone on without a P, stops doing so.
fn note_use(m: MRef, g: GRef) {
    let used = thread::own_cpu_time() - m.went_on_at.get();
    let used = i32::try_from(used).unwrap_or(i32::MAX);
    g.used_without_p.set(g.used_without_p.get().saturating_add(used));
}

/// The M, which is inside, counts as in a call that its goroutine makes without a P.
fn lose(m: MRef) {
    m.old_p.set(m.p.get());
    m.p.set(ptr::null());
    // Release: pairs with the Acquire of the deadlock watch. The M has counted as in a system call all the time.
    m.claim.store(claim::NONE, Ordering::Release);
}

/// Whether the M's goroutine goes on without a P.
#[inline(always)]
fn is_without(m: MRef) -> bool {
    m.claim.load(Ordering::Relaxed) == claim::WITHOUT_P
}

/// A call of the goroutine begins. The M is inside. True: the goroutine has been without a P, and goes into the call so.
#[cold]
#[inline(never)]
pub fn begin_call(m: MRef) -> bool {
    if !is_without(m) {
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
    lose(m);
    true
}

/// The M, which is inside, needs a P, although no call begins: its goroutine uses the library, or was stopped by a signal.
/// From here on the M is like any M whose P was taken in the user's code. True: the goroutine has gone on without a P after
/// a call.
pub fn needs_p(m: MRef) -> bool {
    let was_without = is_without(m);
    if was_without {
        let g = m.g();
        note_use(m, g);
        g.used_without_p.set(g.used_without_p.get().saturating_add(NEEDED_P));
        m.has_lost_p_before.set(true);
        m.claim.store(claim::TAKEN, Ordering::Relaxed);
        // Release: pairs with the Acquire of the deadlock watch, which sees the claim.
        m.in_syscall.store(false, Ordering::Release);
    }
    was_without
}
