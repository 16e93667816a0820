//! The boundary between the user's code and the library, for code that a goroutine runs.
//!
//! An M is *outside* while it runs the user's code: the M doesn't use its P, and another thread may
//! take the P ([`super::preempt`]). At each entry into the library the M stores that it is inside,
//! and then checks whether it still has its P and whether it is asked to give way. These are plain
//! operations; the thread that takes the P makes up for that with `membarrier`.

use super::back_from_call;
use crate::sched::run::{order, ordered, requests, yielding};
use crate::sched::types::course;
use crate::sched::types::m::{self, INSIDE, MRef, OUTSIDE};
use core::sync::atomic::{Ordering, compiler_fence};

/// The caller's M is inside the library until this value is dropped. Does nothing on a plain
/// thread.
pub struct Entered {
    /// [`INSIDE`] or [`OUTSIDE`]: the caller's place, to which dropping returns, perhaps on another
    /// M.
    from: u8,
    m: Option<MRef>,
}

impl Entered {
    /// Begins every function of the C API that does more than read an atomic. Gives way if asked
    /// to, and may come back on another M.
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

    /// [`Entered::new`] for a select, which tries its cases in a random order.
    #[inline(always)]
    pub fn for_select() -> Entered {
        match m::current() {
            Some(m) => {
                let from = go_inside(m);
                let m = if must_answer(m, from) { answer_select(m) } else { m };
                Entered { from, m: Some(m) }
            }
            None => Entered { from: INSIDE, m: None },
        }
    }

    /// [`Entered::new`] for a function that begins a call. `Err`: the call has begun here, because
    /// the goroutine has had no P since its last call, and needs none for this call.
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

    /// [`Entered::new`] that never gives way; also returns the M. `None`, with the caller still
    /// outside: the thread has no M, or the M is asked for something.
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

    /// [`Entered::new`] for a function that holds a lock for a moment, never switches and needs no
    /// P. Meanwhile the signal handler doesn't stop the goroutine, and no thread takes its P. A
    /// goroutine that has lost its P goes on without a P.
    #[inline(always)]
    pub fn without_giving_way() -> Entered {
        let m = m::current();
        let from = m.map_or(INSIDE, go_inside);
        Entered { from, m }
    }

    /// Stays inside, for another function that makes the rest of the call and begins with
    /// [`Entered::again`].
    #[inline(always)]
    pub fn continued(self) -> u8 {
        let from = self.from;
        core::mem::forget(self);
        from
    }

    /// Takes up a call that [`Entered::continued`] has left. No switch may come in between.
    #[inline(always)]
    pub fn again(from: u8, m: Option<MRef>) -> Entered {
        Entered { from, m }
    }

    /// Notes that the call returns to `place` in the user's code.
    #[inline(always)]
    pub fn returns_to(&self, place: usize) {
        if let Some(m) = self.m {
            m.returns_to.set(place);
        }
    }

    /// Whether the user's code made the call, and not a function that the library calls while
    /// inside.
    #[inline(always)]
    pub fn is_from_user(&self) -> bool {
        self.from == OUTSIDE
    }

    /// The M on which the caller runs, until its next switch.
    #[inline(always)]
    pub fn m(&self) -> Option<MRef> {
        self.m
    }

    /// Drops this without a look-up of the M: `m` is the M on which the caller runs now.
    #[inline(always)]
    pub fn back_on(self, m: Option<MRef>) {
        if let Some(m) = m {
            m.outside.store(self.from, Ordering::Release);
        }
        core::mem::forget(self);
    }
}

/// The result of a function that may switch, for `arch::call_resumable`: two words in registers.
#[repr(C)]
pub struct Returning {
    result: isize,
    /// [`M::returns_to`](crate::sched::types::m::M::returns_to), or 0.
    expected: usize,
}

impl Returning {
    /// The rest of a call that returns to `place` in the user's code after `wait`, which may switch.
    #[inline(always)]
    pub fn to(place: usize, entered: Entered, wait: impl FnOnce() -> i32) -> Returning {
        entered.returns_to(place);
        let result = wait();
        Returning::with(result, entered)
    }

    /// The end of a call that began with [`Entered::returns_to`].
    #[inline(always)]
    pub fn with(result: i32, entered: Entered) -> Returning {
        let m = m::current();
        let expected = m.map_or(0, |m| m.returns_to.get());
        entered.back_on(m);
        Returning { result: result as isize, expected }
    }
}

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {
        // `None`: the child of a fork, where the thread is a plain thread.
        if let Some(m) = m::current() {
            // Release: pairs with the Acquire in `preempt::take_locked`.
            m.outside.store(self.from, Ordering::Release);
        }
    }
}

/// Marks the M as inside, without a check whether it still has its P. Returns where the M was.
#[inline(always)]
pub fn go_inside(m: MRef) -> u8 {
    let from = m.outside.load(Ordering::Relaxed);
    m.outside.store(INSIDE, Ordering::Relaxed);
    // Pairs with the `membarrier` in `preempt::take_locked`.
    compiler_fence(Ordering::SeqCst);
    from
}

/// Goes inside and answers requests. Returns where the caller was, and the M on which the caller is
/// now.
#[inline(always)]
pub fn come_in(m: MRef) -> (u8, MRef) {
    let from = go_inside(m);
    if must_answer(m, from) { (from, answer(m)) } else { (from, m) }
}

/// Whether an M that came inside from `from` may have a request, or may have lost its P.
#[inline(always)]
fn must_answer(m: MRef, from: u8) -> bool {
    // A call within a call (a commit function's) must not give way: it may not be on its
    // goroutine's stack.
    from == OUTSIDE && (requests::any_p_is_asked() | !m.hold.is_held())
}

/// Marks the M as outside: the user's code runs next.
#[inline(always)]
pub fn leave(m: MRef) {
    // Release: as in `Entered::drop`.
    m.outside.store(OUTSIDE, Ordering::Release);
}

/// Calls a function of the user's from inside the library.
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
    give_way_if_asked(ordered::step(back_from_call::ensure_p(m)));
    // SAFETY: the M came from outside, so a goroutine runs this.
    unsafe { m::must_current() }
}

/// [`answer`] for a select: in an ordered run a draw decides the order of its cases.
#[cold]
#[inline(never)]
fn answer_select(m: MRef) -> MRef {
    let m = answer(m);
    if m.is_ordered() {
        let what = "a select tries its cases in another order";
        m.seed_random(course::fault(what, OTHER_ORDER, u32::MAX));
    }
    m
}

/// In this number of selects of an ordered run out of 1000, the cases are not tried in the plain order.
const OTHER_ORDER: u32 = 500;

/// [`answer`] for a function that begins a call. `None`: the call has begun, without a P.
#[cold]
#[inline(never)]
fn answer_with_call(m: MRef) -> Option<MRef> {
    if back_from_call::begin_call(m) { None } else { Some(answer(m)) }
}

/// Lets other goroutines go first if the P is asked to; may return on another M.
pub fn give_way_if_asked(m: MRef) {
    let wanted = !m.p.get().is_null() && order::is_asked(m.p());
    if wanted && m.g().preempt_off.load(Ordering::Relaxed) == 0 {
        yielding::give_way();
    }
}
