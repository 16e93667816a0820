//! A lock for many readers or one writer. New readers wait while a writer
//! waits; when a writer unlocks, the readers that waited go first.

use super::{wait_in, wait_in_line};
use crate::os::spin::SpinLock;
use crate::sched::core::park::ready_all;
use crate::sched::who::waiter::{Claimed, WaitQueue, Why};
use core::cell::Cell;

/// gs_rwmutex. sync.RWMutex. All but `lock` is used with it held.
#[repr(C)]
pub struct RwMutex {
    lock: SpinLock,
    writing: Cell<bool>,
    readers: Cell<u32>,
    waiting_readers: WaitQueue,
    waiting_writers: WaitQueue,
}

impl RwMutex {
    /// Locks it for reading. 0, or why it can't wait.
    #[inline]
    pub fn read_lock(&self, deadline: i64) -> i32 {
        self.lock.lock();
        if !self.writing.get() && self.waiting_writers.is_empty() {
            self.readers.set(self.readers.get() + 1);
            self.lock.unlock();
            return 0;
        }
        // The waker has counted this reader in.
        wait_in(&self.lock, &self.waiting_readers, deadline, Why::ReadLock)
    }

    /// Undoes a `read_lock`. `-EPERM`: there is no reader.
    #[inline]
    pub fn read_unlock(&self) -> i32 {
        self.lock.lock();
        let readers = self.readers.get();
        if readers == 0 {
            self.lock.unlock();
            return -libc::EPERM;
        }
        self.readers.set(readers - 1);
        let next = if readers == 1 { self.admit_writer() } else { Claimed::NONE };
        self.release(next)
    }

    /// Locks it for writing. 0, or why it can't wait.
    pub fn write_lock(&self, deadline: i64) -> i32 {
        self.lock.lock();
        if !self.writing.get() && self.readers.get() == 0 && self.waiting_writers.is_empty() {
            self.writing.set(true);
            self.lock.unlock();
            return 0;
        }
        // When the last waiting writer gives up, readers need not wait for it.
        wait_in_line(&self.lock, &self.waiting_writers, 0, deadline, Why::WriteLock, || match !self
            .writing
            .get()
            && self.waiting_writers.is_empty()
        {
            true => self.admit_readers(),
            false => Claimed::NONE,
        })
    }

    /// Undoes a `write_lock`. `-EPERM`: there is no writer.
    pub fn write_unlock(&self) -> i32 {
        self.lock.lock();
        if !self.writing.replace(false) {
            self.lock.unlock();
            return -libc::EPERM;
        }
        let readers = self.admit_readers();
        let next = if self.readers.get() == 0 { self.admit_writer() } else { readers };
        self.release(next)
    }

    /// Lets all waiting readers in.
    fn admit_readers(&self) -> Claimed {
        let list = self.waiting_readers.pop_all();
        self.readers.set(self.readers.get() + list.iter().count() as u32);
        list
    }

    /// Lets the first waiting writer in. The lock is free.
    fn admit_writer(&self) -> Claimed {
        let writer = self.waiting_writers.pop_one();
        self.writing.set(!writer.is_empty());
        writer
    }

    /// Releases the inner lock, then wakes those who have been let in.
    fn release(&self, admitted: Claimed) -> i32 {
        self.lock.unlock();
        ready_all(admitted);
        0
    }
}
