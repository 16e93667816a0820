//! Locks and other synchronisation objects. Each object is the user's memory, valid when all bytes
//! are zero, with a [`SpinLock`] for its few words.
//!
//! Lifetime: a call that releases an object wakes waiters only after its own last access to the
//! object, so a woken waiter may free the object at once. If a waiter gives up, the object's lock
//! is taken once more before the waiter's call returns.

mod cond;
mod mutex;
mod once;
mod rwmutex;
mod sem;
mod waitgroup;

pub use cond::Cond;
pub use mutex::Mutex;
pub use once::Once;
pub use rwmutex::RwMutex;
pub use sem::Sem;
pub use waitgroup::WaitGroup;

use crate::os::spin::{SpinLock, backoff};
use crate::sched::prim::clock;
use crate::sched::run::order;
use crate::sched::run::park::{Block, ready_all, unlock};
use crate::sched::types::waiter::{Cause, Claimed, Leave, Parker, WaitQueue, Waiter, Why};
use crate::sched::types::{m, p};
use core::sync::atomic::{AtomicU32, Ordering};

/// Rounds of spinning before a caller of a lock queues, as in Go.
const SPINS: u32 = 4;

/// Calls `once` up to [`SPINS`] rounds, in case the lock's owner is about to unlock it on another
/// P. Returns whether `once` has returned true. Doesn't spin on if a bit of `hopeless` is set in the
/// lock's state, or if other work waits.
fn spin(state: &AtomicU32, hopeless: u32, once: impl Fn() -> bool) -> bool {
    if !order::may_spin() {
        return false;
    }
    for round in 0..SPINS {
        backoff(round);
        if state.load(Ordering::Relaxed) & hopeless != 0 {
            return false;
        }
        if once() {
            return true;
        }
    }
    false
}

/// Counts how long the caller, a goroutine, has waited for a mutex or rwmutex since `begun`
/// ([`clock::rough`]): shorter waits than the clock's steps count as 0 or, now and then, as a step.
/// Go's `sched.totalMutexWaitTime`.
fn note_lock_wait(begun: i64) {
    let waited = clock::rough() - begun;
    if waited > 0
        && let Some(m) = m::with_p()
    {
        p::count(&m.p().stats.lock_wait, waited as u64);
    }
}

/// A waiter whose wait a deadline or a cancel may end, for the thread that ends it.
struct InLine<'a, F> {
    lock: &'a SpinLock,
    queue: &'a WaitQueue,
    waiter: &'a Waiter,
    gave_up: F,
}

impl<F: Fn() -> Claimed> InLine<'_, F> {
    /// # Safety
    /// `this` is the address of an `InLine`, and the caller holds no lock.
    unsafe fn leave(this: usize) {
        // SAFETY: the `InLine` is on the stack of the waiting goroutine, which doesn't go on before
        // this is over.
        let this = unsafe { &*(this as *const Self) };
        let others = this.lock.with(|| {
            this.queue.remove(this.waiter);
            (this.gave_up)()
        });
        ready_all(others);
    }
}

/// Waits in the queue of an object whose lock the caller holds, and releases the lock. 0 when
/// woken. For objects where a waiter that gives up changes nothing for others.
///
/// # Safety
/// The caller holds the lock.
#[inline(always)]
unsafe fn wait_in(lock: &SpinLock, queue: &WaitQueue, deadline: i64, why: Why) -> i32 {
    // SAFETY: as the caller says.
    errno_of(unsafe { wait_in_line(lock, queue, 0, deadline, why, || Claimed::NONE) })
}

/// The result of a call after [`wait_in_line`]: 0, or why the wait has ended.
#[inline(always)]
fn errno_of(waited: Result<bool, i32>) -> i32 {
    waited.err().unwrap_or(0)
}

/// [`wait_in`] for objects where a waiter may block others behind it. If a deadline or a cancel
/// ends the wait, the thread that ends it takes the waiter out of the queue and calls `gave_up`
/// under the lock, so the others need not wait until this waiter runs. The waiters that `gave_up`
/// returns are made ready after the lock has been released. `Ok`: woken, with the waiter's `ok` as
/// the waker has set it.
///
/// # Safety
/// As for [`wait_in`].
#[inline(always)]
unsafe fn wait_in_line<F: Fn() -> Claimed>(
    lock: &SpinLock,
    queue: &WaitQueue,
    tag: u64,
    deadline: i64,
    why: Why,
    gave_up: F,
) -> Result<bool, i32> {
    let thread = Parker::for_thread();
    let block = match Block::begin(&thread, deadline, false, why) {
        Ok(block) => block,
        Err(e) => {
            // SAFETY: the caller has handed the lock over.
            unsafe { lock.unlock() };
            return Err(e);
        }
    };
    let waiter = block.waiter(lock);
    waiter.tag.set(tag);
    // SAFETY: the caller holds the lock. The waiter stays until this returns: a waker, or `leave`,
    // has taken it out then.
    unsafe { queue.push(&waiter) };
    let place = InLine { lock, queue, waiter: &waiter, gave_up };
    let leave = Leave { f: InLine::<F>::leave, arg: &raw const place as usize };
    let lock = core::ptr::from_ref(lock) as usize;
    // SAFETY: the lock is held, and `unlock` releases it; `place` stays until the park is over.
    match unsafe { block.park_leaving(unlock, lock, Some(leave)) } {
        Cause::Woken => Ok(waiter.ok.get()),
        cause => Err(cause.errno()),
    }
}
