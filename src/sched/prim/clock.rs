//! A clock that is a few ms late and costs one load. sysmon sets it each time it wakes, and so does
//! a thread that starts a P while sysmon sleeps.

use core::sync::atomic::{AtomicI64, Ordering};

/// The time that `rough` returns. Public for debuggers alone.
pub static NOW: AtomicI64 = AtomicI64::new(0);

/// The last value of `os::time::now` that was set, in ns: at most a few ms old if sysmon gets its
/// CPU in time.
#[inline(always)]
pub fn rough() -> i64 {
    NOW.load(Ordering::Relaxed)
}

/// Sets the time that `rough` returns.
pub fn set(now: i64) {
    NOW.store(now, Ordering::Relaxed);
}
