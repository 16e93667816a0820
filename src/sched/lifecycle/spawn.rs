//! Spawning goroutines.

use crate::os::heap;
use crate::sched::ext::gang;
use crate::sched::ext::gang::state::Gang;
use crate::sched::run::group::{self, Group};
use crate::sched::run::{ordered, ready, stacks, traced};
use crate::sched::types::course::Happened;
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::m::{self, MRef};
use crate::sched::types::node::priority;
use crate::sched::types::p::count;
use crate::sched::types::runtime::{Guest, Runtime, rt};
use crate::sched::types::task::{GoFn, Newborn, Task};
use crate::stack::SizeClass;
use crate::trace;
use core::ffi::{CStr, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{Ordering, fence};
use std::ffi::CString;

/// The options of [`spawn_with`].
pub struct Options<'a> {
    pub name: Option<&'a CStr>,
    /// `None`: the default.
    pub stack: Option<SizeClass>,
    pub priority: i8,
    pub gang: Option<&'static Gang>,
    /// The group on whose threads the goroutine begins, and stays pinned.
    pub workers: Option<&'static Group>,
    /// A node in this process's numbering; `None`: any.
    pub node: Option<usize>,
    /// Flags of [`flags::PUBLIC`].
    pub flags: u32,
    /// The embedder's word: see `gs_data`.
    pub data: *mut c_void,
    /// Whether the caller wants a reference.
    pub referenced: bool,
}

impl Options<'_> {
    /// The options of [`spawn`].
    pub const DEFAULT: Options<'static> = Options {
        name: None,
        stack: None,
        priority: priority::NORMAL,
        gang: None,
        workers: None,
        node: None,
        flags: 0,
        data: ptr::null_mut(),
        referenced: false,
    };
}

/// Spawns `f(arg)`. `pc`: the return address of the call, for reports. Another P may steal the
/// goroutine at once; with one P it runs when the caller parks. `-ENOMEM`: there is no memory. Go's
/// `go f(arg)`.
#[inline(always)]
pub fn spawn(f: GoFn, arg: *mut c_void, pc: usize) -> i32 {
    spawn_on(m::current(), f, arg, pc)
}

/// [`spawn`] for a caller that knows the M of this thread.
#[inline(always)]
pub fn spawn_on(m: Option<MRef>, f: GoFn, arg: *mut c_void, pc: usize) -> i32 {
    let Some(m) = m.filter(|m| !m.p.get().is_null()) else {
        return spawn_from_outside(f, arg, pc);
    };
    let p = m.p();
    if p.spawns_carefully.get() {
        return spawn_carefully(m, f, arg, pc);
    }
    let Some(n) = stacks::newborn(p) else { return -libc::ENOMEM };
    // SAFETY: `curg` is null or a descriptor.
    let spawner = unsafe { GRef::from_nullable(m.curg.get()) };
    fill(n, f, arg, pc, id_of(spawner));
    count(&p.created, 1);
    if spawns_roots(spawner) {
        ready::push_root(Task::newborn(n));
    } else {
        ready::push_private(p, Task::newborn(n));
    }
    0
}

/// [`spawn_on`] on a P with something unusual: events are traced, goroutines go to other P's, or the
/// run is ordered.
#[cold]
#[inline(never)]
fn spawn_carefully(m: MRef, f: GoFn, arg: *mut c_void, pc: usize) -> i32 {
    let p = m.p();
    if trace::is_on() || m.course().is_some() {
        // Traces and ordered runs name the goroutine from the spawn on, so it needs a number, and a
        // descriptor.
        return spawn_with(f, arg, pc, &Options::DEFAULT).map_or_else(|e| e, |_| 0);
    }
    p.spawns_carefully.set(p.migrates || m.course().is_some());
    let Some(n) = stacks::newborn(p) else { return -libc::ENOMEM };
    let spawner = m::current_g();
    fill(n, f, arg, pc, id_of(spawner));
    count(&p.created, 1);
    if p.migrates {
        ready::push_global(Task::newborn(n), priority::NORMAL);
    } else if spawns_roots(spawner) {
        ready::push_root(Task::newborn(n));
    } else {
        ready::push_private(p, Task::newborn(n));
    }
    0
}

/// Whether this goroutine accepts connections: the goroutines that it spawns don't belong to its P.
/// seed: N7
#[inline(always)]
fn spawns_roots(g: Option<GRef>) -> bool {
    g.is_some_and(|g| g.has(flags::ACCEPTS))
}

/// The id of the goroutine that spawns; 0: a plain thread, or the runtime.
#[inline(always)]
fn id_of(spawner: Option<GRef>) -> u64 {
    spawner.map_or(0, |g| g.id.load(Ordering::Relaxed))
}

fn fill(n: NonNull<Newborn>, f: GoFn, arg: *mut c_void, pc: usize, creator: u64) {
    // SAFETY: the caller has taken the record from a pool or a cache, and no queue has it yet.
    let n = unsafe { n.as_ref() };
    n.arg.set(arg);
    n.pc.set(pc);
    n.creator.set(creator);
    // Pairs with the fence in `embed::for_each_newborn`, which shows the records that have a
    // function: a thread that sees the function sees what was set before.
    fence(Ordering::Release);
    n.f.set(Some(f));
}

/// Spawns from a plain thread, through a global queue.
#[cold]
#[inline(never)]
fn spawn_from_outside(f: GoFn, arg: *mut c_void, pc: usize) -> i32 {
    if ordered::current_bubble().is_some() {
        return spawn_with(f, arg, pc, &Options::DEFAULT).map_or_else(|e| e, |_| 0);
    }
    let _inside = match Guest::enter() {
        Ok(inside) => inside,
        Err(e) => return e,
    };
    let rt = rt();
    let Some(n) = stacks::newborn_from_outside(rt, rt.any_node()) else { return -libc::ENOMEM };
    fill(n, f, arg, pc, id_of(m::current_g()));
    rt.created_without_p.fetch_add(1, Ordering::Relaxed);
    ready::push_global(Task::newborn(n), priority::NORMAL);
    0
}

/// Spawns `f(arg)` with options; returns the descriptor, with a reference for the caller if it
/// wants one. `-EINVAL`: there is no such node; `-ENOMEM`.
pub fn spawn_with(f: GoFn, arg: *mut c_void, pc: usize, options: &Options) -> Result<GRef, i32> {
    let m = m::current();
    if let Some(m) = m.filter(|m| m.is_ordered())
        && m.bubble().is_some()
    {
        return spawn_in_bubble(m, f, arg, pc, options);
    }
    let m = m.filter(|m| !m.p.get().is_null());
    let _inside = Guest::enter_or_start()?;
    let p = m.map(|m| m.p());
    let rt = p.map_or_else(rt, |p| p.rt());
    if options.node.is_some_and(|n| n >= rt.nodes.len()) {
        return Err(-libc::EINVAL);
    }
    let node = options.node.or(p.map(|p| p.node as usize)).unwrap_or_else(|| rt.any_node());
    let g = create(rt, f, arg, pc, options, node)?;
    match p {
        Some(p) => count(&p.created, 1),
        None => drop(rt.created_without_p.fetch_add(1, Ordering::Relaxed)),
    }
    if trace::is_on() {
        traced::creates(m, g);
    }
    submit(rt, m, g, options, node);
    Ok(g)
}

/// [`spawn_with`] in the bubble that this M runs. All goroutines of a bubble share one thread and one
/// queue, so node, gang, worker group and priority have no effect.
#[cold]
#[inline(never)]
pub fn spawn_in_bubble(
    m: MRef,
    f: GoFn,
    arg: *mut c_void,
    pc: usize,
    options: &Options,
) -> Result<GRef, i32> {
    let rt = rt();
    if options.node.is_some_and(|n| n >= rt.nodes.len()) {
        return Err(-libc::EINVAL);
    }
    let Some((course, bubble)) = m.course().and_then(|c| Some((c, c.bubble.as_ref()?))) else {
        return Err(-libc::EPERM);
    };
    let flags = options.flags & !flags::PINNED;
    let options = Options {
        name: options.name,
        stack: options.stack,
        flags,
        data: options.data,
        referenced: options.referenced,
        ..Options::DEFAULT
    };
    // Descriptors and stacks come from pools, which may have some or not.
    if heap::is_refused() {
        return Err(-libc::ENOMEM);
    }
    let g = create(rt, f, arg, pc, &options, 0)?;
    g.id.store(bubble.take_id(), Ordering::Relaxed);
    g.bound_m.set(m.as_ptr());
    // Pairs with the fence in `is_in_bubble_of`. The descriptor may have been in another bubble, whose
    // end must not take the goroutine for one of its own.
    fence(Ordering::Release);
    g.flags.set(g.flags.get() | flags::BUBBLE);
    count(&bubble.p.created, 1);
    let by = m::current_g().map_or(0, |g| g.id.load(Ordering::Relaxed));
    course.log(by, Happened::Spawns { id: g.id.load(Ordering::Relaxed), function: f as usize });
    course.ready.borrow_mut().push_back(Task::goroutine(g));
    Ok(g)
}

/// Makes an unborn goroutine, which is not yet counted or queued.
fn create(
    rt: &Runtime,
    f: GoFn,
    arg: *mut c_void,
    pc: usize,
    options: &Options,
    node: usize,
) -> Result<GRef, i32> {
    let name = match options.name {
        Some(name) => heap::c_string(name).ok_or(-libc::ENOMEM)?.into_raw(),
        None => ptr::null_mut(),
    };
    let Some(g) = rt.nodes[node].gs.get() else {
        // SAFETY: null, or made by `into_raw` just now.
        drop((!name.is_null()).then(|| unsafe { CString::from_raw(name) }));
        return Err(-libc::ENOMEM);
    };
    // SAFETY: the pool holds descriptors.
    let g = unsafe { GRef::from_non_null(g) };
    g.home.set(node as u16);
    g.f.set(Some(f));
    g.arg.set(arg);
    g.pc.set(pc);
    g.creator.set(id_of(m::current_g()));
    g.id.store(rt.take_ids(1), Ordering::Relaxed);
    g.priority.set(options.priority);
    // A goroutine pinned to a thread that `gs_run` has borrowed would keep that thread.
    let avoids = options.flags & flags::PINNED != 0 && options.workers.is_none();
    let avoid = if avoids { flags::AVOID_RUNNER } else { 0 };
    g.flags.set(options.flags | flags::UNBORN | avoid);
    // 0: see `Task::has_run`.
    g.context.store(0, Ordering::Relaxed);
    g.stack_class.set(options.stack);
    g.data.store(options.data, Ordering::Relaxed);
    g.last_p.set(u16::MAX);
    g.trace.reset();
    // Pairs with the fence in `Runtime::for_each_g`: a thread that has stopped the world, and
    // visits the goroutine while a plain thread spawns it, sees what is written above.
    fence(Ordering::Release);
    g.set_status(Status::Runnable);
    if !name.is_null() {
        g.name.store(name, Ordering::Relaxed);
    }
    if let Some(gang) = options.gang {
        gang::join(rt, gang, g);
    }
    if let Some(workers) = options.workers {
        group::spawned(g, workers);
    }
    // A goroutine with a name or a gang must be `shared`, so that it ends by `end_special`, which
    // frees the name and leaves the gang.
    if options.referenced || options.name.is_some() || options.gang.is_some() {
        be_shared(rt, g, 1 + u32::from(options.referenced));
    }
    Ok(g)
}

/// Queues a new goroutine where its options want it.
fn submit(rt: &Runtime, m: Option<MRef>, g: GRef, options: &Options, node: usize) {
    let task = Task::goroutine(g);
    if options.workers.is_some() {
        return group::submit(m, g);
    }
    match m {
        Some(m)
            if options.node.is_none()
                && g.priority.get() == priority::NORMAL
                && !m.p().migrates =>
        {
            if spawns_roots(m::current_g()) {
                ready::push_root(task);
            } else {
                ready::push_private(m.p(), task);
            }
        }
        _ if options.node.is_some() => ready::push_to_node(node, task, g.priority.get()),
        _ => rt.push(node, task, g.priority.get()),
    }
}

/// Makes the goroutine that runs `gs_run`'s function; for [`super::run`].
pub fn create_root(f: GoFn, arg: *mut c_void, pc: usize) -> Result<GRef, i32> {
    let rt = rt();
    let options = Options { flags: flags::ROOT, ..Options::DEFAULT };
    let g = create(rt, f, arg, pc, &options, rt.any_node())?;
    rt.created_without_p.fetch_add(1, Ordering::Relaxed);
    Ok(g)
}

/// Shares the goroutine, whose pointer the user is about to get: from now on all its waits are
/// claimed. Called by the goroutine itself, or before it first runs.
pub fn share(g: GRef) {
    if !g.shared.get() {
        be_shared(rt(), g, 1);
    }
}

/// Marks the goroutine as shared, with `refs` references.
fn be_shared(rt: &Runtime, g: GRef, refs: u32) {
    g.runtime.set(rt.number);
    g.refs.store(refs, Ordering::Relaxed);
    g.shared.set(true);
}
