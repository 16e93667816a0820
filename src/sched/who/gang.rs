//! Gangs, the rows that a runtime gives them, and what a P knows of them. `core::gang` has the protocol.

use super::task::Fifo;
use crate::os::locked::Locked;
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// A gang. It stays mapped for ever and is used again, so that a stale pointer still
/// points at one.
pub struct Gang {
    /// Members that are ready to run.
    pub ready: Fifo,
    /// The creator's reference, and one for each member that has not ended.
    pub refs: AtomicU32,
    pub members: AtomicU32,
    /// P's that run a member in its turn, and those that wait for one to become ready.
    pub running: AtomicU32,
    pub lingering: AtomicU32,
    /// P's whose turn it is.
    pub columns: AtomicU32,
    /// The link of the list that it is in: the runtime's, or that of free ones.
    pub next: Cell<*const Gang>,
    pub listed: Cell<bool>,
    /// The runtime of its members.
    pub runtime: Cell<u32>,
    /// The node where it had its turn last.
    pub node: Cell<usize>,
}

// SAFETY: the cells are used with the lock of the list held.
unsafe impl Sync for Gang {}

impl Gang {
    /// Its members were another runtime's: that before a fork, of which this is the
    /// child, or none was left.
    pub fn forget_members(&self) {
        // SAFETY: no thread of that runtime is there any more.
        unsafe { self.ready.forget() };
        self.refs.store(1, Ordering::Relaxed);
        for count in [&self.members, &self.running, &self.lingering, &self.columns] {
            count.store(0, Ordering::Relaxed);
        }
        self.listed.set(false);
    }
}

/// What a P knows of gangs.
pub struct Column {
    /// The gang whose turn it is here; null: everybody else's. Changed with the lock of
    /// [`Gangs`] held.
    pub turn: AtomicPtr<Gang>,
    /// Something else runs in the gang's turn, and gives way when a member is ready.
    pub filling: AtomicBool,
    /// Whoever runs is to be interrupted; for sysmon.
    pub called: AtomicBool,
    /// The gang whose member runs here, in its turn. Changed by the P's owner.
    pub member: AtomicPtr<Gang>,
}

impl Column {
    pub fn new() -> Column {
        Column {
            turn: AtomicPtr::new(ptr::null_mut()),
            filling: AtomicBool::new(false),
            called: AtomicBool::new(false),
            member: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub fn turn(&self) -> Option<&'static Gang> {
        // SAFETY: null or a gang, which stays mapped. Acquire: pairs with the Release
        // where it is set.
        unsafe { self.turn.load(Ordering::Acquire).as_ref() }
    }

    pub fn is_turn_of(&self, gang: &Gang) -> bool {
        ptr::eq(self.turn.load(Ordering::Relaxed), gang)
    }

    pub fn runs_member(&self) -> bool {
        !self.member.load(Ordering::Relaxed).is_null()
    }
}

/// The gangs of a runtime that have members, and whose turn it is.
pub struct Gangs {
    /// Members in the queues of all gangs.
    pub ready: AtomicUsize,
    pub count: AtomicUsize,
    pub matrix: Locked<Matrix>,
}

pub struct Matrix {
    /// The gangs in the order of their turns.
    pub first: *const Gang,
    pub last: *const Gang,
    /// When the row under way ends, if it is one of gangs.
    pub ends: Option<i64>,
    /// Since when it has been everybody else's turn, and what the P's had done by then.
    pub others_since: i64,
    pub ticks: u32,
}

// SAFETY: it points to gangs, which stay mapped and may be used by any thread.
unsafe impl Send for Matrix {}

impl Matrix {
    pub fn iter(&self) -> impl Iterator<Item = &'static Gang> + use<> {
        // SAFETY: the list holds gangs, which stay mapped.
        let at = |gang: *const Gang| unsafe { gang.as_ref() };
        core::iter::successors(at(self.first), move |gang| at(gang.next.get()))
    }

    pub fn append(&mut self, gang: &'static Gang) {
        gang.next.set(ptr::null());
        gang.listed.set(true);
        // SAFETY: null or a gang.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.next.set(gang),
            None => self.first = gang,
        }
        self.last = gang;
    }

    pub fn remove(&mut self, gang: &'static Gang) {
        let before = self.iter().find(|g| ptr::eq(g.next.get(), gang));
        match before {
            Some(before) => before.next.set(gang.next.get()),
            None => self.first = gang.next.get(),
        }
        if ptr::eq(self.last, gang) {
            self.last = before.map_or(ptr::null(), ptr::from_ref);
        }
        gang.listed.set(false);
    }
}

impl Gangs {
    pub fn new() -> Gangs {
        let (first, last) = (ptr::null(), ptr::null());
        let matrix = Matrix { first, last, ends: None, others_since: 0, ticks: 0 };
        Gangs {
            ready: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            matrix: Locked::new(matrix),
        }
    }

    pub fn with<R>(&self, f: impl FnOnce(&mut Matrix) -> R) -> R {
        self.matrix.with(f)
    }

    /// Whether a member waits for a P.
    pub fn any_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) > 0
    }
}
