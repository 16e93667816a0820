//! A condition variable.

use super::Mutex;
use crate::os::spin::SpinLock;
use crate::sched::run::park::{Block, ready_all};
use crate::sched::types::waiter::{Cause, Parker, WaitQueue, Waiter, When, Why};

/// gs_cond. Go's `sync.Cond`.
#[repr(C)]
pub struct Cond {
    lock: SpinLock,
    queue: WaitQueue,
}

/// The two locks that a waiter holds until it can be woken.
#[derive(Clone, Copy)]
struct Held<'a> {
    queue: &'a SpinLock,
    mutex: &'a Mutex,
}

impl Held<'_> {
    /// Unlocks the queue, then the mutex. Not the other way round: unlocking the mutex may wake or
    /// start a thread, and no holder of a spin lock may do that.
    ///
    /// # Safety
    /// `this` is the address of a `Held`, and the caller holds both locks.
    unsafe fn unlock(this: usize) {
        // Copied, because the goroutine may go on once the queue is unlocked.
        // SAFETY: it is on the stack of the waiting goroutine, which doesn't go on without the
        // queue's lock.
        let Held { queue, mutex } = unsafe { *(this as *const Self) };
        // SAFETY: the waiting goroutine has handed the lock over.
        unsafe { queue.unlock() };
        // The mutex is still there, because the waiting goroutine locks it before it goes on.
        mutex.unlock();
    }
}

impl Cond {
    /// Unlocks the mutex, waits, and locks the mutex again, even after an error. 0 when woken; else
    /// the reason why the wait ended. `-EPERM`: the mutex isn't locked.
    pub fn wait(&self, mutex: &Mutex, deadline: i64) -> i32 {
        if !mutex.is_locked() {
            return -libc::EPERM;
        }
        let thread = Parker::for_thread();
        self.lock.lock();
        let block = match Block::begin(&thread, deadline, false, Why::Cond) {
            Ok(block) => block,
            Err(e) => {
                // SAFETY: locked above.
                unsafe { self.lock.unlock() };
                return e;
            }
        };
        let waiter = block.waiter(self);
        // SAFETY: the lock was taken above. The waiter stays until this returns, and is out of the
        // queue then.
        unsafe { self.queue.push(&waiter) };
        let held = Held { queue: &self.lock, mutex };
        // SAFETY: the lock is held; `Held::unlock` releases it.
        let cause = unsafe { block.park(Held::unlock, &raw const held as usize) };
        if cause != Cause::Woken {
            self.lock.with(|| self.queue.remove(&waiter));
        }
        mutex.lock_always();
        cause.errno()
    }

    /// Wakes the waiter that has waited longest.
    pub fn signal(&self) {
        let waiter = self.lock.with(|| self.queue.pop());
        if let Some(w) = waiter {
            // SAFETY: `pop` has taken the waiter out of its queue and claimed it, so only this
            // thread wakes it.
            unsafe { Waiter::ready(w, When::NextIfFree) };
        }
    }

    /// Wakes all waiters.
    pub fn broadcast(&self) {
        let all = self.lock.with(|| self.queue.pop_all());
        ready_all(all);
    }
}
