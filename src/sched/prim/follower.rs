//! Whether GOMAXPROCS follows the machine, and the thread that looks. `services::follower` is the
//! thread's own code.

use super::service::Service;
use crate::os::thread::Thread;
use core::sync::atomic::{AtomicBool, Ordering};

/// See the module.
pub struct Follower {
    /// Whether GOMAXPROCS may follow at all.
    pub may: bool,
    /// Whether GOMAXPROCS follows: the host has chosen no number.
    on: AtomicBool,
    /// The thread is to look.
    pub is_due: AtomicBool,
    pub service: Service,
}

impl Follower {
    /// `begins`: the host has chosen no number. `may`: nothing forbids to follow.
    pub fn new(begins: bool, may: bool) -> Follower {
        Follower {
            may,
            on: AtomicBool::new(begins && may),
            is_due: AtomicBool::new(false),
            service: Service::new(),
        }
    }

    /// Whether GOMAXPROCS follows. The world is stopped, or the answer may be out of date.
    pub fn is_on(&self) -> bool {
        // SeqCst: a call of `turn` that comes before the stop of the world is seen after it.
        self.on.load(Ordering::SeqCst)
    }

    /// Begins or ends to follow. Returns whether GOMAXPROCS followed.
    pub fn turn(&self, on: bool) -> bool {
        self.on.swap(on, Ordering::SeqCst)
    }

    /// Whether the thread runs.
    pub fn is_there(&self) -> bool {
        self.service.is_there()
    }

    /// Ends the thread: see [`Service::end`].
    pub fn end(&self) -> Option<Thread> {
        self.service.end()
    }
}
