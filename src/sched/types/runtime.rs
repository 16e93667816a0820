//! The runtime: everything of which there is one from `gs_init` to `gs_shutdown`, and the look-ups in it.

use super::g::{G, Status};
use super::m::{self, M, MRef};
use super::node::{LONGEST_THEFT, Node};
use super::p::{P, PRef};
use super::points::Points;
use super::slots::Slots;
use crate::arch::FpControl;
use crate::cxx;
use crate::numa::Topology;
use crate::os::cpu::CpuSet;
use crate::os::locked::Locked;
use crate::os::oversleep::Oversleep;
use crate::os::spin::{self, LongLock, SpinLock};
use crate::os::thread::SignalMask;
use crate::os::{heap, log, mem};
use crate::sched::ext::gang::state::Gangs;
use crate::sched::prim::debug::Debug;
use crate::sched::prim::headcount::{Forks, Headcount};
use crate::sched::prim::idle::Idle;
use crate::sched::run::aside::Aside;
use crate::sched::run::requests::World;
use crate::sched::services::inspector::Inspector;
use crate::sched::services::sysmon::state::Sysmon;
use crate::sched::services::workers::Workers;
use crate::sched::take::template::Template;
use crate::stack::SizeClass;
use core::ffi::c_void;
use core::ops::Deref;
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
use core::{iter, ptr};

/// The runtime; null: there is none.
pub static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(ptr::null_mut());

/// The least [`Runtime::theft_time`], in ns; the most is [`LONGEST_THEFT`]. Waking a thread takes 16 to 27 us on the
/// development machine, and the thread's cache misses afterwards take about as long. A busy or emulated machine takes
/// far longer.
pub const SHORTEST_THEFT: i64 = 50_000;

/// Held while a runtime is made or ended.
pub static LIFE: LongLock = LongLock::new();

/// A runtime is being made or ended: plain threads wait until it is complete, or gone.
pub static CHANGING: AtomicBool = AtomicBool::new(false);

/// Plain threads that use the runtime right now.
pub static GUESTS: Headcount = Headcount::new();

/// Plain threads that wait until `CHANGING` is over.
pub static AT_THE_DOOR: Headcount = Headcount::new();

/// How many runtimes there have been in this process and, before a fork, in its parents.
pub static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Bits of [`Runtime::ends`].
pub mod ends {
    /// A thread waits in `wait_for_goroutines` for the last goroutine to end.
    pub const DRAIN: u32 = 1;
    /// Tasks wait aside.
    pub const ASIDE: u32 = 2;
}

/// See the module.
pub struct Runtime {
    /// A number that no other runtime has.
    pub number: u32,
    pub topology: Topology,
    pub nodes: Vec<Node>,
    /// The P's by their numbers; null: not made yet.
    pub all_ps: Vec<AtomicPtr<P>>,
    /// GOMAXPROCS.
    pub procs: AtomicUsize,
    /// How many P's of `all_ps` have been made. A P above GOMAXPROCS stays.
    pub made_ps: AtomicUsize,
    pub idle: Idle,
    pub world: World,
    pub sysmon: Sysmon,
    pub workers: Workers,
    pub template: Template,
    pub inspector: Inspector,
    pub aside: Aside,
    pub gangs: Gangs,
    pub debug: Debug,
    /// What gangs and hooks do at the points that the rooms below them offer.
    pub points: &'static Points,
    /// The number of tasks that each of a P's rings holds.
    pub ring_capacity: usize,
    /// The rounding modes that goroutines begin with.
    pub fp: FpControl,
    pub stack_class: SizeClass,

    pub ms: Locked<Ms>,
    /// How many M's there are, borrowed threads included.
    pub m_count: AtomicUsize,
    /// How many M's have a thread of the library's own: `max_ms` limits these.
    pub own_ms: AtomicUsize,
    /// How many M's are about to go to sleep or to take a P: see [`M::set_between`].
    pub between: AtomicUsize,
    /// The threads that goroutines have locked.
    pub locked: Slots,
    /// The largest number of threads of the library's own that run goroutines: `gs_set_max_threads`.
    pub max_ms: AtomicUsize,
    /// How often work had to wait because of the limit.
    pub thread_limit_hits: AtomicU64,
    /// A P waits for an M that sysmon is to make.
    pub ms_wanted: AtomicBool,
    /// The last attempt to make a thread failed.
    pub lacks_threads: AtomicBool,
    /// How many threads are in `gs_run`, or attached.
    pub runners: AtomicUsize,
    /// The runtime ends: its threads are to leave.
    pub exiting: AtomicBool,
    /// The time slice: how long a goroutine runs before others get their turn, in ns.
    pub slice: i64,
    /// The signal that asks a thread to give its P away; 0: none.
    pub preempt_signal: i32,
    /// Cooperative mode: no thread takes a P from a goroutine that doesn't call the library.
    pub cooperative: bool,
    /// The function that each of the library's own threads runs, with its M: `core::g0::thread_main`. That function
    /// calls the code that starts threads, so this code can't import it and gets it here.
    pub thread_main: extern "C" fn(*mut c_void) -> *mut c_void,
    /// Held while a P is taken from an M: see [`preempt`](crate::sched::take::preempt).
    pub taking: LongLock,
    /// The user was warned that threads, or stacks, are lacking. Each warning comes once.
    pub warned_thread: AtomicBool,
    pub warned_stack: AtomicBool,

    /// A goroutine that has returned from a system call may wait in a node's queue.
    pub back_from_call: AtomicBool,
    /// How many goroutines threads without a P have spawned.
    pub created_without_p: AtomicU64,
    /// See [`Runtime::take_ids`].
    pub next_id: AtomicU64,
    /// See [`Runtime::any_node`].
    pub next_node: AtomicUsize,
    /// See [`Runtime::next_root_p`].
    pub next_root: AtomicUsize,
    /// See [`Runtime::theft_time`].
    pub theft_time: AtomicI64,
    /// What waits for the end of a goroutine: bits of [`ends`].
    pub ends: AtomicU32,
    /// Changes when the last goroutine has ended: a shutdown sleeps on it.
    pub drained: AtomicU32,

    /// Whether an epoll instance has been made, and the lock for making one.
    pub polls: AtomicBool,
    pub making_polls: LongLock,
    /// Guards `watcher` and `watching_until`.
    pub watch: SpinLock,
    /// The timer watcher: the idle M that wakes for the next timer; null: there is none.
    pub watcher: AtomicPtr<M>,
    /// When the timer watcher wakes, in ns; `i64::MAX`: there is no timer watcher.
    pub watching_until: AtomicI64,
    /// How late the kernel wakes M's that sleep to a deadline.
    pub oversleep: Oversleep,
    /// The copies of the C++ runtime.
    pub copies: cxx::Copies,
    /// The signal mask of the thread that made the runtime, for the child of a fork.
    pub host_mask: SignalMask,
    /// Threads and memory are bound to nodes. seed: N1, N9
    pub binds: bool,
    /// So are threads that call `gs_run`.
    pub binds_runners: bool,
    /// The CPUs of the thread that made the runtime.
    pub host_cpus: CpuSet,
}

const fn any_thread_may_use<T: Sync>() {}
const _: () = any_thread_may_use::<Runtime>();

/// The M's of a runtime.
#[derive(Default)]
pub struct Ms {
    #[allow(clippy::vec_box, reason = "other threads hold the M's addresses while the list grows")]
    pub all: Vec<Box<M>>,
    /// M's without a thread.
    pub free: Vec<MRef>,
    /// M's whose threads have left and must be joined.
    pub left: Vec<MRef>,
}

// SAFETY: the lists own the M's, and move with their lock. An M's fields are used by the threads that they name,
// wherever the list's owner is.
unsafe impl Send for Ms {}

/// The runtime. Panics if there is none.
///
/// All code of the rooms runs on an M's thread, on a thread that the runtime joins before it ends (sysmon and its kin),
/// or on a plain thread that has [`Guest`]. `lifecycle::init::shutdown` takes the runtime away only when no thread of the
/// first two kinds is left, and no thread is inside. What the check doesn't find: another thread, which no count
/// includes, asks while a shutdown runs, and uses the runtime when it has ended. Such a thread takes [`Guest`] or
/// [`Visit`], and asks [`try_rt`] where it only looks whether there is a runtime.
#[inline(always)]
pub fn rt() -> &'static Runtime {
    let rt = RUNTIME.load(Ordering::Relaxed);
    if rt.is_null() {
        no_runtime();
    }
    // SAFETY: the runtime lives until `shutdown`, which waits for all threads that use it.
    unsafe { &*rt }
}

/// [`rt`] without a check, for the hot paths.
///
/// # Safety
/// There is a runtime.
#[inline(always)]
pub unsafe fn must_rt() -> &'static Runtime {
    let rt = RUNTIME.load(Ordering::Relaxed);
    debug_assert!(!rt.is_null());
    // SAFETY: not null, as the caller says; else as in `rt`.
    unsafe { &*rt }
}

impl PRef {
    /// The runtime, without a check.
    #[inline(always)]
    pub fn rt(&self) -> &'static Runtime {
        // SAFETY: P's are a runtime's, and stay mapped as long as it does.
        unsafe { must_rt() }
    }
}

#[cold]
#[inline(never)]
fn no_runtime() -> ! {
    panic!("gosched: used without a runtime");
}

/// The runtime, if there is one.
#[inline(always)]
pub fn try_rt() -> Option<&'static Runtime> {
    // SAFETY: null or alive, as in `rt`; Acquire: pairs with the Release in `init`.
    unsafe { RUNTIME.load(Ordering::Acquire).as_ref() }
}

/// Whether there is a runtime with this number.
pub fn is_number(number: u32) -> bool {
    try_rt().is_some() && NUMBER.load(Ordering::Relaxed) == number
}

/// Proof that a plain thread is counted in [`GUESTS`]: while it exists the runtime doesn't end.
pub struct Guest(Forks);

impl Guest {
    /// Takes up an `Guest` that was forgotten.
    ///
    /// # Safety
    /// An `Guest` was forgotten, and this is called once for it.
    pub unsafe fn again() -> Guest {
        Guest(GUESTS.forks())
    }

    /// [`Guest::enter`] without making a runtime: `None` if there is none.
    #[must_use]
    pub fn enter_if_there() -> Option<Guest> {
        loop {
            if let Some(inside) = Guest::try_enter().or_else(Guest::enter_by_the_door) {
                return Some(inside);
            }
            if !CHANGING.load(Ordering::SeqCst) && try_rt().is_none() {
                return None;
            }
        }
    }

    /// Waits while a runtime is being made or ended, and then enters, if there is a runtime. The waiting thread is not
    /// inside meanwhile, and doesn't enter and leave in a loop: a shutdown waits until no thread is inside, and would
    /// again and again meet a thread that has lost its CPU inside.
    #[must_use]
    pub fn enter_by_the_door() -> Option<Guest> {
        let counted = AT_THE_DOOR.add();
        let mut round = 0;
        // Acquire: pairs with the stores of the thread that makes or ends the runtime.
        while CHANGING.load(Ordering::Acquire) {
            round += 1;
            spin::backoff(round);
        }
        let inside = Guest::try_enter();
        AT_THE_DOOR.take(counted);
        inside
    }

    /// For a thread outside that is about to set `CHANGING`: lets the threads that have waited enter first, unless another
    /// thread has set it already. Otherwise one runtime after another might be ended before they wake up.
    pub fn let_in() {
        let mut round = 0;
        while !AT_THE_DOOR.is_zero() && !CHANGING.load(Ordering::SeqCst) {
            round += 1;
            spin::backoff(round);
        }
    }

    /// [`Guest::enter_if_there`] without waiting: `None` also while the runtime is being ended.
    #[must_use]
    pub fn try_enter() -> Option<Guest> {
        let inside = Guest(GUESTS.add());
        (!CHANGING.load(Ordering::SeqCst) && try_rt().is_some()).then_some(inside)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        GUESTS.take(self.0);
    }
}

/// The runtime, for a caller that may be a goroutine or a plain thread. While this value exists the runtime doesn't end.
pub struct Visit {
    rt: &'static Runtime,
    _inside: Option<Guest>,
}

impl Visit {
    /// Waits while a runtime is being made or ended. `None`: there is no runtime.
    #[must_use]
    pub fn begin() -> Option<Visit> {
        Visit::by(Guest::enter_if_there)
    }

    /// [`Visit::begin`] without waiting: `None` also while the runtime is being made or ended.
    #[must_use]
    pub fn try_begin() -> Option<Visit> {
        Visit::by(Guest::try_enter)
    }

    fn by(enter: fn() -> Option<Guest>) -> Option<Visit> {
        // The runtime doesn't end while an M of its own has a P.
        let inside = match m::with_p() {
            Some(_) => None,
            None => Some(enter()?),
        };
        // A signal handler may have forked since then, and in the child there is no runtime.
        Some(Visit { rt: try_rt()?, _inside: inside })
    }
}

impl Deref for Visit {
    type Target = Runtime;
    fn deref(&self) -> &Runtime {
        self.rt
    }
}

impl Runtime {
    /// Lets the calling thread run on all CPUs that the process may use: a thread that is bound to a node may have
    /// started it.
    pub fn unbind_thread(&self) {
        if self.binds {
            self.host_cpus.bind();
        }
    }

    /// How many P's there are: GOMAXPROCS.
    #[inline(always)]
    pub fn procs(&self) -> usize {
        self.procs.load(Ordering::Acquire)
    }

    /// The P with this number, which has been made.
    #[inline(always)]
    pub fn p(&self, id: usize) -> PRef {
        // SAFETY: a P is made before its number is used, and stays mapped.
        unsafe { PRef::from_ptr(self.all_ps[id].load(Ordering::Acquire)) }
    }

    pub fn p_if_made(&self, id: usize) -> Option<PRef> {
        (id < self.made_ps.load(Ordering::Acquire)).then(|| self.p(id))
    }

    /// The P's that GOMAXPROCS allows.
    pub fn ps(&self) -> impl Iterator<Item = PRef> + '_ {
        (0..self.procs()).map(|id| self.p(id))
    }

    /// The `most` P's that follow `p` by their numbers, or all others if there are fewer.
    pub fn ps_after(&self, p: PRef, most: usize) -> impl Iterator<Item = PRef> + '_ {
        let n = self.procs();
        (1..n.min(most + 1)).map(move |i| self.p((p.id as usize + i) % n))
    }

    /// All P's that were made, even above GOMAXPROCS.
    pub fn all_made_ps(&self) -> impl Iterator<Item = PRef> + '_ {
        (0..self.made_ps.load(Ordering::Acquire)).map(|id| self.p(id))
    }

    /// The P with this number, which is made if it isn't there, for a total of `count` P's. A P keeps the node that it
    /// was made for. `None`: there is no memory.
    pub fn make_p(&self, id: usize, count: usize) -> Option<PRef> {
        if let Some(p) = self.p_if_made(id) {
            return Some(p);
        }
        let node = self.topology.node_of_p(id, count);
        let node = &self.nodes[node];
        let p = P::new(id, node, self.stack_class, self.ring_capacity, self.debug.migrate);
        let p = mem::place(p, node.memory)?;
        self.all_ps[id].store(p, Ordering::Release);
        self.made_ps.store(id + 1, Ordering::Release);
        Some(self.p(id))
    }

    /// Sets GOMAXPROCS, whose P's have been made.
    pub fn set_proc_count(&self, n: usize) {
        self.procs.store(n, Ordering::Release);
        let first = self.p(0);
        let heir = first.of_node();
        for node in &self.nodes {
            node.ps.set(self.ps().filter(|p| p.node as usize == node.id));
            node.open_queues(node.ps.len() > 0, heir);
        }
    }

    /// Takes this P out of its node's set of idle P's. False: it isn't there, or another thread took it.
    #[must_use]
    pub fn take_idle_p(&self, p: PRef) -> bool {
        let taken = p.of_node().take_idle_p(p);
        if taken {
            self.idle.p_taken();
        }
        taken
    }

    /// Takes any idle P of the node.
    #[must_use]
    pub fn take_idle_p_of(&self, node: &Node) -> Option<PRef> {
        let id = node.take_any_idle_p(self.procs())?;
        self.idle.p_taken();
        Some(self.p(id))
    }

    /// The nodes, `node` first and then from near to far. seed: N4
    pub fn nodes_from(&self, node: usize) -> impl Iterator<Item = &Node> {
        let own = &self.nodes[node];
        iter::once(own).chain(own.neighbours.iter().map(|&n| &self.nodes[n]))
    }

    /// A node with P's, each in turn: for work from plain threads.
    pub fn any_node(&self) -> usize {
        let n = self.nodes.len();
        if n == 1 {
            return 0;
        }
        let start = self.next_node.fetch_add(1, Ordering::Relaxed);
        (0..n).map(|i| (start + i) % n).find(|&i| self.nodes[i].ps.len() > 0).unwrap_or(0)
    }

    /// The P of the next root goroutine: the nodes in turn, and the P's of each.
    pub fn next_root_p(&self) -> PRef {
        let n = self.next_root.fetch_add(1, Ordering::Relaxed);
        let nodes = self.nodes.len();
        let with_ps = |i: &usize| self.nodes[(n + i) % nodes].ps.len() > 0;
        let node = (0..nodes).find(with_ps).map(|i| &self.nodes[(n + i) % nodes]);
        match node {
            Some(node) => node.ps.get(n / nodes % node.ps.len()),
            None => self.p(0),
        }
    }

    /// How long a goroutine that was spawned for a node waits there before another node may take it, in ns: what a
    /// theft costs, most of which is waking a thread.
    pub fn theft_time(&self) -> i64 {
        self.theft_time.load(Ordering::Relaxed)
    }

    /// Updates `theft_time`: a notified thread took `took` ns until it ran.
    pub fn learn_theft_time(&self, took: i64) {
        let before = self.theft_time.load(Ordering::Relaxed);
        let now = (before * 7 + 2 * took) / 8;
        self.theft_time.store(now.clamp(SHORTEST_THEFT, LONGEST_THEFT), Ordering::Relaxed);
    }

    /// Counts one more thread of the library's own, unless the limit is reached. If all threads below the limit are
    /// locked, one more is allowed: a locked thread runs only the goroutines that are bound to it, and fires no timers
    /// while it sleeps.
    pub fn count_m_in(&self) -> bool {
        let max = self.max_ms.load(Ordering::Relaxed).max(self.locked.taken() + 1);
        let more = |n: usize| (n + self.workers.count() < max).then_some(n + 1);
        if self.own_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
            self.m_count.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        self.workers.give_one_up();
        self.thread_limit_hit();
        false
    }

    /// Undoes [`Runtime::count_m_in`]: there is no such thread.
    pub fn count_m_out(&self) {
        self.own_ms.fetch_sub(1, Ordering::Relaxed);
        self.m_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the limit allows one more worker where there are `workers`: workers have at most a quarter of the limit,
    /// and leave room for an M for each P and for each locked goroutine.
    pub fn has_room_for_worker(&self, workers: usize) -> bool {
        let max = self.max_ms.load(Ordering::Relaxed);
        let ms = self.own_ms().max(self.procs() + self.locked.taken() + 1);
        workers < max / 4 && workers + ms < max
    }

    /// How many M's have a thread of the library's own.
    pub fn own_ms(&self) -> usize {
        self.own_ms.load(Ordering::Relaxed)
    }

    /// How many threads may be locked: all but one of those that the limit allows.
    pub fn lockable_threads(&self) -> usize {
        self.max_ms.load(Ordering::Relaxed).saturating_sub(1).max(1)
    }

    /// Work waits because of the limit of threads: counts that, and warns once.
    pub fn thread_limit_hit(&self) {
        self.thread_limit_hits.fetch_add(1, Ordering::Relaxed);
        if !self.warned_thread.swap(true, Ordering::Relaxed) {
            let max = self.max_ms.load(Ordering::Relaxed);
            log::say(format_args!(
                "gosched: the limit of {max} threads is reached; goroutines wait until one is \
                 free (gs_set_max_threads, GOSCHED_MAX_THREADS)"
            ));
        }
    }

    /// Sets the limit of threads and returns the former limit; `n <= 0` only asks.
    pub fn set_max_threads(&self, n: i32) -> i32 {
        let before = self.max_ms.load(Ordering::Relaxed);
        if n > 0 {
            self.max_ms.store(n as usize, Ordering::Relaxed);
            self.ms_wanted.store(true, Ordering::Release);
            self.sysmon.wake();
        }
        before.min(i32::MAX as usize) as i32
    }

    /// Makes an M without a thread, which the caller has counted in. `None`: there is no memory. Also makes room for
    /// all M's in the lists that an M may get into.
    #[must_use]
    pub fn add_m(&self, node: usize) -> Option<MRef> {
        self.ms.with(|Ms { all, free, left }| {
            if let Some(m) = free.pop() {
                m.reuse(node);
                return Some(m);
            }
            let count = all.len() + 1;
            let has_room = heap::reserve(all, 1)
                && heap::reserve(free, count - free.len())
                && heap::reserve(left, count - left.len())
                && self.nodes.iter().all(|n| n.reserve_idle_ms(count));
            let m = if has_room { heap::boxed(M::new(all.len() as u32, node)) } else { None };
            all.push(m?);
            let m: *const M = &raw const **all.last()?;
            // SAFETY: a box's content stays where it is.
            Some(unsafe { MRef::from_ptr(m) })
        })
    }

    /// Takes back an M whose thread could not be started.
    pub fn forget_m(&self, m: MRef) {
        self.ms.with(|ms| ms.free.push(m));
        self.count_m_out();
    }

    /// An M for a thread that calls `gs_run`, which the limit doesn't cover. The M counts as in a system call until
    /// others can find its goroutine. `None`: there is no memory.
    #[must_use]
    pub fn add_runner(&self) -> Option<MRef> {
        let m = self.add_m(self.any_node())?;
        self.runners.fetch_add(1, Ordering::SeqCst);
        m.hold.begin_call();
        // Release: a thread that counts this M sees that it is in a call.
        self.m_count.fetch_add(1, Ordering::Release);
        Some(m)
    }

    /// The thread goes back to its owner, and doesn't use the runtime any more.
    pub fn runner_leaves(&self, m: MRef) {
        m.root.set(ptr::null());
        m.attachment.set(ptr::null());
        m.by_g0.set(m.by_g0.get() & !crate::sched::types::m::ATTACHED);
        self.ms.with(|ms| ms.free.push(m));
        self.m_count.fetch_sub(1, Ordering::Relaxed);
        self.runners.fetch_sub(1, Ordering::SeqCst);
    }

    /// A thread of the library's own is about to end.
    pub fn thread_leaves(&self, m: MRef) {
        self.ms.with(|ms| ms.left.push(m));
        self.own_ms.fetch_sub(1, Ordering::Relaxed);
        self.m_count.fetch_sub(1, Ordering::Release);
    }

    /// Joins the threads that have left and ended, so that their M's can be used again. A thread that has left may take
    /// long to end: it runs destructors of the user's.
    pub fn reap(&self) {
        // Each thread once: threads that still run go to the end of the list.
        for _ in 0..self.ms.with(|ms| ms.left.len()) {
            let first = |left: &mut Vec<MRef>| (!left.is_empty()).then(|| left.remove(0));
            let Some(m) = self.ms.with(|ms| first(&mut ms.left)) else { break };
            let running = m.thread.take().and_then(|t| t.try_join().err());
            let has_ended = running.is_none();
            m.thread.set(running);
            self.ms.with(|ms| if has_ended { &mut ms.free } else { &mut ms.left }.push(m));
        }
        self.workers.reap();
    }

    /// Whether an M is about to go to sleep, or has just woken.
    pub fn is_any_m_between(&self) -> bool {
        // Acquire: pairs with the Release in `M::set_between`, when the M has gone into its pool.
        self.between.load(Ordering::Acquire) != 0
    }

    /// Whether threads have left that are not joined yet.
    pub fn has_left_threads(&self) -> bool {
        self.ms.with(|ms| !ms.left.is_empty()) || self.workers.has_left_threads()
    }

    /// How many threads run goroutines, or could.
    pub fn threads(&self) -> usize {
        self.m_count.load(Ordering::Relaxed)
    }

    /// How many switches to goroutines there were.
    pub fn switches(&self) -> u64 {
        self.ms.with(|ms| ms.all.iter().map(|m| m.switches.load(Ordering::Relaxed)).sum())
    }

    /// The system gives no thread: warns once that work waits for the threads that there are.
    pub fn warn_no_thread(&self, e: i32) {
        if !self.warned_thread.swap(true, Ordering::Relaxed) {
            log::say(format_args!(
                "gosched: no new thread (errno {}); goroutines wait until one is free",
                -e
            ));
        }
    }

    pub fn warn_no_stack(&self) {
        if !self.warned_stack.swap(true, Ordering::Relaxed) {
            log::say(format_args!(
                "gosched: no address space for a stack; goroutines wait until one is free"
            ));
        }
    }

    /// Takes `n` ids that no goroutine has.
    pub fn take_ids(&self, n: u64) -> u64 {
        self.next_id.fetch_add(n, Ordering::Relaxed)
    }

    /// How many goroutines there are, newborns included. 0 is exact.
    pub fn goroutines(&self) -> usize {
        let sum = |f: fn(&P) -> &AtomicU64| {
            self.all_made_ps().map(|p| f(&p).load(Ordering::Acquire)).fold(0, u64::wrapping_add)
        };
        // `ended` is read first, because what is counted as ended was created before. Acquire: pairs with the Release
        // in `P::count_end`.
        let ended = sum(|p| &p.ended);
        let created =
            sum(|p| &p.created).wrapping_add(self.created_without_p.load(Ordering::Acquire));
        created.wrapping_sub(ended) as usize
    }

    /// Whether something waits for goroutines to end: a goroutine that ends then calls `goroutine_ended`.
    #[inline(always)]
    pub fn watches_ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed) != 0
    }

    /// The M's for which `f` is true.
    pub fn ms_that(&self, is_true: impl Fn(&M) -> bool) -> Vec<MRef> {
        // SAFETY: M's stay mapped.
        let found = |m: &M| unsafe { MRef::from_ptr(m) };
        self.ms.with(|Ms { all, .. }| {
            all.iter().map(|m| &**m).filter(|m| is_true(m)).map(found).collect()
        })
    }

    /// Visits every M, without a lock: `f` may wake threads. Allocates nothing.
    pub fn for_each_m(&self, f: impl FnMut(MRef)) {
        let nth = |n: usize| {
            let m = self.ms.with(|ms| ms.all.get(n).map(|m| &raw const **m));
            // SAFETY: M's stay mapped until shutdown.
            m.map(|m| unsafe { MRef::from_ptr(m) })
        };
        (0..).map_while(nth).for_each(f);
    }

    /// Visits the descriptor of every goroutine that is there.
    pub fn for_each_g(&self, mut f: impl FnMut(&G)) {
        for node in &self.nodes {
            node.gs.for_each(|g| {
                let is_there = g.status() != Status::Dead;
                // Pairs with the fence in `spawn::create`.
                fence(Ordering::Acquire);
                if is_there {
                    f(g);
                }
            });
        }
    }
}
