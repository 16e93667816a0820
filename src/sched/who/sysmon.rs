//! How any thread wakes sysmon. `watch::sysmon` is what sysmon does.

use crate::os::thread::Thread;
use crate::os::time;
use crate::sched::words::clock;
use crate::sched::words::service::Service;
use core::sync::atomic::{AtomicI64, Ordering};

/// What others know of it.
pub struct Sysmon {
    pub service: Service,
    /// It sleeps until woken, or this time, in ns; 0: it doesn't.
    pub deep_until: AtomicI64,
}

impl Sysmon {
    pub fn new() -> Sysmon {
        Sysmon { service: Service::new(), deep_until: AtomicI64::new(0) }
    }

    /// See [`Service::end`].
    pub fn end(&self) -> Option<Thread> {
        self.service.end()
    }

    /// Lets it look now.
    pub fn wake(&self) {
        self.service.wake();
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
