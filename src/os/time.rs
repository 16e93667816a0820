//! The clock of all deadlines: CLOCK_MONOTONIC in ns.

use core::mem::transmute;
use core::sync::atomic::{AtomicPtr, Ordering};

/// A function like clock_gettime(2).
pub type Clock = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

/// The [`Clock`] that `now` reads: a call by this pointer costs as much as one by the linker's.
static CLOCK: AtomicPtr<()> = AtomicPtr::new(libc::clock_gettime as *mut ());

/// Lets [`now`] read another clock; `None`: the system's. Both may be read for a while.
pub fn set_clock(clock: Option<Clock>) {
    CLOCK.store(clock.unwrap_or(libc::clock_gettime) as *mut (), Ordering::Relaxed);
}

/// Now, in ns; never 0 and never negative. In a bubble: its virtual time.
#[inline]
pub fn now() -> i64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `CLOCK` holds a `Clock`, and `ts` is writable.
    unsafe {
        let clock = transmute::<*mut (), Clock>(CLOCK.load(Ordering::Relaxed));
        clock(libc::CLOCK_MONOTONIC, &mut ts);
    }
    ts.tv_sec * 1_000_000_000 + ts.tv_nsec
}

/// [`now`] by the system's clock, even in a bubble.
pub fn real() -> i64 {
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
