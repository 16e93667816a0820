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
    wake_in_handler(word, n);
}

/// [`wake`] in a signal handler that may have interrupted the holder of a spin lock.
pub fn wake_in_handler(word: *const AtomicU32, n: i32) {
    let _errno = super::KeepErrno::new();
    // SAFETY: the kernel only uses the address as a key.
    unsafe {
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, n);
    }
}

/// Whether the kernel can read a word of memory for this process: false at addresses where an access
/// faults. The word is not 1, or the call takes a moment longer.
pub fn can_read(at: usize) -> bool {
    let _errno = super::KeepErrno::new();
    let none = super::time::timespec(0);
    // SAFETY: the kernel checks the address. The wait is over at once: the word isn't the value, or
    // the time is up.
    let r = unsafe {
        let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        libc::syscall(libc::SYS_futex, at, wait, 1, &raw const none)
    };
    !(r < 0 && super::errno() == libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::{PAGE, mem};

    #[test]
    fn memory_can_be_read_where_it_is_mapped_and_not_protected() {
        let at = mem::reserve(2 * PAGE, PAGE).unwrap();
        // SAFETY: just reserved, and used by this test alone.
        unsafe { mem::protect_none(at, PAGE) };
        assert!(!can_read(at));
        assert!(can_read(at + PAGE));
        // SAFETY: as above.
        unsafe { mem::release(at, 2 * PAGE) };
        assert!(!can_read(at + PAGE));
    }
}
