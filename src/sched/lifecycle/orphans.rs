//! Descriptors of goroutines that outlive their runtime, because a reference to one is left.

use crate::os::locked::Locked;
use crate::os::mem;
use crate::sched::prim::pool::{self, CHUNK};
use crate::sched::types::g::{G, GRef};
use core::sync::atomic::Ordering;

/// Chunks of descriptors that outlive their runtime: each has a descriptor with a reference.
static ORPHANS: Locked<Vec<usize>> = Locked::new(Vec::new());

/// Adds the chunks of a runtime that ends.
pub fn add(chunks: Vec<usize>) {
    ORPHANS.with(|all| all.extend(chunks));
}

/// Locks the list around a fork, so that the child doesn't find it locked.
pub fn lock() {
    ORPHANS.lock();
}

/// Unlocks the list after [`lock`].
///
/// # Safety
/// The calling thread holds the lock.
pub unsafe fn unlock() {
    // SAFETY: as the caller says.
    unsafe { ORPHANS.unlock() };
}

/// Releases the last reference to a descriptor whose runtime has ended. If no descriptor of its
/// chunk has a reference then, unmaps the chunk. In the child of a fork the runtime may be the
/// parent's, whose chunks stay.
pub fn orphan_released(g: GRef) {
    let chunk = g.as_ptr() as usize & !(CHUNK - 1);
    ORPHANS.with(|all| {
        // With the lock held, because another thread that gives back a reference may unmap the
        // chunk.
        g.refs.store(0, Ordering::Release);
        // SAFETY: the chunk is cut into descriptors and still mapped.
        let used =
            pool::cut::<G>(chunk).any(|g| unsafe { g.as_ref() }.refs.load(Ordering::Acquire) > 0);
        if !used && let Some(at) = all.iter().position(|&c| c == chunk) {
            all.swap_remove(at);
            // SAFETY: a pool reserved the chunk; no descriptor in it has a reference, and no list
            // has it any more.
            unsafe { mem::release(chunk, CHUNK) };
        }
    });
}
