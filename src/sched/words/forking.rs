//! Whether a thread forks. Until the fork is over no thread is made, and sysmon does without memory.

use crate::os::spin::SpinLock;
use core::sync::atomic::{AtomicBool, Ordering};

/// While a thread forks it has the locks of both heaps, and waits for those that others
/// have. Whoever helps these others on must do without memory and threads.
pub static FORKING: AtomicBool = AtomicBool::new(false);

/// Its holder may allocate: sysmon, or the thread that forks.
pub static ALLOCATES: SpinLock = SpinLock::new();

/// sysmon has begun a look while a thread forked: another fork may begin at any moment.
pub static SYSMON_ABSTAINS: AtomicBool = AtomicBool::new(false);

/// Whether a thread forks, or might: no thread is made then.
pub fn is_forking() -> bool {
    FORKING.load(Ordering::SeqCst) || SYSMON_ABSTAINS.load(Ordering::Relaxed)
}

/// Whether a thread forks, which has waited for all that must not be under way then, or will.
pub fn forks() -> bool {
    FORKING.load(Ordering::SeqCst)
}

/// sysmon is about to look at everything: until [`may_fork`] no thread begins to fork.
/// False: a thread forks already.
pub fn keep_from_forking() -> bool {
    let kept = ALLOCATES.try_lock();
    SYSMON_ABSTAINS.store(!kept, Ordering::Relaxed);
    kept
}

/// Ends what [`keep_from_forking`] has begun.
pub fn may_fork() {
    ALLOCATES.unlock();
}
