//! `gs_run`: the caller's thread becomes an M until its function has ended.

use super::{spawn, stopping};
use crate::arch;
use crate::os::cpu::Affinity;
use crate::os::signal::AltStack;
use crate::os::thread::{ExactTimeouts, NoCancel};
use crate::os::{KeepErrno, halt};
use crate::sched::run::{group, owner, ready, requests, start};
use crate::sched::schedule::g0;
use crate::sched::take::preempt;
use crate::sched::types::attention::TO_G0;
use crate::sched::types::g::GRef;
use crate::sched::types::m::{self, MRef};
use crate::sched::types::node;
use crate::sched::types::runtime::{Guest, rt};
use crate::sched::types::task::{GoFn, Task};
use core::ffi::c_void;
use core::hint::black_box;
use core::sync::atomic::{Ordering, fence};

/// Runs `f(arg)` as a goroutine, and other goroutines meanwhile, on this thread; returns when that
/// goroutine has ended. `-EBUSY`: the thread is an M already.
pub fn run(f: GoFn, arg: *mut c_void, pc: usize) -> i32 {
    if m::current().is_some() {
        return -libc::EBUSY;
    }
    run_root(|_| spawn::create_root(f, arg, pc))
}

/// Makes the calling thread an M until the goroutine that `create` makes for it has ended.
/// `-EDEADLK`: the thread has stopped the world.
pub fn run_root(create: impl FnOnce(MRef) -> Result<GRef, i32>) -> i32 {
    borrow(create, run_in_runtime, |_| ())
}

/// Takes an idle P for the root goroutine of a borrowed thread's M, or queues the goroutine.
fn run_in_runtime(m: MRef, root: GRef) {
    let rt = rt();
    root.runner.set(m.as_ptr());
    group::runner_comes(rt, m);
    match owner::take_idle_p(rt, None, m.node.get()) {
        Some(p) => {
            owner::acquire_p(m, p);
            m.stash.set(Some(Task::goroutine(root)));
            rt.sysmon.wake_if_asleep();
        }
        None => ready::push_global(Task::goroutine(root), node::priority::NORMAL),
    }
}

/// Makes the calling thread an M until g0's loop returns. `begin` gets the M with the goroutine that
/// `create` has made, before the loop; `end` gets the M after it. Fails as [`run_root`].
pub fn borrow(
    create: impl FnOnce(MRef) -> Result<GRef, i32>,
    begin: impl FnOnce(MRef, GRef),
    end: impl FnOnce(MRef),
) -> i32 {
    if stopping::has_stopped() {
        return -libc::EDEADLK;
    }
    let _errno = KeepErrno::new();
    let _no_cancel = NoCancel::new();
    let inside = match Guest::enter() {
        Ok(inside) => inside,
        Err(e) => return e,
    };
    let rt = rt();
    // Whatever may fail comes before `create`: a goroutine that is made runs.
    let Some(m) = rt.add_runner() else { return -libc::ENOMEM };
    let root = match create(m) {
        Ok(g) => g,
        Err(e) => {
            m.hold.end();
            rt.runner_leaves(m);
            return e;
        }
    };
    m.root.set(root.as_ptr());
    let alt = AltStack::set_up();
    m.alt_stack.set(alt.as_ref().map_or(0, AltStack::start));
    let exact = ExactTimeouts::ask_for();
    m.bind_to_thread();
    // The affinity of an attached thread is its owner's, because only the owner's code runs there.
    let mut affinity =
        if rt.binds_runners && !m.is_attached() { Affinity::current() } else { None };
    // SAFETY: `affinity` stays until `give_affinity_back`, below.
    unsafe { m.borrow_affinity(affinity.as_mut()) };
    // SAFETY: this thread has just been bound to the M.
    unsafe { m::set_current(Some(m)) };
    let mask = preempt::allow();
    begin(m, root);
    // What the registers of the thread's owner hold is in this frame, or above it.
    let registers = arch::kept_registers();
    m.first_frame.set(black_box(&registers).as_ptr() as usize);
    // Release: pairs with the Acquire of the deadlock detector.
    m.hold.end();
    drop(inside);
    run_below(m);
    black_box(&registers);
    end(m);
    m.first_frame.set(0);
    m.give_affinity_back();
    // SAFETY: the thread runs no goroutine any more.
    unsafe { m::set_current(None) };
    m.cxa.end();
    halt::wait_in_call();
    if let Some(mask) = mask {
        mask.restore();
    }
    m.alt_stack.set(0);
    drop((alt, exact));
    rt.runner_leaves(m);
    0
}

/// Runs goroutines in a frame of its own, below the frame of `run_root`, which has nothing of g0's.
#[inline(never)]
fn run_below(m: MRef) {
    g0::run(m);
}

/// Lets the thread of `runner`, whose root goroutine has ended, go back to its owner as soon as it
/// has left the goroutine that it runs now.
pub fn root_ended(runner: MRef) {
    runner.leaves.store(true, Ordering::Release);
    // Pairs with the fences in `must_leave` and `stop`.
    fence(Ordering::SeqCst);
    for p in rt().ps() {
        if p.is_run_by(runner) {
            requests::ask(p, TO_G0);
        }
    }
    start::nudge(runner);
}
