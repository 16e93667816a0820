//! Locks and other meeting points. Each object is memory of the user's, valid
//! when all its bytes are zero, and has a [`SpinLock`] for its few words.
//!
//! Lifetime: whoever releases an object wakes others only after the last access
//! to it, so the one that is woken may free it at once. A waiter that gives up, or
//! who gives up for it, takes the object's lock once more.

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

use crate::os::spin::SpinLock;
use crate::sched::park::{Block, Cause, Leave, Parker, WaitQueue, Waiter, Why, ready_all};

/// Waits in the queue of an object whose lock the caller holds; it is released.
/// 0 when woken. For objects where nothing changes for others when a waiter gives up.
#[inline(always)]
fn wait_in(lock: &SpinLock, queue: &WaitQueue, deadline: i64, why: Why) -> i32 {
    let thread = Parker::for_thread();
    let block = match Block::begin(&thread, deadline, false, why) {
        Ok(block) => block,
        Err(e) => {
            lock.unlock();
            return e;
        }
    };
    let waiter = block.waiter();
    queue.push(&waiter);
    // SAFETY: the lock is held; `unlock` releases it.
    let cause = unsafe { block.park_inline(unlock, core::ptr::from_ref(lock) as usize) };
    if cause != Cause::Woken {
        lock.with(|| queue.remove(&waiter));
    }
    cause.errno()
}

/// One who waits where others may wait behind it.
struct InLine<'a, F> {
    lock: &'a SpinLock,
    queue: &'a WaitQueue,
    waiter: &'a Waiter,
    gave_up: F,
}

impl<F: Fn() -> *const Waiter> InLine<'_, F> {
    /// # Safety
    /// `this` is the address of one, and the caller holds no lock.
    unsafe fn leave(this: usize) {
        // SAFETY: it is on the stack of the one that waits, until this is over.
        let this = unsafe { &*(this as *const Self) };
        let others = this.lock.with(|| {
            this.queue.remove(this.waiter);
            (this.gave_up)()
        });
        // SAFETY: a list of waiters that `gave_up` took out.
        unsafe { ready_all(others) };
    }
}

/// [`wait_in`] where a waiter may be in the way of others. If a deadline or a cancel ends the
/// wait, whoever sees to that calls `gave_up` under the lock after the waiter is out of the
/// queue: the others need not wait until the one that gives up runs. What it returns is made
/// ready after the lock has been released.
#[inline(always)]
fn wait_in_line<F: Fn() -> *const Waiter>(
    lock: &SpinLock,
    queue: &WaitQueue,
    tag: u64,
    deadline: i64,
    why: Why,
    gave_up: F,
) -> i32 {
    let thread = Parker::for_thread();
    let block = match Block::begin(&thread, deadline, false, why) {
        Ok(block) => block,
        Err(e) => {
            lock.unlock();
            return e;
        }
    };
    let waiter = block.waiter();
    waiter.tag.set(tag);
    queue.push(&waiter);
    let place = InLine { lock, queue, waiter: &waiter, gave_up };
    let leave = Leave { f: InLine::<F>::leave, arg: &raw const place as usize };
    let lock = core::ptr::from_ref(lock) as usize;
    // SAFETY: the lock is held, and `unlock` releases it; `place` stays until the park is over.
    unsafe { block.park_leaving(unlock, lock, Some(leave)) }.errno()
}

/// # Safety
/// `lock` is the address of a lock that the caller holds.
unsafe fn unlock(lock: usize) {
    // SAFETY: the address of a lock, says the caller.
    unsafe { (*(lock as *const SpinLock)).unlock() };
}
