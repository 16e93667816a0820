//! The poller's part of a P and of a node: the epoll instances. `core::netpoll` has the protocol.

use crate::os::bell::{AtomicBell, Bell};
use crate::os::epoll;
use crate::sched::types::m::M;
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, Ordering};

/// An epoll instance and the bell in it, which ends a sleep there. Both are made when they are first needed, and any
/// thread may read them.
pub struct Instance {
    /// -1: none yet.
    epoll: AtomicI32,
    bell: AtomicBell,
}

impl Instance {
    fn none() -> Instance {
        Instance { epoll: AtomicI32::new(-1), bell: AtomicBell::none() }
    }

    /// The epoll instance; -1: none yet.
    fn epoll(&self) -> i32 {
        // Acquire: pairs with the Release in `publish`.
        self.epoll.load(Ordering::Acquire)
    }

    /// The bell; `None`: there is no instance yet. A thread that gets the bell finds the instance too.
    pub fn bell(&self) -> Option<Bell> {
        // The instance is read first, so that the bell goes along.
        if self.epoll() < 0 { None } else { self.bell.load() }
    }

    /// Lets all threads find the instance and its bell.
    pub fn publish(&self, epoll: i32, bell: Bell) {
        self.bell.store(Some(bell));
        // Release: pairs with the Acquire in `epoll`: a thread that sees the instance sees the bell.
        self.epoll.store(epoll, Ordering::Release);
    }

    /// Closes both. No M polls any more.
    pub fn close(&self) {
        let Some(bell) = self.bell() else { return };
        epoll::close(self.epoll.swap(-1, Ordering::Relaxed));
        self.bell.store(None);
        bell.close();
    }
}

/// The poller's part of a P.
pub struct Poll {
    pub instance: Instance,
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
            instance: Instance::none(),
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
        // Acquire: pairs with the SeqCst in `wait_begins`: a thread that sees a waiter finds the instance.
        self.waiting.load(Ordering::Acquire) != 0
    }

    /// The epoll instance, to add files to; -1: none yet.
    pub fn epoll(&self) -> i32 {
        self.instance.epoll()
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
    pub instance: Instance,
    /// The M that sleeps in the instance, or is about to.
    pub watcher: AtomicPtr<M>,
}

impl NodePoll {
    pub fn new() -> NodePoll {
        NodePoll { instance: Instance::none(), watcher: AtomicPtr::new(ptr::null_mut()) }
    }

    pub fn epoll(&self) -> Option<i32> {
        Some(self.instance.epoll()).filter(|&fd| fd >= 0)
    }

    pub fn has_watcher(&self) -> bool {
        !self.watcher.load(Ordering::Relaxed).is_null()
    }
}
