//! The table of stacks that events refer to.

use super::format::MOST_FRAMES;
use crate::os::heap;
use crate::os::locked::Locked;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

/// The most stacks of a process. Events with other stacks have none.
const MOST: usize = 1 << 15;

/// A frame of an interpreter, as string ids of [`super::string_id`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ForeignFrame {
    pub function: u32,
    pub file: u32,
    pub line: u32,
}

/// A stack: the interpreter's frames, then those of C, each leaf first.
pub struct Entry {
    pub foreign: Box<[ForeignFrame]>,
    /// The address of an instruction, then return addresses.
    pub pcs: Box<[usize]>,
    /// The latest generations of even and odd number in which an event has the stack.
    used: [AtomicU32; 2],
}

/// The stacks by their ids, less 1; null: none yet.
static ENTRIES: [AtomicPtr<Entry>; MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST];

#[derive(Default)]
struct Ids {
    by_hash: HashMap<u64, Vec<u32>>,
    count: u32,
}

static IDS: Locked<Option<Ids>> = Locked::new(None);

/// The generation to which events that are made now belong.
static PRESENT: AtomicU32 = AtomicU32::new(0);

/// Ids of stacks that have only a function: its address, and below it the id in 16 bits.
static FUNCTIONS: [AtomicU64; 512] = [const { AtomicU64::new(0) }; 512];

/// Events that are made from now on belong to this generation. A little early: see [`mark`].
pub(super) fn begin_generation(generation: u32) {
    PRESENT.store(generation, Ordering::Relaxed);
}

/// The generation to which events that are made now belong, or the one before.
pub(super) fn present() -> u32 {
    PRESENT.load(Ordering::Relaxed)
}

/// The stack with this id.
pub(super) fn entry(id: u32) -> Option<&'static Entry> {
    let place = ENTRIES.get((id as usize).wrapping_sub(1))?;
    // SAFETY: null, or a box that `add` has leaked.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

/// Notes that an event of the present generation has the stack. The generation may end between this
/// and the event: [`used_in`] counts stacks of both.
pub fn mark(id: u32) -> u32 {
    if let Some(entry) = entry(id) {
        let now = PRESENT.load(Ordering::Relaxed);
        let used = &entry.used[now as usize % 2];
        if used.load(Ordering::Relaxed) != now {
            used.store(now, Ordering::Relaxed);
        }
    }
    id
}

/// The ids of the stacks that events of this generation may have.
pub(super) fn used_in(generation: u32) -> Vec<u32> {
    let count = IDS.with(|ids| ids.as_ref().map_or(0, |ids| ids.count));
    let near = |entry: &Entry| {
        entry.used.iter().any(|used| {
            let used = used.load(Ordering::Relaxed);
            used == generation || used != 0 && used == generation - 1
        })
    };
    (1..=count).filter(|&id| entry(id).is_some_and(near)).collect()
}

/// The id of the stack that has only this function, at its first instruction; 0: none.
pub fn of_function(pc: usize) -> u32 {
    if pc == 0 {
        return 0;
    }
    let place = &FUNCTIONS[(pc >> 4) % FUNCTIONS.len()];
    let known = place.load(Ordering::Relaxed);
    if known >> 16 == pc as u64 {
        return mark(known as u32 & 0xffff);
    }
    let id = add(&[], &[pc]);
    place.store((pc as u64) << 16 | u64::from(id), Ordering::Relaxed);
    id
}

/// The id of this stack, which is added to the table if it isn't there; 0: the table is full.
pub fn add(foreign: &[ForeignFrame], pcs: &[usize]) -> u32 {
    let pcs = &pcs[..pcs.len().min(MOST_FRAMES)];
    let mut hasher = DefaultHasher::new();
    for frame in foreign {
        hasher.write_u32(frame.function);
        hasher.write_u32(frame.file);
        hasher.write_u32(frame.line);
    }
    pcs.iter().for_each(|&pc| hasher.write_usize(pc));
    let hash = hasher.finish();
    let id = IDS.with(|ids| {
        let ids = ids.get_or_insert_default();
        let same = |&id: &u32| entry(id).is_some_and(|e| *e.pcs == *pcs && *e.foreign == *foreign);
        let known = ids.by_hash.entry(hash).or_default();
        if let Some(&id) = known.iter().find(|id| same(id)) {
            return id;
        }
        if ids.count as usize == MOST {
            return 0;
        }
        let entry = Entry {
            foreign: foreign.into(),
            pcs: pcs.into(),
            used: [const { AtomicU32::new(0) }; 2],
        };
        let Some(entry) = heap::boxed_to_keep(entry) else { return 0 };
        ids.count += 1;
        // Release: pairs with the Acquire in `entry`.
        ENTRIES[ids.count as usize - 1].store(Box::into_raw(entry), Ordering::Release);
        known.push(ids.count);
        ids.count
    });
    mark(id)
}

/// In the child of a fork: forgets the stacks, which another thread may have been adding.
///
/// # Safety
/// The caller is the child's only thread.
pub(super) unsafe fn forked() {
    // SAFETY: no other thread is there; the value is replaced without a look at it.
    unsafe { IDS.reset() };
    IDS.with(|ids| core::mem::forget(ids.take()));
    ENTRIES.iter().for_each(|place| place.store(ptr::null_mut(), Ordering::Relaxed));
    FUNCTIONS.iter().for_each(|place| place.store(0, Ordering::Relaxed));
}
