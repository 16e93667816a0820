//! Batches: the buffers that streams fill and the tracer's thread writes out.

use super::format::{MOST_DATA, MOST_NUMBER, put_number};
use crate::os::heap;
use crate::os::locked::Locked;
use core::mem::MaybeUninit;

/// Bytes of a batch that are not data: what [`Batch`] keeps besides.
const HEAD: usize = 64;
/// The most bytes of data in a batch: with its head a batch fills whole pages.
const ROOM: usize = MOST_DATA - HEAD;

/// A part of what one thread has traced in one generation.
pub struct Batch {
    pub generation: u32,
    /// The thread whose events these are.
    pub thread: u64,
    /// The time to which the first event's time is relative, in ticks.
    pub time: u64,
    len: usize,
    data: [MaybeUninit<u8>; ROOM],
}

impl Batch {
    pub fn data(&self) -> &[u8] {
        // SAFETY: `put` has written the first `len` bytes.
        unsafe { core::slice::from_raw_parts(self.data.as_ptr().cast(), self.len) }
    }

    /// Whether `n` bytes more fit in.
    #[inline(always)]
    pub fn has_room(&self, n: usize) -> bool {
        ROOM - self.len >= n
    }

    /// Appends an event, `dt` ticks after the last one. There is room for it.
    #[inline(always)]
    pub fn put<const N: usize>(&mut self, event: u8, dt: u64, numbers: [u64; N]) {
        debug_assert!(self.has_room(1 + (1 + N) * MOST_NUMBER));
        // SAFETY: a byte and `1 + N` numbers, for which there is room.
        unsafe {
            let begin = self.data.as_mut_ptr().cast::<u8>().add(self.len);
            begin.write(event);
            let mut at = put_number(begin.add(1), dt);
            for n in numbers {
                at = put_number(at, n);
            }
            self.len += at.offset_from_unsigned(begin);
        }
    }
}

/// Batches that are free, and those that are full and wait to be written.
struct Pool {
    free: Vec<Box<Batch>>,
    /// In the order in which the streams have filled them.
    full: Vec<Box<Batch>>,
}

static POOL: Locked<Pool> = Locked::new(Pool { free: Vec::new(), full: Vec::new() });

/// Takes or makes an empty batch. `None`: there is no memory.
pub fn take(generation: u32, thread: u64, time: u64) -> Option<Box<Batch>> {
    let batch = POOL.with(|pool| pool.free.pop()).or_else(make);
    batch.map(|mut batch| {
        (batch.generation, batch.thread, batch.time, batch.len) = (generation, thread, time, 0);
        batch
    })
}

fn make() -> Option<Box<Batch>> {
    let batch = heap::boxed_uninit::<Batch>()?;
    // SAFETY: all bytes of the data may hold anything; `take` writes the other fields.
    Some(unsafe { batch.assume_init() })
}

/// Queues a batch to be written. False: there is no memory, and the batch is lost.
pub fn filled(batch: Box<Batch>) -> bool {
    let lost = POOL.with(|pool| {
        if !heap::reserve(&mut pool.full, 1) {
            return Some(batch);
        }
        pool.full.push(batch);
        None
    });
    let is_kept = lost.is_none();
    lost.into_iter().for_each(free);
    is_kept
}

/// Takes all batches that wait to be written, in the order in which they were filled.
pub fn take_full() -> Vec<Box<Batch>> {
    POOL.with(|pool| core::mem::take(&mut pool.full))
}

/// The most batches that are kept for streams to come: about what four M's fill between two looks of
/// the tracer's thread. Few, so that the next batch of a stream is in a cache: fresh memory costs
/// more than the events in it.
const KEPT: usize = 64;

/// Gives a batch back.
pub fn free(batch: Box<Batch>) {
    let surplus = POOL.with(|pool| {
        if pool.free.len() >= KEPT || !heap::reserve(&mut pool.free, 1) {
            return Some(batch);
        }
        pool.free.push(batch);
        None
    });
    drop(surplus);
}

/// Frees the memory of the batches that wait for streams, after the end of a session.
pub fn drop_free() {
    let free = POOL.with(|pool| core::mem::take(&mut pool.free));
    drop(free);
}

/// In the child of a fork: forgets the batches, which another thread may have been moving.
///
/// # Safety
/// The caller is the child's only thread.
pub unsafe fn forked() {
    // SAFETY: no other thread is there; the value is replaced without a look at it.
    unsafe { POOL.reset() };
    POOL.with(|pool| {
        core::mem::forget(core::mem::replace(pool, Pool { free: Vec::new(), full: Vec::new() }));
    });
}
