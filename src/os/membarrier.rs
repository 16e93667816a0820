//! A memory barrier on all threads of the process at once, paid by the caller.

use core::sync::atomic::{AtomicBool, Ordering, fence};

const REGISTER: i32 = 1 << 4;
const PRIVATE_EXPEDITED: i32 = 1 << 3;

static THERE: AtomicBool = AtomicBool::new(false);

/// Tells the kernel that the process will use membarrier(2). Once is enough; the child of a fork does it again.
pub fn set_up() {
    THERE.store(call(REGISTER), Ordering::Relaxed);
}

/// Whether the system has membarrier(2).
pub fn is_there() -> bool {
    THERE.load(Ordering::Relaxed)
}

/// From here on every thread sees what the caller has stored before, and the caller sees what every thread has stored
/// before.
pub fn all_threads() {
    fence(Ordering::SeqCst);
    call(PRIVATE_EXPEDITED);
    fence(Ordering::SeqCst);
}

fn call(command: i32) -> bool {
    // SAFETY: takes no pointer.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
