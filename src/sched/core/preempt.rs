//! Preemption: taking the P from a goroutine that doesn't call the library, because it blocks its thread without
//! announcing that, or because it computes without end. `PREEMPTION.md` has the protocols. seed: R2, B8
//!
//! Only the P moves. The goroutine stays on its thread, which resumes only when the goroutine has a P again.

use super::blocking;
use super::boundary;
use super::handler;
use super::netpoll;
use super::order;
use super::owner::{acquire_p, release_p, take_left_p};
use super::ready;
use super::start;
use super::steal;
use super::stop;
use super::switch;
use super::world;
use crate::arch;
use crate::os::spin::backoff;
use crate::os::{KeepErrno, futex, membarrier, signal, thread, time};
use crate::sched::who::attention::{self, STOP};
use crate::sched::who::g::{GRef, Status, flags};
use crate::sched::who::m::{self, INSIDE, M, MRef, OUTSIDE, claim};
use crate::sched::who::node::priority;
use crate::sched::who::p::{P, PRef, PStatus, count};
use crate::sched::who::runtime::{Runtime, rt};
use crate::sched::who::task::{Task, TaskKind};
use core::ffi::c_void;
use core::iter;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{Ordering, compiler_fence};

/// A goroutine runs for this time, in ns, before it makes room for a goroutine that has returned from a system call.
pub const BACK: i64 = 100_000;

/// Whether another thread asks for the M's P, or has taken it.
#[inline(always)]
pub fn is_claimed(m: MRef) -> bool {
    m.claim.load(Ordering::Relaxed) != claim::NONE
}

/// The M, which is inside now, keeps its P, or gets another if it has lost its P.
/// Returns the M on which the goroutine runs then.
pub fn find_p(m: MRef) -> MRef {
    if !is_claimed(m) || keeps(m) {
        return m;
    }
    if replace_p(m) {
        // Release: pairs with the Acquire of the deadlock watch.
        m.claim.store(claim::NONE, Ordering::Release);
        return m;
    }
    m.g().set_status(Status::Runnable);
    // SAFETY: `queue_for_p` takes a goroutine's address; and a goroutine runs this code.
    unsafe {
        switch::switch_to_g0(m, Some(queue_for_p));
        m::must_current()
    }
}

/// The M has lost its P: takes an idle P, if there is one.
fn replace_p(m: MRef) -> bool {
    debug_assert!(!m.p.get().is_null(), "only a P that the M had can be taken from it");
    m.old_p.set(m.p.get());
    m.p.set(ptr::null());
    blocking::take_p_again(m, m.g())
}

/// Whether the M still has the P that another thread asks for.
fn keeps(m: MRef) -> bool {
    // Acquire: pairs with the asker's AcqRel. A single exchange decides: between a load and an exchange an asker that has
    // found the M inside could give up, and ask again.
    match m.claim.compare_exchange(claim::ASKED, claim::NONE, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => true,
        Err(now) => now != claim::TAKEN,
    }
}

/// # Safety
/// On g0. `g` is the address of a goroutine that the caller owns.
unsafe fn queue_for_p(g: usize) {
    // SAFETY: the address of a goroutine, as the caller says.
    ready::ready_global(unsafe { GRef::at(g) });
    // Release: pairs with the Acquire of the deadlock watch.
    // SAFETY: on g0, as the caller says.
    unsafe { m::must_current() }.claim.store(claim::NONE, Ordering::Release);
}

/// Takes the P from the M that runs it, if that M is outside. `to`: the P's new status.
fn take(p: PRef, m: MRef, to: PStatus) -> bool {
    // `try_lock`: this thread may be in a signal handler of the host's that has interrupted the holder of the lock, so
    // waiting could never end.
    let taking = &rt().taking;
    taking.try_lock() && {
        let taken = take_alone(p, m, to);
        taking.unlock();
        taken
    }
}

fn take_alone(p: PRef, m: MRef, to: PStatus) -> bool {
    if m.claim
        .compare_exchange(claim::NONE, claim::ASKED, Ordering::AcqRel, Ordering::Relaxed)
        .is_err()
    {
        return false;
    }
    // Either the M sees `ASKED` at its next entry, or this thread sees that the M is inside.
    membarrier::all_threads();
    // Acquire: pairs with the Release where the M goes outside.
    // An M that is outside in an announced system call runs no P, whichever M has its old P: then the M has no P to lose.
    let holds =
        m.outside.load(Ordering::Acquire) == OUTSIDE && p.is_run_by(m) && runs_preemptible(m);
    let settles = if holds { claim::TAKEN } else { claim::NONE };
    let settled = m
        .claim
        .compare_exchange(claim::ASKED, settles, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok();
    if !(holds && settled) {
        return false;
    }
    // The P is this thread's: the M reads `claim` before it touches the P again.
    p.leave_m(to);
    if is_member(&m) {
        world::ask_member_without_p();
    }
    true
}

/// What a goroutine that holds a P does there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It is in the library, or just leaving it, or no M runs the P.
    Library,
    Computes,
    /// The thread of this M is blocked in the kernel.
    Blocked(MRef),
    /// The kernel's answer isn't there yet.
    Unknown,
}

/// What the goroutine on this P does. Asks the kernel, which takes some microseconds, more if the
/// thread is on no CPU just now.
pub fn doing(rt: &Runtime, p: PRef) -> Doing {
    let Some(m) = p.runner().filter(|m| m.outside.load(Ordering::Relaxed) == OUTSIDE) else {
        return Doing::Library;
    };
    let id = m.tid.load(Ordering::Relaxed);
    if thread::is_on_cpu(id) {
        return Doing::Computes;
    }
    // The thread is blocked, or waits for a CPU; its clock doesn't tell these apart.
    match rt.inspector.is_blocked(rt, id) {
        Some(true) => Doing::Blocked(m),
        Some(false) => Doing::Computes,
        None => Doing::Unknown,
    }
}

/// Whether the goroutine on this P computes at this moment.
fn computes(p: PRef) -> bool {
    p.runner().is_some_and(|m| {
        m.outside.load(Ordering::Relaxed) == OUTSIDE
            && thread::is_on_cpu(m.tid.load(Ordering::Relaxed))
    })
}

/// Takes the P from this M, which was seen to be blocked in the kernel. `to`: the P's new status.
pub fn take_blocked(rt: &Runtime, p: PRef, m: MRef, to: PStatus) -> bool {
    take_outside(rt, p, m, to)
}

/// Takes the P from this M if the M is outside, whatever the user's code does there.
fn take_outside(rt: &Runtime, p: PRef, m: MRef, to: PStatus) -> bool {
    if rt.cooperative || !membarrier::is_there() {
        return false;
    }
    if to == PStatus::Idle && !handler::keep_a_spare(rt, p) {
        return false;
    }
    take(p, m, to)
}

fn is_member(m: &M) -> bool {
    !m.group.load(Ordering::Relaxed).is_null()
}

/// Whether a member of a worker group has lost its P and not noticed yet.
pub fn a_member_has_no_p(rt: &Runtime) -> bool {
    let lost = |m: &M| is_member(m) && m.claim.load(Ordering::Relaxed) == claim::TAKEN;
    !rt.ms_that(lost).is_empty()
}

/// Takes the P from a member of a worker group whose goroutine computes and must not get the signal. The goroutine goes
/// on without a P, so no more threads do that than groups have members.
pub fn take_from_member(rt: &Runtime, p: PRef) -> bool {
    let Some(m) = p.runner().filter(|m| is_member(m)) else {
        return false;
    };
    // SAFETY: null or a descriptor, which stays mapped.
    let g = unsafe { GRef::from_nullable(m.curg.seen()) };
    let is_spared = g.is_some_and(|g| g.flags.seen() & flags::NOSIGNAL != 0);
    is_spared && take_outside(rt, p, m, PStatus::Idle)
}

/// Sends the signal to the thread that runs the P, which has been asked for
/// something: in the handler that thread gives the P away.
pub fn interrupt(rt: &Runtime, p: PRef) -> Sent {
    let Some(m) = p.runner().filter(|&m| rt.preempt_signal != 0 && may_be_interrupted(m)) else {
        return Sent::Never;
    };
    if m.outside.load(Ordering::Relaxed) != OUTSIDE {
        // The library runs there, and sees the request.
        return Sent::Yes;
    }
    let may_wait = rt.template.is_ready(rt);
    if !(may_wait && (world::is_stopping() || handler::keep_a_spare(rt, p))) {
        return Sent::NotYet;
    }
    thread::send_signal(m.tid.load(Ordering::Relaxed), rt.preempt_signal);
    Sent::Yes
}

/// What has become of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The signal was sent, or is not needed: the thread is in the library, and sees the request itself.
    Yes,
    /// An idle M must be there first.
    NotYet,
    /// No M runs the P, or its goroutine is not to be preempted.
    Never,
}

/// A goroutine has returned from a call and finds its P taken. Preempts the goroutine that runs on the P, if that is
/// known to have computed for [`BACK`]. False: sysmon must do it.
pub fn make_room(rt: &Runtime, p: PRef) -> bool {
    let now = time::now();
    let known = rt.preempt_signal != 0 && now.saturating_sub(p.stands_since()) >= BACK;
    if !known || !computes(p) {
        return false;
    }
    p.seen_at(now);
    world::ask(p, attention::SLICE);
    interrupt(rt, p) == Sent::Yes
}

/// A goroutine runs for this time, in ns, before an event preempts it. An event is what a timer, a file or another
/// thread makes ready. A preempted goroutine runs longer by the time for which it was kept from the P, so a flood
/// of events gets at most half of the P.
pub const WAKE_UP: i64 = 500_000;

/// For an event, the thread that makes it ready checks this number of P's besides the event's home, for a P that a
/// system call has left or that can be preempted.
const OTHERS_LOOKED_AT: usize = 4;

/// An event waits in the inbox of `p`, and no P is idle. The event gets a P that a system call has left, or the P of a
/// goroutine that has run for `WAKE_UP`. Otherwise sysmon acts at its next look.
#[cold]
#[inline(never)]
pub fn for_event(rt: &Runtime, p: PRef) {
    if rt.cooperative {
        return;
    }
    let home = Some(p).filter(|p| p.take_from_call(PStatus::Idle));
    if let Some(left) = home.or_else(|| take_left_p(rt, p, OTHERS_LOOKED_AT)) {
        return start::hand_off(left);
    }
    let now = time::now();
    if !world::is_stopping() && take_for_event(rt, p, now, Heir::IdleM).is_some() {
        return;
    }
    match p.stands_since() {
        // The goroutine there makes short calls, so it answers soon. No signal: a signal could end a call that begins
        // just now.
        i64::MAX if p.has_made_calls() => world::ask(p, attention::SLICE),
        // It has switched since it was last looked at.
        i64::MAX => p.seen_at(now),
        since if now - since >= WAKE_UP => {
            world::ask(p, attention::SLICE);
            rt.sysmon.wake();
        }
        _ => {}
    }
}

/// Whether events get P's of goroutines that compute.
pub fn takes_for_events(rt: &Runtime) -> bool {
    rt.preempt_signal != 0 && !rt.cooperative && membarrier::is_there()
}

/// Whether events may get this P: not if its goroutine must not be stopped by the signal. True also if no M runs the P:
/// the thread of a preempted goroutine may be about to run it.
pub fn may_lose_p(p: PRef) -> bool {
    p.runner().is_none_or(may_be_interrupted)
}

/// Which M gets a P that is taken for an event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Heir {
    /// An idle M: the P is handed off.
    IdleM,
    /// The caller, who is an M.
    Taker,
}

/// Takes a P of the node for an event of `p`: `p` itself or another P, whose goroutine is known to have run for `WAKE_UP`.
#[must_use]
pub fn take_for_event(rt: &Runtime, p: PRef, now: i64, heir: Heir) -> Option<PRef> {
    let stands = |q: &PRef| now.saturating_sub(q.stands_since()) >= WAKE_UP;
    let others = rt.ps_after(p, OTHERS_LOOKED_AT).filter(|q| q.node == p.node);
    iter::once(p).chain(others).filter(stands).find(|&q| take_to_serve(rt, q, p, now, heir))
}

/// Takes the P `q` from its M if the user's code runs there, for the events of `home`: the M that gets the P makes them
/// ready before anything else. The goroutine goes on without a P, as a stray. It gets the signal if it is on a CPU, else
/// from the inspector.
///
/// A signal to the M that has the P would serve the event as well, but only when the kernel runs that M's thread. To find
/// out whether it does, a thread reads that thread's CPU clock, and Linux then ends the thread's turn if the turn is over.
#[must_use]
pub fn take_to_serve(rt: &Runtime, q: PRef, home: PRef, now: i64, heir: Heir) -> bool {
    let is_outside = |m: &MRef| m.outside.load(Ordering::Relaxed) == OUTSIDE;
    let Some(m) = q.runner().filter(|m| is_outside(m) && may_be_interrupted(*m)) else {
        return false;
    };
    let take = || match heir {
        Heir::IdleM => take_outside(rt, q, m, PStatus::Idle),
        Heir::Taker => take(q, m, PStatus::Idle),
    };
    if !(takes_for_events(rt) && take()) {
        return false;
    }
    q.taken_at.store(now, Ordering::Relaxed);
    if q != home {
        q.serves.store(u32::from(home.id) + 1, Ordering::Relaxed);
    }
    if heir == Heir::IdleM {
        start::hand_off(q);
    }
    if thread::is_on_cpu(m.tid.load(Ordering::Relaxed)) {
        interrupt_stray(rt, m);
    } else {
        // Blocked, or displaced.
        rt.inspector.stop_stray(rt, m);
    }
    true
}

/// On g0: makes the events ready that this P serves ([`take_to_serve`]), as a thief would. The first that
/// waited in the inbox is the caller's.
#[cold]
#[inline(never)]
pub fn take_events_to_serve(rt: &Runtime, m: MRef, p: PRef) -> Option<Task> {
    let home = rt.p(p.serves.swap(0, Ordering::Relaxed).checked_sub(1)? as usize);
    if order::timer_is_due(home) {
        home.timers.run(time::now());
    }
    if netpoll::is_neglected(home) {
        netpoll::poll(m, home);
    }
    let task = steal::take_share(&home.inbox, p, 2)?;
    // The new tick gives the task a time slice of its own: the goroutine before it had run for `WAKE_UP`.
    order::next_tick(p);
    Some(task)
}

/// Prepares the process for the signal of this runtime.
pub fn set_up(rt: &Runtime) {
    membarrier::set_up();
    if rt.preempt_signal != 0 {
        signal::on_preempt(rt.preempt_signal, on_signal);
    }
}

/// Lets the signal reach the calling thread; returns the former mask, unless there
/// is no signal.
pub fn allow() -> Option<thread::SignalMask> {
    let signal = rt().preempt_signal;
    (signal != 0).then(|| thread::unblock(signal))
}

/// Whether the calling thread, which is inside, holds a P that no other can take from it.
pub fn holds_p() -> bool {
    m::with_p().is_some_and(|m| !is_claimed(m) || keeps(m))
}

/// For a thread that is about to fork: until it opens `template.gate` again no goroutine waits in the handler. A goroutine
/// that waits there may have a lock that fork waits for. It goes on without a P, as a goroutine does whose P was taken
/// while its thread was blocked.
pub fn empty_handlers(rt: &Runtime) {
    let gate = &rt.template.gate;
    gate.close();
    // A handler of the host's may have interrupted a goroutine that waits, and fork.
    let own = usize::from(m::current().is_some_and(|m| !m.context.get().is_null()));
    let mut round = 0;
    while gate.waiting() > own {
        while let Some((m, task)) = handler::any_in_handler(rt) {
            handler::let_go(m, task);
        }
        // Other goroutines are about to look at the gate, or have been given a P.
        round += 1;
        backoff(round);
    }
}

/// The handler, on the alternate stack of the thread. Async-signal-safe: the interrupted code is the user's, so it holds
/// no lock of this library, and the handler calls no other library.
fn on_signal(context: *mut c_void) {
    let Some(m) = m::current() else { return };
    if m.outside.load(Ordering::Relaxed) == INSIDE || m.curg.get().is_null() {
        // The library checks for the request.
        return;
    }
    // SAFETY: the kernel has given it to this handler.
    if unsafe { arch::was_on_alternate_stack(context) } {
        // The signal has interrupted a handler of the host's, which must not wait: the goroutine is asked again.
        return;
    }
    let _errno = KeepErrno::new();
    boundary::go_inside(m);
    show_registers(m, context);
    // While a thread is being made the goroutine goes on, and is asked again later.
    if let Some(_waits) = rt().template.may_wait() {
        m.context.set(context);
        stop_here(m);
        m.context.set(ptr::null_mut());
    }
    compiler_fence(Ordering::SeqCst);
    boundary::leave(m);
}

/// Values of [`M::show`](crate::sched::who::m::M::show).
pub mod show {
    pub const NO: u32 = 0;
    /// The stopper of the world waits for the registers.
    pub const WANTED: u32 = 1;
    /// The registers are in `M::context`, and the thread waits in the handler.
    pub const SHOWN: u32 = 2;
}

/// In the handler: shows the registers to a stopper of the world that wants them, until the world
/// goes on.
fn show_registers(m: MRef, context: *mut c_void) {
    if m.show.load(Ordering::Relaxed) != show::WANTED {
        return;
    }
    m.context.set(context);
    // Release: pairs with the Acquire in `shown`; the context goes along.
    let shows = m
        .show
        .compare_exchange(show::WANTED, show::SHOWN, Ordering::Release, Ordering::Relaxed)
        .is_ok();
    // The handler holds nothing, as in `wait_here`: another stopper of threads, a collector's, may signal this thread.
    let wait = || {
        while m.show.load(Ordering::Acquire) == show::SHOWN {
            futex::wait(&m.show, show::SHOWN, -1);
        }
    };
    if shows {
        // SAFETY: `on_signal` was given this context, and has not returned.
        unsafe { signal::let_others_through(context, rt().preempt_signal, wait) };
    }
    m.context.set(ptr::null_mut());
}

/// How long a stopper of the world waits for threads to show their registers, in ns. A thread that blocks the signal never
/// shows them, nor does a thread that gets no CPU for this time. A collector then misses the pointers in that thread's
/// registers. On a busy machine 100 ms were too short.
const SHOWS_WITHIN: i64 = 1_000_000_000;

/// With the world stopped: makes goroutines show their registers if they are in the user's code on a thread, in a
/// system call or in a block that was not announced. A signal is the only way to these registers: a thread can't read
/// what the kernel keeps for another thread of its process.
pub fn show_all_registers(rt: &Runtime) {
    let me = m::current();
    if rt.preempt_signal == 0 {
        return;
    }
    let deadline = time::now() + SHOWS_WITHIN;
    for look in 0u32.. {
        let mut waits = false;
        rt.for_each_m(|m| {
            let is_at_rest = m.curg.seen().is_null() || !m.blocking.seen().is_null();
            if Some(m) == me || is_at_rest || shown(m).is_some() {
                return;
            }
            if m.outside.load(Ordering::Acquire) != OUTSIDE {
                // Inside and without a P, the M's goroutine is on its way to rest, unless it waits in a call of the library.
                waits |= !m.waits_inside.load(Ordering::Acquire);
                return;
            }
            waits = true;
            // The handler ignores the signal while its thread is in the library, so it is sent again.
            if m.show.swap(show::WANTED, Ordering::AcqRel) == show::NO || look % LOOKS == 0 {
                thread::send_signal(m.tid.load(Ordering::Relaxed), rt.preempt_signal);
            }
        });
        if !waits || time::now() > deadline {
            return;
        }
        time::sleep(SHOW_PAUSE);
    }
}

/// The signal is sent again after this number of rounds over all M's.
const LOOKS: u32 = 50;

/// The pause between two rounds of a stopper that waits for registers, in ns.
const SHOW_PAUSE: i64 = 20_000;

/// The world goes on, and so do the threads that show their registers.
pub fn stop_showing(rt: &Runtime) {
    rt.for_each_m(|m| {
        if m.show.swap(show::NO, Ordering::AcqRel) == show::SHOWN {
            futex::wake(&m.show, 1);
        }
    });
}

/// The registers that a goroutine on this M shows, if it does.
pub fn shown(m: MRef) -> Option<*mut c_void> {
    let waits_here = m.context.seen();
    // Acquire: pairs with the Release in `show_registers`.
    let shows = m.show.load(Ordering::Acquire) == show::SHOWN;
    // SAFETY: a goroutine that this M runs is a descriptor, which stays mapped.
    let g = unsafe { GRef::from_nullable(m.curg.seen()) };
    let interrupted = g.is_some_and(|g| g.flags.seen() & flags::INTERRUPTED != 0);
    (shows || interrupted).then_some(waits_here).filter(|c| !c.is_null())
}

/// In the handler: waits if the goroutine has lost its P, or has to give it away.
fn stop_here(m: MRef) {
    if is_claimed(m) && is_interruptible(m.g()) && !keeps(m) {
        // The goroutine has lost its P in a block, and runs without a P.
        find_p_here(m);
    } else if !m.p.get().is_null() && is_interruptible(m.g()) {
        let p = m.p();
        // Acquire: pairs with the stopper's SeqCst.
        let asked = p.attention.load(Ordering::Acquire);
        let heir = match asked & (STOP | attention::SLICE) {
            attention::SLICE => handler::heir_for(rt(), p),
            _ => None,
        };
        // Without an heir for the P the goroutine goes on; sysmon makes an M and asks again.
        if asked & STOP != 0 || heir.is_some() {
            give_away(m, heir);
        }
    }
}

/// Whether the goroutine that another thread's M runs may be preempted. The M may leave that goroutine at any moment, so
/// the caller must check afterwards that the M is still outside.
fn runs_preemptible(m: MRef) -> bool {
    // SAFETY: null or a descriptor, which stays mapped.
    unsafe { GRef::from_nullable(m.curg.seen()) }.is_some_and(is_preemptible)
}

fn is_preemptible(g: GRef) -> bool {
    g.flags.seen() & flags::NOPREEMPT == 0 && g.preempt_off.load(Ordering::Relaxed) == 0
}

/// Whether the signal may stop the goroutine that the M runs, wherever it is. Like [`runs_preemptible`], a guess of
/// another thread.
fn may_be_interrupted(m: MRef) -> bool {
    // SAFETY: null or a descriptor, which stays mapped.
    unsafe { GRef::from_nullable(m.curg.seen()) }.is_some_and(is_interruptible)
}

fn is_interruptible(g: GRef) -> bool {
    is_preemptible(g) && g.flags.seen() & flags::NOSIGNAL == 0
}

/// For a goroutine or thread that wants to stop the world while another has stopped it: waits for `pause` ns, or until
/// the world goes on. A goroutine gives its P up and waits for a P as in the handler, on its thread: it may be in the middle
/// of changing something of that thread's, such as a collector's lists of free memory.
pub fn wait_for_stopper(pause: i64) {
    let Some(m) = m::current().filter(|m| !m.curg.get().is_null()) else {
        time::sleep(pause);
        return;
    };
    let (rt, has_p) = (rt(), holds_p());
    // Acquire: pairs with the stopper's SeqCst.
    if has_p
        && m.p().attention.load(Ordering::Acquire) & STOP != 0
        && rt.template.is_ready(rt)
        && let Some(_waits) = rt.template.may_wait()
    {
        let mut context = MaybeUninit::<libc::ucontext_t>::zeroed();
        // Here and not in `os`: the context is to describe this frame, which stays while the goroutine waits.
        // SAFETY: `getcontext` writes only to `context`.
        unsafe { libc::getcontext(context.as_mut_ptr()) };
        m.context.set(context.as_mut_ptr().cast());
        give_away(m, None);
        m.context.set(ptr::null_mut());
        return;
    }
    // Outside, so that the stopper sees the registers, and takes the P if it comes to that.
    boundary::leave(m);
    time::sleep(pause);
    boundary::go_inside(m);
}

/// The caller has stopped the world. If the caller is a goroutine that has lost its P in a block, it gets one of the
/// stopped P's.
pub fn take_stopped(rt: &Runtime) {
    let Some(m) = m::with_p() else { return };
    let lost = m.p();
    let Some(p) = rt.ps().find(|&p| p == lost).or_else(|| rt.ps().next()) else { return };
    m.p.set(ptr::null());
    acquire_p(m, p);
    // Release: pairs with the Acquire of the deadlock watch.
    m.claim.store(claim::NONE, Ordering::Release);
}

/// Gives the P to `heir`, or to the stopper of the world, and waits for one.
fn give_away(m: MRef, heir: Option<(MRef, Option<Task>)>) {
    let p = m.p();
    // `go_to_g0_if_wanted_back` sets `TO_G0` again on the next P.
    p.attention.fetch_and(!(attention::TO_G0 | attention::SLICE), Ordering::Relaxed);
    p.taken_at.store(time::now(), Ordering::Relaxed);
    wait_here(m, p.as_ptr(), |g| {
        queue(p, g);
        release_p(m);
        match heir {
            Some((heir, task)) => {
                count(&p.stats.handoffs, 1);
                start::give(heir, Some(p), task, false);
            }
            None => {
                p.become_stopped();
                world::arrived();
            }
        }
    });
}

/// For an M without a P: takes an idle P, or waits for one.
fn find_p_here(m: MRef) {
    let has_p = replace_p(m)
        || wait_here(m, m.old_p.get(), |g| {
            let rt = rt();
            rt.push_quietly(rt.any_node(), Task::goroutine(g), preempted(g));
            start::ask_for_m(rt);
        });
    if has_p {
        // Release: pairs with the Acquire of the deadlock watch.
        m.claim.store(claim::NONE, Ordering::Release);
    }
}

/// Puts a goroutine that waits in the handler into the queue where M's look for such goroutines.
pub fn queue(p: PRef, g: GRef) {
    rt().push_quietly(p.node as usize, Task::goroutine(g), preempted(g));
}

/// The priority, and so the queue, of a goroutine that waits in the handler.
fn preempted(g: GRef) -> i8 {
    if g.priority.get() == priority::MEMBER { priority::MEMBER } else { priority::PREEMPTED }
}

/// Whether a goroutine that was preempted has waited for as long as others may run.
pub fn has_waited(task: &Task) -> bool {
    match task.kind() {
        TaskKind::Goroutine(g) => time::now() - g.left_at.get() >= rt().slice,
        TaskKind::Newborn(_) => false,
    }
}

/// Whether the goroutine waits in the handler. The caller owns it.
pub fn is_interrupted(g: GRef) -> bool {
    g.has(flags::INTERRUPTED)
}

/// Waits in the handler until another M hands the goroutine over with a P. `publish` queues the goroutine, which is bound
/// to this thread until it goes on. False: a thread forks, so the goroutine goes on without a P, as if its P, `lost`, had
/// been taken from it.
fn wait_here(m: MRef, lost: *const P, publish: impl FnOnce(GRef)) -> bool {
    let g = m.g();
    let was_bound = g.has(flags::BOUND);
    m.by_g0.set(m.by_g0.get() + 1);
    g.set_flag(flags::BOUND | flags::INTERRUPTED, true);
    g.bound_m.set(m.as_ptr());
    g.set_status(Status::Runnable);
    g.left_at.set(time::now());
    publish(g);
    // The handler sleeps here, and holds nothing: signals of the host need not wait for the P.
    let (context, signal) = (m.context.get(), rt().preempt_signal);
    // The goroutine comes back with a P, or without one: see `handler::let_go`.
    while m.stash.get().is_none() && m.p.get().is_null() {
        stop::wait_for_gift(m, || {
            // SAFETY: `on_signal` was given this context, and has not returned.
            unsafe { signal::let_others_through(context, signal, || m.sleep(-1)) };
        });
    }
    m.stash.set(None::<Task>);
    g.set_flag(flags::INTERRUPTED, false);
    g.set_flag(flags::BOUND, was_bound);
    m.by_g0.set(m.by_g0.get() - 1);
    if m.p.get().is_null() {
        m.p.set(lost);
        g.set_status(Status::Running);
        // Release: pairs with the Acquire of the deadlock watch.
        m.claim.store(claim::TAKEN, Ordering::Release);
        return false;
    }
    computes_from_now(m.p());
    m.bind_to(m.p().node as usize);
    switch::assign(m, m.p(), g);
    true
}

/// A preempted goroutine runs on this P from now on; the caller owns the P. The new tick tells sysmon that the P has another
/// goroutine, with a time slice of its own. The goroutine runs undisturbed for as long as others had the P since a
/// preempted goroutine last ran there. The thread that gives the P calls this, and then the goroutine's thread, which may
/// wait for a CPU in between.
pub fn computes_from_now(p: PRef) {
    let (now, event_waits) = (time::now(), p.event_waits());
    order::next_tick(p);
    let taken_at = p.taken_at.swap(0, Ordering::Relaxed);
    if taken_at != 0 {
        p.others_had.store((now - taken_at).clamp(0, rt().slice), Ordering::Relaxed);
    }
    p.seen_at(now + p.others_had.load(Ordering::Relaxed));
    if event_waits {
        p.let_event_wait();
    }
}

/// Sends the signal to strays: threads that have lost their P in a block, and run the user's code without a P. Strays
/// have no claim to a CPU, and must not run while the world is stopped. Checks up to `most` threads without a P, beginning
/// with number `from`, and returns how many signals it has sent.
pub fn interrupt_strays(rt: &Runtime, from: usize, most: usize) -> usize {
    if rt.preempt_signal == 0 {
        return 0;
    }
    let lost = rt.ms_that(|m| m.claim.load(Ordering::Relaxed) == claim::TAKEN);
    let some = lost.iter().cycle().skip(from % lost.len().max(1)).take(most.min(lost.len()));
    // A thread that waits for a CPU is found once it has one.
    let computing = some.copied().filter(|m| thread::is_on_cpu(m.tid.load(Ordering::Relaxed)));
    computing.filter(|&m| interrupt_stray(rt, m)).count()
}

/// Sends the signal to this M's thread, which is not blocked, if the thread runs the user's code without a P.
pub fn interrupt_stray(rt: &Runtime, m: MRef) -> bool {
    // Acquire: pairs with the Release where the M goes outside.
    let is_stray = m.claim.load(Ordering::Acquire) == claim::TAKEN
        && m.outside.load(Ordering::Relaxed) == OUTSIDE
        && may_be_interrupted(m)
        && rt.template.is_ready(rt);
    if is_stray {
        thread::send_signal(m.tid.load(Ordering::Relaxed), rt.preempt_signal);
    }
    is_stray
}

/// Whether a thread that has lost its P, and must not get the signal, runs the user's code.
pub fn computes_without_p(rt: &Runtime) -> bool {
    let computes = |m: &MRef| {
        let id = m.tid.load(Ordering::Relaxed);
        // Acquire: pairs with the Release where the M goes outside.
        m.outside.load(Ordering::Acquire) == OUTSIDE
            && !may_be_interrupted(*m)
            && (thread::is_on_cpu(id) || rt.inspector.is_blocked(rt, id) != Some(true))
    };
    let lost = rt.ms_that(|m| m.claim.load(Ordering::Acquire) == claim::TAKEN);
    lost.iter().any(computes)
}
