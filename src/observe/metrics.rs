//! `gs_stats_write`: the counters as OpenMetrics text, which a Prometheus server reads.
//!
//! What Go has too bears the names that client_golang's collector gives Go's metrics
//! (`runtime/metrics`), so that dashboards for Go show it: `/sched/goroutines:goroutines` is
//! `go_sched_goroutines_goroutines`. What Go lacks begins with `gosched_`, and has a line for each
//! node.

use crate::os::{file, heap};
use crate::sched::inspect::out::Out;
use crate::sched::inspect::stats::{self, Stats};
use crate::sched::prim::histogram::{CLASSES, Times};
use crate::sched::take::call;
use crate::sched::types::runtime::{Runtime, Visit};
use core::fmt::{self, Display, Write};
use core::sync::atomic::Ordering;

/// The upper bounds of all classes of a histogram but the last, in seconds, as Go prints them:
/// 2^i us.
const BOUNDS: [&str; CLASSES - 1] = [
    "1e-06", "2e-06", "4e-06", "8e-06", "1.6e-05", "3.2e-05", "6.4e-05", "0.000128", "0.000256",
    "0.000512", "0.001024", "0.002048", "0.004096", "0.008192", "0.016384", "0.032768", "0.065536",
    "0.131072", "0.262144",
];

/// The kinds of metrics that are used here.
#[derive(Clone, Copy)]
enum Kind {
    Gauge,
    /// Its samples' names end with `_total`.
    Counter,
    Histogram,
    Info,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Kind::Counter => "_total",
            _ => "",
        }
    }
}

/// The text under construction.
struct Page<W>(Out<W>);

/// Nanoseconds, printed as seconds.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

impl<W: FnMut(&[u8]) -> i32> Page<W> {
    /// The lines above a metric's samples. A name that ends with a unit has that unit.
    fn begin(&mut self, kind: Kind, name: &str, help: &str) -> fmt::Result {
        writeln!(self.0, "# TYPE {name} {}", kind.name())?;
        if let Some(unit) = ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(unit)) {
            writeln!(self.0, "# UNIT {name} {unit}")?;
        }
        writeln!(self.0, "# HELP {name} {help}")
    }

    /// A metric with one sample.
    fn one(&mut self, kind: Kind, name: &str, help: &str, value: impl Display) -> fmt::Result {
        self.begin(kind, name, help)?;
        writeln!(self.0, "{name}{} {value}", kind.suffix())
    }

    /// A metric with a sample for each node.
    fn by_node(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        nodes: &[Stats],
        value: fn(&Stats) -> u64,
    ) -> fmt::Result {
        self.begin(kind, name, help)?;
        for (node, stats) in nodes.iter().enumerate() {
            writeln!(self.0, "{name}{}{{node=\"{node}\"}} {}", kind.suffix(), value(stats))?;
        }
        Ok(())
    }

    fn histogram(&mut self, name: &str, help: &str, times: &Times) -> fmt::Result {
        self.begin(Kind::Histogram, name, help)?;
        let mut sum = 0;
        for (i, n) in times.classes.iter().enumerate() {
            sum += n;
            let bound = BOUNDS.get(i).unwrap_or(&"+Inf");
            writeln!(self.0, "{name}_bucket{{le=\"{bound}\"}} {sum}")?;
        }
        writeln!(self.0, "{name}_sum {}", Seconds(times.sum))?;
        writeln!(self.0, "{name}_count {sum}")
    }

    /// What Go has too.
    fn of_go(&mut self, all: &Stats) -> fmt::Result {
        use Kind::{Counter, Gauge};
        self.one(Gauge, "go_goroutines", "Goroutines that exist.", all.goroutines)?;
        self.one(Gauge, "go_threads", "Threads that run goroutines or could.", all.threads)?;
        self.one(
            Gauge,
            "go_sched_gomaxprocs_threads",
            "GOMAXPROCS: how many goroutines run at the same time. /sched/gomaxprocs:threads",
            all.procs,
        )?;
        self.one(
            Counter,
            "go_sched_goroutines_created_goroutines",
            "Goroutines spawned. /sched/goroutines-created:goroutines",
            all.created,
        )?;
        self.one(
            Gauge,
            "go_sched_goroutines_not_in_go_goroutines",
            "Goroutines in an announced call, or in user code without a P. \
             /sched/goroutines/not-in-go:goroutines",
            all.in_calls,
        )?;
        self.one(
            Gauge,
            "go_sched_goroutines_runnable_goroutines",
            "Goroutines that are ready but don't run. /sched/goroutines/runnable:goroutines",
            all.runnable,
        )?;
        self.one(
            Gauge,
            "go_sched_goroutines_running_goroutines",
            "Goroutines that run. /sched/goroutines/running:goroutines",
            all.running,
        )?;
        self.one(
            Gauge,
            "go_sched_goroutines_waiting_goroutines",
            "Goroutines that wait. /sched/goroutines/waiting:goroutines",
            all.waiting,
        )?;
        self.one(
            Gauge,
            "go_sched_goroutines_goroutines",
            "Goroutines that exist. /sched/goroutines:goroutines",
            all.goroutines,
        )?;
        self.histogram(
            "go_sched_latencies_seconds",
            "How long ready goroutines waited to run; a sample of them. /sched/latencies:seconds",
            &all.run_waits,
        )?;
        self.histogram(
            "go_sched_pauses_stopping_other_seconds",
            "How long it took to stop the world. /sched/pauses/stopping/other:seconds",
            &all.stops,
        )?;
        self.histogram(
            "go_sched_pauses_total_other_seconds",
            "How long stops of the world lasted. /sched/pauses/total/other:seconds",
            &all.pauses,
        )?;
        self.one(
            Gauge,
            "go_sched_threads_total_threads",
            "Threads that run goroutines or could. /sched/threads/total:threads",
            all.threads,
        )?;
        self.one(
            Counter,
            "go_sync_mutex_wait_total_seconds",
            "How long goroutines have waited for mutexes and rwmutexes. \
             /sync/mutex/wait/total:seconds",
            Seconds(all.lock_wait),
        )
    }

    /// What Go lacks.
    fn of_ours(&mut self, rt: &Runtime, all: &Stats, nodes: &[Stats]) -> fmt::Result {
        use Kind::{Counter, Gauge};
        self.begin(Kind::Info, "gosched_build", "The version of libgosched.")?;
        writeln!(self.0, "gosched_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"))?;
        self.one(Counter, "gosched_switches", "Switches to goroutines.", all.switches)?;
        self.one(
            Counter,
            "gosched_calls_without_p",
            "Announced calls that goroutines without a P have begun.",
            all.calls - nodes.iter().map(|n| n.calls).sum::<u64>().min(all.calls),
        )?;
        self.one(
            Counter,
            "gosched_thread_limit_hits",
            "How often work had to wait because of the limit of threads.",
            all.thread_limit_hits,
        )?;
        let mut by_node = |kind, name, help, value| self.by_node(kind, name, help, nodes, value);
        by_node(Gauge, "gosched_procs", "P's.", |s| s.procs)?;
        by_node(Gauge, "gosched_idle_procs", "P's without work.", |s| s.idle_procs)?;
        by_node(Gauge, "gosched_queued_goroutines", "Goroutines in run queues.", |s| s.runnable)?;
        by_node(
            Counter,
            "gosched_goroutines_ended",
            "Goroutines that ended on the node's P's.",
            |s| s.ended,
        )?;
        by_node(Counter, "gosched_calls", "Announced calls of goroutines that had a P.", |s| {
            s.calls
        })?;
        by_node(Counter, "gosched_handoffs", "How often a P was passed to another thread.", |s| {
            s.handoffs
        })?;
        by_node(
            Counter,
            "gosched_loans",
            "How often an event borrowed the P of a goroutine that computes.",
            |s| s.loans,
        )?;
        by_node(
            Counter,
            "gosched_stack_migrations",
            "Stacks moved to the node where their goroutine runs.",
            |s| s.migrations,
        )?;
        by_node(Counter, "gosched_stack_pages_moved", "Pages of stacks moved to the node.", |s| {
            s.pages_moved
        })?;
        by_node(
            Counter,
            "gosched_stacks_sent_home",
            "Stacks freed here that went back to their node.",
            |s| s.stacks_sent_home,
        )?;
        by_node(
            Gauge,
            "gosched_stack_reserved_bytes",
            "Address space that stacks have been cut from.",
            |s| s.stack_bytes,
        )?;
        self.begin(
            Counter,
            "gosched_steals",
            "How often P's of a node stole work from a node, and how far that node is (10: itself).",
        )?;
        for node in &rt.nodes {
            for (from, n) in node.steals_from.iter().enumerate() {
                let (to, distance) = (node.id, rt.topology.distances[node.id][from]);
                let n = n.load(Ordering::Relaxed);
                writeln!(
                    self.0,
                    "gosched_steals_total{{node=\"{to}\",from=\"{from}\",distance=\"{distance}\"}} {n}"
                )?;
            }
        }
        Ok(())
    }
}

/// Writes the counters to the file as OpenMetrics text. Without a runtime only the metrics that Go
/// has too are there, and are 0. 0; `-ENOMEM`; or the error of write(2).
pub fn write(fd: i32) -> i32 {
    let runtime = Visit::begin();
    let mut nodes = Vec::new();
    let mut all = Stats::default();
    if let Some(rt) = &runtime {
        if !heap::reserve(&mut nodes, rt.nodes.len()) {
            return -libc::ENOMEM;
        }
        nodes.extend(stats::of_nodes(rt));
        all = stats::whole(rt, nodes.iter().copied());
    }
    // In a system call: the goroutine that reads the other end of a pipe may need the P.
    call::enter();
    let mut page = Page(Out::new(|text| file::write_whole(fd, text)));
    let _ = page.of_go(&all);
    if let Some(rt) = &runtime {
        let _ = page.of_ours(rt, &all, &nodes);
    }
    let _ = page.0.write_str("# EOF\n");
    let error = page.0.end();
    call::exit();
    error
}
