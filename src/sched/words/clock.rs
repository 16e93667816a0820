//! The time, to some ms, for the price of a load: sysmon sets it at each of its looks, and a thread
//! that starts a P while sysmon sleeps.

use core::sync::atomic::{AtomicI64, Ordering};

static NOW: AtomicI64 = AtomicI64::new(0);

/// What `os::time::now` gave at most a few ms ago, if sysmon gets to run so often.
#[inline(always)]
pub fn rough() -> i64 {
    NOW.load(Ordering::Relaxed)
}

/// What `rough` gives from now on.
pub fn set(now: i64) {
    NOW.store(now, Ordering::Relaxed);
}
