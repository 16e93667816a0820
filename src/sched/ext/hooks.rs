//! Hooks: what a runtime that keeps state for each thread and each goroutine (an interpreter) is
//! told about the switches. `run/THREADS.md`, "Hooks", states the order.
//!
//! A goroutine *comes in* when `switch_in` is called for it, and *goes out* when `switch_out` is
//! called for it. On an M with hooks no goroutine switches directly to another: each goroutine that
//! leaves its stack goes to g0, which calls the hooks between the switch and the commit. So an M
//! without hooks pays only for reading [`M::by_g0`](crate::sched::types::m::M::by_g0), which locked
//! threads need anyway.

use crate::os::locked::Locked;
use crate::os::log::HostArg;
use crate::os::spin::backoff;
use crate::os::{heap, thread};
use crate::sched::prim::headcount::Headcount;
use crate::sched::run::preempted::STARTING;
use crate::sched::run::switch::{self, Left};
use crate::sched::run::{bound, ready, requests, start};
use crate::sched::take::back_from_call::queue_after_call;
use crate::sched::take::{blocking, boundary};
use crate::sched::types::attention::TO_G0;
use crate::sched::types::g::{G, GRef, Status, flags};
use crate::sched::types::m::{self, HOOKED, MRef};
use crate::sched::types::p::PRef;
pub use crate::sched::types::points::ScriptFrame;
use crate::sched::types::runtime::{CHANGING, Runtime, Visit, rt};
use crate::sched::types::scripts::{self, GivesFrames};
use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Counts the threads that are in, or about to enter, `thread_start` or `thread_stop`, which may
/// call the library.
pub static IN_THREAD_HOOKS: Headcount = Headcount::new();

/// A hook of a thread.
pub type HookOfThread = Option<unsafe extern "C" fn(ctx: *mut c_void)>;

/// A hook of a goroutine.
pub type HookOfG = Option<unsafe extern "C" fn(ctx: *mut c_void, g: GRef)>;

/// The hook `switch_over`.
pub type HookOver = Option<unsafe extern "C" fn(ctx: *mut c_void, from: GRef, to: GRef) -> bool>;

/// The hook `frames`.
pub type HookOfFrames = Option<GivesFrames>;

/// The state of the hooks on an M's thread, which alone uses it.
pub struct OfM {
    /// The hooks with which the thread has started, or null.
    started_with: Cell<*const Hooks>,
    /// The goroutine for which the hook `switch_in` was called last, until its `switch_out` is
    /// called.
    entered: Cell<*const G>,
    /// Whether a hook was called for a goroutine since the hook `idle` was last called.
    is_busy: Cell<bool>,
    /// The number of switches since the last tick of the hooks.
    ticks: Cell<u32>,
}

impl OfM {
    pub fn new() -> OfM {
        OfM {
            started_with: Cell::new(ptr::null()),
            entered: Cell::new(ptr::null()),
            is_busy: Cell::new(false),
            ticks: Cell::new(0),
        }
    }
}

/// The functions that an embedder wants to be called, with `ctx`; `gs_hooks` says when.
#[derive(Clone, Copy)]
pub struct Hooks {
    pub ctx: HostArg,
    pub thread_start: HookOfThread,
    pub thread_stop: HookOfThread,
    pub switch_in: HookOfG,
    pub switch_out: HookOfG,
    pub switch_over: HookOver,
    pub idle: HookOfThread,
    pub goexit: HookOfG,
    pub dead: HookOfG,
    pub tick: HookOfThread,
    pub fork_child: HookOfThread,
    pub shutdown: HookOfThread,
    pub frames: HookOfFrames,
    /// Switches of a thread between two calls of `tick`; not 0.
    pub tick_every: u32,
}

impl Hooks {
    /// Whether both tables call the same functions with the same argument.
    pub fn is_like(&self, other: &Hooks) -> bool {
        let words = |h: &Hooks| {
            let of_thread =
                [h.thread_start, h.thread_stop, h.idle, h.tick, h.fork_child, h.shutdown];
            let of_g = [h.switch_in, h.switch_out, h.goexit, h.dead];
            let others =
                [h.switch_over.map_or(0, |f| f as usize), h.frames.map_or(0, |f| f as usize)];
            (
                of_thread.map(|f| f.map_or(0, |f| f as usize)),
                of_g.map(|f| f.map_or(0, |f| f as usize)),
                (others, h.ctx.0 as usize, h.tick_every),
            )
        };
        words(self) == words(other)
    }

    /// Calls a hook of a thread, if the hook is set.
    pub fn call(&self, hook: HookOfThread) {
        // SAFETY: the embedder has given the function for this argument.
        hook.inspect(|f| unsafe { f(self.ctx.0) });
    }

    /// Calls a hook of this goroutine, if the hook is set.
    pub fn call_for(&self, hook: HookOfG, g: GRef) {
        // SAFETY: the embedder has given the function for this argument.
        hook.inspect(|f| unsafe { f(self.ctx.0, g) });
    }
}

/// All hooks that were set while a runtime lived: an M may still have to call `thread_stop` of
/// hooks that were removed.
#[allow(clippy::vec_box, reason = "an M keeps a table's address while the list grows")]
static TABLES: Locked<Vec<Box<Hooks>>> = Locked::new(Vec::new());

/// The hooks that threads are to have now; null: none.
static CURRENT: AtomicPtr<Hooks> = AtomicPtr::new(ptr::null_mut());

/// Sets the hooks in place of the former hooks; `None` removes them. Each thread changes to the new
/// hooks when it next chooses a goroutine, or ends. Error: `-ENOMEM`.
pub fn set(hooks: Option<Hooks>) -> i32 {
    let new = match hooks.map(heap::boxed) {
        Some(None) => return -libc::ENOMEM,
        new => new.flatten(),
    };
    // Set with the lock held, because `ended` frees the tables that are not current.
    let is_set = TABLES.with(|all| {
        let table = table_of(all, new)?;
        // Release: pairs with the Acquire in `current`.
        CURRENT.store(table, Ordering::Release);
        Some(())
    });
    if is_set.is_none() {
        return -libc::ENOMEM;
    }
    if let Some(rt) = Visit::try_begin() {
        tell_all(&rt);
    }
    0
}

/// Finds or adds the table with these hooks; null for `None`. An old table with equal hooks is used
/// again, so setting and removing hooks again and again needs no more memory.
#[allow(clippy::vec_box, reason = "an M keeps a table's address while the list grows")]
fn table_of(all: &mut Vec<Box<Hooks>>, new: Option<Box<Hooks>>) -> Option<*mut Hooks> {
    let Some(new) = new else { return Some(ptr::null_mut()) };
    if let Some(old) = all.iter_mut().find(|old| old.is_like(&new)) {
        return Some(ptr::from_mut(&mut **old));
    }
    if !heap::reserve(all, 1) {
        return None;
    }
    all.push(new);
    all.last_mut().map(|table| ptr::from_mut(&mut **table))
}

/// Lets each thread of the runtime see that the hooks have changed: threads that run goroutines go
/// to g0, threads that sleep wake up.
fn tell_all(rt: &Runtime) {
    rt.ps().for_each(|p: PRef| requests::ask(p, TO_G0));
    rt.ms_that(|_| true).into_iter().for_each(start::nudge);
}

/// Frees the tables of hooks that were removed: the runtime has ended, so no thread has such hooks.
pub fn ended() {
    let take_old = || {
        TABLES.with(|all| {
            let current = CURRENT.load(Ordering::Relaxed).cast_const();
            let old = all.iter().position(|table| !ptr::eq(&raw const **table, current))?;
            Some(all.swap_remove(old))
        })
    };
    // Tables are freed without the lock.
    while let Some(old) = take_old() {
        drop(old);
    }
}

/// Locks the tables around a fork, so that the child does not find them locked.
pub fn lock_tables() {
    TABLES.lock();
}

/// Undoes [`lock_tables`].
///
/// # Safety
/// The calling thread holds the lock.
pub unsafe fn unlock_tables() {
    // SAFETY: the caller holds the lock.
    unsafe { TABLES.unlock() };
}

/// The hooks that a thread is to have.
#[inline(always)]
fn current() -> *const Hooks {
    // Acquire: pairs with the Release in `set`.
    CURRENT.load(Ordering::Acquire)
}

/// Whether an embedder has set hooks.
pub fn are_set() -> bool {
    !current().is_null()
}

/// The hooks of this M.
fn of(m: MRef) -> Option<&'static Hooks> {
    // SAFETY: `hooks` is null, or a table that stays as long as an M has it.
    unsafe { m.hooks.started_with.get().as_ref() }
}

/// Changes the M to the current hooks, on g0. The M of a goroutine that has stopped the world
/// changes later, because other goroutines may run during a change. [`world::start`] sends that M
/// to g0 again.
#[inline(always)]
pub fn follow(m: MRef) {
    if has_old(m) && !m.stops_world.get() {
        change(m, current());
    }
}

/// Whether an interpreter gives the frames of goroutines.
pub fn has_script_frames() -> bool {
    // SAFETY: as in `script_frames`.
    scripts::any() || unsafe { current().as_ref() }.is_some_and(|hooks| hooks.frames.is_some())
}

/// The frames that an interpreter has for a goroutine, the innermost first; as many as `room` has
/// place for: by the functions of `gs_add_frames`, else by the hook `frames`. The strings are valid
/// until the goroutine goes on or the function is called again.
///
/// The goroutine is the caller or what the caller is about to start, or the world is stopped.
/// Allocates nothing, and takes no lock.
pub fn script_frames(g: GRef, room: &mut [ScriptFrame]) -> &[ScriptFrame] {
    let added = scripts::frames(g, room).len();
    if added != 0 {
        return &room[..added];
    }
    // SAFETY: the current table stays as long as the runtime whose goroutine this is.
    let hooks = unsafe { current().as_ref() };
    let count = hooks.map_or(0, |hooks| {
        // SAFETY: the embedder has given the function for this argument; it writes as many frames
        // as there is room for.
        let call = |f: GivesFrames| unsafe { f(hooks.ctx.0, g, room.as_mut_ptr(), room.len()) };
        hooks.frames.map_or(0, call)
    });
    &room[..count.min(room.len())]
}

/// Whether the M's hooks differ from the current hooks.
#[inline(always)]
pub fn has_old(m: MRef) -> bool {
    m.hooks.started_with.get() != current()
}

#[cold]
#[inline(never)]
fn change(m: MRef, to: *const Hooks) {
    leave_entered(m);
    // A hook may block for long. No thread would be made while the M counted as between.
    m.set_between(false);
    if !m.p.get().is_null() {
        // The M may lose its P in a hook, so its tasks go back to the queues. The M doesn't spin
        // while it is in a hook, because sysmon takes P's from blocked M's only when no M spins.
        // The M looks for work afterwards, or the M that took its P does.
        ready::put_back_stash(m, m.p());
        if m.spinning.replace(false) {
            rt().idle.spin_ended();
        }
    }
    blocking::off_p(m, || {
        let counted = IN_THREAD_HOOKS.add();
        let to = if wait_for_shutdown() { to } else { ptr::null() };
        if let Some(old) = of(m) {
            call_or_end(old, old.thread_stop);
        }
        m.hooks.started_with.set(to);
        if let Some(new) = of(m) {
            let starting = STARTING.add();
            call_or_end(new, new.thread_start);
            STARTING.take(starting);
        }
        IN_THREAD_HOOKS.take(counted);
    });
    m.by_g0.set(
        m.by_g0.get() & !HOOKED | if m.hooks.started_with.get().is_null() { 0 } else { HOOKED },
    );
    m.hooks.is_busy.set(false);
}

/// Calls `thread_start` or `thread_stop`. If the hook has forked, this thread has no M in the
/// child: the process ends, as with its last thread.
fn call_or_end(hooks: &Hooks, hook: HookOfThread) {
    hooks.call(hook);
    if m::current().is_none() {
        thread::exit_process();
    }
}

/// Waits until no shutdown is under way, for an M that is counted in `IN_THREAD_HOOKS`. Returns
/// true if the hooks may call the library: the next shutdown waits until the M is counted out.
/// Returns false if the runtime ends, and its threads with it.
///
/// A shutdown keeps other threads out of the library, and waits for the runtime's threads. So it
/// would wait for ever for a thread that calls the library in a hook.
fn wait_for_shutdown() -> bool {
    let mut round = 0;
    // SeqCst: pairs with `Runtime::all_have_left`. Either this thread sees `CHANGING`, or the
    // shutdown sees the count, and clears `CHANGING`.
    while CHANGING.load(Ordering::SeqCst) {
        // Acquire: pairs with the store in `Runtime::end_threads`.
        if rt().exiting.load(Ordering::Acquire) {
            return false;
        }
        backoff(round);
        round += 1;
    }
    true
}

/// Removes the hooks of a thread that leaves the runtime.
pub fn stop(m: MRef) {
    if !m.hooks.started_with.get().is_null() {
        change(m, ptr::null());
    }
}

/// Calls the hooks for a goroutine, which the M owns and is about to switch to; on g0. Returns
/// false if the M has lost its P while a hook blocked: the goroutine comes back to this M with
/// another P.
pub fn enter(m: MRef, g: GRef) -> bool {
    if let Some(hooks) = of(m) {
        if !come_in(m, hooks, g) {
            return false;
        }
        count(m, hooks);
    }
    // Even if the hooks for which the goroutine was held are gone.
    if g.has(flags::HELD) {
        bound::release_held(m, g);
    }
    true
}

fn come_in(m: MRef, hooks: &Hooks, g: GRef) -> bool {
    if m.hooks.entered.get() == g.as_ptr().cast_const() {
        return true;
    }
    leave_entered(m);
    m.hooks.entered.set(g.as_ptr());
    m.hooks.is_busy.set(true);
    if hooks.switch_in.is_none() {
        return true;
    }
    g.set_status(Status::Runnable);
    blocking::off_p(m, || hooks.call_for(hooks.switch_in, g));
    if m.p.get().is_null() {
        wait_for_p(m, g);
        return false;
    }
    switch::assign(m.p(), g);
    true
}

/// Counts a switch to a goroutine, and calls `tick` if that is due.
fn count(m: MRef, hooks: &Hooks) {
    let n = m.hooks.ticks.get() + 1;
    m.hooks.ticks.set(n % hooks.tick_every);
    if n >= hooks.tick_every {
        hooks.call(hooks.tick);
    }
}

/// Queues a goroutine that has come in on an M without a P. Until it gets a P the goroutine belongs
/// to this M, as if pinned.
fn wait_for_p(m: MRef, g: GRef) {
    bound::hold(m, g);
    // SAFETY: on g0, and this M owns the goroutine.
    unsafe { queue_after_call(g.address()) };
}

/// Calls the hooks for a goroutine that has left its stack, and then its commit. On g0.
pub fn left(m: MRef, left: Left) {
    let (hooks, entered) = (of(m), m.hooks.entered.get());
    let inside = !m.blocking.get().is_null();
    // A goroutine that ran before there were hooks has not come in. A goroutine in `gs_blocking`
    // doesn't go out: its function runs on this thread.
    let Some(hooks) = hooks.filter(|_| !entered.is_null() && !inside) else {
        // SAFETY: the caller has switched.
        unsafe { left.settle() };
        return;
    };
    // SAFETY: the goroutine that has just been left, which this M owns until the commit.
    let from = unsafe { GRef::from_ptr(entered) };
    let ends = from.has(flags::ENDS);
    if !hand_over(m, hooks, from) {
        go_out(m, hooks, from);
    }
    if ends {
        hooks.call_for(hooks.dead, from);
    }
    // SAFETY: the caller has switched.
    unsafe { left.settle() };
}

/// Calls `switch_over` for the next goroutine, if the M can tell which that is; that goroutine is
/// then in the stash. Returns whether the goroutine that leaves needs no `switch_out`.
fn hand_over(m: MRef, hooks: &Hooks, from: GRef) -> bool {
    let Some(over) = hooks.switch_over else { return false };
    let Some(to) = switch::choose_early(m) else { return false };
    if to == from {
        // On a P that is alone the goroutine was published before it left, and may be its own
        // successor.
        return true;
    }
    // SAFETY: the embedder has given the function for this argument.
    let done = unsafe { over(hooks.ctx.0, from, to) };
    if done {
        m.hooks.entered.set(to.as_ptr());
    }
    done
}

fn go_out(m: MRef, hooks: &Hooks, g: GRef) {
    m.hooks.entered.set(ptr::null());
    hooks.call_for(hooks.switch_out, g);
}

/// Calls `switch_out` for a goroutine that has come in and will not run next on this M. On g0.
pub fn leave_entered(m: MRef) {
    let entered = m.hooks.entered.get();
    if let Some(hooks) = of(m)
        && !entered.is_null()
    {
        // SAFETY: the goroutine waits in this M's stash, or belongs to this M.
        go_out(m, hooks, unsafe { GRef::from_ptr(entered) });
    }
}

/// Calls the hook `idle` if it is due: the M is about to steal, to sleep or to give its P up. On
/// g0.
#[inline(always)]
pub fn idle(m: MRef) {
    if m.hooks.is_busy.get() && m.hooks.entered.get().is_null() {
        be_idle(m);
    }
}

#[cold]
#[inline(never)]
fn be_idle(m: MRef) {
    m.hooks.is_busy.set(false);
    if let Some(hooks) = of(m) {
        hooks.call(hooks.idle);
    }
}

/// Calls the hook `goexit` on the stack of a goroutine that ends, after everything else there. The
/// hook may switch, and so resume on another thread.
pub fn goexit(g: GRef) {
    if let Some(hooks) = m::current().and_then(of)
        && hooks.goexit.is_some()
    {
        boundary::outside(|| hooks.call_for(hooks.goexit, g));
    }
}

/// Resets the counts and calls the hook `fork_child`, on the only thread of a fork's child.
pub fn forked() {
    STARTING.forked();
    IN_THREAD_HOOKS.forked();
    // SAFETY: `current` gives null or a table, which stays.
    if let Some(hooks) = unsafe { current().as_ref() } {
        hooks.call(hooks.fork_child);
    }
}

/// Calls the hook `shutdown`: all goroutines have ended, and the threads end next.
pub fn shuts_down() {
    // SAFETY: `current` gives null or a table, which stays while there is a runtime.
    if let Some(hooks) = unsafe { current().as_ref() } {
        hooks.call(hooks.shutdown);
    }
}
