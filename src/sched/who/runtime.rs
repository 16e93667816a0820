//! The runtime: everything that is there once, from `gs_init` to `gs_shutdown`.

use super::cxa;
use super::g::{G, GRef, Status};
use super::m::{self, M, MRef};
use super::node::{LONGEST_THEFT, Node, priority};
use super::p::{P, PRef, status};
use super::task::Task;
use crate::arch::{self, FpControl, sanitizer};
use crate::numa::Topology;
use crate::os::cpu::{self, CpuSet};
use crate::os::thread::{NoCancel, SignalMask, Thread};
use crate::os::{self, futex, heap, log, mem, signal, spin::SpinLock, thread, time};
use crate::sched::core::aside::Aside;
use crate::sched::core::boundary;
use crate::sched::core::gang::{self, Gangs};
use crate::sched::core::group;
use crate::sched::core::hooks;
use crate::sched::core::netpoll;
use crate::sched::core::preempt::{self, claim};
use crate::sched::core::start;
use crate::sched::core::switch;
use crate::sched::core::template::Template;
use crate::sched::core::timers;
use crate::sched::core::world::World;
use crate::sched::life::embed;
use crate::sched::life::keys;
use crate::sched::life::lock_thread::Slots;
use crate::sched::watch::deadlock::{self, Counted};
use crate::sched::watch::inspector::Inspector;
use crate::sched::watch::sysmon::Sysmon;
use crate::sched::watch::workers::Workers;
use crate::sched::words::clock;
use crate::sched::words::config::{Config, Request};
use crate::sched::words::debug::Debug;
use crate::sched::words::idle::Idle;
use crate::sched::words::limits::{PROCS as MAX, RING as CAPACITY};
use crate::sched::words::pool::{self, CHUNK};
use crate::stack::{self, Class};
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence,
    fence,
};
use core::{iter, ptr};

static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(ptr::null_mut());

/// The least [`Runtime::theft_time`], in ns; the most is [`LONGEST_THEFT`]. To wake a thread takes 16 to 27 us here, and what the
/// goroutine then misses in its caches about as long; a busy or emulated machine takes far longer.
const SHORTEST_THEFT: i64 = 50_000;

/// Held while a runtime is made or ended.
static LIFE: SpinLock = SpinLock::new();
/// A runtime is being made or ended: plain threads wait until it is there whole,
/// or gone.
static CHANGING: AtomicBool = AtomicBool::new(false);
/// Plain threads that use the runtime right now.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Chunks of descriptors that outlive their runtime, because somebody has a
/// reference to one.
static ORPHANS: Orphans = Orphans {
    count: AtomicUsize::new(0),
    lock: SpinLock::new(),
    chunks: UnsafeCell::new(Vec::new()),
};

/// Runtimes there have been in this process and, before a fork, in its parents.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Bits of [`Runtime::ends`].
mod ends {
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
    all_ps: Vec<AtomicPtr<P>>,
    procs: AtomicUsize,
    made_ps: AtomicUsize,
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

    ms: SpinLock,
    /// Boxed: others hold their addresses while the list grows.
    #[allow(clippy::vec_box)]
    all_ms: UnsafeCell<Vec<Box<M>>>,
    free_ms: UnsafeCell<Vec<MRef>>,
    /// Threads that have left and are to be joined.
    left_ms: UnsafeCell<Vec<MRef>>,
    /// M's there are, borrowed threads included.
    pub m_count: AtomicUsize,
    /// M's with a thread of the library's own: those that `max_ms` limits.
    own_ms: AtomicUsize,
    /// Those that are about to go to sleep or to take a P: see [`M::set_between`].
    pub between: AtomicUsize,
    pub locked: Slots,
    max_ms: AtomicUsize,
    /// Times that work had to wait because of the limit.
    pub thread_limit_hits: AtomicU64,
    /// A P waits for an M that sysmon is to make.
    pub ms_wanted: AtomicBool,
    /// The last time no thread could be made.
    pub lacks_threads: AtomicBool,
    runners: AtomicUsize,
    pub exiting: AtomicBool,
    /// How long a goroutine runs before others get their turn, in ns.
    pub slice: i64,
    /// The signal that asks a thread to give its P away; 0: none.
    pub preempt_signal: i32,
    /// Nobody takes a P from a goroutine that keeps it.
    pub cooperative: bool,
    /// Held while a P is taken from an M: see [`preempt`].
    pub taking: SpinLock,
    warned_thread: AtomicBool,
    warned_stack: AtomicBool,

    /// One that is back from a system call may wait in a node's queue.
    pub back_from_call: AtomicBool,
    pub created_outside: AtomicU64,
    next_id: AtomicU64,
    next_node: AtomicUsize,
    next_root: AtomicUsize,
    /// See [`Runtime::theft_time`].
    theft_time: AtomicI64,
    /// What the end of a goroutine is to be told to: bits of [`ends`].
    ends: AtomicU32,
    drained: AtomicU32,

    /// An epoll instance has been made, and the lock of those who make one.
    pub polls: AtomicBool,
    pub making_polls: SpinLock,
    watch: SpinLock,
    watcher: AtomicPtr<M>,
    watching_until: AtomicI64,
    /// The copies of the C++ runtime.
    pub copies: cxa::Copies,
    host_mask: SignalMask,
    /// Threads and memory are bound to nodes. seed: N1, N9
    pub binds: bool,
    /// The CPUs that the thread had that made the runtime.
    host_cpus: CpuSet,
}

// SAFETY: the cells are only used with `ms` held.
unsafe impl Sync for Runtime {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Runtime {}

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
    /// There is a runtime: it is made, with the defaults, if there was none. `-ENOMEM`,
    /// `-EAGAIN`: the system gives no memory or thread for that.
    pub fn enter() -> Result<Inside, i32> {
        loop {
            if let Some(inside) = Inside::try_enter() {
                return Ok(inside);
            }
            init_default()?;
        }
    }

    /// Enters for a caller that may be a goroutine, which is inside already: `None`.
    /// Fails as [`Inside::enter`].
    pub fn enter_from_outside() -> Result<Option<Inside>, i32> {
        if switch::with_p().is_some() { Ok(None) } else { Inside::enter().map(Some) }
    }

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
            if let Some(inside) = Inside::try_enter() {
                return Some(inside);
            }
            if !CHANGING.load(Ordering::SeqCst) && try_rt().is_none() {
                return None;
            }
            // The shutdown ends it, or gives up because there is a goroutine again.
            LIFE.with(|| {});
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

/// Makes the runtime with the defaults, if there is none. Fails with `-ENOMEM` or
/// `-EAGAIN`.
#[cold]
fn init_default() -> Result<(), i32> {
    let e = match init(&Request::default()) {
        // Of what the environment says, only the topology can be refused.
        Err(e) if e == -libc::EINVAL => {
            log::say(format_args!("gosched: GOSCHED_TOPOLOGY is not valid, so it is ignored"));
            init(&Request { topology: Some("flat"), ..Request::default() })
        }
        e => e,
    };
    if e == Err(-libc::EBUSY) { Ok(()) } else { e }
}

/// Once, when the library is loaded: a fork from now on, of a thread beside the first `init`
/// too, finds no lock taken in the child.
pub fn on_load() {
    thread::at_fork(before_fork, after_fork, in_child);
}

/// Makes the runtime. `-EBUSY`: there is one; `-EINVAL`, `-ENOMEM`, `-EAGAIN`.
pub fn init(request: &Request) -> Result<(), i32> {
    if try_rt().is_some() {
        return Err(-libc::EBUSY);
    }
    // It reads files, with LIFE held.
    let _lives = NoCancel::new();
    // It waits for the loader's lock, so not with ours held.
    let copies = cxa::Copies::new();
    LIFE.with(|| {
        if try_rt().is_some() {
            return Err(-libc::EBUSY);
        }
        let config = request.resolve()?;
        clock::set(time::now());
        signal::on_fault(on_fault);
        // Now, with the lock held: a fork beside the first question would leave it half
        // answered in the child.
        cpu::count();
        if !heap::has_room(Runtime::size(&config)) {
            return Err(-libc::ENOMEM);
        }
        let rt = Box::into_raw(Box::new(Runtime::new(config, copies)));
        CHANGING.store(true, Ordering::SeqCst);
        // Release: pairs with the Acquire in `try_rt`.
        RUNTIME.store(rt, Ordering::Release);
        // SAFETY: just made.
        let started = unsafe { (*rt).start() };
        if started.is_err() {
            RUNTIME.store(ptr::null_mut(), Ordering::Release);
            // SAFETY: plain threads have been kept out, and it has no thread of its own.
            unsafe { Runtime::free(&*rt) };
        }
        CHANGING.store(false, Ordering::SeqCst);
        started
    })
}

/// Waits until every goroutine has ended, then ends all threads and frees
/// everything. `-ETIMEDOUT` (or `-EAGAIN`): goroutines are left, and nothing has
/// changed. `-EDEADLK`: called by a goroutine.
pub fn shutdown(deadline: i64) -> i32 {
    if m::current().is_some() {
        return -libc::EDEADLK;
    }
    // It joins threads, and is counted as inside.
    let _lives = NoCancel::new();
    loop {
        let Some(inside) = Inside::enter_if_there() else { return 0 };
        let e = rt().drain(deadline);
        drop(inside);
        if e != 0 {
            return e;
        }
        LIFE.lock();
        let Some(rt) = try_rt() else {
            LIFE.unlock();
            return 0;
        };
        // Another shutdown, which gives the lock up while it waits: this one waits at the door.
        if CHANGING.swap(true, Ordering::SeqCst) {
            LIFE.unlock();
            thread::yield_now();
            continue;
        }
        if !rt.all_have_left() {
            CHANGING.store(false, Ordering::SeqCst);
            LIFE.unlock();
            continue;
        }
        hooks::shuts_down();
        let threads = rt.end_threads();
        RUNTIME.store(ptr::null_mut(), Ordering::SeqCst);
        // SAFETY: no thread of it uses it any more, and plain ones see none.
        unsafe { Runtime::free(rt) };
        // After the chunks that stay are in `ORPHANS`: a reference that is given back now
        // belongs to one of those.
        CHANGING.store(false, Ordering::SeqCst);
        LIFE.unlock();
        // Without the lock: a destructor of a thread-specific value may call the library.
        threads.into_iter().for_each(Thread::join);
        return 0;
    }
}

impl Runtime {
    /// Bytes that [`Runtime::new`] allocates, or more.
    fn size(config: &Config) -> usize {
        let nodes = config.topology.nodes.len();
        let cpus: usize = config.topology.nodes.iter().map(|node| node.cpus.len()).sum();
        // Of each node a list of P's, of its CPUs, its neighbours and their distances.
        let node = size_of::<Node>() + 8 * (MAX + 8 * nodes + cpus);
        size_of::<Runtime>() + 8 * MAX + nodes * node
    }

    fn new(config: Config, copies: cxa::Copies) -> Runtime {
        let debug = Debug::from_env();
        sanitizer::look_for(os::symbol);
        stack::configure(debug.mprotect, debug.guard_budget);
        let mut topology = config.topology;
        if !debug.no_shuffle {
            topology.reorder(&shuffled(topology.nodes.len()));
        }
        let binds = topology.is_real && topology.nodes.len() > 1 && config.bind;
        let nodes = topology.nodes.iter().enumerate().map(|(n, node)| {
            let memory = binds.then_some(node.os_index);
            Node::new(n, topology.by_distance(n), &node.cpus, memory)
        });
        let nodes = nodes.collect();
        Runtime {
            number: NUMBER.fetch_add(1, Ordering::Relaxed) + 1,
            topology,
            nodes,
            all_ps: (0..MAX).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            procs: AtomicUsize::new(config.procs),
            made_ps: AtomicUsize::new(0),
            idle: Idle::new(),
            world: World::new(),
            sysmon: Sysmon::new(),
            workers: Workers::new(),
            template: Template::new(),
            inspector: Inspector::new(),
            aside: Aside::new(),
            gangs: Gangs::new(),
            debug,
            ring_capacity: if debug.tiny_queues { 4 } else { CAPACITY },
            fp: FpControl::current(),
            stack_class: config.stack_class,
            ms: SpinLock::new(),
            all_ms: UnsafeCell::default(),
            free_ms: UnsafeCell::default(),
            left_ms: UnsafeCell::default(),
            m_count: AtomicUsize::new(0),
            own_ms: AtomicUsize::new(0),
            between: AtomicUsize::new(0),
            locked: Slots::new(),
            max_ms: AtomicUsize::new(config.max_threads),
            thread_limit_hits: AtomicU64::new(0),
            ms_wanted: AtomicBool::new(false),
            lacks_threads: AtomicBool::new(false),
            runners: AtomicUsize::new(0),
            exiting: AtomicBool::new(false),
            slice: config.slice,
            preempt_signal: config.preempt_signal,
            cooperative: config.cooperative,
            taking: SpinLock::new(),
            warned_thread: AtomicBool::new(false),
            warned_stack: AtomicBool::new(false),
            back_from_call: AtomicBool::new(false),
            created_outside: AtomicU64::new(0),
            next_id: AtomicU64::new(1),
            next_node: AtomicUsize::new(0),
            next_root: AtomicUsize::new(0),
            theft_time: AtomicI64::new(SHORTEST_THEFT),
            ends: AtomicU32::new(0),
            drained: AtomicU32::new(0),
            polls: AtomicBool::new(false),
            making_polls: SpinLock::new(),
            watch: SpinLock::new(),
            watcher: AtomicPtr::new(ptr::null_mut()),
            watching_until: AtomicI64::new(i64::MAX),
            copies,
            host_mask: SignalMask::current(),
            binds,
            host_cpus: CpuSet::new(&cpu::affinity()),
        }
    }

    /// The calling thread, which may have been started by one that is bound to a node,
    /// may run where the process may.
    pub fn unbind_thread(&self) {
        if self.binds {
            self.host_cpus.bind();
        }
    }

    // P's

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

    /// The nodes, this one first and then from near to far. seed: N4
    pub fn nodes_from(&self, node: usize) -> impl Iterator<Item = &Node> {
        let own = &self.nodes[node];
        iter::once(own).chain(own.neighbours.iter().map(|&n| &self.nodes[n]))
    }

    /// Puts a task into the queue of a node, or of the nearest that has P's, and
    /// announces it.
    pub fn push(&self, node: usize, task: Task, priority: i8) {
        if priority == priority::MEMBER {
            return gang::push(self, task);
        }
        let taken = self.push_quietly(node, task, priority);
        switch::work_added(None, taken);
    }

    /// The same without announcing it; gives the node that has it.
    pub fn push_quietly(&self, node: usize, task: Task, priority: i8) -> usize {
        if priority == priority::MEMBER {
            gang::push_quietly(self, task);
            return node;
        }
        let wanted = &self.nodes[node];
        let mut candidates = iter::once(&node).chain(&wanted.neighbours).cycle();
        // Ends: P 0's node is always open.
        *candidates.find(|&&n| self.nodes[n].push(task, priority)).unwrap_or(&node)
    }

    /// Its P's and its first thread.
    fn start(&self) -> Result<(), i32> {
        preempt::set_up(self);
        self.make_ps()?;
        self.sysmon.start()
    }

    /// The first P's, all idle.
    fn make_ps(&self) -> Result<(), i32> {
        let n = self.procs();
        for id in 0..n {
            let p = self.make_p(id, n).ok_or(-libc::ENOMEM)?;
            p.alone.set(n == 1);
            p.set_status(status::IDLE);
        }
        self.set_proc_count(n);
        for p in self.ps() {
            switch::make_idle(self, p);
        }
        Ok(())
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

    // M's

    fn with_ms<R>(
        &self,
        f: impl FnOnce(&mut Vec<Box<M>>, &mut Vec<MRef>, &mut Vec<MRef>) -> R,
    ) -> R {
        // SAFETY: the lock is held.
        self.ms.with(|| unsafe {
            f(&mut *self.all_ms.get(), &mut *self.free_ms.get(), &mut *self.left_ms.get())
        })
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
        self.with_ms(|all, free, left| {
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
        self.with_ms(|_, free, _| free.push(m));
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
        self.with_ms(|_, free, _| free.push(m));
        self.m_count.fetch_sub(1, Ordering::Relaxed);
        self.runners.fetch_sub(1, Ordering::SeqCst);
    }

    /// A thread of ours is about to end.
    pub fn thread_leaves(&self, m: MRef) {
        self.with_ms(|_, _, left| left.push(m));
        self.own_ms.fetch_sub(1, Ordering::Relaxed);
        self.m_count.fetch_sub(1, Ordering::Release);
    }

    /// Joins those threads that have left and have ended, so that their M's can be used
    /// again. A thread may take long to end: it runs destructors of the user's.
    pub fn reap(&self) {
        // Each one once: those that still run go to the end of the list.
        for _ in 0..self.with_ms(|_, _, left| left.len()) {
            let first = |left: &mut Vec<MRef>| (!left.is_empty()).then(|| left.remove(0));
            let Some(m) = self.with_ms(|_, _, left| first(left)) else { return };
            let running = m.thread.take().and_then(|t| t.try_join().err());
            let has_ended = running.is_none();
            m.thread.set(running);
            self.with_ms(|_, free, left| if has_ended { free } else { left }.push(m));
        }
    }

    /// Threads that can't wake a goroutine by themselves: ours, sysmon, the template thread,
    /// the inspector, and workers without a job.
    pub fn threads_that_cannot_wake(&self) -> usize {
        // Acquire: pairs with the Release in `add_runner`.
        let own =
            1 + usize::from(self.template.is_there()) + usize::from(self.inspector.is_there());
        self.m_count.load(Ordering::Acquire) + own + self.workers.asleep()
    }

    /// Whether an M without a P may come back with a goroutine, or its thread go
    /// back to `gs_run`'s caller.
    pub fn any_m_may_bring_work(&self) -> bool {
        // Before the M's: one that is woken has been counted out before.
        let blocked = deadlock::blocked_calls();
        // Acquire: pairs with the Release after the goroutine was queued.
        let in_call = |m: &M| m.in_syscall.load(Ordering::Acquire);
        let may = |m: &M| {
            m.claim.load(Ordering::Acquire) != claim::NONE
                || !m.pinned.is_empty()
                || (m.runner.load(Ordering::Relaxed) && m.root_done.load(Ordering::Relaxed))
        };
        self.with_ms(|all, _, _| {
            all.iter().filter(|m| in_call(m)).count() > blocked || all.iter().any(|m| may(m))
        })
    }

    /// Whether an M is about to go to sleep, or has just woken.
    pub fn is_any_m_between(&self) -> bool {
        // Acquire: pairs with the Release after it has gone into its pool.
        self.between.load(Ordering::Acquire) != 0
    }

    /// Whether threads have left that nobody has joined yet.
    pub fn has_left_threads(&self) -> bool {
        self.with_ms(|_, _, left| !left.is_empty())
    }

    /// How many threads run goroutines, or could.
    pub fn threads(&self) -> usize {
        self.m_count.load(Ordering::Relaxed)
    }

    /// How often goroutines have been switched to.
    pub fn switches(&self) -> u64 {
        self.with_ms(|all, _, _| all.iter().map(|m| m.switches.load(Ordering::Relaxed)).sum())
    }

    /// The system gives no thread: work waits for one that is there.
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

    // Goroutines

    /// `n` ids that nobody has.
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

    /// A goroutine that this P runs ends, and gives its stack back soon.
    #[cold]
    pub fn one_ended(&self, p: PRef) {
        let told = self.ends.load(Ordering::Relaxed);
        if told & ends::STACKS != 0 {
            self.aside.stack_is_free(p);
            if !self.aside.lacks_stacks() {
                self.ends.fetch_and(!ends::STACKS, Ordering::SeqCst);
            }
            if self.aside.lacks_stacks() {
                self.watch_ends_for_stacks();
            }
        }
        if told & ends::DRAIN != 0 && self.goroutines() == 0 {
            self.drained.fetch_add(1, Ordering::Release);
            futex::wake(&self.drained, i32::MAX);
        }
    }

    /// With the door closed and `LIFE` held: waits until no plain thread is inside. False: a
    /// goroutine has been spawned in the last moment, and those inside may wait
    /// for somebody outside.
    fn all_have_left(&self) -> bool {
        while self.goroutines() == 0 {
            if INSIDE.load(Ordering::SeqCst) == 0 && self.runners.load(Ordering::SeqCst) == 0 {
                return self.goroutines() == 0;
            }
            // A thread that is inside may be about to fork, which takes the lock. Nobody
            // ends the runtime meanwhile, because nobody else comes in.
            LIFE.unlock();
            thread::yield_now();
            LIFE.lock();
        }
        false
    }

    /// Waits until no goroutine is left.
    fn drain(&self, deadline: i64) -> i32 {
        self.ends.fetch_or(ends::DRAIN, Ordering::SeqCst);
        let counted = if deadline == -1 { deadlock::thread_blocks() } else { Counted::Not };
        let result = loop {
            let seen = self.drained.load(Ordering::Acquire);
            if self.goroutines() == 0 {
                break 0;
            }
            if deadline == 0 {
                break -libc::EAGAIN;
            }
            // A goroutine that ended before it could see the flag tells nobody.
            let recheck = time::now() + 10_000_000;
            if deadline != -1 && time::now() >= deadline {
                break -libc::ETIMEDOUT;
            }
            let until = if deadline == -1 { recheck } else { recheck.min(deadline) };
            futex::wait(&self.drained, seen, until);
        };
        deadlock::thread_wakes(counted);
        if result != 0 {
            self.ends.fetch_and(!ends::DRAIN, Ordering::SeqCst);
        }
        result
    }

    /// Those M's of which it is true.
    pub fn ms_that(&self, is_true: impl Fn(&M) -> bool) -> Vec<MRef> {
        // SAFETY: M's stay mapped.
        let found = |m: &M| unsafe { MRef::from_ptr(m) };
        self.with_ms(|all, _, _| {
            all.iter().map(|m| &**m).filter(|m| is_true(m)).map(found).collect()
        })
    }

    /// Visits every M.
    pub fn for_each_m(&self, mut f: impl FnMut(MRef)) {
        self.with_ms(|all, _, _| {
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

    // Timers

    /// An M is about to sleep: until when, so that timers of idle P's are seen
    /// to. One M at a time does that; -1 for the others.
    pub fn watch(&self, m: MRef) -> i64 {
        self.watch.with(|| {
            let next = timers::next_of_idle_ps();
            if next == i64::MAX || next >= self.watching_until.load(Ordering::Relaxed) {
                return -1;
            }
            self.watcher.store(m.as_ptr(), Ordering::Relaxed);
            self.watching_until.store(next, Ordering::Relaxed);
            next
        })
    }

    /// The M no longer sleeps.
    pub fn unwatch(&self, m: MRef) {
        if self.watcher.load(Ordering::Relaxed) != m.as_ptr() {
            return;
        }
        self.watch.with(|| {
            if self.watcher.load(Ordering::Relaxed) == m.as_ptr() {
                self.watcher.store(ptr::null_mut(), Ordering::Relaxed);
                self.watching_until.store(i64::MAX, Ordering::Relaxed);
            }
        });
    }

    /// Whether an M sleeps until then, or until before.
    pub fn is_watched_until(&self, when: i64) -> bool {
        when >= self.watching_until.load(Ordering::Relaxed)
    }

    /// Whether a timer of an idle P runs and no M sleeps until it is due.
    pub fn lacks_watcher(&self) -> bool {
        timers::next_of_idle_ps() != i64::MAX && self.watcher.load(Ordering::Relaxed).is_null()
    }

    /// A timer was added to a P that the caller doesn't hold.
    pub fn timer_added(&self, when: i64) {
        if when == i64::MAX {
            return;
        }
        let watcher = self.watch.with(|| {
            (when < self.watching_until.load(Ordering::Relaxed))
                .then(|| self.watcher.load(Ordering::Relaxed))
        });
        match watcher {
            None => {}
            // SAFETY: M's stay mapped.
            Some(m) if !m.is_null() => start::nudge(unsafe { MRef::from_ptr(m) }),
            Some(_) => {
                if let Some(one) = self.idle.work_added() {
                    start::start_one(one, None, self.any_node());
                }
            }
        }
    }

    // The end

    /// Ends every thread; there are no goroutines. Gives those that don't use the runtime any
    /// more but may still run destructors of the user's thread-specific values.
    fn end_threads(&self) -> Vec<Thread> {
        self.workers.stop();
        self.exiting.store(true, Ordering::SeqCst);
        let services = [self.sysmon.end(), self.template.end()];
        // One that is starting another right now is counted already.
        while self.m_count.load(Ordering::Acquire) != 0 {
            self.with_ms(|all, _, _| all.iter().for_each(|m| m.notify()));
            thread::yield_now();
        }
        let left = self.with_ms(|_, _, left| core::mem::take(left));
        let ms = left.into_iter().filter_map(|m| m.thread.take());
        // Last: sysmon and the M's ask it, and wait for an answer.
        let inspector = self.inspector.end();
        services.into_iter().flatten().chain(inspector).chain(ms).collect()
    }

    /// # Safety
    /// Nobody uses it any more; it was made by `Box::into_raw`.
    unsafe fn free(rt: &'static Runtime) {
        // SAFETY: the caller says that it came from `Box::into_raw` and that no thread uses it.
        let mut rt = unsafe { Box::from_raw(ptr::from_ref(rt).cast_mut()) };
        netpoll::close_all(&rt);
        netpoll::ended();
        hooks::ended();
        group::ended();
        for p in rt.all_made_ps() {
            p.timers.close(true, None);
            // SAFETY: placed there in `make_p`, and nobody has it any more.
            unsafe { mem::drop_placed(p.as_ptr()) };
        }
        for node in rt.nodes.drain(..) {
            ORPHANS.add(node.gs.end(|g| g.refs.load(Ordering::Acquire) > 0));
        }
    }
}

/// Numbers below `n` in a random order, another one in each process. seed: N10
fn shuffled(n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut x = (time::now() as u64) ^ (u64::from(std::process::id()) << 32);
    for i in (1..n).rev() {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(i, (x >> 33) as usize % (i + 1));
    }
    order
}

/// See [`ORPHANS`].
struct Orphans {
    count: AtomicUsize,
    lock: SpinLock,
    chunks: UnsafeCell<Vec<usize>>,
}

// SAFETY: `chunks` is only used with `lock` held.
unsafe impl Sync for Orphans {}

impl Orphans {
    fn with<R>(&self, f: impl FnOnce(&mut Vec<usize>) -> R) -> R {
        self.lock.with(|| {
            // SAFETY: the lock is held.
            let chunks = unsafe { &mut *self.chunks.get() };
            let r = f(chunks);
            self.count.store(chunks.len(), Ordering::Release);
            r
        })
    }

    fn add(&self, chunks: Vec<usize>) {
        self.with(|all| all.extend(chunks));
    }
}

/// Whether the descriptor is the present runtime's.
pub fn owns(g: GRef) -> bool {
    let chunk = g.as_ptr() as usize & !(CHUNK - 1);
    ORPHANS.count.load(Ordering::Acquire) == 0 || !ORPHANS.with(|all| all.contains(&chunk))
}

/// Gives back the last reference to a descriptor whose runtime has ended: its chunk goes
/// when no other in it has any.
pub fn orphan_released(g: GRef) {
    let chunk = g.as_ptr() as usize & !(CHUNK - 1);
    ORPHANS.with(|all| {
        // With the lock held: another thread that gives one back unmaps the chunk.
        g.refs.store(0, Ordering::Release);
        // SAFETY: the chunk is cut into descriptors and still mapped.
        let used =
            pool::cut::<G>(chunk).any(|g| unsafe { g.as_ref() }.refs.load(Ordering::Acquire) > 0);
        if !used && let Some(at) = all.iter().position(|&c| c == chunk) {
            all.swap_remove(at);
            // SAFETY: a pool reserved it; no descriptor in it has a reference, and it is in no
            // list any more.
            unsafe { mem::release(chunk, CHUNK) };
        }
    });
}

// fork

/// While a thread forks it has the locks of both heaps, and waits for those that others
/// have. Whoever helps these others on must do without memory and threads.
static FORKING: AtomicBool = AtomicBool::new(false);
/// The thread that forks holds the lock of [`World`]. Used with `LIFE` held.
static EXCLUDES_STOP: AtomicBool = AtomicBool::new(false);
/// How long a thread that is to fork sleeps before it looks again whether the world is still
/// stopped, in ns.
const FORK_RETRY: i64 = 100_000;
/// Who has it may allocate; sysmon, and whoever forks.
static ALLOCATES: SpinLock = SpinLock::new();

/// sysmon has begun a look while somebody forked: another may begin at any moment.
static SYSMON_ABSTAINS: AtomicBool = AtomicBool::new(false);

/// Whether somebody forks, or might: no thread is made then.
pub fn is_forking() -> bool {
    FORKING.load(Ordering::SeqCst) || SYSMON_ABSTAINS.load(Ordering::Relaxed)
}

/// Whether a thread forks, which has waited for all that must not be under way then, or will.
pub fn forks() -> bool {
    FORKING.load(Ordering::SeqCst)
}

/// sysmon is about to look at everything: until [`may_fork`] nobody begins to fork.
/// False: somebody does already.
pub fn keep_from_forking() -> bool {
    let kept = ALLOCATES.try_lock();
    SYSMON_ABSTAINS.store(!kept, Ordering::Relaxed);
    kept
}

/// Ends what [`keep_from_forking`] has begun.
pub fn may_fork() {
    ALLOCATES.unlock();
}

extern "C" fn before_fork() {
    // A goroutine isn't stopped while it has the locks.
    if let Some(m) = m::current() {
        m.forks_from.set(m.outside.swap(boundary::INSIDE, Ordering::Relaxed));
        // Pairs with the `membarrier` in `preempt::take`.
        compiler_fence(Ordering::SeqCst);
    }
    let excludes = lock_life_to_fork();
    EXCLUDES_STOP.store(excludes, Ordering::Relaxed);
    // Set with LIFE held: of several threads that fork, each has it for itself.
    FORKING.store(true, Ordering::SeqCst);
    if let Some(rt) = try_rt() {
        preempt::empty_handlers(rt);
    }
    // One of those that were in a handler may have had the loader's lock.
    cxa::wait_for_looks();
    ALLOCATES.lock();
    keys::lock_table();
    deadlock::lock_handler();
    log::lock();
    hooks::lock_tables();
    group::lock_all();
    ORPHANS.lock.lock();
    gang::lock_free();
    if let Some(rt) = try_rt() {
        rt.copies.lock();
    }
    heap::lock();
}

/// Locks `LIFE`, and keeps others from stopping the world if the caller could fork while it
/// is stopped. Gives whether it does.
///
/// A caller that holds a P needs no lock: no stop is complete before that P has stopped.
/// The stopper itself has the lock already.
fn lock_life_to_fork() -> bool {
    loop {
        LIFE.lock();
        let Some(rt) = try_rt() else { return false };
        if preempt::holds_p() || embed::has_stopped() {
            return false;
        }
        if rt.world.try_lock() {
            return true;
        }
        // Who has stopped the world may need LIFE before it starts it again.
        LIFE.unlock();
        time::sleep(FORK_RETRY);
    }
}

/// Gives the locks back in the parent. In the child they are a copy, taken by the only
/// thread there is.
fn unlock_after_fork(rt: Option<&Runtime>) {
    heap::unlock();
    if let Some(rt) = rt {
        rt.copies.unlock();
    }
    gang::unlock_free();
    ORPHANS.lock.unlock();
    group::unlock_all();
    hooks::unlock_tables();
    log::unlock();
    deadlock::unlock_handler();
    keys::unlock_table();
    ALLOCATES.unlock();
    FORKING.store(false, Ordering::SeqCst);
    LIFE.unlock();
}

extern "C" fn after_fork() {
    if let Some(rt) = try_rt() {
        rt.template.gate.open();
        if EXCLUDES_STOP.load(Ordering::Relaxed) {
            rt.world.unlock();
        }
    }
    unlock_after_fork(try_rt());
    if let Some(m) = m::current() {
        m.outside.store(m.forks_from.get(), Ordering::Release);
    }
}

/// In the child there is only the thread that forked, with the memory of a
/// runtime whose threads are gone. That is left alone; a fresh one is made on
/// demand.
extern "C" fn in_child() {
    if let Some(m) = m::current() {
        // SAFETY: the parent's runtime, of which this is a copy.
        let rt = unsafe { &*RUNTIME.load(Ordering::Relaxed) };
        if !m.is_runner() {
            rt.host_mask.restore();
            rt.unbind_thread();
        }
    }
    let parent = try_rt();
    if let Some(rt) = parent {
        // The parent's, with its own files in them.
        netpoll::close_all(rt);
    }
    // SAFETY: the thread runs nothing of the runtime any more: it is a plain one.
    unsafe { m::set_current(None) };
    SYSMON_ABSTAINS.store(false, Ordering::Relaxed);
    RUNTIME.store(ptr::null_mut(), Ordering::SeqCst);
    CHANGING.store(false, Ordering::SeqCst);
    INSIDE.store(0, Ordering::SeqCst);
    deadlock::forget_threads();
    embed::forget_stop();
    unlock_after_fork(parent);
    cxa::forked(parent.map(|rt| &rt.copies));
    hooks::forked();
}

/// A fault: a stack overflow is reported; others are the host's.
fn on_fault(address: usize) {
    if arch::tls_get() == 0 {
        return;
    }
    let Some(g) = switch::current_g() else { return };
    let Some(stack) = g.stack.get() else { return };
    if !stack.guards(address) {
        return;
    }
    let name = g.name.load(Ordering::Relaxed);
    let name = if name.is_null() {
        &[][..]
    } else {
        // SAFETY: a C string of the goroutine's own.
        unsafe { core::ffi::CStr::from_ptr(name) }.to_bytes()
    };
    stack::report_overflow(g.id.load(Ordering::Relaxed), name, &stack, g.pc.get(), address);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n10_nodes_are_numbered_in_any_order() {
        // seed: N10
        let mut first_ones = [false; 4];
        for _ in 0..100_000 {
            let order = shuffled(4);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
            first_ones[order[0]] = true;
        }
        assert_eq!(first_ones, [true; 4]);
    }
}
