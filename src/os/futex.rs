//! Blocking a thread on a word of memory.

use super::spin::assert_none_held;
use core::sync::atomic::AtomicU32;

/// Blocks while `*word == expected`, until a wake, the deadline (ns on CLOCK_MONOTONIC; negative:
/// none) or a signal. May return for no reason, so the caller must check the word again. False: the
/// deadline has passed.
pub fn wait(word: &AtomicU32, expected: u32, deadline: i64) -> bool {
    assert_none_held();
    wait_unchecked(word, expected, deadline)
}

/// [`wait`] without a deadline, in a signal handler that may have interrupted the holder of a spin
/// lock.
pub fn wait_in_handler(word: &AtomicU32, expected: u32) {
    wait_unchecked(word, expected, -1);
}

fn wait_unchecked(word: &AtomicU32, expected: u32, deadline: i64) -> bool {
    let _errno = super::KeepErrno::new();
    let ts = super::time::timespec(deadline.max(0));
    let timeout = if deadline < 0 { core::ptr::null() } else { &raw const ts };
    // SAFETY: the word outlives the call, the timeout is null or a timespec.
    let r = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
            expected,
            timeout,
            core::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        )
    };
    !(r < 0 && super::errno() == libc::ETIMEDOUT)
}

/// Wakes up to `n` threads that wait on the word at this address. The memory may be gone: then no
/// thread wakes, or a thread wakes for no reason.
pub fn wake(word: *const AtomicU32, n: i32) {
    assert_none_held();
    let _errno = super::KeepErrno::new();
    // SAFETY: the kernel only uses the address as a key.
    unsafe {
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, n);
    }
}
