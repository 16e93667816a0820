//! fork(2): the locks that are held across it, and what the child forgets.

use super::bubble;
use super::{keys, orphans, stopping, tracing};
use crate::os::forking::{ALLOCATES, FORKING, SYSMON_ABSTAINS, may_fork};
use crate::os::{forking, halt, heap, log, thread, time};
use crate::sched::ext::{gang, hooks};
use crate::sched::run::group;
use crate::sched::services::{deadlock, quit};
use crate::sched::take::{boundary, handler};
use crate::sched::types::m;
use crate::sched::types::runtime::{AT_THE_DOOR, CHANGING, GUESTS, LIFE, RUNTIME, Runtime, try_rt};
use crate::sched::types::scripts;
use crate::sched::wait::{netpoll, timers};
use crate::{backtrace, cxx};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Whether the forking thread holds the lock of `World`. Used with `LIFE` held.
pub static EXCLUDES_STOP: AtomicBool = AtomicBool::new(false);

/// The forking thread's `M::outside` before the fork. Used with `LIFE` held.
static FORKS_FROM: AtomicU8 = AtomicU8::new(m::INSIDE);

/// A forking thread's sleep between two checks whether the world is still stopped, in ns.
pub const FORK_RETRY: i64 = 100_000;

/// A function that takes a lock, and the function that releases it.
type LockAndUnlock = (fn(), unsafe fn());

/// Locks that the forking thread holds across the fork, in the order of taking. [`before_fork`]
/// takes other locks before and after these.
const HELD: [LockAndUnlock; 10] = [
    (|| ALLOCATES.lock(), may_fork),
    (keys::lock_table, keys::unlock_table),
    (deadlock::lock_handler, deadlock::unlock_handler),
    (log::lock, log::unlock),
    (hooks::lock_tables, hooks::unlock_tables),
    (scripts::lock, scripts::unlock),
    (group::lock_all, group::unlock_all),
    (orphans::lock, orphans::unlock),
    (gang::lock_free, gang::unlock_free),
    (thread::lock_own, thread::unlock_own),
];

pub extern "C" fn before_fork() {
    // Inside the library, so that the goroutine isn't stopped while it holds the locks.
    let from = m::current().map_or(m::INSIDE, boundary::go_inside);
    timers::no_longer_keeps_from_forking();
    let excludes = lock_life_to_fork();
    EXCLUDES_STOP.store(excludes, Ordering::Relaxed);
    FORKS_FROM.store(from, Ordering::Relaxed);
    // Set with `LIFE` held, so one thread forks at a time.
    FORKING.store(true, Ordering::SeqCst);
    if let Some(rt) = try_rt() {
        handler::empty_handlers(rt);
        // Before the locks that a thread firing timers may need.
        timers::wait_until_none_fires(rt);
    }
    // After `empty_handlers`, because a goroutine that waited in a handler may have had the
    // loader's lock.
    forking::wait_for_searches();
    HELD.iter().for_each(|(lock, _)| lock());
    if let Some(rt) = try_rt() {
        rt.copies.lock();
    }
    heap::lock();
}

/// Locks `LIFE`. For a caller that could fork in a stopped world, also takes the lock of `World`,
/// so that no thread stops the world. Returns whether it took that lock.
///
/// A caller that holds a P needs no lock: no stop is complete before that P has stopped. The
/// stopper itself has the lock already.
pub fn lock_life_to_fork() -> bool {
    loop {
        LIFE.lock();
        let Some(rt) = try_rt() else { return false };
        if m::holds_p() || stopping::has_stopped() {
            return false;
        }
        if rt.world.try_lock() {
            return true;
        }
        // The stopper of the world may need `LIFE` to start the world again.
        // SAFETY: locked above.
        unsafe { LIFE.unlock() };
        wait_for_stopper();
    }
}

/// Sleeps for [`FORK_RETRY`], with the M marked as waiting: the stopper of the world waits for
/// goroutines without a P that are in the library, but not for a marked M.
fn wait_for_stopper() {
    let m = m::current();
    // A handler of the host's may have interrupted a goroutine that was waiting in the library.
    let waits = m.is_some_and(|m| m.waits_inside.swap(true, Ordering::Relaxed));
    time::sleep(FORK_RETRY);
    if let Some(m) = m {
        m.waits_inside.store(waits, Ordering::Release);
    }
}

/// Releases the locks in the parent; in the child releases their copies, which the child's only
/// thread holds.
///
/// # Safety
/// [`before_fork`] has taken the locks, with this runtime.
pub unsafe fn unlock_after_fork(rt: Option<&Runtime>) {
    // SAFETY: `before_fork` has taken all these locks, as the caller says.
    unsafe {
        heap::unlock();
        if let Some(rt) = rt {
            rt.copies.unlock();
        }
        HELD.iter().rev().for_each(|(_, unlock)| unlock());
        FORKING.store(false, Ordering::SeqCst);
        LIFE.unlock();
    }
}

pub extern "C" fn after_fork() {
    if let Some(rt) = try_rt() {
        rt.template.gate.open();
        if EXCLUDES_STOP.load(Ordering::Relaxed) {
            // SAFETY: `before_fork` has locked the world's lock.
            unsafe { rt.world.unlock() };
        }
    }
    let from = FORKS_FROM.load(Ordering::Relaxed);
    // SAFETY: `before_fork` has run on this thread.
    unsafe { unlock_after_fork(try_rt()) };
    if let Some(m) = m::current() {
        m.outside.store(from, Ordering::Release);
    }
}

/// Leaves the parent's runtime, in the child of a fork. The child has only the thread that forked,
/// and the memory of a runtime whose threads are gone. That runtime is left alone; a new one is
/// made when needed.
pub extern "C" fn in_child() {
    if let Some(m) = m::current() {
        // SAFETY: the parent's runtime, of which this is a copy.
        let rt = unsafe { &*RUNTIME.load(Ordering::Relaxed) };
        if !m.is_runner() {
            rt.host_mask.restore();
        }
        m.unbind();
        if !m.curg.get().is_null()
            && let Some(stack) = m.g().stack.get()
        {
            thread::forked_on(stack.bounds());
        }
    }
    let parent = try_rt();
    if let Some(rt) = parent {
        // The epoll instances are the parent's, with the parent's files.
        netpoll::close_all(rt);
        group::forked(rt);
    }
    // SAFETY: the thread runs no goroutine any more: it is a plain thread.
    unsafe { m::set_current(None) };
    SYSMON_ABSTAINS.store(false, Ordering::Relaxed);
    RUNTIME.store(ptr::null_mut(), Ordering::SeqCst);
    CHANGING.store(false, Ordering::SeqCst);
    GUESTS.forked();
    AT_THE_DOOR.forked();
    deadlock::forget_threads();
    backtrace::forget_threads();
    halt::forked();
    stopping::forget_stop();
    // SAFETY: `before_fork` has run on this thread, in the parent.
    unsafe { unlock_after_fork(parent) };
    thread::forget_own();
    cxx::forked(parent.map(|rt| &rt.copies));
    // SAFETY: this is the child's only thread.
    unsafe { tracing::forked() };
    hooks::forked();
    // SAFETY: this is the child's only thread.
    unsafe { bubble::forked() };
    quit::forked();
}
