//! A lock that one thread takes all the time, and other threads seldom.
//!
//! A locked instruction costs the owner more than the rest of a short section. So the owner only
//! stores that it is in, and looks whether another thread wants the lock. The other thread pays
//! instead, with [`membarrier`].
//!
//! ```text
//!   owner                                another thread
//!     in = 1                               others: 0 -> 1, which excludes other such threads
//!     others == 0? else in = 0, waits      membarrier
//!     ... section ...                      waits until in == 0
//!     in = 0                               ... section ...
//!                                          others = 0
//! ```
//!
//! *Both in.* The owner would have read `others == 0` before the other thread stored 1, and the other
//! thread `in == 0` before the owner's store of 1 was visible. The barrier comes between: a store of
//! the owner before it is visible after it, and an owner that stores after it reads `others == 1`.
//!
//! *Both wait.* The owner takes its 1 back before it waits, so the other thread goes on. A third
//! thread waits for `others`, which the second one clears without waiting for the owner again.
//!
//! *No barrier.* Where the system has none, the owner has a fence of its own. If the system refuses
//! the barrier from some moment on, because the program has installed a filter of system calls, an
//! owner may just have begun without its fence. Its store is visible a moment later (a CPU keeps
//! stores for less than a microsecond, and an interrupt empties the CPU's store buffer), for which
//! the other thread sleeps.

use super::spin::{SpinLock, backoff, held};
use super::{membarrier, time};
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};

/// A lock for short sections: see the module's documentation. What [`SpinLock`] says of its sections
/// holds for these.
pub struct BiasedLock {
    /// 1: the owner is in its section, or about to look whether it may be.
    owner_in: AtomicU32,
    /// Held by the thread that has the lock and isn't the owner.
    others: SpinLock,
    /// False: no thread is the owner.
    has_owner: bool,
}

/// The time after which a store is visible to all CPUs, in ns, by a wide margin.
const STORES_ARE_VISIBLE: i64 = 10_000_000;

impl BiasedLock {
    pub const fn new() -> BiasedLock {
        BiasedLock { owner_in: AtomicU32::new(0), others: SpinLock::new(), has_owner: true }
    }

    /// A lock without an owner: a [`SpinLock`].
    pub const fn without_owner() -> BiasedLock {
        BiasedLock { owner_in: AtomicU32::new(0), others: SpinLock::new(), has_owner: false }
    }

    /// Locks it for the owner.
    ///
    /// # Safety
    /// The calling thread is the owner: no other thread calls this until the owner has said, by a
    /// lock or otherwise, that it calls this no more.
    #[inline(always)]
    pub unsafe fn lock_as_owner(&self) {
        debug_assert!(self.has_owner);
        self.enter();
        if !self.others.is_free() {
            self.wait_for_others();
        }
        held::change(1);
    }

    /// Says that the owner is in.
    #[inline(always)]
    fn enter(&self) {
        self.owner_in.store(1, Ordering::Relaxed);
        // Pairs with the barrier in `wait_for_owners`.
        match membarrier::is_there() {
            true => compiler_fence(Ordering::SeqCst),
            false => fence(Ordering::SeqCst),
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_for_others(&self) {
        let mut round = 0;
        loop {
            self.owner_in.store(0, Ordering::Release);
            while !self.others.is_free() {
                round += 1;
                backoff(round);
            }
            self.enter();
            // `is_free` has Acquire: pairs with the Release in `unlock`.
            if self.others.is_free() {
                return;
            }
        }
    }

    /// # Safety
    /// The calling thread has called [`BiasedLock::lock_as_owner`].
    #[inline(always)]
    pub unsafe fn unlock_as_owner(&self) {
        held::change(-1);
        // Release: pairs with the Acquire in `wait_for_owners`.
        self.owner_in.store(0, Ordering::Release);
    }

    /// Locks it for any thread that isn't in a section of the owner.
    pub fn lock(&self) {
        BiasedLock::lock_all(core::iter::once(self));
    }

    /// Locks several locks, with one barrier.
    pub fn lock_all<'a>(locks: impl Iterator<Item = &'a BiasedLock> + Clone) {
        let mut has_owner = false;
        for lock in locks.clone() {
            lock.others.lock();
            has_owner |= lock.has_owner;
        }
        if has_owner {
            BiasedLock::wait_for_owners(locks);
        }
    }

    fn wait_for_owners<'a>(locks: impl Iterator<Item = &'a BiasedLock>) {
        // Owners that don't know of the barrier yet, or no longer, have fences.
        if membarrier::is_there() && !membarrier::all_threads() {
            time::sleep(STORES_ARE_VISIBLE);
        }
        // Pairs with the fence in `enter`.
        fence(Ordering::SeqCst);
        let mut round = 0;
        for lock in locks {
            // Acquire: pairs with the Release in `unlock_as_owner`.
            while lock.owner_in.load(Ordering::Acquire) != 0 {
                round += 1;
                backoff(round);
            }
        }
    }

    /// # Safety
    /// The calling thread has called [`BiasedLock::lock`].
    pub unsafe fn unlock(&self) {
        // SAFETY: as the caller says.
        unsafe { self.others.unlock() };
    }

    /// Makes the lock free, whether a thread held it or not.
    ///
    /// # Safety
    /// As for [`SpinLock::reset`].
    pub unsafe fn reset(&self) {
        self.owner_in.store(0, Ordering::Relaxed);
        // SAFETY: as the caller says.
        unsafe { self.others.reset() };
    }
}
