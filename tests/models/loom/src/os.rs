//! The operating system as the models need it.

#[path = "../../../../src/os/locked.rs"]
pub mod locked;

pub mod cpu {
    /// Threads are never bound here.
    pub struct CpuSet;

    impl CpuSet {
        pub fn new(_cpus: &[usize]) -> CpuSet {
            CpuSet
        }

        pub fn bind(&self) -> bool {
            true
        }
    }
}

pub mod heap {
    /// There is memory for all that a test makes.
    pub fn reserve<T>(list: &mut Vec<T>, more: usize) -> bool {
        list.reserve(more);
        true
    }
}

pub mod time {
    /// No time passes.
    pub fn now() -> i64 {
        0
    }
}

pub mod spin {
    use crate::atomic::{AtomicU32, Ordering};

    /// The library's lock: a waiter lets others run.
    pub struct SpinLock(AtomicU32);

    impl SpinLock {
        pub const fn new() -> SpinLock {
            SpinLock(AtomicU32::new(0))
        }

        pub fn try_lock(&self) -> bool {
            self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        }

        pub fn lock(&self) {
            while !self.try_lock() {
                loom::thread::yield_now();
            }
        }

        /// # Safety
        /// As the real one.
        pub unsafe fn unlock(&self) {
            self.0.store(0, Ordering::Release);
        }

        /// # Safety
        /// As the real one.
        pub unsafe fn reset(&self) {
            // SAFETY: as the caller says.
            unsafe { self.unlock() };
        }

        pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
            self.lock();
            let r = f();
            // SAFETY: locked above.
            unsafe { self.unlock() };
            r
        }
    }

    pub type LongLock = SpinLock;

    pub fn backoff(_round: u32) {
        loom::thread::yield_now();
    }
}
