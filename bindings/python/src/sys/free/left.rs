//! Notes that goroutines leave Python, for the goroutine that looks for memory that waits for its
//! thread: see `settler`.

use super::state::Frames;
use crate::sem::Sem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A goroutine has left Python since the last look.
static HAS_LEFT: AtomicBool = AtomicBool::new(false);

/// Has a unit for the goroutine that looks once `HAS_LEFT` is set.
static WAKE: Sem = Sem::new();

/// The frames of the goroutine that looks, which doesn't wake itself; null: it hasn't begun.
static LOOKER: AtomicPtr<Frames> = AtomicPtr::new(ptr::null_mut());

/// The goroutine with these frames has left Python.
#[inline(always)]
pub fn note(frames: *mut Frames) {
    if !HAS_LEFT.load(Ordering::Relaxed) {
        wake(frames);
    }
}

#[cold]
fn wake(frames: *mut Frames) {
    let looker = LOOKER.load(Ordering::Relaxed);
    if looker.is_null() || looker == frames || HAS_LEFT.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: outside of Python, so it may switch.
    unsafe { WAKE.release(1) };
}

/// The goroutine with these frames is the one that looks.
pub fn set_looker(frames: *mut Frames) {
    LOOKER.store(frames, Ordering::Relaxed);
}

/// Waits until a goroutine has left Python since `forget`. 0, or an error of the library.
///
/// # Safety
/// Outside of Python: it may switch.
pub unsafe fn wait(deadline: i64) -> i32 {
    // SAFETY: as the caller says.
    unsafe { WAKE.acquire(deadline) }
}

/// The goroutine that looks is about to look: what leaves Python from here on wakes it again.
pub fn forget() {
    HAS_LEFT.store(false, Ordering::Relaxed);
}

/// In the child of a fork: the goroutine that looked is the parent's.
pub fn forked() {
    WAKE.forked();
    set_looker(ptr::null_mut());
    forget();
}
