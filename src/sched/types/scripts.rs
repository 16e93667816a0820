//! Interpreters' frames: the functions that give them for goroutines of one entry function.

use super::g::{G, GRef, flags};
use super::points::ScriptFrame;
use super::task::GoFn;
use crate::os::locked::Locked;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A function that writes the frames of a goroutine. `gs_frames_hook`.
pub type GivesFrames =
    unsafe extern "C" fn(ctx: *mut c_void, g: GRef, frames: *mut ScriptFrame, room: usize) -> usize;

/// A function that gives frames, and for which goroutines it does.
struct Source {
    /// The address of the goroutines' function; 0: attached goroutines.
    entry: AtomicUsize,
    /// A `GivesFrames`.
    frames: AtomicPtr<()>,
    ctx: AtomicPtr<c_void>,
}

/// How many functions that give frames a process can have.
const MOST: usize = 16;

static SOURCES: [Source; MOST] = [const {
    Source {
        entry: AtomicUsize::new(0),
        frames: AtomicPtr::new(ptr::null_mut()),
        ctx: AtomicPtr::new(ptr::null_mut()),
    }
}; MOST];
/// How many of them are set. They stay for the life of the process.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static ADDING: Locked<()> = Locked::new(());

/// Adds a function that gives the frames of the goroutines with this function; `None`: of attached
/// goroutines. False: there is no room.
pub fn add(entry: Option<GoFn>, frames: GivesFrames, ctx: *mut c_void) -> bool {
    let entry = entry.map_or(0, |f| f as usize);
    let frames = frames as *mut ();
    ADDING.with(|()| {
        let count = COUNT.load(Ordering::Relaxed);
        let is_same = |source: &Source| {
            source.entry.load(Ordering::Relaxed) == entry
                && source.frames.load(Ordering::Relaxed) == frames
                && source.ctx.load(Ordering::Relaxed) == ctx
        };
        if SOURCES[..count].iter().any(is_same) {
            return true;
        }
        let Some(source) = SOURCES.get(count) else { return false };
        source.entry.store(entry, Ordering::Relaxed);
        source.frames.store(frames, Ordering::Relaxed);
        source.ctx.store(ctx, Ordering::Relaxed);
        // Release: pairs with the Acquire in `of`.
        COUNT.store(count + 1, Ordering::Release);
        true
    })
}

/// The sources for a goroutine.
#[inline(always)]
fn of(g: &G) -> impl Iterator<Item = &'static Source> {
    // Acquire: pairs with the Release in `add`.
    let count = COUNT.load(Ordering::Acquire);
    let entry = match g.flags.seen() & flags::ATTACHED {
        0 => g.f.get().map_or(0, |f| f as usize),
        _ => 0,
    };
    SOURCES[..count].iter().filter(move |source| source.entry.load(Ordering::Relaxed) == entry)
}

/// Whether there are such functions.
pub fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Whether a function gives frames for the goroutine.
pub fn has(g: &G) -> bool {
    of(g).next().is_some()
}

/// The frames of the goroutine, the innermost first, by the first function that gives any; as many
/// as there is room for. The strings are valid until the goroutine goes on or the function is called
/// again.
///
/// The goroutine is the caller or what the caller is about to start, or the world is stopped.
/// Allocates nothing, and takes no lock.
pub fn frames(g: GRef, room: &mut [ScriptFrame]) -> &[ScriptFrame] {
    let mut count = 0;
    for source in of(&g) {
        // SAFETY: `add` has stored a function.
        let frames: GivesFrames =
            unsafe { core::mem::transmute(source.frames.load(Ordering::Relaxed)) };
        let ctx = source.ctx.load(Ordering::Relaxed);
        // SAFETY: the function was added for this argument; it writes as many frames as there is
        // room for.
        count = unsafe { frames(ctx, g, room.as_mut_ptr(), room.len()) };
        if count != 0 {
            break;
        }
    }
    &room[..count.min(room.len())]
}

/// For a fork: the child must not find the lock locked.
pub fn lock() {
    ADDING.lock();
}

/// Undoes [`lock`].
///
/// # Safety
/// The calling thread holds the lock.
pub unsafe fn unlock() {
    // SAFETY: the caller holds the lock.
    unsafe { ADDING.unlock() };
}
