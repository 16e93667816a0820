//! A memory barrier on all threads of the process at once, paid by the caller.

use core::sync::atomic::{AtomicBool, Ordering, fence};

const REGISTER: i32 = 1 << 4;
const PRIVATE_EXPEDITED: i32 = 1 << 3;

static THERE: AtomicBool = AtomicBool::new(false);

/// Registers the process for membarrier(2): once, and again in the child of a fork.
pub fn set_up() {
    THERE.store(call(REGISTER), Ordering::Relaxed);
}

/// Whether membarrier(2) has worked so far.
pub fn is_there() -> bool {
    THERE.load(Ordering::Relaxed)
}

/// From here on every thread sees what the caller has stored before, and the caller sees what every
/// thread has stored before. False: the system refuses the call, because the program has installed
/// a filter of system calls since. Then [`is_there`] is false, too.
#[must_use]
pub fn all_threads() -> bool {
    fence(Ordering::SeqCst);
    let done = call(PRIVATE_EXPEDITED);
    fence(Ordering::SeqCst);
    if !done {
        THERE.store(false, Ordering::Relaxed);
    }
    done
}

fn call(command: i32) -> bool {
    // SAFETY: takes no pointer.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
