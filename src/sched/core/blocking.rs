//! System calls and other blocks that the caller announces. seed: S7, B5
//!
//! Entering only marks the P; sysmon takes the P away when the call lasts long, or when it lasts a little and work
//! waits. Leaving takes the P back with one compare-and-swap, or takes an idle P, or queues the goroutine for a P.
//!
//! Between the two the thread counts as a plain thread: functions that block, block the thread.

use super::bound;
use super::boundary::{self, Entered};
use super::events;
use super::hooks;
use super::loan;
use super::owner;
use super::preempt;
use super::ready;
use super::start;
use super::steal;
use super::switch::{self, Away, Left, switch_away};
use super::without_p;
use super::world;
use super::yielding::yield_commit;
use crate::arch::{FpControl, Place};
use crate::os::{thread, time};
use crate::sched::prim::clock;
use crate::sched::types::cxa::Saved;
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::m::{self, Blocking, BlockingCall, MRef};
use crate::sched::types::node::priority;
use crate::sched::types::p::{PRef, PStatus};
use crate::sched::types::runtime::rt;
use crate::sched::types::task::Task;
use core::ffi::c_void;
use core::iter;
use core::ptr;
use core::sync::atomic::Ordering;

/// After this number of long calls in a row the next call is expected to be long.
pub const SURE: u8 = 2;
/// A call that takes less than this, in ns, was not long.
const SHORT: i64 = 20_000;
/// An M that has returned from a call checks this number of P's for a P that another M's call has left.
const PS_CHECKED: usize = 8;
/// An M that has returned from a call lets other threads run this number of times at most, before its goroutine queues
/// for a P.
const YIELDS: u32 = 16;
/// With more M's than `MANY_MS` at most `MOST_YIELDING` M's do that at once: each would have its next turn only after all
/// the others.
const MANY_MS: usize = 256;
const MOST_YIELDING: u32 = 8;

/// The running goroutine may be about to block its thread. Does nothing on a plain thread. Go's `entersyscall`.
pub fn enter() -> i32 {
    match m::current() {
        Some(m) if !m.curg.get().is_null() => enter_on(m, false),
        _ => 0,
    }
}

/// [`enter`] for a call that is sure to block for long: the P is free at once. Go's `entersyscallblock`.
pub fn enter_block() -> i32 {
    match m::current() {
        Some(m) if !m.curg.get().is_null() => enter_on(m, true),
        _ => 0,
    }
}

fn enter_on(m: MRef, at_once: bool) -> i32 {
    // SAFETY: a goroutine calls this.
    let g = unsafe { m.must_g() };
    let depth = g.syscall_depth.get();
    g.syscall_depth.set(depth + 1);
    if depth > 0 {
        return 0;
    }
    // SAFETY: the goroutine is in no call yet, so it has had a P since it entered the library.
    let p = unsafe { m.must_p() };
    // The fast path below calls no function except in tail position, so the compiler saves no registers.
    if at_once
        || must_leave_thread(m, g)
        || g.long_calls.get() == SURE
        || start::keeps_anything(p)
        || p.loan.is_open()
    {
        return begin_with_care(m, g, at_once);
    }
    note_begin(g);
    mark(m, p);
    0
}

/// [`enter_on`] where the P or the thread may be needed by others during the call.
#[cold]
#[inline(never)]
fn begin_with_care(m: MRef, g: GRef, at_once: bool) -> i32 {
    let m = find_own_thread(m, g);
    note_begin(g);
    leave_p(m, g, at_once);
    0
}

#[inline(always)]
fn note_begin(g: GRef) {
    g.since.set(clock::rough());
    g.set_status(Status::Syscall);
}

/// Before a goroutine that isn't pinned blocks or locks its thread, it moves to another thread, if it is on one of
/// these: a thread that `gs_run` has borrowed, which must be able to go back when `gs_run`'s function ends; or a thread
/// to which goroutines are pinned, or on which goroutines of a worker group may begin. Those goroutines could not run
/// while the thread is blocked or locked, although this goroutine may wait for them.
#[inline(always)]
pub fn find_own_thread(m: MRef, g: GRef) -> MRef {
    if must_leave_thread(m, g) { leave_thread(m, g) } else { m }
}

#[inline(always)]
fn must_leave_thread(m: MRef, g: GRef) -> bool {
    (bound::is_borrowed(g, m) || bound::is_for_pinned(m))
        && !g.has(flags::BOUND)
        && !m.stops_world.get()
}

#[cold]
#[inline(never)]
fn leave_thread(m: MRef, g: GRef) -> MRef {
    g.set_flag(flags::AVOID_RUNNER | flags::AVOID_PINNED, true);
    g.set_status(Status::Runnable);
    // SAFETY: `yield_commit` takes the address of a goroutine, which this M runs and so owns.
    unsafe { switch_away(m, yield_commit, g.address()) }
}

/// A call begins. `at_once`: hands the P off now, and not only when another goroutine needs it.
fn leave_p(m: MRef, g: GRef, at_once: bool) {
    start::share_what_is_kept(m.p());
    if loan::give_back(m) {
        g.left_at.set(time::now());
        return;
    }
    let at_once = at_once || will_be_missed(m, g);
    let p = m.p();
    mark(m, p);
    if at_once && p.take_from_call(PStatus::Idle) {
        start::hand_off(p);
    }
}

/// Whether the call that begins will most likely last so long that sysmon would hand the P off, as the goroutine's last
/// calls did. Then others need not wait for sysmon.
fn will_be_missed(m: MRef, g: GRef) -> bool {
    if g.long_calls.get() != SURE {
        return false;
    }
    g.left_at.set(time::now());
    let p = m.p();
    // The P's files and timers need an M that watches them from the moment of the call.
    let is_watched = p.poll.is_waited_for() || p.timers.next() != i64::MAX;
    is_watched || p.has_work() || steal::work_anywhere(rt())
}

/// The call is over. `kept`: the M still has the P that it had before the call.
#[cold]
#[inline(never)]
fn learn(g: GRef, kept: bool) {
    let long = match g.long_calls.get() {
        SURE if time::now() - g.left_at.get() < SHORT => 0,
        SURE => SURE,
        _ if kept => 0,
        n => n + 1,
    };
    g.long_calls.set(long);
}

/// The M counts as in a system call from here on, and remembers its P.
#[inline(always)]
pub fn go_without_p(m: MRef, p: PRef) {
    m.old_p.set(p.as_ptr());
    m.p.set(ptr::null());
    m.in_syscall.store(true, Ordering::Relaxed);
}

/// From now on any thread that needs the P of this M may take it, unless this M's goroutine has stopped the world: no other
/// goroutine may run then, and the P must be there when the call is over.
fn mark(m: MRef, p: PRef) {
    p.syscall_tick.store(p.syscall_tick.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    go_without_p(m, p);
    if !m.stops_world.get() {
        p.leave_to_call(m);
    }
}

/// The M's goroutine has started the world again, within a call: the call is an ordinary one from here on.
pub fn leave_p_kept_for_stop(m: MRef) {
    if m.p.get().is_null() {
        // SAFETY: set by `mark`.
        unsafe { PRef::from_ptr(m.old_p.get()) }.leave_to_call(m);
    }
}

/// Takes a P again: the old P if no other M has it, else an idle P. If it finds none the M counts as in a system call
/// until its goroutine is queued.
#[inline(always)]
pub fn take_p_again(m: MRef, g: GRef) -> bool {
    // SAFETY: set by `mark`.
    let old = unsafe { PRef::from_ptr(m.old_p.get()) };
    if !take_back(m, old) {
        return take_another_and_learn(m, g, old);
    }
    if g.long_calls.get() != 0 {
        learn(g, true);
    }
    restore_p(m, old);
    true
}

/// Takes the M's old P back after a call. True: the M has it: no other thread has taken it, or `mark` has not left it.
#[inline(always)]
fn take_back(m: MRef, old: PRef) -> bool {
    old.take_back(m) || m.stops_world.get()
}

#[cold]
#[inline(never)]
fn take_another_and_learn(m: MRef, g: GRef, old: PRef) -> bool {
    m.ask_for_usual_turns();
    if !m.has_lost_p_before.replace(false) {
        learn(g, false);
    }
    take_another(m, old)
}

/// Makes the old P, which this M has taken back, its P again.
#[inline(always)]
fn restore_p(m: MRef, old: PRef) {
    m.in_syscall.store(false, Ordering::Relaxed);
    m.p.set(old.as_ptr());
    owner::go_to_g0_if_wanted_back(m, old);
}

#[cold]
#[inline(never)]
fn take_another(m: MRef, old: PRef) -> bool {
    let rt = rt();
    // A P that another M left for its own call is taken before the goroutines in queues get it: this M is awake, and
    // they need an M that has to be woken.
    let left = || owner::take_left_p(rt, old, PS_CHECKED);
    match owner::take_idle_p(rt, Some(old), m.node.get()).or_else(left) {
        Some(p) => {
            owner::acquire_p(m, p);
            m.in_syscall.store(false, Ordering::Relaxed);
            rt.sysmon.wake_if_asleep();
            true
        }
        None => false,
    }
}

/// Takes a P that becomes free within a few microseconds. Clients run that long between two calls, so a P is free
/// sooner than this M could sleep and be woken. Gives up at once where goroutines compute: the kernel would give the CPU
/// to the thread of one of them, for a ms or more.
#[cold]
#[inline(never)]
fn try_again(m: MRef) -> bool {
    // SAFETY: set by `mark`; P's stay mapped.
    let old = unsafe { PRef::from_ptr(m.old_p.get()) };
    let rt = rt();
    let one_computes =
        || iter::once(old).chain(rt.ps_after(old, PS_CHECKED)).any(events::computes_for_long);
    let others = rt.yielding.fetch_add(1, Ordering::Relaxed);
    let may_yield = others < MOST_YIELDING || rt.m_count.load(Ordering::Relaxed) <= MANY_MS;
    let has_p = may_yield
        && (0..YIELDS).any(|_| {
            if one_computes() || world::is_stopping() {
                return false;
            }
            thread::yield_now();
            let is_back = old.take_back(m);
            if is_back {
                restore_p(m, old);
            }
            is_back || take_another(m, old)
        });
    rt.yielding.fetch_sub(1, Ordering::Relaxed);
    has_p
}

/// Borrows a P from a goroutine that computes. The caller's goroutine goes on at once: if it waited in a queue instead,
/// two threads would have to be woken for it. A goroutine of low priority borrows no P.
#[cold]
#[inline(never)]
fn borrow_from_computing(m: MRef, g: GRef) -> bool {
    // SAFETY: set by `mark`; P's stay mapped.
    let old = unsafe { PRef::from_ptr(m.old_p.get()) };
    let has_rank = matches!(g.priority.get(), priority::NORMAL | priority::HIGH);
    if !has_rank {
        return false;
    }
    let Some(p) = loan::borrow(rt(), old) else { return false };
    owner::acquire_p(m, p);
    m.in_syscall.store(false, Ordering::Relaxed);
    true
}

/// Finds a P for an M that could take none at once. False: its goroutine has to be queued.
#[cold]
#[inline(never)]
pub fn find_p(m: MRef, g: GRef) -> bool {
    try_again(m) || borrow_from_computing(m, g)
}

/// The block is over, and the caller needs a P. `-EPERM` if none had begun. Go's `exitsyscall`.
pub fn exit() -> i32 {
    end::<false>()
}

/// [`exit`] for a function that returns next. The user's code may go on without a P.
#[inline(always)]
pub fn exit_from(entered: &Entered) -> i32 {
    if entered.is_from_user() { end::<true>() } else { exit() }
}

/// `TO_USER`: the caller returns to the user's code.
fn end<const TO_USER: bool>() -> i32 {
    let Some(m) = m::current().filter(|m| !m.curg.get().is_null()) else { return 0 };
    let g = m.g();
    let depth = g.syscall_depth.get();
    // In `gs_blocking` the outermost level belongs to `gs_blocking`.
    if depth == u32::from(!m.blocking.get().is_null()) {
        return -libc::EPERM;
    }
    g.syscall_depth.set(depth - 1);
    if depth > 1 {
        return 0;
    }
    if !take_p_again(m, g) {
        return end_without_p(m, g, TO_USER);
    }
    g.set_status(Status::Running);
    boundary::give_way_if_asked(m);
    0
}

/// [`end`] if there was no P for the goroutine at once.
#[cold]
#[inline(never)]
fn end_without_p(m: MRef, g: GRef, to_user: bool) -> i32 {
    if to_user && without_p::go_on(m, g) {
        return 0;
    }
    if find_p(m, g) {
        g.set_status(Status::Running);
        boundary::give_way_if_asked(m);
        return 0;
    }
    // No P: the goroutine waits in a queue for one. Without a P there is no queue to pick a successor from, so it
    // leaves for g0.
    g.set_status(Status::Runnable);
    // SAFETY: `queue_for_p` takes a goroutine's address.
    unsafe { switch::switch_to_g0(m, Some(queue_for_p)) };
    0
}

/// On g0, without a P: queues the goroutine where an M with a P finds it.
///
/// # Safety
/// `g` is the address of a goroutine that the caller owns.
pub unsafe fn queue_for_p(g: usize) {
    // SAFETY: on g0, and the address of a goroutine, as the caller says.
    let (m, g) = unsafe { (m::must_current(), GRef::at(g)) };
    ready::ready_global(g);
    rt().back_from_call.store(true, Ordering::Relaxed);
    // SAFETY: set by `mark`; P's stay mapped.
    let old = unsafe { PRef::from_ptr(m.old_p.get()) };
    // Release: pairs with the Acquire of the deadlock watch.
    m.in_syscall.store(false, Ordering::Release);
    if !preempt::make_room(rt(), old) {
        // sysmon decides whether the goroutine on the old P has computed for long enough.
        rt().sysmon.wake_by(time::now() + events::WAKE_UP);
    }
}

/// Calls `f(arg)` on the thread's own stack with the P released; returns what `f` returns, and its errno. On a plain
/// thread, or in such a call already, just calls `f`.
///
/// # Safety
/// `f` may be called with `arg`.
pub unsafe fn call(f: Blocking, arg: *mut c_void) -> *mut c_void {
    let Some(m) = m::on_goroutine() else {
        // SAFETY: the caller says that `f` may be called with `arg`.
        return unsafe { f(arg) };
    };
    let mut call = BlockingCall::new(f, arg);
    if call.make(find_own_thread(m, m.g())) {
        call.exceptions.restore();
    }
    call.result
}

/// Drops the exceptions of the running goroutine, which ends, from all copies of the C++ runtime.
pub fn leave_exceptions(m: MRef) {
    unsafe extern "C" fn nothing(arg: *mut c_void) -> *mut c_void {
        arg
    }
    BlockingCall::new(nothing, ptr::null_mut()).make(m);
}

impl BlockingCall {
    fn new(f: Blocking, arg: *mut c_void) -> BlockingCall {
        BlockingCall {
            f,
            arg,
            result: ptr::null_mut(),
            fp: FpControl::current(),
            errno: 0,
            exceptions: Saved::new(),
        }
    }

    /// Makes the call. False: the call has forked, and this is the child, where the thread is a plain thread from here
    /// on.
    fn make(&mut self, m: MRef) -> bool {
        m.g().since.set(clock::rough());
        m.g().set_status(Status::Syscall);
        m.blocking.set(self);
        // SAFETY: the switch has no commit; afterwards the goroutine is on an M's thread again.
        let m = unsafe {
            switch::switch_to_g0(m, None);
            m::must_current()
        };
        if !m.blocking.get().is_null() {
            // SAFETY: the child of a fork.
            unsafe { m::set_current(None) };
            return false;
        }
        // SAFETY: the errno of the thread that runs this now.
        unsafe { *m.errno.get() = self.errno };
        self.fp.load();
        true
    }
}

/// On g0: calls `f` with the M's P, if it has one, released as in a system call. The M may have no P afterwards.
pub fn off_p(m: MRef, f: impl FnOnce()) {
    let p = (!m.p.get().is_null()).then(|| {
        start::share_what_is_kept(m.p());
        let p = m.p();
        mark(m, p);
        p
    });
    m.in_syscall.store(true, Ordering::Relaxed);
    f();
    match p {
        Some(p) if take_back(m, p) => {
            m.p.set(p.as_ptr());
            owner::go_to_g0_if_wanted_back(m, p);
        }
        Some(p) => {
            take_another(m, p);
        }
        None => {}
    }
    // Release: pairs with the Acquire of the deadlock watch.
    m.in_syscall.store(false, Ordering::Release);
}

/// The part of `gs_blocking` on g0: the goroutine's registers are saved, but the goroutine is still this thread's, and
/// functions called in `f` find it as the current goroutine.
pub fn run_on_g0(m: MRef, g: GRef) {
    // SAFETY: `call` has left the record there, on a stack that stays.
    let call = unsafe { &mut *m.blocking.get() };
    m.curg.set(g.as_ptr());
    leave_p(m, g, false);
    g.syscall_depth.set(1);
    let own = FpControl::current();
    call.fp.load();
    // SAFETY: the caller of `gs_blocking` answers for it.
    call.result = unsafe { (call.f)(call.arg) };
    if m::current().is_none() {
        // `f` has forked, and this is the child: there is no runtime, but the goroutine goes on.
        // SAFETY: the M that the thread had before the fork, in the child's copy of memory, which no other thread uses.
        unsafe { m::set_current(Some(m)) };
        let (mut here, to) = (Place::new(), g.context.load(Ordering::Relaxed));
        here.note_modes();
        let _ = Away::to(m, to, true);
        // SAFETY: the goroutine's registers are saved, and no other M can run it.
        unsafe { Left::nothing(m).switch(m.g0_context.as_ptr(), to, &mut here) };
        unreachable!("no context resumes this stack");
    }
    // SAFETY: the thread's own errno.
    call.errno = unsafe { *m.errno.get() };
    m.cxa.take_without_p(&mut call.exceptions);
    call.fp = FpControl::current();
    own.load();
    g.syscall_depth.set(0);
    m.blocking.set(ptr::null_mut());
    m.curg.set(ptr::null());
    if take_p_again(m, g) || find_p(m, g) {
        // Straight back, as from a system call.
        m.stash.set(Some(Task::goroutine(g)));
    } else {
        hooks::leave_entered(m);
        // SAFETY: this runs on g0, and this M owns the goroutine.
        unsafe { queue_for_p(g.address()) };
    }
}
