//! The lock of a stream of events: its owner, and other threads, without a runtime.

use shuttle_models::atomic::{AtomicU32, Ordering};
use shuttle_models::machine;
use shuttle_models::model::{Plain, check};
use shuttle_models::os::biased::BiasedLock;
use std::sync::Arc;

/// What the lock guards: a count that loses an addition if two threads are in.
struct Guarded {
    lock: BiasedLock,
    second: BiasedLock,
    count: AtomicU32,
}

impl Guarded {
    fn new() -> Arc<Guarded> {
        Arc::new(Guarded {
            lock: BiasedLock::new(),
            second: BiasedLock::without_owner(),
            count: AtomicU32::new(0),
        })
    }

    /// The lock is held.
    fn add(&self) {
        let before = self.count.load(Ordering::Relaxed);
        self.count.store(before + 1, Ordering::Relaxed);
    }

    fn add_as_owner(&self) {
        // SAFETY: one thread of each model calls this.
        unsafe {
            self.lock.lock_as_owner();
            self.add();
            self.lock.unlock_as_owner();
        }
    }

    fn add_as_other(&self) {
        self.lock.lock();
        self.add();
        // SAFETY: locked above.
        unsafe { self.lock.unlock() };
    }

    fn add_with_all_locks(&self) {
        BiasedLock::lock_all([&self.lock, &self.second].into_iter());
        self.add();
        // SAFETY: locked above.
        unsafe {
            self.second.unlock();
            self.lock.unlock();
        }
    }
}

/// An owner, two threads that take the lock now and then, and one of them takes all locks.
fn meet() {
    let guarded = Guarded::new();
    let thread = |f: fn(&Guarded)| {
        let guarded = guarded.clone();
        Plain::start(move || (0..2).for_each(|_| f(&guarded)))
    };
    let all = [
        thread(Guarded::add_as_owner),
        thread(Guarded::add_as_other),
        thread(Guarded::add_with_all_locks),
    ];
    all.into_iter().for_each(Plain::join);
    assert_eq!(guarded.count.load(Ordering::SeqCst), 6, "two threads were in");
}

#[test]
fn one_is_in_where_there_is_a_barrier() {
    check(5000, || {
        machine::keep_boundary();
        meet();
    });
}

#[test]
fn one_is_in_where_there_is_no_barrier() {
    check(5000, meet);
}

/// The owner of today leaves, and another thread is the owner then, by what a lock says.
#[test]
fn the_owner_changes() {
    check(2000, || {
        machine::keep_boundary();
        let guarded = Guarded::new();
        let free = Arc::new(AtomicU32::new(0));
        let owner = |n: u32| {
            let (guarded, free) = (guarded.clone(), free.clone());
            Plain::start(move || {
                while free.load(Ordering::Acquire) != n {
                    shuttle_models::os::time::sleep(1000);
                }
                guarded.add_as_owner();
                guarded.add_as_owner();
                free.store(n + 1, Ordering::Release);
            })
        };
        let other = {
            let guarded = guarded.clone();
            Plain::start(move || (0..2).for_each(|_| guarded.add_as_other()))
        };
        [owner(0), owner(1), other].into_iter().for_each(Plain::join);
        assert_eq!(guarded.count.load(Ordering::SeqCst), 6, "two threads were in");
    });
}
