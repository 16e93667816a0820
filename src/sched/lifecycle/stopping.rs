//! Stopping the world for an embedder, such as a garbage collector, and keeping a goroutine's P for
//! it. seed: B8

use crate::os::time;
use crate::sched::run::traced;
use crate::sched::take::{boundary, handler, preempt, registers, world};
use crate::sched::types::g::GRef;
use crate::sched::types::m::{self, OUTSIDE};
use crate::sched::types::runtime::{Guest, rt};
use crate::trace;
use core::sync::atomic::{AtomicU64, Ordering};

/// How long [`stop`] sleeps before it checks again whether strays still run the user's code, in ns.
const STRAY_PAUSE: i64 = 100_000;

/// The goroutine or thread that has stopped the world, by its `m::caller`; 0: the world runs.
static STOPPER: AtomicU64 = AtomicU64::new(0);

/// Whether the caller has stopped the world.
pub fn has_stopped() -> bool {
    STOPPER.load(Ordering::Relaxed) == m::caller()
}

/// Stops all goroutines but the caller. `-EDEADLK`: the caller has stopped the world already. Fails
/// as [`Guest::enter`] too.
pub fn stop() -> i32 {
    if has_stopped() {
        return -libc::EDEADLK;
    }
    match Guest::enter_or_start() {
        // Kept until `start`, so that no thread ends the runtime while its world is stopped.
        Ok(inside) => core::mem::forget(inside),
        Err(e) => return e,
    }
    let _: world::Stopped = world::stop();
    // Strays may still run: goroutines that lost their P in a block or a call, or as a computing
    // member of a group.
    while preempt::stop_strays(rt()) {
        time::sleep(STRAY_PAUSE);
    }
    disable_preemption();
    STOPPER.store(m::caller(), Ordering::Relaxed);
    if trace::is_on()
        && let Some(m) = m::on_goroutine()
    {
        traced::world_stops(m);
    }
    0
}

/// Lets all goroutines go on. `-EPERM`: the caller has not stopped the world.
pub fn start() -> i32 {
    if !has_stopped() {
        return -libc::EPERM;
    }
    STOPPER.store(0, Ordering::Relaxed);
    if trace::is_on()
        && let Some(m) = m::current()
        && let Some(g) = m::current_g()
    {
        traced::world_starts(m, g);
    }
    registers::stop_showing(rt());
    let has_p = m::current().is_some_and(|m| m.stops_world.get());
    // SAFETY: `stop` has stopped the world.
    world::start(unsafe { world::Stopped::again() });
    if let Some(g) = m::current_g() {
        change_preempt_off(g, -1);
    }
    if !has_p {
        // SAFETY: `stop` has forgotten a `Guest`.
        drop(unsafe { Guest::again() });
    }
    0
}

/// Notes, in the child of a fork, that the world runs.
pub fn forget_stop() {
    STOPPER.store(0, Ordering::Relaxed);
}

/// Disables preemption of the caller: `gs_preempt_disable`. A goroutine that has lost its P in a
/// block or a call gets a P first: from here on no signal could stop it for a stopped world.
pub fn disable_preemption() {
    let Some(m) = m::current() else { return };
    let Some(g) = m::current_g() else { return };
    // Inside the library, so that no thread takes the P before it can see `preempt_off`.
    let from = boundary::go_inside(m);
    if from == OUTSIDE && g.preempt_off.load(Ordering::Relaxed) == 0 {
        handler::ensure_p_on_thread(m);
    }
    change_preempt_off(g, 1);
    // Release: pairs with the Acquire in `preempt::take_locked`.
    m.outside.store(from, Ordering::Release);
}

/// Enables preemption again: `gs_preempt_enable`. Yields if the goroutine was asked to meanwhile.
pub fn enable_preemption() {
    let Some(g) = m::current_g() else { return };
    match g.preempt_off.load(Ordering::Relaxed) {
        0 => {}
        1 => {
            change_preempt_off(g, -1);
            drop(boundary::Entered::new());
        }
        _ => change_preempt_off(g, -1),
    }
}

/// Adds to `preempt_off` by a load and a store, because only the goroutine itself changes it.
fn change_preempt_off(g: GRef, by: i32) {
    let now = g.preempt_off.load(Ordering::Relaxed).wrapping_add_signed(by);
    g.preempt_off.store(now, Ordering::Relaxed);
}
