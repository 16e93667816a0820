//! The lock of the runtime's own short critical sections.

use crate::atomic::{AtomicU32, Ordering, spin_loop};

/// A lock for sections of about ten instructions. It is one word, zero when free, so it may live in
/// zeroed memory that belongs to the user.
///
/// A waiter spins, then gives up its CPU, then sleeps, because the holder may have lost its CPU in
/// the middle. No holder blocks or switches while it holds such a lock, except to leave the
/// unlocking to the context that runs next. Nor does a holder wake or start a thread: that takes
/// the kernel some microseconds, and a thread that starts may take locks of the C library. Builds
/// with debug assertions check this ([`assert_none_held`]).
#[repr(transparent)]
pub struct SpinLock(LongLock);

impl SpinLock {
    pub const fn new() -> SpinLock {
        SpinLock(LongLock::new())
    }

    #[inline(always)]
    #[must_use]
    pub fn try_lock(&self) -> bool {
        let locked = self.0.try_lock();
        held::change(i32::from(locked));
        locked
    }

    /// Whether it is free; may be old when it is read.
    #[inline(always)]
    pub fn is_free(&self) -> bool {
        self.0.is_free()
    }

    #[inline(always)]
    pub fn lock(&self) {
        self.0.lock();
        held::change(1);
    }

    /// # Safety
    /// As for [`LongLock::unlock`].
    #[inline(always)]
    pub unsafe fn unlock(&self) {
        held::change(-1);
        // SAFETY: as the caller says.
        unsafe { self.0.unlock() };
    }

    /// Makes the lock free, whether a thread held it or not.
    ///
    /// # Safety
    /// In the child of a fork: no thread that held the lock, or waited for it, is there any more.
    pub unsafe fn reset(&self) {
        // SAFETY: as the caller says.
        unsafe { self.0.reset() };
    }

    /// Runs `f` with the lock held.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        self.lock();
        let r = f();
        // SAFETY: locked above.
        unsafe { self.unlock() };
        r
    }
}

/// A [`SpinLock`] whose holder may make system calls, wake threads and start them. Its waiters
/// sleep.
#[repr(transparent)]
pub struct LongLock(AtomicU32);

impl LongLock {
    pub const fn new() -> LongLock {
        LongLock(AtomicU32::new(0))
    }

    #[inline(always)]
    #[must_use]
    pub fn try_lock(&self) -> bool {
        // Acquire: pairs with the Release in `unlock`.
        self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether it is free; may be old when it is read.
    #[inline(always)]
    pub fn is_free(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    #[inline(always)]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended();
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self) {
        let mut round = 0;
        loop {
            while self.0.load(Ordering::Relaxed) != 0 {
                round += 1;
                backoff(round);
            }
            if self.try_lock() {
                return;
            }
        }
    }

    /// Unlocks. There is no guard, because a section may end in another function than it began in:
    /// a goroutine that parks hands the lock over to the context that runs next
    /// (`sched::run::park`).
    ///
    /// # Safety
    /// The caller holds the lock, or the holder has handed it over to the caller.
    #[inline(always)]
    pub unsafe fn unlock(&self) {
        debug_assert!(!self.is_free());
        // Release: pairs with the Acquire in `try_lock`.
        self.0.store(0, Ordering::Release);
    }

    /// Makes the lock free, whether a thread held it or not.
    ///
    /// # Safety
    /// As for [`SpinLock::reset`].
    pub unsafe fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Runs `f` with the lock held.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        self.lock();
        let r = f();
        // SAFETY: locked above.
        unsafe { self.unlock() };
        r
    }
}

/// In builds with debug assertions: panics if the calling thread holds a [`SpinLock`]. For
/// functions that wake or start a thread.
#[inline(always)]
pub fn assert_none_held() {
    held::assert_none();
}

/// Counts the spin locks that the calling thread holds. A lock may be handed over to another
/// context, but not to another thread.
#[cfg(debug_assertions)]
pub(super) mod held {
    use core::cell::Cell;

    std::thread_local! {
        static HELD: Cell<i32> = const { Cell::new(0) };
    }

    /// Never inlined, so that no address of a thread-local is kept: a goroutine may be on another
    /// thread at its next call.
    #[inline(never)]
    pub fn change(by: i32) {
        HELD.set(HELD.get() + by);
    }

    #[inline(never)]
    pub fn assert_none() {
        let held = HELD.get();
        assert!(held == 0, "a thread is woken or started with {held} spin locks held");
    }
}

#[cfg(not(debug_assertions))]
pub(super) mod held {
    #[inline(always)]
    pub fn change(_: i32) {}

    #[inline(always)]
    pub fn assert_none() {}
}

/// Pauses in one round, about 0.5 us. A waiter that read the lock more often would take the cache
/// line away from the holder, and make all wait longer.
const PAUSES: u32 = 30;

/// One round of waiting for another thread that will be done soon. Later rounds are longer, because
/// the other thread may have lost its CPU.
pub fn backoff(round: u32) {
    match round {
        0..=8 => {
            for _ in 0..PAUSES {
                spin_loop();
            }
        }
        // SAFETY: no preconditions.
        9..=60 => unsafe {
            libc::sched_yield();
        },
        _ => super::time::sleep(20_000),
    }
}
