//! The first and the last moment of a goroutine.

use super::cancel;
use super::keys;
use crate::arch::{self, Place, sanitizer};
use crate::sched::core::blocking;
use crate::sched::core::boundary;
use crate::sched::core::gang;
use crate::sched::core::group;
use crate::sched::core::hooks;
use crate::sched::core::park::{Block, Cause, Parker, Why, ready_all};
use crate::sched::core::switch::{self, Left};
use crate::sched::core::timers;
use crate::sched::core::world;
use crate::sched::who::cxa;
use crate::sched::who::g::{G, GRef, Status, end, flags};
use crate::sched::who::m::{self, MRef};
use crate::sched::who::node::{Node, priority};
use crate::sched::who::p::{PRef, count};
use crate::sched::who::runtime::{self, Inside, Runtime, rt, try_rt};
use crate::sched::who::task::{GoFn, Kind, Newborn, Task};
use crate::sched::words::limits::{FREE_GS, NEWBORNS};
use core::ffi::c_void;
use core::iter;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;

/// For [`M::returns_to`](crate::sched::who::m::M::returns_to): no address, but not unknown.
const NOWHERE: usize = 1;
/// Ids that a P takes at once.
const ID_BATCH: u64 = 64;

/// Function and argument of the goroutine that begins on this stack now: two words, which
/// `arch` expects in registers. `arch::call_resumable` takes the second one for something
/// else, which costs a wrong prediction at most.
#[repr(C)]
pub struct Begin {
    f: GoFn,
    arg: *mut c_void,
}

/// The first thing that runs on a goroutine's stack.
///
/// # Safety
/// `arch::start` calls it with the words that the switch has given.
pub unsafe extern "C" fn goroutine_begin(first: usize, second: usize, third: usize) -> Begin {
    if sanitizer::is_on() {
        sanitizer::arrived(ptr::null_mut());
    }
    // SAFETY: `arch::start` passes on what the switch has given, and nothing has run since.
    let m = unsafe { Left::from_words([first, second, third]).settle() };
    begin(m)
}

/// The goroutine of this M begins.
#[inline(always)]
fn begin(m: MRef) -> Begin {
    switch::fresh_errno(m);
    let g = m.g();
    boundary::leave(m);
    Begin { f: g.f.get().expect("a goroutine has a function"), arg: g.arg.get() }
}

/// The function has returned. Comes back when another goroutine is to begin on
/// this stack.
pub extern "C" fn goroutine_end() -> Begin {
    let (_, m) = boundary::come_in(m_or_end());
    begin(end_current(m))
}

/// In the child of a fork that this goroutine made there is no M: it ends as the last
/// thread of a process does.
fn m_or_end() -> MRef {
    m::current().unwrap_or_else(|| crate::os::thread::exit_process())
}

/// Ends the running goroutine, which is on this M, from anywhere. Goexit.
pub fn exit_current(m: MRef) -> ! {
    let m = cxa::forget(m);
    if m.g().has(flags::ATTACHED) {
        // Its frames are the program's: there is nowhere to go on.
        crate::os::log::say(format_args!(
            "libgosched: gs_exit was called by a thread's own goroutine: see gs_attach\n"
        ));
        std::process::abort();
    }
    let stack = m.g().stack_of_running();
    if sanitizer::is_on() {
        sanitizer::abandon(stack.bounds());
    }
    let next = begin(end_current(m));
    // SAFETY: the frames above belong to a goroutine that has ended.
    unsafe { arch::restart(stack.top(), next.f, next.arg) }
}

/// Ends the running goroutine. Comes back when the next goroutine is a new one
/// that can have its stack; gives the M.
#[inline(always)]
fn end_current(mut m: MRef) -> MRef {
    let g = m.g();
    if g.syscall_depth.get() > 0 || !g.values.get().is_null() || m.by_g0.get() != 0 {
        m = tidy_up(g);
    }
    if g.shared.get() || g.flags.get() & flags::ENDS_SPECIALLY != 0 || m.by_g0.get() != 0 {
        end_special(m, g);
    }
    let mut here = Place::new();
    here.note_modes();
    let p = m.p();
    count(&p.ended, 1);
    if rt().watches_ends() {
        rt().one_ended(p);
    }
    let next = switch::next_direct(m, p);
    m.returns_to.set(NOWHERE);
    if let Some(Kind::Newborn(n)) = next.map(Task::kind)
        && g.stack_of_running().kind() == p.stack_kind
    {
        // Its stack is warm and at hand: no switch at all.
        // SAFETY: it came out of a queue.
        unsafe { begin_as(m, p, n, g) };
        if sanitizer::is_on() {
            sanitizer::leaving(g.stack_of_running().bounds(), true);
            sanitizer::arrived(ptr::null_mut());
        }
        // SAFETY: noted above.
        if unsafe { here.modes() } != rt().fp {
            rt().fp.load();
        }
        return m;
    }
    // SAFETY: the goroutine has ended, and is this M's until it is left.
    unsafe { switch::leave_for(m, g, commit_end, next, &mut here) }
}

/// What the goroutine has left undone; gives the M.
#[cold]
#[inline(never)]
fn tidy_up(g: GRef) -> MRef {
    // It has forgotten to leave a system call.
    while g.syscall_depth.get() > 0 && blocking::exit() == 0 {}
    if !g.values.get().is_null() {
        keys::run_destructors(g);
    }
    hooks::goexit(g);
    m_or_end()
}

/// Ends the running goroutine, that of an attached thread. Returns when g0 resumes the context that is
/// left in `*save`: the thread is no M any more.
///
/// # Safety
/// On the thread's own stack; `save` stays until then.
pub unsafe fn end_attached(m: MRef, save: *mut usize) {
    let m = tidy_up(m.g());
    let g = m.g();
    let next = end_specially(m, g);
    let mut here = Place::new();
    here.note_modes();
    // SAFETY: the goroutine has ended, and is this M's until it is left.
    unsafe { switch::leave_thread_for(m, g, commit_special_end, next, save, &mut here) };
}

/// The end of a goroutine to which there are references, of `gs_run`'s, of a goroutine that
/// has a thread of its own, and of a goroutine whose parts go to different nodes.
#[cold]
#[inline(never)]
fn end_special(m: MRef, g: GRef) -> ! {
    let next = end_specially(m, g);
    let mut here = Place::new();
    here.note_modes();
    // SAFETY: the goroutine has ended, and is this M's until it is left.
    unsafe { switch::leave_for(m, g, commit_special_end, next, &mut here) }
}

/// Undoes what the goroutine is to its M, its gang and its group; gives the task that runs next.
fn end_specially(m: MRef, g: GRef) -> Option<Task> {
    if g.has(flags::PINNED) {
        count_pinned(m, -1);
    }
    cancel::forget(g);
    if g.has(flags::TIMER) {
        timers::call_ends(g);
    }
    if g.lock_depth.get() > 0 {
        g.lock_depth.set(0);
        super::lock_thread::remove_lock(m);
        if !m.is_runner() && !m.is_locked() && m.pinned_here.load(Ordering::Relaxed) == 0 {
            // Whatever it did to its thread ends with it.
            m.ended.store(true, Ordering::Relaxed);
        }
    }
    gang::leave(rt(), g);
    group::one_ended(g);
    g.set_flag(flags::ENDS, true);
    count(&m.p().ended, 1);
    if rt().watches_ends() {
        rt().one_ended(m.p());
    }
    if m.ended.load(Ordering::Relaxed) || switch::is_wanted_back(m) {
        // Not a direct switch: this thread runs nothing any more, or may go back now.
        world::ask(m.p(), world::LOOK);
    }
    switch::successor(m)
}

/// Frees the descriptor and the stack that have just been left.
///
/// # Safety
/// On an M's thread. `g` is the address of a goroutine of the caller's that has ended.
unsafe fn commit_end(g: usize) {
    // SAFETY: the address of a goroutine, as the caller says; the switch was on an M's thread.
    let (m, g) = unsafe { (m::must_current(), GRef::at(g)) };
    recycle(g);
    keep(m.p(), g);
}

/// # Safety
/// As `commit_end`.
unsafe fn commit_special_end(g: usize) {
    // SAFETY: the address of a goroutine, as the caller says; the switch was on an M's thread.
    let (m, g) = unsafe { (m::must_current(), GRef::at(g)) };
    let root = g.has(flags::ROOT);
    let runner = g.runner.get();
    if g.shared.get() {
        // The stack goes, the descriptor stays for those who have references.
        if let Some(stack) = g.stack.take() {
            rt().nodes[stack.home()].stacks.put(stack);
        }
        g.set_status(Status::Dead);
        // SAFETY: `joiners` is used with the lock held.
        let joiners = g.lock.with(|| unsafe {
            // Release: pairs with the Acquire in `has_ended`.
            g.end.store(end::DONE, Ordering::Release);
            (*g.joiners.get()).pop_all()
        });
        // SAFETY: the list is ours.
        unsafe { ready_all(joiners) };
        release(g);
    } else {
        recycle(g);
        if g.has(flags::FOREIGN) {
            take_apart(m.p(), g);
        } else {
            keep(m.p(), g);
        }
    }
    if root {
        // SAFETY: `gs_run` has set the runner of its root, and M's stay mapped.
        super::run::root_ended(unsafe { MRef::from_ptr(runner) });
    }
}

/// Resets what the next goroutine with this descriptor must not see.
#[inline(always)]
fn recycle(g: GRef) {
    g.set_status(Status::Dead);
    g.id.store(0, Ordering::Relaxed);
    g.f.set(None);
    g.preempt_off.store(0, Ordering::Relaxed);
    g.long_calls.set(0);
}

/// Resets the rest, of one that others had pointers to.
fn recycle_shared(g: GRef) {
    recycle(g);
    g.shared.set(false);
    g.cancelled.store(false, Ordering::Relaxed);
    g.end.store(0, Ordering::Relaxed);
    g.flags.set(0);
    g.lock_depth.set(0);
    let name = g.name.swap(ptr::null_mut(), Ordering::Relaxed);
    if !name.is_null() {
        // SAFETY: it was made by `CString::into_raw`.
        drop(unsafe { std::ffi::CString::from_raw(name) });
    }
}

/// Gives a reference back; the last one frees the descriptor.
pub fn release(g: GRef) {
    // First: a shutdown unmaps the descriptor's memory once it has no reference.
    let _inside = switch::with_p().is_none().then(Inside::enter_if_there);
    let others = |refs: u32| (refs > 1).then_some(refs - 1);
    // AcqRel: who frees it comes after all others' uses.
    if g.refs.fetch_update(Ordering::AcqRel, Ordering::Acquire, others).is_ok() {
        return;
    }
    // The last reference is ours, so there can be no new one. It keeps the memory.
    recycle_shared(g);
    match try_rt() {
        Some(rt) if runtime::owns(g) => {
            g.refs.store(0, Ordering::Relaxed);
            rt.nodes[g.home.get() as usize].gs.put(g.as_non_null());
        }
        _ => runtime::orphan_released(g),
    }
}

/// Keeps a descriptor with its stack for the next goroutine: here, or in the
/// node, or taken apart when the stack is of an unusual size. What belongs to
/// another node goes back there. seed: N9
#[inline(always)]
fn keep(p: PRef, g: GRef) {
    if g.stack_of_running().kind() == p.stack_kind && !p.free_gs.is_full() {
        p.free_gs.push(g.as_non_null());
    } else {
        keep_in_node(p, g);
    }
}

#[cold]
#[inline(never)]
fn keep_in_node(p: PRef, g: GRef) {
    let (rt, stack) = (rt(), g.stack_of_running());
    if stack.class() != rt.stack_class || stack.home() != stack.node() as usize {
        return take_apart(p, g);
    }
    if stack.node() != p.node {
        count(&p.stats.stacks_sent_home, 1);
        return keep_one_in_node(&rt.nodes[stack.home()], g);
    }
    let node = p.of_node();
    // First, as in `keep_one_in_node`.
    node.with_stack.added(FREE_GS / 2);
    node.gs_with_stack.take_back(&p.free_gs, FREE_GS / 2);
    p.free_gs.push(g.as_non_null());
}

/// Descriptor and stack go back each to its own node.
#[cold]
fn take_apart(p: PRef, g: GRef) {
    let (rt, stack) = (rt(), g.stack_of_running());
    if stack.home() != p.node as usize {
        count(&p.stats.stacks_sent_home, 1);
    }
    g.stack.set(None);
    rt.nodes[stack.home()].stacks.put(stack);
    rt.nodes[g.home.get() as usize].gs.put(g.as_non_null());
}

fn keep_one_in_node(node: &Node, g: GRef) {
    // First, so that nobody has taken more than there are.
    node.with_stack.added(1);
    node.gs_with_stack.put(g.as_non_null());
}

/// Up to `most` of the descriptors that a node keeps, and that are a surplus, lose their
/// stacks, which give their memory back. Gives how many did.
pub fn trim(rt: &Runtime, node: &Node, most: usize) -> usize {
    let surplus = node.with_stack.take_surplus(most);
    // Here, and not with the pool's lock held.
    let mut some = Vec::with_capacity(surplus);
    let n = take_with_stack(node, surplus, |g| some.push(g));
    node.stacks.put_cold(some.into_iter().filter_map(|g| {
        // SAFETY: the pool holds descriptors.
        let g = unsafe { GRef::from_non_null(g) };
        let stack = g.stack.take();
        rt.nodes[g.home.get() as usize].gs.put(g.as_non_null());
        let stack = stack?;
        if stack.home() != node.id {
            // It has moved here, and goes back by itself.
            rt.nodes[stack.home()].stacks.put_cold(iter::once(stack));
            return None;
        }
        Some(stack)
    }));
    n
}

/// Moves up to `most` of the descriptors with a stack that a node keeps. Gives how many
/// there were.
fn take_with_stack(node: &Node, most: usize, to: impl FnMut(NonNull<G>)) -> usize {
    let n = node.gs_with_stack.give_existing(most, to);
    node.with_stack.taken(n);
    n
}

/// Everything a P keeps goes to its node: the P is about to end.
pub fn flush_caches(p: PRef, node: &Node) {
    while let Some(g) = p.free_gs.pop() {
        // SAFETY: the cache holds descriptors.
        keep_one_in_node(node, unsafe { GRef::from_non_null(g) });
    }
    node.newborns.take_back(&p.newborns, usize::MAX);
}

/// A free descriptor with a stack of the default size: the P's, the node's or a
/// new one. `None`: no memory.
pub fn descriptor(p: PRef) -> Option<GRef> {
    // SAFETY: the cache holds descriptors.
    let cached = || p.free_gs.pop().map(|g| unsafe { GRef::from_non_null(g) });
    if let Some(g) = cached() {
        return Some(g);
    }
    let node = p.of_node();
    if node.with_stack.len() > 0 {
        take_with_stack(node, FREE_GS / 4, |g| p.free_gs.push(g));
        if let Some(g) = cached() {
            return Some(g);
        }
    }
    // SAFETY: the pool holds descriptors.
    let g = unsafe { GRef::from_non_null(node.gs.get()?) };
    g.home.set(node.id as u16);
    let Some(stack) = node.stacks.get(rt().stack_class) else {
        node.gs.put(g.as_non_null());
        return None;
    };
    g.stack.set(Some(stack));
    Some(g)
}

/// The newborn takes this descriptor and stack, as a context that can be
/// switched to.
///
/// # Safety
/// As for [`begin_as`].
#[inline(always)]
pub unsafe fn begin_on(m: MRef, p: PRef, newborn: NonNull<Newborn>, g: GRef) {
    // SAFETY: the record is the caller's.
    unsafe { begin_as(m, p, newborn, g) };
    g.fiber.begin_anew();
    // SAFETY: the stack is the goroutine's and nothing is on it.
    g.context
        .store(unsafe { arch::prepare(g.stack_of_running().top(), rt().fp) }, Ordering::Relaxed);
}

/// Gives an unborn goroutine a stack, so that it can be switched to; `None`: no
/// memory. A pinned one stays on this thread from now on.
pub fn equip(m: MRef, g: GRef) -> Option<()> {
    let class = g.stack_class.get().unwrap_or(rt().stack_class);
    let p = m.p();
    let stack = p.of_node().stacks.get(class)?;
    g.stack.set(Some(stack));
    g.fiber.begin_anew();
    // SAFETY: the stack is the goroutine's and nothing is on it.
    g.context.store(unsafe { arch::prepare(stack.top(), rt().fp) }, Ordering::Relaxed);
    g.set_flag(flags::UNBORN, false);
    g.set_flag(flags::FOREIGN, usize::from(g.home.get()) != stack.home());
    if g.has(flags::PINNED) {
        count_pinned(m, 1);
        group::begun(g);
        g.set_flag(flags::BOUND, true);
        g.bound_m.set(m.as_ptr());
    }
    Some(())
}

/// One more goroutine is pinned to the M, or one less.
pub fn count_pinned(m: MRef, change: i32) {
    let now = m.pinned_here.load(Ordering::Relaxed).wrapping_add_signed(change);
    m.pinned_here.store(now, Ordering::Relaxed);
}

/// The newborn becomes a goroutine; its record is free again.
///
/// # Safety
/// The caller has taken the newborn out of a queue.
#[inline(always)]
unsafe fn begin_as(m: MRef, p: PRef, newborn: NonNull<Newborn>, g: GRef) {
    // SAFETY: the record is ours: it came out of a queue.
    let n = unsafe { newborn.as_ref() };
    g.f.set(n.f.replace(None));
    g.arg.set(n.arg.get());
    g.pc.set(n.pc.get());
    g.creator.set(n.creator.get());
    g.flags.set(0);
    g.priority.set(priority::NORMAL);
    g.data.store(ptr::null_mut(), Ordering::Relaxed);
    g.id.store(next_id(p), Ordering::Relaxed);
    switch::assign(m, p, g);
    if p.newborns.is_full() {
        p.of_node().newborns.take_back(&p.newborns, NEWBORNS / 2);
    }
    p.newborns.push(newborn);
}

/// Each goroutine has an id of its own, counted from 1.
#[inline(always)]
pub fn next_id(p: PRef) -> u64 {
    let (mut next, mut end) = p.ids.get();
    if next == end {
        next = rt().take_ids(ID_BATCH);
        end = next + ID_BATCH;
    }
    p.ids.set((next + 1, end));
    next
}

/// A free newborn record; `None`: no memory.
#[inline(always)]
pub fn newborn(p: PRef) -> Option<NonNull<Newborn>> {
    if p.newborns.is_empty() {
        p.of_node().newborns.refill(&p.newborns, NEWBORNS / 2);
    }
    p.newborns.pop()
}

/// Whether the goroutine has ended; what it did is visible then.
pub fn has_ended(g: GRef) -> bool {
    // Acquire: pairs with the Release at the end.
    g.end.load(Ordering::Acquire) & end::DONE != 0
}

/// Waits for the end of a goroutine that the caller has a reference to.
pub fn join(g: GRef, deadline: i64) -> i32 {
    if has_ended(g) {
        return 0;
    }
    if switch::current_g() == Some(g) {
        return -libc::EDEADLK;
    }
    let thread = Parker::for_thread();
    g.lock.lock();
    if has_ended(g) {
        g.lock.unlock();
        return 0;
    }
    let block = match Block::begin(&thread, deadline, false, Why::Join) {
        Ok(block) => block,
        Err(e) => {
            g.lock.unlock();
            return e;
        }
    };
    let waiter = block.waiter();
    // SAFETY: `joiners` is used with the lock held; the waiter stays until it is
    // out of the queue.
    unsafe {
        (*g.joiners.get()).push(&waiter);
        let cause = block.park(unlock_g, g.as_ptr() as usize);
        if cause != Cause::Woken {
            g.lock.with(|| (*g.joiners.get()).remove(&waiter));
        }
        cause.errno()
    }
}

/// # Safety
/// `g` is the address of a descriptor whose lock the caller holds.
unsafe fn unlock_g(g: usize) {
    // SAFETY: a descriptor, which stays mapped; the caller holds its lock.
    unsafe { (*(g as *const G)).lock.unlock() };
}
