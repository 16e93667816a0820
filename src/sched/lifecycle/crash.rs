//! Faults and abort(3) in ordered runs.
//!
//! A test in C fails by assert(3) more often than in any other way. If the run is one of many, the
//! signal's handler leaves the goroutine for good, as if the run had ended with an error, so that
//! the shortest schedule can be looked for. What the goroutine has locked stays locked; so the
//! process ends soon after, in a last run whose signal is not caught. A crash inside the library is
//! never caught.

use crate::arch;
use crate::os::locked::Locked;
use crate::os::{self, failing, signal};
use crate::sched::run::ordered;
use crate::sched::take::boundary;
use crate::sched::types::course::{Bubble, Outcome};
use crate::sched::types::m::{self, M, MRef, OUTSIDE};
use core::ffi::c_void;
use core::sync::atomic::Ordering;

/// How many have asked for the signals.
static USERS: Locked<usize> = Locked::new(0);

/// From now on crashes come here.
pub fn begin() {
    USERS.with(|n| {
        if *n == 0 {
            signal::on_crash(on_crash);
        }
        *n += 1;
    });
}

/// Undoes one [`begin`].
pub fn end() {
    USERS.with(|n| {
        *n -= 1;
        if *n == 0 {
            signal::end_crash();
        }
    });
}

/// In the child of a fork, which has no bubble.
///
/// # Safety
/// The caller is the child's only thread.
pub unsafe fn forked() {
    // SAFETY: no other thread is there.
    unsafe { USERS.reset() };
    if USERS.with(core::mem::take) > 0 {
        signal::end_crash();
    }
}

/// In the signal's handler. Returns if the crash is not to be caught.
fn on_crash(sig: i32, context: *const c_void) {
    let m = m::current();
    match m.as_deref().and_then(M::bubble) {
        Some(bubble) => {
            if let Some(m) = m
                && bubble.catches
                && m::is_on_goroutine(m)
                && m.outside.load(Ordering::Relaxed) == OUTSIDE
                && ends(bubble, m, sig)
            {
                leave(m, bubble, context);
            }
            if !bubble.catches {
                os::write_all(libc::STDERR_FILENO, bubble.last_words.as_bytes());
            }
        }
        None => failing::write_line(),
    }
}

/// Ends the run. False: it was over.
fn ends(bubble: &Bubble, m: MRef, sig: i32) -> bool {
    let Ok(mut outcome) = bubble.outcome.try_borrow_mut() else { return false };
    let is_first = outcome.is_none();
    outcome.get_or_insert(Outcome::Crashed(m.g().id.load(Ordering::Relaxed), sig));
    is_first
}

/// Leaves the goroutine and the handler's frames for good.
fn leave(m: MRef, bubble: &Bubble, context: *const c_void) {
    // SAFETY: the handler's context.
    unsafe {
        bubble.crashed_at.set(Some(arch::interrupted(context)));
        signal::leave_handler(context);
    }
    boundary::go_inside(m);
    ordered::leave_for_good(m);
}
