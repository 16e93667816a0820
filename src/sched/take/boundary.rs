//! The boundary between the user's code and the library, for code that a goroutine runs.
//!
//! While an M runs the user's code it is *outside*: it doesn't use its P, and another thread may take the P away
//! ([`super::preempt`]). When it enters the library the M says that it is inside. Then it checks whether it still has
//! its P, and whether it is asked to give way. Both are plain operations; the thread that takes the P makes up for that
//! with `membarrier`.

use super::back_from_call;
use crate::sched::run::{order, requests, yielding};
use crate::sched::types::m::{self, INSIDE, MRef, OUTSIDE};
use core::sync::atomic::{Ordering, compiler_fence};

/// While this value lives the library runs on behalf of the caller. On a plain thread it does nothing.
pub struct Entered {
    /// Where the caller was, inside or outside. The goroutine may be on another M when it goes back there.
    from: u8,
    m: Option<MRef>,
}

impl Entered {
    /// Begins every function of the C API that does more than read an atomic. Gives way if asked to, and may come back
    /// on another M.
    #[inline(always)]
    pub fn new() -> Entered {
        match m::current() {
            Some(m) => {
                let (from, m) = come_in(m);
                Entered { from, m: Some(m) }
            }
            None => Entered { from: INSIDE, m: None },
        }
    }

    /// [`Entered::new`] for a function that begins a call. `Err`: the call has begun, because the goroutine has been
    /// without a P since its last call, and needs none for this.
    #[inline(always)]
    pub fn for_call() -> Result<Entered, Entered> {
        let Some(m) = m::current() else { return Ok(Entered { from: INSIDE, m: None }) };
        let from = go_inside(m);
        if !must_answer(m, from) {
            return Ok(Entered { from, m: Some(m) });
        }
        match answer_with_call(m) {
            Some(m) => Ok(Entered { from, m: Some(m) }),
            None => Err(Entered { from, m: Some(m) }),
        }
    }

    /// As [`Entered::new`], with the M. `None` if the thread has no M, or if the M is asked for something: then the call
    /// has not begun.
    #[inline(always)]
    pub fn unasked() -> Option<(Entered, MRef)> {
        let m = m::current()?;
        let from = go_inside(m);
        if must_answer(m, from) {
            m.outside.store(from, Ordering::Release);
            return None;
        }
        Some((Entered { from, m: Some(m) }, m))
    }

    /// For a function that never switches but takes a lock for a moment: meanwhile the goroutine isn't stopped in the
    /// signal handler, and keeps its P if it has one. The goroutine doesn't give way, and goes on without a P if it has
    /// lost it, so the function must not need a P.
    #[inline(always)]
    pub fn without_giving_way() -> Entered {
        let m = m::current();
        let from = m.map_or(INSIDE, go_inside);
        Entered { from, m }
    }

    /// Leaves the rest of the call to another function, which begins with [`Entered::again`].
    #[inline(always)]
    pub fn continued(self) -> u8 {
        let from = self.from;
        core::mem::forget(self);
        from
    }

    /// Begins the rest of a call that [`Entered::continued`] has left. There was no switch in between.
    #[inline(always)]
    pub fn again(from: u8, m: Option<MRef>) -> Entered {
        Entered { from, m }
    }

    /// Whether the user's code has made the call, and not a function that the library has called with a P of its own.
    #[inline(always)]
    pub fn is_from_user(&self) -> bool {
        self.from == OUTSIDE
    }

    /// The M on which the caller runs, until its next switch.
    #[inline(always)]
    pub fn m(&self) -> Option<MRef> {
        self.m
    }

    /// Does what dropping does, without a look-up of the M: `m` is the M on which the caller runs now.
    #[inline(always)]
    pub fn back_on(self, m: Option<MRef>) {
        if let Some(m) = m {
            m.outside.store(self.from, Ordering::Release);
        }
        core::mem::forget(self);
    }
}

/// What a function that may switch returns to `arch::call_resumable`, which expects these two words in registers.
#[repr(C)]
pub struct Returning {
    result: isize,
    /// [`M::returns_to`](crate::sched::types::m::M::returns_to), or 0.
    expected: usize,
}

impl Returning {
    /// The rest of a call that returns to `place` in the user's code after `wait`, which may
    /// switch.
    #[inline(always)]
    pub fn to(place: usize, entered: Entered, wait: impl FnOnce() -> i32) -> Returning {
        if let Some(m) = entered.m {
            m.returns_to.set(place);
        }
        let result = wait() as isize;
        let m = m::current();
        let expected = m.map_or(0, |m| m.returns_to.get());
        entered.back_on(m);
        Returning { result, expected }
    }
}

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {
        // None in the child of a fork, where the thread is a plain thread.
        if let Some(m) = m::current() {
            // Release: pairs with the Acquire in `preempt::take_locked`.
            m.outside.store(self.from, Ordering::Release);
        }
    }
}

/// The M uses its P from here on, without a check whether it still has it. Returns where the caller was.
#[inline(always)]
pub fn go_inside(m: MRef) -> u8 {
    let from = m.outside.load(Ordering::Relaxed);
    m.outside.store(INSIDE, Ordering::Relaxed);
    // Pairs with the `membarrier` in `preempt::take_locked`.
    compiler_fence(Ordering::SeqCst);
    from
}

/// The library runs from here on. Returns where the caller was, inside or outside, and the M on which the caller is
/// now.
#[inline(always)]
pub fn come_in(m: MRef) -> (u8, MRef) {
    let from = go_inside(m);
    if must_answer(m, from) { (from, answer(m)) } else { (from, m) }
}

/// Whether the M, which has just come inside from `from`, is asked for something.
#[inline(always)]
fn must_answer(m: MRef, from: u8) -> bool {
    // A call from the middle of another call (a commit function's) must not give way: it may not be on its own stack.
    from == OUTSIDE && (requests::any_p_is_asked() | !m.hold.is_held())
}

/// From here on the user's code runs.
#[inline(always)]
pub fn leave(m: MRef) {
    // Release: as in `Entered::drop`.
    m.outside.store(OUTSIDE, Ordering::Release);
}

/// Calls a function of the user in the middle of the library's.
pub fn outside<R>(f: impl FnOnce() -> R) -> R {
    if let Some(m) = m::current() {
        leave(m);
    }
    let result = f();
    if let Some(m) = m::current() {
        come_in(m);
    }
    result
}

#[cold]
#[inline(never)]
fn answer(m: MRef) -> MRef {
    give_way_if_asked(back_from_call::ensure_p(m));
    // SAFETY: the M came from outside, so a goroutine runs this.
    unsafe { m::must_current() }
}

/// [`answer`] for a function that begins a call. `None`: the call has begun.
#[cold]
#[inline(never)]
fn answer_with_call(m: MRef) -> Option<MRef> {
    if back_from_call::begin_call(m) { None } else { Some(answer(m)) }
}

/// Lets other goroutines go first if asked to; may come back on another M.
pub fn give_way_if_asked(m: MRef) {
    let wanted = !m.p.get().is_null() && order::is_asked(m.p());
    if wanted && m.g().preempt_off.load(Ordering::Relaxed) == 0 {
        yielding::give_way();
    }
}
