//! A memory barrier on all threads of the process at once, paid by the caller.

use core::sync::atomic::{AtomicBool, Ordering, fence};

const REGISTER: i32 = 1 << 4;
const PRIVATE_EXPEDITED: i32 = 1 << 3;

static THERE: AtomicBool = AtomicBool::new(false);

/// Tells the kernel that the process will use membarrier(2). Once is enough; the child of a fork does it again.
pub fn set_up() {
    THERE.store(call(REGISTER), Ordering::Relaxed);
}

/// Whether the system has membarrier(2), as far as is known.
pub fn is_there() -> bool {
    THERE.load(Ordering::Relaxed)
}

/// From here on every thread sees what the caller has stored before, and the caller sees what every thread has stored
/// before. False: the system refuses that, because the program has installed a filter of system calls since. Then
/// [`is_there`] is false, too.
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
