//! In which order operations happen.
//!
//! Threads take turns at each atomic operation. A store that is not SeqCst may
//! come late, as on x86: others see it only after some more operations of its
//! thread, which itself sees it at once. Stores of one thread stay in order, and
//! all are done before its next compare-and-swap, fence or system call. So a
//! fence that is missing between a store and a load is noticed; what weaker
//! machines do besides is left to the loom models.
//!
//! Other memory is not part of this. So an atomic must not be moved once it is
//! used.

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::AtomicBool;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Operations until the running thread lets all others go on
/// before it: whatever the scheduler prefers, no thread waits for ever.
const FAIR: u64 = 500;
/// One store in this number is late, and one operation in this number ends that.
const LATE: u32 = 4;
const DONE: u32 = 8;

/// A store that others don't see yet.
struct Store {
    address: usize,
    size: usize,
    word: u64,
}

impl Store {
    fn finish(self) {
        // SAFETY: the address is that of an atomic of this size, which finishes
        // its stores before it goes.
        unsafe {
            std::ptr::copy_nonoverlapping(
                (&raw const self.word).cast(),
                self.address as *mut u8,
                self.size,
            )
        };
    }
}

thread_local! {
    static POINTS: Cell<u64> = const { Cell::new(0) };
    /// Late stores of all threads, and each thread's.
    static LATE_STORES: Cell<usize> = const { Cell::new(0) };
    static BUFFERS: RefCell<Vec<VecDeque<Store>>> = const { RefCell::new(Vec::new()) };
}

/// A run begins: what it does depends on its schedule only.
pub fn reset() {
    POINTS.set(0);
    LATE_STORES.set(0);
    BUFFERS.with_borrow_mut(Vec::clear);
}

/// Another thread may go on here.
pub fn point() {
    static COMMON: AtomicBool = AtomicBool::new(false);
    POINTS.set(POINTS.get() + 1);
    if POINTS.get().is_multiple_of(FAIR) {
        shuttle::thread::yield_now();
    } else {
        COMMON.load(Ordering::SeqCst);
    }
    if LATE_STORES.get() != 0 && with_own(|b| !b.is_empty()) && once_in(DONE) {
        finish_oldest();
    }
}

fn once_in(n: u32) -> bool {
    thread_rng().gen_ratio(1, n)
}

/// Runs `f` with the running thread's late stores, oldest first.
fn with_own<R>(f: impl FnOnce(&mut VecDeque<Store>) -> R) -> R {
    let me = usize::from(shuttle::thread::current().id());
    BUFFERS.with_borrow_mut(|all| {
        if all.len() <= me {
            all.resize_with(me + 1, VecDeque::new);
        }
        f(&mut all[me])
    })
}

fn finish_oldest() -> bool {
    let Some(store) = with_own(VecDeque::pop_front) else { return false };
    LATE_STORES.set(LATE_STORES.get() - 1);
    store.finish();
    true
}

/// All stores of the running thread are done from here on.
pub fn finish_stores() {
    if LATE_STORES.get() != 0 {
        while finish_oldest() {}
    }
}

/// All stores of all threads are done from here on.
pub fn finish_all_stores() {
    point();
    let all =
        BUFFERS.with_borrow_mut(|all| all.iter_mut().flat_map(std::mem::take).collect::<Vec<_>>());
    LATE_STORES.set(LATE_STORES.get() - all.len());
    all.into_iter().for_each(Store::finish);
}

/// Whether the next store is to be late.
pub fn is_late() -> bool {
    once_in(LATE)
}

/// Stores the first bytes of a word, later.
pub fn store_late(address: usize, size: usize, word: u64) {
    LATE_STORES.set(LATE_STORES.get() + 1);
    with_own(|b| b.push_back(Store { address, size, word }));
}

/// What the running thread has stored there and no other thread sees yet.
pub fn own_store(address: usize) -> Option<u64> {
    if LATE_STORES.get() == 0 {
        return None;
    }
    with_own(|b| b.iter().rev().find(|s| s.address == address).map(|s| s.word))
}
