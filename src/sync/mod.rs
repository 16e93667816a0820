//! Locks and other meeting points. Each object is memory of the user's, valid
//! when all its bytes are zero, and has a [`SpinLock`] for its few words.
//!
//! Lifetime: whoever releases an object wakes others only after the last access
//! to it, so the one that is woken may free it at once. A waiter that gives up
//! takes the object's lock once more, so nobody else is in its middle then.

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
use crate::sched::park::{Block, Cause, Parker, WaitQueue, Waiter, Why, ready_all};

/// Waits in the queue of an object whose lock the caller holds; it is released.
/// 0 when woken. When it gives up, `gave_up` runs under the lock after the waiter
/// is out; what it returns is made ready after the lock has been released.
#[inline(always)]
fn wait_in(
    lock: &SpinLock,
    queue: &WaitQueue,
    tag: u64,
    deadline: i64,
    why: Why,
    gave_up: impl FnOnce() -> *const Waiter,
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
    // SAFETY: the lock is held; `unlock` releases it.
    match unsafe { block.park_inline(unlock, core::ptr::from_ref(lock) as usize) } {
        Cause::Woken => 0,
        cause => {
            let others = lock.with(|| {
                queue.remove(&waiter);
                gave_up()
            });
            // SAFETY: a list of waiters that `gave_up` took out.
            unsafe { ready_all(others) };
            cause.errno()
        }
    }
}

/// For objects where nothing changes for others when a waiter gives up.
fn nobody() -> *const Waiter {
    core::ptr::null()
}

/// # Safety
/// `lock` is the address of a lock that the caller holds.
unsafe fn unlock(lock: usize) {
    // SAFETY: by contract.
    unsafe { (*(lock as *const SpinLock)).unlock() };
}
