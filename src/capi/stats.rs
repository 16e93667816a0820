//! Statistics.

use super::{EINVAL, sized};
use crate::observe::metrics;
use crate::sched::inspect::stats::{self, Stats};
use crate::sched::prim::histogram;
use crate::sched::take::boundary::Entered;
use crate::sched::types::m;
use crate::sched::types::runtime::Guest;
use core::ffi::c_int;

/// Counters since the start of the runtime. Set size to sizeof(gs_stats) first. Fields may be added
/// at the end.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct gs_stats {
    /// sizeof(gs_stats).
    pub size: usize,
    /// Goroutines that exist. For a node: goroutines in its queues, ready to run.
    pub goroutines: u64,
    /// Goroutines spawned, and goroutines ended. For a node: by its P's. Goroutines that plain
    /// threads have spawned count only for the whole runtime.
    pub created: u64,
    pub ended: u64,
    /// P's, and how many of them have nothing to do.
    pub procs: u64,
    pub idle_procs: u64,
    /// Threads that run goroutines, or could. 0 for a node.
    pub threads: u64,
    /// How often goroutines were switched to. 0 for a node.
    pub switches: u64,
    /// How often a P was passed to another thread, because its own thread was blocked or left, its
    /// goroutine was preempted, or the next goroutine was bound to the other thread.
    pub handoffs: u64,
    /// How often work was stolen: from P's of the node, from the queue of another node,
    /// from P's of another node.
    pub steals_near: u64,
    pub steals_remote_queue: u64,
    pub steals_remote_p: u64,
    /// Stacks that were freed on another node and went back to their own.
    pub stacks_sent_home: u64,
    /// Goroutines whose stack was moved to the node where they run, and the pages moved.
    pub migrations: u64,
    pub pages_moved: u64,
    /// Histogram of how long ready goroutines have waited for a P. Element 0 counts waits of less
    /// than 1 us, element i of less than 2^i us, the last all longer waits. Not every wait is
    /// measured: the sample has all goroutines that another thread made ready, an eighth or more of
    /// those that a file made ready, a sixteenth or more of those that a timer made ready (there
    /// the wait begins at the time for which the timer was set), and about one in a thousand of
    /// those that another goroutine made ready. For a node: goroutines that ran on its P's.
    pub run_waits: [u64; GS_RUN_WAITS],
    /// What goroutines do: they are ready and wait for a P; they run; they are in a call that was
    /// announced, or in the user's code without a P; they wait for anything else. Not read at one
    /// moment. For a node: those in its queues, those on its P's, 0, 0.
    pub runnable: u64,
    pub running: u64,
    pub in_calls: u64,
    pub waiting: u64,
    /// Blocking calls that goroutines have announced (gs_entersyscall, gs_blocking), or the library
    /// for them. Calls without a P count only for the whole runtime.
    pub calls: u64,
    /// How often an event borrowed the P of a goroutine that computes.
    pub loans: u64,
    /// Bytes of address space that stacks have been cut from, guards included.
    pub stack_bytes: u64,
    /// How often work had to wait because of gs_set_max_threads or GOSCHED_MAX_THREADS. 0 for a
    /// node.
    pub thread_limit_hits: u64,
    /// Sum of the waits that run_waits counts, in ns.
    pub run_wait_ns: u64,
    /// How long goroutines have waited for a gs_mutex or gs_rwmutex, in ns. From a clock whose
    /// steps last for up to 1 ms, so short waits are right on average only.
    pub lock_wait_ns: u64,
    /// How long it took to stop the world, and how long until it went on: sums in ns, and
    /// histograms with the classes of run_waits. 0 for a node.
    pub stop_ns: u64,
    pub pause_ns: u64,
    pub stops: [u64; GS_RUN_WAITS],
    pub pauses: [u64; GS_RUN_WAITS],
}

/// Number of elements of gs_stats.run_waits.
pub const GS_RUN_WAITS: usize = 20;

const _: () = assert!(GS_RUN_WAITS == histogram::CLASSES);

// SAFETY: `repr(C)`, begins with its size and has no padding.
unsafe impl sized::Grows for gs_stats {
    const FIRST: usize = 120;
}

impl gs_stats {
    fn of(s: Stats) -> gs_stats {
        gs_stats {
            size: size_of::<gs_stats>(),
            goroutines: s.goroutines,
            created: s.created,
            ended: s.ended,
            procs: s.procs,
            idle_procs: s.idle_procs,
            threads: s.threads,
            switches: s.switches,
            handoffs: s.handoffs,
            steals_near: s.steals_near,
            steals_remote_queue: s.steals_remote_queue,
            steals_remote_p: s.steals_remote_p,
            stacks_sent_home: s.stacks_sent_home,
            migrations: s.migrations,
            pages_moved: s.pages_moved,
            run_waits: s.run_waits.classes,
            runnable: s.runnable,
            running: s.running,
            in_calls: s.in_calls,
            waiting: s.waiting,
            calls: s.calls,
            loans: s.loans,
            stack_bytes: s.stack_bytes,
            thread_limit_hits: s.thread_limit_hits,
            run_wait_ns: s.run_waits.sum,
            lock_wait_ns: s.lock_wait,
            stop_ns: s.stops.sum,
            pause_ns: s.pauses.sum,
            stops: s.stops.classes,
            pauses: s.pauses.classes,
        }
    }
}

/// Fills in the fields that the caller has room for; fields that this version doesn't know are 0.
///
/// # Safety
/// `out` is null, or writable for as many bytes as its first word says.
unsafe fn give(out: *mut gs_stats, read: impl FnOnce() -> Option<Stats>) -> c_int {
    let _entered = Entered::new();
    let _inside = m::current().is_none().then(Guest::enter_if_there);
    // SAFETY: `out` is null, or writable for as many bytes as its first word says.
    unsafe { sized::write(out, || read().map(gs_stats::of)) }
}

/// Reads the statistics of the whole runtime; all are 0 without a runtime. The counters change
/// while they are read, so sums may be off by a few. 0; -EINVAL: NULL, or size is too small.
/// Goroutines and plain threads.
///
/// # Safety
/// `out` is null, or a gs_stats of the size that it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_stats_read(out: *mut gs_stats) -> c_int {
    // SAFETY: `out` is null or a gs_stats of the size that it says.
    unsafe { give(out, || Some(stats::read())) }
}

/// gs_stats_read of one node. -EINVAL also: there is no such node, or no runtime.
///
/// # Safety
/// As gs_stats_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_stats_node(node: c_int, out: *mut gs_stats) -> c_int {
    let read = || stats::read_node(usize::try_from(node).ok()?);
    // SAFETY: `out` is null or a gs_stats of the size that it says.
    unsafe { give(out, read) }
}

/// Returns how often P's of a node have stolen work from the queue or the P's of node from. If both
/// are one node: how often its P's have stolen from each other. -EINVAL: there is no such node, or
/// no runtime. Goroutines and plain threads.
#[unsafe(no_mangle)]
pub extern "C" fn gs_stats_steals(node: c_int, from: c_int) -> i64 {
    let _entered = Entered::new();
    let _inside = m::current().is_none().then(Guest::enter_if_there);
    let read = || stats::read_steals(usize::try_from(node).ok()?, usize::try_from(from).ok()?);
    read().map_or(i64::from(EINVAL), |n| n as i64)
}

/// Writes the statistics to the file descriptor fd as OpenMetrics text, which a Prometheus server
/// reads (content type application/openmetrics-text; version=1.0.0). Metrics that Go has too bear
/// the names that Prometheus's client for Go gives them, such as go_sched_goroutines_goroutines;
/// others begin with gosched_. Each node has its lines. The world is not stopped. Without a runtime
/// only the metrics that Go has too are written, and are 0.
///
/// 0; a negative errno value of write(2), -ENOMEM. Goroutines and plain threads. Go's
/// runtime/metrics.
#[unsafe(no_mangle)]
pub extern "C" fn gs_stats_write(fd: c_int) -> c_int {
    let _entered = Entered::new();
    metrics::write(fd)
}
