//! Whether a thread forks. Until the fork is over no thread is made, and sysmon allocates nothing.

use super::time;
use crate::os::spin::{LongLock, backoff};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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

/// How many threads search among the loaded objects, or are about to. glibc leaves the loader's lock
/// as it is in the child of a fork, so no thread of the library holds it while another thread forks.
static SEARCHING: AtomicUsize = AtomicUsize::new(0);

/// How long a search waits before it checks again whether another thread still forks, in ns.
const SEARCH_RETRY: i64 = 50_000;

/// Keeps other threads from forking while it lives.
pub struct Searching(());

impl Searching {
    pub fn begin() -> Searching {
        loop {
            // SeqCst: pairs with `wait_for_searches`: either the forking thread sees this search,
            // or this thread sees that it forks.
            SEARCHING.fetch_add(1, Ordering::SeqCst);
            if !forks() {
                return Searching(());
            }
            SEARCHING.fetch_sub(1, Ordering::SeqCst);
            time::sleep(SEARCH_RETRY);
        }
    }
}

impl Drop for Searching {
    fn drop(&mut self) {
        SEARCHING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until no other thread searches. The caller has announced its fork.
pub fn wait_for_searches() {
    let mut round = 0;
    while SEARCHING.load(Ordering::SeqCst) != 0 {
        round += 1;
        backoff(round);
    }
}

/// In the child of a fork: threads that were about to search are gone.
pub fn forget_searches() {
    SEARCHING.store(0, Ordering::SeqCst);
}
