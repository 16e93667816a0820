//! P: the right to run goroutines, and all that running them needs.

use super::g::G;
use super::gang;
use super::m::{M, MRef};
use super::node::Node;
use super::poll;
use super::task::{Fifo, Newborn, Task};
use super::timer::Timers;
use crate::sched::words::limits::{FREE_GS, NEWBORNS};
use crate::sched::words::pool::Cache;
use crate::sched::words::ring::Ring;
use crate::stack::{Class, Kind};
use core::cell::Cell;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// What a P is, and so who owns it.
pub mod status {
    /// No owner: it is in its node's set of idle P's, or its last owner is about to put it there.
    pub const IDLE: u32 = 0;
    /// The M that runs it ([`super::P::runner`]).
    pub const RUNNING: u32 = 1;
    /// No owner: the M that began a system call with it may take it back, and so may any thread.
    pub const SYSCALL: u32 = 2;
    /// The stopper of the world.
    pub const STOPPED: u32 = 3;
    /// No owner: its number is GOMAXPROCS or more, and its queues are closed.
    pub const DEAD: u32 = 4;
}

/// The bits of [`P::owner`] that hold the status; an M's address leaves them free.
const STATUS: usize = 7;
const _: () = assert!(align_of::<M>() > STATUS, "the status fits below an M's address");

/// See the module. `Cell`s belong to the M that holds the P, or to whoever has
/// stopped the world.
#[repr(C, align(128))]
pub struct P {
    /// The goroutine that was made ready last, by the running one: it runs next
    /// and inherits the time slice. Thieves take it as a last resort.
    pub runnext: AtomicUsize,
    /// Something wants the running goroutine to give way: the world is being
    /// stopped, or the M's owner wants its thread back.
    pub attention: AtomicU32,
    /// Counts scheduling decisions; sysmon looks whether it moves.
    pub tick: AtomicU32,
    /// The tick of the next decision that is no usual one: something may be due with it.
    pub unusual_at: AtomicU32,
    /// Counts the decisions that took `runnext`: such a goroutine runs in its predecessor's turn. See [`P::turn`].
    pub inherited: AtomicU32,
    /// Until this tick it is known to be quick: see [`P::keeps_its_few`].
    quick_until: AtomicU32,
    /// GOMAXPROCS is 1: no thieves.
    pub alone: Cell<bool>,
    pub id: u16,
    pub node: u16,
    /// The node of the P: see [`PRef::of_node`].
    of_node: *const Node,
    /// `migrate` of `GOSCHED_DEBUG`.
    pub migrates: bool,
    /// A goroutine that is made ready here needs more than a push: the P migrates, or measures how long the goroutine
    /// waits to run.
    pub is_careful: Cell<bool>,
    /// That of the stacks in `free_gs`.
    pub stack_kind: Kind,
    /// Its [`status`] and, in a status that has one, its M: the M that runs it, or that began
    /// the system call. One word, so a thread that compares and swaps it knows both: the status
    /// alone comes back when the P has passed from one M's call to another's.
    owner: AtomicUsize,
    /// Counts system calls; sysmon looks whether it moves.
    pub syscall_tick: AtomicU32,
    pub poll: poll::Poll,
    pub pace: Pace,
    /// Goroutines spawned and ended here.
    pub created: AtomicU64,
    pub ended: AtomicU64,

    /// "I do this work myself": LIFO, one producer.
    pub private: Ring,
    /// "I share this work": FIFO; what yields, and what the inbox brings.
    pub shared: Ring,
    /// Many producers: what others make ready for this P.
    pub inbox: Fifo,

    /// Descriptors with a warm stack of the default size.
    pub free_gs: Cache<G, FREE_GS>,
    pub newborns: Cache<Newborn, NEWBORNS>,
    /// Ids that goroutines begun here get next, and where they end.
    pub ids: Cell<(u64, u64)>,
    pub timers: Timers,

    /// The tick and the count of system calls at `seen_at` (ns). While both stand, one goroutine has run since
    /// then, and made no system call.
    seen_tick: AtomicU32,
    seen_syscall_tick: AtomicU32,
    seen_at: AtomicI64,
    /// When the P was last taken from a goroutine that computed, in ns.
    pub taken_at: AtomicI64,

    /// The M that held it last. seed: N3
    pub last_m: AtomicPtr<M>,
    pub stats: Stats,
    pub gang: gang::Column,
}

// SAFETY: the comment of the struct says who may use what; the status says who
// that is.
unsafe impl Sync for P {}

/// How fast the owner of a P makes scheduling decisions, and what it knows of the current turn and of events. Only
/// the owner uses it.
#[derive(Default)]
pub struct Pace {
    /// When the clock was last read, in ns, and the tick then.
    at: Cell<i64>,
    tick: Cell<u32>,
    /// The clock is read after this number of decisions, 1 to [`CLOCK`].
    every: Cell<u32>,
    /// A timer was due when the clock was last read, and the time before as well.
    was_due: Cell<bool>,
    is_behind: Cell<bool>,
    /// How many goroutines timers and files have made ready here, less the decisions made for these since.
    pub events: Cell<usize>,
    /// A timer has put a goroutine into `runnext`, which is no part of the turn there: it runs next.
    pub fired: Cell<bool>,
    /// The turn (see [`P::turn`]) that the owner last saw, and when it first saw that turn, in ns.
    pub turn: Cell<u32>,
    pub turn_seen_at: Cell<i64>,
    /// See [`P::measure_next`].
    measures: Cell<bool>,
    measures_from: Cell<i64>,
}

/// A P with timers reads the clock once in this number of decisions at least.
const CLOCK: u32 = 16;
/// How long a P with timers aims to go without reading the clock, in ns, within 1 and `CLOCK` decisions.
const CLOCK_GAP: i64 = 1_600;

impl Pace {
    /// After how many decisions the clock is read again.
    pub fn every(&self) -> u32 {
        self.every.get().clamp(1, CLOCK)
    }

    /// The clock was read with this decision. `is_due`: a timer is due.
    pub fn note(&self, tick: u32, now: i64, is_due: bool) {
        let decisions = i64::from(tick.wrapping_sub(self.tick.replace(tick)));
        if decisions == 0 {
            return;
        }
        let took = now - self.at.replace(now);
        let was_due = self.was_due.replace(is_due);
        // With timers due at each reading the P is behind with them: it gets through sooner if it takes many at once.
        self.is_behind.set(is_due && was_due);
        self.every.set(match self.is_behind.get() {
            true => CLOCK,
            false => (decisions * CLOCK_GAP / took.max(1)).clamp(1, i64::from(CLOCK)) as u32,
        });
    }

    /// Goroutines that events have made ready; none goes before others while timers are due all the time.
    pub fn set_events(&self, events: usize) {
        self.events.set(if self.is_behind.get() { 0 } else { events });
    }
}

/// Counters of one P: written by its owner, read by anybody.
#[derive(Default)]
pub struct Stats {
    /// Goroutines stolen from: P's of the node, remote global queues, remote P's.
    pub steals_near: AtomicU64,
    pub steals_remote_queue: AtomicU64,
    pub steals_remote_p: AtomicU64,
    pub handoffs: AtomicU64,
    /// Stacks that were freed here and went back to their own node.
    pub stacks_sent_home: AtomicU64,
    /// Goroutines whose stack was moved to this node, and its pages.
    pub migrations: AtomicU64,
    pub pages_moved: AtomicU64,
    /// How long goroutines that were ready waited to run here: see [`wait_class`].
    pub run_waits: [AtomicU64; RUN_WAITS],
}

/// Classes of `Stats::run_waits`.
pub const RUN_WAITS: usize = 20;

/// The class of a wait in ns: 0 for less than 1 us, i for less than 2^i us; the last for all that is longer.
fn wait_class(ns: i64) -> usize {
    let us = (ns.max(0) / 1000) as u64;
    ((u64::BITS - us.leading_zeros()) as usize).min(RUN_WAITS - 1)
}

/// Goroutines of a P up to this number are few.
const FEW: usize = 8;
/// What was seen of a P that is quick holds for this number of decisions.
const QUICK: u32 = 4096;

/// Adds to a counter that only the caller writes.
#[inline(always)]
pub fn count(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl P {
    pub fn new(
        id: usize,
        node: &Node,
        stack_class: Class,
        ring_capacity: usize,
        migrates: bool,
    ) -> P {
        P {
            runnext: AtomicUsize::new(0),
            attention: AtomicU32::new(0),
            tick: AtomicU32::new(0),
            unusual_at: AtomicU32::new(0),
            inherited: AtomicU32::new(0),
            quick_until: AtomicU32::new(0),
            alone: Cell::new(false),
            id: id as u16,
            node: node.id as u16,
            of_node: node,
            migrates,
            is_careful: Cell::new(migrates),
            stack_kind: Kind::new(stack_class, node.id as u16),
            owner: AtomicUsize::new(status::DEAD as usize),
            syscall_tick: AtomicU32::new(0),
            poll: poll::Poll::new(),
            pace: Pace::default(),
            created: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            private: Ring::new(ring_capacity),
            shared: Ring::new(ring_capacity),
            inbox: Fifo::new(),
            free_gs: Cache::new(),
            newborns: Cache::new(),
            ids: Cell::new((0, 0)),
            timers: Timers::new(id as u16),
            seen_tick: AtomicU32::new(0),
            seen_syscall_tick: AtomicU32::new(0),
            seen_at: AtomicI64::new(i64::MAX),
            taken_at: AtomicI64::new(0),
            last_m: AtomicPtr::new(ptr::null_mut()),
            stats: Stats::default(),
            gang: gang::Column::new(),
        }
    }

    /// Whether it was seen lately that it takes a decision each few us.
    #[inline(always)]
    fn is_quick(&self) -> bool {
        let tick = self.tick.load(Ordering::Relaxed);
        let left = self.quick_until.load(Ordering::Relaxed).wrapping_sub(tick);
        // Not 0, and not what has wrapped. One that is asked for something, or has a
        // gang's turn, may take its decisions elsewhere.
        left.wrapping_sub(1) < QUICK && self.attention.load(Ordering::Relaxed) == 0
    }

    /// Whoever watches it says whether it is quick.
    pub fn set_quick(&self, is: bool) {
        let tick = self.tick.load(Ordering::Relaxed);
        self.quick_until.store(tick.wrapping_add(if is { QUICK } else { 0 }), Ordering::Relaxed);
    }

    /// Whether its private work is a few goroutines that have run before, and no more.
    pub fn has_few_goroutines(&self) -> bool {
        let n = self.private.len();
        let is_goroutine = |i| {
            // SAFETY: an old one at worst, whose memory is still there, or 0.
            let task = unsafe { Task::from_word(self.private.oldest(i)) };
            task.is_some_and(Task::has_run)
        };
        n <= FEW && (0..n as u32).all(is_goroutine)
    }

    /// Whether thieves leave its private work to it: a few goroutines, to which it gets
    /// sooner than a thief would, and has what they use in its caches.
    pub fn keeps_its_few(&self) -> bool {
        self.is_quick() && self.status() == status::RUNNING && self.has_few_goroutines()
    }

    /// Owner: whether nobody has to be told of a task that has just been added to its
    /// private work.
    #[inline(always)]
    pub fn keeps(&self, task: Task) -> bool {
        self.is_quick() && task.has_run() && self.private.len() <= FEW
    }

    /// Counts turns. A goroutine from `runnext` runs in its predecessor's turn, so the count stands meanwhile.
    #[inline(always)]
    pub fn turn(&self) -> u32 {
        self.tick.load(Ordering::Relaxed).wrapping_sub(self.inherited.load(Ordering::Relaxed))
    }

    /// The goroutine that is on it now was seen there at this time (ns).
    pub fn seen_at(&self, now: i64) {
        self.seen_at.store(now, Ordering::Relaxed);
        let calls = self.syscall_tick.load(Ordering::Relaxed);
        self.seen_syscall_tick.store(calls, Ordering::Relaxed);
        // Release: with the tick comes its time, or a later one.
        self.seen_tick.store(self.tick.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Since when one goroutine is known to run on the P without a system call, in ns; `i64::MAX`: not known.
    pub fn stands_since(&self) -> i64 {
        let seen = self.seen_tick.load(Ordering::Acquire);
        let stands = seen == self.tick.load(Ordering::Relaxed) && !self.has_made_calls();
        if stands { self.seen_at.load(Ordering::Relaxed) } else { i64::MAX }
    }

    /// Whether a system call has begun on the P since [`P::seen_at`] was last called.
    pub fn has_made_calls(&self) -> bool {
        let calls = self.syscall_tick.load(Ordering::Relaxed);
        self.seen_syscall_tick.load(Ordering::Relaxed) != calls
    }

    /// The next goroutine that is made ready here is measured until it runs: from `ready_at` (ns) on, or from that
    /// moment on if `ready_at` is 0. Only the owner may call this.
    pub fn measure_next(&self, ready_at: i64) {
        self.pace.measures_from.set(ready_at);
        self.pace.measures.set(true);
        self.is_careful.set(true);
    }

    /// Ends what [`P::measure_next`] began. True: a goroutine is to be measured, from the time given on.
    pub fn stop_measuring(&self) -> Option<i64> {
        self.is_careful.set(self.migrates);
        self.pace.measures.take().then(|| self.pace.measures_from.get())
    }

    /// A goroutine that is [`flags::TIMED`](super::g::flags::TIMED) runs here now. Only the owner may call this.
    #[cold]
    pub fn note_wait(&self, g: super::g::GRef) {
        g.set_flag(super::g::flags::TIMED, false);
        let waited = crate::os::time::now() - g.ready_at.get();
        count(&self.stats.run_waits[wait_class(waited)], 1);
    }

    /// Whether a thief would find something.
    pub fn has_work(&self) -> bool {
        !self.private.is_empty()
            || !self.shared.is_empty()
            || !self.inbox.is_empty()
            || self.runnext.load(Ordering::Relaxed) != 0
    }

    /// How many tasks wait here to run; may be old when it is read.
    pub fn queued(&self) -> usize {
        let next = usize::from(self.runnext.load(Ordering::Relaxed) != 0);
        self.private.len() + self.shared.len() + self.inbox.len() + next
    }

    /// Its status. Acquire: pairs with the Release of the owner that has left it, so a caller
    /// that finds it STOPPED sees what was done with it.
    #[inline(always)]
    pub fn status(&self) -> u32 {
        (self.owner.load(Ordering::Acquire) & STATUS) as u32
    }

    /// Whether its owner may give it this status. [`status`] says who the owner is.
    fn may_become(&self, to: u32) -> bool {
        match to {
            // Its M gives it up; the world starts again; it is new.
            status::IDLE => {
                matches!(self.status(), status::RUNNING | status::STOPPED | status::DEAD)
            }
            // An M takes it out of the idle set, or gets it from the stopper of the world.
            status::RUNNING => matches!(self.status(), status::IDLE | status::STOPPED),
            status::SYSCALL => self.status() == status::RUNNING,
            // Taken out of the idle set, given up for the stop, taken from an M that is outside, or new.
            status::STOPPED => {
                matches!(self.status(), status::IDLE | status::RUNNING | status::DEAD)
            }
            // GOMAXPROCS has become smaller. The P was stopped, or is the stopper's own: the stopper
            // empties its P while it runs it, and gives it up after that.
            status::DEAD => {
                matches!(self.status(), status::STOPPED | status::RUNNING | status::IDLE)
            }
            _ => false,
        }
    }

    /// Its owner gives it a status without an M. Release: pairs with the Acquire of the thread
    /// that takes it next.
    #[inline(always)]
    pub fn set_status(&self, to: u32) {
        debug_assert!(self.may_become(to), "a P of status {} becomes {to}", self.status());
        self.owner.store(to as usize, Ordering::Release);
    }

    /// Its owner gives it to an M, or leaves it for a system call of its M.
    #[inline(always)]
    pub fn set_owner(&self, to: u32, m: MRef) {
        debug_assert!(self.may_become(to), "a P of status {} becomes {to}", self.status());
        // Release: as in `set_status`.
        self.owner.store(word(to, m), Ordering::Release);
    }

    /// Takes a P that its M has left for a system call, as `to`; false: it isn't in one any more.
    pub fn take_from_call(&self, to: u32) -> bool {
        self.change_call(to as usize)
    }

    /// The M, which is back from its system call, takes the P that it left then. If the P has
    /// passed to a call of another M meanwhile it is anybody's, and this M takes it all the same.
    #[inline(always)]
    pub fn take_back(&self, m: MRef) -> bool {
        let mine = word(status::SYSCALL, m);
        self.change(mine, word(status::RUNNING, m)) || self.change_call(word(status::RUNNING, m))
    }

    #[cold]
    fn change_call(&self, to: usize) -> bool {
        let now = self.owner.load(Ordering::Relaxed);
        (now & STATUS) as u32 == status::SYSCALL && self.change(now, to)
    }

    /// AcqRel: the queues and caches go along with the ownership.
    #[inline(always)]
    fn change(&self, from: usize, to: usize) -> bool {
        self.owner.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether this M runs it.
    pub fn is_run_by(&self, m: MRef) -> bool {
        // Acquire: as in `status`.
        self.owner.load(Ordering::Acquire) == word(status::RUNNING, m)
    }

    /// The M that runs it, if one does.
    pub fn runner(&self) -> Option<MRef> {
        let owner = self.owner.load(Ordering::Acquire);
        let m = (owner & !STATUS) as *const M;
        let runs = (owner & STATUS) as u32 == status::RUNNING && !m.is_null();
        // SAFETY: `set_owner` has put an M's address there, and M's stay mapped until shutdown.
        runs.then(|| unsafe { MRef::from_ptr(m) })
    }
}

/// For [`P::owner`].
#[inline(always)]
fn word(status: u32, m: MRef) -> usize {
    m.as_ptr() as usize | status as usize
}

/// A pointer to a P, which stays mapped until shutdown.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct PRef(ptr::NonNull<P>);

// SAFETY: a pointer; what may be done with it the fields say.
unsafe impl Send for PRef {}

impl PRef {
    /// # Safety
    /// `p` points to a P.
    #[inline(always)]
    pub unsafe fn from_ptr(p: *const P) -> PRef {
        // SAFETY: `p` points to a P, so it isn't null.
        PRef(unsafe { ptr::NonNull::new_unchecked(p.cast_mut()) })
    }

    #[inline(always)]
    pub fn as_ptr(self) -> *mut P {
        self.0.as_ptr()
    }

    /// The node that it belongs to for good.
    #[inline(always)]
    pub fn of_node(&self) -> &Node {
        // SAFETY: nodes stay where they are as long as the runtime, as P's do; the caller has one.
        unsafe { &*self.of_node }
    }
}

impl Deref for PRef {
    type Target = P;
    #[inline(always)]
    fn deref(&self) -> &P {
        // SAFETY: P's stay mapped until shutdown, when no code of the runtime runs.
        unsafe { self.0.as_ref() }
    }
}

/// The P has its first timer, or one by somebody else: from the next decision on its owner
/// looks at the clock.
pub fn look_at_the_clock(p: PRef) {
    let tick = p.tick.load(Ordering::Relaxed);
    // If the owner writes at the same time it has just looked.
    p.unusual_at.store(tick.wrapping_add(1), Ordering::Relaxed);
}
