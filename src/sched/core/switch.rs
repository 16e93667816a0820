//! The scheduler proper: which goroutine runs next, and the switch to it.
//!
//! A goroutine that parks, yields or ends picks its successor from the queues of
//! its own P and switches to it directly. Everything else (stealing, going
//! idle, handing a P to another thread, stopping) happens on g0, the thread's
//! own stack, in [`run`].

use super::blocking;
use super::gang;
use super::group;
use super::hooks;
use super::netpoll::{self, Post};
use super::preempt;
use super::ready;
use super::start;
use super::timers;
use super::world;
use crate::arch::{self, Place, sanitizer};
use crate::os::{spin::backoff, time};
use crate::sched::life::goroutine;
use crate::sched::who::cxa;
use crate::sched::who::g::{GRef, Status, flags};
use crate::sched::who::m::{self, Commit, M, MRef};
use crate::sched::who::node::Node;
use crate::sched::who::p::{P, PRef, count, status};
use crate::sched::who::runtime::{Runtime, rt};
use crate::sched::who::task::{Kind, Task};
use crate::sched::words::idle::StartOne;
use crate::sched::words::ring::Taken;
use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Of so many scheduling decisions one begins with the node's global queue. A
/// prime, and Go's number. seed: W1
const GLOBAL: u32 = 61;
/// And of so many, one begins with another queue that could starve.
pub const OTHERS: u32 = 53;
/// Of so many one looks at the clock, if there are timers.
const CLOCK: u32 = 16;
/// So many tasks at most are taken out of a list with its lock held, a cache miss each.
const MANY_AT_ONCE: usize = 128;
/// What so many goroutines use doesn't stay in the first cache from turn to turn.
const MANY: u32 = 16;
/// A goroutine that has run so often in a row where its stack isn't takes it along.
const REMOTE_RUNS: u16 = 8;
/// Rounds over all victims before a thief gives up.
const STEAL_ROUNDS: u32 = 4;
/// What it takes to wake a thief that steals, and what it then misses in its caches, in ns.
pub const STEAL_TIME: i64 = 5_000;

/// The M of this thread, if it runs a goroutine that may park: not on g0 and
/// not in a system call, where it counts as a plain thread.
#[inline(always)]
pub fn on_goroutine() -> Option<MRef> {
    m::current().filter(|&m| is_on_goroutine(m))
}

#[inline(always)]
fn is_on_goroutine(m: MRef) -> bool {
    !m.curg.get().is_null() && !m.p.get().is_null()
}

/// The goroutine of this thread, even in a system call.
pub fn current_g() -> Option<GRef> {
    let g = m::current()?.curg.get();
    // SAFETY: null or a descriptor.
    unsafe { GRef::from_nullable(g) }
}

/// A number that tells the caller from all other goroutines and threads; not 0.
pub fn caller() -> u64 {
    match current_g() {
        Some(g) => g.id.load(Ordering::Relaxed) << 1 | 1,
        None => (crate::os::thread::id() as u64) << 1,
    }
}

/// The M of this thread, if it holds a P.
#[inline(always)]
pub fn with_p() -> Option<MRef> {
    m::current().filter(|m| !m.p.get().is_null())
}

/// Leaves the running goroutine for the next one, or for g0. `commit(arg)` is done
/// for it by whoever runs next, after its registers are saved. Returns when
/// somebody resumes it, maybe on another thread, whose M it gives.
///
/// # Safety
/// `commit` may be called with `arg` then.
#[inline(always)]
pub unsafe fn switch_away(m: MRef, commit: Commit, arg: usize) -> MRef {
    let mut here = Place::new();
    let state = ThreadState::take(m, &mut here);
    let next = successor(m);
    state.over_switch(Left { m, commit: Some(commit), arg }, next, &mut here)
}

/// The same on a P that is alone. Nobody else could run the goroutine there before it is
/// left, so it does for itself, here and now, what others may have to do afterwards.
#[inline(always)]
pub fn switch_away_alone(m: MRef, commit: impl FnOnce()) -> MRef {
    debug_assert!(m.p().alone.get());
    let mut here = Place::new();
    let state = ThreadState::take(m, &mut here);
    let next = successor(m);
    commit();
    state.over_switch(Left::nobody(m), next, &mut here)
}

/// Who runs next, if that needs no g0.
#[inline(always)]
pub fn successor(m: MRef) -> Option<Task> {
    if m.by_g0.get() != 0 { None } else { next_direct(m, m.p()) }
}

/// For an M with hooks, on g0: chooses who runs next before the goroutine that has left is
/// published. Gives the goroutine, which waits in the stash, if it can be switched to as it is.
pub fn choose_early(m: MRef) -> Option<GRef> {
    if m.p.get().is_null() || m.is_locked() || m.is_attached() {
        return None;
    }
    let p = m.p();
    let task = match m.stash.take() {
        Some(task) => task,
        None => next_direct(m, p)?,
    };
    let Some(g) = direct(m, p, task) else {
        m.stash.set(Some(task));
        return None;
    };
    g.set_status(Status::Runnable);
    m.stash.set(Some(Task::goroutine(g)));
    Some(g)
}

/// The goroutine belongs to this M until it has run: see [`flags::HELD`].
pub fn hold(m: MRef, g: GRef) {
    g.set_status(Status::Runnable);
    if !g.has(flags::BOUND) {
        g.bound_m.set(m.as_ptr());
        g.set_flag(flags::BOUND | flags::HELD, true);
        goroutine::count_pinned(m, 1);
    }
}

/// Undoes a [`hold`].
pub fn release_held(m: MRef, g: GRef) {
    g.set_flag(flags::BOUND | flags::HELD, false);
    goroutine::count_pinned(m, -1);
}

/// What the C library and the C++ runtime keep for each thread goes along with
/// the goroutine over a switch.
struct ThreadState {
    errno: i32,
}

impl ThreadState {
    /// Of the thread that runs the caller; and notes the rounding modes for the switch.
    #[inline(always)]
    fn take(m: MRef, here: &mut Place) -> ThreadState {
        here.note_modes();
        // SAFETY: the thread's own errno.
        ThreadState { errno: unsafe { *m.errno.get() } }
    }

    /// Leaves the running goroutine, and goes along with it to the M that runs it next, which
    /// is given.
    #[inline(always)]
    fn over_switch(self, left: Left, next: Option<Task>, here: &mut Place) -> MRef {
        let m = match left.m.cxa.is_clean() {
            true => {
                let g = left.m.g();
                // SAFETY: the switch has just given it.
                unsafe { switch_to(left, g, next, here, false).settle() }
            }
            false => switch_in_exception(left, next, here),
        };
        // SAFETY: the errno of the thread it runs on now.
        unsafe { *m.errno.get() = self.errno };
        m
    }
}

/// Leaves a goroutine that has exceptions, or may have; gives the M that runs it next.
#[cold]
#[inline(never)]
fn switch_in_exception(left: Left, next: Option<Task>, here: &mut Place) -> MRef {
    let m = left.m;
    cxa::carry(m, |by_g0| {
        let g = m.g();
        let next = if by_g0 {
            m.stash.set(next);
            None
        } else {
            next
        };
        // SAFETY: the switch has just given it.
        unsafe { switch_to(left, g, next, here, false).settle() }
    })
}

/// What a context that is left tells the one that goes on, which does it first.
pub struct Left {
    m: MRef,
    commit: Option<Commit>,
    arg: usize,
}

impl Left {
    /// Nothing is to be done for anybody.
    pub fn nobody(m: MRef) -> Left {
        Left { m, commit: None, arg: 0 }
    }

    fn into_words(self) -> arch::Words {
        let commit = self.commit.map_or(0, |f| f as usize);
        [self.m.as_ptr() as usize, commit, self.arg]
    }

    /// # Safety
    /// They were made by `into_words`, on this thread.
    #[inline(always)]
    pub unsafe fn from_words([m, commit, arg]: arch::Words) -> Left {
        // SAFETY: `into_words` made them of an M, a `Commit` or 0, and an argument; a function
        // pointer that is 0 is `None`.
        unsafe {
            let commit = core::mem::transmute::<usize, Option<Commit>>(commit);
            Left { m: MRef::from_ptr(m as *const M), commit, arg }
        }
    }

    /// Leaves the running context for another one, and gives what is told when something
    /// switches back.
    ///
    /// # Safety
    /// As for [`arch::switch`].
    #[inline(always)]
    pub unsafe fn switch(self, save: *mut usize, to: usize, here: &mut Place) -> Left {
        // SAFETY: `to` is at rest and `save` writable, as the caller says; every switch is made
        // here, so the words are another `Left`'s.
        unsafe { Left::from_words(arch::switch(save, to, self.into_words(), here)) }
    }

    /// Does what was asked for the goroutine that has just been left; gives the M.
    ///
    /// # Safety
    /// A switch has just given it to the caller: what it was made of has been left.
    #[inline(always)]
    pub unsafe fn settle(self) -> MRef {
        if let Some(commit) = self.commit {
            // SAFETY: the context that was left has said that it may be called with this now.
            unsafe { commit(self.arg) };
        }
        self.m
    }
}

/// Leaves the running goroutine for g0: for what needs the thread's own stack,
/// and when there is no P to pick a successor from.
///
/// # Safety
/// On a goroutine, which `m` runs; `commit` may be called with its address on g0.
#[inline(never)]
pub unsafe fn switch_to_g0(m: MRef, commit: Option<Commit>) {
    let mut here = Place::new();
    let state = ThreadState::take(m, &mut here);
    let g = m.g();
    if m.p.get().is_null() {
        // The world may be stopped: until its registers are saved no old context is shown for it.
        // Release: pairs with the Acquire in `embed::sp_at_rest`.
        g.context.store(0, Ordering::Release);
    }
    let left = Left { m, commit, arg: g.address() };
    state.over_switch(left, None, &mut here);
}

/// Leaves a goroutine that has ended for the next one, or for g0.
///
/// # Safety
/// It is `g`, which `m` runs; `commit` may be called with its address then.
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

/// As [`leave_for`], for the goroutine of an attached thread: the context that is left goes to `*save`,
/// and is resumed when the thread is no M any more.
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
    // SAFETY: `to` is at rest and now ours; g0 resumes what is left here after all else. What it says
    // is no `Left`.
    unsafe { arch::switch(save, to, left.into_words(), here) };
}

#[inline(always)]
fn switch_to(left: Left, g: GRef, next: Option<Task>, here: &mut Place, for_ever: bool) -> Left {
    let to = context_of(left.m, next);
    let away = Away::to(left.m, to, for_ever);
    // SAFETY: `to` is at rest and now ours; `g` is resumed by its owner only
    // after the commit, which runs behind the switch, or by this P.
    let left = unsafe { left.switch(g.context.as_ptr(), to, here) };
    away.back();
    left
}

/// What a sanitizer, if there is one, keeps for a context that has switched away.
struct Away(*mut c_void);

impl Away {
    /// Before the switch to the context at rest, g0's or that of `M::curg`.
    #[inline(always)]
    fn to(m: MRef, context: usize, for_ever: bool) -> Away {
        if context == m.g0_context.get() {
            m.fiber.switch_to()
        } else {
            m.g().fiber.switch_to()
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

    /// After the switch back.
    #[inline(always)]
    fn back(self) {
        if sanitizer::is_on() {
            sanitizer::arrived(self.0);
        }
    }
}

/// The context to switch to: the task's, if that needs nothing but the P, else
/// g0's, which finds the task in the stash.
#[inline(always)]
fn context_of(m: MRef, next: Option<Task>) -> usize {
    if let Some(task) = next {
        if let Some(g) = direct(m, m.p(), task) {
            m.curg.set(g.as_ptr());
            count(&m.switches, 1);
            return g.context.load(Ordering::Relaxed);
        }
        m.stash.set(Some(task));
    }
    m.curg.set(ptr::null());
    m.g0_context.get()
}

/// Makes the task ready to be switched to, if that needs nothing but the P.
#[inline(always)]
fn direct(m: MRef, p: PRef, task: Task) -> Option<GRef> {
    match task.kind() {
        Kind::Goroutine(g) => {
            let needs_g0 = flags::UNBORN | flags::REMOTE;
            if g.flags.get() & flags::SPECIAL != 0 && (g.has(needs_g0) || !may_run(m, g)) {
                return None;
            }
            assign(m, p, g);
            Some(g)
        }
        Kind::Newborn(n) => {
            // SAFETY: the cache holds descriptors.
            let g = unsafe { GRef::from_non_null(p.free_gs.pop()?) };
            // SAFETY: it came out of a queue.
            unsafe { goroutine::begin_on(m, p, n, g) };
            Some(g)
        }
    }
}

/// Whether this M may run the goroutine.
fn may_run(m: MRef, g: GRef) -> bool {
    let bound_elsewhere = g.has(flags::BOUND) && g.bound_m.get() != m.as_ptr().cast_const();
    let fits = !bound_elsewhere && !group::is_elsewhere(m, g) && !avoids(g, m);
    if fits {
        g.set_flag(flags::AVOID_RUNNER | flags::AVOID_PINNED, false);
    }
    fits
}

/// Whether the task is for this M and no other: a goroutine that is bound to it, or begins in its group.
fn is_own(m: MRef, task: Task) -> bool {
    let Kind::Goroutine(g) = task.kind() else { return false };
    let is_bound = g.has(flags::BOUND) && g.bound_m.get() == m.as_ptr().cast_const();
    is_bound || (g.has(flags::GROUP) && group::may_begin(m, g))
}

/// Whether the goroutine has asked not to run on such an M next.
pub fn avoids(g: GRef, m: MRef) -> bool {
    let borrowed = m.is_runner() && m.root.get() != g.as_ptr().cast_const();
    (g.has(flags::AVOID_RUNNER) && borrowed)
        || (g.has(flags::AVOID_PINNED) && m.pinned_here.load(Ordering::Relaxed) > 0)
}

/// The goroutine is this M's now.
#[inline(always)]
pub fn assign(m: MRef, p: PRef, g: GRef) {
    g.m.set(m.as_ptr());
    if g.last_p.get() != p.id {
        moved(p, g);
    }
    g.set_status(Status::Running);
}

/// The goroutine was on another P before.
#[cold]
#[inline(never)]
fn moved(p: PRef, g: GRef) {
    g.last_p.set(p.id);
    // The stack of an attached thread stays where it is.
    if rt().nodes.len() > 1
        && let Some(stack) = g.stack.get()
    {
        let remote = stack.node() != p.node;
        if remote != g.has(flags::REMOTE) {
            g.remote_runs.set(0);
            g.set_flag(flags::REMOTE, remote);
        }
    }
}

/// A goroutine is about to run whose stack was on another node when it last ran: if
/// that has been so often enough the stack's memory moves here. On g0. seed: N9
#[cold]
#[inline(never)]
fn run_remote(p: PRef, g: GRef) {
    let (rt, stack) = (rt(), g.stack_of_running());
    if stack.node() == p.node {
        return;
    }
    let runs = g.remote_runs.get() + 1;
    g.remote_runs.set(runs);
    if runs < REMOTE_RUNS {
        return;
    }
    g.remote_runs.set(0);
    g.set_flag(flags::REMOTE, false);
    // On a synthetic machine there is nothing to move.
    if let Some(os_node) = p.of_node().memory {
        let pool = &rt.nodes[stack.home()].stacks;
        // SAFETY: it is at rest, and ours.
        let from = unsafe { arch::lowest_in_use(g.context.load(Ordering::Relaxed)) };
        let (stack, pages) = pool.migrate(stack, from, p.node, os_node);
        g.stack.set(Some(stack));
        count(&p.stats.migrations, 1);
        count(&p.stats.pages_moved, pages as u64);
    }
}

/// The next task of the own P, for a direct switch. The caller may hold the lock
/// of what it is about to wait for, so nothing may be woken here: when a timer or
/// the poller is due, g0 sees to it.
#[inline(always)]
pub fn next_direct(m: MRef, p: PRef) -> Option<Task> {
    let tick = next_tick(p);
    if p.attention.load(Ordering::Relaxed) != 0 {
        return None;
    }
    if is_unusual(p, tick) { next_unusual_direct(m, p, tick) } else { next_in_order(m, p) }
}

#[cold]
#[inline(never)]
fn next_unusual_direct(m: MRef, p: PRef, tick: u32) -> Option<Task> {
    if netpoll::is_due(p) || (tick.is_multiple_of(CLOCK) && timer_is_due(p)) {
        return None;
    }
    next_unusual(m, p, tick)
}

/// Whether somebody wants something of whoever runs the P.
#[inline(always)]
pub fn is_asked(p: PRef) -> bool {
    p.attention.load(Ordering::Relaxed) & !world::GANG != 0
}

/// Counts one more scheduling decision.
#[inline(always)]
pub fn next_tick(p: PRef) -> u32 {
    let tick = p.tick.load(Ordering::Relaxed).wrapping_add(1);
    p.tick.store(tick, Ordering::Relaxed);
    tick
}

#[inline(always)]
fn timer_is_due(p: PRef) -> bool {
    let next = p.timers.next();
    next != i64::MAX && next <= time::now()
}

/// The next task of the own P, on g0.
fn next_local(m: MRef, p: PRef) -> Option<Task> {
    let tick = next_tick(p);
    match () {
        _ if is_asked(p) => None,
        _ if is_unusual(p, tick) => next_unusual(m, p, tick),
        _ => next_in_order(m, p),
    }
}

/// Whether something else than the queues in their order may be due with this
/// decision; most have only this to ask.
#[inline(always)]
fn is_unusual(p: PRef, tick: u32) -> bool {
    tick.wrapping_sub(p.unusual_at.load(Ordering::Relaxed)) as i32 >= 0
}

#[cold]
#[inline(never)]
fn next_unusual(m: MRef, p: PRef, tick: u32) -> Option<Task> {
    let random_order = rt().debug.random_order;
    let until = |of: u32| of - tick % of;
    // The first timer changes that.
    let clock = if p.timers.next() == i64::MAX { OTHERS } else { until(CLOCK) };
    let ordinary = match random_order {
        true => 1,
        false => clock.min(until(GLOBAL)).min(until(OTHERS)),
    };
    p.unusual_at.store(tick.wrapping_add(ordinary), Ordering::Relaxed);
    let out_of_order = tick.is_multiple_of(GLOBAL) || tick.is_multiple_of(OTHERS);
    if out_of_order || random_order { now_and_then(m, p, tick) } else { None }
        .or_else(|| next_in_order(m, p))
}

/// The P has its first timer, or one by somebody else: from the next decision on its owner
/// looks at the clock.
pub fn look_at_the_clock(p: PRef) {
    let tick = p.tick.load(Ordering::Relaxed);
    // If the owner writes at the same time it has just looked.
    p.unusual_at.store(tick.wrapping_add(1), Ordering::Relaxed);
}

/// The next task of the own P and of the queues that must not starve. It wakes
/// nobody. seed: B7, N4, N5, N8, W1
#[inline(always)]
fn next_in_order(m: MRef, p: PRef) -> Option<Task> {
    let alone = p.alone.get();
    // No chain of `or_else`: that is not inlined as a whole.
    if let Some(task) = take_runnext(p, alone) {
        return Some(task);
    }
    if !m.pinned.is_empty()
        && let Some(task) = m.pinned.pop()
    {
        return Some(task);
    }
    let high = &p.of_node().high;
    if !high.is_empty()
        && let Some(task) = high.pop()
    {
        return Some(task);
    }
    if let Some(task) = next_private(p, alone) {
        return Some(task);
    }
    next_shared(p, alone)
}

/// The newest of the private queue.
#[inline(always)]
fn next_private(p: PRef, alone: bool) -> Option<Task> {
    let taken = p.private.take_back(alone)?;
    if taken.left >= MANY {
        fetch(p.private.at(taken.at.wrapping_sub(1)), p.private.at(taken.at.wrapping_sub(2)));
    }
    // SAFETY: rings hold tasks.
    unsafe { Task::from_word(taken.entry) }
}

/// Fairness between the queues, each of which has its turn: two goroutines that
/// wake each other through `runnext` must not keep everybody else waiting.
fn now_and_then(m: MRef, p: PRef, tick: u32) -> Option<Task> {
    const QUEUES: u32 = 7;
    let node = p.of_node();
    let alone = p.alone.get();
    let pick = |queue: u32| match queue % QUEUES {
        // In turns: each of the two may be fed without end.
        0 if (tick / GLOBAL).is_multiple_of(2) => node.take_placed().or_else(|| node.runq.pop()),
        0 => node.runq.pop().or_else(|| node.take_placed()),
        1 => next_shared(p, alone),
        // SAFETY: rings hold tasks.
        2 => p.private.pop_front(alone).and_then(|word| unsafe { Task::from_word(word) }),
        3 => m.pinned.pop(),
        4 => node.high.pop(),
        // It would keep those waiting for whom it was preempted just now.
        5 => node.preempted.pop_if(preempt::has_waited),
        _ => node.low.pop(),
    };
    let first = match tick {
        _ if rt().debug.random_order => m.random() % QUEUES,
        _ if tick.is_multiple_of(GLOBAL) => 0,
        _ => 1 + tick / OTHERS % (QUEUES - 1),
    };
    (first..first + QUEUES).find_map(pick)
}

#[inline(always)]
fn take_runnext(p: PRef, alone: bool) -> Option<Task> {
    let word = p.runnext.load(Ordering::Relaxed);
    if word == 0 {
        return None;
    }
    if alone {
        p.runnext.store(0, Ordering::Relaxed);
        // SAFETY: it holds a task.
        return unsafe { Task::from_word(word) };
    }
    // Acquire: as for any queue; a thief may have been faster.
    // SAFETY: it holds a task or 0.
    unsafe { Task::from_word(p.runnext.swap(0, Ordering::Acquire)) }
}

/// The oldest of the shared queue; what others left in the inbox joins it first.
#[inline(always)]
fn next_shared(p: PRef, alone: bool) -> Option<Task> {
    if !p.inbox.is_empty() {
        drain_inbox(p);
    }
    let taken = p.shared.take_front(alone)?;
    fetch_next_shared(p, &taken);
    // SAFETY: rings hold tasks.
    unsafe { Task::from_word(taken.entry) }
}

#[inline(always)]
fn fetch_next_shared(p: PRef, taken: &Taken) {
    if taken.left >= MANY {
        fetch(p.shared.at(taken.at.wrapping_add(1)), p.shared.at(taken.at.wrapping_add(2)));
    }
}

/// Lets the processor get what will be needed of those who run next, which was in its
/// caches long ago: of the first what is on its stack, of the second where that is.
#[inline(always)]
fn fetch(first: usize, second: usize) {
    arch::prefetch(second);
    // SAFETY: an old task at worst, whose memory is still there, or 0.
    if let Some(Kind::Goroutine(g)) = unsafe { Task::from_word(first) }.map(Task::kind) {
        g.fetch_stack();
    }
}

#[cold]
#[inline(never)]
fn drain_inbox(p: PRef) {
    let mut batch = p.inbox.pop_batch(|len| len);
    while let Some(task) = batch.pop() {
        ready::push_shared(p, task);
    }
}

/// Whether anything but the running goroutine could run here now; for `yield`.
#[inline(always)]
pub fn nothing_else(m: MRef, p: PRef) -> bool {
    // First where those who yield are.
    if !p.shared.is_empty() {
        return false;
    }
    let node = p.of_node();
    p.runnext.load(Ordering::Relaxed) == 0
        && p.private.is_empty()
        && p.inbox.is_empty()
        && m.pinned.is_empty()
        && node.runq.is_empty()
        && node.placed() == 0
        && node.high.is_empty()
        && node.low.is_empty()
        && node.preempted.is_empty()
        && p.attention.load(Ordering::Relaxed) == 0
}

/// Whether it makes sense to wait for another goroutine without parking: one
/// runs on another P, and nothing could run here meanwhile. runtime_canSpin.
/// seed: S12
pub fn may_spin() -> bool {
    let Some(m) = on_goroutine() else { return crate::os::cpu::count() > 1 };
    let (rt, p) = (rt(), m.p());
    !p.alone.get()
        && crate::os::cpu::count() > 1
        && (rt.idle.ps() + rt.idle.spinning() + 1) < rt.procs() as u32
        && nothing_else(m, p)
}

/// The life of an M on g0: runs goroutines until the thread is to leave.
pub fn run(m: MRef) {
    while let Some(g) = next(m) {
        if (m.is_hooked() || g.has(flags::HELD)) && !hooks::enter(m, g) {
            continue;
        }
        let mut here = Place::new();
        here.note_modes();
        m.curg.set(g.as_ptr());
        count(&m.switches, 1);
        let away = Away::to(m, g.context.load(Ordering::Relaxed), false);
        // SAFETY: the goroutine is at rest and ours.
        let left = unsafe {
            let to = g.context.load(Ordering::Relaxed);
            Left::nobody(m).switch(m.g0_context.as_ptr(), to, &mut here)
        };
        away.back();
        let from = left.arg;
        if m.is_hooked() {
            hooks::left(m, left);
        } else {
            // SAFETY: the switch has just given it.
            unsafe { left.settle() };
        }
        cxa::save_left(m);
        if !m.blocking.get().is_null() {
            // SAFETY: it waits for that call.
            blocking::run_on_g0(m, unsafe { GRef::at(from) });
        }
    }
    hooks::stop(m);
    group::leave(m);
}

/// The next goroutine for this M; `None`: the thread leaves.
fn next(m: MRef) -> Option<GRef> {
    loop {
        hooks::follow(m);
        if m.p.get().is_null() {
            hooks::idle(m);
            if must_leave(m) {
                m.set_between(false);
                leave_timers(rt());
                return None;
            }
            if m.is_locked() {
                start::stop_locked(m);
            } else {
                start::stop(m, None);
            }
            continue;
        }
        let p = m.p();
        if is_asked(p) {
            hooks::leave_entered(m);
            if world::give_way(m, p) {
                continue;
            }
        }
        if must_leave(m) {
            hooks::leave_entered(m);
            hooks::idle(m);
            put_back_stash(m, p);
            let p = release_p(m);
            if m.spinning.replace(false) {
                rt().idle.spin_ended();
            }
            if rt().exiting.load(Ordering::Acquire) {
                // Whoever took over would leave too, and start the next one.
                make_idle(rt(), p);
            } else {
                start::hand_off(p);
            }
            return None;
        }
        let task = m.stash.take();
        let task = if m.is_locked() {
            let Some(task) = next_bound(m, p, task) else {
                stop_spinning(m);
                hooks::idle(m);
                start::hand_off(release_p(m));
                continue;
            };
            task
        } else if let Some(task) = task.or_else(|| find_runnable(m)) {
            task
        } else {
            continue;
        };
        stop_spinning(m);
        match task.kind() {
            Kind::Goroutine(g) if !may_run(m, g) => {
                hooks::leave_entered(m);
                hooks::idle(m);
                start::pass_on(m, g);
            }
            _ if m.is_attached() && !is_own(m, task) && start::move_away(m, task) => {}
            Kind::Goroutine(g) if !g.has(flags::UNBORN) || goroutine::equip(m, g).is_some() => {
                if g.has(flags::REMOTE) {
                    run_remote(m.p(), g);
                }
                assign(m, m.p(), g);
                return Some(g);
            }
            Kind::Goroutine(g) => rt().aside.wait_for_stack(task, g.stack_class.get().is_none()),
            Kind::Newborn(n) => match goroutine::descriptor(m.p()) {
                Some(g) => {
                    // SAFETY: it came out of a queue.
                    unsafe { goroutine::begin_on(m, m.p(), n, g) };
                    if rt().aside.lacks_stacks() {
                        // There may be more.
                        rt().aside.stack_is_free(m.p());
                    }
                    return Some(g);
                }
                None => rt().aside.wait_for_stack(task, true),
            },
        }
    }
}

/// What a locked M runs next with its P: `task`, or another goroutine that is bound to it. `None`:
/// nothing, or others have waited for the P for long enough.
#[cold]
#[inline(never)]
fn next_bound(m: MRef, p: PRef, task: Option<Task>) -> Option<Task> {
    let is_bound = |t: &Task| matches!(t.kind(), Kind::Goroutine(g) if g.has(flags::BOUND));
    if let Some(task) = task {
        if is_bound(&task) {
            return Some(task);
        }
        hooks::leave_entered(m);
        ready::push_shared(p, task);
        return None;
    }
    if timer_is_due(p) {
        p.timers.run(time::now());
    }
    if netpoll::is_due(p) {
        netpoll::look(m, p);
    }
    // The P has queues of its own, to which this M doesn't get.
    if next_tick(p).is_multiple_of(OTHERS) && (p.has_work() || work_anywhere(rt())) {
        return None;
    }
    m.pinned.pop()
}

/// Whether the thread is to leave: at shutdown, at the end of `gs_run`'s
/// function, or because its locked goroutine has ended.
pub fn must_leave(m: MRef) -> bool {
    if m.is_runner() {
        // Pairs with the fence in `root_ended`: either we see that it is done, or
        // it sees our P.
        fence(Ordering::SeqCst);
        if m.root_done.load(Ordering::Acquire) && !has_bound(m) {
            return true;
        }
    }
    m.ended.load(Ordering::Relaxed) || rt().exiting.load(Ordering::Acquire)
}

/// Whether the thread is borrowed and its owner waits for it.
pub fn is_wanted_back(m: MRef) -> bool {
    m.is_runner() && m.root_done.load(Ordering::Acquire)
}

/// Whether goroutines are bound to the M. On a borrowed thread they are only where the system
/// gave no other thread; it goes back when they have ended.
fn has_bound(m: MRef) -> bool {
    m.is_locked() || m.pinned_here.load(Ordering::Relaxed) > 0
}

/// The thread leaves without a P. It may have been the one that was to see to the timers
/// of idle P's, and others have gone to sleep for good meanwhile.
fn leave_timers(rt: &Runtime) {
    if !rt.exiting.load(Ordering::Acquire) {
        rt.timer_added(timers::next_of_idle_ps());
    }
}

/// A task that was taken already goes back to the queues.
pub fn put_back_stash(m: MRef, p: PRef) {
    for task in m.stash.take().into_iter().chain(core::iter::from_fn(|| m.pinned.pop())) {
        ready::put_back(p, task);
    }
}

/// The M has found work, or something else to do.
fn stop_spinning(m: MRef) {
    if m.spinning.replace(false)
        && let Some(one) = rt().idle.spin_found(|| more_for_thieves(m.node.get()))
    {
        start::start_one(one, None, m.node.get());
    }
}

/// Whether there is anything that an M of this node that looks for work would see to.
fn more_for_thieves(node: usize) -> bool {
    let rt = rt();
    work_for_thieves(rt, node) || rt.lacks_watcher()
}

/// Looks for work: own P, own node, then further and further away. `None`: look
/// again from the start. seed: B7, N4, S10
fn find_runnable(m: MRef) -> Option<Task> {
    let rt = rt();
    let p = m.p();
    if timer_is_due(p) {
        p.timers.run(time::now());
    }
    if netpoll::is_due(p) {
        netpoll::look(m, p);
    }
    if p.attention.load(Ordering::Relaxed) & world::GANG != 0
        && let Some(task) = gang::next(rt, p)
    {
        return Some(task);
    }
    if let Some(task) = next_local(m, p).or_else(|| from_global(p)) {
        return Some(task);
    }
    if p.poll.is_waited_for()
        && netpoll::look(m, p) > 0
        && let Some(task) = next_local(m, p)
    {
        return Some(task);
    }
    if is_asked(p) {
        return None;
    }
    hooks::idle(m);
    if let Some(task) = group::steal(m) {
        return Some(task);
    }
    if !p.alone.get()
        && let Some(task) = steal(rt, m, p)
    {
        return Some(task);
    }
    if let Some(task) = gang::out_of_turn(rt).or_else(|| of_low_priority(rt, p)) {
        return Some(task);
    }
    if is_asked(p) {
        return None;
    }
    go_idle(rt, m);
    None
}

/// A fair share of the own node's global queue: one to run, the rest for later.
fn from_global(p: PRef) -> Option<Task> {
    let node = p.of_node();
    take_share(&node.runq, p, node.ps.len().max(1))
        .or_else(|| node.take_placed())
        .or_else(|| node.preempted.pop())
}

fn take_share(queue: &crate::sched::who::task::Fifo, p: PRef, sharers: usize) -> Option<Task> {
    let most = MANY_AT_ONCE.min(rt().ring_capacity / 2);
    let mut batch = queue.pop_batch(|len| (len / sharers + 1).min(most));
    let first = batch.pop()?;
    while let Some(task) = batch.pop() {
        ready::push_shared(p, task);
    }
    Some(first)
}

fn of_low_priority(rt: &Runtime, p: PRef) -> Option<Task> {
    let nodes = || rt.nodes_from(p.node as usize);
    nodes().find_map(|n| n.low.pop()).or_else(|| nodes().find_map(|n| n.idle.pop()))
}

/// Steals: from the P's of the node, then node by node from global queues and
/// P's. At most half of the busy P's have somebody who does. seed: S3, S6, N4
fn steal(rt: &Runtime, m: MRef, p: PRef) -> Option<Task> {
    if !m.spinning.get() {
        let busy = rt.procs() as u32 - rt.idle.ps().min(rt.procs() as u32);
        if 2 * rt.idle.spinning() >= busy {
            return None;
        }
        m.spinning.set(true);
        rt.idle.spin_begins();
    }
    let own = p.of_node();
    for round in 0..STEAL_ROUNDS {
        if is_asked(p) {
            return None;
        }
        let last = round == STEAL_ROUNDS - 1;
        if let Some(task) = steal_from_node(m, p, own.id, last) {
            note_steal(own, &p.stats.steals_near, own.id);
            return Some(task);
        }
        for &n in &own.neighbours {
            let node = &rt.nodes[n];
            if let Some(task) = node
                .high
                .pop()
                .or_else(|| take_share(&node.runq, p, node.ps.len() + 1))
                .or_else(|| node.steal_placed(rt.theft_time()))
                .or_else(|| node.preempted.pop())
            {
                note_steal(own, &p.stats.steals_remote_queue, n);
                return Some(task);
            }
            if let Some(task) = steal_from_node(m, p, n, last) {
                note_steal(own, &p.stats.steals_remote_p, n);
                return Some(task);
            }
        }
        if !own.runq.is_empty() || own.placed() > 0 || !p.inbox.is_empty() {
            return next_local(m, p).or_else(|| from_global(p));
        }
        backoff(round);
    }
    None
}

/// A P of `own` has stolen from a node: counts it by its kind and by its node.
fn note_steal(own: &Node, kind: &AtomicU64, from: usize) {
    count(kind, 1);
    own.steals_from[from].fetch_add(1, Ordering::Relaxed);
}

/// Visits the P's of a node in a random order. `last`: take a `runnext` too, and
/// let due timers fire.
fn steal_from_node(m: MRef, p: PRef, node: usize, last: bool) -> Option<Task> {
    let ps = &rt().nodes[node].ps;
    let n = ps.len();
    if n == 0 {
        return None;
    }
    let start = m.random() as usize % n;
    for i in 0..n {
        let victim = ps.get((start + i) % n);
        if victim == p {
            continue;
        }
        if last && timer_is_due(victim) {
            victim.timers.run(time::now());
            if let Some(task) = next_local(m, p) {
                return Some(task);
            }
        }
        // The watcher looks for those that nobody runs.
        if last
            && victim.poll.is_waited_for()
            && victim.status() == status::RUNNING
            && netpoll::look(m, victim) > 0
            && let Some(task) = next_local(m, p)
        {
            return Some(task);
        }
        let stolen =
            steal_from(p, victim, last).or_else(|| if last { steal_runnext(victim) } else { None });
        if stolen.is_some() {
            return stolen;
        }
    }
    None
}

/// Half of what a P has: of the shared work first, which it wants to share. A few
/// goroutines that wait on a quick P are left to it.
fn steal_from(p: PRef, victim: PRef, last: bool) -> Option<Task> {
    if let Some((word, _)) = victim.shared.steal_half(&p.shared) {
        // SAFETY: rings hold tasks.
        return unsafe { Task::from_word(word) };
    }
    if !victim.private.is_empty()
        && (!victim.has_few_goroutines() || (last && !turns_out_quick(victim)))
        && let Some((word, _)) = victim.private.steal_half(&p.private)
    {
        // SAFETY: rings hold tasks.
        return unsafe { Task::from_word(word) };
    }
    take_share(&victim.inbox, p, 2)
}

/// Watches whether a P gets to all of its private work in the time that stealing takes.
fn turns_out_quick(victim: PRef) -> bool {
    if victim.keeps_its_few() {
        return true;
    }
    let (decisions, took) = watch(victim);
    let queued = victim.private.len().max(1) as i64;
    let is = i64::from(decisions) * STEAL_TIME >= queued * took;
    if is {
        victim.set_quick(true);
    }
    is
}

/// How many decisions a P takes in a few us, and how many ns those were: the watcher may
/// lose its CPU.
fn watch(victim: PRef) -> (u32, i64) {
    let tick = victim.tick.load(Ordering::Relaxed);
    let before = time::now();
    loop {
        let took = time::now() - before;
        if took >= STEAL_TIME {
            return (victim.tick.load(Ordering::Relaxed).wrapping_sub(tick), took);
        }
        backoff(0);
    }
}

/// The last resort: a P that has not moved for a while may be stuck with it.
fn steal_runnext(victim: PRef) -> Option<Task> {
    let word = victim.runnext.load(Ordering::Relaxed);
    if word == 0 {
        return None;
    }
    if watch(victim).0 != 0 {
        return None;
    }
    // Acquire: as for any queue.
    let taken = victim.runnext.compare_exchange(word, 0, Ordering::Acquire, Ordering::Relaxed);
    // SAFETY: it holds a task or 0.
    taken.ok().and_then(|word| unsafe { Task::from_word(word) })
}

/// Nothing to do: gives the P up and sleeps, unless something came meanwhile.
fn go_idle(rt: &Runtime, m: MRef) {
    let attended = Some(m.p()).filter(|&p| netpoll::attend(p));
    m.set_between(true);
    let p = release_p(m);
    make_idle(rt, p);
    if m.spinning.replace(false) {
        rt.idle.spin_ended();
    }
    // Work that came before the counters changed was not announced to us.
    let due = timers::next_of_idle_ps();
    if (work_for_thieves(rt, p.node as usize) || due <= time::now())
        && let Some(new) = start::take_idle_p(rt, Some(p), m.node.get())
    {
        acquire_p(m, new);
        m.spinning.set(true);
        rt.idle.spin_begins();
        if let Some(post) = attended.map(Post::P) {
            post.leave();
            post.pass_on(rt);
        }
        return;
    }
    start::stop(m, attended);
}

/// Whether there is work that an idle P could take, now or soon.
pub fn work_anywhere(rt: &Runtime) -> bool {
    work_that(rt, |_| true, |n| n.placed() > 0)
}

/// Whether there is work that a P of this node would take now: thieves leave a quick P its few
/// goroutines, and another node for a while what was spawned for it.
fn work_for_thieves(rt: &Runtime, node: usize) -> bool {
    let placed =
        |n: &Node| n.placed() > 0 && (n.id == node || n.placed_due(rt.theft_time()) <= time::now());
    work_that(rt, |p| !p.keeps_its_few(), placed)
}

/// Whether there is work. Private work and what was spawned for a node count only where `private`
/// and `placed` say so.
fn work_that(rt: &Runtime, private: impl Fn(PRef) -> bool, placed: impl Fn(&Node) -> bool) -> bool {
    rt.nodes.iter().any(|n| {
        !n.runq.is_empty()
            || placed(n)
            || !n.high.is_empty()
            || !n.low.is_empty()
            || !n.idle.is_empty()
            || !n.preempted.is_empty()
    }) || rt.ps().any(|p| {
        (!p.private.is_empty() && private(p))
            || !p.shared.is_empty()
            || !p.inbox.is_empty()
            || (p.status() == status::IDLE && p.runnext.load(Ordering::Relaxed) != 0)
    }) || rt.gangs.any_ready()
}

/// Puts a P into its node's set of idle ones. The caller looks for work once
/// more afterwards, or knows that somebody will.
pub fn make_idle(rt: &Runtime, p: PRef) {
    debug_assert_eq!(p.status(), status::IDLE);
    // A member may have left it without a decision here: locked to its thread, or in a call.
    gang::has_left(p);
    // Counted first: whoever takes it out of the set counts it out.
    rt.idle.p_idle();
    p.of_node().add_idle_p(p);
    // Pairs with the fence in `Idle::work_added`: either the adder of work finds
    // the P in the set, or the caller finds the work. And with the one in
    // `netpoll::wait_begins`.
    fence(Ordering::SeqCst);
    netpoll::nobody_runs(p);
    if world::is_stopping() {
        world::arrived();
    }
}

/// The M gives its P up; nobody has it then but the caller.
pub fn release_p(m: MRef) -> PRef {
    let p = m.p();
    m.p.set(ptr::null());
    p.set_status(status::IDLE);
    p
}

/// The M takes a P that is the caller's. seed: N3
pub fn acquire_p(m: MRef, p: PRef) {
    debug_assert!(m.p.get().is_null());
    p.last_m.store(m.as_ptr(), Ordering::Relaxed);
    p.set_owner(status::RUNNING, m);
    m.p.set(p.as_ptr().cast_const().cast::<P>());
    m.set_between(false);
    m.node.set(p.node as usize);
    m.bind_to(p.node as usize);
    rt().sysmon.wake_if_long_asleep();
    crate::sched::life::run::look_if_done(m, p);
}

/// Gives the P to others for a while, if there are any; `m` is that of this thread. Gives
/// the one on which the caller goes on. Gosched.
#[inline(always)]
pub fn yield_now(m: Option<MRef>) -> Option<MRef> {
    let Some(m) = m.filter(|&m| is_on_goroutine(m)) else {
        crate::os::thread::yield_now();
        return m;
    };
    let p = m.p();
    if nothing_else(m, p) {
        let tick = p.tick.load(Ordering::Relaxed).wrapping_add(1);
        p.tick.store(tick, Ordering::Relaxed);
        if !tick.is_multiple_of(CLOCK) {
            return Some(m);
        }
        // A loop that only yields must not keep timers and remote work waiting.
        if timer_is_due(p) {
            p.timers.run(time::now());
        }
        if nothing_else(m, p) && !netpoll::is_due(p) {
            return Some(m);
        }
    }
    let g = m.g();
    g.set_status(Status::Runnable);
    let mut here = Place::new();
    let state = ThreadState::take(m, &mut here);
    let (next, left) = match take_turns(m, p, g) {
        Some(next) => (Some(next), Left::nobody(m)),
        None => (successor(m), Left { m, commit: Some(yield_commit), arg: g.address() }),
    };
    Some(state.over_switch(left, next, &mut here))
}

/// The next one in turn for a goroutine that yields, which is in the queue then, before it
/// is left: see [`switch_away_alone`]. Only where all there is to choose from are those who
/// yield.
#[inline(always)]
fn take_turns(m: MRef, p: PRef, g: GRef) -> Option<Task> {
    if !p.alone.get() || p.shared.is_empty() {
        return None;
    }
    let tick = p.tick.load(Ordering::Relaxed).wrapping_add(1);
    // One branch for all that is rare.
    let others = p.runnext.load(Ordering::Relaxed)
        | p.inbox.len()
        | m.pinned.len()
        | p.of_node().high.len()
        | m.by_g0.get()
        | p.attention.load(Ordering::Relaxed) as usize;
    if others != 0
        || !p.private.is_empty()
        || is_unusual(p, tick)
        || ready::is_special(g, p.migrates)
    {
        return None;
    }
    let taken = p.shared.rotate(Task::goroutine(g).to_word())?;
    p.tick.store(tick, Ordering::Relaxed);
    fetch_next_shared(p, &taken);
    // SAFETY: rings hold tasks.
    unsafe { Task::from_word(taken.entry) }
}

/// # Safety
/// On an M's thread. `g` is the address of a goroutine of the caller's.
pub unsafe fn yield_commit(g: usize) {
    // SAFETY: an M's thread and the address of a goroutine, as the caller says.
    let (m, g) = unsafe { (m::must_current(), GRef::at(g)) };
    ready::push_yielded(m.p(), g);
}

/// The world is being stopped, or something else wants the goroutine to give
/// way: called at the entry of functions that could.
#[cold]
#[inline(never)]
pub fn give_way() {
    let Some(m) = on_goroutine() else { return };
    if m.g().has(flags::NOPREEMPT) {
        let asked = m.p().attention.fetch_and(!world::SLICE, Ordering::Relaxed);
        if asked & !(world::SLICE | world::GANG) == 0 {
            return;
        }
    }
    m.g().set_status(Status::Runnable);
    // SAFETY: it is ours.
    unsafe { switch_away(m, yield_commit, m.g().address()) };
}

/// A new goroutine's errno, in place of the old one's.
#[inline(always)]
pub fn fresh_errno(m: MRef) {
    // SAFETY: the thread's own errno.
    unsafe { *m.errno.get() = 0 };
}

/// Announces work to those that sleep. `near`: the P that it was given to.
#[inline(always)]
pub fn work_added(near: Option<PRef>, node: usize) {
    if let Some(one) = rt().idle.work_added() {
        wake(one, near, node);
    }
}

/// The P takes no decisions for a while, so others are told of what it may have kept.
#[inline(always)]
pub fn share_what_is_kept(p: PRef) {
    if !p.private.is_empty() && !p.alone.get() {
        p.set_quick(false);
        work_added(None, p.node as usize);
    }
}

#[cold]
#[inline(never)]
fn wake(one: StartOne, near: Option<PRef>, node: usize) {
    start::start_one(one, near, node);
}

/// A random number.
pub fn random() -> u32 {
    m::current().map_or_else(random_of_thread, |m| m.random())
}

#[cold]
fn random_of_thread() -> u32 {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    let state = match STATE.get() {
        0 => time::now() as u64 | 1,
        state => state,
    };
    let (state, number) = m::xorshift(state);
    STATE.set(state);
    number
}

#[cfg(test)]
mod tests;
