//! How a goroutine begins and ends.

use super::{cancel, keys, orphans, timer_calls};
use crate::arch::{self, Begin, Place, sanitizer};
use crate::sched::ext::{exceptions, gang, hooks};
use crate::sched::run::park::{Block, ready_all, unlock};
use crate::sched::run::stacks::{begin_as, keep, take_apart};
use crate::sched::run::switch::{self, Left};
use crate::sched::run::{group, order, requests};
use crate::sched::take::{boundary, call};
use crate::sched::types::attention;
use crate::sched::types::g::{GRef, Status, end, flags};
use crate::sched::types::m::{self, MRef, count_pinned};
use crate::sched::types::runtime::{Visit, rt};
use crate::sched::types::task::{Task, TaskKind};
use crate::sched::types::waiter::{Cause, Parker, Why};
use crate::trace;
use core::ptr;
use core::sync::atomic::Ordering;

/// The value of [`M::returns_to`](crate::sched::types::m::M::returns_to) after a goroutine's end:
/// no return address equals it, and 0 stands for unknown.
const NOWHERE: usize = 1;

/// The first function on a goroutine's stack.
///
/// # Safety
/// Only `arch::start` calls this, with the words that the switch has given.
pub unsafe extern "C" fn goroutine_begin(first: usize, second: usize, third: usize) -> Begin {
    if sanitizer::is_on() {
        sanitizer::arrived(ptr::null_mut());
    }
    // SAFETY: `arch::start` passes on what the switch has given, and nothing has run since.
    let m = unsafe { Left::from_words([first, second, third]).settle() };
    begin(m)
}

/// Begins the goroutine of this M: returns its function and argument.
#[inline(always)]
fn begin(m: MRef) -> Begin {
    switch::fresh_errno(m);
    // SAFETY: the switch to the goroutine has set `curg`.
    let g = unsafe { m.must_g() };
    boundary::leave(m);
    Begin { f: g.f.get().expect("a goroutine has a function"), arg: g.arg.get() }
}

/// Ends the goroutine whose function has returned. Returns when another goroutine begins on this
/// stack.
pub extern "C" fn goroutine_end() -> Begin {
    let (_, m) = boundary::come_in(m_or_end());
    begin(end_current(m))
}

/// The M of this thread. In the child of a fork by this goroutine there is no M: the process ends,
/// as with its last thread.
fn m_or_end() -> MRef {
    m::current().unwrap_or_else(|| crate::os::thread::exit_process())
}

/// Ends the running goroutine, which is on this M, from anywhere. Go's `Goexit`.
pub fn exit_current(m: MRef) -> ! {
    let m = exceptions::forget(m);
    if m.g().has(flags::ATTACHED) {
        // The stack is the attached thread's, so there is nowhere to go on.
        trace::flight_write_at_end();
        crate::os::log::say(format_args!(
            "gosched: gs_exit was called in a goroutine that gs_attach made of a thread; gs_detach ends it"
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

/// Ends the running goroutine. Returns, with the M, only if the next goroutine is a newborn that
/// gets this stack.
#[inline(always)]
fn end_current(mut m: MRef) -> MRef {
    // SAFETY: the goroutine that ends calls this.
    let g = unsafe { m.must_g() };
    if g.syscall_depth.get() > 0 || !g.values.get().is_null() || m.by_g0.get() != 0 {
        m = tidy_up(g);
    }
    if g.shared.get() || g.flags.get() & flags::ENDS_SPECIALLY != 0 || m.by_g0.get() != 0 {
        end_special(m, g);
    }
    let mut here = Place::new();
    here.note_modes();
    // SAFETY: the goroutine has had a P since it entered the library.
    let p = unsafe { m.must_p() };
    p.count_end();
    if p.rt().watches_ends() {
        p.rt().goroutine_ended(p);
    }
    let next = order::next_direct(m, p);
    m.returns_to.set(NOWHERE);
    if let Some(TaskKind::Newborn(n)) = next.as_ref().map(Task::kind)
        && g.stack_of_running().kind() == p.stack_kind
    {
        // The newborn gets this stack, which is warm: no switch at all.
        // SAFETY: the newborn came out of a queue, so this M owns it.
        unsafe { begin_as(p, n, g) };
        if sanitizer::is_on() {
            sanitizer::leaving(g.stack_of_running().bounds(), true);
            sanitizer::arrived(ptr::null_mut());
        }
        // SAFETY: `note_modes` has been called, above.
        if unsafe { here.modes() } != p.rt().fp {
            p.rt().fp.load();
        }
        return m;
    }
    // SAFETY: the goroutine has ended, and is this M's until it is left.
    unsafe { switch::leave_for(m, g, commit_end, next, &mut here) }
}

/// Ends the system calls that the goroutine has left open, and runs its destructors and the hook
/// `goexit`. Returns the M.
#[cold]
#[inline(never)]
fn tidy_up(g: GRef) -> MRef {
    // The goroutine, a destructor or the hook may have forgotten to leave a system call.
    let leave_calls = || while g.syscall_depth.get() > 0 && call::exit() == 0 {};
    leave_calls();
    if !g.values.get().is_null() {
        keys::run_destructors(g);
        leave_calls();
    }
    hooks::goexit(g);
    leave_calls();
    m_or_end()
}

/// Ends the running goroutine, an attached thread's. Returns when g0 resumes the context saved in
/// `*save`; the thread is then no M any more.
///
/// # Safety
/// The caller is on the thread's own stack; `save` stays valid until this returns.
pub unsafe fn end_attached(m: MRef, save: *mut usize) {
    let m = tidy_up(m.g());
    let g = m.g();
    let next = end_specially(m, g);
    let mut here = Place::new();
    here.note_modes();
    // SAFETY: the goroutine has ended, and is this M's until it is left.
    unsafe { switch::leave_thread_for(m, g, commit_special_end, next, save, &mut here) };
}

/// Ends a goroutine that is shared (`G::shared`), has a flag of [`flags::ENDS_SPECIALLY`], or whose
/// M must go to g0 for each goroutine (`M::by_g0`).
#[cold]
#[inline(never)]
fn end_special(m: MRef, g: GRef) -> ! {
    let next = end_specially(m, g);
    let mut here = Place::new();
    here.note_modes();
    // SAFETY: the goroutine has ended, and is this M's until it is left.
    unsafe { switch::leave_for(m, g, commit_special_end, next, &mut here) }
}

/// Ends the goroutine's ties to its M, its gang and its group; returns the task that runs next.
fn end_specially(m: MRef, g: GRef) -> Option<Task> {
    if g.has(flags::PINNED) {
        count_pinned(m, -1);
    }
    cancel::forget(g);
    if g.has(flags::FOUND_NO_HOST) {
        g.last_error.set(0);
    }
    if g.has(flags::TIMER) {
        timer_calls::call_ends(g);
    }
    if g.lock_depth.replace(0) > 0 && !g.has(flags::BUBBLE) {
        super::lock_thread::remove_lock(m);
        if !m.is_runner() && !m.is_locked() && m.pinned() == 0 {
            // The thread ends, and with it what the goroutine changed in the thread.
            m.leaves.store(true, Ordering::Relaxed);
        }
    }
    let p = m.p();
    gang::leave(p.rt(), g);
    group::member_ended(g);
    g.set_flag(flags::ENDS, true);
    p.count_end();
    if p.rt().watches_ends() {
        p.rt().goroutine_ended(p);
    }
    if m.is_wanted_back() {
        // No direct switch: this thread runs no goroutine any more, or returns to its owner.
        requests::ask(p, attention::TO_G0);
    }
    switch::successor(m)
}

/// Recycles the descriptor, with its stack, of a goroutine that has ended and been left.
///
/// # Safety
/// Called on an M's thread. `g` is the address of this M's goroutine, which has ended.
unsafe fn commit_end(g: usize) {
    // SAFETY: the address of a goroutine, as the caller says; the switch was on an M's thread.
    let (m, g) = unsafe { (m::must_current(), GRef::at(g)) };
    recycle(g);
    // SAFETY: the M held a P when the goroutine left, and a switch changes no P.
    keep(unsafe { m.must_p() }, g);
}

/// [`commit_end`] for a goroutine that ends specially.
///
/// # Safety
/// As `commit_end`.
unsafe fn commit_special_end(g: usize) {
    // SAFETY: the address of a goroutine, as the caller says; the switch was on an M's thread.
    let (m, g) = unsafe { (m::must_current(), GRef::at(g)) };
    let root = g.has(flags::ROOT);
    let runner = g.runner.get();
    if g.shared.get() {
        // The stack goes back; the descriptor stays for the holders of references.
        if let Some(stack) = g.stack.take() {
            // SAFETY: the goroutine has ended and been left, and its descriptor no longer has the
            // stack.
            unsafe { rt().nodes[stack.home()].stacks.put(stack) };
        }
        g.set_status(Status::Dead);
        // SAFETY: `joiners` is used with the lock held.
        let joiners = g.lock.with(|| unsafe {
            // Release: pairs with the Acquire in `has_ended`.
            g.end.store(end::DONE, Ordering::Release);
            (*g.joiners.get()).pop_all()
        });
        ready_all(joiners);
        release(g);
    } else {
        if g.has(flags::TIMER) {
            timer_calls::forget(g);
        }
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

/// Resets the fields that the next goroutine with this descriptor must not see.
#[inline(always)]
fn recycle(g: GRef) {
    g.set_status(Status::Dead);
    g.id.store(0, Ordering::Relaxed);
    g.f.set(None);
    g.preempt_off.store(0, Ordering::Relaxed);
    g.long_calls.set(0);
    g.used_without_p.set(0);
}

/// Recycles a descriptor to which others had pointers.
fn recycle_shared(g: GRef) {
    if g.has(flags::TIMER) {
        timer_calls::forget(g);
    }
    recycle(g);
    g.shared.set(false);
    g.cancelled.store(false, Ordering::Relaxed);
    g.end.store(0, Ordering::Relaxed);
    g.flags.set(0);
    g.lock_depth.set(0);
    let name = g.name.swap(ptr::null_mut(), Ordering::Relaxed);
    if !name.is_null() {
        // SAFETY: `CString::into_raw` has made the name.
        drop(unsafe { std::ffi::CString::from_raw(name) });
    }
}

/// Drops a reference; the last one frees the descriptor.
pub fn release(g: GRef) {
    // Enter first: a shutdown unmaps the descriptor's memory once it has no reference.
    let runtime = Visit::begin();
    let others = |refs: u32| (refs > 1).then_some(refs - 1);
    // AcqRel: pairs with the other releases, so the descriptor is freed after all uses.
    if g.refs.fetch_update(Ordering::AcqRel, Ordering::Acquire, others).is_ok() {
        return;
    }
    // The last reference: no new one can appear, and it keeps the memory mapped.
    recycle_shared(g);
    match runtime.as_deref() {
        Some(rt) if g.runtime.get() == rt.number => {
            g.refs.store(0, Ordering::Relaxed);
            rt.nodes[g.home.get() as usize].gs.put(g.as_non_null());
        }
        _ => orphans::orphan_released(g),
    }
}

/// Whether the goroutine has ended. If so, the caller sees all that the goroutine did.
pub fn has_ended(g: GRef) -> bool {
    // Acquire: pairs with the Release in `commit_special_end`.
    g.end.load(Ordering::Acquire) & end::DONE != 0
}

/// Waits for the end of a goroutine to which the caller has a reference. `-EDEADLK`: the goroutine
/// is the caller.
pub fn join(g: GRef, deadline: i64) -> i32 {
    if has_ended(g) {
        return 0;
    }
    if m::current_g() == Some(g) {
        return -libc::EDEADLK;
    }
    let thread = Parker::for_thread();
    g.lock.lock();
    if has_ended(g) {
        // SAFETY: locked above.
        unsafe { g.lock.unlock() };
        return 0;
    }
    let block = match Block::begin(&thread, deadline, false, Why::Join) {
        Ok(block) => block,
        Err(e) => {
            // SAFETY: locked above.
            unsafe { g.lock.unlock() };
            return e;
        }
    };
    let waiter = block.waiter(g.as_ptr());
    // SAFETY: `joiners` is used with the lock held; the waiter stays until it is
    // out of the queue.
    unsafe {
        (*g.joiners.get()).push(&waiter);
        let cause = block.park(unlock, &raw const g.lock as usize);
        if cause != Cause::Woken {
            g.lock.with(|| (*g.joiners.get()).remove(&waiter));
        }
        cause.errno()
    }
}
