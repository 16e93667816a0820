//! The clock of all deadlines: CLOCK_MONOTONIC in ns.

/// Now, in ns; never 0 and never negative.
#[inline]
pub fn now() -> i64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec * 1_000_000_000 + ts.tv_nsec
}

/// The wall clock, CLOCK_REALTIME, in ns.
pub fn wall() -> i64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut ts) };
    ts.tv_sec * 1_000_000_000 + ts.tv_nsec
}

/// Blocks the calling thread for about `ns`.
pub fn sleep(ns: i64) {
    let _errno = super::KeepErrno::new();
    let ts = timespec(ns);
    // Not nanosleep(3), a cancellation point: pthread_cancel(3) could end a plain thread that holds
    // a lock.
    // SAFETY: `ts` is readable; the remainder is not asked for.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const ts, core::ptr::null_mut::<u8>()) };
}

/// `ns` as a `timespec`.
pub fn timespec(ns: i64) -> libc::timespec {
    libc::timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 }
}
