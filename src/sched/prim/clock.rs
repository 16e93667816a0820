//! The time, a few ms old, for the price of a load. sysmon sets it each time it wakes, and so does a thread that starts
//! a P while sysmon sleeps.

use core::sync::atomic::{AtomicI64, Ordering};

static NOW: AtomicI64 = AtomicI64::new(0);

/// A time that `os::time::now` gave, at most a few ms ago if sysmon gets its CPU in time. In ns.
#[inline(always)]
pub fn rough() -> i64 {
    NOW.load(Ordering::Relaxed)
}

/// Sets what `rough` gives from now on.
pub fn set(now: i64) {
    NOW.store(now, Ordering::Relaxed);
}
