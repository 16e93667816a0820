//! A list in pages of its own.
//!
//! For code that may use no heap: a thread that was stopped may hold the heap's lock.

use super::{PAGE, mem};
use core::ops::{Deref, DerefMut, Range};
use core::slice;

/// A list in memory from mmap(2). It grows by mremap(2), so elements may move.
pub struct Mapped<T: Copy> {
    at: usize,
    /// The mapping's length in bytes; 0: there is none yet.
    bytes: usize,
    len: usize,
    kind: core::marker::PhantomData<T>,
}

impl<T: Copy> Mapped<T> {
    pub const fn new() -> Mapped<T> {
        Mapped { at: 0, bytes: 0, len: 0, kind: core::marker::PhantomData }
    }

    /// A list of `len` elements whose bytes are all zero. `None`: there is no memory.
    ///
    /// # Safety
    /// All bytes zero are a valid `T`.
    pub unsafe fn zeroed(len: usize) -> Option<Mapped<T>> {
        let mut list = Mapped::new();
        if !list.reserve(len) {
            return None;
        }
        list.len = len;
        Some(list)
    }

    /// Makes room for `more` elements. False: there is no memory, and the list is as before.
    #[must_use]
    pub fn reserve(&mut self, more: usize) -> bool {
        const { assert!(size_of::<T>() != 0 && align_of::<T>() <= PAGE) };
        let Some(needed) = (self.len + more).checked_mul(size_of::<T>()) else { return false };
        if needed <= self.bytes {
            return true;
        }
        let bytes = needed.max(2 * self.bytes).next_multiple_of(PAGE);
        let at = match self.bytes {
            0 => mem::map(bytes),
            _ => mem::grow(self.at, self.bytes, bytes),
        };
        let Some(at) = at else { return false };
        (self.at, self.bytes) = (at, bytes);
        true
    }

    /// Appends an element. False: there is no memory.
    #[must_use]
    pub fn push(&mut self, value: T) -> bool {
        if !self.reserve(1) {
            return false;
        }
        // SAFETY: there is room for one more.
        unsafe { ((self.at as *mut T).add(self.len)).write(value) };
        self.len += 1;
        true
    }

    pub fn pop(&mut self) -> Option<T> {
        let value = *self.last()?;
        self.len -= 1;
        Some(value)
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The addresses of the list's memory.
    pub fn memory(&self) -> Range<usize> {
        self.at..self.at + self.bytes
    }
}

impl<T: Copy> Deref for Mapped<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self.bytes {
            0 => &[],
            // SAFETY: the first `len` elements have been written, or are valid as zeros.
            _ => unsafe { slice::from_raw_parts(self.at as *const T, self.len) },
        }
    }
}

impl<T: Copy> DerefMut for Mapped<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self.bytes {
            0 => &mut [],
            // SAFETY: as in `deref`; the list is borrowed exclusively.
            _ => unsafe { slice::from_raw_parts_mut(self.at as *mut T, self.len) },
        }
    }
}

impl<T: Copy> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is the list's own.
        unsafe { mem::release(self.at, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_grows_keeps_its_elements() {
        let mut list = Mapped::new();
        assert_eq!(*list, [0u64; 0]);
        for i in 0..100_000u64 {
            assert!(list.push(i));
        }
        assert!(list.iter().copied().eq(0..100_000));
        assert_eq!((list.pop(), list.len()), (Some(99_999), 99_999));
        list.clear();
        assert_eq!(list.pop(), None);
    }
}
