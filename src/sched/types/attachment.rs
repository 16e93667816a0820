//! The record that an attached thread has beside its M. `lifecycle::attach` has the protocol.

use crate::os::{self, heap, mem, thread};
use core::cell::Cell;
use core::mem::offset_of;

/// Bytes of address space for g0's stack: a thread's default, because `gs_blocking` calls its
/// function there. Memory is used only as it is touched.
pub const G0_STACK: usize = 8 << 20;

/// The record that an attached thread has beside its M.
pub struct Attachment {
    /// The lowest byte of g0's stack, whose lowest page is a guard.
    pub stack: usize,
    /// The saved context of the thread's own stack, before the goroutine begins and after it has
    /// ended.
    pub native: Cell<usize>,
    /// The error because of which there is no goroutine; 0: there is a goroutine.
    pub error: Cell<i32>,
    /// The goroutine's flags, as the caller has chosen them.
    pub chosen: u32,
    /// The lowest address and the size of the thread's own stack.
    bounds: (usize, usize),
}

impl Attachment {
    /// Offsets in bytes of the lowest address and of the size of the thread's own stack, for
    /// debuggers.
    pub const BOUNDS: (usize, usize) =
        (offset_of!(Attachment, bounds.0), offset_of!(Attachment, bounds.1));

    /// The lowest address and the size of the stack on which the goroutine runs.
    pub fn bounds(&self) -> (usize, usize) {
        self.bounds
    }

    pub fn new(chosen: u32) -> Option<Box<Attachment>> {
        let stack = mem::reserve(G0_STACK, os::PAGE)?;
        // SAFETY: the lowest page of the new range, which nothing uses.
        let attachment = unsafe { mem::protect_none(stack, os::PAGE) }
            .then(|| Attachment {
                stack,
                native: Cell::new(0),
                error: Cell::new(0),
                chosen,
                bounds: thread::stack_bounds(),
            })
            .and_then(heap::boxed);
        if attachment.is_none() {
            // SAFETY: reserved above, and nothing uses it.
            unsafe { mem::release(stack, G0_STACK) };
        }
        attachment
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // SAFETY: g0 has left the stack for ever, or has never run.
        unsafe { mem::release(self.stack, G0_STACK) };
    }
}
