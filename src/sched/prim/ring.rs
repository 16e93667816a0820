//! A P's local run queue: a ring that its owner uses at both ends, and from which a thief takes
//! half.
//!
//! `tail` belongs to the owner, which pushes and (LIFO) pops there. `head` says where the entries
//! begin, and how many entries below that place a thief is still copying, so that the owner doesn't
//! overwrite them. One claim is under way at a time:
//!
//! - *free*: no claim. A thief claims up to half of the entries by a compare-and-swap: `head` is
//!   *claimed*.
//! - *claimed*: the owner may just have popped an entry of the claim at the tail. The thief reads
//!   `tail`, and fixes which entries are its own: `head` is *settled*. The side that comes first
//!   settles the claim: if that is the owner, which met the claim, the thief takes what the owner
//!   has left to it.
//! - *settled*: the thief copies, and then makes `head` free. The owner pops at both ends
//!   meanwhile.
//!
//! So neither side ever waits for the other, although a thief may lose its CPU in the middle of a
//! claim. Entries that such a thief has claimed run when the thief does; their places are not used
//! meanwhile, so a push may find the ring full.
//!
//! The race is between the owner's pop at the tail and a claim that reaches as far as the tail.
//! Each side announces what it takes, fences, and reads the other's announcement: the thief claims
//! and reads `tail`, the owner lowers `tail` and reads `head`. So at least one of them sees the
//! other. An owner that sees the claim takes its announcement back, and settles the claim: then the
//! entry is the thief's.
//!
//! Sources: Go's `runqput`/`runqgrab` for stealing a half, tokio's `queue.rs` for the owner that
//! goes on while a thief copies, Frigo's THE protocol for the pop. The model test is
//! `tests/models`. seed: S3, N5

use super::limits::RING as CAPACITY;
use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// A ring of words, whose meaning the caller knows; 0 is not an entry. The module's comment
/// explains it.
pub struct Ring {
    head: AtomicU64,
    tail: AtomicU32,
    /// The capacity, a power of two of at most [`CAPACITY`], less 1.
    mask: u32,
    slots: [AtomicUsize; CAPACITY],
}

/// The value of `head`. From the lowest bit on: where the entries begin (32 bits); how many places
/// below that a claim keeps (16 bits); if the claim is settled, how many of its entries are the
/// thief's (15 bits); whether the claim is settled.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Head(u64);

impl Head {
    const KEPT: u32 = 32;
    const WON: u32 = 48;
    const SETTLED: u64 = 1 << 63;

    fn free(at: u32) -> Head {
        Head(u64::from(at))
    }

    fn claimed(self, entries: u32) -> Head {
        Head(u64::from(self.real().wrapping_add(entries)) | u64::from(entries) << Head::KEPT)
    }

    /// The head after settling its claim: the first `won` entries are the thief's.
    fn settled(self, won: u32) -> Head {
        let won = won.min(self.kept());
        let real = u64::from(self.steal().wrapping_add(won));
        Head(real | u64::from(won) << Head::KEPT | u64::from(won) << Head::WON | Head::SETTLED)
    }

    /// The head after the owner has taken the first entry.
    fn without_first(self) -> Head {
        let real = u64::from(self.real().wrapping_add(1));
        let kept = if self.is_free() { 0 } else { 1 << Head::KEPT };
        Head(((self.0 & !u64::from(u32::MAX)) + kept) | real)
    }

    #[inline(always)]
    fn is_free(self) -> bool {
        self.0 >> Head::KEPT == 0
    }

    fn is_settled(self) -> bool {
        self.0 & Head::SETTLED != 0
    }

    /// The position of the first entry in the ring.
    #[inline(always)]
    fn real(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    fn kept(self) -> u32 {
        u32::from((self.0 >> Head::KEPT) as u16)
    }

    /// The position of the first entry that a thief may still be copying.
    #[inline(always)]
    fn steal(self) -> u32 {
        self.real().wrapping_sub(self.kept())
    }

    fn won(self) -> u32 {
        (self.0 >> Head::WON) as u32 & 0x7fff
    }
}

const _: () = assert!(CAPACITY < 1 << 15);

/// An entry that the owner has taken.
#[must_use = "an entry that is dropped is lost"]
pub struct Taken {
    pub entry: usize,
    /// The position that the entry had.
    pub at: u32,
    /// The number of entries left.
    pub left: u32,
}

impl Ring {
    /// `capacity`: a power of two, at most [`CAPACITY`].
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
        Head(self.head.load(order))
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.tail.load(Ordering::Relaxed) == self.head(Ordering::Relaxed).real()
    }

    /// Owner: appends an entry. False: the ring is full.
    #[inline(always)]
    #[must_use]
    pub fn push(&self, entry: usize) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of `head` by a thief that has finished copying, so that
        // the thief's reads come before the owner overwrites.
        let steal = self.head(Ordering::Acquire).steal();
        if tail.wrapping_sub(steal) > self.mask {
            return false;
        }
        self.slot(tail).store(entry, Ordering::Relaxed);
        // Release: pairs with the Acquire of `tail` by thieves, which then see the entry and what
        // it points to.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        true
    }

    /// The number of entries; may be out of date when it is read.
    pub fn len(&self) -> usize {
        let tail = self.tail.load(Ordering::Relaxed);
        (tail.wrapping_sub(self.head(Ordering::Relaxed).real()) as i32).max(0) as usize
    }

    /// A hint of the `n`th oldest entry, which may be out of date, or 0.
    pub fn oldest(&self, n: u32) -> usize {
        self.at(self.head(Ordering::Relaxed).real().wrapping_add(n))
    }

    /// A hint of the entry at a position, like [`Ring::oldest`].
    #[inline(always)]
    pub fn at(&self, position: u32) -> usize {
        self.slot(position).load(Ordering::Relaxed)
    }

    /// Owner: the number of entries that can surely be pushed. Entries that a thief is still
    /// copying take room.
    pub fn room(&self) -> usize {
        let tail = self.tail.load(Ordering::Relaxed);
        // Acquire: as in `push`.
        let steal = self.head(Ordering::Acquire).steal();
        (self.mask + 1 - tail.wrapping_sub(steal)) as usize
    }

    /// Owner: takes the newest entry. `alone`: there are no thieves now.
    #[inline(always)]
    #[must_use]
    pub fn pop_back(&self, alone: bool) -> Option<usize> {
        self.take_back(alone).map(|taken| taken.entry)
    }

    /// [`Ring::pop_back`] that also returns the entry's position and how many are left.
    #[inline(always)]
    #[must_use]
    pub fn take_back(&self, alone: bool) -> Option<Taken> {
        let tail = self.tail.load(Ordering::Relaxed);
        let head = self.head(Ordering::Relaxed);
        if head.is_free() && head.real() == tail {
            return None;
        }
        let last = tail.wrapping_sub(1);
        // Release, as in `push`: a thief that reads this value must see the
        // entries below it.
        self.tail.store(last, Ordering::Release);
        if !alone {
            // Pairs with the fence in `claim`.
            fence(Ordering::SeqCst);
            if (last.wrapping_sub(self.head(Ordering::Relaxed).real()) as i32) < 0 {
                let entry = self.pop_back_contended(tail)?;
                return Some(Taken { entry, at: last, left: 0 });
            }
        }
        Some(Taken { entry: self.at(last), at: last, left: last.wrapping_sub(head.real()) })
    }

    /// The slow path of `take_back`, when a claim reaches the last entry.
    #[cold]
    #[inline(never)]
    #[must_use]
    fn pop_back_contended(&self, tail: u32) -> Option<usize> {
        let last = tail.wrapping_sub(1);
        loop {
            // Release, as in `push`.
            self.tail.store(tail, Ordering::Release);
            let head = self.head_for_pop();
            if head.real() == tail {
                return None;
            }
            self.tail.store(last, Ordering::Release);
            // Pairs with the fence in `claim`.
            fence(Ordering::SeqCst);
            if last.wrapping_sub(self.head(Ordering::Relaxed).real()) as i32 >= 0 {
                return Some(self.at(last));
            }
        }
    }

    /// Owner: `head`, after settling the claim if one is unsettled. A claim that the owner settles
    /// gets all of its entries that are in the ring.
    fn head_for_pop(&self) -> Head {
        let tail = self.tail.load(Ordering::Relaxed);
        loop {
            let head = self.head(Ordering::Relaxed);
            if head.is_free() || head.is_settled() {
                return head;
            }
            let there = (tail.wrapping_sub(head.steal()) as i32).max(0) as u32;
            let settled = head.settled(there);
            // Release: pairs with the Acquire of the thief, which then sees every entry that it
            // gets, even one pushed after the claim.
            let (to, order) = (Ordering::Release, Ordering::Relaxed);
            if self.head.compare_exchange(head.0, settled.0, to, order).is_ok() {
                return settled;
            }
        }
    }

    /// Owner: takes the oldest entry. `alone`: there are no thieves now.
    #[inline(always)]
    #[must_use]
    pub fn pop_front(&self, alone: bool) -> Option<usize> {
        self.take_front(alone).map(|taken| taken.entry)
    }

    /// [`Ring::pop_front`] that also returns the entry's position and how many are left.
    #[inline(always)]
    #[must_use]
    pub fn take_front(&self, alone: bool) -> Option<Taken> {
        let tail = self.tail.load(Ordering::Relaxed);
        let mut head = self.head(Ordering::Relaxed);
        let taken = |head: Head| {
            let left = tail.wrapping_sub(head.real()).wrapping_sub(1);
            // Only the owner writes slots and `tail`, so the owner may read the entry at any time.
            Some(Taken { entry: self.at(head.real()), at: head.real(), left })
        };
        if alone {
            if head.real() == tail {
                return None;
            }
            self.head.store(Head::free(head.real().wrapping_add(1)).0, Ordering::Relaxed);
            return taken(head);
        }
        loop {
            if !head.is_free() {
                head = self.head_for_pop();
            }
            if head.real() == tail {
                return None;
            }
            let (next, relaxed) = (head.without_first(), Ordering::Relaxed);
            match self.head.compare_exchange(head.0, next.0, relaxed, relaxed) {
                Ok(_) => return taken(head),
                Err(now) => head = Head(now),
            }
        }
    }

    /// Owner, while there are no thieves: takes the oldest entry and appends another one. `None`:
    /// the ring is empty, or has no room.
    #[inline(always)]
    #[must_use]
    pub fn rotate(&self, entry: usize) -> Option<Taken> {
        let tail = self.tail.load(Ordering::Relaxed);
        let first = self.head(Ordering::Relaxed).real();
        let left = tail.wrapping_sub(first);
        if left == 0 || left > self.mask {
            return None;
        }
        let taken = Taken { entry: self.at(first), at: first, left };
        self.slot(tail).store(entry, Ordering::Relaxed);
        // Release: as in `push`.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        self.head.store(Head::free(first.wrapping_add(1)).0, Ordering::Relaxed);
        Some(taken)
    }

    /// Thief: claims up to `most(length)` of the oldest entries and gives them to `take`, oldest
    /// first. Returns how many entries it gave.
    fn claim(&self, most: impl FnOnce(usize) -> usize, mut take: impl FnMut(usize)) -> usize {
        let head = self.head(Ordering::Relaxed);
        if !head.is_free() {
            return 0;
        }
        // Acquire: pairs with the Release in `push`.
        let len = self.tail.load(Ordering::Acquire).wrapping_sub(head.real());
        if len as i32 <= 0 || len > self.mask + 1 {
            return 0;
        }
        let wanted = most(len as usize) as u32;
        if wanted == 0 {
            return 0;
        }
        let claimed = head.claimed(wanted);
        let (order, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        if self.head.compare_exchange(head.0, claimed.0, order, relaxed).is_err() {
            return 0;
        }
        // Pairs with the fence in `take_back`.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the Release stores of `tail`.
        let there = self.tail.load(Ordering::Acquire).wrapping_sub(head.real()) as i32;
        let settled = claimed.settled(there.max(0) as u32);
        // Acquire: pairs with the Release of the owner in `head_for_pop`.
        let settled =
            match self.head.compare_exchange(claimed.0, settled.0, relaxed, Ordering::Acquire) {
                Ok(_) => settled,
                Err(by_owner) => Head(by_owner),
            };
        let won = settled.won();
        for i in 0..won {
            take(self.at(head.real().wrapping_add(i)));
        }
        let mut now = settled;
        // Tried again if the owner has popped the first entries behind the claim. Release: pairs
        // with the Acquire of `head` in `push`.
        while let Err(later) = self.head.compare_exchange_weak(
            now.0,
            Head::free(now.real()).0,
            Ordering::Release,
            relaxed,
        ) {
            now = Head(later);
        }
        won as usize
    }

    /// Thief, which owns `into`: moves the older half of the entries there, except one, which it
    /// returns with the number taken.
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

    /// Owner: takes out the older half, oldest first, to make room.
    pub fn drain_half(&self, take: impl FnMut(usize)) -> usize {
        self.claim(|len| len - len / 2, take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `owner` while a thief copies.
    fn with_a_thief_that_copies(entries: usize, owner: impl Fn(&Ring)) -> (Ring, Vec<usize>) {
        let ring = Ring::new(8);
        (1..=entries).for_each(|i| assert!(ring.push(i)));
        let mut stolen = Vec::new();
        ring.claim(
            |len| len - len / 2,
            |entry| {
                if stolen.is_empty() {
                    owner(&ring);
                }
                stolen.push(entry);
            },
        );
        (ring, stolen)
    }

    #[test]
    fn the_owner_goes_on_at_both_ends_while_a_thief_copies() {
        let (ring, stolen) = with_a_thief_that_copies(6, |ring| {
            assert_eq!(ring.pop_front(false), Some(4));
            assert!(ring.push(7));
            assert_eq!(ring.pop_back(false), Some(7));
            assert_eq!(ring.pop_back(false), Some(6));
            assert_eq!(ring.pop_front(false), Some(5));
            assert_eq!((ring.pop_front(false), ring.pop_back(false)), (None, None));
            assert_eq!(ring.steal_half(&Ring::new(8)), None, "one thief at a time");
            // The places that the thief is copying are not free.
            assert_eq!(ring.room(), 3);
            (8..=10).for_each(|i| assert!(ring.push(i)));
            assert!(!ring.push(11));
        });
        assert_eq!(stolen, [1, 2, 3]);
        assert_eq!(ring.room(), 5);
        assert_eq!(ring.pop_front(false), Some(8));
        assert_eq!((ring.pop_back(false), ring.pop_back(false)), (Some(10), Some(9)));
    }

    /// Makes a claim as a thief does, and leaves it unsettled.
    fn claim_unsettled(ring: &Ring, entries: u32) {
        let head = ring.head(Ordering::Relaxed);
        ring.head.store(head.claimed(entries).0, Ordering::Relaxed);
    }

    #[test]
    fn the_owner_settles_a_claim_that_it_meets() {
        let ring = Ring::new(8);
        (1..=4).for_each(|i| assert!(ring.push(i)));
        claim_unsettled(&ring, 2);
        assert_eq!(ring.pop_front(false), Some(3));
        let head = ring.head(Ordering::Relaxed);
        assert!(head.is_settled());
        assert_eq!((head.won(), head.steal(), head.real()), (2, 0, 3));

        let ring = Ring::new(8);
        (1..=2).for_each(|i| assert!(ring.push(i)));
        claim_unsettled(&ring, 2);
        assert_eq!((ring.pop_back(false), ring.head(Ordering::Relaxed).won()), (None, 2));
    }

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
        // Around the whole ring, with one place left: the first entry comes after the others.
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
