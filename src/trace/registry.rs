//! All streams, and the cut that ends a generation in all of them at one moment.

use super::clock;
use super::format::NO_THREAD;
use super::model::{self, GoWord, Stream};
use crate::os::heap;
use crate::os::locked::Locked;
use core::sync::atomic::{AtomicU8, Ordering};

/// Whether the scheduler is to tell what it does, and to what: bits [`RECORDED`] and [`PROBED`]. Hot
/// paths don't read this: see README.md, "Off".
static IS_ON: AtomicU8 = AtomicU8::new(0);

/// A bit of [`IS_ON`]: events are recorded.
const RECORDED: u8 = 1;
/// A bit of [`IS_ON`]: a tool is attached to a probe.
const PROBED: u8 = 2;

/// Whether events are traced: recorded, or shown to a tool.
#[inline(always)]
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed) != 0
}

/// Whether events are recorded.
#[inline]
pub fn records() -> bool {
    IS_ON.load(Ordering::Relaxed) & RECORDED != 0
}

/// Whether a tool is attached to a probe.
#[inline]
pub fn has_probes() -> bool {
    IS_ON.load(Ordering::Relaxed) & PROBED != 0
}

/// Changes [`has_probes`]. The world is stopped, so each M sees the change when it gets its P anew.
pub fn set_probes(on: bool) {
    set(PROBED, on);
}

fn set(bit: u8, on: bool) {
    match on {
        true => IS_ON.fetch_or(bit, Ordering::SeqCst),
        false => IS_ON.fetch_and(!bit, Ordering::SeqCst),
    };
}

/// The streams; none is ever freed, because other threads may hold a pointer.
struct Streams {
    all: Vec<&'static Stream>,
    /// Streams whose M's threads have left.
    free: Vec<&'static Stream>,
    /// The present generation, and the first of the session; 0: there is no trace.
    generation: u32,
    first: u32,
}

static STREAMS: Locked<Streams> =
    Locked::new(Streams { all: Vec::new(), free: Vec::new(), generation: 0, first: 0 });

/// Stands for all threads that are no M's: no thread has this number. Not [`NO_THREAD`], the
/// lister's: readers take the events of one number in their order, and an event of `OUTSIDE` may
/// need what the lister says behind it.
const OTHERS: u64 = u32::MAX as u64;

/// The stream of threads that are no M's.
static OUTSIDE: Stream = Stream::without_m(OTHERS);
/// The stream of the lister.
pub static LISTER: Stream = Stream::without_m(NO_THREAD);

/// The stream of threads that are no M's.
pub fn outside() -> &'static Stream {
    &OUTSIDE
}

/// A stream for an M's thread. `None`: there is no memory.
pub fn stream_for(thread: u64) -> Option<&'static Stream> {
    let stream = STREAMS.with(|streams| {
        if let Some(free) = streams.free.pop() {
            return Some(free);
        }
        if !heap::reserve(&mut streams.all, 1)
            || !heap::reserve(&mut streams.free, streams.all.len() + 1)
        {
            return None;
        }
        let stream: &'static Stream = Box::leak(heap::boxed_to_keep(Stream::new())?);
        streams.all.push(stream);
        // No other thread knows the stream, and the lock of the list keeps cuts away.
        Stream::lock_all(core::iter::once(stream));
        // SAFETY: locked; the cut of a single stream that has written nothing.
        unsafe {
            stream.begin_generation(streams.generation, streams.first, clock::now());
            stream.unlock();
        }
        Some(stream)
    })?;
    stream.belongs_to(thread);
    Some(stream)
}

/// Takes back the stream of a thread that leaves.
pub fn retire(stream: &'static Stream) {
    stream.retire();
    STREAMS.with(|streams| streams.free.push(stream));
}

/// Takes a goroutine away from the stream that has it, on whose M it no longer runs.
pub fn take_from_streams(word: *const GoWord) {
    STREAMS.with(|streams| streams.all.iter().for_each(|stream| stream.gives_up(word)));
}

/// Ends the generation of all streams, and begins this one; 0: the trace ends. Every event is before
/// the cut or after it: the cut holds all locks.
pub fn cut(generation: u32, first: u32) {
    STREAMS.with(|streams| {
        let all = || streams.all.iter().copied().chain([&OUTSIDE, &LISTER]);
        Stream::lock_all(all());
        let now = clock::now();
        let is_new = streams.generation == 0 || generation == 0;
        // SAFETY: all streams are locked.
        unsafe {
            if is_new {
                model::forget_procs();
            }
            all().for_each(|stream| stream.begin_generation(generation, first, now));
        }
        set(RECORDED, generation != 0);
        // SAFETY: locked above.
        all().for_each(|stream| unsafe { stream.unlock() });
        (streams.generation, streams.first) = (generation, first);
    });
}

/// In the child of a fork: there is no trace, and the streams are those of M's that are gone.
///
/// # Safety
/// The caller is the child's only thread.
pub unsafe fn forked() {
    IS_ON.store(0, Ordering::Relaxed);
    // SAFETY: no other thread is there. The lists may be half changed, and are replaced without a
    // look at them; no M of the child has a stream.
    unsafe {
        STREAMS.reset();
        STREAMS.with(|streams| {
            let none = Streams { all: Vec::new(), free: Vec::new(), generation: 0, first: 0 };
            core::mem::forget(core::mem::replace(streams, none));
        });
        OUTSIDE.forked();
        LISTER.forked();
        model::forget_procs();
    }
}
