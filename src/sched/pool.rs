//! Memory for descriptors and records: never given back before shutdown, so a
//! stale pointer to one still points at one (its generation tells).
//!
//! A P has a free list of its own that needs no lock; a node has the rest.
//! seed: S4, N2

use crate::os::{mem, spin::SpinLock};
use core::cell::{Cell, UnsafeCell};
use core::marker::PhantomData;
use core::ptr::NonNull;

/// What can be in a free list. All bytes zero must be a valid value.
pub trait Linked {
    /// The free list's link while it is free.
    fn link(&self) -> &Cell<usize>;
}

/// A list of free ones, the last freed first.
pub struct FreeList<T> {
    head: Cell<usize>,
    len: Cell<usize>,
    kind: PhantomData<*mut T>,
}

impl<T: Linked> FreeList<T> {
    pub const fn new() -> FreeList<T> {
        FreeList { head: Cell::new(0), len: Cell::new(0), kind: PhantomData }
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len.get()
    }

    #[inline(always)]
    pub fn push(&self, item: NonNull<T>) {
        // SAFETY: the caller owns the item; it stays mapped.
        unsafe { item.as_ref() }.link().set(self.head.get());
        self.head.set(item.as_ptr() as usize);
        self.len.set(self.len.get() + 1);
    }

    #[inline(always)]
    pub fn pop(&self) -> Option<NonNull<T>> {
        let item = NonNull::new(self.head.get() as *mut T)?;
        // SAFETY: what is in the list is ours and mapped.
        self.head.set(unsafe { item.as_ref() }.link().get());
        self.len.set(self.len.get() - 1);
        Some(item)
    }

    /// Moves up to `n` to another list.
    pub fn give(&self, to: &FreeList<T>, n: usize) {
        for _ in 0..n {
            match self.pop() {
                Some(item) => to.push(item),
                None => break,
            }
        }
    }
}

/// A node's free ones and the memory they are cut from.
pub struct Pool<T> {
    /// The node's number in the system, if memory can be had from it.
    memory: Option<usize>,
    lock: SpinLock,
    free: FreeList<T>,
    chunks: UnsafeCell<Vec<usize>>,
}

// SAFETY: all is used with `lock` held.
unsafe impl<T> Sync for Pool<T> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<T> Send for Pool<T> {}

/// Bytes of a chunk. A chunk is aligned to its size.
pub const CHUNK: usize = 64 << 10;

impl<T: Linked> Pool<T> {
    const EACH: usize = CHUNK / size_of::<T>();

    pub fn new(memory: Option<usize>) -> Pool<T> {
        let chunks = UnsafeCell::default();
        Pool { memory, lock: SpinLock::new(), free: FreeList::new(), chunks }
    }

    /// Moves up to `n` free ones to `to`, at least one unless memory is used up.
    pub fn refill(&self, to: &FreeList<T>, n: usize) {
        self.lock.with(|| {
            if self.free.len() == 0 {
                self.carve();
            }
            self.free.give(to, n);
        });
    }

    /// Moves up to `n` to `to`, if there are any.
    pub fn give_existing(&self, to: &FreeList<T>, n: usize) {
        self.lock.with(|| self.free.give(to, n));
    }

    /// Takes `n` from `from`.
    pub fn take_back(&self, from: &FreeList<T>, n: usize) {
        self.lock.with(|| from.give(&self.free, n));
    }

    pub fn get(&self) -> Option<NonNull<T>> {
        self.lock.with(|| {
            if self.free.len() == 0 {
                self.carve();
            }
            self.free.pop()
        })
    }

    pub fn put(&self, item: NonNull<T>) {
        self.lock.with(|| self.free.push(item));
    }

    /// Cuts a new chunk; the lock is held.
    fn carve(&self) {
        let Some(at) = mem::reserve(CHUNK, CHUNK) else { return };
        if let Some(node) = self.memory {
            mem::prefer_node(at, CHUNK, node);
        }
        // SAFETY: the lock is held.
        unsafe { &mut *self.chunks.get() }.push(at);
        for i in (0..Self::EACH).rev() {
            // SAFETY: `reserve` never gives address 0.
            self.free.push(unsafe { NonNull::new_unchecked((at + i * size_of::<T>()) as *mut T) });
        }
    }

    /// Every one there is, free or not.
    pub fn for_each(&self, mut f: impl FnMut(&T)) {
        // SAFETY: the lock is held; the copy needs none, for chunks stay.
        let chunks = self.lock.with(|| unsafe { &*self.chunks.get() }.clone());
        for at in chunks {
            for i in 0..Self::EACH {
                // SAFETY: the chunk is cut into T's, valid from the start.
                f(unsafe { &*((at + i * size_of::<T>()) as *const T) });
            }
        }
    }

    /// Gives all memory back, except chunks of which `keep` says that somebody
    /// still uses them; these are given.
    pub fn release(&mut self, mut keep: impl FnMut(&T) -> bool) -> Vec<usize> {
        let chunks = core::mem::take(self.chunks.get_mut());
        let (kept, freed): (Vec<usize>, Vec<usize>) = chunks.into_iter().partition(|&at| {
            // SAFETY: as in `for_each`.
            (0..Self::EACH).any(|i| keep(unsafe { &*((at + i * size_of::<T>()) as *const T) }))
        });
        freed.into_iter().for_each(|at| mem::release(at, CHUNK));
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Item {
        link: Cell<usize>,
        value: Cell<u64>,
    }
    impl Linked for Item {
        fn link(&self) -> &Cell<usize> {
            &self.link
        }
    }

    #[test]
    fn the_last_freed_is_given_out_first_and_lists_pass_batches() {
        // seed: S4
        let mut pool = Pool::<Item>::new(None);
        let mine = FreeList::new();
        pool.refill(&mine, 8);
        assert_eq!(mine.len(), 8);
        let a = mine.pop().expect("eight");
        mine.push(a);
        assert_eq!(mine.pop(), Some(a));
        pool.take_back(&mine, 5);
        assert_eq!(mine.len(), 2);
        // SAFETY: `a` is ours.
        unsafe { a.as_ref() }.value.set(7);
        let kept = pool.release(|i| i.value.get() == 7);
        assert_eq!(kept.len(), 1);
        mem::release(kept[0], CHUNK);
    }
}
