//! The library's own heap.
//!
//! A goroutine may be stopped anywhere in the user's code, in the middle of
//! `malloc` too, and goes on when it has a P again. If the library, which holds
//! that P, then waited for the same lock, nothing would ever move. So what is
//! written in Rust here doesn't use the C library's heap but one that only the
//! library locks, and it is never stopped while it does.
//!
//! `GOSCHED_DEBUG=systemheap=1` uses the C library's all the same, so that
//! valgrind sees each allocation.

use super::spin::SpinLock;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, Ordering};
use dlmalloc::Dlmalloc;
use std::alloc::System;

struct Heap {
    lock: SpinLock,
    own: UnsafeCell<Dlmalloc>,
    /// Which one is used, decided at the first allocation.
    choice: AtomicU8,
}

const UNDECIDED: u8 = 0;
const OWN: u8 = 1;
const SYSTEM: u8 = 2;

// SAFETY: `own` is used with the lock held.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap {
    lock: SpinLock::new(),
    own: UnsafeCell::new(Dlmalloc::new()),
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

    /// Two threads come to the same answer.
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
        // SAFETY: the lock is held.
        self.lock.with(|| f(unsafe { &mut *self.own.get() }))
    }
}

// SAFETY: both heaps are allocators, and each block goes back to its own.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by contract.
        unsafe {
            match self.is_own() {
                true => self.with(|h| h.malloc(layout.size(), layout.align())),
                false => System.alloc(layout),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by contract.
        unsafe {
            match self.is_own() {
                true => self.with(|h| h.calloc(layout.size(), layout.align())),
                false => System.alloc_zeroed(layout),
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: by contract.
        unsafe {
            match self.is_own() {
                true => self.with(|h| h.free(block, layout.size(), layout.align())),
                false => System.dealloc(block, layout),
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by contract.
        unsafe {
            match self.is_own() {
                true => self.with(|h| h.realloc(block, layout.size(), layout.align(), size)),
                false => System.realloc(block, layout, size),
            }
        }
    }
}

/// Around a fork: the child must not find it locked.
pub fn lock() {
    HEAP.lock.lock();
}

pub fn unlock() {
    HEAP.lock.unlock();
}
