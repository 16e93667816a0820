//! How any thread wakes sysmon. The parent module is sysmon's own code.

use crate::os::thread::Thread;
use crate::os::time;
use crate::sched::prim::clock;
use crate::sched::prim::service::Service;
use core::sync::atomic::{AtomicI64, Ordering, fence};

/// The part of sysmon that other threads use.
pub struct Sysmon {
    pub(super) service: Service,
    /// The end of sysmon's deep sleep, in ns; 0: sysmon doesn't sleep deeply.
    pub(super) deep_until: AtomicI64,
    /// The latest start of sysmon's next check, in ns; `i64::MAX`: not known.
    next_check: AtomicI64,
}

impl Sysmon {
    pub fn new() -> Sysmon {
        Sysmon {
            service: Service::new(),
            deep_until: AtomicI64::new(0),
            next_check: AtomicI64::new(i64::MAX),
        }
    }

    /// Ends the thread: see [`Service::end`].
    pub fn end(&self) -> Option<Thread> {
        self.service.end()
    }

    /// Whether sysmon sleeps deeply; may be out of date.
    pub fn sleeps_deeply(&self) -> bool {
        self.deep_until.load(Ordering::Relaxed) != 0
    }

    /// Ends any sleep of sysmon.
    pub fn wake(&self) {
        self.service.wake();
    }

    /// Notes that a check begins. For sysmon.
    pub fn begins_check(&self) {
        self.next_check.store(i64::MAX, Ordering::Relaxed);
        // Pairs with the fence in `wake_by`: either the waker sees this store, or the check that
        // begins sees what the waker has published.
        fence(Ordering::SeqCst);
    }

    /// Notes that the check is over, and the next begins at this time (ns). For sysmon.
    pub fn next_check_at(&self, until: i64) {
        self.next_check.store(until, Ordering::Relaxed);
    }

    /// Makes sysmon check by this time (ns) for what the caller has published. Waking sysmon costs
    /// a system call, and takes a processor from another thread.
    pub fn wake_by(&self, time: i64) {
        // Pairs with the fence in `begins_check`.
        fence(Ordering::SeqCst);
        if self.next_check.load(Ordering::Relaxed) > time {
            self.wake();
        }
    }

    /// Ends sysmon's deep sleep, if it sleeps deeply.
    #[inline]
    pub fn wake_if_asleep(&self) {
        // SeqCst: pairs with the store in `sleep_deep`, after which sysmon checks once more before
        // it sleeps.
        if self.deep_until.load(Ordering::SeqCst) != 0 {
            clock::set(time::now());
            self.end_deep_sleep();
        }
    }

    /// [`Self::wake_if_asleep`], unless the sleep ends within [`SOON`]: a P that was just started
    /// needs no watching yet, and waking sysmon would double the cost of a timer.
    #[inline]
    pub fn wake_if_long_asleep(&self) {
        // SeqCst: as in `wake_if_asleep`.
        let until = self.deep_until.load(Ordering::SeqCst);
        if until != 0 {
            let now = time::now();
            clock::set(now);
            if until - now > SOON {
                self.end_deep_sleep();
            }
        }
    }

    /// Ends the deep sleep: one of several threads that call this at once wakes sysmon.
    #[cold]
    pub fn end_deep_sleep(&self) {
        if self.deep_until.swap(0, Ordering::SeqCst) != 0 {
            self.wake();
        }
    }
}

/// A deep sleep that ends within this time, in ns, is not ended early for a P that was started.
pub const SOON: i64 = 1_000_000;
