//! How any thread wakes sysmon. `watch::sysmon` is what sysmon does.

use crate::os::thread::Thread;
use crate::os::time;
use crate::sched::words::clock;
use crate::sched::words::service::Service;
use core::sync::atomic::{AtomicI64, Ordering, fence};

/// What others know of it.
pub struct Sysmon {
    pub service: Service,
    /// It sleeps until woken, or this time, in ns; 0: it doesn't.
    pub deep_until: AtomicI64,
    /// When its next look begins at the latest, in ns; `i64::MAX`: not known.
    next_look: AtomicI64,
}

impl Sysmon {
    pub fn new() -> Sysmon {
        Sysmon {
            service: Service::new(),
            deep_until: AtomicI64::new(0),
            next_look: AtomicI64::new(i64::MAX),
        }
    }

    /// See [`Service::end`].
    pub fn end(&self) -> Option<Thread> {
        self.service.end()
    }

    /// Lets it look now.
    pub fn wake(&self) {
        self.service.wake();
    }

    /// For sysmon: a look begins.
    pub fn begins_a_look(&self) {
        self.next_look.store(i64::MAX, Ordering::Relaxed);
        // Pairs with the fence in `wake_by`: either the waker sees this, or the look that begins finds what it has
        // published.
        fence(Ordering::SeqCst);
    }

    /// For sysmon: the look is over, and the next begins at this time (ns).
    pub fn looks_next_at(&self, until: i64) {
        self.next_look.store(until, Ordering::Relaxed);
    }

    /// Has sysmon look by that time (ns) at what the caller has published. Waking its thread costs a system call, and
    /// that thread takes the processor from another.
    pub fn wake_by(&self, time: i64) {
        // Pairs with the fence in `begins_a_look`.
        fence(Ordering::SeqCst);
        if self.next_look.load(Ordering::Relaxed) > time {
            self.wake();
        }
    }

    /// Ends its deep sleep.
    #[inline]
    pub fn wake_if_asleep(&self) {
        // Pairs with the SeqCst store before it looks for the last time.
        if self.deep_until.load(Ordering::SeqCst) != 0 {
            clock::set(time::now());
            self.end_deep_sleep();
        }
    }

    /// [`Self::wake_if_asleep`], unless the sleep ends soon: a P has been started, and needs no watching
    /// yet. Waking a thread takes as long as all else when a timer fires.
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

    /// One wakes it for all.
    #[cold]
    pub fn end_deep_sleep(&self) {
        if self.deep_until.swap(0, Ordering::SeqCst) != 0 {
            self.wake();
        }
    }
}

pub const SOON: i64 = 1_000_000;
