//! may's side of the benchmarks, as a user of may would write each workload.
//!
//! Its channels have no capacity, so those workloads are left out in which a full
//! channel stops the sender. Each coroutine has two memory mappings, of which
//! Linux allows 65,530 by default: no workload can have 100,000 at once.

use may::coroutine::{self, JoinHandle, yield_now};
use may::go;
use may::net::TcpListener;
use may::sync::{Mutex, SyncFlag, WaitGroup, mpsc, spsc};
use rustbench::*;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

struct May;

fn main() {
    rustbench::main::<May>();
}

impl Peer for May {
    const PROGRAM: &str = "maybench";
    const WORKLOADS: &[&str] = &[
        "spawn_join",
        "spawn_batch",
        "yield2",
        "yield1k",
        "pingpong",
        "mutex",
        "skynet",
        "ring",
        "fib",
        "echo",
        "timer",
        "wake",
        "idle",
    ];

    fn start(procs: usize, _workload: &str) -> May {
        may::config().set_workers(procs).set_pool_capacity(10_000);
        May
    }

    fn run(&self, workload: &str, n: usize) {
        let task: fn(usize) = match workload {
            "spawn_join" => spawn_join,
            "spawn_batch" => spawn_batch,
            "yield2" => |n| yield_among("yield2", 2, n),
            "yield1k" => |n| yield_among("yield1k", 1000, n),
            "pingpong" => pingpong,
            "mutex" => mutex,
            "skynet" => skynet,
            "ring" => ring,
            "fib" => fib27,
            "echo" => return echo(n), // its main part is to wait for the load
            "timer" => timer,
            "wake" => wake,
            "idle" => idle,
            _ => unreachable!(),
        };
        go!(move || task(n)).join().unwrap();
    }
}

/// Starts a coroutine that runs at once, on this thread; the coroutine that starts it goes
/// on when that ends or blocks. For those that end soon this is many times quicker
/// than `go!`, which makes a system call and often maps a new stack.
fn run_first<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // SAFETY: none of the functions here uses thread-locals or overflows the stack.
    unsafe { coroutine::Builder::new().spawn_local(f) }.unwrap()
}

/// Go's wait group: counts down and wakes who waits.
struct Countdown {
    left: AtomicUsize,
    zero: SyncFlag,
}

fn spawn_and_wait(n: usize) {
    let all = Arc::new(Countdown { left: AtomicUsize::new(n), zero: SyncFlag::new() });
    for _ in 0..n {
        let all = all.clone();
        run_first(move || {
            if all.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                all.zero.fire();
            }
        });
    }
    all.zero.wait();
    check(all.left.load(Ordering::Acquire) == 0, "countdown");
}

// spawn_join and spawn_batch: coroutines that do nothing, started by one and waited for.

fn spawn_join(n: usize) {
    let start = Instant::now();
    spawn_and_wait(n);
    report_ns_each("spawn_join", start, n);
}

fn spawn_batch(n: usize) {
    const BATCH: usize = 1000;
    let batches = share(n, BATCH);
    let start = Instant::now();
    (0..batches).for_each(|_| spawn_and_wait(BATCH));
    report_ns_each("spawn_batch", start, batches * BATCH);
}

// yield2 and yield1k: coroutines that yield to each other.

fn yield_among(name: &str, coroutines: usize, n: usize) {
    let each = share(n, coroutines);
    let all = WaitGroup::new();
    let start = Instant::now();
    for _ in 0..coroutines {
        let all = all.clone();
        go!(move || {
            (0..each).for_each(|_| yield_now());
            drop(all);
        });
    }
    all.wait();
    report_ns_each(name, start, each * coroutines);
}

/// pingpong: at most one ball is in a channel, whatever its capacity.
fn pingpong(n: usize) {
    let (ping, pinged) = spsc::channel();
    let (pong, ponged) = spsc::channel();
    go!(move || pinged.iter().for_each(|ball: usize| pong.send(ball + 1).unwrap()));
    let mut ball = 0;
    let start = Instant::now();
    for _ in 0..n {
        ping.send(ball).unwrap();
        ball = ponged.recv().unwrap();
    }
    report_ns_each("pingpong", start, n);

    check(ball == n, "pingpong");
    drop(ping);
    check(ponged.recv().is_err(), "pingpong's end");
}

fn mutex(n: usize) {
    let each = share(n, 8);
    let value = Arc::new(Mutex::new(0));
    let all = WaitGroup::new();
    let start = Instant::now();
    for _ in 0..8 {
        let (value, all) = (value.clone(), all.clone());
        go!(move || {
            (0..each).for_each(|_| *value.lock().unwrap() += 1);
            drop(all);
        });
    }
    all.wait();
    report_ns_each("mutex", start, each * 8);
    check(*value.lock().unwrap() == each * 8, "mutex");
}

/// skynet: a tree of coroutines, ten children each, a million leaves; every node
/// sends its sum up.
fn grow(up: mpsc::Sender<usize>, number: usize, size: usize) {
    if size == 1 {
        up.send(number).unwrap();
        return;
    }
    let (to_here, down) = mpsc::channel();
    for i in 0..10 {
        let to_here = to_here.clone();
        run_first(move || grow(to_here, number + i * (size / 10), size / 10));
    }
    let sum = (0..10).map(|_| down.recv().unwrap()).sum();
    up.send(sum).unwrap();
}

fn skynet(n: usize) {
    let start = Instant::now();
    for _ in 0..n {
        let (up, top) = mpsc::channel();
        run_first(move || grow(up, 0, SKYNET_LEAVES));
        check(top.recv().unwrap() == SKYNET_SUM, "skynet");
    }
    report("skynet", ms_since(start) / n as f64, "ms");
}

/// ring: a token goes round a thousand coroutines, of which this is one.
fn ring(n: usize) {
    const COROUTINES: usize = 1000;
    let laps = share(n, COROUTINES);
    let start = Instant::now();
    let (first, mut last) = spsc::channel();
    for _ in 1..COROUTINES {
        let (to_next, next) = spsc::channel();
        let before = std::mem::replace(&mut last, next);
        go!(move || (0..laps).for_each(|_| to_next.send(before.recv().unwrap() + 1).unwrap()));
    }
    let mut token: usize = 0;
    for _ in 0..laps {
        first.send(token + 1).unwrap();
        token = last.recv().unwrap();
    }
    report_ns_each("ring", start, laps * COROUTINES);
    check(token == laps * COROUTINES, "ring");
}

/// fib: a coroutine for each left branch; its handle gives the value.
fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let left = run_first(move || fib(n - 1));
    let right = fib(n - 2);
    left.join().unwrap() + right
}

fn fib27(n: usize) {
    let start = Instant::now();
    for _ in 0..n {
        check(fib(27) == FIB_27, "fib");
    }
    report("fib", ms_since(start) / n as f64, "ms");
}

fn echo(n: usize) {
    allow_many_files();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let open = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let (connections, stopped) = (open.clone(), stop.clone());
    let acceptor = go!(move || {
        for socket in listener.incoming() {
            if stopped.load(Ordering::Relaxed) {
                return;
            }
            let mut socket = socket.unwrap();
            socket.set_nodelay(true).unwrap();
            let connections = connections.clone();
            connections.fetch_add(1, Ordering::Relaxed);
            go!(move || {
                let mut block = [0; 4096];
                loop {
                    match socket.read(&mut block).unwrap() {
                        0 => break,
                        n => socket.write_all(&block[..n]).unwrap(),
                    }
                }
                connections.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    for connections in [1, 100, 1000] {
        load(port, connections, n);
    }
    while open.load(Ordering::Relaxed) > 0 {
        coroutine::sleep(Duration::from_millis(1));
    }
    stop.store(true, Ordering::Relaxed);
    drop(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
    acceptor.join().unwrap();
}

fn timer(n: usize) {
    const SLEEP: Duration = Duration::from_millis(2);
    let mut late = Vec::with_capacity(n);
    for _ in 0..n {
        let start = Instant::now();
        coroutine::sleep(SLEEP);
        late.push(late_by(SLEEP, start));
    }
    report_late("timer", late, 1e3, "us");
}

/// wake: a thread that is none of may's sends to a coroutine.
fn wake(n: usize) {
    let (sender, receiver) = spsc::channel();
    let (answer, answered) = std::sync::mpsc::channel();
    let waker = std::thread::spawn(move || {
        for _ in 0..n {
            std::thread::sleep(BEFORE_WAKE);
            sender.send(Instant::now()).unwrap();
            answered.recv().unwrap();
        }
    });
    let mut late = Vec::with_capacity(n);
    for sent in receiver.iter() {
        late.push(sent.elapsed().as_nanos());
        answer.send(()).unwrap();
    }
    waker.join().unwrap();
    check(late.len() == n, "wake");
    report_late("wake", late, 1e3, "us");
}

fn idle(n: usize) {
    // So that all of the runtime has been awake before.
    let all = WaitGroup::new();
    for _ in 0..1000 {
        let all = all.clone();
        go!(move || {
            yield_now();
            drop(all);
        });
    }
    all.wait();

    let cpu = cpu_seconds();
    let start = Instant::now();
    coroutine::sleep(Duration::from_millis(n as u64));
    report("idle", (cpu_seconds() - cpu) * 1e3 / ms_since(start) * 100.0, "%");
}
