//! Stacks that an M has traced before: recognized by their return addresses, without a walk.
//!
//! A goroutine mostly leaves its M from few places. So an M remembers where on the stack the return
//! addresses were, as distances from the stack's upper end, which goroutines with stacks of their own
//! share. A stack of the same depth with the same return addresses in these places has the same
//! frames: the rules of the CFI depend on nothing else.

use super::stacks::{self, ForeignFrame};
use crate::arch;
use crate::backtrace::unwind::{self, Registers};
use crate::os::heap;
use core::cell::UnsafeCell;

/// An M remembers at most `SETS * WAYS` stacks, and compares `WAYS` of them with a stack.
const SETS: usize = 128;
const WAYS: usize = 4;

/// A stack without an interpreter's frames.
struct Shape {
    /// Bytes between the stack pointer and the upper end.
    depth: usize,
    pc: usize,
    /// Return addresses, and the distances of their places from the upper end, in words.
    frames: Box<[(u32, usize)]>,
    id: u32,
}

impl Shape {
    /// # Safety
    /// The stack below `top` is mapped from `top - self.depth` on.
    unsafe fn is_that_of(&self, from: &Registers, top: usize) -> bool {
        self.pc == from.pc
            && self.depth == top.wrapping_sub(from.sp)
            && self.frames.iter().all(|&(distance, pc)| {
                let place = top - distance as usize * size_of::<usize>();
                // SAFETY: the place was in a stack of the same depth, above its stack pointer.
                unsafe { (place as *const usize).read() == pc }
            })
    }
}

/// The stacks that one M has traced. Only the M's thread uses it.
pub struct Shapes(UnsafeCell<Option<Box<Known>>>);

struct Known {
    shapes: [[Option<Box<Shape>>; WAYS]; SETS],
    /// The way that is replaced next.
    next: usize,
}

// SAFETY: only the M's thread uses it, and a stream passes from one thread to another by a lock.
unsafe impl Sync for Shapes {}

impl Shapes {
    pub const fn new() -> Shapes {
        Shapes(UnsafeCell::new(None))
    }

    /// The id of the stack from these registers outwards; 0: none. `bounds`: the stack's lowest
    /// address and size. `foreign`: the interpreter's frames.
    ///
    /// # Safety
    /// The caller is the M's thread; the memory from `from.sp` to the end of the stack is readable.
    #[inline(always)]
    pub unsafe fn id_of(
        &self,
        from: Registers,
        bounds: (usize, usize),
        foreign: &[ForeignFrame],
    ) -> u32 {
        let top = bounds.0 + bounds.1;
        if from.sp < bounds.0 || from.sp >= top {
            return 0;
        }
        if foreign.is_empty()
            // SAFETY: only this thread uses it.
            && let Some(known) = unsafe { &*self.0.get() }
        {
            // SAFETY: as the caller says.
            let is_that = |shape: &&Shape| unsafe { shape.is_that_of(&from, top) };
            let ways = &known.shapes[set_of(&from, top)];
            if let Some(shape) = ways.iter().flatten().map(|shape| &**shape).find(is_that) {
                return stacks::mark(shape.id);
            }
        }
        // SAFETY: as the caller says.
        unsafe { self.walk(from, bounds, foreign) }
    }

    /// [`Shapes::id_of`] for a stack that the M has not traced before.
    ///
    /// # Safety
    /// As for [`Shapes::id_of`].
    #[cold]
    #[inline(never)]
    unsafe fn walk(
        &self,
        from: Registers,
        bounds: (usize, usize),
        foreign: &[ForeignFrame],
    ) -> u32 {
        let top = bounds.0 + bounds.1;
        let mut pcs = [0; unwind::MOST_FRAMES];
        let mut frames = Vec::new();
        let mut n = 0;
        // SAFETY: as the caller says.
        unsafe {
            unwind::walk(from, bounds, &mut |frame| {
                pcs[n] = frame.pc;
                n += 1;
                if frame.slot > arch::ReturnPlace::REGISTER && heap::reserve(&mut frames, 1) {
                    frames.push((((top - frame.slot) / size_of::<usize>()) as u32, frame.pc));
                }
                n < pcs.len()
            });
        }
        let id = stacks::add(foreign, &pcs[..n]);
        if foreign.is_empty() && id != 0 && frames.len() + 1 == n {
            // SAFETY: only this thread uses it.
            let known = unsafe { &mut *self.0.get() };
            if known.is_none() {
                let none = Known { shapes: [const { [const { None }; WAYS] }; SETS], next: 0 };
                *known = heap::boxed_to_keep(none);
            }
            let Some(known) = known else { return id };
            let depth = top - from.sp;
            let shape = Shape { depth, pc: from.pc, frames: frames.into_boxed_slice(), id };
            known.shapes[set_of(&from, top)][known.next % WAYS] = heap::boxed_to_keep(shape);
            known.next = known.next.wrapping_add(1);
        }
        id
    }
}

/// The set in which the stack is looked for.
fn set_of(from: &Registers, top: usize) -> usize {
    let hash = ((top - from.sp) / 16) ^ from.pc;
    hash.wrapping_mul(0x9e37_79b9) / 64 % SETS
}
