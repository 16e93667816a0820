//! The poller's part of a P and of a node: the epoll instances. `../POLLER.md` has the protocol.

use crate::os::bell::{AtomicBell, Bell};
use crate::os::epoll;
use crate::sched::types::m::M;
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, Ordering};

/// An epoll instance and the bell in it, which ends an M's sleep there. Both are made when they are
/// first needed, and any thread may read them.
pub struct Instance {
    /// The epoll instance's descriptor; -1: not made yet.
    epoll: AtomicI32,
    bell: AtomicBell,
}

impl Instance {
    fn none() -> Instance {
        Instance { epoll: AtomicI32::new(-1), bell: AtomicBell::none() }
    }

    /// The epoll instance's descriptor; -1: not made yet.
    fn epoll(&self) -> i32 {
        // Acquire: pairs with the Release in `publish`.
        self.epoll.load(Ordering::Acquire)
    }

    /// The bell; `None`: the instance is not made yet. A thread that gets the bell finds the
    /// instance too.
    pub fn bell(&self) -> Option<Bell> {
        // The instance is read first: a thread that sees it sees the bell.
        if self.epoll() < 0 { None } else { self.bell.load() }
    }

    /// Lets all threads find the instance and its bell.
    pub fn publish(&self, epoll: i32, bell: Bell) {
        self.bell.store(Some(bell));
        // Release: pairs with the Acquire in `epoll`: a thread that sees the instance sees the
        // bell.
        self.epoll.store(epoll, Ordering::Release);
    }

    /// Closes the instance and the bell. No M may poll any more.
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
    /// The number of goroutines that wait for files of this instance.
    pub(super) waiting: AtomicU32,
    /// Whether an M that ran the P sleeps in the instance, or is about to.
    pub(super) attended: AtomicBool,
    /// Whether the next event ends the sleep of the node's watcher, which then clears this.
    pub armed: AtomicBool,
    /// The tick of the owner's last poll.
    pub(super) polled_at: Cell<u32>,
    /// The number of decisions from the owner's last poll to its next.
    pub(super) ticks: Cell<u32>,
    /// When an M last polled, in ns.
    pub(super) last_poll: AtomicI64,
    /// For a bubble's P: whether the instance has had files that the kernel knows.
    pub has_real_files: Cell<bool>,
    /// Whether a goroutine has written to a file since the P's owner last polled other P's.
    pub wrote: Cell<bool>,
    /// Whether the owner finds something before it goes idle: on its own P, and on other P's.
    pub(super) own_odds: Odds,
    pub(super) others_odds: Odds,
}

/// Whether polls of one kind find something, and are worth their system calls.
pub(super) struct Odds {
    /// The share of the last polls that found something, in 1/`Odds::ONE`.
    share: Cell<u32>,
    /// The number of opportunities since the last poll.
    passed: Cell<u32>,
}

impl Odds {
    const ONE: u32 = 1 << 16;
    /// The last poll counts as one in this number.
    const WEIGHT: u32 = 8;
    /// Polls are worth it if one in this number finds something.
    const WORTH: u32 = 3;
    /// If polls are not worth it, one in this number of opportunities is taken nevertheless.
    const SELDOM: u32 = 16;

    fn new() -> Odds {
        Odds { share: Cell::new(Odds::ONE), passed: Cell::new(0) }
    }

    /// Whether to poll at this opportunity.
    pub(super) fn is_worth_it(&self) -> bool {
        self.passed.set(self.passed.get() + 1);
        self.share.get() >= Odds::ONE / Odds::WORTH || self.passed.get() >= Odds::SELDOM
    }

    /// Learns from a poll.
    pub(super) fn learn(&self, has_found: bool) {
        self.passed.set(0);
        let share = self.share.get();
        let gain = if has_found { Odds::ONE / Odds::WEIGHT } else { 0 };
        self.share.set(share - share / Odds::WEIGHT + gain);
    }
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
            has_real_files: Cell::new(false),
            wrote: Cell::new(false),
            own_odds: Odds::new(),
            others_odds: Odds::new(),
        }
    }

    /// Whether a poll could find a waiter.
    #[inline(always)]
    pub fn is_waited_for(&self) -> bool {
        // Acquire: pairs with the SeqCst in `wait_begins`: a thread that sees a waiter finds the
        // instance.
        self.waiting.load(Ordering::Acquire) != 0
    }

    /// The epoll instance's descriptor, to add files to; -1: not made yet.
    pub fn epoll(&self) -> i32 {
        self.instance.epoll()
    }

    /// When an M last polled, in ns.
    pub fn last_poll(&self) -> i64 {
        self.last_poll.load(Ordering::Relaxed)
    }

    /// For the owner of a bubble's P: the goroutines that wait for its files were given up.
    pub fn forget_waits(&self) {
        self.waiting.store(0, Ordering::Relaxed);
        self.has_real_files.set(false);
    }

    pub fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Relaxed)
    }
}

/// The poller's part of a node.
pub struct NodePoll {
    pub instance: Instance,
    /// The M that sleeps in the instance, or is about to; null: none.
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
