//! `core` as the sources under check see it in the shuttle models: before each
//! atomic operation another thread may go on. The models' crate says
//! `extern crate shuttle_core as core`, so the sources need no change.
//!
//! The atomics are as large as the real ones and valid when zero, as the
//! library's objects must be.

pub use core::*;

pub mod hint {
    pub use core::hint::*;

    pub fn spin_loop() {
        shuttle::thread::yield_now();
    }
}

pub mod sync {
    pub use core::sync::*;

    pub mod atomic {
        use core::ops::Deref;
        use core::sync::atomic as real;
        pub use core::sync::atomic::{Ordering, compiler_fence, fence};

        /// So many operations go by until the running thread lets all others go on
        /// before it: whatever the scheduler prefers, nobody waits for ever.
        const FAIR: u64 = 500;

        static POINTS: real::AtomicU64 = real::AtomicU64::new(0);

        /// A run begins: what it does depends on its schedule only.
        pub fn reset() {
            POINTS.store(0, Ordering::Relaxed);
        }

        /// Another thread may go on here.
        pub fn point() {
            static COMMON: shuttle::sync::atomic::AtomicBool = shuttle::sync::atomic::AtomicBool::new(false);
            if POINTS.fetch_add(1, Ordering::Relaxed) % FAIR == 0 {
                shuttle::thread::yield_now();
            } else {
                COMMON.load(Ordering::SeqCst);
            }
        }

        macro_rules! atomic {
            ($name:ident $(<$t:ident>)?, $value:ty) => {
                #[repr(transparent)]
                #[derive(Default)]
                pub struct $name $(<$t>)? (real::$name $(<$t>)?);

                impl $(<$t>)? $name $(<$t>)? {
                    pub const fn new(v: $value) -> Self {
                        Self(real::$name::new(v))
                    }

                    /// Its value as a debugger sees it.
                    pub fn peek(&self) -> $value {
                        self.0.load(Ordering::Relaxed)
                    }
                }

                impl $(<$t>)? Deref for $name $(<$t>)? {
                    type Target = real::$name $(<$t>)?;

                    fn deref(&self) -> &Self::Target {
                        point();
                        &self.0
                    }
                }
            };
        }

        atomic!(AtomicBool, bool);
        atomic!(AtomicU8, u8);
        atomic!(AtomicU16, u16);
        atomic!(AtomicU32, u32);
        atomic!(AtomicU64, u64);
        atomic!(AtomicUsize, usize);
        atomic!(AtomicI32, i32);
        atomic!(AtomicI64, i64);
        atomic!(AtomicPtr<T>, *mut T);
    }
}
