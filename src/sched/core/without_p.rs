//! Goroutines that are back from an announced call, find no P, and go on without one until their next call. SYSCALLS.md,
//! "Going on without a P", has the protocol. seed: S7

use super::preempt;
use super::world;
use crate::os::time;
use crate::sched::who::g::{GRef, Status};
use crate::sched::who::m::{MRef, claim};
use crate::sched::who::node::priority;
use crate::sched::who::runtime::rt;
use crate::sched::words::clock;
use core::ptr;
use core::sync::atomic::{Ordering, fence};

/// A goroutine that goes from one call to the next in less than this, in ns, has made a short stretch.
const SHORT: i64 = 100_000;
/// After this number of long stretches in a row the goroutine needs a P when it is back from a call: the kernel may have
/// taken the CPU from the thread in one of them, but hardly in two.
const LONG: u8 = 2;
/// Then the goroutine needs a P after this number of calls, before it goes on without one again.
const CALLS_WITH_P: u8 = 16;

/// The M's goroutine is back from a call, has found no P, and returns to the user's code next. True: the goroutine goes on
/// without a P, as if its P had been taken from it there. False: it needs a P.
#[cold]
#[inline(never)]
pub fn go_on(m: MRef, g: GRef) -> bool {
    if !may_go_on(m, g) || makes_long_stretches(g) {
        return false;
    }
    // As for any M that has lost its P in the user's code.
    m.p.set(m.old_p.get());
    m.went_on_at.set(time::now());
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

/// Whether the goroutine's last stretches without a P were long. Counts the calls after which it needs a P.
fn makes_long_stretches(g: GRef) -> bool {
    let n = g.long_stretches.get();
    let is_long = n >= LONG;
    if is_long {
        // After the last of these calls one long stretch is enough.
        g.long_stretches.set(n - 1);
    }
    is_long
}

/// The goroutine has made a stretch without a P.
fn note_stretch(g: GRef, is_long: bool) {
    g.long_stretches.set(match g.long_stretches.get() + 1 {
        _ if !is_long => 0,
        LONG => LONG - 1 + CALLS_WITH_P,
        n => n,
    });
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
    note_stretch(g, time::now() - m.went_on_at.get() >= SHORT);
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
        note_stretch(m.g(), true);
        m.claim.store(claim::TAKEN, Ordering::Relaxed);
        // Release: pairs with the Acquire of the deadlock watch, which sees the claim.
        m.in_syscall.store(false, Ordering::Release);
    }
    was_without
}
