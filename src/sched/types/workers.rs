//! The pool of threads for calls that keep a thread: what counts its threads. `services::workers` has the protocol.

use super::waiter::Waiter;
use crate::os::futex;
use crate::os::spin::SpinLock;
use crate::os::thread::Thread;
use core::cell::{Cell, UnsafeCell};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The pool. Its threads are started when they are first needed, and end with the
/// runtime.
pub struct Workers {
    pub lock: SpinLock,
    /// How many threads sleep for want of a job. Changes with the lock held.
    pub asleep: AtomicUsize,
    /// How many threads are being started, or have been started and not left. Changes with the lock held.
    pub count: AtomicUsize,
    /// How many sleepers may wake.
    pub permits: AtomicU32,

    // The rest is used with the lock held.
    /// Jobs that wait for a thread, the oldest first.
    pub first: Cell<*const Job>,
    pub last: Cell<*const Job>,
    /// How many jobs wait or are under way.
    pub jobs: Cell<usize>,
    /// How many of the sleeping threads must leave.
    pub surplus: Cell<usize>,
    pub stopping: Cell<bool>,
    /// Threads that have left and must be joined. Has room for all threads that there are.
    left: UnsafeCell<Vec<Thread>>,
}

// SAFETY: the cells are used only with `lock` held, or in `release` by the context to which the lock was handed.
unsafe impl Sync for Workers {}

/// A call, on the stack of the goroutine that waits for it.
pub struct Job {
    pub next: Cell<*const Job>,
    pub waiter: Cell<*const Waiter>,
    /// Makes the call.
    pub run: unsafe fn(*const Job),
}

impl Workers {
    pub fn new() -> Workers {
        Workers {
            lock: SpinLock::new(),
            asleep: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            permits: AtomicU32::new(0),
            first: Cell::new(ptr::null()),
            last: Cell::new(ptr::null()),
            jobs: Cell::new(0),
            surplus: Cell::new(0),
            stopping: Cell::new(false),
            left: UnsafeCell::new(Vec::new()),
        }
    }

    /// How many threads there are, those included that are being started.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Threads that sleep, and have no permit.
    pub fn asleep(&self) -> usize {
        self.asleep.load(Ordering::SeqCst)
    }

    /// Whether no job is waiting or under way; a hint.
    pub fn is_unused(&self) -> bool {
        self.lock.with(|| self.jobs.get()) == 0
    }

    /// A thread is wanted for goroutines, and the limit is reached: one of the sleeping threads ends, if there is one.
    pub fn give_one_up(&self) {
        let wakes = self.lock.with(|| {
            let wakes = self.asleep.load(Ordering::Relaxed) > 0;
            if wakes {
                self.asleep.fetch_sub(1, Ordering::SeqCst);
                self.surplus.set(self.surplus.get() + 1);
            }
            wakes
        });
        if wakes {
            self.permit(1);
        }
    }

    /// With the lock held: runs `f` with the threads that have left.
    pub fn with_left<R>(&self, f: impl FnOnce(&mut Vec<Thread>) -> R) -> R {
        // SAFETY: the lock is held, so no other thread uses the list, and `f` doesn't ask for it again.
        f(unsafe { &mut *self.left.get() })
    }

    /// Whether threads have left that are not joined yet.
    pub fn has_left_threads(&self) -> bool {
        self.lock.with(|| self.with_left(|left| !left.is_empty()))
    }

    /// Joins the threads that have left and ended. A thread that has left may take long to end: it runs destructors of
    /// thread-specific values, such as those of a resolver's plugin.
    pub fn reap(&self) {
        // Each thread once: threads that still run go to the end of the list.
        for _ in 0..self.lock.with(|| self.with_left(|left| left.len())) {
            let first = |left: &mut Vec<Thread>| (!left.is_empty()).then(|| left.remove(0));
            let Some(thread) = self.lock.with(|| self.with_left(first)) else { return };
            // Not with the lock held: joining a thread may wait for locks of the C library.
            if let Err(running) = thread.try_join() {
                self.lock.with(|| self.with_left(|left| left.push(running)));
            }
        }
    }

    pub fn permit(&self, n: u32) {
        self.permits.fetch_add(n, Ordering::Release);
        futex::wake(&self.permits, n as i32);
    }
}
