//! How any thread wakes sysmon. `services::sysmon` is what sysmon does.

use crate::os::thread::Thread;
use crate::os::time;
use crate::sched::prim::clock;
use crate::sched::prim::service::Service;
use core::sync::atomic::{AtomicI64, Ordering, fence};

/// The part of sysmon that other threads use.
pub struct Sysmon {
    pub service: Service,
    /// sysmon sleeps until it is woken, or until this time, in ns; 0: it doesn't sleep deeply.
    pub deep_until: AtomicI64,
    /// When sysmon's next check begins at the latest, in ns; `i64::MAX`: not known.
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

    /// See [`Service::end`].
    pub fn end(&self) -> Option<Thread> {
        self.service.end()
    }

    /// Ends any sleep of sysmon.
    pub fn wake(&self) {
        self.service.wake();
    }

    /// For sysmon: a check begins.
    pub fn begins_check(&self) {
        self.next_check.store(i64::MAX, Ordering::Relaxed);
        // Pairs with the fence in `wake_by`: either the waker sees this store, or the check that begins sees what the
        // waker has published.
        fence(Ordering::SeqCst);
    }

    /// For sysmon: the check is over, and the next begins at this time (ns).
    pub fn next_check_at(&self, until: i64) {
        self.next_check.store(until, Ordering::Relaxed);
    }

    /// Makes sysmon check by this time (ns) for what the caller has published. Waking its thread costs a system call,
    /// and takes a processor from another thread.
    pub fn wake_by(&self, time: i64) {
        // Pairs with the fence in `begins_check`.
        fence(Ordering::SeqCst);
        if self.next_check.load(Ordering::Relaxed) > time {
            self.wake();
        }
    }

    /// Ends its deep sleep.
    #[inline]
    pub fn wake_if_asleep(&self) {
        // SeqCst: pairs with the store in `sleep_deep`, after which sysmon checks once more before it sleeps.
        if self.deep_until.load(Ordering::SeqCst) != 0 {
            clock::set(time::now());
            self.end_deep_sleep();
        }
    }

    /// [`Self::wake_if_asleep`], unless the sleep ends within [`SOON`]: a P has been started, and needs no watching
    /// yet. Waking sysmon would double what a timer costs.
    #[inline]
    pub fn wake_if_long_asleep(&self) {
        // As in `wake_if_asleep`.
        let until = self.deep_until.load(Ordering::SeqCst);
        if until != 0 {
            let now = time::now();
            clock::set(now);
            if until - now > SOON {
                self.end_deep_sleep();
            }
        }
    }

    /// Of several threads that call this at once, one wakes sysmon.
    #[cold]
    pub fn end_deep_sleep(&self) {
        if self.deep_until.swap(0, Ordering::SeqCst) != 0 {
            self.wake();
        }
    }
}

/// A deep sleep that ends within this time, in ns, is not ended early for a P that was started.
pub const SOON: i64 = 1_000_000;
