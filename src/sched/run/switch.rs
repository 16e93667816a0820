//! The switch from one goroutine to the next, or to g0.
//!
//! A goroutine that parks, yields or ends picks its successor from the queues of its own P and
//! switches to it directly. Everything else (stealing, going idle, handing a P to another thread,
//! stopping) happens on g0, the thread's own stack, in [`crate::sched::schedule::g0`].

use super::bound::may_run;
use super::order::next_direct;
use super::{probes, stacks, traced};
use crate::arch::{self, Place, sanitizer};
use crate::sched::ext::exceptions;
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::m::{Commit, M, MRef};
use crate::sched::types::p::{PRef, count};
use crate::sched::types::task::{Task, TaskKind};
use crate::trace;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering;

/// Leaves the running goroutine for the next goroutine, or for g0. The context that runs next calls
/// `commit(arg)`, after the registers are saved. Returns when the goroutine is resumed, maybe on
/// another thread: the M there.
///
/// # Safety
/// `commit` may be called with `arg` once the registers are saved.
#[inline(always)]
pub unsafe fn switch_away(m: MRef, commit: Commit, arg: usize) -> MRef {
    let mut here = Place::new();
    let state = ThreadState::take(m, &mut here);
    let next = successor(m);
    state.over_switch(Left { m, commit: Some(commit), arg }, next, &mut here)
}

/// [`switch_away`] on a P that is alone. No other M can run the goroutine before it is left, so the
/// commit is called before the switch.
#[inline(always)]
pub fn switch_away_alone(m: MRef, commit: impl FnOnce()) -> MRef {
    debug_assert!(m.p().alone.get());
    let mut here = Place::new();
    let state = ThreadState::take(m, &mut here);
    let next = successor(m);
    commit();
    state.over_switch(Left::nothing(m), next, &mut here)
}

/// Takes the task that runs next. `None` if g0 must choose it.
#[inline(always)]
pub fn successor(m: MRef) -> Option<Task> {
    // SAFETY: a goroutine that parks, yields or ends has had a P since it entered the library.
    if m.by_g0.get() != 0 { traced::successor(m) } else { next_direct(m, unsafe { m.must_p() }) }
}

/// Chooses the next task before the goroutine that has left is published; on g0, for an M with
/// hooks. The task waits in the stash. Returns its goroutine if that can be switched to as it is.
pub fn choose_early(m: MRef) -> Option<GRef> {
    if m.p.get().is_null() || !m.is_free() || m.is_attached() {
        return None;
    }
    let p = m.p();
    let task = match m.stash.take() {
        Some(task) => task,
        None => next_direct(m, p)?,
    };
    let Some(g) = direct(m, p, &task) else {
        m.stash.set(Some(task));
        return None;
    };
    g.set_status(Status::Runnable);
    m.stash.set(Some(Task::goroutine(g)));
    Some(g)
}

/// The state that the C library and the C++ runtime keep for each thread, which goes along with the
/// goroutine over a switch.
pub struct ThreadState {
    errno: i32,
}

impl ThreadState {
    /// Takes the state of the calling thread, and notes the rounding modes for the switch.
    #[inline(always)]
    pub fn take(m: MRef, here: &mut Place) -> ThreadState {
        here.note_modes();
        // SAFETY: the thread's own errno.
        ThreadState { errno: unsafe { *m.errno.get() } }
    }

    /// Leaves the running goroutine, and gives the state to the thread that resumes it. Returns the
    /// M there.
    #[inline(always)]
    pub fn over_switch(self, left: Left, next: Option<Task>, here: &mut Place) -> MRef {
        let m = match left.m.cxa.is_clean() {
            true => {
                // SAFETY: the M runs the goroutine that leaves.
                let g = unsafe { left.m.must_g() };
                // SAFETY: `switch_to` has just returned this `Left`, which is settled once, here.
                unsafe { switch_to(left, g, next, here, false).settle() }
            }
            false => switch_in_exception(left, next, here),
        };
        // SAFETY: the errno of the thread on which the goroutine runs now.
        unsafe { *m.errno.get() = self.errno };
        m
    }
}

/// Leaves a goroutine that has or may have exceptions; returns the M that resumes it.
#[cold]
#[inline(never)]
fn switch_in_exception(left: Left, next: Option<Task>, here: &mut Place) -> MRef {
    let m = left.m;
    exceptions::carry(m, |by_g0| {
        let g = m.g();
        let next = if by_g0 {
            m.stash.set(next);
            None
        } else {
            next
        };
        // SAFETY: `switch_to` has just returned this `Left`, which is settled once, here.
        unsafe { switch_to(left, g, next, here, false).settle() }
    })
}

/// The context that is left: its M, and the commit that the next context must call first.
pub struct Left {
    pub(super) m: MRef,
    pub(super) commit: Option<Commit>,
    pub arg: usize,
}

impl Left {
    /// A `Left` that gives the next context nothing to do.
    pub fn nothing(m: MRef) -> Left {
        Left { m, commit: None, arg: 0 }
    }

    pub fn into_words(self) -> arch::Words {
        let commit = self.commit.map_or(0, |f| f as usize);
        [self.m.as_ptr() as usize, commit, self.arg]
    }

    /// # Safety
    /// `words` were made by `into_words`, on this thread.
    #[inline(always)]
    pub unsafe fn from_words([m, commit, arg]: arch::Words) -> Left {
        // SAFETY: `into_words` made the words of an M, a `Commit` or 0, and an argument; a function
        // pointer that is 0 is `None`.
        unsafe {
            let commit = core::mem::transmute::<usize, Option<Commit>>(commit);
            Left { m: MRef::from_ptr(m as *const M), commit, arg }
        }
    }

    /// Leaves the running context for another. Returns, once a context switches back, the `Left` of
    /// that context.
    ///
    /// # Safety
    /// As for [`arch::switch`].
    #[inline(always)]
    pub unsafe fn switch(self, save: *mut usize, to: usize, here: &mut Place) -> Left {
        // SAFETY: `to` is at rest and `save` writable, as the caller says; every switch is made
        // here, so the words are another `Left`'s.
        unsafe { Left::from_words(arch::switch(save, to, self.into_words(), here)) }
    }

    /// Calls the commit of the goroutine that has just been left; returns the M.
    ///
    /// # Safety
    /// A switch has just given `self` to the caller: the context that made it has been left.
    #[inline(always)]
    pub unsafe fn settle(self) -> MRef {
        if let Some(commit) = self.commit {
            // SAFETY: the context that was left has said that `commit` may be called with `arg`
            // now.
            unsafe { commit(self.arg) };
        }
        self.m
    }
}

/// Leaves the running goroutine for g0: for work that needs the thread's own stack, or when the M
/// has no P to pick a successor from.
///
/// # Safety
/// The caller is a goroutine, which `m` runs; `commit` may be called with its address on g0.
#[inline(never)]
pub unsafe fn switch_to_g0(m: MRef, commit: Option<Commit>) {
    let mut here = Place::new();
    let state = ThreadState::take(m, &mut here);
    let g = m.g();
    if m.is_traced() {
        traced::leaves(m, g);
    }
    if m.p.get().is_null() {
        // The world may be stopped: until the goroutine's registers are saved a collector must not
        // see an old context. Release: pairs with the Acquire in `registers::at_rest`.
        g.context.store(0, Ordering::Release);
    }
    let left = Left { m, commit, arg: g.address() };
    state.over_switch(left, None, &mut here);
}

/// Leaves a goroutine that has ended for the next goroutine, or for g0.
///
/// # Safety
/// `m` runs `g`, the calling goroutine; `commit` may be called with the address of `g` once it is
/// left.
#[inline(always)]
pub unsafe fn leave_for(
    m: MRef,
    g: GRef,
    commit: Commit,
    next: Option<Task>,
    here: &mut Place,
) -> ! {
    let left = Left { m, commit: Some(commit), arg: g.address() };
    switch_to(left, g, next, here, true);
    unreachable!("a goroutine that has ended is not resumed");
}

/// [`leave_for`] for the goroutine of an attached thread. Saves the context that is left in
/// `*save`; it resumes when the thread is no M any more.
///
/// # Safety
/// As for `leave_for`; `save` stays until the switch is over.
pub unsafe fn leave_thread_for(
    m: MRef,
    g: GRef,
    commit: Commit,
    next: Option<Task>,
    save: *mut usize,
    here: &mut Place,
) {
    let left = Left { m, commit: Some(commit), arg: g.address() };
    let to = context_of(m, next);
    // SAFETY: `to` is at rest, and this M owns it; g0 resumes the saved context after everything
    // else, with words that are no `Left`.
    unsafe { arch::switch(save, to, left.into_words(), here) };
}

#[inline(always)]
pub fn switch_to(
    left: Left,
    g: GRef,
    next: Option<Task>,
    here: &mut Place,
    for_ever: bool,
) -> Left {
    let to = context_of(left.m, next);
    let away = Away::to(left.m, to, for_ever);
    // SAFETY: `to` is at rest, and this M owns it; `g` is resumed only after the commit, which the
    // next context calls after the switch, or by this P.
    let left = unsafe { left.switch(g.context.as_ptr(), to, here) };
    away.back();
    left
}

/// A sanitizer's state for a context that has switched away, if there is a sanitizer.
pub struct Away(*mut c_void);

impl Away {
    /// Announces the switch to the context at rest, which is g0's or that of `M::curg`.
    #[inline(always)]
    pub fn to(m: MRef, context: usize, for_ever: bool) -> Away {
        if context == m.g0_context.get() {
            m.fiber.switch_to()
        } else {
            // SAFETY: every context but g0's is that of `curg`.
            unsafe { m.must_g() }.fiber.switch_to()
        }
        if !sanitizer::is_on() {
            return Away(ptr::null_mut());
        }
        let bounds = if context == m.g0_context.get() {
            m.stack_bounds.get()
        } else {
            m.g().stack_of_running().bounds()
        };
        Away(sanitizer::leaving(bounds, for_ever))
    }

    /// Announces that the switch back is over.
    #[inline(always)]
    pub fn back(self) {
        if sanitizer::is_on() {
            sanitizer::arrived(self.0);
        }
    }
}

/// The context to switch to: the task's if it needs nothing but the P, else g0, which finds the
/// task in the stash.
#[inline(always)]
fn context_of(m: MRef, next: Option<Task>) -> usize {
    if let Some(task) = next {
        // SAFETY: the task was taken from a queue of the P that the M holds.
        if let Some(g) = direct(m, unsafe { m.must_p() }, &task) {
            m.curg.set(g.as_ptr());
            count(&m.switches, 1);
            return g.context.load(Ordering::Relaxed);
        }
        m.stash.set(Some(task));
    }
    m.curg.set(ptr::null());
    m.g0_context.get()
}

/// Prepares the task for a switch that needs nothing but the P. `None` if the task needs g0.
#[inline(always)]
fn direct(m: MRef, p: PRef, task: &Task) -> Option<GRef> {
    match task.kind() {
        TaskKind::Goroutine(g) => {
            let needs_g0 = flags::UNBORN | flags::REMOTE | flags::HELD;
            if g.flags.get() & flags::SPECIAL != 0 {
                if g.has(needs_g0) || !may_run(m, g) {
                    return None;
                }
                if g.has(flags::TIMED) {
                    p.note_wait(g);
                }
            }
            assign(p, g);
            Some(g)
        }
        TaskKind::Newborn(n) => {
            // SAFETY: the cache holds descriptors.
            let g = unsafe { GRef::from_non_null(p.free_gs.pop()?) };
            // SAFETY: the newborn came out of a queue, so this M owns it.
            unsafe { stacks::begin_on(p, n, g) };
            Some(g)
        }
    }
}

/// Marks the goroutine as running on the P.
#[inline(always)]
pub fn assign(p: PRef, g: GRef) {
    if g.last_p.get() != p.id {
        moved(p, g);
    }
    g.set_status(Status::Running);
}

/// Notes the new P of a goroutine that was on another P before.
#[cold]
#[inline(never)]
pub fn moved(p: PRef, g: GRef) {
    if trace::is_on() {
        return moved_traced(p, g);
    }
    g.last_p.set(p.id);
    see_stack(p, g);
}

/// [`moved`] while events are traced.
#[cold]
#[inline(never)]
fn moved_traced(p: PRef, g: GRef) {
    probes::migrate(p, g);
    g.last_p.set(p.id);
    traced::runs(p, g);
    see_stack(p, g);
}

/// Notes whether the goroutine's stack is on another node than the P.
#[inline(always)]
fn see_stack(p: PRef, g: GRef) {
    // The stack of an attached thread stays where it is.
    if p.rt().nodes.len() > 1
        && let Some(stack) = g.stack.get()
    {
        let remote = stack.node() != p.node;
        if remote != g.has(flags::REMOTE) {
            g.remote_runs.set(0);
            g.set_flag(flags::REMOTE, remote);
        }
    }
}

/// Clears errno for a new goroutine.
#[inline(always)]
pub fn fresh_errno(m: MRef) {
    // SAFETY: the thread's own errno.
    unsafe { *m.errno.get() = 0 };
}
