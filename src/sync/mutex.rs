//! A mutex with Go's two modes.
//!
//! In normal mode a woken waiter competes with new callers, and often loses. That keeps the
//! throughput high. A waiter that has lost for 1 ms makes the mutex starving: then an unlock hands
//! the mutex to the first waiter directly.
//!
//! While a woken waiter competes, an unlock wakes no other waiter. But a woken waiter may be slow
//! to run, because of its priority or because its thread is blocked ([`Haste`]), and other waiters
//! must not wait for it while the mutex is free. So an unlock that wakes a slow waiter also wakes
//! the first prompt waiter. Only a prompt waiter keeps later unlocks from waking others, for a
//! limited number of unlocks: see `TURNS`. In starving mode too, a slow waiter is not handed the
//! mutex while a prompt one waits.

use super::{note_lock_wait, spin};
use crate::os::spin::SpinLock;
use crate::os::time;
use crate::sched::prim::clock;
use crate::sched::run::park::{Block, FOREVER, Haste, unlock};
use crate::sched::types::waiter::{Cause, Parker, WaitQueue, Waiter, When, Why};
use core::sync::atomic::{AtomicU32, Ordering};

/// The mutex is held.
const LOCKED: u32 = 1;
/// The queue isn't empty.
const QUEUED: u32 = 2;
/// A woken waiter that runs soon competes, so no other waiter needs to be woken.
const AWAKE: u32 = 4;
/// The mutex is starving: an unlock hands it over.
const STARVING: u32 = 8;
/// Lowest bit of the count of unlocks that woke no waiter because of `AWAKE`.
const TURN: u32 = 16;
/// Number of such unlocks after which an unlock checks how long the first waiter has waited. If
/// longer than `PATIENCE`, the unlock wakes the first waiter in spite of `AWAKE`, because the awake
/// waiter may be stuck.
const TURNS: u32 = 32;

/// Time in ns after which a waiter is starving.
const PATIENCE: i64 = 1_000_000;

/// Whether an unlock in this state must search the queue for a waiter to wake.
#[inline(always)]
fn must_search_queue(s: u32) -> bool {
    s & QUEUED != 0 && (s & (AWAKE | STARVING) != AWAKE || s >= TURN * TURNS)
}

/// The state after an unlock that doesn't search the queue.
#[inline(always)]
fn unlocked(s: u32) -> u32 {
    (s & !LOCKED) + if s & QUEUED != 0 { TURN } else { 0 }
}

/// How soon the waiter runs once it is woken.
fn haste(waiter: &Waiter) -> Haste {
    Haste::from_word(waiter.elem.get())
}

// The header's inline functions know these bits, and that they are in the first word. The word
// `opaque[1]` there is the head of the queue.
const _: () = assert!(LOCKED == 1 && QUEUED == 2 && STARVING == 8);
const _: () = assert!(core::mem::offset_of!(Mutex, state) == 0);
const _: () = assert!(core::mem::offset_of!(Mutex, queue) == 8);

/// gs_mutex. Go's `sync.Mutex`.
#[repr(C)]
pub struct Mutex {
    state: AtomicU32,
    /// Guards the queue, and changes of `QUEUED` to 0.
    lock: SpinLock,
    queue: WaitQueue,
}

impl Mutex {
    /// Locks the mutex. 0, or the reason why the wait ended.
    #[inline]
    pub fn lock(&self, deadline: i64) -> i32 {
        if self.try_once() { 0 } else { self.lock_slow(deadline, true) }
    }

    /// Locks the mutex, without a deadline or cancel: for `Cond`.
    pub fn lock_always(&self) {
        if !self.try_lock() {
            self.lock_slow(FOREVER, false);
        }
    }

    /// Locks the mutex by one compare-and-swap. False: not free, or the state changed meanwhile.
    #[inline(always)]
    #[must_use]
    pub fn try_once(&self) -> bool {
        let s = self.state.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `unlock`.
        s & (LOCKED | STARVING) == 0
            && self
                .state
                .compare_exchange(s, s | LOCKED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Locks the mutex if it is free.
    #[inline]
    #[must_use]
    pub fn try_lock(&self) -> bool {
        let free = |s: u32| (s & (LOCKED | STARVING) == 0).then_some(s | LOCKED);
        self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, deadline: i64, cancellable: bool) -> i32 {
        if spin(&self.state, STARVING, || self.try_lock()) {
            return 0;
        }
        let mut since = 0;
        let begun = clock::rough();
        // Whether `AWAKE` is set for the caller: an unlock has woken it.
        let mut awake = false;
        loop {
            self.lock.lock();
            let starving = awake && time::now() - since > PATIENCE;
            if self.take_or_queue(awake, starving) {
                // SAFETY: locked above.
                unsafe { self.lock.unlock() };
                note_lock_wait(begun);
                return 0;
            }
            let thread = Parker::for_thread();
            let block = if cancellable {
                Block::begin(&thread, deadline, false, Why::Mutex)
            } else {
                Ok(Block::begin_uncancellable(&thread, Why::Mutex))
            };
            let block = match block {
                Ok(block) => block,
                Err(e) => {
                    self.left_queue();
                    // SAFETY: locked above.
                    unsafe { self.lock.unlock() };
                    return e;
                }
            };
            let waiter = block.waiter(self);
            // SAFETY: the lock was taken above. The waiter stays until the round ends, and is out
            // of the queue then.
            unsafe {
                if awake {
                    self.queue.push_front(&waiter);
                } else {
                    since = time::now();
                    self.queue.push(&waiter);
                }
            }
            waiter.tag.set(since as u64);
            waiter.elem.set(Haste::of_caller().into_word());
            // SAFETY: the lock is held; `unlock` releases it.
            let cause = unsafe { block.park_inline(unlock, &raw const self.lock as usize) };
            if cause != Cause::Woken {
                self.lock.with(|| {
                    self.queue.remove(&waiter);
                    self.left_queue();
                });
                note_lock_wait(begun);
                return cause.errno();
            }
            if waiter.ok.get() {
                note_lock_wait(begun);
                return 0;
            }
            awake = true;
        }
    }

    /// With the queue's lock held: takes the mutex if it is free; else sets `QUEUED`, and
    /// `STARVING` if `starving`. Clears `AWAKE` if `awake`.
    #[must_use]
    fn take_or_queue(&self, awake: bool, starving: bool) -> bool {
        let mut s = self.state.load(Ordering::Relaxed);
        loop {
            let calm = if awake { s & (TURN - 1) & !AWAKE } else { s };
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

    /// With the queue's lock held: updates the state after a waiter has left the queue, or has not
    /// entered it.
    fn left_queue(&self) {
        if self.queue.is_empty() {
            self.state.fetch_and(!(QUEUED | STARVING), Ordering::Relaxed);
        }
    }

    /// Unlocks the mutex by one compare-and-swap. False: not locked, a waiter must be woken, or the
    /// state changed meanwhile.
    #[inline(always)]
    pub fn unlock_once(&self) -> bool {
        let s = self.state.load(Ordering::Relaxed);
        // Release: pairs with the Acquire of the next owner. After this the mutex may be gone.
        s & LOCKED != 0
            && !must_search_queue(s)
            && self
                .state
                .compare_exchange(s, unlocked(s), Ordering::Release, Ordering::Relaxed)
                .is_ok()
    }

    /// Unlocks the mutex. `-EPERM`: not locked.
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
            let free = if !must_search_queue(s) {
                unlocked(s)
            } else if s & (AWAKE | STARVING) == AWAKE && !self.lock.with(|| self.is_overdue()) {
                // The awake waiter is on its way, so the count of unlocks starts again at 0.
                s & (TURN - 1) & !LOCKED
            } else {
                // The caller still owns the mutex, so the mutex stays while a waiter is searched.
                self.lock.lock();
                // SAFETY: locked above.
                if unsafe { self.pass_on() } {
                    return 0;
                }
                self.left_queue();
                // SAFETY: locked above.
                unsafe { self.lock.unlock() };
                continue;
            };
            // Release: pairs with the Acquire of the next owner. After this the mutex may be gone.
            if self.state.compare_exchange(s, free, Ordering::Release, Ordering::Relaxed).is_ok() {
                return 0;
            }
        }
    }

    /// With the queue's lock held: whether the first waiter has waited too long.
    fn is_overdue(&self) -> bool {
        self.queue.first().is_some_and(|w| time::now() - w.tag.get() as i64 > PATIENCE)
    }

    /// With the queue's lock held: wakes a waiter, in starving mode as the new owner, and
    /// releases the lock. False: there is none, and the lock is still held.
    ///
    /// # Safety
    /// The caller holds the queue's lock.
    unsafe fn pass_on(&self) -> bool {
        let starving = self.state.load(Ordering::Relaxed) & STARVING != 0;
        let prompt = |w: &Waiter| haste(w).is_prompt();
        let first = match starving.then(|| self.queue.pop_that(prompt)).flatten() {
            Some(prompt) => Some(prompt),
            None => self.queue.pop(),
        };
        // A waiter is in its call until it is woken, so the mutex stays meanwhile.
        let Some(first) = first else { return false };
        let runs_soon = prompt(first);
        let hand_over = starving && !haste(first).is_idle();
        let second = match hand_over || runs_soon {
            true => None,
            false => self.queue.pop_that(prompt),
        };
        let awake = if runs_soon || second.is_some() { AWAKE } else { 0 };
        let empty = self.queue.is_empty();
        let soon_over = hand_over && time::now() - (first.tag.get() as i64) < PATIENCE;
        first.ok.set(hand_over);
        let mut s = self.state.load(Ordering::Relaxed);
        loop {
            let rest = if empty { s & !(QUEUED | STARVING) } else { s } & (TURN - 1);
            let new = match hand_over {
                true if soon_over => rest & !STARVING,
                true => rest,
                false => rest & !(LOCKED | STARVING) | awake,
            };
            match self.state.compare_exchange_weak(s, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => s = now,
            }
        }
        // SAFETY: the caller holds it.
        unsafe { self.lock.unlock() };
        for waiter in [Some(first), second].into_iter().flatten() {
            // SAFETY: `pop` has taken the waiter out of its queue and claimed it, so only this
            // thread wakes it.
            unsafe { Waiter::ready(waiter, When::NextIfFree) };
        }
        true
    }

    /// Whether the mutex is locked, so that the caller may be its owner: for `Cond`.
    pub fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) & LOCKED != 0
    }
}
