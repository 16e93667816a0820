//! The poller's part of a P and of a node: the epoll instances. `core::netpoll` has the protocol.

use super::m::M;
use crate::os::bell::AtomicBell;
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, Ordering};

/// The poller's part of a P.
pub struct Poll {
    /// The epoll instance; -1: none yet.
    pub epoll: AtomicI32,
    /// The bell in the instance, which ends a sleep there.
    pub bell: AtomicBell,
    /// Goroutines that wait for files of this instance.
    pub waiting: AtomicU32,
    /// An M sleeps in the instance, or is about to: an M that ran the P.
    pub attended: AtomicBool,
    /// The next event ends the watcher's sleep, and then this is cleared.
    pub armed: AtomicBool,
    /// The tick of the owner's last poll.
    pub polled_at: Cell<u32>,
    /// After how many decisions the owner polls next.
    pub ticks: Cell<u32>,
    /// When an M last looked, in ns.
    pub last_poll: AtomicI64,
    /// A goroutine has written to a file since the P's owner last looked for other P's files that are ready.
    pub wrote: Cell<bool>,
    /// How many opportunities to look there have passed since the owner last found something.
    pub in_vain: Cell<u32>,
}

impl Poll {
    pub fn new() -> Poll {
        Poll {
            epoll: AtomicI32::new(-1),
            bell: AtomicBell::none(),
            waiting: AtomicU32::new(0),
            attended: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            polled_at: Cell::new(0),
            ticks: Cell::new(1),
            last_poll: AtomicI64::new(0),
            wrote: Cell::new(false),
            in_vain: Cell::new(0),
        }
    }

    /// Whether a poll could find a waiter.
    #[inline(always)]
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// The epoll instance, to add files to.
    pub fn epoll(&self) -> i32 {
        // Acquire: pairs with the Release in `make_instance`.
        self.epoll.load(Ordering::Acquire)
    }

    /// When an M last looked, in ns.
    pub fn last_poll(&self) -> i64 {
        self.last_poll.load(Ordering::Relaxed)
    }

    pub fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Relaxed)
    }
}

/// The poller's part of a node.
pub struct NodePoll {
    pub epoll: AtomicI32,
    /// The bell in the instance, which ends the watcher's sleep.
    pub bell: AtomicBell,
    /// The M that sleeps in the instance, or is about to.
    pub watcher: AtomicPtr<M>,
}

impl NodePoll {
    pub fn new() -> NodePoll {
        NodePoll {
            epoll: AtomicI32::new(-1),
            bell: AtomicBell::none(),
            watcher: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub fn epoll(&self) -> Option<i32> {
        // Acquire: pairs with the Release in `make_instance`.
        Some(self.epoll.load(Ordering::Acquire)).filter(|&fd| fd >= 0)
    }

    pub fn has_watcher(&self) -> bool {
        !self.watcher.load(Ordering::Relaxed).is_null()
    }
}
