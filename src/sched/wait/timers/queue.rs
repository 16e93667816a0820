//! Timers, and the heap of a P. The parent module and `../TIMERS.md` have the protocol.

use crate::arch;
use crate::os::heap;
use crate::os::locked::Locked;
use crate::os::spin::SpinLock;
use crate::sched::types::p::{self, PRef};
use crate::sched::types::runtime::rt;
use crate::sched::types::waiter::{Parker, WaitQueue, Waiter};
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

/// A timer of the rooms above, with the function that it calls when it fires.
pub struct Timer {
    pub(super) lock: SpinLock,
    /// The number of the start under way; odd while the timer is to fire.
    pub number: AtomicU64,
    /// References: the user's; one for each entry in a heap; one for each counted call, as long as
    /// there are references to its goroutine; one for each caller that waits in `stop_and_wait`.
    pub(super) refs: AtomicU32,
    /// The P whose heap has the entry of the start under way. `home` and `period` are used with the
    /// lock held.
    pub(super) home: Cell<u16>,
    /// The period in ns; 0: fires once.
    pub(super) period: Cell<i64>,
    /// When the timer is to fire, in ns. Its entry comes out of the heap at `entry_when` at the
    /// latest, and goes in again if that is too early. `when`, `entry_when` and `entered_in` are
    /// used with the lock held.
    pub(super) when: Cell<i64>,
    pub(super) entry_when: Cell<i64>,
    /// The number of the runtime whose heap has the entry.
    pub(super) entered_in: Cell<u32>,
    /// The number of calls of the function that are decided and have not returned. `runs`,
    /// `runs_in` and `waiters` are used with the lock held.
    pub(super) runs: Cell<u32>,
    /// The number of the runtime that makes the calls in `runs`. The child of a fork makes none of
    /// them.
    pub(super) runs_in: Cell<u32>,
    /// Goroutines and threads that wait until `runs` is 0.
    pub(super) waiters: UnsafeCell<WaitQueue>,
    pub(super) fire: Fire,
    /// For `fire`.
    pub data: [usize; 2],
}

/// Decides, at a time in ns, what a timer that fires does. Called with the timer's lock held, so
/// the effect itself comes later ([`After`]).
pub type Fire = fn(&Timer, i64) -> After;

/// The error that there is no memory for another entry.
pub struct NoMemory;

/// The effect of a timer that has fired. It may wake or make a thread, so it comes after the
/// timer's lock is released.
#[must_use]
pub enum After {
    Nothing,
    /// Makes this waiter ready. It was taken out of its queue and claimed.
    Ready(*const Waiter),
    /// Calls the timer's function, in a goroutine that `spawn(timer)` makes. False: there is no
    /// memory for the goroutine, or the runtime is being ended.
    Call(fn(*const Timer) -> bool),
}

impl Timer {
    /// # Safety
    /// The caller has a reference, and gives it up.
    pub unsafe fn release(timer: *const Timer) {
        // AcqRel: pairs with the other releases, so the timer is freed after all uses.
        // SAFETY: the caller's reference keeps the timer alive.
        if unsafe { &*timer }.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: the last reference; the pointer is from `Box::into_raw`.
            drop(unsafe { Box::from_raw(timer.cast_mut()) });
        }
    }

    pub fn waits(&self, number: u64) -> bool {
        self.number.load(Ordering::Relaxed) == number
    }
}

/// The target of an entry: the parker of a goroutine, or a [`Timer`] (lowest bit set).
#[derive(Clone, Copy)]
pub struct Target(usize);

impl Target {
    pub fn parker(p: &Parker) -> Target {
        Target(core::ptr::from_ref(p) as usize)
    }

    pub fn timer(t: &Timer) -> Target {
        Target(core::ptr::from_ref(t) as usize | 1)
    }

    pub fn as_timer(self) -> Option<*const Timer> {
        (self.0 & 1 == 1).then_some((self.0 & !1) as *const Timer)
    }

    pub fn as_parker(self) -> *const Parker {
        self.0 as *const Parker
    }

    /// Prefetches the target.
    pub fn fetch(self) {
        arch::prefetch(self.0);
    }
}

#[derive(Clone, Copy)]
pub struct Entry {
    /// When the entry is due, in ns on CLOCK_MONOTONIC; at most [`LATEST`].
    pub(super) when: i64,
    /// The number of the target. The entry is dead once the target has another number.
    pub number: u64,
    /// A timer, to which the entry has a reference, or a goroutine's parker.
    pub(super) target: Target,
}

impl Entry {
    pub fn alive(&self) -> bool {
        match self.target.as_timer() {
            // SAFETY: the entry has a reference.
            Some(t) => unsafe { &*t }.waits(self.number),
            // SAFETY: descriptors stay mapped.
            None => unsafe { &*self.target.as_parker() }.waits(self.number),
        }
    }

    /// Gives up the entry's reference, if its target is a timer.
    pub fn forget(self) {
        if let Some(t) = self.target.as_timer() {
            // SAFETY: the entry's reference.
            unsafe { Timer::release(t) };
        }
    }
}

/// The timers of one P.
pub struct Timers {
    heap: Locked<Vec<Entry>>,
    /// When the first entry is due, in ns; `i64::MAX`: there is none.
    next: AtomicI64,
    /// The number of dead entries, whose target has moved on. Below 0 for a moment if an entry is
    /// taken out before its death is counted.
    pub dead: AtomicI32,
    /// The number of places kept for entries that are out to fire and may come back. Grows with the
    /// lock of `heap` held.
    pub(super) kept: AtomicUsize,
    /// Whether the P is above GOMAXPROCS, and its entries are in another P's heap. Changed with the
    /// lock of `heap` held.
    pub(super) closed: AtomicBool,
    pub(super) id: u16,
}

/// The latest time at which an entry may be due, in ns. (`i64::MAX` says that there is no entry.)
pub const LATEST: i64 = i64::MAX - 1;

/// The number of children of a heap's node: four have better locality than two.
pub const FANOUT: usize = 4;

/// A heap is swept only if it has more than half this number of dead entries.
pub const SWEEP_FROM: usize = 64;

impl Timers {
    pub fn new(id: u16) -> Timers {
        Timers {
            heap: Locked::new(Vec::new()),
            next: AtomicI64::new(i64::MAX),
            dead: AtomicI32::new(0),
            kept: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            id,
        }
    }

    pub fn with<R>(&self, f: impl FnOnce(&mut Vec<Entry>) -> R) -> R {
        self.heap.with(|heap| {
            let r = f(heap);
            let next = heap.first().map_or(i64::MAX, |e| e.when);
            // Release: pairs with the Acquire in `Timers::next`.
            self.next.store(next, Ordering::Release);
            r
        })
    }

    /// When the first entry is due, in ns; `i64::MAX`: there is none. Acquire: pairs with the
    /// Release in `Timers::with`.
    #[inline(always)]
    pub fn next(&self) -> i64 {
        self.next.load(Ordering::Acquire)
    }

    /// Whether an entry may be alive, by the count of dead entries.
    pub fn may_fire(&self) -> bool {
        let dead = || self.dead.load(Ordering::Relaxed).max(0) as usize;
        self.next() != i64::MAX && self.with(|heap| heap.len() > dead())
    }

    /// Whether an entry is alive. Reads the entries up to the first that is alive.
    pub fn will_fire(&self) -> bool {
        self.next() != i64::MAX && self.with(|heap| heap.iter().any(Entry::alive))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.with(|heap| heap.len())
    }

    /// Keeps places for `n` entries that [`Timers::put_back`] brings. False: there is no
    /// memory.
    #[must_use]
    pub fn keep_places(&self, n: usize) -> bool {
        self.with(|heap| {
            let kept = self.kept.load(Ordering::Relaxed) + n;
            let has_room = heap::reserve(heap, kept);
            if has_room {
                self.kept.store(kept, Ordering::Relaxed);
            }
            has_room
        })
    }

    /// Undoes [`Timers::keep_places`] for `n` places.
    pub fn give_places_back(&self, n: usize) {
        self.kept.fetch_sub(n, Ordering::Relaxed);
    }

    /// Adds an entry for which a place is kept.
    pub fn put_back(&self, entry: Entry) -> Added {
        self.with(|heap| {
            heap.push(entry);
            let last = heap.len() - 1;
            sift_up(heap, last);
        });
        p::read_clock_next(rt().p(self.id as usize));
        Added { home: self.id, news: Some(entry.when) }
    }

    /// Adds the entry that `make` returns; calls `make` once, when there is room. False: the heap
    /// is closed.
    #[inline(always)]
    pub fn add(&self, make: &mut impl FnMut() -> Entry) -> Result<bool, NoMemory> {
        self.with(|heap| {
            if self.closed.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let kept = self.kept.load(Ordering::Relaxed);
            if self.is_mostly_dead(heap) || heap.capacity() - heap.len() <= kept {
                self.make_room(heap, 1 + kept)?;
            }
            heap.push(make());
            let last = heap.len() - 1;
            sift_up(heap, last);
            Ok(true)
        })
    }

    /// Whether a sweep would take out more than half of the entries, and enough to be worth the
    /// work.
    #[inline(always)]
    fn is_mostly_dead(&self, heap: &[Entry]) -> bool {
        let dead = self.dead.load(Ordering::Relaxed).max(0) as usize;
        dead * 2 > heap.len().max(SWEEP_FROM)
    }

    #[cold]
    #[inline(never)]
    fn make_room(&self, heap: &mut Vec<Entry>, wanted: usize) -> Result<(), NoMemory> {
        if self.is_mostly_dead(heap) {
            self.sweep(heap);
        }
        // In a bubble the heap begins empty, so that it grows at the same places in each run.
        if heap::is_refused() || !heap::reserve(heap, wanted) {
            self.sweep(heap);
            if heap.capacity() - heap.len() < wanted {
                return Err(NoMemory);
            }
        }
        Ok(())
    }

    /// Drops the dead entries, and sets `dead` to 0. So a death that was counted in this heap by
    /// mistake, because its entry had moved with GOMAXPROCS, causes at most one sweep.
    pub fn sweep(&self, heap: &mut Vec<Entry>) {
        heap.retain(|e| {
            let keep = e.alive();
            if !keep {
                e.forget();
            }
            keep
        });
        for i in (0..heap.len() / FANOUT + 1).rev() {
            sift_down(heap, i);
        }
        self.dead.store(0, Ordering::Relaxed);
    }

    /// The count of dead entries, and the number of dead entries.
    #[cfg(test)]
    pub fn census(&self) -> (i32, i32) {
        let dead = self.with(|heap| heap.iter().filter(|e| !e.alive()).count());
        (self.dead.load(Ordering::Relaxed), dead as i32)
    }

    /// Closes or opens the heap. Its entries go to `into`, which keeps places for them; without
    /// `into` they are dropped.
    pub fn close(&self, closed: bool, into: Option<PRef>) {
        let entries = self.with(|heap| {
            self.closed.store(closed, Ordering::Relaxed);
            self.dead.store(0, Ordering::Relaxed);
            core::mem::take(heap)
        });
        for entry in entries {
            match into {
                // Not announced here: the stopper of the world does so when the world goes on.
                Some(p) if entry.alive() => drop(p.timers.put_back(entry)),
                _ => entry.forget(),
            }
        }
    }
}

#[inline(always)]
pub fn sift_up(heap: &mut [Entry], mut i: usize) {
    let entry = heap[i];
    while i > 0 {
        let parent = (i - 1) / FANOUT;
        if heap[parent].when <= entry.when {
            break;
        }
        heap[i] = heap[parent];
        i = parent;
    }
    heap[i] = entry;
}

#[inline(always)]
pub fn sift_down(heap: &mut [Entry], mut i: usize) {
    let Some(&entry) = heap.get(i) else { return };
    while let Some(least) = least_child(heap, i) {
        if entry.when <= heap[least].when {
            break;
        }
        heap[i] = heap[least];
        i = least;
    }
    heap[i] = entry;
}

/// The child that is due first. No branches if there are all four children: a processor can't
/// predict which is first.
#[inline(always)]
pub fn least_child(heap: &[Entry], i: usize) -> Option<usize> {
    let first = i * FANOUT + 1;
    let children = heap.get(first..)?;
    match children.first_chunk::<FANOUT>() {
        Some(all) => {
            let least = |a: usize, b: usize| if all[b].when < all[a].when { b } else { a };
            Some(first + least(least(0, 1), least(2, 3)))
        }
        None => (0..children.len()).min_by_key(|&i| children[i].when).map(|i| first + i),
    }
}

/// Takes the first entry; there is one.
#[inline(always)]
#[must_use]
pub fn pop(heap: &mut Vec<Entry>) -> Entry {
    let first = heap.swap_remove(0);
    sift_down(heap, 0);
    first
}

/// Proof that an entry was added to a heap.
#[must_use]
pub struct Added {
    /// The P whose heap has the entry.
    pub(super) home: u16,
    /// When the entry is due, in ns, if the timer watcher must know.
    pub(super) news: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_gives_its_entries_in_the_order_of_their_times() {
        let mut heap = Vec::new();
        for i in 0..1000u64 {
            let when = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as i64;
            heap.push(Entry { when, number: i, target: Target(1) });
            let last = heap.len() - 1;
            sift_up(&mut heap, last);
        }
        let mut before = i64::MIN;
        while !heap.is_empty() {
            let e = pop(&mut heap);
            assert!(before <= e.when);
            before = e.when;
        }
    }
}
