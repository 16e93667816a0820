//! The runtime: what exists once from `gs_init` to `gs_shutdown`, and how to find a P, an M, a node
//! or a descriptor in it.

use super::course::Course;
use super::g::{G, Status};
use super::m::{self, M, MRef};
use super::node::{LONGEST_THEFT, Node};
use super::p::{P, PRef};
use super::points::Points;
use super::slots::Slots;
use crate::arch::FpControl;
use crate::cxx;
use crate::numa::{self, Topology};
use crate::os::cpu::{self, CpuSet};
use crate::os::locked::Locked;
use crate::os::oversleep::Oversleep;
use crate::os::spin::{self, LongLock, SpinLock};
use crate::os::thread::SignalMask;
use crate::os::{heap, log, mem};
use crate::sched::ext::gang::state::Gangs;
use crate::sched::prim::debug::Debug;
use crate::sched::prim::follower::Follower;
use crate::sched::prim::headcount::{Forks, Headcount};
use crate::sched::prim::idle::Idle;
use crate::sched::prim::limits;
use crate::sched::run::aside::Aside;
use crate::sched::run::requests::World;
use crate::sched::services::inspector::Inspector;
use crate::sched::services::sysmon::state::Sysmon;
use crate::sched::services::workers::Workers;
use crate::sched::take::template::Template;
use crate::stack::SizeClass;
use crate::trace;
use core::ffi::c_void;
use core::ops::Deref;
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
use core::{iter, ptr};

/// The runtime; null: there is no runtime.
pub static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(ptr::null_mut());

/// The least [`Runtime::theft_time`], in ns; the most is [`LONGEST_THEFT`]. Waking a thread takes
/// 16 to 27 us on the development machine, and the thread's cache misses afterwards about as long.
/// Busy or emulated machines take far longer.
pub const SHORTEST_THEFT: i64 = 50_000;

/// Held while a runtime is made or ended.
pub static LIFE: LongLock = LongLock::new();

/// Whether a runtime is being made or ended: plain threads wait until it is complete, or gone.
pub static CHANGING: AtomicBool = AtomicBool::new(false);

/// The plain threads that use the runtime right now.
pub static GUESTS: Headcount = Headcount::new();

/// The plain threads that wait until `CHANGING` is over.
pub static AT_THE_DOOR: Headcount = Headcount::new();

/// The number of runtimes so far in this process and, before a fork, in its parents.
pub static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Bits of [`Runtime::ends`].
pub mod ends {
    /// A thread waits in `wait_for_goroutines` for the last goroutine to end.
    pub const DRAIN: u32 = 1;
    /// Tasks wait aside.
    pub const ASIDE: u32 = 2;
}

/// The runtime: see the module.
pub struct Runtime {
    /// This runtime's number, which no other runtime has.
    pub number: u32,
    pub topology: Topology,
    pub nodes: Vec<Node>,
    /// The P's by their numbers; null: not made yet. Behind the numbers below GOMAXPROCS' limit come
    /// those of the P's for bubbles.
    pub all_ps: Vec<AtomicPtr<P>>,
    /// GOMAXPROCS.
    pub procs: AtomicUsize,
    /// The number of P's in `all_ps` that have been made. A P above GOMAXPROCS stays.
    pub made_ps: AtomicUsize,
    /// The P's for bubbles that no bubble uses now, and how many have been made.
    pub bubble_ps: Locked<(Vec<PRef>, usize)>,
    pub idle: Idle,
    pub world: World,
    pub sysmon: Sysmon,
    pub workers: Workers,
    pub template: Template,
    pub inspector: Inspector,
    pub follower: Follower,
    /// The number of threads of `observe`, which wake no goroutine.
    pub observers: AtomicUsize,
    pub aside: Aside,
    pub gangs: Gangs,
    pub debug: Debug,
    /// The ordered run that the whole runtime is: `seed` of `GOSCHED_DEBUG`.
    pub course: Option<Box<Course>>,
    /// The functions of gangs and hooks that the rooms below them call.
    pub points: &'static Points,
    /// The number of tasks that each of a P's rings holds.
    pub ring_capacity: usize,
    /// The rounding modes with which goroutines begin.
    pub fp: FpControl,
    pub stack_class: SizeClass,

    pub ms: Locked<Ms>,
    /// The number of M's, borrowed threads included.
    pub m_count: AtomicUsize,
    /// The number of M's with a thread of the library's own, which `max_ms` limits.
    pub own_ms: AtomicUsize,
    /// The number of M's that are about to go to sleep or to take a P: see [`M::set_between`].
    pub between: AtomicUsize,
    /// The threads that goroutines have locked.
    pub locked: Slots,
    /// The largest number of threads of the library's own that run goroutines:
    /// `gs_set_max_threads`.
    pub max_ms: AtomicUsize,
    /// How often work had to wait because of `max_ms`.
    pub thread_limit_hits: AtomicU64,
    /// Whether a P waits for an M that sysmon is to make.
    pub ms_wanted: AtomicBool,
    /// Whether the last attempt to make a thread failed.
    pub lacks_threads: AtomicBool,
    /// The number of threads that are in `gs_run`, or attached.
    pub runners: AtomicUsize,
    /// Whether the runtime ends: its threads must leave.
    pub exiting: AtomicBool,
    /// The time slice: how long a goroutine runs before others get their turn, in ns.
    pub slice: i64,
    /// The signal that asks a thread to give its P away; 0: none.
    pub preempt_signal: i32,
    /// Whether the mode is cooperative: no thread takes a P from a goroutine that doesn't call the
    /// library.
    pub cooperative: bool,
    /// The function that each of the library's own threads runs, with its M: `g0::thread_main`.
    /// That function calls the code that starts threads, so this code can't import it.
    pub thread_main: extern "C" fn(*mut c_void) -> *mut c_void,
    /// Held while a P is taken from an M: see [`preempt`](crate::sched::take::preempt).
    pub taking: LongLock,
    /// Whether the user was warned that threads, or stacks, are lacking. Each warning comes once.
    pub warned_thread: AtomicBool,
    pub warned_stack: AtomicBool,

    /// Whether a goroutine that is back from a system call may wait in a node's queue.
    pub back_from_call: AtomicBool,
    /// The number of goroutines spawned by threads without a P.
    pub created_without_p: AtomicU64,
    /// See [`Runtime::take_ids`].
    pub next_id: AtomicU64,
    /// See [`Runtime::any_node`].
    pub next_node: AtomicUsize,
    /// See [`Runtime::next_root_p`].
    pub next_root: AtomicUsize,
    /// See [`Runtime::theft_time`].
    pub theft_time: AtomicI64,
    /// Bits of [`ends`]: who waits for the end of a goroutine.
    pub ends: AtomicU32,
    /// The futex word on which a shutdown sleeps; changes when the last goroutine has ended.
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
    /// How late the kernel wakes M's that sleep until a deadline.
    pub oversleep: Oversleep,
    /// The copies of the C++ runtime.
    pub copies: cxx::Copies,
    /// The signal mask of the thread that made the runtime, for the child of a fork.
    pub host_mask: SignalMask,
    /// Whether threads and memory are bound to nodes. seed: N1, N9
    pub binds: bool,
    /// Whether threads that call `gs_run` are bound to nodes, too.
    pub binds_runners: bool,
    /// The CPUs of the thread that made the runtime.
    pub host_cpus: Locked<CpuSet>,
    /// How often the CPUs of the nodes have changed.
    pub cpu_changes: AtomicUsize,
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

// SAFETY: the lists own the M's, and move with their lock. Each field of an M says which threads
// may use it, wherever the list's owner is.
unsafe impl Send for Ms {}

/// The runtime. Panics if there is none.
///
/// The code of the rooms runs on an M's thread, on a thread that the runtime joins before it ends
/// (sysmon and its kin), or on a plain thread that has a [`Guest`]. `lifecycle::init::shutdown`
/// frees the runtime only when no thread of the first two kinds is left, and no [`Guest`]. The
/// check misses a thread that no count includes, and that uses the result after a shutdown has
/// ended. Such a thread needs a [`Guest`] or a [`Visit`], or [`try_rt`] if it only asks whether
/// there is a runtime.
#[inline(always)]
pub fn rt() -> &'static Runtime {
    let rt = RUNTIME.load(Ordering::Relaxed);
    if rt.is_null() {
        no_runtime();
    }
    // SAFETY: not null; the runtime lives until `shutdown`, which waits for all threads that use
    // it.
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
        // SAFETY: a P belongs to a runtime, which stays mapped as long as the P.
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

/// Whether the present runtime has this number.
pub fn is_number(number: u32) -> bool {
    try_rt().is_some() && NUMBER.load(Ordering::Relaxed) == number
}

/// Proof that a plain thread is counted in [`GUESTS`]: while this value exists the runtime doesn't
/// end.
pub struct Guest(Forks);

impl Guest {
    /// Recreates a `Guest` that was forgotten.
    ///
    /// # Safety
    /// A `Guest` was forgotten. One call for each forgotten `Guest`.
    pub unsafe fn again() -> Guest {
        Guest(GUESTS.forks())
    }

    /// [`Guest::enter`] without making a runtime: `None` if there is no runtime.
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

    /// Waits while a runtime is being made or ended, and then enters if there is a runtime. The
    /// waiting thread is not counted in [`GUESTS`], and doesn't enter and leave in a loop: a
    /// shutdown waits until no guest is left, and would again and again meet a guest that has lost
    /// its CPU.
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

    /// Lets the threads at the door enter first, unless another thread has set `CHANGING`. For a
    /// thread that is no guest and is about to set `CHANGING`: otherwise one runtime after another
    /// might be ended before the waiting threads wake up.
    pub fn let_in() {
        let mut round = 0;
        while !AT_THE_DOOR.is_zero() && !CHANGING.load(Ordering::SeqCst) {
            round += 1;
            spin::backoff(round);
        }
    }

    /// [`Guest::enter_if_there`] without waiting: `None` also while the runtime is being made or
    /// ended.
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

/// The runtime, for a goroutine or a plain thread. While this value exists the runtime doesn't end.
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
        // A signal handler may have forked meanwhile, and the child has no runtime.
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
    /// Lets the calling thread run on all CPUs that the process may use: the thread that started it
    /// may be bound to a node.
    pub fn unbind_thread(&self) {
        if self.binds {
            self.host_cpus.with(|cpus| cpus.bind());
        }
    }

    /// The node that the calling thread is on right now; 0 if the topology is synthetic.
    pub fn node_here(&self) -> usize {
        let cpu = if self.topology.is_real() { cpu::current() } else { None };
        let has = |cpu| self.nodes.iter().position(|node| node.cpus.with(|cpus| cpus.has(cpu)));
        cpu.and_then(has).unwrap_or(0)
    }

    /// What an M remembers when it is bound to a node: the node, and which CPUs the node has had.
    pub fn binding_of(&self, node: usize) -> usize {
        // Acquire: pairs with the Release in `set_cpus`.
        self.cpu_changes.load(Ordering::Acquire) * self.nodes.len() + node
    }

    /// Changes the CPUs of each node, and of the process. The world is stopped.
    pub fn set_cpus(&self, of_nodes: &[Vec<usize>], all: &[usize]) {
        self.host_cpus.with(|cpus| *cpus = CpuSet::new(all));
        for (node, new) in self.nodes.iter().zip(of_nodes) {
            node.cpus.with(|cpus| *cpus = CpuSet::new(new));
        }
        // Release: pairs with the Acquire in `binding_of`. Threads are bound anew when they next
        // get a P.
        self.cpu_changes.fetch_add(1, Ordering::Release);
    }

    /// GOMAXPROCS: the number of P's.
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
        let p = self.all_ps.get(id)?.load(Ordering::Acquire);
        // SAFETY: a P that was made stays mapped.
        (!p.is_null()).then(|| unsafe { PRef::from_ptr(p) })
    }

    /// The P's below GOMAXPROCS.
    pub fn ps(&self) -> impl Iterator<Item = PRef> + '_ {
        (0..self.procs()).map(|id| self.p(id))
    }

    /// The `most` P's that follow `p` by their numbers, or all other P's if there are fewer.
    pub fn ps_after(&self, p: PRef, most: usize) -> impl Iterator<Item = PRef> + '_ {
        let n = self.procs();
        (1..n.min(most + 1)).map(move |i| self.p((p.id as usize + i) % n))
    }

    /// All P's that have been made, even above GOMAXPROCS.
    pub fn all_made_ps(&self) -> impl Iterator<Item = PRef> + '_ {
        (0..self.made_ps.load(Ordering::Acquire)).map(|id| self.p(id))
    }

    /// Makes the P with this number, for a total of `count` P's, or returns the P that was made
    /// before, which keeps its node. `None`: there is no memory.
    pub fn make_p(&self, id: usize, count: usize) -> Option<PRef> {
        if let Some(p) = self.p_if_made(id) {
            return Some(p);
        }
        let node = &self.nodes[self.node_of_new_p(id, count)];
        let p = P::new(id, node, self.stack_class, self.ring_capacity, self.debug.migrate);
        let p = mem::place(p, node.memory)?;
        self.all_ps[id].store(p, Ordering::Release);
        self.made_ps.store(id + 1, Ordering::Release);
        Some(self.p(id))
    }

    /// The node for a P that is about to be made, for a total of `count` P's.
    fn node_of_new_p(&self, id: usize, count: usize) -> usize {
        let cpus: Vec<usize> =
            self.nodes.iter().map(|node| node.cpus.with(|cpus| cpus.len())).collect();
        let mut ps = vec![0; cpus.len()];
        (0..id).filter_map(|id| self.p_if_made(id)).for_each(|p| ps[p.of_node().id] += 1);
        numa::node_of_next_p(&cpus, &ps, count)
    }

    /// Takes a P for a bubble, which only [`Runtime::give_bubble_p_back`] takes back. `-EAGAIN`: there
    /// are too many bubbles; `-ENOMEM`.
    pub fn take_bubble_p(&self) -> Result<PRef, i32> {
        let taken = self.bubble_ps.with(|(free, made)| match free.pop() {
            Some(p) => Ok(Ok(p)),
            None if *made == limits::BUBBLES => Err(-libc::EAGAIN),
            None => {
                *made += 1;
                Ok(Err(*made - 1))
            }
        })?;
        let number = match taken {
            Ok(p) => return Ok(p),
            Err(number) => number,
        };
        let (id, node) = (limits::PROCS + number, &self.nodes[0]);
        let p = P::new(id, node, self.stack_class, limits::RING, false);
        // Without memory the number is lost, which costs one bubble.
        let p = mem::place(p, node.memory).ok_or(-libc::ENOMEM)?;
        self.all_ps[id].store(p, Ordering::Release);
        let p = self.p(id);
        p.alone.set(true);
        Ok(p)
    }

    /// Takes back the P of a bubble that is over: idle, and with nothing queued.
    pub fn give_bubble_p_back(&self, p: PRef) {
        self.bubble_ps.with(|(free, _)| free.push(p));
    }

    /// The P's that have been made for bubbles.
    pub fn made_bubble_ps(&self) -> impl Iterator<Item = PRef> + '_ {
        let made = self.bubble_ps.with(|(_, made)| *made);
        let ids = limits::PROCS..limits::PROCS + made;
        ids.filter(|&id| !self.all_ps[id].load(Ordering::Acquire).is_null()).map(|id| self.p(id))
    }

    /// Sets GOMAXPROCS, whose P's have been made.
    pub fn set_proc_count(&self, n: usize) {
        if trace::is_on() {
            trace::procs_are(n);
        }
        self.procs.store(n, Ordering::Release);
        let first = self.p(0);
        let heir = first.of_node();
        for node in &self.nodes {
            node.ps.set(self.ps().filter(|p| p.node as usize == node.id));
            node.open_queues(node.ps.len() > 0, heir);
        }
    }

    /// Takes this P out of its node's set of idle P's. False: the P isn't there, or another thread
    /// took it.
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

    /// How long a goroutine that was spawned for a node waits before another node may take it, in
    /// ns: the cost of a theft, most of which is waking a thread.
    pub fn theft_time(&self) -> i64 {
        self.theft_time.load(Ordering::Relaxed)
    }

    /// Updates `theft_time`: a notified thread took `took` ns until it ran.
    pub fn learn_theft_time(&self, took: i64) {
        let before = self.theft_time.load(Ordering::Relaxed);
        let now = (before * 7 + 2 * took) / 8;
        self.theft_time.store(now.clamp(SHORTEST_THEFT, LONGEST_THEFT), Ordering::Relaxed);
    }

    /// Counts one more thread of the library's own, unless `max_ms` is reached. If all threads
    /// below the limit are locked, one more is allowed: a locked thread runs only goroutines that
    /// are bound to it, and fires no timers while it sleeps.
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

    /// Undoes [`Runtime::count_m_in`].
    pub fn count_m_out(&self) {
        self.own_ms.fetch_sub(1, Ordering::Relaxed);
        self.m_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether `max_ms` allows one more worker beside `workers`: workers have at most a quarter of
    /// the limit, and leave room for an M for each P and for each locked goroutine.
    pub fn has_room_for_worker(&self, workers: usize) -> bool {
        let max = self.max_ms.load(Ordering::Relaxed);
        let ms = self.own_ms().max(self.procs() + self.locked.taken() + 1);
        workers < max / 4 && workers + ms < max
    }

    /// The number of M's with a thread of the library's own.
    pub fn own_ms(&self) -> usize {
        self.own_ms.load(Ordering::Relaxed)
    }

    /// The number of threads that may be locked: all but one below the limit.
    pub fn lockable_threads(&self) -> usize {
        self.max_ms.load(Ordering::Relaxed).saturating_sub(1).max(1)
    }

    /// Counts that work waits because of the limit of threads, and warns once.
    pub fn thread_limit_hit(&self) {
        self.thread_limit_hits.fetch_add(1, Ordering::Relaxed);
        if !self.warned_thread.swap(true, Ordering::Relaxed) {
            let max = self.max_ms.load(Ordering::Relaxed);
            log::say(format_args!(
                "gosched: the limit of {max} threads is reached; goroutines wait until one is \
                 free. Let fewer goroutines block or lock their threads at a time, or raise the \
                 limit (gs_set_max_threads, GOSCHED_MAX_THREADS)"
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

    /// Makes an M without a thread, which the caller has counted in. Also makes room for all M's in
    /// the lists that an M may get into. `None`: there is no memory.
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
            let m =
                if has_room { heap::boxed_to_keep(M::new(all.len() as u32, node)) } else { None };
            all.push(m?);
            let m: *const M = &raw const **all.last()?;
            // SAFETY: a box's content stays where it is.
            let m = unsafe { MRef::from_ptr(m) };
            self.join_course(m);
            Some(m)
        })
    }

    /// Lets the M take part in the ordered run that the whole runtime is, if it is one. For an M that no
    /// thread has, or by its thread.
    pub fn join_course(&self, m: MRef) {
        let course = self.course.as_deref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the runtime's run stays as long as its M's do.
        unsafe { m.set_course(course) };
    }

    /// Takes back an M whose thread could not be started.
    pub fn forget_m(&self, m: MRef) {
        self.ms.with(|ms| ms.free.push(m));
        self.count_m_out();
    }

    /// Makes an M for a borrowed thread, which the limit doesn't cover. The M counts as in a system
    /// call until other threads can find its goroutine. `None`: there is no memory.
    #[must_use]
    pub fn add_runner(&self) -> Option<MRef> {
        let m = self.add_m(self.any_node())?;
        self.runners.fetch_add(1, Ordering::SeqCst);
        m.hold.begin_call();
        // Release: a thread that counts this M sees that the M is in a call.
        self.m_count.fetch_add(1, Ordering::Release);
        Some(m)
    }

    /// Takes back the M of a borrowed thread that goes back to its owner, and no longer uses the
    /// runtime.
    pub fn runner_leaves(&self, m: MRef) {
        m.root.set(ptr::null());
        m.attachment.set(ptr::null());
        m.by_g0.set(m.by_g0.get() & !m::ATTACHED);
        m.stop_tracing();
        self.ms.with(|ms| ms.free.push(m));
        self.m_count.fetch_sub(1, Ordering::Relaxed);
        self.runners.fetch_sub(1, Ordering::SeqCst);
    }

    /// Notes that a thread of the library's own is about to end: it must be joined.
    pub fn thread_leaves(&self, m: MRef) {
        m.stop_tracing();
        self.ms.with(|ms| ms.left.push(m));
        self.own_ms.fetch_sub(1, Ordering::Relaxed);
        self.m_count.fetch_sub(1, Ordering::Release);
    }

    /// Joins the threads that have left and ended, so that their M's can be used again. A thread
    /// that has left may run long destructors of the user's.
    pub fn reap(&self) {
        // Each thread is tried once: threads that still run go to the end of the list.
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

    /// Whether an M is between: about to go to sleep, or just woken.
    pub fn is_any_m_between(&self) -> bool {
        // Acquire: pairs with the Release in `M::set_between`, after which the M is in its pool.
        self.between.load(Ordering::Acquire) != 0
    }

    /// Whether threads that have left are not joined yet.
    pub fn has_left_threads(&self) -> bool {
        self.ms.with(|ms| !ms.left.is_empty()) || self.workers.has_left_threads()
    }

    /// The number of threads that run goroutines, or could.
    pub fn threads(&self) -> usize {
        self.m_count.load(Ordering::Relaxed)
    }

    /// The number of switches to goroutines so far.
    pub fn switches(&self) -> u64 {
        self.ms.with(|ms| ms.all.iter().map(|m| m.switches.load(Ordering::Relaxed)).sum())
    }

    /// Warns once that the system gives no thread (errno `-e`), so that work waits for the threads
    /// that there are.
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

    /// Takes `n` ids that no goroutine has; returns the first.
    pub fn take_ids(&self, n: u64) -> u64 {
        self.next_id.fetch_add(n, Ordering::Relaxed)
    }

    /// The number of goroutines, newborns included. 0 is exact.
    pub fn goroutines(&self) -> usize {
        let sum = |f: fn(&P) -> &AtomicU64| {
            self.all_made_ps().map(|p| f(&p).load(Ordering::Acquire)).fold(0, u64::wrapping_add)
        };
        // `ended` is read first, so that no goroutine counts as ended but not as created. Acquire:
        // pairs with the Release in `P::count_end`.
        let ended = sum(|p| &p.ended);
        let created =
            sum(|p| &p.created).wrapping_add(self.created_without_p.load(Ordering::Acquire));
        created.wrapping_sub(ended) as usize
    }

    /// Whether a goroutine that ends must call `goroutine_ended`, because something waits for that.
    #[inline(always)]
    pub fn watches_ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed) != 0
    }

    /// The M's for which `is_true` is true.
    pub fn ms_that(&self, is_true: impl Fn(&M) -> bool) -> Vec<MRef> {
        // SAFETY: M's stay mapped.
        let found = |m: &M| unsafe { MRef::from_ptr(m) };
        self.ms.with(|Ms { all, .. }| {
            all.iter().map(|m| &**m).filter(|m| is_true(m)).map(found).collect()
        })
    }

    /// Visits every M, with no lock held, so `f` may wake threads. Allocates nothing.
    pub fn for_each_m(&self, f: impl FnMut(MRef)) {
        let nth = |n: usize| {
            let m = self.ms.with(|ms| ms.all.get(n).map(|m| &raw const **m));
            // SAFETY: M's stay mapped until shutdown.
            m.map(|m| unsafe { MRef::from_ptr(m) })
        };
        (0..).map_while(nth).for_each(f);
    }

    /// How many M's there are, with and without threads. `None`: the lock is taken, perhaps by a
    /// thread that is halted.
    pub fn try_count_ms(&self) -> Option<usize> {
        self.ms.try_with(|ms| ms.all.len())
    }

    /// Visits the descriptors of all goroutines.
    pub fn for_each_g(&self, mut f: impl FnMut(&G)) {
        self.nodes.iter().for_each(|node| node.gs.for_each(|g| visit(g, &mut f)));
    }

    /// [`Runtime::for_each_g`] that waits for no lock. `None`: a lock is taken, perhaps by a thread
    /// that is halted.
    #[must_use]
    pub fn try_for_each_g(&self, mut f: impl FnMut(&G)) -> Option<()> {
        self.nodes.iter().try_for_each(|node| node.gs.try_for_each(|g| visit(g, &mut f)))
    }
}

/// Calls `f` with the descriptor if a goroutine has it. A goroutine of a bubble is shown in its bubble
/// alone: a stopper of the world doesn't stop it.
fn visit(g: &G, f: &mut impl FnMut(&G)) {
    let is_elsewhere = || !m::current().is_some_and(|m| g.is_in_bubble_of(m));
    let is_there = g.status() != Status::Dead && !(g.is_in_bubble() && is_elsewhere());
    // Pairs with the fence in `spawn::create`.
    fence(Ordering::Acquire);
    if is_there {
        f(g);
    }
}
