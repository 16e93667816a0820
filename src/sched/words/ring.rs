//! A P's local run queue: a ring that its owner uses at both ends, and from which a thief takes half.
//!
//! `tail` is the owner's: it pushes and (LIFO) pops there. `head` packs two
//! counters: thieves and the owner's FIFO pop take at `real`; `steal` stays
//! behind while a thief copies what it has claimed, so that the owner doesn't
//! overwrite it. They differ only while one claim is under way, and then only
//! the claimer changes `head`.
//!
//! The only race is between the owner's pop at the tail and a claim that reaches as far. Each side announces what it
//! takes, fences, and reads the other's announcement. If the owner sees the claim it takes its announcement back and
//! waits until the claim is settled; if the thief sees the pop it shrinks its claim. Both may see each other, and then
//! the entry stays in the ring; but at least one sees the other.
//!
//! A thief may lose its CPU in the middle of a claim, and then the owner waits for it. Where each P has a CPU of its
//! own that doesn't happen. With 8 owners, each of which also steals, on two CPUs that 40 other threads want too,
//! 15,000 pops meet a claim in 10 s (60,000 thefts). All but 7 of these claims are settled within some us; those 7 last
//! until the kernel gives the thief its CPU back, 0.4 s at worst.
//!
//! Sources: Go's `runqput`/`runqgrab` for stealing a half, tokio's `queue.rs`
//! for the two counters, Frigo's THE protocol for the pop. The model test is
//! `tests/models`. seed: S3, N5

use super::limits::RING as CAPACITY;
use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence, spin_loop};
use crate::os::spin::backoff;

/// See the module. The entries are words, whose meaning the caller knows; 0 is not an entry.
pub struct Ring {
    head: AtomicU64,
    tail: AtomicU32,
    /// A power of two, at most [`CAPACITY`], less 1.
    mask: u32,
    slots: [AtomicUsize; CAPACITY],
}

/// The two counters in `head`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Head {
    /// The first entry that a thief may still be copying.
    steal: u32,
    /// The first entry that is in the ring.
    real: u32,
}

impl Head {
    fn both(at: u32) -> Head {
        Head { steal: at, real: at }
    }

    fn unpack(packed: u64) -> Head {
        Head { steal: (packed >> 32) as u32, real: packed as u32 }
    }

    fn pack(self) -> u64 {
        u64::from(self.steal) << 32 | u64::from(self.real)
    }

    #[must_use]
    fn claimed(self) -> bool {
        self.steal != self.real
    }
}

/// What the owner has taken.
#[must_use = "an entry that is dropped is lost"]
pub struct Taken {
    pub entry: usize,
    /// The position that the entry had.
    pub at: u32,
    /// How many entries are left.
    pub left: u32,
}

/// After this number of short rounds the owner's wait for a claim becomes `backoff`.
const QUICK_LOOKS: u32 = 8;

/// One round of the owner's wait for a claim. A thief copies 32 entries in some 100 ns, which is less than a round of
/// `backoff` takes. So the first rounds are short.
fn wait(round: u32) {
    match round {
        0..=QUICK_LOOKS => (0..4).for_each(|_| spin_loop()),
        _ => backoff(round - QUICK_LOOKS),
    }
}

impl Ring {
    /// `capacity` is a power of two, at most [`CAPACITY`].
    pub fn new(capacity: usize) -> Ring {
        assert!(capacity.is_power_of_two() && capacity <= CAPACITY);
        Ring {
            head: AtomicU64::new(0),
            tail: AtomicU32::new(0),
            mask: capacity as u32 - 1,
            slots: core::array::from_fn(|_| AtomicUsize::new(0)),
        }
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> &AtomicUsize {
        &self.slots[(index & self.mask) as usize & (CAPACITY - 1)]
    }

    #[inline(always)]
    fn head(&self, order: Ordering) -> Head {
        Head::unpack(self.head.load(order))
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.tail.load(Ordering::Relaxed) == self.head(Ordering::Relaxed).real
    }

    /// Owner: appends an entry. False: the ring is full.
    #[inline(always)]
    #[must_use]
    pub fn push(&self, entry: usize) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of `head` by a thief that has finished copying, so that the thief's reads
        // come before the owner overwrites.
        let steal = self.head(Ordering::Acquire).steal;
        if tail.wrapping_sub(steal) > self.mask {
            return false;
        }
        self.slot(tail).store(entry, Ordering::Relaxed);
        // Release: pairs with the Acquire of `tail` by thieves, which then see the entry and what it points to.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        true
    }

    /// How many entries there are; may be old when it is read.
    pub fn len(&self) -> usize {
        let tail = self.tail.load(Ordering::Relaxed);
        (tail.wrapping_sub(self.head(Ordering::Relaxed).real) as i32).max(0) as usize
    }

    /// The `n`th oldest entry, perhaps: a hint, which may be old, or 0.
    pub fn oldest(&self, n: u32) -> usize {
        self.at(self.head(Ordering::Relaxed).real.wrapping_add(n))
    }

    /// The entry at a position, perhaps: a hint, as [`Ring::oldest`].
    #[inline(always)]
    pub fn at(&self, position: u32) -> usize {
        self.slot(position).load(Ordering::Relaxed)
    }

    /// Owner: how many entries can be pushed for sure. Entries that a thief still copies take room.
    pub fn room(&self) -> usize {
        let tail = self.tail.load(Ordering::Relaxed);
        // Acquire: as in `push`.
        let steal = self.head(Ordering::Acquire).steal;
        (self.mask + 1 - tail.wrapping_sub(steal)) as usize
    }

    /// Owner: takes the entry pushed last. `alone`: there are no thieves now.
    #[inline(always)]
    #[must_use]
    pub fn pop_back(&self, alone: bool) -> Option<usize> {
        self.take_back(alone).map(|taken| taken.entry)
    }

    /// [`Ring::pop_back`] that also returns the entry's place and how many are left.
    #[inline(always)]
    #[must_use]
    pub fn take_back(&self, alone: bool) -> Option<Taken> {
        let tail = self.tail.load(Ordering::Relaxed);
        let head = self.head(Ordering::Relaxed);
        if !head.claimed() && head.real == tail {
            return None;
        }
        let last = tail.wrapping_sub(1);
        // Release, as in `push`: a thief that reads this value must see the
        // entries below it.
        self.tail.store(last, Ordering::Release);
        if !alone {
            // Pairs with the fence in `claim`.
            fence(Ordering::SeqCst);
            if (last.wrapping_sub(self.head(Ordering::Relaxed).real) as i32) < 0 {
                let entry = self.pop_back_contended(tail)?;
                return Some(Taken { entry, at: last, left: 0 });
            }
        }
        Some(Taken { entry: self.at(last), at: last, left: last.wrapping_sub(head.real) })
    }

    /// The slow path of `take_back`, when a claim reaches the last entry.
    #[cold]
    #[inline(never)]
    #[must_use]
    fn pop_back_contended(&self, tail: u32) -> Option<usize> {
        loop {
            // Release, as in `push`.
            self.tail.store(tail, Ordering::Release);
            let mut round = 0;
            // Acquire: pairs with the Release that ends the claim.
            let head = loop {
                let head = self.head(Ordering::Acquire);
                if !head.claimed() {
                    break head;
                }
                round += 1;
                wait(round);
            };
            if head.real == tail {
                return None;
            }
            let last = tail.wrapping_sub(1);
            self.tail.store(last, Ordering::Release);
            // Pairs with the fence in `claim`.
            fence(Ordering::SeqCst);
            if last.wrapping_sub(self.head(Ordering::Relaxed).real) as i32 >= 0 {
                return Some(self.at(last));
            }
        }
    }

    /// Owner: takes the oldest entry. `alone`: there are no thieves now.
    #[inline(always)]
    #[must_use]
    pub fn pop_front(&self, alone: bool) -> Option<usize> {
        self.take_front(alone).map(|taken| taken.entry)
    }

    /// [`Ring::pop_front`] that also returns the entry's place and how many are left.
    #[inline(always)]
    #[must_use]
    pub fn take_front(&self, alone: bool) -> Option<Taken> {
        let tail = self.tail.load(Ordering::Relaxed);
        let mut head = self.head(Ordering::Relaxed);
        let taken = |entry, head: Head| {
            let left = tail.wrapping_sub(head.real).wrapping_sub(1);
            Some(Taken { entry, at: head.real, left })
        };
        if alone {
            if head.real == tail {
                return None;
            }
            self.head.store(Head::both(head.real.wrapping_add(1)).pack(), Ordering::Relaxed);
            return taken(self.at(head.real), head);
        }
        let mut round = 0;
        loop {
            if head.claimed() {
                round += 1;
                wait(round);
                head = self.head(Ordering::Relaxed);
                continue;
            }
            if head.real == tail {
                return None;
            }
            // Only the owner writes slots and `tail`: no check after the read.
            let entry = self.at(head.real);
            let next = Head::both(head.real.wrapping_add(1)).pack();
            match self.head.compare_exchange(
                head.pack(),
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return taken(entry, head),
                Err(now) => head = Head::unpack(now),
            }
        }
    }

    /// Owner, while there are no thieves: takes the oldest entry and appends another one.
    /// `None`: there is none, or no room.
    #[inline(always)]
    #[must_use]
    pub fn rotate(&self, entry: usize) -> Option<Taken> {
        let tail = self.tail.load(Ordering::Relaxed);
        let first = self.head(Ordering::Relaxed).real;
        let left = tail.wrapping_sub(first);
        if left == 0 || left > self.mask {
            return None;
        }
        let taken = Taken { entry: self.at(first), at: first, left };
        self.slot(tail).store(entry, Ordering::Relaxed);
        // Release: as in `push`.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        self.head.store(Head::both(first.wrapping_add(1)).pack(), Ordering::Relaxed);
        Some(taken)
    }

    /// Thief: claims up to `most(length)` of the oldest entries and gives them
    /// to `take`, oldest first. Returns how many there were.
    fn claim(&self, most: impl FnOnce(usize) -> usize, mut take: impl FnMut(usize)) -> usize {
        let head = self.head(Ordering::Relaxed);
        if head.claimed() {
            return 0;
        }
        // Acquire: pairs with the Release in `push`.
        let len = self.tail.load(Ordering::Acquire).wrapping_sub(head.real);
        if len as i32 <= 0 || len > self.mask + 1 {
            return 0;
        }
        let wanted = most(len as usize) as u32;
        if wanted == 0 {
            return 0;
        }
        let claim = Head { steal: head.steal, real: head.real.wrapping_add(wanted) };
        if self
            .head
            .compare_exchange(head.pack(), claim.pack(), Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return 0;
        }
        // Pairs with the fence in `take_back`.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the Release stores of `tail`.
        let left = self.tail.load(Ordering::Acquire).wrapping_sub(head.real) as i32;
        let got = wanted.min(left.max(0) as u32);
        for i in 0..got {
            take(self.at(head.real.wrapping_add(i)));
        }
        // Release: pairs with the Acquire of `head` in `push` and in `take_back`.
        self.head.store(Head::both(head.real.wrapping_add(got)).pack(), Ordering::Release);
        got as usize
    }

    /// Thief, which owns `into`: moves the older half of the entries there, but
    /// gives one of them back at once. Returns it and how many were taken.
    pub fn steal_half(&self, into: &Ring) -> Option<(usize, usize)> {
        let room = into.room() + 1;
        let mut first = 0;
        let taken = self.claim(
            |len| (len - len / 2).min(room),
            |entry| {
                if first == 0 {
                    first = entry;
                } else {
                    let pushed = into.push(entry);
                    debug_assert!(pushed);
                }
            },
        );
        (taken > 0).then_some((first, taken))
    }

    /// Owner: takes the older half out, oldest first, to make room.
    pub fn drain_half(&self, take: impl FnMut(usize)) -> usize {
        self.claim(|len| len - len / 2, take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_pops_the_newest_first_and_the_oldest_from_the_front() {
        // seed: N5
        for alone in [true, false] {
            let r = Ring::new(8);
            (1..=4).for_each(|i| assert!(r.push(i)));
            assert_eq!(r.pop_back(alone), Some(4));
            assert_eq!(r.pop_front(alone), Some(1));
            assert_eq!(r.pop_back(alone), Some(3));
            assert_eq!(r.pop_back(alone), Some(2));
            assert_eq!(r.pop_back(alone), None);
            assert_eq!(r.pop_front(alone), None);
        }
    }

    #[test]
    fn rotate_takes_the_oldest_and_appends_behind_the_others() {
        let r = Ring::new(4);
        assert!(r.rotate(9).is_none());
        (1..=3).for_each(|i| assert!(r.push(i)));
        // All around, with one place left: the first comes after the others.
        for i in 0..10 {
            let taken = r.rotate(i % 4 + 1).unwrap();
            let oldest = if i < 3 { i + 1 } else { (i - 3) % 4 + 1 };
            assert_eq!((taken.entry, taken.at, taken.left), (oldest, i as u32, 3));
        }
        assert!(r.push(5));
        assert!(r.rotate(9).is_none());
        assert_eq!(r.len(), 4);
    }

    #[test]
    fn a_thief_gets_the_older_half() {
        // seed: S3
        let (victim, thief) = (Ring::new(16), Ring::new(16));
        (1..=7).for_each(|i| assert!(victim.push(i)));
        assert_eq!(victim.steal_half(&thief), Some((1, 4)));
        assert_eq!(thief.room(), 16 - 3);
        assert_eq!(thief.pop_front(false), Some(2));
        assert_eq!(victim.room(), 16 - 3);
        assert_eq!(victim.pop_front(false), Some(5));
    }

    #[test]
    fn a_full_ring_refuses_a_push_and_drains_its_older_half() {
        let r = Ring::new(4);
        (1..=4).for_each(|i| assert!(r.push(i)));
        assert!(!r.push(5));
        let mut out = Vec::new();
        assert_eq!(r.drain_half(|e| out.push(e)), 2);
        assert_eq!(out, [1, 2]);
        assert!(r.push(5));
    }

    #[test]
    fn no_entry_is_lost_or_taken_twice_by_an_owner_and_two_thieves() {
        use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
        // Miri takes some thousand times as long.
        const N: usize = if cfg!(miri) { 300 } else { 200_000 };
        let ring = Ring::new(8);
        let seen: Vec<AtomicUsize> = (0..=N).map(|_| AtomicUsize::new(0)).collect();
        let done = AtomicBool::new(false);
        let count = |e: usize| {
            seen[e].fetch_add(1, Ordering::Relaxed);
        };
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    let mine = Ring::new(8);
                    while !done.load(Ordering::Relaxed) {
                        if let Some((e, _)) = ring.steal_half(&mine) {
                            count(e);
                        }
                        while let Some(e) = mine.pop_back(true) {
                            count(e);
                        }
                    }
                });
            }
            for i in 1..=N {
                while !ring.push(i) {
                    ring.pop_back(false).into_iter().for_each(count);
                }
                match i % 5 {
                    0 => ring.pop_back(false).into_iter().for_each(count),
                    1 => ring.pop_front(false).into_iter().for_each(count),
                    _ => {}
                }
            }
            while let Some(e) = ring.pop_back(false) {
                count(e);
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!((1..=N).all(|i| seen[i].load(Ordering::Relaxed) == 1));
    }
}
