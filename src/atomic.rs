//! The atomics of the protocols that are model-checked: the models in
//! `tests/models` compile the same files with the checker's atomics here.

pub use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

/// A `Cell` for its owner, whose value other threads may read by [`RelaxedCell::seen`]: maybe an
/// old value. Orders no other memory accesses, so models don't check it.
#[derive(Default)]
#[repr(transparent)]
pub struct RelaxedCell<T: Word>(core::cell::UnsafeCell<T>);

impl<T: Word> RelaxedCell<T> {
    pub const fn new(value: T) -> RelaxedCell<T> {
        RelaxedCell(core::cell::UnsafeCell::new(value))
    }

    /// Owner.
    #[inline(always)]
    pub fn get(&self) -> T {
        // SAFETY: only the owner writes the value, and the caller is the owner: as for a `Cell`,
        // the type that contains this and is `Sync` says which thread that is.
        unsafe { *self.0.get() }
    }

    /// Owner.
    #[inline(always)]
    pub fn set(&self, value: T) {
        // SAFETY: `self.0` is there, and other threads read it atomically.
        unsafe { T::store(self.0.get(), value) };
    }

    /// Owner. Returns the former value.
    #[inline(always)]
    pub fn replace(&self, value: T) -> T {
        let old = self.get();
        self.set(value);
        old
    }

    /// Any thread.
    #[inline(always)]
    pub fn seen(&self) -> T {
        // SAFETY: `self.0` is there, and the owner writes it atomically.
        unsafe { T::load(self.0.get()) }
    }
}

/// A value that a [`RelaxedCell`] can hold: the processor reads and writes it in one access.
pub trait Word: Copy {
    /// Relaxed.
    ///
    /// # Safety
    /// `from` can be read, and nothing but [`Word::store`] writes it meanwhile.
    unsafe fn load(from: *mut Self) -> Self;

    /// Relaxed.
    ///
    /// # Safety
    /// `to` can be written, and nothing but [`Word::load`] of another thread uses it meanwhile.
    unsafe fn store(to: *mut Self, value: Self);
}

/// Makes `$t` a `Word`. `$atomic` has the size and alignment of `$t`.
#[macro_export]
macro_rules! word {
    ([$($of:ident)?] $t:ty, $atomic:ty) => {
        impl<$($of)?> $crate::atomic::Word for $t {
            #[inline(always)]
            unsafe fn load(from: *mut Self) -> Self {
                // SAFETY: as the caller says; the atomic gives what was stored as this type.
                unsafe {
                    let word = <$atomic>::from_ptr(from.cast());
                    let value = word.load(std::sync::atomic::Ordering::Relaxed);
                    (&raw const value).cast::<$t>().read()
                }
            }

            #[inline(always)]
            unsafe fn store(to: *mut Self, value: Self) {
                // SAFETY: as the caller says; the types have one size.
                unsafe {
                    let word = <$atomic>::from_ptr(to.cast());
                    let value = core::ptr::read((&raw const value).cast());
                    word.store(value, std::sync::atomic::Ordering::Relaxed);
                }
            }
        }
    };
}

word!([] bool, std::sync::atomic::AtomicBool);
word!([] u16, std::sync::atomic::AtomicU16);
word!([] u32, std::sync::atomic::AtomicU32);
word!([] u64, std::sync::atomic::AtomicU64);
word!([] i64, std::sync::atomic::AtomicI64);
word!([] usize, std::sync::atomic::AtomicUsize);
word!([T] *const T, std::sync::atomic::AtomicPtr<T>);
word!([T] *mut T, std::sync::atomic::AtomicPtr<T>);
