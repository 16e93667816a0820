//! `core` as the sources under check see it in the shuttle models: before each
//! atomic operation another thread may go on. The models' crate says
//! `extern crate shuttle_core as core`, so the sources need no change.
//!
//! The atomics are as large as the real ones and valid when zero, as the
//! library's objects must be.

pub use core::*;

pub mod order;

pub mod hint {
    pub use core::hint::*;

    pub fn spin_loop() {
        shuttle::thread::yield_now();
    }
}

pub mod sync {
    pub use core::sync::*;

    pub mod atomic {
        use crate::order;
        use core::ops::Deref;
        use core::sync::atomic as real;
        pub use core::sync::atomic::{Ordering, compiler_fence};

        pub fn fence(order: Ordering) {
            order::point();
            if order == Ordering::SeqCst {
                order::finish_stores();
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

                    /// Its value as the system sees it.
                    pub fn peek(&self) -> $value {
                        self.0.load(Ordering::Relaxed)
                    }

                    pub fn load(&self, _: Ordering) -> $value {
                        order::point();
                        match order::own_store(self.0.as_ptr().addr()) {
                            // SAFETY: put there by `store`.
                            Some(v) => unsafe { core::mem::transmute_copy(&v) },
                            None => self.peek(),
                        }
                    }

                    pub fn store(&self, v: $value, order: Ordering) {
                        order::point();
                        if order == Ordering::SeqCst || !order::is_late() {
                            order::finish_stores();
                            self.0.store(v, Ordering::Relaxed);
                            return;
                        }
                        let (mut word, size) = (0u64, size_of::<$value>());
                        let (from, to) = (&raw const v, &raw mut word);
                        // SAFETY: no atomic is larger than a word.
                        unsafe { from.cast::<u8>().copy_to_nonoverlapping(to.cast(), size) };
                        order::store_late(self.0.as_ptr().addr(), size, word);
                    }
                }

                /// All other operations.
                impl $(<$t>)? Deref for $name $(<$t>)? {
                    type Target = real::$name $(<$t>)?;

                    fn deref(&self) -> &Self::Target {
                        order::point();
                        order::finish_stores();
                        &self.0
                    }
                }

                impl $(<$t>)? Drop for $name $(<$t>)? {
                    fn drop(&mut self) {
                        order::finish_stores();
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
