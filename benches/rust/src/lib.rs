//! What the programs of all peers share: options, output, checks and the work
//! that has nothing to do with the peer.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Every workload with its default count, what that counts and whether it is
/// measured without a warm-up.
const ALL: &[(&str, usize, &str, bool)] = &[
    ("spawn_join", 1_000_000, "tasks", false),
    ("spawn_batch", 5_000_000, "tasks", false),
    ("yield2", 10_000_000, "yields", false),
    ("yield1k", 10_000_000, "yields", false),
    ("pingpong", 3_000_000, "round trips", false),
    ("chan_buf", 20_000_000, "items", false),
    ("mpmc", 20_000_000, "items", false),
    ("mutex", 40_000_000, "locks", false),
    ("select", 3_000_000, "items", false),
    ("skynet", 2, "trees of 1,000,000 leaves", false),
    ("ring", 5_000_000, "hops", false),
    ("sieve", 2, "sieves to the 2000th prime", false),
    ("fib", 5, "times fib(27)", false),
    ("timers", 100_000, "tasks", false),
    ("memory", 1_000_000, "tasks", true),
    ("syscalls", 500, "sleeps for each of 4 tasks", false),
    ("echo", 100_000, "requests for each number of connections", false),
    ("timer", 1000, "sleeps", false),
    ("preempt", 200, "sleeps", false),
    ("wake", 2000, "wakes", false),
    ("idle", 3000, "ms", false),
];

pub const SKYNET_LEAVES: usize = 1_000_000;
pub const SKYNET_SUM: usize = SKYNET_LEAVES * (SKYNET_LEAVES - 1) / 2;
pub const PRIMES: usize = 2000;
pub const LAST_PRIME: usize = 17389;
pub const FIB_27: u64 = 196_418;

/// How long a thread waits before it wakes another, so that all is at rest by then.
pub const BEFORE_WAKE: Duration = Duration::from_micros(500);

/// A library with its runtime started.
pub trait Peer {
    const PROGRAM: &str;
    const WORKLOADS: &[&str];

    fn start(procs: usize, workload: &str) -> Self;

    /// Does a workload `n` times, checks the result and reports its figures.
    fn run(&self, workload: &str, n: usize);
}

static FIGURES: Mutex<Vec<(String, f64, &str)>> = Mutex::new(Vec::new());

/// A figure is named after its workload; a second one has a suffix: "timers.cpu".
pub fn report(name: &str, value: f64, unit: &'static str) {
    FIGURES.lock().unwrap().push((name.to_string(), value, unit));
}

pub fn report_ns_each(name: &str, start: Instant, n: usize) {
    report(name, start.elapsed().as_nanos() as f64 / n as f64, "ns");
}

pub fn ms_since(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / 1e6
}

/// Median and 99th percentile, in units of `unit_ns`.
pub fn report_late(name: &str, mut late: Vec<u128>, unit_ns: f64, unit: &'static str) {
    late.sort_unstable();
    report(&format!("{name}.p50"), late[late.len() / 2] as f64 / unit_ns, unit);
    report(&format!("{name}.p99"), late[late.len() * 99 / 100] as f64 / unit_ns, unit);
}

/// `n` spread over several tasks, at least 1 for each.
pub fn share(n: usize, parts: usize) -> usize {
    (n / parts).max(1)
}

/// Ends the program: a panic of a task would go no further than its handle.
pub fn check(ok: bool, what: &str) {
    if !ok {
        eprintln!("wrong result: {what}");
        std::process::exit(1);
    }
}

/// The sum of 1, 2, ... `each` of several senders.
pub fn sum_of(senders: usize, each: usize) -> usize {
    senders * (each * (each + 1) / 2)
}

/// The ms that sleeper `index` sleeps the `i`th time: each of 1 to 10 once.
pub fn timers_ms(index: usize, i: usize) -> Duration {
    Duration::from_millis((1 + (index * 7 + i * 3) % 10) as u64)
}

pub fn cpu_seconds() -> f64 {
    // SAFETY: getrusage fills it in.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        check(libc::getrusage(libc::RUSAGE_SELF, &mut usage) == 0, "getrusage");
        usage
    };
    (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) as f64
        + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) as f64 / 1e6
}

/// The second number of /proc/self/statm is the resident pages.
pub fn resident_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: f64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    // SAFETY: only asks.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as f64
}

/// A system call that blocks for a ms.
pub fn blocking_ms() {
    let mut left = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let left = &raw mut left;
    // SAFETY: `left` is a valid timespec.
    while unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, left, left) } == libc::EINTR {}
}

/// A step of computing, some tens of us.
pub fn step(mut x: u64) -> u64 {
    for _ in 0..20000 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

/// Where results of [`step`] go, so that they are computed.
pub static SINK: AtomicU64 = AtomicU64::new(0);

/// How many steps a core does in a ms when nothing disturbs it: the best of ten
/// stretches of 10 ms.
pub fn undisturbed_steps_per_ms() -> f64 {
    let mut best: f64 = 0.0;
    for _ in 0..10 {
        let (start, mut steps, mut x) = (Instant::now(), 0, 1);
        while ms_since(start) < 10.0 {
            x = step(x);
            steps += 1;
        }
        best = best.max(steps as f64 / ms_since(start));
        SINK.fetch_xor(x, Ordering::Relaxed);
    }
    best
}

/// Sleeps `n` times by `sleep` and says how late each ended, in ns.
pub fn late_by(duration: Duration, start: Instant) -> u128 {
    let took = start.elapsed();
    check(took >= duration, "a sleep was too short");
    (took - duration).as_nanos()
}

/// Runs echoload, which is beside this program, and reports what it measures.
pub fn load(port: u16, connections: usize, n: usize) {
    load_with(port, connections, n, |_| ());
}

pub fn load_with(port: u16, connections: usize, n: usize, prepare: impl FnOnce(&mut Command)) {
    let program = std::env::current_exe().unwrap().with_file_name("echoload");
    let mut command = Command::new(program);
    command.args([port.to_string(), connections.to_string(), n.to_string()]);
    command.stderr(Stdio::inherit());
    prepare(&mut command);
    let answer = command.output().unwrap();
    check(answer.status.success(), "echoload");
    let text = String::from_utf8(answer.stdout).unwrap();
    let mut numbers = text.split_whitespace().map(|number| number.parse::<f64>().unwrap());
    for (name, unit) in [("rate", "req/s"), ("p99", "us"), ("cpu", "us"), ("switches", "switches")]
    {
        report(&format!("echo.{name}_{connections}"), numbers.next().unwrap(), unit);
    }
}

/// As many files as are allowed, which Go's runtime does by itself.
pub fn allow_many_files() {
    // SAFETY: `limit` is a valid rlimit.
    unsafe {
        let mut limit = std::mem::zeroed::<libc::rlimit>();
        check(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0, "getrlimit");
        limit.rlim_cur = limit.rlim_max;
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    }
}

/// The whole program of a peer.
pub fn main<P: Peer>() {
    let mut arguments = std::env::args().skip(1);
    let (mut procs, mut count, mut workload) = (None, None, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-p" => procs = Some(positive::<P>(arguments.next())),
            "-n" => count = Some(positive::<P>(arguments.next())),
            "-h" | "--help" => return usage::<P>(),
            _ if argument.starts_with('-') || workload.is_some() => misuse::<P>(&argument),
            _ => workload = Some(argument),
        }
    }
    let Some(workload) = workload else { misuse::<P>("one workload is needed") };
    let all = ALL.iter().filter(|w| P::WORKLOADS.contains(&w.0));
    if workload == "list" {
        for (name, count, ..) in all {
            println!("{name} {count}");
        }
        return;
    }
    let Some(&(name, default, _, cold)) = all.into_iter().find(|w| w.0 == workload) else {
        misuse::<P>(&format!("no such workload: {workload}"))
    };
    let n = count.unwrap_or(default);
    let procs = procs.unwrap_or_else(|| std::thread::available_parallelism().unwrap().get());
    let peer = P::start(procs, name);
    if !cold {
        peer.run(name, share(n, 10));
        FIGURES.lock().unwrap().clear();
    }
    peer.run(name, n);
    for (name, value, unit) in FIGURES.lock().unwrap().iter() {
        println!("{name} {value:.3} {unit}");
    }
    std::process::exit(0); // whatever the runtime still has running
}

fn positive<P: Peer>(text: Option<String>) -> usize {
    match text.as_deref().map(str::parse) {
        Some(Ok(number)) if number > 0 => number,
        _ => misuse::<P>("a number above 0 is needed"),
    }
}

fn misuse<P: Peer>(message: &str) -> ! {
    eprintln!("{0}: {message}; try {0} -h", P::PROGRAM);
    std::process::exit(2)
}

fn usage<P: Peer>() {
    println!("Usage: {0} [-p PROCS] [-n COUNT] WORKLOAD\n       {0} list\n", P::PROGRAM);
    println!("Runs a workload and prints a line for each figure: name value unit.");
    println!("A tenth of COUNT is run first as a warm-up, except for memory.\n");
    println!("Workloads and what COUNT is by default:");
    for (name, count, unit, _) in ALL.iter().filter(|w| P::WORKLOADS.contains(&w.0)) {
        println!("  {name:<12} {count:>8} {unit}");
    }
}
