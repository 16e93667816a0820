//! A goroutine gives its P to others for a while.

use super::order::{
    fetch_next_shared, is_unusual, next_tick, nothing_else, own_timer_due, plan_look,
};
use super::switch::{Left, ThreadState, successor, switch_away};
use super::{group, ordered, ready};
use crate::arch::Place;
use crate::sched::types::attention;
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::m::{self, MRef, is_on_goroutine, on_goroutine};
use crate::sched::types::p::PRef;
use crate::sched::types::task::Task;
use crate::sched::wait::netpoll;
use core::sync::atomic::Ordering;

/// Whether others can run on the P of a goroutine that yields.
pub enum Found {
    Nothing,
    Others,
    /// Timers and files must be checked first, or the caller is no goroutine.
    Unclear,
}

/// Checks quickly, without a call, what else can run on the P.
#[inline(always)]
#[must_use]
pub fn quick_look(m: MRef) -> Found {
    if !is_on_goroutine(m) {
        return Found::Unclear;
    }
    let p = m.p();
    if !nothing_else(m, p) {
        return Found::Others;
    }
    let tick = p.tick.load(Ordering::Relaxed).wrapping_add(1);
    if is_unusual(p, tick) {
        return Found::Unclear;
    }
    p.tick.store(tick, Ordering::Relaxed);
    Found::Nothing
}

/// Whether something else can run on the P of the calling goroutine. Checks timers and files if
/// that is due, so that a loop which only yields doesn't keep them waiting.
#[must_use]
pub fn look(m: MRef) -> bool {
    // First, because the queues of the node may have goroutines that aren't part of the run.
    if m.course().is_some() && is_on_goroutine(m) {
        return ordered::others_can_run(m);
    }
    match quick_look(m) {
        Found::Nothing => return false,
        Found::Others => return true,
        Found::Unclear => {}
    }
    let p = m.p();
    plan_look(p, next_tick(p));
    if let Some(now) = own_timer_due(p) {
        p.timers.run(now);
    }
    !nothing_else(m, p) || netpoll::is_due(p) || group::has_work(m)
}

/// Gives the P of this M, which runs a goroutine, to other goroutines for a while. Returns the M on
/// which the caller resumes. Go's `Gosched`.
#[inline(always)]
pub fn yield_now(m: MRef) -> MRef {
    // SAFETY: a goroutine on this M calls this, and has a P.
    let (p, g) = unsafe { (m.must_p(), m.must_g()) };
    g.set_status(Status::Runnable);
    let mut here = Place::new();
    let state = ThreadState::take(m, &mut here);
    let (next, left) = match take_turns(m, p, g) {
        Some(next) => (Some(next), Left::nothing(m)),
        None => (successor(m), Left { m, commit: Some(yield_commit), arg: g.address() }),
    };
    state.over_switch(left, next, &mut here)
}

/// Queues a goroutine that yields on a P that is alone, before the goroutine is left (see
/// `switch::switch_away_alone`), and takes the next goroutine. `None` unless all queued goroutines
/// are in the queue of those that yield.
#[inline(always)]
#[must_use]
fn take_turns(m: MRef, p: PRef, g: GRef) -> Option<Task> {
    if !p.alone.get() {
        return None;
    }
    let tick = p.tick.load(Ordering::Relaxed).wrapping_add(1);
    // One branch for all rare cases.
    let others = p.runnext.load(Ordering::Relaxed)
        | p.inbox.len()
        | m.pinned.len()
        | p.of_node().high.len()
        | m.by_g0.get()
        | p.attention.load(Ordering::Relaxed) as usize;
    if others != 0
        || !p.private.is_empty()
        || is_unusual(p, tick)
        || ready::is_special(g, p.migrates)
    {
        return None;
    }
    let taken = p.shared.rotate(Task::goroutine(g).into_word())?;
    p.tick.store(tick, Ordering::Relaxed);
    fetch_next_shared(p, &taken);
    // SAFETY: rings hold tasks.
    unsafe { Task::from_word(taken.entry) }
}

/// # Safety
/// The caller is on an M's thread. `g` is the address of a goroutine that the caller owns.
pub unsafe fn yield_commit(g: usize) {
    // SAFETY: this is an M's thread, and `g` the address of a goroutine, as the caller says.
    let (m, g) = unsafe { (m::must_current(), GRef::at(g)) };
    // SAFETY: the M held a P when the goroutine left, and a switch changes no P.
    ready::push_yielded(unsafe { m.must_p() }, g);
}

/// Yields because the P is asked for something, such as to stop. Called at the entry of functions
/// that may switch.
#[cold]
#[inline(never)]
pub fn give_way() {
    let Some(m) = on_goroutine() else { return };
    if m.g().has(flags::NOPREEMPT) {
        let asked = m.p().attention.fetch_and(!attention::SLICE, Ordering::Relaxed);
        if asked & !(attention::SLICE | attention::GANG) == 0 {
            return;
        }
    }
    m.g().set_status(Status::Runnable);
    // SAFETY: `yield_commit` takes the address of a goroutine, which this M runs and so owns.
    unsafe { switch_away(m, yield_commit, m.g().address()) };
}
