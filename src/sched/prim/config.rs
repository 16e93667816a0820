//! The settings of a runtime: each from the caller's field, else the environment, else the default.

use super::limits;
use crate::numa::Topology;
use crate::os::thread::FAULTS;
use crate::os::{cgroup, heap};
use crate::stack::{self, SizeClass};

/// The caller's settings for `gs_init`. `None`: the caller leaves the field open.
#[derive(Default)]
pub struct ConfigRequest<'a> {
    pub procs: Option<usize>,
    pub max_threads: Option<usize>,
    pub stack_size: Option<usize>,
    pub topology: Option<&'a str>,
    /// The time slice, in ns.
    pub slice: Option<i64>,
    /// 0: no signal.
    pub preempt_signal: Option<i32>,
    pub cooperative: bool,
    pub unbound: bool,
    pub keep_affinity: bool,
    pub fixed_procs: bool,
}

/// The settings of a runtime, with no field left open.
pub struct Config {
    pub procs: usize,
    /// Whether `procs` is the default ([`default_procs`]).
    pub has_default_procs: bool,
    /// Whether the number of P's may follow the default from then on.
    pub follows: bool,
    pub max_threads: usize,
    pub stack_class: SizeClass,
    pub topology: Topology,
    pub slice: i64,
    pub preempt_signal: i32,
    pub cooperative: bool,
    /// Whether threads and memory are bound to nodes.
    pub bind: bool,
    /// Whether threads that call `gs_run` keep their affinity all the same.
    pub keep_affinity: bool,
}

impl ConfigRequest<'_> {
    /// Fills in the fields left open. `-EINVAL`: a value is out of its range.
    pub fn resolve(&self) -> Result<Config, i32> {
        let named = |name: &str| std::env::var(name).ok();
        let number = |name: &str| {
            named(name).and_then(|s| s.trim().parse::<usize>().ok()).filter(|&n| n > 0)
        };
        let description = self.topology.map(str::to_owned).or_else(|| named("GOSCHED_TOPOLOGY"));
        let topology = Topology::detect(description.as_deref()).ok_or(-libc::EINVAL)?;
        let chosen = match self.procs {
            Some(n) if n > limits::PROCS => return Err(-libc::EINVAL),
            Some(n) => Some(n),
            None => number("GOSCHED_PROCS")
                .or_else(|| number("GOMAXPROCS"))
                .map(|n| n.min(limits::PROCS)),
        };
        let procs = chosen.unwrap_or_else(default_procs);
        let stack_class = match self.stack_size {
            Some(size) => SizeClass::for_usable(size).ok_or(-libc::EINVAL)?,
            None => number("GOSCHED_STACK_SIZE")
                .and_then(SizeClass::for_usable)
                .or_else(|| SizeClass::for_reserved(stack::DEFAULT))
                .ok_or(-libc::EINVAL)?,
        };
        let max_threads =
            self.max_threads.or_else(|| number("GOSCHED_MAX_THREADS")).unwrap_or(limits::THREADS);
        let slice = self.slice.unwrap_or(limits::SLICE);
        let cooperative = self.cooperative || number("GOSCHED_COOPERATIVE").is_some();
        // If the library uses the program's allocator there is no preemption signal by default: the
        // signal could stop a goroutine that has the allocator's lock, and the library would wait
        // for that lock with the P that the goroutine needs to go on.
        let default = if heap::IS_OURS { libc::SIGURG } else { 0 };
        let preempt_signal = match self.preempt_signal {
            _ if cooperative => 0,
            Some(signal) => signal,
            None => named("GOSCHED_PREEMPT_SIGNAL")
                .and_then(|s| s.trim().parse().ok())
                .filter(|&n| may_be_signal(n))
                .unwrap_or(default),
        };
        if !may_be_signal(preempt_signal)
            || !(limits::SHORTEST_SLICE..=limits::LONGEST_SLICE).contains(&slice)
        {
            return Err(-libc::EINVAL);
        }
        let bind = !self.unbound && named("GOSCHED_BIND").is_none_or(|s| s.trim() != "0");
        Ok(Config {
            procs,
            has_default_procs: chosen.is_none(),
            follows: !self.fixed_procs,
            max_threads,
            stack_class,
            topology,
            slice,
            preempt_signal,
            cooperative,
            bind,
            keep_affinity: self.keep_affinity,
        })
    }
}

/// Whether this may be the preemption signal; 0, no signal, may. Refused: signals that a fault
/// raises, signals that can't be caught, and the C library's own (32 to SIGRTMIN - 1).
fn may_be_signal(n: i32) -> bool {
    n == 0
        || ((1..=libc::SIGRTMAX()).contains(&n)
            && ![libc::SIGKILL, libc::SIGSTOP].contains(&n)
            && !FAULTS.contains(&n)
            && !(32..libc::SIGRTMIN()).contains(&n))
}

/// The default number of P's: the CPUs in the affinity mask. The cgroup's quota, rounded up, lowers
/// it, but not below 2. As Go since 1.25. Reads files.
pub fn default_procs() -> usize {
    let cpus = crate::os::cpu::affinity().len().clamp(1, limits::PROCS);
    match cgroup::cpu_quota() {
        Some(quota) => cpus.min((quota.ceil() as usize).max(2)),
        None => cpus,
    }
}
