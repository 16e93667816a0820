//! The scheduler's counters. One thread at a time writes a P's counters, and any thread may read
//! them, so a sum over several P's isn't an exact snapshot.

use crate::sched::types::p::{self, PStatus, RUN_WAITS};
use crate::sched::types::runtime::{Runtime, try_rt};
use core::array;
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
    /// Histogram of the times for which ready goroutines waited to run: see [`p::PStats`].
    pub run_waits: [u64; RUN_WAITS],
}

/// The counters of the whole runtime; all 0 without a runtime.
pub fn read() -> Stats {
    let Some(rt) = try_rt() else { return Stats::default() };
    let of_nodes = (0..rt.nodes.len()).map(|n| of_node(rt, n));
    let mut all = of_nodes.fold(Stats::default(), Stats::plus);
    all.goroutines = rt.goroutines() as u64;
    all.created += rt.created_without_p.load(Ordering::Relaxed);
    all.threads = rt.threads() as u64;
    all.switches = rt.switches();
    all
}

/// The counters of a node; `None`: there is no such node.
pub fn read_node(node: usize) -> Option<Stats> {
    let rt = try_rt()?;
    (node < rt.nodes.len()).then(|| of_node(rt, node))
}

/// How often P's of `node` have stolen from the node `from`; `None`: one of the nodes does not
/// exist.
pub fn read_steals(node: usize, from: usize) -> Option<u64> {
    let rt = try_rt()?;
    Some(rt.nodes.get(node)?.steals_from.get(from)?.load(Ordering::Relaxed))
}

fn of_node(rt: &Runtime, node: usize) -> Stats {
    let queues = &rt.nodes[node];
    let waiting = [&queues.runq, &queues.high, &queues.low, &queues.idle_class, &queues.preempted];
    let mut sum =
        Stats { goroutines: waiting.iter().map(|q| q.len() as u64).sum(), ..Stats::default() };
    sum.goroutines += queues.placed() as u64;
    for p in rt.all_made_ps().filter(|p| p.node as usize == node) {
        let p::PStats {
            steals_near,
            steals_remote_queue,
            steals_remote_p,
            handoffs,
            stacks_sent_home,
            migrations,
            pages_moved,
            run_waits,
        } = &p.stats;
        let n = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let status = p.status();
        sum = sum.plus(Stats {
            goroutines: p.queued() as u64,
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
            run_waits: array::from_fn(|i| n(&run_waits[i])),
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
            run_waits: array::from_fn(|i| self.run_waits[i] + other.run_waits[i]),
        }
    }
}
