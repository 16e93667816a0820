//! The library's own heap.
//!
//! A goroutine may be stopped anywhere in the user's code, in the middle of `malloc` too, and goes
//! on when it has a P again. If the library, with the only P, then waited for malloc's lock,
//! nothing would ever move. So the library's Rust code doesn't use the C library's heap but a heap
//! that only the library locks, and no thread is stopped while it holds that lock.
//!
//! With `GOSCHED_DEBUG=systemheap=1` the library uses the C library's heap nevertheless, so that
//! valgrind sees each allocation.
//!
//! This heap is the allocator of all Rust code in the process in two cases: in libgosched, and in a
//! Rust program that depends on this crate with the feature `allocator`. Without that feature the
//! program's own allocator is used ([`IS_OURS`]). Then goroutines are not preempted by a signal,
//! unless the program asks for one; if it does, its allocator must not share a lock with functions
//! that goroutines call.
//!
//! # Without memory
//!
//! Rust's own containers abort when an allocation fails. So objects that a user's call makes
//! (channels, timers, names, values of keys, M's) are allocated by [`alloc`], [`boxed`],
//! [`reserve`] and [`c_string`], which can fail; then the call returns its documented error. All
//! other allocations are small and bounded by the size of the machine, not by what the program
//! does: the lists of one start of the runtime, the text of reports, a list of sysmon's. When the
//! system refuses memory for these, it comes from [`RESERVE`] bytes that are part of the library's
//! image.

use super::locked::Locked;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use dlmalloc::Dlmalloc;
use std::alloc::System;
use std::ffi::CString;

/// Bytes for allocations that can't fail, when the system refuses memory.
const RESERVE: usize = 512 << 10;

/// The memory of the reserve. The linker sets it aside. Its pages take memory when they are
/// touched, which never happens while the system gives memory.
///
/// Atomic only so that a `static` may be written to. The `Dlmalloc` of the reserve hands out the
/// bytes, each to one owner.
#[repr(C, align(4096))]
struct Reserve([AtomicU8; RESERVE]);

static MEMORY: Reserve = Reserve([const { AtomicU8::new(0) }; RESERVE]);

impl Reserve {
    fn start(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast()
    }
}

/// Gives the reserve to its `Dlmalloc`, once, as one region.
struct ReserveOnce(Cell<bool>);

// SAFETY: all sizes and addresses are those of `MEMORY`, which stays.
unsafe impl dlmalloc::Allocator for ReserveOnce {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        if size > RESERVE || self.0.replace(true) {
            return (ptr::null_mut(), 0, 0);
        }
        (MEMORY.start(), RESERVE, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        ptr::null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        super::PAGE
    }
}

fn is_in_reserve(block: *mut u8) -> bool {
    (block as usize).wrapping_sub(MEMORY.start() as usize) < RESERVE
}

/// Whether Rust's allocator in this process is [`HEAP`].
pub const IS_OURS: bool = cfg!(any(test, feature = "allocator"));

struct Heap {
    heaps: Locked<Heaps>,
    /// The heap in use, decided at the first allocation.
    choice: AtomicU8,
}

struct Heaps {
    own: Dlmalloc,
    reserve: Dlmalloc<ReserveOnce>,
}

const UNDECIDED: u8 = 0;
const OWN: u8 = 1;
const SYSTEM: u8 = 2;

#[cfg_attr(any(test, feature = "allocator"), global_allocator)]
static HEAP: Heap = Heap {
    heaps: Locked::new(Heaps {
        own: Dlmalloc::new(),
        reserve: Dlmalloc::new_with_allocator(ReserveOnce(Cell::new(false))),
    }),
    choice: AtomicU8::new(UNDECIDED),
};

impl Heap {
    #[inline]
    fn is_own(&self) -> bool {
        match self.choice.load(Ordering::Relaxed) {
            UNDECIDED => self.decide(),
            choice => choice == OWN,
        }
    }

    /// Two threads may decide at once: their answers are equal.
    #[cold]
    fn decide(&self) -> bool {
        // SAFETY: a C string, which is read at once.
        let wanted = unsafe {
            let value = libc::getenv(c"GOSCHED_DEBUG".as_ptr());
            !value.is_null() && !libc::strstr(value, c"systemheap=1".as_ptr()).is_null()
        };
        self.choice.store(if wanted { SYSTEM } else { OWN }, Ordering::Relaxed);
        !wanted
    }

    fn with<R>(&self, f: impl FnOnce(&mut Dlmalloc) -> R) -> R {
        self.heaps.with(|heaps| f(&mut heaps.own))
    }
}

impl Heap {
    /// Allocates from the system's memory. Null: the system gives none.
    ///
    /// # Safety
    /// As [`GlobalAlloc::alloc`].
    unsafe fn system_alloc(&self, layout: Layout) -> *mut u8 {
        let _errno = super::KeepErrno::new();
        // SAFETY: as the caller says.
        unsafe {
            match self.is_own() {
                true => self.with(|h| h.malloc(layout.size(), layout.align())),
                false => System.alloc(layout),
            }
        }
    }

    /// Allocates from the reserve. Null: it is used up.
    #[cold]
    fn reserve_alloc(&self, layout: Layout) -> *mut u8 {
        self.with_reserve(|h| {
            // SAFETY: the size is not 0, as `GlobalAlloc` wants it.
            unsafe { h.malloc(layout.size(), layout.align()) }
        })
    }

    fn with_reserve<R>(&self, f: impl FnOnce(&mut Dlmalloc<ReserveOnce>) -> R) -> R {
        self.heaps.with(|heaps| f(&mut heaps.reserve))
    }
}

// SAFETY: all three heaps are allocators, and each block goes back to its own: a block of the
// reserve is known by its address.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        let block = unsafe { self.system_alloc(layout) };
        if block.is_null() { self.reserve_alloc(layout) } else { block }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _errno = super::KeepErrno::new();
        // SAFETY: as the caller says; a new block has room for its size.
        unsafe {
            let block = match self.is_own() {
                true => self.with(|h| h.calloc(layout.size(), layout.align())),
                false => System.alloc_zeroed(layout),
            };
            if !block.is_null() {
                return block;
            }
            let block = self.reserve_alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let _errno = super::KeepErrno::new();
        // SAFETY: as the caller says; the address tells whose block it is.
        unsafe {
            if is_in_reserve(block) {
                self.with_reserve(|h| h.free(block, layout.size(), layout.align()));
            } else if self.is_own() {
                self.with(|h| h.free(block, layout.size(), layout.align()));
            } else {
                System.dealloc(block, layout);
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _errno = super::KeepErrno::new();
        // SAFETY: as the caller says; a block that moves between heaps is copied as far as both
        // blocks reach.
        unsafe {
            if !is_in_reserve(block) {
                let new = match self.is_own() {
                    true => self.with(|h| h.realloc(block, layout.size(), layout.align(), size)),
                    false => System.realloc(block, layout, size),
                };
                if !new.is_null() {
                    return new;
                }
            }
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

/// Says whether there is to be no memory for the caller: see [`refuse`]. Null: there is.
static REFUSES: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// From now on [`alloc`] fails whenever this function says so; `None`: no longer. For tests. What the
/// process keeps doesn't ask ([`reserve`], [`boxed_to_keep`]): whether it needs memory depends on what
/// the process did before.
pub fn refuse(when: Option<fn() -> bool>) {
    REFUSES.store(when.map_or(ptr::null_mut(), |f| f as *mut ()), Ordering::Relaxed);
}

/// Whether there is to be no memory for the caller.
#[inline]
pub fn is_refused() -> bool {
    let by = REFUSES.load(Ordering::Relaxed);
    !by.is_null() && ask(by)
}

#[cold]
fn ask(by: *mut ()) -> bool {
    // SAFETY: only `refuse` stores, and such a function.
    unsafe { core::mem::transmute::<*mut (), fn() -> bool>(by)() }
}

/// A block of memory, never from the reserve, to be freed as any block of the global allocator.
/// `None`: there is no memory.
///
/// # Safety
/// The size is not 0.
pub unsafe fn alloc(layout: Layout) -> Option<NonNull<u8>> {
    // SAFETY: as the caller says.
    if is_refused() { None } else { unsafe { alloc_unasked(layout) } }
}

/// [`alloc`] that fails only if the system gives no memory.
unsafe fn alloc_unasked(layout: Layout) -> Option<NonNull<u8>> {
    // SAFETY: as the caller says. Either way it is a block of the global allocator.
    NonNull::new(unsafe {
        if IS_OURS { HEAP.system_alloc(layout) } else { std::alloc::alloc(layout) }
    })
}

/// A box, if there is memory; `T` has a size.
pub fn boxed<T>(value: T) -> Option<Box<T>> {
    if is_refused() { None } else { boxed_to_keep(value) }
}

/// [`boxed`] for what is made once, or used again: fails only if the system gives no memory.
pub fn boxed_to_keep<T>(value: T) -> Option<Box<T>> {
    const { assert!(size_of::<T>() != 0) };
    // SAFETY: a block of the global allocator with the layout of a `T`, written before it
    // is a box.
    unsafe {
        let at = alloc_unasked(Layout::new::<T>())?.cast::<T>();
        at.write(value);
        Some(Box::from_raw(at.as_ptr()))
    }
}

/// [`boxed_to_keep`] for a value that the caller writes in place, because it is too large for a stack.
pub fn boxed_uninit<T>() -> Option<Box<MaybeUninit<T>>> {
    const { assert!(size_of::<T>() != 0) };
    // SAFETY: a block of the global allocator with the layout of a `T`, which may hold anything.
    unsafe {
        let at = alloc_unasked(Layout::new::<T>())?.cast::<MaybeUninit<T>>();
        Some(Box::from_raw(at.as_ptr()))
    }
}

/// Makes room in a list for `more` elements. False: there is no memory, and the
/// list is as before.
#[must_use]
#[inline]
pub fn reserve<T>(list: &mut Vec<T>, more: usize) -> bool {
    list.capacity() - list.len() >= more || grow(list, more)
}

#[cold]
fn grow<T>(list: &mut Vec<T>, more: usize) -> bool {
    const { assert!(size_of::<T>() != 0) };
    let Some(needed) = list.len().checked_add(more) else { return false };
    let capacity = needed.max(list.capacity().saturating_mul(2)).max(4);
    let Ok(layout) = Layout::array::<T>(capacity) else { return false };
    // SAFETY: a block of the global allocator with room for that many; the elements move
    // there, and the old block is freed without them.
    unsafe {
        let Some(at) = alloc_unasked(layout) else { return false };
        let (at, len) = (at.cast::<T>().as_ptr(), list.len());
        at.copy_from_nonoverlapping(list.as_ptr(), len);
        list.set_len(0);
        *list = Vec::from_raw_parts(at, len, capacity);
    }
    true
}

/// A copy of a C string, if there is memory.
pub fn c_string(s: &CStr) -> Option<CString> {
    let bytes = s.to_bytes_with_nul();
    let mut copy = Vec::new();
    if !reserve_exact(&mut copy, bytes.len()) {
        return None;
    }
    copy.extend_from_slice(bytes);
    // SAFETY: the bytes of a C string. The list is full, so that it isn't allocated anew.
    Some(unsafe { CString::from_vec_with_nul_unchecked(copy) })
}

/// Room for exactly `len` bytes in an empty list.
#[must_use]
fn reserve_exact(list: &mut Vec<u8>, len: usize) -> bool {
    let Ok(layout) = Layout::array::<u8>(len) else { return false };
    // SAFETY: `len` counts the NUL, so it isn't 0; a block of the global allocator.
    unsafe {
        let Some(at) = alloc(layout) else { return false };
        *list = Vec::from_raw_parts(at.as_ptr(), 0, len);
    }
    true
}

/// Whether the system would give this number of bytes right now. Asked before building an object of
/// many small parts. If other threads take the memory meanwhile, the parts come from the reserve.
pub fn has_room(bytes: usize) -> bool {
    let mut probe: Vec<u8> = Vec::new();
    reserve(&mut probe, bytes)
}

/// Around a fork: the child must not find the heap locked.
pub fn lock() {
    HEAP.heaps.lock();
}

/// Undoes [`lock`].
///
/// # Safety
/// The calling thread holds the lock.
pub unsafe fn unlock() {
    // SAFETY: as the caller says.
    unsafe { HEAP.heaps.unlock() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_gives_takes_back_and_ends() {
        let layout = Layout::from_size_align(RESERVE / 4, 16).unwrap();
        for _ in 0..10 {
            let blocks: Vec<_> = (0..8).map(|_| HEAP.reserve_alloc(layout)).collect();
            let given: Vec<_> = blocks.into_iter().filter(|b| !b.is_null()).collect();
            assert!((1..=4).contains(&given.len()));
            for block in given {
                assert!(is_in_reserve(block));
                // SAFETY: a block of that layout, which is freed as any other.
                unsafe {
                    block.write_bytes(0xaa, layout.size());
                    HEAP.dealloc(block, layout);
                }
            }
        }
    }

    #[test]
    fn a_block_of_the_reserve_that_grows_keeps_its_content() {
        let layout = Layout::from_size_align(100, 8).unwrap();
        let block = HEAP.reserve_alloc(layout);
        // SAFETY: a block of that layout; the new one is freed with its own size.
        unsafe {
            block.write_bytes(7, 100);
            let new = HEAP.realloc(block, layout, 5000);
            assert!(!is_in_reserve(new));
            assert!((0..100).all(|i| new.add(i).read() == 7));
            HEAP.dealloc(new, Layout::from_size_align(5000, 8).unwrap());
        }
    }

    #[test]
    fn a_refusal_of_the_system_leaves_errno_as_it_is() {
        const OTHER: i32 = libc::EXDEV;
        let errno = super::super::errno_location();
        let (small, huge) = (100, isize::MAX as usize / 4);
        let of = |size| Layout::from_size_align(size, 8).unwrap();
        // SAFETY: the sizes are not 0, and the block is freed with its own size.
        unsafe {
            *errno = OTHER;
            assert!(HEAP.alloc(of(huge)).is_null());
            assert_eq!(*errno, OTHER);
            assert!(HEAP.alloc_zeroed(of(huge)).is_null());
            assert_eq!(*errno, OTHER);
            for size in [small, 8 << 20] {
                let block = HEAP.alloc(of(size));
                assert!(HEAP.realloc(block, of(size), huge).is_null());
                assert_eq!(*errno, OTHER);
                HEAP.dealloc(block, of(size));
                assert_eq!(*errno, OTHER);
            }
        }
    }

    #[test]
    fn a_list_that_grows_keeps_its_elements() {
        let mut list: Vec<u64> = Vec::new();
        for i in 0..1000 {
            assert!(reserve(&mut list, 1));
            list.push(i);
        }
        assert!(list.iter().copied().eq(0..1000));
        assert!(!reserve(&mut list, usize::MAX / 8));
        assert_eq!(c_string(c"a name").unwrap().as_c_str(), c"a name");
    }
}
