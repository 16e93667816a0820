//! `core` as the sources under check see it in the loom models: loom's atomics,
//! fences and cells, and the rest as it is. The models' crate says
//! `extern crate loom_core as core`, so the sources need no change.

pub use core::*;

/// loom only looks for other orders of two operations on the same object, and
/// there only back to the last one: a load that is followed by a
/// compare-and-swap hides what other threads have read before. So that no order
/// is left out, each operation is preceded by a store to one object that all
/// have in common. It is never read, so it orders nothing.
pub mod order {
    use loom::sync::atomic::{AtomicU8, Ordering};
    use std::cell::RefCell;
    use std::rc::Rc;

    thread_local! {
        static COMMON: RefCell<Option<Rc<AtomicU8>>> = const { RefCell::new(None) };
    }

    /// Runs a model, on loom's first thread.
    pub fn explored(model: impl FnOnce()) {
        COMMON.set(Some(Rc::new(AtomicU8::new(0))));
        model();
        COMMON.set(None);
    }

    /// Another thread may go on here.
    pub fn point() {
        if let Some(common) = COMMON.with_borrow(Clone::clone) {
            common.store(0, Ordering::Relaxed);
        }
    }
}

pub mod hint {
    pub use core::hint::*;
    pub use loom::hint::spin_loop;
}

pub mod cell {
    pub use core::cell::*;
    pub use loom::cell::Cell;
}

pub mod sync {
    pub use core::sync::*;

    pub mod atomic {
        use core::cell::OnceCell;
        use core::ops::Deref;
        use loom::sync::atomic as checked;
        pub use loom::sync::atomic::Ordering;

        pub fn fence(order: Ordering) {
            crate::order::point();
            checked::fence(order);
        }

        /// loom's atomic, made at the first use: so `new` can be `const`.
        macro_rules! atomic {
            ($name:ident $(<$t:ident>)?, $value:ty) => {
                pub struct $name $(<$t>)? {
                    start: $value,
                    made: OnceCell<checked::$name $(<$t>)?>,
                }

                // SAFETY: loom runs all threads of a model on one; it is made
                // without a switch.
                unsafe impl $(<$t>)? Sync for $name $(<$t>)? {}
                // SAFETY: likewise.
                unsafe impl $(<$t>)? Send for $name $(<$t>)? {}

                impl $(<$t>)? $name $(<$t>)? {
                    pub const fn new(start: $value) -> Self {
                        Self { start, made: OnceCell::new() }
                    }
                }

                impl $(<$t>)? Deref for $name $(<$t>)? {
                    type Target = checked::$name $(<$t>)?;

                    #[track_caller]
                    fn deref(&self) -> &Self::Target {
                    crate::order::point();
                        self.made.get_or_init(|| checked::$name::new(self.start))
                    }
                }
            };
        }

        macro_rules! number {
            ($($name:ident $value:ty),*) => {$(
                atomic!($name, $value);
                impl Default for $name {
                    fn default() -> Self {
                        Self::new(Default::default())
                    }
                }
            )*};
        }

        number!(AtomicBool bool, AtomicU8 u8, AtomicU32 u32, AtomicU64 u64, AtomicUsize usize, AtomicI64 i64);
        atomic!(AtomicPtr<T>, *mut T);
    }
}
