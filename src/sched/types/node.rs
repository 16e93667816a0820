//! Node: the queues, idle M's, pools and CPUs that the P's of one NUMA node share. seed: N1, N2

use super::g::G;
use super::m::MRef;
use super::p::{P, PRef, PStatus};
use super::task::{Fifo, Newborn, Task};
use crate::os::cpu::CpuSet;
use crate::os::locked::Locked;
use crate::os::{heap, time};
use crate::sched::prim::limits::PROCS as MAX;
use crate::sched::prim::pool::Pool;
use crate::sched::wait::netpoll::state::NodePoll;
use crate::stack::{self, Warm};
use core::ptr;
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// The longest [`Runtime::theft_time`](super::runtime::Runtime::theft_time), in ns: the longest
/// time for which other nodes leave alone a task that was spawned for this node.
pub const LONGEST_THEFT: i64 = 5_000_000;
/// How long other nodes leave such a task alone, in ns, while a P of the node has been given to a
/// thread that doesn't run yet.
const LONGEST_WAKING: i64 = 20_000_000;

/// Priorities as `gosched.h` names them.
pub mod priority {
    pub const HIGH: i8 = 1;
    pub const NORMAL: i8 = 0;
    pub const LOW: i8 = -1;
    pub const IDLE: i8 = -2;
    /// Internal: goroutines that wait in the signal handler.
    pub const PREEMPTED: i8 = 2;
    /// Internal: members of gangs, which have a queue of their own.
    pub const MEMBER: i8 = 3;
}

/// The priorities that have a queue.
const ALL: [i8; 5] =
    [priority::PREEMPTED, priority::HIGH, priority::NORMAL, priority::LOW, priority::IDLE];

/// See the module.
pub struct Node {
    pub id: usize,
    /// The global run queue, FIFO.
    pub runq: Fifo,
    /// Goroutines that were spawned for this node, FIFO. Other nodes leave them here for a while.
    placed: Fifo,
    /// When the node last took a task from `placed`, or when the first task came into the empty
    /// queue, in ns.
    placed_at: AtomicI64,
    /// Goroutines that are not of normal priority. seed: S10, B8
    pub high: Fifo,
    pub low: Fifo,
    pub idle_class: Fifo,
    /// Goroutines that wait in the signal handler, each on a thread of its own.
    pub preempted: Fifo,
    /// The node's CPUs that the process may use. Threads are bound to these CPUs unless the
    /// topology is synthetic. They change while the world is stopped.
    pub cpus: Locked<CpuSet>,
    /// The node's number in the system; `None`: the node has no memory that can be asked for.
    pub memory: Option<usize>,
    /// The other nodes, nearest first.
    pub neighbours: Vec<usize>,
    /// P's of this node.
    pub ps: Ps,
    idle_ps: [AtomicU64; MAX / 64],
    idle_ms: Locked<Vec<MRef>>,
    /// Descriptors without a stack. This pool owns the memory of all descriptors that the node has
    /// made.
    pub gs: Pool<G>,
    /// Descriptors with a warm stack of the default size. They come from `gs` of any node.
    pub gs_with_stack: Pool<G>,
    pub with_stack: Warm,
    pub newborns: Pool<Newborn>,
    pub stacks: stack::StackPool,
    /// How often this node's P's have stolen from each node.
    pub steals_from: Box<[AtomicU64]>,
    pub poll: NodePoll,
}

/// The P's of a node, for thieves. Written while the world is stopped.
pub struct Ps {
    ps: Vec<AtomicPtr<P>>,
    len: AtomicUsize,
}

impl Ps {
    pub fn new() -> Ps {
        Ps {
            ps: (0..MAX).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            len: AtomicUsize::new(0),
        }
    }

    pub fn set(&self, ps: impl Iterator<Item = PRef>) {
        let mut len = 0;
        for p in ps {
            self.ps[len].store(p.as_ptr(), Ordering::Release);
            len += 1;
        }
        self.len.store(len, Ordering::Release);
    }

    #[inline]
    pub fn len(&self) -> usize {
        // Acquire: pairs with the Release in `set`.
        self.len.load(Ordering::Acquire)
    }

    #[inline]
    pub fn get(&self, i: usize) -> PRef {
        // SAFETY: below `len` there are P's.
        unsafe { PRef::from_ptr(self.ps[i].load(Ordering::Acquire)) }
    }
}

impl Node {
    /// `memory`: see the field.
    pub fn new(id: usize, neighbours: Vec<usize>, cpus: &[usize], memory: Option<usize>) -> Node {
        Node {
            id,
            cpus: Locked::new(CpuSet::new(cpus)),
            memory,
            steals_from: (0..=neighbours.len()).map(|_| AtomicU64::new(0)).collect(),
            runq: Fifo::new(),
            placed: Fifo::new(),
            placed_at: AtomicI64::new(0),
            high: Fifo::new(),
            low: Fifo::new(),
            idle_class: Fifo::new(),
            preempted: Fifo::new(),
            neighbours,
            ps: Ps::new(),
            idle_ps: [const { AtomicU64::new(0) }; MAX / 64],
            idle_ms: Locked::new(Vec::new()),
            gs: Pool::new(memory),
            gs_with_stack: Pool::new(None),
            with_stack: Warm::default(),
            newborns: Pool::new(memory),
            stacks: stack::StackPool::new(id as u16, memory),
            poll: NodePoll::new(),
        }
    }

    /// The queue for tasks of this priority.
    pub fn queue(&self, priority: i8) -> &Fifo {
        match priority {
            priority::HIGH => &self.high,
            priority::LOW => &self.low,
            priority::IDLE => &self.idle_class,
            priority::PREEMPTED => &self.preempted,
            _ => &self.runq,
        }
    }

    /// Puts a task into the queue of its priority. Gives the task back if the node has no P's that
    /// would take it.
    pub fn push(&self, task: Task, priority: i8) -> Result<(), Task> {
        self.queue(priority).try_push(task)
    }

    /// Opens the queues, or closes them and gives their tasks to `heir`. The world is stopped.
    pub fn open_queues(&self, open: bool, heir: &Node) {
        let to = if open { self } else { heir };
        for queue in ALL {
            let left = self.queue(queue).close(!open);
            to.queue(queue).push_batch(left);
        }
        let left = self.placed.close(!open);
        to.runq.push_batch(left);
    }

    /// Puts a task into the queue of tasks that were spawned for this node. Gives the task back if
    /// the node has no P's.
    pub fn place(&self, task: Task) -> Result<(), Task> {
        if self.placed.is_empty() {
            self.placed_at.store(time::now(), Ordering::Relaxed);
        }
        self.placed.try_push(task)
    }

    /// How many tasks wait that were spawned for this node.
    #[inline(always)]
    pub fn placed(&self) -> usize {
        self.placed.len()
    }

    /// How many tasks wait in the node's queues, of all priorities.
    pub fn queued(&self) -> usize {
        ALL.iter().map(|&priority| self.queue(priority).len()).sum::<usize>() + self.placed()
    }

    /// For the node's own P's: takes the oldest task that was spawned for this node. One task at a
    /// time, because any node can steal a goroutine from a P's queues.
    #[must_use]
    pub fn take_placed(&self) -> Option<Task> {
        let task = self.placed.pop()?;
        self.placed_at.store(time::now(), Ordering::Relaxed);
        Some(task)
    }

    /// For a P of another node: takes the oldest task that was spawned for this node, if the task
    /// is due (see `placed_due`).
    #[must_use]
    pub fn steal_placed(&self, theft: i64) -> Option<Task> {
        if self.placed_due(theft) > time::now() { None } else { self.placed.pop() }
    }

    /// When other nodes may take a task that was spawned for this node, in ns: once this node has
    /// taken no task for `theft` ns, the cost of a theft. `i64::MAX`: no task waits.
    pub fn placed_due(&self, theft: i64) -> i64 {
        if self.placed.is_empty() {
            return i64::MAX;
        }
        let waits = if self.has_waking_p() { LONGEST_WAKING } else { theft };
        self.placed_at.load(Ordering::Relaxed) + waits
    }

    /// Whether a P of the node has been given to a thread that doesn't run yet. That thread will
    /// look here first.
    fn has_waking_p(&self) -> bool {
        let mut ps = (0..self.ps.len()).map(|i| self.ps.get(i));
        ps.any(|p| p.status() == PStatus::Idle && !self.is_idle_p(p))
    }

    /// The word in the set of idle P's that has the P's bit, and the bit.
    fn idle_bit(&self, p: PRef) -> (&AtomicU64, u64) {
        (&self.idle_ps[p.id as usize / 64], 1 << (p.id % 64))
    }

    /// Whether a P is in the set of idle P's; a hint.
    pub fn is_idle_p(&self, p: PRef) -> bool {
        let (word, bit) = self.idle_bit(p);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Adds a P to the set of idle P's. A set of bits needs no lock. seed: S2
    pub fn add_idle_p(&self, p: PRef) {
        let (word, bit) = self.idle_bit(p);
        // Release: pairs with the Acquire in `take_idle_p` and `take_any_idle_p`.
        word.fetch_or(bit, Ordering::Release);
    }

    /// Takes this P out of the set of idle P's. False: the P isn't there, or another thread took
    /// it.
    #[must_use]
    pub fn take_idle_p(&self, p: PRef) -> bool {
        let (word, bit) = self.idle_bit(p);
        self.is_idle_p(p) && word.fetch_and(!bit, Ordering::Acquire) & bit != 0
    }

    /// Whether a P of the node is idle; a hint. `procs`: how many P's the runtime has.
    pub fn has_idle_p(&self, procs: usize) -> bool {
        self.idle_ps[..procs.div_ceil(64)].iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Takes any idle P of the node and returns its number. `procs`: how many P's the runtime has.
    #[must_use]
    pub fn take_any_idle_p(&self, procs: usize) -> Option<usize> {
        for (i, word) in self.idle_ps[..procs.div_ceil(64)].iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            while bits != 0 {
                let lowest = bits & bits.wrapping_neg();
                bits = word.fetch_and(!lowest, Ordering::Acquire);
                if bits & lowest != 0 {
                    return Some(i * 64 + lowest.trailing_zeros() as usize);
                }
            }
        }
        None
    }

    fn idle_ms<R>(&self, f: impl FnOnce(&mut Vec<MRef>) -> R) -> R {
        self.idle_ms.with(f)
    }

    /// Makes room in the pool for `count` M's, so that no thread allocates with the pool's lock
    /// held: allocating may have to wait for a fork. False: there is no memory.
    #[must_use]
    pub fn reserve_idle_ms(&self, count: usize) -> bool {
        self.idle_ms(|list| heap::reserve(list, count.saturating_sub(list.len())))
    }

    /// Adds an M to the pool. Watchers are taken out last, because another M must then take their
    /// post.
    pub fn add_idle_m(&self, m: MRef, is_watcher: bool) {
        self.idle_ms(|list| {
            if is_watcher {
                list.insert(0, m)
            } else {
                list.push(m)
            }
            m.set_between(false);
        });
    }

    /// [`Node::take_idle_m`] for the M itself, which is between afterwards (`M::set_between`).
    #[must_use]
    pub fn leave_idle_ms(&self, m: MRef) -> bool {
        self.idle_ms(|list| take_last(list, |x| x == m).inspect(|m| m.set_between(true)).is_some())
    }

    /// Takes this M out of the pool. False: another thread has taken it out before.
    #[must_use]
    pub fn take_idle_m(&self, m: MRef) -> bool {
        self.idle_ms(|list| take_last(list, |x| x == m).is_some())
    }

    /// The number of M's in the pool.
    pub fn idle_m_count(&self) -> usize {
        self.idle_ms(|list| list.len())
    }

    /// Whether an M is in the pool.
    pub fn has_idle_m(&self) -> bool {
        self.idle_ms(|list| !list.is_empty())
    }

    /// Takes the M that went idle last.
    #[must_use]
    pub fn pop_idle_m(&self) -> Option<MRef> {
        // The M's of attached threads come last: they pass most tasks that they find to other M's.
        let fits = |m: MRef| !m.is_attached();
        self.pop_idle_m_that(fits).or_else(|| self.idle_ms(Vec::pop))
    }

    /// Takes the M that went idle last among those that fit.
    #[must_use]
    pub fn pop_idle_m_that(&self, fits: impl Fn(MRef) -> bool) -> Option<MRef> {
        self.idle_ms(|list| take_last(list, fits))
    }
}

/// Takes the last M that fits out of the list.
#[must_use]
fn take_last(list: &mut Vec<MRef>, fits: impl Fn(MRef) -> bool) -> Option<MRef> {
    let at = list.iter().rposition(|&m| fits(m))?;
    Some(list.remove(at))
}
