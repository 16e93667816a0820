//! Gangs, the rows that a runtime gives them, and what a P knows of them. `GANGS.md` has the
//! protocol.

use crate::os::locked::Locked;
use crate::sched::types::task::Fifo;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// A gang. Gangs stay mapped for ever and are used again, so a stale pointer still points at a
/// gang.
pub struct Gang {
    /// Members that are ready to run.
    pub(super) ready: Fifo,
    /// The creator's reference, and one for each member that has not ended.
    pub(super) refs: AtomicU32,
    pub(super) members: AtomicU32,
    /// P's that run a member in the gang's turn.
    pub(super) running: AtomicU32,
    /// P's that wait for a member to become ready.
    pub(super) lingering: AtomicU32,
    /// P's on which it is the gang's turn.
    pub(super) columns: AtomicU32,
    // Guarded by the lock of the list that the gang is in: the runtime's list, or that of free
    // gangs.
    next: AtomicPtr<Gang>,
    /// The gang before this gang in the runtime's list.
    previous: AtomicPtr<Gang>,
    listed: AtomicBool,
    /// The number of the members' runtime.
    pub(super) runtime: AtomicU32,
    /// The node where the gang had its last turn.
    pub(super) node: AtomicUsize,
}

impl Gang {
    /// A gang without members and references.
    pub fn new() -> Gang {
        Gang {
            ready: Fifo::new(),
            refs: AtomicU32::new(0),
            members: AtomicU32::new(0),
            running: AtomicU32::new(0),
            lingering: AtomicU32::new(0),
            columns: AtomicU32::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            previous: AtomicPtr::new(ptr::null_mut()),
            listed: AtomicBool::new(false),
            runtime: AtomicU32::new(0),
            node: AtomicUsize::new(0),
        }
    }

    /// The next gang in the list that this gang is in.
    pub fn next(&self) -> Option<&'static Gang> {
        // SAFETY: the link is null or a gang, which stays mapped.
        unsafe { self.next.load(Ordering::Relaxed).as_ref() }
    }

    pub fn set_next(&self, next: Option<&'static Gang>) {
        let next = next.map_or(ptr::null(), ptr::from_ref);
        self.next.store(next.cast_mut(), Ordering::Relaxed);
    }

    fn previous(&self) -> Option<&'static Gang> {
        // SAFETY: the link is null or a gang, which stays mapped.
        unsafe { self.previous.load(Ordering::Relaxed).as_ref() }
    }

    fn set_previous(&self, previous: Option<&'static Gang>) {
        let previous = previous.map_or(ptr::null(), ptr::from_ref);
        self.previous.store(previous.cast_mut(), Ordering::Relaxed);
    }

    /// Whether the gang is in its runtime's list.
    pub fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Relaxed)
    }

    /// Forgets the members, which belonged to another runtime: the runtime of a fork's parent, or a
    /// runtime that has ended.
    pub fn forget_members(&self) {
        // SAFETY: no thread of that runtime is there any more.
        unsafe { self.ready.forget() };
        self.refs.store(1, Ordering::Relaxed);
        for count in [&self.members, &self.running, &self.lingering, &self.columns] {
            count.store(0, Ordering::Relaxed);
        }
        self.listed.store(false, Ordering::Relaxed);
    }
}

/// A P's part in the turns of gangs.
pub struct Column {
    /// The gang whose turn it is on this P; null: no gang's. Changed with the lock of [`Gangs`]
    /// held.
    pub(super) turn: AtomicPtr<Gang>,
    /// Whether another goroutine runs in the gang's turn, and gives way when a member is ready.
    pub(super) filling: AtomicBool,
    /// Whether sysmon must interrupt the goroutine that runs here.
    pub(super) called: AtomicBool,
    /// The gang whose member runs here, in its turn. Changed by the P's owner.
    pub(super) member: AtomicPtr<Gang>,
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
        // SAFETY: `turn` is null or a gang, which stays mapped. Acquire: pairs with the Release in
        // `gang::activate`.
        unsafe { self.turn.load(Ordering::Acquire).as_ref() }
    }

    pub fn is_turn_of(&self, gang: &Gang) -> bool {
        ptr::eq(self.turn.load(Ordering::Relaxed), gang)
    }

    pub fn runs_member(&self) -> bool {
        !self.member.load(Ordering::Relaxed).is_null()
    }
}

/// The gangs of a runtime that have members, and the state of their turns.
pub struct Gangs {
    /// Members in the queues of all gangs.
    pub(super) ready: AtomicUsize,
    pub(super) count: AtomicUsize,
    pub(super) matrix: Locked<Matrix>,
}

pub struct Matrix {
    /// The gangs in the order of their turns.
    first: Option<&'static Gang>,
    last: Option<&'static Gang>,
    /// The end of the row under way, in ns; `None`: that isn't a gangs' row.
    pub(super) ends: Option<i64>,
    /// The beginning of the row of all other goroutines, in ns, and how many decisions the P's had
    /// made by then.
    pub(super) others_since: i64,
    pub(super) ticks: u32,
}

impl Matrix {
    pub fn iter(&self) -> impl Iterator<Item = &'static Gang> + use<> {
        core::iter::successors(self.first, |gang| gang.next())
    }

    pub fn append(&mut self, gang: &'static Gang) {
        gang.set_next(None);
        gang.set_previous(self.last);
        gang.listed.store(true, Ordering::Relaxed);
        match self.last {
            Some(last) => last.set_next(Some(gang)),
            None => self.first = Some(gang),
        }
        self.last = Some(gang);
    }

    /// Takes the gang out of the list, in constant time: there may be tens of thousands of gangs.
    pub fn remove(&mut self, gang: &'static Gang) {
        let (before, behind) = (gang.previous(), gang.next());
        match before {
            Some(before) => before.set_next(behind),
            None => self.first = behind,
        }
        match behind {
            Some(behind) => behind.set_previous(before),
            None => self.last = before,
        }
        gang.listed.store(false, Ordering::Relaxed);
    }
}

impl Gangs {
    pub fn new() -> Gangs {
        let matrix = Matrix { first: None, last: None, ends: None, others_since: 0, ticks: 0 };
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
