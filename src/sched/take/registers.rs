//! Registers of goroutines. Those of goroutines whose threads run the user's code are for a stopper
//! of the world: a collector looks for pointers in them, and a dump walks from there. A thread shows
//! its registers in the handler of the preemption signal.

use crate::arch::{self, Registers};
use crate::os::{futex, signal, thread, time};
use crate::sched::types::g::{GRef, flags};
use crate::sched::types::m::{self, MRef, OUTSIDE};
use crate::sched::types::runtime::{Runtime, rt};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering;

/// Values of [`M::show`](crate::sched::types::m::M::show).
pub mod state {
    /// No stopper wants the registers, or the world goes on.
    pub const NO: u32 = 0;
    /// The stopper of the world waits for the registers.
    pub const WANTED: u32 = 1;
    /// The registers are in `M::context`, and the thread waits in the handler.
    pub const SHOWN: u32 = 2;
}

/// In the handler: shows the registers to a stopper of the world that wants them, until the world
/// goes on.
pub fn show_if_wanted(m: MRef, context: *mut c_void) {
    if m.show.load(Ordering::Relaxed) != state::WANTED {
        return;
    }
    m.context.set(context);
    // Release: pairs with the Acquire in `shown`, which then sees the context.
    let shows = m
        .show
        .compare_exchange(state::WANTED, state::SHOWN, Ordering::Release, Ordering::Relaxed)
        .is_ok();
    // The handler holds no lock, as in `handler::wait_here`: a collector that also stops threads by
    // itself may signal this thread.
    let wait = || {
        while m.show.load(Ordering::Acquire) == state::SHOWN {
            futex::wait(&m.show, state::SHOWN, -1);
        }
    };
    if shows {
        // SAFETY: `handler::on_signal` was given this context, and has not returned.
        unsafe { signal::let_others_through(context, rt().preempt_signal, wait) };
    }
    m.context.set(ptr::null_mut());
}

/// How long a stopper of the world waits for threads to show their registers, in ns; 100 ms were
/// too short on a busy machine. A thread that blocks the signal, or gets no CPU for this time,
/// doesn't show them, and a collector misses the pointers there.
pub const SHOWS_WITHIN: i64 = 1_000_000_000;

/// With the world stopped: makes goroutines show their registers if they are in the user's code on
/// a thread, in a system call or in a block that was not announced. A signal is the only way to
/// these registers: a thread can't read what the kernel keeps for another thread of its process.
/// Waits for at most `patience` ns.
pub fn show_all(rt: &Runtime, patience: i64) {
    let me = m::current();
    if rt.preempt_signal == 0 {
        return;
    }
    let deadline = time::now() + patience;
    for look in 0u32.. {
        let mut waits = false;
        rt.for_each_m(|m| {
            let is_at_rest = m.curg.seen().is_null() || !m.blocking.seen().is_null();
            if Some(m) == me || is_at_rest || shown(m).is_some() {
                return;
            }
            if m.outside.load(Ordering::Acquire) != OUTSIDE {
                // The M is inside without a P, so its goroutine is on its way to rest, unless it
                // waits in a call of the library.
                waits |= !m.waits_inside.load(Ordering::Acquire);
                return;
            }
            waits = true;
            match want(m) {
                state::NO => {}
                // The handler ignores a signal that arrives while the M is inside, so the signal is
                // sent again.
                state::WANTED if look % LOOKS == 0 => {}
                _ => return,
            }
            thread::send_signal(m.tid.load(Ordering::Relaxed), rt.preempt_signal);
        });
        if !waits || time::now() > deadline {
            return;
        }
        time::sleep(SHOW_PAUSE);
    }
}

/// After [`show_all`]: whether the M's goroutine shows its registers, waits in the library, or is at
/// rest, or the M is the caller's.
pub fn shows(m: MRef) -> bool {
    let is_at_rest = m.curg.seen().is_null() || !m.blocking.seen().is_null();
    // Acquire: pairs with the Release in `park::WaitsInside`.
    let waits = || m.waits_inside.load(Ordering::Acquire);
    Some(m) == m::current() || is_at_rest || shown(m).is_some() || waits()
}

/// Asks the M's goroutine for its registers, unless it was asked before or has shown them. Returns
/// the former state. `SHOWN` must stay: that thread sleeps, and `stop_showing` wakes only threads
/// whose state is `SHOWN`.
fn want(m: MRef) -> u32 {
    let relaxed = Ordering::Relaxed;
    m.show
        .compare_exchange(state::NO, state::WANTED, relaxed, relaxed)
        .unwrap_or_else(|other| other)
}

/// After this number of rounds over all M's the signal is sent again.
const LOOKS: u32 = 50;

/// The pause between two rounds of a stopper that waits for registers, in ns.
const SHOW_PAUSE: i64 = 20_000;

/// Lets the threads that show their registers go on, as the world goes on.
pub fn stop_showing(rt: &Runtime) {
    rt.for_each_m(|m| {
        if m.show.swap(state::NO, Ordering::AcqRel) == state::SHOWN {
            futex::wake(&m.show, 1);
        }
    });
}

/// The registers of the M's goroutine, if it shows them or waits in the handler.
pub fn shown(m: MRef) -> Option<*mut c_void> {
    // Acquire: pairs with the Release in `show_if_wanted`, so the context read below is the one
    // shown now.
    let shows = m.show.load(Ordering::Acquire) == state::SHOWN;
    let waits_here = m.context.seen();
    // SAFETY: a goroutine that this M runs is a descriptor, which stays mapped.
    let g = unsafe { GRef::from_nullable(m.curg.seen()) };
    let interrupted = g.is_some_and(|g| g.flags.seen() & flags::INTERRUPTED != 0);
    (shows || interrupted).then_some(waits_here).filter(|c| !c.is_null())
}

/// Of a goroutine at rest: the lowest address in use on its stack, saved registers included, and
/// the registers with which it goes on. `None`: the goroutine is being left now, and has no context
/// yet. The goroutine doesn't run meanwhile.
pub fn at_rest(g: GRef) -> Option<(usize, Registers)> {
    // Acquire: pairs with the Release in `switch_to_g0`, so that the registers saved with the
    // context are visible.
    match g.context.load(Ordering::Acquire) {
        0 => None,
        // SAFETY: the goroutine doesn't run on its stack, as the caller says. A goroutine that is
        // just being left may still show an old context, whose memory stays mapped.
        context => unsafe { Some((arch::lowest_in_use(context), Registers::of_context(context))) },
    }
}
