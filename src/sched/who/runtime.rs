//! The runtime: everything that is there once, from `gs_init` to `gs_shutdown`, and the look-ups in it.

use super::aside::Aside;
use super::cxa;
use super::g::{G, Status};
use super::gang::Gangs;
use super::inspector::Inspector;
use super::m::{M, MRef};
use super::node::{LONGEST_THEFT, Node};
use super::p::{P, PRef};
use super::slots::Slots;
use super::sysmon::Sysmon;
use super::template::Template;
use super::workers::Workers;
use super::world::World;
use crate::arch::FpControl;
use crate::numa::Topology;
use crate::os::cpu::CpuSet;
use crate::os::locked::Locked;
use crate::os::spin::{self, SpinLock};
use crate::os::thread::SignalMask;
use crate::os::{heap, log, mem};
use crate::sched::words::debug::Debug;
use crate::sched::words::idle::Idle;
use crate::stack::Class;
use core::ffi::c_void;
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
use core::{iter, ptr};

pub static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(ptr::null_mut());

/// The least [`Runtime::theft_time`], in ns; the most is [`LONGEST_THEFT`]. To wake a thread takes 16 to 27 us
/// here, and what the goroutine then misses in its caches about as long; a busy or emulated machine takes far
/// longer.
pub const SHORTEST_THEFT: i64 = 50_000;

/// Held while a runtime is made or ended.
pub static LIFE: SpinLock = SpinLock::new();

/// A runtime is being made or ended: plain threads wait until it is there whole,
/// or gone.
pub static CHANGING: AtomicBool = AtomicBool::new(false);

/// Plain threads that use the runtime right now.
pub static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// Plain threads that wait until `CHANGING` is over.
pub static AT_THE_DOOR: AtomicUsize = AtomicUsize::new(0);

/// Runtimes there have been in this process and, before a fork, in its parents.
pub static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Bits of [`Runtime::ends`].
pub mod ends {
    /// A thread waits in `drain` for the last goroutine to end.
    pub const DRAIN: u32 = 1;
    /// Tasks wait aside for a stack.
    pub const STACKS: u32 = 2;
}

/// See the module.
pub struct Runtime {
    /// No other runtime has it.
    pub number: u32,
    pub topology: Topology,
    pub nodes: Vec<Node>,
    pub all_ps: Vec<AtomicPtr<P>>,
    pub procs: AtomicUsize,
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
    pub ring_capacity: usize,
    /// The rounding modes that goroutines begin with.
    pub fp: FpControl,
    pub stack_class: Class,

    pub ms: Locked<Ms>,
    /// M's there are, borrowed threads included.
    pub m_count: AtomicUsize,
    /// M's with a thread of the library's own: those that `max_ms` limits.
    pub own_ms: AtomicUsize,
    /// Those that are about to go to sleep or to take a P: see [`M::set_between`].
    pub between: AtomicUsize,
    pub locked: Slots,
    pub max_ms: AtomicUsize,
    /// Times that work had to wait because of the limit.
    pub thread_limit_hits: AtomicU64,
    /// A P waits for an M that sysmon is to make.
    pub ms_wanted: AtomicBool,
    /// The last time no thread could be made.
    pub lacks_threads: AtomicBool,
    pub runners: AtomicUsize,
    pub exiting: AtomicBool,
    /// How long a goroutine runs before others get their turn, in ns.
    pub slice: i64,
    /// The signal that asks a thread to give its P away; 0: none.
    pub preempt_signal: i32,
    /// No M takes a P from a goroutine that keeps it.
    pub cooperative: bool,
    /// What a thread of the library's own runs, with its M: `core::g0::thread_main`. The code that
    /// starts threads is called by that function in turn, so it is passed in.
    pub thread_main: extern "C" fn(*mut c_void) -> *mut c_void,
    /// Held while a P is taken from an M: see [`preempt`].
    pub taking: SpinLock,
    pub warned_thread: AtomicBool,
    pub warned_stack: AtomicBool,

    /// A goroutine that is back from a system call may wait in a node's queue.
    pub back_from_call: AtomicBool,
    pub created_outside: AtomicU64,
    pub next_id: AtomicU64,
    pub next_node: AtomicUsize,
    pub next_root: AtomicUsize,
    /// See [`Runtime::theft_time`].
    pub theft_time: AtomicI64,
    /// What the end of a goroutine is to be told to: bits of [`ends`].
    pub ends: AtomicU32,
    pub drained: AtomicU32,

    /// An epoll instance has been made, and the lock of those who make one.
    pub polls: AtomicBool,
    pub making_polls: SpinLock,
    pub watch: SpinLock,
    pub watcher: AtomicPtr<M>,
    pub watching_until: AtomicI64,
    /// The copies of the C++ runtime.
    pub copies: cxa::Copies,
    pub host_mask: SignalMask,
    /// Threads and memory are bound to nodes. seed: N1, N9
    pub binds: bool,
    /// The CPUs that the thread had that made the runtime.
    pub host_cpus: CpuSet,
}

const fn any_thread_may_use<T: Sync>() {}
const _: () = any_thread_may_use::<Runtime>();

/// The M's of a runtime.
#[derive(Default)]
pub struct Ms {
    /// Boxed: others hold their addresses while the list grows.
    #[allow(clippy::vec_box)]
    pub all: Vec<Box<M>>,
    /// Those without a thread.
    pub free: Vec<MRef>,
    /// Those whose threads have left and are to be joined.
    pub left: Vec<MRef>,
}

// SAFETY: an M may be used by any thread, under the rules that its fields state.
unsafe impl Send for Ms {}

/// The runtime; the caller knows that there is one.
///
/// Not `unsafe`, because the fact is one for whole rooms, and each call would repeat it. All code
/// of the rooms runs on an M's thread, on a thread that the runtime joins before it ends
/// (sysmon and its kin), or on a plain thread that has [`Inside`]; and [`shutdown`] takes the
/// runtime away only when there are none of the first two left, and the third has left. What
/// may run without any of them asks [`try_rt`]. Tests without `--release` check that there is
/// one.
#[inline(always)]
pub fn rt() -> &'static Runtime {
    let rt = RUNTIME.load(Ordering::Relaxed);
    debug_assert!(!rt.is_null());
    // SAFETY: it lives until `shutdown`, which waits for everybody who uses it.
    unsafe { &*rt }
}

/// The runtime, if there is one.
#[inline(always)]
pub fn try_rt() -> Option<&'static Runtime> {
    // SAFETY: null or alive, as in `rt`; Acquire: pairs with the Release in `init`.
    unsafe { RUNTIME.load(Ordering::Acquire).as_ref() }
}

/// Whether there is a runtime and this is its number.
pub fn is_number(number: u32) -> bool {
    try_rt().is_some() && NUMBER.load(Ordering::Relaxed) == number
}

/// While a plain thread has it the runtime is not ended.
pub struct Inside(());

impl Inside {
    /// One that was forgotten.
    ///
    /// # Safety
    /// It was, and is taken up once.
    pub unsafe fn again() -> Inside {
        Inside(())
    }

    /// The same without making one: `None` if there is no runtime.
    pub fn enter_if_there() -> Option<Inside> {
        loop {
            if let Some(inside) = Inside::try_enter().or_else(Inside::enter_by_the_door) {
                return Some(inside);
            }
            if !CHANGING.load(Ordering::SeqCst) && try_rt().is_none() {
                return None;
            }
        }
    }

    /// Waits until a runtime that is being made is there, and one that is being ended is gone, or goes on
    /// because there is a goroutine again, and then comes in, if there is one. Who waits is not inside
    /// meanwhile, nor in and out: a shutdown waits until no thread is inside, and would meet one that had lost
    /// its CPU in between again and again.
    pub fn enter_by_the_door() -> Option<Inside> {
        AT_THE_DOOR.fetch_add(1, Ordering::SeqCst);
        let mut round = 0;
        // Acquire: pairs with the stores of whoever makes or ends the runtime.
        while CHANGING.load(Ordering::Acquire) {
            round += 1;
            spin::backoff(round);
        }
        let inside = Inside::try_enter();
        AT_THE_DOOR.fetch_sub(1, Ordering::SeqCst);
        inside
    }

    /// For a thread outside that is about to close the door: those who have waited there come in first. One
    /// runtime after the other might be ended before they wake up.
    pub fn let_in() {
        let mut round = 0;
        while AT_THE_DOOR.load(Ordering::SeqCst) > 0 {
            round += 1;
            spin::backoff(round);
        }
    }

    /// The same without waiting: `None` also while it is being ended.
    pub fn try_enter() -> Option<Inside> {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        if !CHANGING.load(Ordering::SeqCst) && try_rt().is_some() {
            return Some(Inside(()));
        }
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        None
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Runtime {
    /// The calling thread, which may have been started by one that is bound to a node,
    /// may run where the process may.
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

    /// P number `id`, which has been made.
    #[inline(always)]
    pub fn p(&self, id: usize) -> PRef {
        // SAFETY: made before its number gets around, and stays.
        unsafe { PRef::from_ptr(self.all_ps[id].load(Ordering::Acquire)) }
    }

    pub fn p_if_made(&self, id: usize) -> Option<PRef> {
        (id < self.made_ps.load(Ordering::Acquire)).then(|| self.p(id))
    }

    /// Those that GOMAXPROCS allows.
    pub fn ps(&self) -> impl Iterator<Item = PRef> + '_ {
        (0..self.procs()).map(|id| self.p(id))
    }

    /// Those too that GOMAXPROCS doesn't allow any more.
    pub fn all_made_ps(&self) -> impl Iterator<Item = PRef> + '_ {
        (0..self.made_ps.load(Ordering::Acquire)).map(|id| self.p(id))
    }

    /// P number `id`, made if it isn't yet, for a total of `count`. It keeps the
    /// node that it was made for. `None`: there is no memory.
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

    /// Takes this P out of its node's set of idle ones; false: it isn't in there, or another thread
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

    /// The nodes, this one first and then from near to far. seed: N4
    pub fn nodes_from(&self, node: usize) -> impl Iterator<Item = &Node> {
        let own = &self.nodes[node];
        iter::once(own).chain(own.neighbours.iter().map(|&n| &self.nodes[n]))
    }

    /// A node with P's, each in turn: for what comes from outside.
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

    /// For how long a node may leave waiting what was spawned for it before another node takes it, in
    /// ns: as long as it takes to wake a thread, which is the most of what a theft costs.
    pub fn theft_time(&self) -> i64 {
        self.theft_time.load(Ordering::Relaxed)
    }

    /// A thread has run so long after it was notified, in ns.
    pub fn learn_theft_time(&self, took: i64) {
        let before = self.theft_time.load(Ordering::Relaxed);
        let now = (before * 7 + 2 * took) / 8;
        self.theft_time.store(now.clamp(SHORTEST_THEFT, LONGEST_THEFT), Ordering::Relaxed);
    }

    /// Counts one more thread of the library's own, unless the limit is reached. Above the
    /// limit one thread is allowed that is not locked: locked ones neither run others nor fire timers.
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

    /// Whether the limit allows one more worker where there are `workers`: they have at
    /// most a quarter of it, and leave room for an M for each P and each locked one.
    pub fn has_room_for_worker(&self, workers: usize) -> bool {
        let max = self.max_ms.load(Ordering::Relaxed);
        let ms = self.own_ms().max(self.procs() + self.locked.taken() + 1);
        workers < max / 4 && workers + ms < max
    }

    /// How many M's have a thread of the library's own.
    pub fn own_ms(&self) -> usize {
        self.own_ms.load(Ordering::Relaxed)
    }

    /// Whether an M with a thread of the library's own is idle.
    pub fn has_idle_own_m(&self) -> bool {
        self.nodes.iter().any(|n| n.has_idle_m_that(|m| !m.is_runner()))
    }

    /// How many threads may be locked: all but one.
    pub fn lockable_threads(&self) -> usize {
        self.max_ms.load(Ordering::Relaxed).saturating_sub(1).max(1)
    }

    /// Work waits because of the limit of threads: counts it, and says it once.
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

    /// Sets the limit of threads and gives the former one; `n <= 0` only asks.
    pub fn set_max_threads(&self, n: i32) -> i32 {
        let before = self.max_ms.load(Ordering::Relaxed);
        if n > 0 {
            self.max_ms.store(n as usize, Ordering::Relaxed);
            self.ms_wanted.store(true, Ordering::Release);
            self.sysmon.wake();
        }
        before.min(i32::MAX as usize) as i32
    }

    /// An M without a thread yet, counted in before. `None`: there is no memory. The lists
    /// that it may get into have room for all M's beforehand.
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

    /// An M whose thread could not be started.
    pub fn forget_m(&self, m: MRef) {
        self.ms.with(|ms| ms.free.push(m));
        self.own_ms.fetch_sub(1, Ordering::Relaxed);
        self.m_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// An M for a thread that `gs_run` brings; it is not limited. It counts as in
    /// a system call until its goroutine can be found by others. `None`: there is no memory.
    pub fn add_runner(&self) -> Option<MRef> {
        let m = self.add_m(self.any_node())?;
        self.runners.fetch_add(1, Ordering::SeqCst);
        m.runner.store(true, Ordering::Relaxed);
        m.in_syscall.store(true, Ordering::Relaxed);
        // Release: whoever counts it in sees that.
        self.m_count.fetch_add(1, Ordering::Release);
        Some(m)
    }

    /// The thread goes back to its owner. It uses the runtime no more.
    pub fn runner_leaves(&self, m: MRef) {
        m.runner.store(false, Ordering::Relaxed);
        m.root.set(ptr::null());
        m.attachment.set(ptr::null());
        m.by_g0.set(m.by_g0.get() & !crate::sched::who::m::ATTACHED);
        self.ms.with(|ms| ms.free.push(m));
        self.m_count.fetch_sub(1, Ordering::Relaxed);
        self.runners.fetch_sub(1, Ordering::SeqCst);
    }

    /// A thread of ours is about to end.
    pub fn thread_leaves(&self, m: MRef) {
        self.ms.with(|ms| ms.left.push(m));
        self.own_ms.fetch_sub(1, Ordering::Relaxed);
        self.m_count.fetch_sub(1, Ordering::Release);
    }

    /// Joins those threads that have left and have ended, so that their M's can be used
    /// again. A thread may take long to end: it runs destructors of the user's.
    pub fn reap(&self) {
        // Each one once: those that still run go to the end of the list.
        for _ in 0..self.ms.with(|ms| ms.left.len()) {
            let first = |left: &mut Vec<MRef>| (!left.is_empty()).then(|| left.remove(0));
            let Some(m) = self.ms.with(|ms| first(&mut ms.left)) else { return };
            let running = m.thread.take().and_then(|t| t.try_join().err());
            let has_ended = running.is_none();
            m.thread.set(running);
            self.ms.with(|ms| if has_ended { &mut ms.free } else { &mut ms.left }.push(m));
        }
    }

    /// Whether an M is about to go to sleep, or has just woken.
    pub fn is_any_m_between(&self) -> bool {
        // Acquire: pairs with the Release after it has gone into its pool.
        self.between.load(Ordering::Acquire) != 0
    }

    /// Whether threads have left that are not joined yet.
    pub fn has_left_threads(&self) -> bool {
        self.ms.with(|ms| !ms.left.is_empty())
    }

    /// How many threads run goroutines, or could.
    pub fn threads(&self) -> usize {
        self.m_count.load(Ordering::Relaxed)
    }

    /// How often goroutines have been switched to.
    pub fn switches(&self) -> u64 {
        self.ms.with(|ms| ms.all.iter().map(|m| m.switches.load(Ordering::Relaxed)).sum())
    }

    /// The system gives no thread: work waits for a thread that is there.
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

    /// `n` ids that are not in use.
    pub fn take_ids(&self, n: u64) -> u64 {
        self.next_id.fetch_add(n, Ordering::Relaxed)
    }

    /// How many there are, those that have not run yet included. 0 is exact.
    pub fn goroutines(&self) -> usize {
        let sum = |f: fn(&P) -> &AtomicU64| {
            self.all_made_ps().map(|p| f(&p).load(Ordering::Acquire)).fold(0, u64::wrapping_add)
        };
        // Ended first: whatever is counted as ended was created before.
        let ended = sum(|p| &p.ended);
        let created =
            sum(|p| &p.created).wrapping_add(self.created_outside.load(Ordering::Acquire));
        created.wrapping_sub(ended) as usize
    }

    /// Whether the end of a goroutine is waited for: then it calls `one_ended`.
    #[inline(always)]
    pub fn watches_ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed) != 0
    }

    /// Tasks wait for a stack: from now on goroutines that end let them try.
    pub fn watch_ends_for_stacks(&self) {
        self.ends.fetch_or(ends::STACKS, Ordering::SeqCst);
    }

    /// Those M's of which it is true.
    pub fn ms_that(&self, is_true: impl Fn(&M) -> bool) -> Vec<MRef> {
        // SAFETY: M's stay mapped.
        let found = |m: &M| unsafe { MRef::from_ptr(m) };
        self.ms.with(|Ms { all, .. }| {
            all.iter().map(|m| &**m).filter(|m| is_true(m)).map(found).collect()
        })
    }

    /// Visits every M.
    pub fn for_each_m(&self, mut f: impl FnMut(MRef)) {
        self.ms.with(|Ms { all, .. }| {
            for m in all.iter() {
                // SAFETY: M's stay mapped until shutdown.
                f(unsafe { MRef::from_ptr(&raw const **m) });
            }
        });
    }

    /// Every descriptor of a goroutine that is there.
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
