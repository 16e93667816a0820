//! What is known of each goroutine and object during a search, and what a word of memory says of
//! them.

use super::blocks::{Block, Object};
use crate::arch;
use crate::os::mapped::Mapped;

/// A goroutine.
#[derive(Clone, Copy)]
pub struct Go {
    /// The address of the descriptor.
    pub g: usize,
    /// The part of its stack that is in use; both 0: it has none of its own.
    pub sp: usize,
    pub hi: usize,
    /// Whether it may run again.
    pub is_live: bool,
}

/// A goroutine waits for something to which references point into `start..end`.
#[derive(Clone, Copy)]
struct Want {
    start: usize,
    end: usize,
    go: u32,
    /// References in the range itself don't count.
    is_closed: bool,
}

/// A range of addresses to which a reference makes goroutines live. No two overlap.
#[derive(Clone, Copy)]
struct Target {
    start: usize,
    end: usize,
    /// The first of its wants, which end where the next target's begin.
    first: u32,
    is_closed: bool,
    is_live: bool,
}

/// If one goroutine is live, so is another: the object that the other waits for is on its stack, or
/// the other waits for its end.
#[derive(Clone, Copy)]
struct Edge {
    from: u32,
    to: u32,
}

/// Log2 of the bits of the filter. A bit stands for pages of 4 KiB whose numbers are equal in the
/// lowest bits.
const FILTER: u32 = 20;
const PAGE_BITS: u32 = 12;
/// The bits of a word that make up an address. The others may be a tag, as in NaN boxes.
const ADDRESS: u64 = arch::ADDRESSES as u64 - 1;

/// The marks of a search.
pub struct Marks {
    /// By the address of the descriptor, once sorted.
    pub gos: Mapped<Go>,
    wants: Mapped<Want>,
    targets: Mapped<Target>,
    edges: Mapped<Edge>,
    /// Live goroutines whose stacks have not been looked at.
    work: Mapped<u32>,
    filter: Mapped<u64>,
    /// All targets are in `low..low + span`.
    low: u64,
    span: u64,
    has_room: bool,
}

impl Marks {
    pub fn new() -> Option<Marks> {
        // SAFETY: words may be zero.
        let filter = unsafe { Mapped::zeroed(1 << (FILTER - 6)) }?;
        Some(Marks {
            gos: Mapped::new(),
            wants: Mapped::new(),
            targets: Mapped::new(),
            edges: Mapped::new(),
            work: Mapped::new(),
            filter,
            low: 0,
            span: 0,
            has_room: true,
        })
    }

    /// The addresses of the lists' memory, which is no part of the program.
    pub fn memory(&self) -> [core::ops::Range<usize>; 6] {
        [
            self.gos.memory(),
            self.wants.memory(),
            self.targets.memory(),
            self.edges.memory(),
            self.work.memory(),
            self.filter.memory(),
        ]
    }

    /// Adds a goroutine; returns its index until `sort_goroutines`.
    pub fn add_goroutine(&mut self, go: Go) {
        self.has_room &= self.gos.push(go);
    }

    /// Sorts the goroutines; the indexes are final. False: there is no memory.
    #[must_use]
    pub fn sort_goroutines(&mut self) -> bool {
        self.gos.sort_unstable_by_key(|go| go.g);
        self.has_room &= self.work.reserve(self.gos.len());
        self.has_room
    }

    /// The index of the goroutine with this descriptor.
    pub fn index(&self, g: usize) -> Option<u32> {
        self.gos.binary_search_by_key(&g, |go| go.g).ok().map(|i| i as u32)
    }

    /// A reference to anywhere in `start..end` makes the goroutine live.
    pub fn want(&mut self, go: u32, start: usize, end: usize, is_closed: bool) {
        self.has_room &= self.wants.push(Want { start, end, go, is_closed });
    }

    pub fn want_object(&mut self, object: &Object) {
        match object.block {
            Block::Unknown | Block::Always => self.set_live(object.waiter),
            Block::Malloc { start, end } => self.want(object.waiter, start, end, true),
            Block::Mapping { start, end } => self.want(object.waiter, start, end, false),
        }
    }

    /// If `from` is live, `to` is too.
    pub fn follows(&mut self, from: u32, to: u32) {
        self.has_room &= self.edges.push(Edge { from, to });
    }

    pub fn set_live(&mut self, go: u32) {
        self.gos[go as usize].is_live = true;
    }

    /// Makes targets of the wants: the goroutines, wants and edges are final. False: there is no
    /// memory.
    #[must_use]
    pub fn prepare(&mut self) -> bool {
        self.edges.sort_unstable_by_key(|e| e.from);
        self.wants.sort_unstable_by_key(|w| w.start);
        for i in 0..self.wants.len() {
            let Want { start, end, is_closed, .. } = self.wants[i];
            match self.targets.last_mut().filter(|t| start < t.end) {
                Some(last) => {
                    last.end = last.end.max(end);
                    last.is_closed &= is_closed;
                }
                None => {
                    let first = i as u32;
                    let target = Target { start, end, first, is_closed, is_live: false };
                    self.has_room &= self.targets.push(target);
                }
            }
        }
        for target in self.targets.iter() {
            let (first, last) = (target.start >> PAGE_BITS, (target.end - 1) >> PAGE_BITS);
            for page in first..=last.min(first + (1 << FILTER)) {
                let bit = page & ((1 << FILTER) - 1);
                self.filter[bit / 64] |= 1 << (bit % 64);
            }
        }
        self.low = self.targets.first().map_or(0, |t| t.start as u64);
        self.span = self.targets.last().map_or(0, |t| t.end as u64) - self.low;
        for i in 0..self.gos.len() {
            if self.gos[i].is_live {
                self.has_room &= self.work.push(i as u32);
            }
        }
        self.has_room
    }

    /// Looks at words of live memory at an address. `before`: the word before them, if it is live
    /// memory too. A pointer may begin at any multiple of 4, as in `struct epoll_event`.
    #[inline]
    pub fn words(&mut self, at: usize, before: Option<u64>, words: &[u64]) {
        let mut last = before.unwrap_or(0);
        for (i, &word) in words.iter().enumerate() {
            self.word(word, at + 8 * i);
            self.word(last >> 32 | word << 32, at + 8 * i);
            last = word;
        }
    }

    /// Looks at one word. `at`: where it is in memory; 0: in a register.
    #[inline(always)]
    pub fn word(&mut self, word: u64, at: usize) {
        let address = word & ADDRESS;
        if address.wrapping_sub(self.low) < self.span {
            self.maybe(address, at);
        }
    }

    #[inline]
    fn maybe(&mut self, address: u64, at: usize) {
        let bit = (address >> PAGE_BITS) as usize & ((1 << FILTER) - 1);
        if self.filter[bit / 64] >> (bit % 64) & 1 != 0 {
            self.hit(address as usize, at);
        }
    }

    fn hit(&mut self, address: usize, at: usize) {
        let after = self.targets.partition_point(|t| t.start <= address);
        let Some(i) = after.checked_sub(1) else { return };
        let target = &mut self.targets[i];
        let is_own = target.is_closed && (target.start..target.end).contains(&at);
        if target.is_live || address >= target.end || is_own {
            return;
        }
        target.is_live = true;
        let first = target.first as usize;
        let end = self.targets.get(after).map_or(self.wants.len(), |t| t.first as usize);
        for w in first..end {
            self.found_live(self.wants[w].go);
        }
    }

    fn found_live(&mut self, go: u32) {
        let is_live = &mut self.gos[go as usize].is_live;
        if !*is_live {
            *is_live = true;
            // There is room: each goroutine comes here once at most.
            let _ = self.work.push(go);
        }
    }

    /// The next live goroutine whose stack has not been looked at. Those that follow from it are
    /// live too from here on.
    pub fn next(&mut self) -> Option<Go> {
        let from = self.work.pop()?;
        let first = self.edges.partition_point(|e| e.from < from);
        let mut i = first;
        while let Some(&Edge { to, .. }) = self.edges.get(i).filter(|e| e.from == from) {
            self.found_live(to);
            i += 1;
        }
        Some(self.gos[from as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(n: usize) -> Marks {
        let mut marks = Marks::new().unwrap();
        for i in 0..n {
            marks.add_goroutine(Go { g: 1000 + i, sp: 0, hi: 0, is_live: false });
        }
        assert!(marks.sort_goroutines());
        marks
    }

    fn live(marks: &Marks) -> Vec<bool> {
        marks.gos.iter().map(|go| go.is_live).collect()
    }

    #[test]
    fn a_pointer_into_a_block_counts_and_one_beside_it_or_in_it_does_not() {
        let mut marks = marks(3);
        marks.want(0, 0x5000, 0x5100, true);
        marks.want(1, 0x5100, 0x5200, true);
        marks.want(2, 0x9000, 0xa000, true);
        assert!(marks.prepare());
        marks.words(0x9800, None, &[0x9000, 0x8fff, 0xa000]);
        assert_eq!(live(&marks), [false; 3]);
        marks.word(0x51ff | 0xfff8 << 48, 0x100);
        assert_eq!(live(&marks), [false, true, false]);
        // Across two words.
        marks.words(0x100, None, &[0x5001 << 32, 0]);
        assert_eq!(live(&marks), [true, true, false]);
    }

    #[test]
    fn ranges_that_overlap_are_one_target() {
        let mut marks = marks(3);
        marks.want(0, 0x10_0000, 0x90_0000, false);
        marks.want(1, 0x20_0000, 0x20_0100, true);
        marks.want(2, 0x90_0000, 0x90_0010, true);
        assert!(marks.prepare());
        marks.word(0x80_0000, 0x30_0000);
        assert_eq!(live(&marks), [true, true, false]);
    }

    #[test]
    fn what_follows_from_a_live_goroutine_is_live() {
        let mut marks = marks(4);
        marks.follows(0, 1);
        marks.follows(1, 2);
        marks.follows(3, 3);
        marks.set_live(0);
        assert!(marks.prepare());
        while marks.next().is_some() {}
        assert_eq!(live(&marks), [true, true, true, false]);
    }
}
