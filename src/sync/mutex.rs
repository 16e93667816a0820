//! A mutex with Go's two modes.
//!
//! Normally a woken waiter competes with whoever comes along, and often loses:
//! that is fast. A waiter that has lost for 1 ms makes the mutex starving: then
//! an unlock hands it to the first waiter directly.

use super::unlock;
use crate::os::spin::{SpinLock, backoff};
use crate::os::time;
use crate::sched::park::{Block, Cause, FOREVER, Parker, WaitQueue, Waiter, When, Why};
use crate::sched::schedule;
use core::sync::atomic::{AtomicU32, Ordering};

/// Somebody has it.
const LOCKED: u32 = 1;
/// The queue isn't empty.
const QUEUED: u32 = 2;
/// A waiter has been woken and competes: no need to wake another.
const AWAKE: u32 = 4;
/// Unlocking hands it over.
const STARVING: u32 = 8;

/// A waiter that has waited for so long, in ns, is starving.
const PATIENCE: i64 = 1_000_000;
/// Rounds of spinning before a waiter parks, as in Go.
const SPINS: u32 = 4;

/// Whether an unlock in this state has somebody to wake.
#[inline(always)]
fn needs_wake(s: u32) -> bool {
    s & QUEUED != 0 && s & (AWAKE | STARVING) != AWAKE
}

/// gs_mutex. sync.Mutex.
#[repr(C)]
pub struct Mutex {
    state: AtomicU32,
    /// For the queue, and for changes of `QUEUED` to 0.
    lock: SpinLock,
    queue: WaitQueue,
}

impl Mutex {
    /// Locks it. 0, or why it can't wait.
    #[inline]
    pub fn lock(&self, deadline: i64) -> i32 {
        if self.try_once() { 0 } else { self.lock_slow(deadline, true) }
    }

    /// Locks it, whatever happens: for `Cond`.
    pub fn lock_always(&self) {
        if !self.try_lock() {
            self.lock_slow(FOREVER, false);
        }
    }

    /// Locks it if it is free, unless the state changes meanwhile.
    #[inline(always)]
    pub fn try_once(&self) -> bool {
        let s = self.state.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `unlock`.
        s & (LOCKED | STARVING) == 0
            && self
                .state
                .compare_exchange(s, s | LOCKED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Locks it if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        let free = |s: u32| (s & (LOCKED | STARVING) == 0).then_some(s | LOCKED);
        self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).is_ok()
    }

    /// Waits a little, in case the owner is about to unlock it on another P.
    fn spin(&self) -> bool {
        if !schedule::may_spin() {
            return false;
        }
        for round in 0..SPINS {
            backoff(round);
            let s = self.state.load(Ordering::Relaxed);
            if s & STARVING != 0 {
                return false;
            }
            if s & LOCKED == 0 && self.try_lock() {
                return true;
            }
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, deadline: i64, cancellable: bool) -> i32 {
        if self.spin() {
            return 0;
        }
        let mut since = 0;
        // Woken, and so the one that `AWAKE` speaks of.
        let mut awake = false;
        loop {
            self.lock.lock();
            let starving = awake && time::now() - since > PATIENCE;
            if self.take_or_queue(awake, starving) {
                self.lock.unlock();
                return 0;
            }
            let thread = Parker::for_thread();
            let begun = if cancellable {
                Block::begin(&thread, deadline, false, Why::Mutex)
            } else {
                Ok(Block::begin_uncancellable(&thread, Why::Mutex))
            };
            let block = match begun {
                Ok(block) => block,
                Err(e) => {
                    self.left_queue();
                    self.lock.unlock();
                    return e;
                }
            };
            let waiter = block.waiter();
            if awake {
                self.queue.push_front(&waiter);
            } else {
                since = time::now();
                self.queue.push(&waiter);
            }
            waiter.tag.set(since as u64);
            // SAFETY: the lock is held; `unlock` releases it.
            let cause = unsafe { block.park_inline(unlock, &raw const self.lock as usize) };
            if cause != Cause::Woken {
                self.lock.with(|| {
                    self.queue.remove(&waiter);
                    self.left_queue();
                });
                return cause.errno();
            }
            if waiter.ok.get() {
                return 0;
            }
            awake = true;
        }
    }

    /// With the queue's lock held: takes the mutex if it is free; else says that
    /// somebody queues, and that the one that was awake no longer is.
    fn take_or_queue(&self, awake: bool, starving: bool) -> bool {
        let mut s = self.state.load(Ordering::Relaxed);
        loop {
            let calm = if awake { s & !AWAKE } else { s };
            let (new, taken) = if s & (LOCKED | STARVING) == 0 {
                (calm | LOCKED, true)
            } else {
                (calm | QUEUED | if starving && s & LOCKED != 0 { STARVING } else { 0 }, false)
            };
            match self.state.compare_exchange_weak(s, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return taken,
                Err(now) => s = now,
            }
        }
    }

    /// With the queue's lock held: somebody has left the queue, or not entered it.
    fn left_queue(&self) {
        if self.queue.is_empty() {
            self.state.fetch_and(!(QUEUED | STARVING), Ordering::Relaxed);
        }
    }

    /// Unlocks it if it is locked and nobody is to be woken, unless the state
    /// changes meanwhile.
    #[inline(always)]
    pub fn unlock_once(&self) -> bool {
        let s = self.state.load(Ordering::Relaxed);
        // Release: pairs with the Acquire of the next one.
        !needs_wake(s)
            && s & LOCKED != 0
            && self
                .state
                .compare_exchange(s, s & !LOCKED, Ordering::Release, Ordering::Relaxed)
                .is_ok()
    }

    /// Unlocks it. `-EPERM`: it isn't locked.
    #[inline]
    pub fn unlock(&self) -> i32 {
        if self.unlock_once() { 0 } else { self.unlock_slow() }
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow(&self) -> i32 {
        loop {
            let s = self.state.load(Ordering::Relaxed);
            if s & LOCKED == 0 {
                return -libc::EPERM;
            }
            if !needs_wake(s) {
                // After this it may be gone.
                let free = s & !LOCKED;
                if self
                    .state
                    .compare_exchange(s, free, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
                {
                    return 0;
                }
                continue;
            }
            // It is ours, so it stays while we look for whom to wake.
            self.lock.lock();
            if let Some(waiter) = self.queue.pop() {
                // The waiter is in its call, so it stays until that is woken.
                self.pass_on(waiter);
                return 0;
            }
            self.left_queue();
            self.lock.unlock();
        }
    }

    /// With the queue's lock held, which is released: wakes a waiter, in starving
    /// mode as the new owner.
    fn pass_on(&self, waiter: &Waiter) {
        let empty = self.queue.is_empty();
        let waited = time::now() - waiter.tag.get() as i64;
        let mut s = self.state.load(Ordering::Relaxed);
        loop {
            let rest = if empty { s & !(QUEUED | STARVING) } else { s };
            let hand_over = s & STARVING != 0;
            let new = match hand_over {
                true if waited < PATIENCE => rest & !STARVING,
                true => rest,
                false => rest & !LOCKED | AWAKE,
            };
            match self.state.compare_exchange_weak(s, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => {
                    waiter.ok.set(hand_over);
                    break;
                }
                Err(now) => s = now,
            }
        }
        self.lock.unlock();
        // SAFETY: popped, so ours.
        unsafe { Waiter::ready(waiter, When::NextIfFree) };
    }

    /// Whether the caller may be its owner, for `Cond`.
    pub fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) & LOCKED != 0
    }
}
