//! P: the right to run goroutines, with all that running them needs.

use super::g::G;
use super::m::{M, MRef};
use super::node::Node;
use super::task::{Fifo, Newborn, Task};
use crate::sched::ext::gang::state::Column;
use crate::sched::prim::histogram::Histogram;
pub use crate::sched::prim::histogram::count;
use crate::sched::prim::limits::{FREE_GS, NEWBORNS, PROCS};
use crate::sched::prim::pool::Cache;
use crate::sched::prim::ring::Ring;
use crate::sched::take::loan::state::Loan;
use crate::sched::wait::netpoll::state::Poll;
use crate::sched::wait::timers::queue::Timers;
use crate::stack::{SizeClass, StackKind};
use crate::trace;
use core::cell::Cell;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

/// The state of a P, and so its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum PStatus {
    /// No owner: the P is in its node's set of idle P's, or its last owner is about to put it
    /// there.
    Idle = 0,
    /// Owned by the M that runs the P ([`P::runner`]).
    Running = 1,
    /// No owner: the M that began a system call with the P may take it back, and any thread may
    /// take it.
    Syscall = 2,
    /// Owned by the stopper of the world.
    Stopped = 3,
    /// No owner: the P's number is GOMAXPROCS or more, and its queues are closed.
    Dead = 4,
}

/// A P's status and, if `Running` or `Syscall`, an M: the M that runs the P or began the call. One
/// word for both, so a compare-and-swap decides about both: the status alone is the old one again
/// when the P has passed from one M's call to another's.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner(usize);

impl Owner {
    /// The bits that hold the status; an M's address leaves them free.
    const STATUS: usize = 7;

    /// The word of a status without an M.
    #[inline(always)]
    const fn none(status: PStatus) -> Owner {
        Owner(status as usize)
    }

    #[inline(always)]
    fn m(status: PStatus, m: MRef) -> Owner {
        Owner(m.as_ptr() as usize | status as usize)
    }

    #[inline(always)]
    fn status(self) -> PStatus {
        match self.0 & Owner::STATUS {
            0 => PStatus::Idle,
            1 => PStatus::Running,
            2 => PStatus::Syscall,
            3 => PStatus::Stopped,
            _ => PStatus::Dead,
        }
    }
}

const _: () = assert!(align_of::<M>() > Owner::STATUS, "the status fits below an M's address");

/// An [`Owner`] that threads exchange. Each method but `load` is a step of the protocol in
/// `README.md`.
struct AtomicOwner(AtomicUsize);

impl AtomicOwner {
    /// Acquire: pairs with the Release of the owner that has left the P, so a caller that finds
    /// `Stopped` sees what was done with the P.
    #[inline(always)]
    fn load(&self) -> Owner {
        Owner(self.0.load(Ordering::Acquire))
    }

    /// For the owner: passes the P on. Release: pairs with the Acquire of the thread that takes the
    /// P next.
    #[inline(always)]
    fn pass_on(&self, from: &[PStatus], to: Owner) {
        // Relaxed: the owner sees the word that it has written, or from which it took the P.
        let now = Owner(self.0.load(Ordering::Relaxed)).status();
        if !from.contains(&now) {
            wrong_owner(now, to.status());
        }
        self.0.store(to.0, Ordering::Release);
    }

    /// For another thread: takes the P. Acquire and Release: the queues and caches go along with
    /// the ownership. SeqCst: see `M::is_wanted_back`.
    #[inline(always)]
    #[must_use]
    fn take(&self, from: Owner, to: Owner) -> bool {
        self.0.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

/// Panics because a P would change its owner from a state in which it can't: two threads believe
/// that they own the P. Going on would run a goroutine twice, or lose a goroutine.
#[cold]
#[inline(never)]
fn wrong_owner(now: PStatus, to: PStatus) -> ! {
    panic!("a P that is {now:?} becomes {to:?}")
}

/// See the module. `Cell`s belong to the M that holds the P, or to the stopper of the world.
#[repr(C, align(128))]
pub struct P {
    /// The goroutine that the running goroutine made ready last. It runs next and inherits the time
    /// slice. Thieves take it as a last resort.
    pub runnext: AtomicUsize,
    /// Requests to the M that runs the P: bits of [`attention`](super::attention).
    pub attention: AtomicU32,
    /// Counts scheduling decisions; sysmon checks whether the count moves.
    pub tick: AtomicU32,
    /// The tick of the next unusual decision (`order::is_unusual`), at which something besides the
    /// queues may be due.
    pub unusual_at: AtomicU32,
    /// Counts the decisions that took `runnext`: a goroutine from there runs in its predecessor's
    /// turn. See [`P::turn`].
    pub inherited: AtomicU32,
    /// The tick up to which the P counts as quick: see [`P::keeps_its_few`].
    quick_until: AtomicU32,
    /// Whether GOMAXPROCS is 1: then there are no thieves.
    pub alone: Cell<bool>,
    /// `Some` while [`P::tell_later`] runs: whether private work was added meanwhile.
    tells_later: Cell<Option<bool>>,
    pub id: u16,
    pub node: u16,
    /// The node of the P: see [`PRef::of_node`].
    of_node: *const Node,
    /// `migrate` of `GOSCHED_DEBUG`.
    pub migrates: bool,
    /// Whether a spawn here needs more than a newborn in the private queue: `migrates` is set, or
    /// events are traced.
    pub spawns_carefully: Cell<bool>,
    /// Whether a goroutine that is made ready here needs more than a push, because `migrates` is
    /// set or [`P::measure_next`] was called.
    pub is_careful: Cell<bool>,
    /// The kind of the stacks in `free_gs`.
    pub stack_kind: StackKind,
    owner: AtomicOwner,
    /// Counts system calls; sysmon checks whether the count's lower half moves.
    pub syscall_tick: AtomicU64,
    pub loan: Loan,
    pub poll: Poll,
    pub pace: Pace,
    /// Count the goroutines spawned and ended here. [`P::count_end`] changes `ended`.
    pub created: AtomicU64,
    pub ended: AtomicU64,

    /// Work that the P does itself: LIFO, one producer.
    pub private: Ring,
    /// Work that the P shares: FIFO; goroutines that yield, and tasks from the inbox.
    pub shared: Ring,
    /// Tasks that other threads make ready for this P: FIFO, many producers.
    pub inbox: Fifo,

    /// Descriptors with a warm stack of the default size.
    pub free_gs: Cache<G, FREE_GS>,
    pub newborns: Cache<Newborn, NEWBORNS>,
    /// The ids for goroutines that begin here: the next id, and the end of the range (exclusive).
    pub ids: Cell<(u64, u64)>,
    pub timers: Timers,
    /// Whether the P's owner fires timers, of this P or another: no thread forks meanwhile
    /// (`timers::Firing`).
    pub fires: AtomicBool,

    /// `tick` and the lower half of `syscall_tick` at `seen_at` (ns). While both are unchanged, one goroutine has run
    /// since `seen_at`, and made no system call.
    seen_tick: AtomicU32,
    seen_syscall_tick: AtomicU32,
    /// The number plus 1 of the P whose events this P serves at its next decision on g0; 0: none.
    /// Written by the thread that takes this P for such an event (`events::take_to_serve`).
    pub serves: AtomicU32,
    seen_at: AtomicI64,
    /// When the P was taken from a goroutine that computed, in ns; 0: such a goroutine has been given the P since.
    pub taken_at: AtomicI64,
    /// The tick of the next decision, if a goroutine of an event waits until then behind a
    /// preempted goroutine: see [`P::event_waits`].
    event_waits_at: AtomicU32,
    /// How long others had the P before the preempted goroutine that ran here last, in ns; at most
    /// a time slice.
    pub others_had: AtomicI64,

    /// The M that held the P last. seed: N3
    pub last_m: AtomicPtr<M>,
    pub stats: PStats,
    pub gang: Column,
}

// SAFETY: a `Cell` is used only by the P's owner, which the status names (`PStatus`), and each
// change of the owner is a Release that pairs with an Acquire (`AtomicOwner`). All other fields are
// atomic, or locked, or never change.
unsafe impl Sync for P {}

/// How fast the owner of a P makes scheduling decisions, and what it knows of the current turn and
/// of events. Only the owner uses these fields.
#[derive(Default)]
pub struct Pace {
    /// The time (ns) and the tick of the last reading of the clock.
    at: Cell<i64>,
    tick: Cell<u32>,
    /// The number of decisions between two readings of the clock, 1 to [`CLOCK`].
    every: Cell<u32>,
    /// Whether a timer was due at the last reading of the clock.
    was_due: Cell<bool>,
    /// Whether a timer was due at each of the last two readings.
    is_behind: Cell<bool>,
    /// How many goroutines timers, files and the inbox have brought, less the decisions made for
    /// them since.
    pub events: Cell<usize>,
    /// The turn (see [`P::turn`]) that the owner last saw, and when it first saw that turn, in ns.
    pub turn: Cell<u32>,
    pub turn_seen_at: Cell<i64>,
    /// The last reading of the clock to find out whether the turn is over: the answer, the tick,
    /// the time (ns), and the tick of the next such reading.
    pub turn_is_over: Cell<bool>,
    pub looked_tick: Cell<u32>,
    pub looked_at: Cell<i64>,
    pub look_tick: Cell<u32>,
    /// Since when the other queues wait behind goroutines that hand over to each other, in ns; 0:
    /// served since the owner last looked.
    pub others_wait_since: Cell<i64>,
    /// The turn in which the other queues were last served.
    pub others_turn: Cell<u32>,
    /// When a preempted goroutine last got the P in turn, in ns; 0: `others_until` was set since.
    /// The others have the P until `others_until` (ns).
    pub preempted_since: Cell<i64>,
    pub others_until: Cell<i64>,
    /// See [`P::measure_next`].
    measures: Cell<bool>,
    measures_from: Cell<i64>,
}

/// The most decisions that a P with timers makes between two readings of the clock.
const CLOCK: u32 = 16;
/// The time between two readings of the clock that a P with timers aims for, in ns.
const CLOCK_GAP: i64 = 1_600;

impl Pace {
    /// The number of decisions until the clock is read again.
    pub fn every(&self) -> u32 {
        self.every.get().clamp(1, CLOCK)
    }

    /// Notes that the clock was read with this decision. `is_due`: a timer is due.
    pub fn note(&self, tick: u32, now: i64, is_due: bool) {
        let decisions = i64::from(tick.wrapping_sub(self.tick.replace(tick)));
        if decisions == 0 {
            return;
        }
        let took = now - self.at.replace(now);
        let was_due = self.was_due.replace(is_due);
        // A P with timers due at two readings in a row is behind, and catches up sooner if it fires
        // many timers at once.
        self.is_behind.set(is_due && was_due);
        self.every.set(match self.is_behind.get() {
            true => CLOCK,
            false => (decisions * CLOCK_GAP / took.max(1)).clamp(1, i64::from(CLOCK)) as u32,
        });
    }

    /// Sets `events`, to 0 while the P is behind with its timers: their goroutines must not go
    /// before all others then.
    pub fn set_events(&self, events: usize) {
        self.events.set(if self.is_behind.get() { 0 } else { events });
    }
}

/// Counters of one P. The owner writes them; any thread may read them.
#[derive(Default)]
pub struct PStats {
    /// Goroutines that this P stole: from P's of its node, from global queues of other nodes, from
    /// P's of other nodes.
    pub steals_near: AtomicU64,
    pub steals_remote_queue: AtomicU64,
    pub steals_remote_p: AtomicU64,
    pub handoffs: AtomicU64,
    /// Stacks of other nodes that were freed here and went back to their node.
    pub stacks_sent_home: AtomicU64,
    /// Goroutines whose stack was moved to this node, and the pages of these stacks.
    pub migrations: AtomicU64,
    pub pages_moved: AtomicU64,
    /// How long ready goroutines waited to run here.
    pub run_waits: Histogram,
    /// How long goroutines that run here now have waited for a mutex or rwmutex, in ns.
    pub lock_wait: AtomicU64,
    /// How often the P was lent.
    pub loans: AtomicU64,
}

/// The most private goroutines that a quick P keeps from thieves.
const FEW: usize = 8;
/// The number of decisions for which a P counts as quick once it was seen to be quick.
const QUICK: u32 = 4096;

impl P {
    pub fn new(
        id: usize,
        node: &Node,
        stack_class: SizeClass,
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
            tells_later: Cell::new(None),
            id: id as u16,
            node: node.id as u16,
            of_node: node,
            migrates,
            spawns_carefully: Cell::new(migrates),
            is_careful: Cell::new(migrates),
            stack_kind: StackKind::new(stack_class, node.id as u16),
            owner: AtomicOwner(AtomicUsize::new(Owner::none(PStatus::Dead).0)),
            syscall_tick: AtomicU64::new(0),
            loan: Loan::new(),
            poll: Poll::new(),
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
            fires: AtomicBool::new(false),
            seen_tick: AtomicU32::new(0),
            seen_syscall_tick: AtomicU32::new(0),
            serves: AtomicU32::new(0),
            seen_at: AtomicI64::new(i64::MAX),
            taken_at: AtomicI64::new(0),
            event_waits_at: AtomicU32::new(0),
            others_had: AtomicI64::new(0),
            last_m: AtomicPtr::new(ptr::null_mut()),
            stats: PStats::default(),
            gang: Column::new(),
        }
    }

    /// Whether a thread saw lately that the P makes a decision every few us.
    #[inline(always)]
    fn is_quick(&self) -> bool {
        let tick = self.tick.load(Ordering::Relaxed);
        let left = self.quick_until.load(Ordering::Relaxed).wrapping_sub(tick);
        // `left` must be neither 0 nor wrapped. A P with a request or a gang's turn may make its
        // decisions on g0, and so isn't quick.
        left.wrapping_sub(1) < QUICK && self.attention.load(Ordering::Relaxed) == 0
    }

    /// Sets whether the P is quick, for a thread that has watched the P.
    pub fn set_quick(&self, is: bool) {
        let tick = self.tick.load(Ordering::Relaxed);
        self.quick_until.store(tick.wrapping_add(if is { QUICK } else { 0 }), Ordering::Relaxed);
    }

    /// Whether the private work is at most `FEW` goroutines, all of which have run before.
    pub fn has_few_goroutines(&self) -> bool {
        let n = self.private.len();
        n <= FEW && (0..n as u32).all(|i| self.oldest_has_run(i))
    }

    /// Whether the `n`th oldest task of the private queue is a goroutine that has run before.
    pub fn oldest_has_run(&self, n: u32) -> bool {
        // SAFETY: the word is 0 or a task. The task may have left the ring already, but its memory
        // stays mapped.
        let task = unsafe { Task::from_word(self.private.oldest(n)) };
        task.is_some_and(|task| task.has_run())
    }

    /// Whether thieves leave the P its private work: a few goroutines, which the P runs sooner than
    /// a thief would, and whose data is in its caches.
    pub fn keeps_its_few(&self) -> bool {
        self.is_quick() && self.status() == PStatus::Running && self.has_few_goroutines()
    }

    /// For the owner: whether no M need be woken for a task that is about to join the private work.
    #[inline(always)]
    pub fn keeps(&self, task: &Task) -> bool {
        self.is_quick() && task.has_run() && self.private.len() < FEW
    }

    /// For the owner, on g0: runs `f`, during which no M is woken for private work. The second
    /// result: whether an M would have been woken, which the caller must see to.
    pub fn tell_later<R>(&self, f: impl FnOnce() -> R) -> (R, bool) {
        self.tells_later.set(Some(false));
        let result = f();
        (result, self.tells_later.take() == Some(true))
    }

    /// For the owner, which has added private work: whether [`P::tell_later`] is under way, so that
    /// no M is woken now. Notes that there was such work.
    pub fn is_to_tell_later(&self) -> bool {
        let is = self.tells_later.get().is_some();
        if is {
            self.tells_later.set(Some(true));
        }
        is
    }

    /// The number of the current turn. A goroutine from `runnext` runs in its predecessor's turn,
    /// and doesn't change the number.
    #[inline(always)]
    pub fn turn(&self) -> u32 {
        self.tick.load(Ordering::Relaxed).wrapping_sub(self.inherited.load(Ordering::Relaxed))
    }

    /// Notes that the present goroutine was seen on the P at `now` (ns).
    pub fn seen_at(&self, now: i64) {
        self.seen_at.store(now, Ordering::Relaxed);
        self.seen_syscall_tick.store(self.calls(), Ordering::Relaxed);
        // Release: pairs with the Acquire in `stands_since`, so a thread that reads this tick reads
        // its time, or a later time.
        self.seen_tick.store(self.tick.load(Ordering::Relaxed), Ordering::Release);
    }

    /// A goroutine that computes loses the P at this time (ns).
    pub fn is_lost(&self, now: i64) {
        self.taken_at.store(now, Ordering::Relaxed);
    }

    /// Since when one goroutine is known to run on the P without a system call, in ns; `i64::MAX`:
    /// not known.
    pub fn stands_since(&self) -> i64 {
        let seen = self.seen_tick.load(Ordering::Acquire);
        let stands = seen == self.tick.load(Ordering::Relaxed)
            && !self.has_made_calls()
            && !self.loan.is_open();
        if stands { self.seen_at.load(Ordering::Relaxed) } else { i64::MAX }
    }

    /// When the next event comes for which the goroutine on the P is to be preempted, in ns; 0: an
    /// event waits already; `i64::MAX`: none is known.
    pub fn next_event(&self) -> i64 {
        let waits = !self.inbox.is_empty() || self.event_waits();
        if waits { 0 } else { self.timers.next() }
    }

    /// Whether a goroutine that an event has made ready waits behind the goroutine on the P.
    pub fn event_waits(&self) -> bool {
        self.event_waits_at.load(Ordering::Relaxed)
            == self.tick.load(Ordering::Relaxed).wrapping_add(1)
    }

    /// Makes [`P::event_waits`] true until the next decision.
    pub fn let_event_wait(&self) {
        let tick = self.tick.load(Ordering::Relaxed);
        self.event_waits_at.store(tick.wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether a system call has begun on the P since [`P::seen_at`] was last called.
    pub fn has_made_calls(&self) -> bool {
        self.seen_syscall_tick.load(Ordering::Relaxed) != self.calls()
    }

    /// The lower half of `syscall_tick`.
    pub fn calls(&self) -> u32 {
        self.syscall_tick.load(Ordering::Relaxed) as u32
    }

    /// For the owner: measures how long the next goroutine that is made ready here waits to run,
    /// from `ready_at` (ns; 0: from that moment) on.
    pub fn measure_next(&self, ready_at: i64) {
        self.pace.measures_from.set(ready_at);
        self.pace.measures.set(true);
        self.is_careful.set(true);
    }

    /// Undoes [`P::measure_next`]. `Some`: a goroutine is to be measured, from this time (ns; 0:
    /// now) on.
    pub fn stop_measuring(&self) -> Option<i64> {
        self.is_careful.set(self.migrates || trace::is_on());
        self.pace.measures.take().then(|| self.pace.measures_from.get())
    }

    /// For the owner: counts a goroutine that has ended here.
    #[inline(always)]
    pub fn count_end(&self) {
        // Release: pairs with the Acquire in `Runtime::goroutines`: a thread that counts this end
        // also counts the goroutines that were spawned before, on any P.
        self.ended.store(self.ended.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// For the owner: counts the wait of a [`flags::TIMED`](super::g::flags::TIMED) goroutine,
    /// which runs here now.
    #[cold]
    pub fn note_wait(&self, g: super::g::GRef) {
        g.set_flag(super::g::flags::TIMED, false);
        let waited = crate::os::time::now() - g.ready_at.get();
        self.stats.run_waits.note(waited);
    }

    /// Whether a thief would find a task.
    pub fn has_work(&self) -> bool {
        !self.private.is_empty()
            || !self.shared.is_empty()
            || !self.inbox.is_empty()
            || self.runnext.load(Ordering::Relaxed) != 0
    }

    /// How many tasks wait here to run; may be out of date.
    pub fn queued(&self) -> usize {
        let next = usize::from(self.runnext.load(Ordering::Relaxed) != 0);
        self.private.len() + self.shared.len() + self.inbox.len() + next
    }

    /// The present status. Only the owner can rely on it a moment later.
    #[inline(always)]
    pub fn status(&self) -> PStatus {
        self.owner.load().status()
    }

    /// To `Idle`; from `Running` (released), `Stopped` (the world goes on) or `Dead` (new).
    #[inline(always)]
    pub fn become_idle(&self) {
        use PStatus::{Dead, Idle, Running, Stopped};
        self.owner.pass_on(&[Running, Stopped, Dead], Owner::none(Idle));
    }

    /// To `Running`; from `Idle` (taken out of the idle set) or `Stopped` (given by the stopper).
    #[inline(always)]
    pub fn become_running(&self, m: MRef) {
        use PStatus::{Idle, Running, Stopped};
        self.owner.pass_on(&[Idle, Stopped], Owner::m(Running, m));
    }

    /// To `Syscall`; from `Running`. From now on any thread may take the P: [`P::take_from_call`],
    /// [`P::take_back`].
    #[inline(always)]
    pub fn leave_to_call(&self, m: MRef) {
        use PStatus::{Running, Syscall};
        self.owner.pass_on(&[Running], Owner::m(Syscall, m));
    }

    /// To `Stopped`; from `Idle` (taken out of the idle set), `Running` (given up by its M) or
    /// `Dead` (new).
    #[inline(always)]
    pub fn become_stopped(&self) {
        use PStatus::{Dead, Idle, Running, Stopped};
        self.owner.pass_on(&[Idle, Running, Dead], Owner::none(Stopped));
    }

    /// To `Dead`, because GOMAXPROCS is smaller now; from `Stopped`, or, for the stopper's own P,
    /// from `Running` (emptied) and then `Idle` (released).
    pub fn become_dead(&self) {
        use PStatus::{Dead, Idle, Running, Stopped};
        self.owner.pass_on(&[Stopped, Running, Idle], Owner::none(Dead));
    }

    /// From `Running` to `Idle` (the caller hands the P off) or `Stopped` (the caller stops the
    /// world). The caller has taken the P from an M outside.
    pub fn leave_m(&self, to: PStatus) {
        debug_assert!(matches!(to, PStatus::Idle | PStatus::Stopped));
        if trace::is_on() {
            trace::proc_was_taken(self.id);
        }
        self.owner.pass_on(&[PStatus::Running], Owner::none(to));
    }

    /// From `Running` to `Running` by another M. Only the owner may call this.
    pub fn pass_to(&self, m: MRef) {
        self.owner.pass_on(&[PStatus::Running], Owner::m(PStatus::Running, m));
    }

    /// From `Syscall` to `Idle` or `Stopped`, as [`P::leave_m`]. False: the P is in no call any
    /// more.
    #[must_use]
    pub fn take_from_call(&self, to: PStatus) -> bool {
        debug_assert!(matches!(to, PStatus::Idle | PStatus::Stopped));
        let is_taken = self.change_call(Owner::none(to));
        if is_taken && trace::is_on() {
            trace::proc_was_taken(self.id);
        }
        is_taken
    }

    /// From `Syscall` to `Running`, for an M that is back from the call to which it left the P. The
    /// P may have passed to a call of another M meanwhile: then any M may take it, and this M does.
    #[inline(always)]
    #[must_use]
    pub fn take_back(&self, m: MRef) -> bool {
        let (mine, running) = (Owner::m(PStatus::Syscall, m), Owner::m(PStatus::Running, m));
        self.owner.take(mine, running) || self.change_call(running)
    }

    #[cold]
    #[must_use]
    fn change_call(&self, to: Owner) -> bool {
        // Relaxed: `take` fails if `now` is out of date.
        let now = Owner(self.owner.0.load(Ordering::Relaxed));
        now.status() == PStatus::Syscall && self.owner.take(now, to)
    }

    /// Whether this M runs the P.
    #[must_use]
    pub fn is_run_by(&self, m: MRef) -> bool {
        self.owner.load() == Owner::m(PStatus::Running, m)
    }

    /// The M that runs the P, if an M does.
    pub fn runner(&self) -> Option<MRef> {
        let owner = self.owner.load();
        let m = (owner.0 & !Owner::STATUS) as *const M;
        let runs = owner.status() == PStatus::Running && !m.is_null();
        // SAFETY: `become_running` has put an M's address there, and M's stay mapped until
        // shutdown.
        runs.then(|| unsafe { MRef::from_ptr(m) })
    }
}

/// A pointer to a P, which stays mapped until shutdown.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct PRef(ptr::NonNull<P>);

// SAFETY: a P is `Sync` and stays mapped until shutdown, so another thread may use the pointer.
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

    /// Whether the P is a bubble's, whose M runs the bubble's goroutines alone.
    pub fn is_of_bubble(&self) -> bool {
        self.id as usize >= PROCS
    }

    /// The node to which the P belongs for good.
    #[inline(always)]
    pub fn of_node(&self) -> &Node {
        // SAFETY: nodes stay mapped as long as P's do.
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

/// Makes the P's owner read the clock with its next decision: the P has its first timer, or a timer
/// from another thread.
pub fn read_clock_next(p: PRef) {
    let tick = p.tick.load(Ordering::Relaxed);
    // An owner that writes at the same time has just read the clock.
    p.unusual_at.store(tick.wrapping_add(1), Ordering::Relaxed);
}
