//! Goroutines that own their thread. seed: S9

use super::g::flags;
use super::m;
use core::cell::Cell;
use core::ptr;

thread_local! {
    /// Locks of a plain thread: it can't move anyway, but they must pair.
    static PLAIN: Cell<u32> = const { Cell::new(0) };
}

/// From now on only this thread runs the goroutine, and nothing else. Nests.
/// LockOSThread.
pub fn lock() {
    let Some(m) = m::current().filter(|m| !m.curg.get().is_null()) else {
        PLAIN.set(PLAIN.get() + 1);
        return;
    };
    let g = m.g();
    let depth = g.lock_depth.get();
    g.lock_depth.set(depth + 1);
    if depth == 0 {
        g.set_flag(flags::BOUND, true);
        g.bound_m.set(m.as_ptr());
        m.locked_g.set(g.as_ptr());
    }
}

/// Undoes one lock; `-EPERM` when there is none. UnlockOSThread.
pub fn unlock() -> i32 {
    let Some(m) = m::current().filter(|m| !m.curg.get().is_null()) else {
        return match PLAIN.get() {
            0 => -libc::EPERM,
            n => {
                PLAIN.set(n - 1);
                0
            }
        };
    };
    let g = m.g();
    match g.lock_depth.get() {
        0 => return -libc::EPERM,
        1 => {
            m.locked_g.set(ptr::null());
            g.set_flag(flags::BOUND, g.has(flags::PINNED));
        }
        _ => {}
    }
    g.lock_depth.set(g.lock_depth.get() - 1);
    0
}
