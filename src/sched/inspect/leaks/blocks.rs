//! The blocks of malloc(3) that objects lie in.
//!
//! A program may have only a pointer to the struct that holds a mutex. So a pointer to anywhere in
//! the mutex's block counts as a reference. The bounds of a block are in the headers of glibc's
//! *chunks*, which follow each other:
//!
//! ```text
//!         | size of the chunk before | size, 3 bits |  block  ...  | size of ... | size | block
//!         ^ chunk                                   ^ what malloc returned
//! ```
//!
//! A walk over the headers needs no lock. It is believed only if it ends where the heap ends. If it
//! doesn't, or another allocator has made the memory, then a pointer to anywhere in the mapping, and
//! in those that adjoin it, counts as a reference.

use crate::os::maps::{self, Kind, Mapping};
use crate::os::page_size;
use core::ops::Range;

/// An object of the user's, whose block is looked for.
#[derive(Clone, Copy)]
pub struct Object {
    /// An address in the object.
    pub at: usize,
    /// The index of the goroutine that waits for it.
    pub waiter: u32,
    pub block: Block,
}

/// The memory to which a reference of an object points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    Unknown,
    /// Code may refer to the object without a pointer, for instance to a global variable.
    Always,
    /// A block of malloc(3). References in itself don't count.
    Malloc {
        start: usize,
        end: usize,
    },
    /// All of a mapping, and of those that adjoin it.
    Mapping {
        start: usize,
        end: usize,
    },
}

/// Bytes and alignment of the heaps that glibc makes for threads.
const HEAP: usize = 64 << 20;
/// Bytes of `heap_info`, with which such a heap begins, and of `malloc_state`, which follows it in
/// the first heap of an arena. The others begin with their first chunk there.
const HEAP_INFO: usize = 48;
const ARENA: usize = 2200;
/// Where `malloc_state` has the address of the topmost chunk.
const TOP: usize = 96;
/// Bytes of a chunk before its block.
const HEADER: usize = 16;
const ALIGN: usize = 16;
const SMALLEST: usize = 32;
/// Bits of a chunk's size.
const IS_MAPPED: usize = 2;
const IS_OF_THREAD: usize = 4;
const BITS: usize = 7;

/// Finds the blocks of objects, which are sorted by address. `maps`: all mappings, sorted.
pub fn find(objects: &mut [Object], maps: &[Mapping]) {
    let mut reader = Headers::new();
    let mut rest = objects;
    while let Some(first) = rest.first() {
        let at = first.at;
        let Some(area) = area_of(at, maps) else {
            rest[0].block = Block::Always;
            rest = &mut rest[1..];
            continue;
        };
        let (here, after) = split_before(rest, area[area.len() - 1].end);
        rest = after;
        find_in(&mut reader, here, area);
    }
}

/// The mappings around an address that follow each other without a gap and are of the same kind. The
/// kernel keeps a heap in several mappings, for instance, if the heap has grown after a fork.
fn area_of(at: usize, maps: &[Mapping]) -> Option<&[Mapping]> {
    let i = maps.iter().position(|m| (m.start..m.end).contains(&at))?;
    let is_one = |a: &Mapping, b: &Mapping| {
        a.end == b.start && a.kind == b.kind && a.is_shared == b.is_shared
    };
    let mut first = i;
    while first > 0 && is_one(&maps[first - 1], &maps[first]) {
        first -= 1;
    }
    let mut last = i;
    while last + 1 < maps.len() && is_one(&maps[last], &maps[last + 1]) {
        last += 1;
    }
    Some(&maps[first..=last])
}

/// The objects below an address, and the others.
fn split_before(objects: &mut [Object], end: usize) -> (&mut [Object], &mut [Object]) {
    let count = objects.iter().take_while(|o| o.at < end).count();
    objects.split_at_mut(count)
}

/// [`find`] for objects in one area.
fn find_in(reader: &mut Headers, objects: &mut [Object], area: &[Mapping]) {
    let (start, end) = (area[0].start, area[area.len() - 1].end);
    match area[0].kind {
        Kind::Brk if !area[0].is_shared => {
            walk(reader, start..end, None, objects);
        }
        Kind::Anonymous if !area[0].is_shared => {
            let mut rest = &mut *objects;
            while let Some(first) = rest.first() {
                let heap = first.at & !(HEAP - 1);
                let (here, after) = split_before(rest, heap + HEAP);
                rest = after;
                if heap < start || !walk_heap_of_thread(reader, heap, end, here) {
                    walk_mapped(reader, area, here);
                }
            }
        }
        _ => objects.iter_mut().for_each(|o| o.block = Block::Always),
    }
    for object in objects.iter_mut().filter(|o| o.block == Block::Unknown) {
        object.block = Block::Mapping { start, end };
    }
}

/// Walks over a heap of an arena that isn't the main one, in an area that ends at `area_end`. False:
/// it is none.
fn walk_heap_of_thread(
    reader: &mut Headers,
    heap: usize,
    area_end: usize,
    objects: &mut [Object],
) -> bool {
    let Some([arena, _]) = reader.at(heap) else { return false };
    let Some([size, _]) = reader.at(heap + 16) else { return false };
    let end = heap + size;
    if size > HEAP || size % page_size() != 0 || end > area_end {
        return false;
    }
    if arena != heap + HEAP_INFO {
        return walk(reader, heap + HEAP_INFO..end, None, objects);
    }
    let Some([top, _]) = reader.at(arena + TOP) else { return false };
    let first = (arena + ARENA).next_multiple_of(ALIGN);
    let top = (heap..end).contains(&top).then_some(top);
    walk(reader, first..end, top, objects)
}

/// Walks over the chunks of a heap, of which `top` is the last if it is known. Fills the blocks in
/// and returns true if the walk ends where it should.
fn walk(
    reader: &mut Headers,
    heap: Range<usize>,
    top: Option<usize>,
    objects: &mut [Object],
) -> bool {
    let mut at = heap.start;
    let mut next = 0;
    let ends = loop {
        let Some([_, word]) = reader.at(at) else { break false };
        let size = word & !BITS;
        // An arena that has got another heap closes this one by a chunk of 16 bytes and of none.
        if size == HEADER && at + SMALLEST == heap.end {
            break reader.at(at + HEADER).is_some_and(|[_, word]| word & !BITS == 0);
        }
        let is_chunk = size >= SMALLEST && size.is_multiple_of(ALIGN) && size <= heap.end - at;
        if !is_chunk || word & IS_MAPPED != 0 {
            break false;
        }
        // A block has the first word of the next chunk too. malloc has the address of the topmost chunk,
        // which is no reference to the block before.
        let next_is_top = match top {
            Some(top) => at + size == top,
            None => reader.at(at + size).is_none_or(|[_, w]| at + size + (w & !BITS) == heap.end),
        };
        let block = at + HEADER..at + size + if next_is_top { 0 } else { HEADER / 2 };
        while let Some(object) = objects.get_mut(next).filter(|o| block.contains(&o.at)) {
            object.block = Block::Malloc { start: block.start, end: block.end };
            next += 1;
        }
        if objects.get(next).is_some_and(|o| o.at < block.end) {
            break false; // in a header
        }
        if at + size == heap.end {
            break top.is_none_or(|top| top == at);
        }
        at += size;
    };
    if !ends {
        objects.iter_mut().for_each(|o| o.block = Block::Unknown);
    }
    ends
}

/// Walks over chunks that have mappings of their own, from the beginning of each mapping. Blocks that
/// are not found stay unknown.
fn walk_mapped(reader: &mut Headers, area: &[Mapping], mut objects: &mut [Object]) {
    for mapping in area {
        let (here, after) = split_before(objects, mapping.end);
        objects = after;
        walk_chunks(reader, mapping.start..mapping.end, here);
    }
}

/// [`walk_mapped`] for one mapping.
fn walk_chunks(reader: &mut Headers, mapping: Range<usize>, objects: &mut [Object]) {
    let mut at = mapping.start;
    for object in objects {
        while at < mapping.end {
            let Some([before, word]) = reader.at(at) else { return };
            let size = word & !BITS;
            let is_chunk = before == 0
                && word & (BITS & !IS_OF_THREAD) == IS_MAPPED
                && size != 0
                && size.is_multiple_of(page_size())
                && size <= mapping.end - at;
            if !is_chunk {
                return;
            }
            if (at + HEADER..at + size).contains(&object.at) {
                object.block = Block::Malloc { start: at + HEADER, end: at + size };
                break;
            }
            at += size;
        }
    }
}

/// Reads headers, from a piece of memory that is copied ahead.
struct Headers {
    piece: [u64; 1024],
    start: usize,
    len: usize,
}

impl Headers {
    fn new() -> Headers {
        Headers { piece: [0; 1024], start: 0, len: 0 }
    }

    /// The two words at an address. `None`: there is no memory, or the address isn't a word's.
    fn at(&mut self, at: usize) -> Option<[usize; 2]> {
        if !at.is_multiple_of(8) {
            return None;
        }
        if at < self.start || at + 16 > self.start + self.len {
            let mut len = 0;
            let end = (at + 16).next_multiple_of(page_size());
            maps::read(at..end, &mut self.piece, &mut |from, words| {
                if from == at {
                    len = words.len() * 8;
                }
            })
            .ok()?;
            (self.start, self.len) = (at, len);
        }
        let i = (at - self.start) / 8;
        let words = self.piece[..self.len / 8].get(i..i + 2)?;
        Some([words[0] as usize, words[1] as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::mapped::Mapped;

    fn block_of(at: usize) -> Block {
        let mut maps = Mapped::new();
        maps::list(&mut maps).unwrap();
        let mut objects = [Object { at, waiter: 0, block: Block::Unknown }];
        find(&mut objects, &maps);
        objects[0].block
    }

    /// Too large for a gap between mappings: a mapping of this size is the lowest, so the kernel
    /// doesn't make it one with a mapping below it.
    const LARGE: usize = 1 << 28;

    fn check_blocks() {
        for size in [24, 100, 1000, 100_000, LARGE] {
            // SAFETY: the block is used inside its bounds.
            unsafe {
                let block = libc::malloc(size) as usize;
                let Block::Malloc { start, end } = block_of(block + size / 2) else {
                    panic!("{size}: {:?}", block_of(block + size / 2));
                };
                assert_eq!(start, block);
                // Below the topmost chunk the block's last word is left out.
                assert!(end + HEADER / 2 >= block + size && end < block + size + 2 * page_size());
                libc::free(block as *mut _);
            }
        }
    }

    /// In a child process, because a heap can be walked over only while no other thread uses it.
    #[test]
    #[cfg_attr(gosched_tsan, ignore = "the sanitizer has a heap of its own")]
    fn blocks_of_malloc_are_found_on_each_kind_of_heap() {
        // SAFETY: the C library's heap and streams may be used after a fork. The child ends here.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let found = std::panic::catch_unwind(|| {
                check_blocks();
                std::thread::spawn(check_blocks).join().unwrap();
            });
            // SAFETY: ends the child without the test runner's handlers.
            unsafe { libc::_exit(found.is_err().into()) };
        }
        let mut status = -1;
        // SAFETY: `child` is a child of this process, and nothing else waits for it.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn elsewhere_all_of_the_mapping_counts_and_a_global_always() {
        static GLOBAL: [u64; 4] = [1; 4];
        assert_eq!(block_of(GLOBAL.as_ptr() as usize), Block::Always);
        let at = crate::os::mem::map(LARGE).unwrap();
        let Block::Mapping { start, end } = block_of(at + page_size()) else { panic!("a block") };
        assert!(start <= at && end >= at + LARGE);
        // SAFETY: mapped above, and used no more.
        unsafe { crate::os::mem::release(at, LARGE) };
    }
}
