//! Memory for descriptors and records. The memory is not returned before shutdown, so a stale
//! pointer to a descriptor still points at a descriptor, whose park number says that the pointer is
//! stale.
//!
//! A P has a cache of its own that needs no lock; a node has the other free objects. Both keep
//! addresses, not a linked list: another P has most likely used a free object, so following links
//! through such objects would cost a cache miss for each, one after the other. seed: S4, N2

use crate::arch;
use crate::atomic::RelaxedCell;
use crate::os::locked::Locked;
use crate::os::{heap, mem};
use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ops::Range;
use core::ptr::{self, NonNull};

/// At most `N` free objects of one owner; the object freed last is given out first.
pub struct Cache<T, const N: usize> {
    len: RelaxedCell<usize>,
    items: [Cell<*mut T>; N],
}

impl<T, const N: usize> Cache<T, N> {
    /// How many pops ahead `pop` prefetches.
    const AHEAD: usize = 4;

    pub const fn new() -> Cache<T, N> {
        Cache { len: RelaxedCell::new(0), items: [const { Cell::new(ptr::null_mut()) }; N] }
    }

    #[inline(always)]
    fn item(&self, index: usize) -> &Cell<*mut T> {
        const { assert!(N.is_power_of_two()) };
        &self.items[index % N]
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// How many objects there are. Any thread may ask.
    pub fn len_seen(&self) -> usize {
        self.len.seen()
    }

    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.len.get() == N
    }

    /// Adds a free object. The cache must have room.
    #[inline(always)]
    pub fn push(&self, item: NonNull<T>) {
        let len = self.len.get();
        debug_assert!(len < N);
        self.item(len).set(item.as_ptr());
        self.len.set(len + 1);
    }

    #[inline(always)]
    #[must_use]
    pub fn pop(&self) -> Option<NonNull<T>> {
        let last = self.len.get().checked_sub(1)?;
        self.len.set(last);
        arch::prefetch_to_write(self.item(last.saturating_sub(Self::AHEAD)).get() as usize);
        NonNull::new(self.item(last).get())
    }

    /// Takes out the `n` objects that were freed first, or all if there are fewer.
    fn give_oldest(&self, n: usize, to: impl FnMut(NonNull<T>)) {
        let len = self.len.get();
        let n = n.min(len);
        self.items[..n].iter().filter_map(|item| NonNull::new(item.get())).for_each(to);
        (n..len).for_each(|i| self.items[i - n].set(self.items[i].get()));
        self.len.set(len - n);
    }
}

/// A node's free objects, and the memory that they are cut from.
pub struct Pool<T> {
    inner: Locked<PoolState<T>>,
}

struct PoolState<T> {
    free: Pile<T>,
    memory: Chunks<T>,
}

// SAFETY: the state owns the memory that it points to, and `Pooled` says that any thread may have a
// `&T`.
unsafe impl<T: Pooled> Send for PoolState<T> {}

/// A type of which a [`Pool`] can hold objects.
///
/// # Safety
/// All bytes zero are a valid value. Any thread may have a reference to an object at any time: the
/// type says which fields that thread may use.
pub unsafe trait Pooled {}

impl<T> Pool<T> {
    /// Offset in bytes of the vector of all chunks, for debuggers.
    pub const CHUNKS: usize = offset_of!(Pool<T>, inner)
        + Locked::<PoolState<T>>::VALUE
        + offset_of!(PoolState<T>, memory.chunks);
}

impl<T: Pooled> Pool<T> {
    /// `memory`: the system's number of the node that gives the memory; `None`: any node.
    pub fn new(memory: Option<usize>) -> Pool<T> {
        let inner = PoolState { free: Pile::new(), memory: Chunks::new(memory) };
        Pool { inner: Locked::new(inner) }
    }

    fn with<R>(&self, f: impl FnOnce(&mut PoolState<T>) -> R) -> R {
        self.inner.with(f)
    }

    /// Moves up to `n` free objects to `to`, which is empty; at least one unless there is no
    /// memory.
    pub fn refill<const N: usize>(&self, to: &Cache<T, N>, n: usize) {
        self.with(|inner| (0..n).map_while(|_| inner.get()).for_each(|item| to.push(item)));
    }

    /// Takes out up to `n` free objects, and makes none. Returns how many it took.
    pub fn give_existing(&self, n: usize, to: impl FnMut(NonNull<T>)) -> usize {
        self.with(|inner| (0..n).map_while(|_| inner.free.pop()).map(to).count())
    }

    /// Takes the `n` objects that were freed first from `from`.
    pub fn take_back<const N: usize>(&self, from: &Cache<T, N>, n: usize) {
        self.with(|inner| from.give_oldest(n, |item| inner.free.push(item)));
    }

    #[must_use]
    pub fn get(&self) -> Option<NonNull<T>> {
        self.with(PoolState::get)
    }

    pub fn put(&self, item: NonNull<T>) {
        self.with(|inner| inner.free.push(item));
    }

    /// Calls `f` with the address and the size of each piece of the pool's memory. `None`: the lock
    /// is taken, perhaps by a thread that is halted.
    #[must_use]
    pub fn try_each_memory(&self, mut f: impl FnMut(usize, usize)) -> Option<()> {
        self.inner.try_with(|inner| {
            let chunks = inner.memory.chunks.iter().chain(&inner.free.memory.chunks);
            chunks.for_each(|&at| f(at, CHUNK));
        })
    }

    /// [`Pool::for_each`] that waits for no lock. `None`: the lock is taken, perhaps by a thread
    /// that is halted.
    #[must_use]
    pub fn try_for_each(&self, mut f: impl FnMut(&T)) -> Option<()> {
        let chunk = |i| self.inner.try_with(|inner| inner.memory.chunks.get(i).copied());
        for i in 0.. {
            let Some(chunk) = chunk(i)? else { break };
            // SAFETY: as in `for_each`.
            cut(chunk).for_each(|item| f(unsafe { item.as_ref() }));
        }
        Some(())
    }

    /// Visits every object, free or not.
    pub fn for_each(&self, mut f: impl FnMut(&T)) {
        // Chunk by chunk, without the lock in between: chunks stay.
        let chunk = |i| self.with(|inner| inner.memory.chunks.get(i).copied());
        for chunk in (0..).map_while(chunk) {
            // SAFETY: the chunk is cut into T's, valid from the start.
            cut(chunk).for_each(|item| f(unsafe { item.as_ref() }));
        }
    }

    /// Ends the pool. Returns the chunks that stay mapped: those with an object for which `keep`
    /// returns true.
    pub fn end(mut self, mut keep: impl FnMut(&T) -> bool) -> Vec<usize> {
        let chunks = &mut self.inner.get_mut().memory.chunks;
        // SAFETY: as in `for_each`.
        let used = |chunk: &mut usize| cut(*chunk).any(|item| keep(unsafe { item.as_ref() }));
        chunks.extract_if(.., used).collect()
    }
}

impl<T> PoolState<T> {
    #[must_use]
    fn get(&mut self) -> Option<NonNull<T>> {
        self.free.pop().or_else(|| self.memory.next())
    }
}

/// A node's free objects, the object freed last on top: pages full of addresses, each with a
/// pointer to the page below.
struct Pile<T> {
    top: *mut AddressPage<T>,
    /// Empty pages.
    spare: *mut AddressPage<T>,
    memory: Chunks<AddressPage<T>>,
}

#[repr(C)]
struct AddressPage<T> {
    below: *mut AddressPage<T>,
    len: usize,
    items: [*mut T; BLOCK],
}

/// The number of addresses in a page, which has two fields before them.
const BLOCK: usize = 510;
const _: () = assert!(crate::os::PAGE.is_multiple_of(size_of::<AddressPage<()>>()));

impl<T> Pile<T> {
    fn new() -> Pile<T> {
        Pile { top: ptr::null_mut(), spare: ptr::null_mut(), memory: Chunks::new(None) }
    }

    fn push(&mut self, item: NonNull<T>) {
        // SAFETY: pages stay as long as the pile, which owns all of them.
        unsafe {
            if self.top.is_null() || (*self.top).len == BLOCK {
                let empty = match NonNull::new(self.spare) {
                    Some(spare) => {
                        self.spare = spare.as_ref().below;
                        spare
                    }
                    None => match self.memory.next() {
                        Some(new) => new,
                        // No memory for a page: the item is lost until shutdown, though it stays
                        // counted.
                        None => return,
                    },
                };
                (*empty.as_ptr()).below = self.top;
                self.top = empty.as_ptr();
            }
            let top = &mut *self.top;
            top.items[top.len] = item.as_ptr();
            top.len += 1;
        }
    }

    #[must_use]
    fn pop(&mut self) -> Option<NonNull<T>> {
        // SAFETY: as in `push`.
        unsafe {
            let top = self.top.as_mut()?;
            top.len -= 1;
            let item = top.items[top.len];
            if top.len == 0 {
                self.top = core::mem::replace(&mut top.below, self.spare);
                self.spare = top;
            }
            NonNull::new(item)
        }
    }
}

/// Memory that is cut into T's, and returned only at the end.
struct Chunks<T> {
    /// The node that gives the memory, by the system's number; `None`: any.
    node: Option<usize>,
    chunks: Vec<usize>,
    /// The part of the last chunk that is not cut yet.
    fresh: Range<usize>,
    kind: PhantomData<T>,
}

/// The size of a chunk in bytes, and its alignment.
pub const CHUNK: usize = 64 << 10;

/// The T's that a chunk is cut into.
pub fn cut<T>(chunk: usize) -> impl Iterator<Item = NonNull<T>> {
    let whole = chunk..chunk + CHUNK + 1 - size_of::<T>();
    whole.step_by(size_of::<T>()).filter_map(|at| NonNull::new(at as *mut T))
}

impl<T> Chunks<T> {
    fn new(node: Option<usize>) -> Chunks<T> {
        Chunks { node, chunks: Vec::new(), fresh: 0..0, kind: PhantomData }
    }

    fn next(&mut self) -> Option<NonNull<T>> {
        if self.fresh.len() < size_of::<T>() {
            self.fresh = self.next_chunk()?;
        }
        let at = self.fresh.start;
        self.fresh.start += size_of::<T>();
        NonNull::new(at as *mut T)
    }

    fn next_chunk(&mut self) -> Option<Range<usize>> {
        if !heap::reserve(&mut self.chunks, 1) {
            return None;
        }
        let at = mem::reserve(CHUNK, CHUNK)?;
        if let Some(node) = self.node {
            mem::prefer_node(at, CHUNK, node);
        }
        self.chunks.push(at);
        Some(at..at + CHUNK)
    }
}

impl<T> Drop for Chunks<T> {
    fn drop(&mut self) {
        // SAFETY: `next_chunk` has reserved the chunk; the pool's users have gone.
        self.chunks.iter().for_each(|&at| unsafe { mem::release(at, CHUNK) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: plain numbers, used by one thread only.
    unsafe impl<const N: usize> Pooled for [u64; N] {}

    #[test]
    fn the_last_freed_is_given_out_first_and_caches_pass_batches() {
        // seed: S4
        let pool = Pool::<[u64; 1]>::new(None);
        let mine = Cache::<_, 8>::new();
        pool.refill(&mine, 8);
        assert!(mine.is_full());
        let all: Vec<_> = core::iter::from_fn(|| mine.pop()).collect();
        assert!(mine.is_empty() && all.len() == 8);
        all.iter().for_each(|&item| mine.push(item));
        assert_eq!(mine.pop(), Some(all[7]));
        // The five objects freed first; they come out again, the last of them first.
        pool.take_back(&mine, 5);
        assert_eq!([mine.pop(), mine.pop(), mine.pop()], [Some(all[6]), Some(all[5]), None]);
        pool.refill(&mine, 2);
        assert_eq!([mine.pop(), mine.pop()], [Some(all[3]), Some(all[4])]);
        // SAFETY: the pool has given the object to this thread.
        unsafe { all[0].write([7]) };
        let kept = pool.end(|&value| value == [7]);
        assert_eq!(kept.len(), 1);
        // SAFETY: the pool has left the chunk to this test.
        unsafe { mem::release(kept[0], CHUNK) };
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no mincore(2)")]
    fn at_its_end_all_memory_goes_back() {
        let pool = Pool::<[u64; 64]>::new(None);
        let all: Vec<_> = (0..100 * CHUNK / 512).map_while(|_| pool.get()).collect();
        all.iter().for_each(|&item| pool.put(item));
        let pages =
            pool.with(|inner| [&inner.memory.chunks[..], &inner.free.memory.chunks[..]].concat());
        let mapped = || {
            let is_mapped = |&&at: &&usize| {
                let mut there = 0u8;
                // SAFETY: mincore(2) only reports on the page.
                unsafe { libc::mincore(at as *mut _, 1, &raw mut there) == 0 }
            };
            pages.iter().filter(is_mapped).count()
        };
        assert_eq!(mapped(), pages.len());
        drop(pool);
        // Other tests may have got some of the addresses again.
        assert!(mapped() < pages.len() / 4, "{} of {}", mapped(), pages.len());
    }

    #[test]
    fn many_are_all_different_and_come_back_from_any_number_of_blocks() {
        // The rest of a chunk is no `T`.
        type T = [u64; 5];
        // Miri takes some thousand times as long.
        let n = if cfg!(miri) { 1 } else { 30 } * CHUNK / size_of::<T>();
        let pool = Pool::<T>::new(None);
        assert_eq!(pool.give_existing(1, |_| unreachable!("nothing was freed")), 0);
        for _ in 0..3 {
            let mut all: Vec<_> = (0..n).map(|_| pool.get().expect("memory")).collect();
            all.iter().for_each(|&item| pool.put(item));
            all.sort_unstable();
            assert!(
                all.windows(2).all(|w| w[0].addr().get() + size_of::<T>() <= w[1].addr().get())
            );
        }
        let (mut free, mut seen) = (0, 0);
        assert_eq!(pool.give_existing(usize::MAX, |_| free += 1), n);
        pool.for_each(|_| seen += 1);
        assert_eq!((free, seen), (n, n.next_multiple_of(CHUNK / size_of::<T>())));
        assert!(pool.end(|_| false).is_empty());
    }
}
