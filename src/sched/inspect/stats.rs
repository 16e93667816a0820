//! The scheduler's counters. One thread at a time writes a P's counters, and any thread may read
//! them, so a sum over several P's isn't an exact snapshot.

use crate::sched::prim::histogram::Times;
use crate::sched::types::m::M;
use crate::sched::types::node::Node;
use crate::sched::types::p::{self, PStatus};
use crate::sched::types::runtime::{Runtime, try_rt};
use core::sync::atomic::{AtomicU64, Ordering};

/// The counters of the whole runtime, or of one node.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Goroutines that exist; for a node, those that wait in its queues to run.
    pub goroutines: u64,
    pub created: u64,
    pub ended: u64,
    pub procs: u64,
    pub idle_procs: u64,
    /// Threads that run goroutines or could; only for the whole runtime.
    pub threads: u64,
    /// Switches to goroutines; only for the whole runtime.
    pub switches: u64,
    pub handoffs: u64,
    pub steals_near: u64,
    pub steals_remote_queue: u64,
    pub steals_remote_p: u64,
    pub stacks_sent_home: u64,
    pub migrations: u64,
    pub pages_moved: u64,
    /// How long ready goroutines waited to run: see [`p::PStats`].
    pub run_waits: Times,
    /// Goroutines that are ready, run, are in a call or without a P, and wait. Go's
    /// `/sched/goroutines/*` metrics. Not read at one moment. For a node only the first two.
    pub runnable: u64,
    pub running: u64,
    pub in_calls: u64,
    pub waiting: u64,
    /// Announced calls; those without a P count only for the whole runtime.
    pub calls: u64,
    pub loans: u64,
    /// How long goroutines have waited for mutexes and rwmutexes, in ns.
    pub lock_wait: u64,
    /// Bytes of address space that stacks have been cut from.
    pub stack_bytes: u64,
    /// How often work had to wait because the limit of threads was reached; only for the whole
    /// runtime.
    pub thread_limit_hits: u64,
    /// How long it took to stop the world, and how long until it went on; only for the whole
    /// runtime.
    pub stops: Times,
    pub pauses: Times,
}

/// The counters of the whole runtime; all 0 without a runtime.
pub fn read() -> Stats {
    let Some(rt) = try_rt() else { return Stats::default() };
    whole(rt, of_nodes(rt))
}

/// The counters of each node of the runtime.
pub fn of_nodes(rt: &Runtime) -> impl Iterator<Item = Stats> {
    rt.nodes.iter().map(|node| of_node(rt, node))
}

/// The counters of the whole runtime. `nodes`: those of its nodes.
pub fn whole(rt: &Runtime, nodes: impl Iterator<Item = Stats>) -> Stats {
    let mut all = nodes.fold(Stats::default(), Stats::plus);
    all.runnable += rt.aside.tasks.len() as u64;
    // The switches of all M's, and what is not a P's.
    rt.for_each_m(|m| {
        all.runnable += m.pinned.len() as u64;
        all.in_calls += u64::from(is_in_call(&m));
        all.calls += m.calls_without_p.load(Ordering::Relaxed);
        all.switches += m.switches.load(Ordering::Relaxed);
    });
    all.goroutines = rt.goroutines() as u64;
    all.waiting = all.goroutines.saturating_sub(all.runnable + all.running + all.in_calls);
    all.created += rt.created_without_p.load(Ordering::Relaxed);
    all.threads = rt.threads() as u64;
    all.thread_limit_hits = rt.thread_limit_hits.load(Ordering::Relaxed);
    all.stops = rt.world.stops.read();
    all.pauses = rt.world.pauses.read();
    all
}

/// Whether the M's goroutine is in a call or runs the user's code without a P. A goroutine that
/// waits in the signal handler is in a queue.
fn is_in_call(m: &M) -> bool {
    !m.curg.seen().is_null()
        && (m.p.seen().is_null() || m.hold.get().is_lost())
        && m.context.seen().is_null()
}

/// The counters of a node; `None`: there is no such node.
pub fn read_node(node: usize) -> Option<Stats> {
    let rt = try_rt()?;
    rt.nodes.get(node).map(|node| of_node(rt, node))
}

/// How often P's of `node` have stolen from the node `from`; `None`: one of the nodes does not
/// exist.
pub fn read_steals(node: usize, from: usize) -> Option<u64> {
    let rt = try_rt()?;
    Some(rt.nodes.get(node)?.steals_from.get(from)?.load(Ordering::Relaxed))
}

fn of_node(rt: &Runtime, node: &Node) -> Stats {
    let queued = node.queued() as u64;
    let mut sum = Stats {
        goroutines: queued,
        runnable: queued,
        stack_bytes: node.stacks.reserved() as u64,
        ..Stats::default()
    };
    for p in rt.all_made_ps().filter(|p| p.node as usize == node.id) {
        let p::PStats {
            steals_near,
            steals_remote_queue,
            steals_remote_p,
            handoffs,
            stacks_sent_home,
            migrations,
            pages_moved,
            run_waits,
            lock_wait,
            loans,
        } = &p.stats;
        let n = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let status = p.status();
        let runs = p.runner().is_some_and(|m| !m.curg.seen().is_null());
        sum = sum.plus(Stats {
            goroutines: p.queued() as u64,
            runnable: p.queued() as u64,
            running: u64::from(runs),
            created: n(&p.created),
            ended: n(&p.ended),
            procs: u64::from(status != PStatus::Dead),
            idle_procs: u64::from(status == PStatus::Idle),
            handoffs: n(handoffs),
            steals_near: n(steals_near),
            steals_remote_queue: n(steals_remote_queue),
            steals_remote_p: n(steals_remote_p),
            stacks_sent_home: n(stacks_sent_home),
            migrations: n(migrations),
            pages_moved: n(pages_moved),
            run_waits: run_waits.read(),
            lock_wait: n(lock_wait),
            loans: n(loans),
            calls: n(&p.syscall_tick),
            ..Stats::default()
        });
    }
    sum
}

impl Stats {
    fn plus(self, other: Stats) -> Stats {
        Stats {
            goroutines: self.goroutines + other.goroutines,
            created: self.created + other.created,
            ended: self.ended + other.ended,
            procs: self.procs + other.procs,
            idle_procs: self.idle_procs + other.idle_procs,
            threads: self.threads + other.threads,
            switches: self.switches + other.switches,
            handoffs: self.handoffs + other.handoffs,
            steals_near: self.steals_near + other.steals_near,
            steals_remote_queue: self.steals_remote_queue + other.steals_remote_queue,
            steals_remote_p: self.steals_remote_p + other.steals_remote_p,
            stacks_sent_home: self.stacks_sent_home + other.stacks_sent_home,
            migrations: self.migrations + other.migrations,
            pages_moved: self.pages_moved + other.pages_moved,
            run_waits: self.run_waits.plus(other.run_waits),
            runnable: self.runnable + other.runnable,
            running: self.running + other.running,
            in_calls: self.in_calls + other.in_calls,
            waiting: self.waiting + other.waiting,
            calls: self.calls + other.calls,
            loans: self.loans + other.loans,
            lock_wait: self.lock_wait + other.lock_wait,
            stack_bytes: self.stack_bytes + other.stack_bytes,
            thread_limit_hits: self.thread_limit_hits + other.thread_limit_hits,
            stops: self.stops.plus(other.stops),
            pauses: self.pauses.plus(other.pauses),
        }
    }
}
