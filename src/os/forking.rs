//! Whether a thread forks. Until the fork is over no thread is made, and sysmon allocates nothing.

use crate::os::spin::LongLock;
use core::sync::atomic::{AtomicBool, Ordering};

/// A thread forks. It has the locks of both heaps, and waits for locks that other threads have. A thread that helps
/// those threads on must allocate nothing and make no thread.
pub static FORKING: AtomicBool = AtomicBool::new(false);

/// Held by sysmon while it may allocate, or by the thread that forks.
pub static ALLOCATES: LongLock = LongLock::new();

/// sysmon began its check while a thread forked, so another fork may begin at any moment.
pub static SYSMON_ABSTAINS: AtomicBool = AtomicBool::new(false);

/// Whether a thread forks, or might: no thread is made then.
pub fn is_forking() -> bool {
    FORKING.load(Ordering::SeqCst) || SYSMON_ABSTAINS.load(Ordering::Relaxed)
}

/// Whether a thread forks now. That thread waits until everything that must not be under way during a fork has ended.
pub fn forks() -> bool {
    FORKING.load(Ordering::SeqCst)
}

/// sysmon is about to check everything: until [`may_fork`] no thread begins to fork. False: a thread forks already.
pub fn keep_from_forking() -> bool {
    let kept = ALLOCATES.try_lock();
    SYSMON_ABSTAINS.store(!kept, Ordering::Relaxed);
    kept
}

/// Ends what [`keep_from_forking`] has begun.
///
/// # Safety
/// The calling thread holds the lock.
pub unsafe fn may_fork() {
    // SAFETY: as the caller says.
    unsafe { ALLOCATES.unlock() };
}
