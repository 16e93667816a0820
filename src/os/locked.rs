//! A value and the lock that guards it.

use super::spin::SpinLock;
use core::cell::UnsafeCell;
use core::mem::offset_of;

/// A value that can be reached only with its lock held. For short sections, as [`SpinLock`].
#[repr(C)]
pub struct Locked<T> {
    lock: SpinLock,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that holds the lock reaches the value, so it passes from one thread to
// another and is never shared.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// Offset of the value in bytes, for debuggers.
    pub const VALUE: usize = offset_of!(Locked<T>, value);

    pub const fn new(value: T) -> Locked<T> {
        Locked { lock: SpinLock::new(), value: UnsafeCell::new(value) }
    }

    /// Runs `f` with the lock held. `f` must not ask for the same lock.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the lock is held, so no other thread reaches the value; and `f` can reach it only
        // by its argument, because a second `with` would wait for the lock for ever.
        self.lock.with(|| f(unsafe { &mut *self.value.get() }))
    }

    /// [`Locked::with`], if the lock is free. `None`: another thread holds it.
    #[must_use]
    pub fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        if !self.lock.try_lock() {
            return None;
        }
        // SAFETY: as in `with`.
        let r = f(unsafe { &mut *self.value.get() });
        // SAFETY: `try_lock` has locked it.
        unsafe { self.lock.unlock() };
        Some(r)
    }

    /// The value, without locking: `&mut self` proves that no other thread has a reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Locks around a fork: the child must not find the lock held by a thread that the child
    /// doesn't have, or the value half changed.
    pub fn lock(&self) {
        self.lock.lock();
    }

    /// Undoes [`Locked::lock`].
    ///
    /// # Safety
    /// The caller has called that.
    pub unsafe fn unlock(&self) {
        // SAFETY: as the caller says.
        unsafe { self.lock.unlock() };
    }

    /// Makes the lock free, whether a thread held it or not.
    ///
    /// # Safety
    /// As for [`SpinLock::reset`], and no thread was changing the value.
    pub unsafe fn reset(&self) {
        // SAFETY: as the caller says.
        unsafe { self.lock.reset() };
    }
}
