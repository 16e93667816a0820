//! Cancelling: each call of a cancelled goroutine that would block returns `-ECANCELED`, unless the
//! goroutine has disabled cancelling.

use crate::sched::types::g::{G, GRef, flags};
use crate::sched::types::m;
use crate::sched::types::waiter::Parker;
use core::sync::atomic::Ordering;

/// Cancels a goroutine that has not ended.
pub fn cancel(g: GRef) {
    g.cancelled.store(true, Ordering::SeqCst);
    Parker::cancel(g);
}

/// Whether the caller is cancelled. A plain thread never is.
pub fn is_cancelled() -> bool {
    m::current_g().is_some_and(|g| g.cancelled.load(Ordering::Relaxed))
}

/// Clears the caller's cancel. Returns whether the caller was cancelled.
pub fn take_back() -> bool {
    // SeqCst: pairs with `cancel`, so that the next wait sees a cancel that comes after this.
    m::current_g().is_some_and(|g| g.cancelled.swap(false, Ordering::SeqCst))
}

/// Keeps the caller's waits from being cancelled, until [`enable`]. Nests.
pub fn disable() {
    let Some(g) = m::current_g() else { return };
    let depth = g.cancel_off.get();
    g.cancel_off.set(depth + 1);
    if depth == 0 {
        set(&g, true);
    }
}

/// Undoes one `disable`. `-EPERM`: cancelling isn't disabled.
pub fn enable() -> i32 {
    let Some(g) = m::current_g() else { return 0 };
    let depth = g.cancel_off.get();
    if depth == 0 {
        return -libc::EPERM;
    }
    g.cancel_off.set(depth - 1);
    if depth == 1 {
        set(&g, false);
    }
    0
}

/// Enables cancelling again, at the end of the goroutine.
pub fn forget(g: GRef) {
    if g.cancel_off.replace(0) > 0 {
        set(&g, false);
    }
}

fn set(g: &G, off: bool) {
    g.set_flag(flags::CANCEL_OFF, off);
    g.parker.let_cancel(!off);
}
