//! A lock for many readers or one writer. New readers wait while a writer waits. When a writer
//! unlocks, the readers that waited go before the writers that waited.
//!
//! If no writer waits, the readers are woken without being given the lock, and compete with new
//! callers. That is faster: readers that held the lock but don't run yet would keep the next writer
//! waiting, further readers would wait for that writer, and so on. A woken reader that finds that a
//! writer has the lock has been overtaken: the next writer that unlocks gives the reader the lock.
//!
//! Without waiters each call is a compare-and-swap of `state`. While `QUEUED` is set only the
//! holder of `lock` changes the state. A waiter sets `QUEUED` before it queues, and the bit is
//! cleared when both queues are empty.
//!
//! The next owner may free the lock's memory. So an unlocker must not touch the lock once it may be
//! free. On the fast path the last access is the compare-and-swap. With waiters there are three
//! cases. The unlocker makes some waiters the owners: these stay in their calls until the unlocker
//! wakes them. Or all waiters go on waiting: each takes `lock` before it leaves. Or all waiters
//! have left: the unlocker, which still has its share, clears `QUEUED` and tries the fast path
//! again.

use super::{errno_of, note_lock_wait, spin, wait_in_line};
use crate::os::spin::{SpinLock, backoff};
use crate::sched::prim::clock;
use crate::sched::run::park::ready_all;
use crate::sched::types::waiter::{Claimed, WaitQueue, Why};
use core::sync::atomic::{AtomicU32, Ordering};

/// A writer has the lock.
const WRITING: u32 = 1;
/// Readers or writers wait, or may be about to.
const QUEUED: u32 = 2;
/// Lowest bit of the count of readers that have the lock.
const READER: u32 = 4;

/// The tag of a waiting reader that has not been woken yet.
const PATIENT: u64 = 0;
/// The tag of a waiting reader that was woken before, but found that a writer had the lock.
const OVERTAKEN: u64 = 1;

/// The state with one reader less. `None`: there is no reader.
#[inline(always)]
fn without_reader(s: u32) -> Option<u32> {
    s.checked_sub(READER)
}

/// The state without the writer. `None`: there is no writer.
#[inline(always)]
fn without_writer(s: u32) -> Option<u32> {
    (s & WRITING != 0).then(|| s - WRITING)
}

/// gs_rwmutex. sync.RWMutex.
#[repr(C)]
pub struct RwMutex {
    state: AtomicU32,
    /// Guards the queues, and all changes of the state while `QUEUED` is set.
    lock: SpinLock,
    waiting_readers: WaitQueue,
    waiting_writers: WaitQueue,
}

impl RwMutex {
    /// Changes the state to `new(state)`. False: `new` gives `None`, or there are waiters. After a
    /// failed exchange the caller pauses, so that the other thread keeps the cache line for about a
    /// hundred uses of the lock. Without the pause two threads that only read took twice as long.
    #[inline(always)]
    fn change(&self, order: Ordering, new: impl Fn(u32) -> Option<u32>) -> bool {
        let new = |s: u32| if s & QUEUED == 0 { new(s) } else { None };
        let mut round = 0;
        while let s = self.state.load(Ordering::Relaxed)
            && let Some(next) = new(s)
        {
            if self.state.compare_exchange(s, next, order, Ordering::Relaxed).is_ok() {
                return true;
            }
            backoff(round);
            round += 1;
        }
        false
    }

    /// Locks for reading, if no writer has the lock and there are no waiters.
    #[inline(always)]
    #[must_use]
    pub fn read_once(&self) -> bool {
        // Acquire: pairs with the Release of the writer's unlock.
        self.change(Ordering::Acquire, |s| (s & WRITING == 0).then(|| s + READER))
    }

    /// Locks for writing, if the lock is free.
    #[inline(always)]
    #[must_use]
    pub fn write_once(&self) -> bool {
        // Acquire: pairs with the Release of the unlock before.
        self.change(Ordering::Acquire, |s| (s == 0).then_some(WRITING))
    }

    /// Undoes a `read_lock`, if there are no waiters.
    #[inline(always)]
    #[must_use]
    pub fn read_unlock_once(&self) -> bool {
        self.give_back(without_reader)
    }

    /// Undoes a `write_lock`, if there are no waiters.
    #[inline(always)]
    #[must_use]
    pub fn write_unlock_once(&self) -> bool {
        self.give_back(without_writer)
    }

    #[inline(always)]
    fn give_back(&self, without: impl Fn(u32) -> Option<u32>) -> bool {
        // Release: pairs with the Acquire of the next owner. After this the lock may be gone.
        self.change(Ordering::Release, without)
    }

    /// Locks for reading. 0, or the reason why the wait ended.
    pub fn read_lock(&self, deadline: i64) -> i32 {
        let mut tag = PATIENT;
        while !(self.read_once() || spin(&self.state, QUEUED, || self.read_once())) {
            self.lock.lock();
            let s = self.freeze();
            if s & WRITING == 0 && self.waiting_writers.is_empty() {
                self.thaw(s + READER);
                // SAFETY: locked above.
                unsafe { self.lock.unlock() };
                return 0;
            }
            let (queue, why, none) = (&self.waiting_readers, Why::ReadLock, || Claimed::NONE);
            let begun = clock::rough();
            // SAFETY: locked above.
            let waited = unsafe { wait_in_line(&self.lock, queue, tag, deadline, why, none) };
            note_lock_wait(begun);
            match waited {
                Ok(counted_in) if counted_in => return 0,
                Ok(_) => tag = OVERTAKEN,
                Err(e) => return e,
            }
        }
        0
    }

    /// Locks for writing. 0, or the reason why the wait ended.
    pub fn write_lock(&self, deadline: i64) -> i32 {
        if self.write_once() || spin(&self.state, QUEUED, || self.write_once()) {
            return 0;
        }
        self.lock.lock();
        if self.freeze() & !QUEUED == 0 {
            self.thaw(WRITING);
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
            return 0;
        }
        // When the last waiting writer gives up, readers need not wait for it.
        let gave_up = || {
            let s = self.freeze();
            let (s, readers) = match s & WRITING == 0 && self.waiting_writers.is_empty() {
                true => self.admit_readers(s),
                false => (s, Claimed::NONE),
            };
            self.thaw(s);
            readers
        };
        let why = Why::WriteLock;
        let (lock, queue) = (&self.lock, &self.waiting_writers);
        let begun = clock::rough();
        // SAFETY: locked above.
        let waited = unsafe { wait_in_line(lock, queue, 0, deadline, why, gave_up) };
        note_lock_wait(begun);
        errno_of(waited)
    }

    /// Undoes a `read_lock`. `-EPERM`: there is no reader.
    pub fn read_unlock(&self) -> i32 {
        let admit = |s: u32| match s >= READER {
            true => (s, Claimed::NONE),
            false => self.admit_writer(s),
        };
        self.unlock(without_reader, admit)
    }

    /// Undoes a `write_lock`. `-EPERM`: there is no writer.
    pub fn write_unlock(&self) -> i32 {
        let admit = |s: u32| match self.admit_readers(s) {
            (s, none) if none.is_empty() => self.admit_writer(s),
            readers => readers,
        };
        self.unlock(without_writer, admit)
    }

    /// Unlocks. `without`: gives the state without the caller's share. `admit`: lets waiters in.
    fn unlock(
        &self,
        without: impl Fn(u32) -> Option<u32>,
        admit: impl Fn(u32) -> (u32, Claimed),
    ) -> i32 {
        loop {
            if self.give_back(&without) {
                return 0;
            }
            if without(self.state.load(Ordering::Relaxed)).is_none() {
                return -libc::EPERM;
            }
            self.lock.lock();
            // The caller's share stays in the state until `thaw`.
            let s = self.freeze();
            if self.has_waiters()
                && let Some(rest) = without(s)
            {
                let (rest, admitted) = admit(rest);
                if !admitted.is_empty() || self.has_waiters() {
                    self.thaw(rest);
                    // SAFETY: locked above.
                    unsafe { self.lock.unlock() };
                    ready_all(admitted);
                    return 0;
                }
            }
            self.thaw(s);
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
        }
    }

    /// With the lock held: keeps all others from changing the state until `thaw`. Returns the
    /// state.
    fn freeze(&self) -> u32 {
        // Acquire: pairs with the Release of the unlocks before, for the waiters that are let in.
        // Release: keeps the unlocks before in the release sequence.
        self.state.fetch_or(QUEUED, Ordering::AcqRel) | QUEUED
    }

    /// With the lock held, after `freeze`: stores the new state.
    fn thaw(&self, s: u32) {
        let queued = if self.has_waiters() { QUEUED } else { 0 };
        // Release: pairs with the Acquire of the next owner.
        self.state.store(s & !QUEUED | queued, Ordering::Release);
    }

    fn has_waiters(&self) -> bool {
        !(self.waiting_readers.is_empty() && self.waiting_writers.is_empty())
    }

    /// Takes all waiting readers out of the queue. If a writer waits or a reader has been
    /// overtaken, the readers get the lock; else they compete for it.
    fn admit_readers(&self, s: u32) -> (u32, Claimed) {
        let list = self.waiting_readers.pop_all();
        let overtaken = list.iter().any(|w| w.tag.get() == OVERTAKEN);
        if !overtaken && self.waiting_writers.is_empty() {
            return (s, list);
        }
        let readers = list.iter().inspect(|w| w.ok.set(true)).count();
        (s + READER * readers as u32, list)
    }

    /// Lets the first waiting writer in. The lock is free.
    fn admit_writer(&self, s: u32) -> (u32, Claimed) {
        let writer = self.waiting_writers.pop_one();
        (if writer.is_empty() { s } else { s | WRITING }, writer)
    }
}
