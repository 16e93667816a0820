//! Descriptors of goroutines that outlive their runtime, because a reference to one is left.

use crate::os::locked::Locked;
use crate::os::mem;
use crate::sched::prim::pool::{self, CHUNK};
use crate::sched::types::g::{G, GRef};
use core::sync::atomic::Ordering;

/// Chunks of descriptors that outlive their runtime, because there is a
/// reference to a descriptor in each.
static ORPHANS: Locked<Vec<usize>> = Locked::new(Vec::new());

/// Chunks of a runtime that ends.
pub fn add(chunks: Vec<usize>) {
    ORPHANS.with(|all| all.extend(chunks));
}

/// Around a fork: the child must not find the list locked.
pub fn lock() {
    ORPHANS.lock();
}

/// See [`lock`].
///
/// # Safety
/// The calling thread holds the lock.
pub unsafe fn unlock() {
    // SAFETY: as the caller says.
    unsafe { ORPHANS.unlock() };
}

/// Gives back the last reference to a descriptor whose runtime has ended. If no other descriptor of its chunk has a
/// reference, the chunk is unmapped. In the child of a fork the runtime may be the parent's, whose chunks stay.
pub fn orphan_released(g: GRef) {
    let chunk = g.as_ptr() as usize & !(CHUNK - 1);
    ORPHANS.with(|all| {
        // With the lock held, because another thread that gives back a reference may unmap the chunk.
        g.refs.store(0, Ordering::Release);
        // SAFETY: the chunk is cut into descriptors and still mapped.
        let used =
            pool::cut::<G>(chunk).any(|g| unsafe { g.as_ref() }.refs.load(Ordering::Acquire) > 0);
        if !used && let Some(at) = all.iter().position(|&c| c == chunk) {
            all.swap_remove(at);
            // SAFETY: a pool reserved it; no descriptor in it has a reference, and it is in no
            // list any more.
            unsafe { mem::release(chunk, CHUNK) };
        }
    });
}
