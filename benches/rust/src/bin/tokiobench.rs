//! tokio's side of the benchmarks, as a user of tokio would write each workload.
//!
//! With one processor it is the current-thread runtime, else the multi-thread one
//! with as many workers. Trees of tasks (skynet, fib) always take the latter: it
//! runs what was spawned last first, and is quicker there even with one worker.
//! tokio has no unbuffered channel: capacity 1 is the nearest.

use rustbench::*;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::yield_now;

struct Tokio(Runtime);

fn main() {
    rustbench::main::<Tokio>();
}

impl Peer for Tokio {
    const PROGRAM: &str = "tokiobench";
    const WORKLOADS: &[&str] = &[
        "spawn_join",
        "spawn_batch",
        "yield2",
        "yield1k",
        "pingpong",
        "chan_buf",
        "mpmc",
        "mutex",
        "select",
        "skynet",
        "ring",
        "sieve",
        "fib",
        "timers",
        "memory",
        "syscalls",
        "echo",
        "timer",
        "wake",
        "idle",
    ];

    fn start(procs: usize, workload: &str) -> Tokio {
        let deep = matches!(workload, "skynet" | "fib");
        let mut builder = match procs {
            1 if !deep => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        Tokio(builder.worker_threads(procs).enable_all().build().unwrap())
    }

    fn run(&self, workload: &str, n: usize) {
        match workload {
            "spawn_join" => self.task(spawn_join(n)),
            "spawn_batch" => self.task(spawn_batch(n)),
            "yield2" => self.task(yield_among("yield2", 2, n)),
            "yield1k" => self.task(yield_among("yield1k", 1000, n)),
            "pingpong" => self.task(pingpong(n)),
            "chan_buf" => self.task(chan_buf(n)),
            "mpmc" => self.task(mpmc(n)),
            "mutex" => self.task(mutex(n)),
            "select" => self.task(select4(n)),
            "skynet" => self.task(skynet(n)),
            "ring" => self.task(ring(n)),
            "sieve" => self.task(sieve(n)),
            "fib" => self.task(fib27(n)),
            "timers" => self.task(timers(n)),
            "memory" => self.memory(n),
            "syscalls" => self.task(syscalls(n)),
            "echo" => self.task(echo(n)),
            "timer" => self.task(timer(n)),
            "wake" => self.task(wake(n)),
            "idle" => self.task(idle(n)),
            _ => unreachable!(),
        }
    }
}

impl Tokio {
    /// Runs it as a task of the runtime: a worker polls it, as everything else.
    fn task(&self, workload: impl Future<Output = ()> + Send + 'static) {
        self.0.block_on(self.0.spawn(workload)).unwrap();
    }
}

/// Go's wait group: counts down and wakes who waits.
struct Countdown {
    left: AtomicUsize,
    zero: Notify,
}

impl Countdown {
    fn new(left: usize) -> Arc<Countdown> {
        Arc::new(Countdown { left: AtomicUsize::new(left), zero: Notify::new() })
    }

    fn done(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.zero.notify_one();
        }
    }

    async fn wait(&self) {
        self.zero.notified().await;
        check(self.left.load(Ordering::Acquire) == 0, "countdown");
    }
}

// spawn_join and spawn_batch: tasks that do nothing, started by one and waited for.

async fn spawn_and_wait(n: usize) {
    let all = Countdown::new(n);
    for _ in 0..n {
        let all = all.clone();
        tokio::spawn(async move { all.done() });
    }
    all.wait().await;
}

async fn spawn_join(n: usize) {
    let start = Instant::now();
    spawn_and_wait(n).await;
    report_ns_each("spawn_join", start, n);
}

async fn spawn_batch(n: usize) {
    const BATCH: usize = 1000;
    let batches = share(n, BATCH);
    let start = Instant::now();
    for _ in 0..batches {
        spawn_and_wait(BATCH).await;
    }
    report_ns_each("spawn_batch", start, batches * BATCH);
}

// yield2 and yield1k: tasks that yield to each other.

async fn yield_among(name: &str, tasks: usize, n: usize) {
    let each = share(n, tasks);
    let all = Countdown::new(tasks);
    let start = Instant::now();
    for _ in 0..tasks {
        let all = all.clone();
        tokio::spawn(async move {
            for _ in 0..each {
                yield_now().await;
            }
            all.done();
        });
    }
    all.wait().await;
    report_ns_each(name, start, each * tasks);
}

// pingpong, chan_buf and mpmc: what a channel operation costs.

async fn pingpong(n: usize) {
    let (ping, mut pinged) = mpsc::channel(1);
    let (pong, mut ponged) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(ball) = pinged.recv().await {
            pong.send(ball + 1).await.unwrap();
        }
    });
    let mut ball = 0;
    let start = Instant::now();
    for _ in 0..n {
        ping.send(ball).await.unwrap();
        ball = ponged.recv().await.unwrap();
    }
    report_ns_each("pingpong", start, n);

    check(ball == n, "pingpong");
    drop(ping);
    check(ponged.recv().await.is_none(), "pingpong's end");
}

async fn chan_buf(n: usize) {
    let (items, mut received) = mpsc::channel(1024);
    let start = Instant::now();
    tokio::spawn(async move {
        for item in 1..=n {
            items.send(item).await.unwrap();
        }
    });
    let consumer = tokio::spawn(async move {
        let mut sum = 0;
        while let Some(item) = received.recv().await {
            sum += item;
        }
        sum
    });
    let sum = consumer.await.unwrap();
    report_ns_each("chan_buf", start, n);
    check(sum == sum_of(1, n), "chan_buf");
}

/// tokio has no channel with several receivers; async-channel is what its users take.
async fn mpmc(n: usize) {
    let each = share(n, 4);
    let (items, received) = async_channel::bounded(128);
    let start = Instant::now();
    for _ in 0..4 {
        let items = items.clone();
        tokio::spawn(async move {
            for item in 1..=each {
                items.send(item).await.unwrap();
            }
        });
    }
    drop(items);
    let consumers: Vec<_> = (0..4)
        .map(|_| {
            let received = received.clone();
            tokio::spawn(async move {
                let mut sum = 0;
                while let Ok(item) = received.recv().await {
                    sum += item;
                }
                sum
            })
        })
        .collect();
    let mut sum = 0;
    for consumer in consumers {
        sum += consumer.await.unwrap();
    }
    report_ns_each("mpmc", start, each * 4);
    check(sum == sum_of(4, each), "mpmc");
}

/// tokio's own mutex, which may be held across a wait as Go's may. Who never waits
/// while holding one takes std's: see the threads' figure.
async fn mutex(n: usize) {
    let each = share(n, 8);
    let value = Arc::new(Mutex::new(0));
    let all = Countdown::new(8);
    let start = Instant::now();
    for _ in 0..8 {
        let (value, all) = (value.clone(), all.clone());
        tokio::spawn(async move {
            for _ in 0..each {
                *value.lock().await += 1;
            }
            all.done();
        });
    }
    all.wait().await;
    report_ns_each("mutex", start, each * 8);
    check(*value.lock().await == each * 8, "mutex");
}

/// select: one task receives from four channels, each with a sender of its own.
async fn select4(n: usize) {
    let each = share(n, 4);
    let source = || {
        let (items, received) = mpsc::channel(1);
        tokio::spawn(async move {
            for item in 1..=each {
                items.send(item).await.unwrap();
            }
            items.closed().await;
        });
        received
    };
    let start = Instant::now();
    let (mut a, mut b, mut c, mut d) = (source(), source(), source(), source());
    let mut sum = 0;
    for _ in 0..4 * each {
        sum += tokio::select! {
            Some(item) = a.recv() => item,
            Some(item) = b.recv() => item,
            Some(item) = c.recv() => item,
            Some(item) = d.recv() => item,
        }
    }
    report_ns_each("select", start, 4 * each);
    check(sum == sum_of(4, each), "select");
}

// skynet: a tree of tasks, ten children each, a million leaves; the handle of each
// gives its sum.

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

fn grow(number: usize, size: usize) -> Boxed<usize> {
    Box::pin(async move {
        if size == 1 {
            return number;
        }
        let children: [_; 10] =
            std::array::from_fn(|i| tokio::spawn(grow(number + i * (size / 10), size / 10)));
        let mut sum = 0;
        for child in children {
            sum += child.await.unwrap();
        }
        sum
    })
}

async fn skynet(n: usize) {
    let start = Instant::now();
    for _ in 0..n {
        check(grow(0, SKYNET_LEAVES).await == SKYNET_SUM, "skynet");
    }
    report("skynet", ms_since(start) / n as f64, "ms");
}

/// ring: a token goes round a thousand tasks, of which this is one.
async fn ring(n: usize) {
    const TASKS: usize = 1000;
    let laps = share(n, TASKS);
    let start = Instant::now();
    let (first, mut last) = mpsc::channel(1);
    for _ in 1..TASKS {
        let (to_next, next) = mpsc::channel(1);
        let mut before = std::mem::replace(&mut last, next);
        tokio::spawn(async move {
            for _ in 0..laps {
                let token: usize = before.recv().await.unwrap();
                to_next.send(token + 1).await.unwrap();
            }
        });
    }
    let mut token = 0;
    for _ in 0..laps {
        first.send(token + 1).await.unwrap();
        token = last.recv().await.unwrap();
    }
    report_ns_each("ring", start, laps * TASKS);
    check(token == laps * TASKS, "ring");
}

/// sieve: the prime sieve, a task for each prime up to the 2000th.
async fn find_primes() -> (usize, usize) {
    let (generated, mut numbers) = mpsc::channel(1);
    tokio::spawn(async move {
        for i in 2..=LAST_PRIME {
            generated.send(i).await.unwrap();
        }
    });
    let (mut found, mut last) = (0, 0);
    while let Some(prime) = numbers.recv().await {
        let (out, filtered) = mpsc::channel(1);
        let mut before = std::mem::replace(&mut numbers, filtered);
        tokio::spawn(async move {
            while let Some(i) = before.recv().await {
                if i % prime != 0 {
                    out.send(i).await.unwrap();
                }
            }
        });
        found += 1;
        last = prime;
    }
    (found, last)
}

async fn sieve(n: usize) {
    let start = Instant::now();
    for _ in 0..n {
        check(find_primes().await == (PRIMES, LAST_PRIME), "sieve");
    }
    report("sieve", ms_since(start) / n as f64, "ms");
}

/// fib: a task for each left branch; its handle gives the value.
fn fib(n: u64) -> Boxed<u64> {
    Box::pin(async move {
        if n < 2 {
            return n;
        }
        let left = tokio::spawn(fib(n - 1));
        let right = fib(n - 2).await;
        left.await.unwrap() + right
    })
}

async fn fib27(n: usize) {
    let start = Instant::now();
    for _ in 0..n {
        check(fib(27).await == FIB_27, "fib");
    }
    report("fib", ms_since(start) / n as f64, "ms");
}

async fn timers(n: usize) {
    let all = Countdown::new(n);
    let cpu = cpu_seconds();
    let start = Instant::now();
    for index in 0..n {
        let all = all.clone();
        tokio::spawn(async move {
            for i in 0..10 {
                tokio::time::sleep(timers_ms(index, i)).await;
            }
            all.done();
        });
    }
    all.wait().await;
    report("timers", ms_since(start), "ms");
    report("timers.cpu", cpu_seconds() - cpu, "s");
}

// memory: what a parked task costs, what one costs that has not run yet, and how
// long a crowd takes to appear.

struct Crowd {
    gate: Notify,
    ready: Arc<Countdown>,
    gone: Arc<Countdown>,
}

impl Crowd {
    fn spawn_parked(n: usize) -> Arc<Crowd> {
        let (ready, gone) = (Countdown::new(n), Countdown::new(n));
        let crowd = Arc::new(Crowd { gate: Notify::new(), ready, gone });
        for _ in 0..n {
            let crowd = crowd.clone();
            tokio::spawn(async move {
                let mut open = pin!(crowd.gate.notified());
                open.as_mut().enable(); // in the list before it counts as ready
                crowd.ready.done();
                open.await;
                crowd.gone.done();
            });
        }
        crowd
    }
}

impl Tokio {
    fn memory(&self, n: usize) {
        // No other task runs before this task waits; the memory stays in use meanwhile.
        let one = Builder::new_current_thread().build().unwrap();
        let batch = share(n, 100);
        let (unstarted, first) = one.block_on(async {
            let before = resident_bytes();
            let crowd = Crowd::spawn_parked(batch);
            let bytes = resident_bytes() - before;
            check(crowd.ready.left.load(Ordering::Relaxed) == batch, "memory.unstarted");
            crowd.ready.wait().await;
            (bytes / batch as f64, crowd)
        });

        self.task(async move {
            let before = resident_bytes();
            let start = Instant::now();
            let crowd = Crowd::spawn_parked(n);
            crowd.ready.wait().await;
            let create = ms_since(start);
            report("memory", (resident_bytes() - before) / n as f64, "bytes");
            report("memory.create", create, "ms");
            report("memory.unstarted", unstarted, "bytes");

            crowd.gate.notify_waiters();
            crowd.gone.wait().await;
        });
        one.block_on(async {
            first.gate.notify_waiters();
            first.gone.wait().await;
        });
    }
}

/// syscalls: blocking calls go to spawn_blocking's threads; who computes yields
/// after each step, because nothing else makes it give way.
async fn syscalls(n: usize) {
    let whole_core = undisturbed_steps_per_ms();
    let stop = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let computers: Vec<_> = (0..2)
        .map(|_| {
            let stop = stop.clone();
            tokio::spawn(async move {
                let (mut steps, mut x) = (0, 1);
                while !stop.load(Ordering::Relaxed) {
                    x = step(x);
                    steps += 1;
                    yield_now().await;
                }
                SINK.fetch_xor(x, Ordering::Relaxed);
                steps
            })
        })
        .collect();
    let sleepers: Vec<_> = (0..4)
        .map(|_| {
            tokio::spawn(async move {
                for _ in 0..n {
                    tokio::task::spawn_blocking(blocking_ms).await.unwrap();
                }
            })
        })
        .collect();
    for sleeper in sleepers {
        sleeper.await.unwrap();
    }
    let ms = ms_since(start);
    stop.store(true, Ordering::Relaxed);
    let mut steps = 0;
    for computer in computers {
        steps += computer.await.unwrap();
    }
    let computing_ms = ms_since(start);
    report("syscalls", ms, "ms");
    report("syscalls.compute", f64::from(steps) / whole_core / computing_ms, "cores");
}

async fn echo(n: usize) {
    allow_many_files();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let open = Arc::new(AtomicUsize::new(0));
    let connections = open.clone();
    let acceptor = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            let connections = connections.clone();
            connections.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut block = [0; 4096];
                loop {
                    match socket.read(&mut block).await.unwrap() {
                        0 => break,
                        n => socket.write_all(&block[..n]).await.unwrap(),
                    }
                }
                connections.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    for connections in [1, 100, 1000] {
        tokio::task::spawn_blocking(move || load(port, connections, n)).await.unwrap();
    }
    while open.load(Ordering::Relaxed) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    acceptor.abort();
}

async fn timer(n: usize) {
    const SLEEP: Duration = Duration::from_millis(2);
    let mut late = Vec::with_capacity(n);
    for _ in 0..n {
        let start = Instant::now();
        tokio::time::sleep(SLEEP).await;
        late.push(late_by(SLEEP, start));
    }
    report_late("timer", late, 1e3, "us");
}

/// wake: a thread that is none of the runtime's sends to a task.
async fn wake(n: usize) {
    let (sender, mut receiver) = mpsc::channel(1);
    let (answer, answered) = std::sync::mpsc::channel();
    let waker = std::thread::spawn(move || {
        for _ in 0..n {
            std::thread::sleep(BEFORE_WAKE);
            sender.blocking_send(Instant::now()).unwrap();
            answered.recv().unwrap();
        }
    });
    let mut late = Vec::with_capacity(n);
    while let Some(sent) = receiver.recv().await {
        late.push(sent.elapsed().as_nanos());
        answer.send(()).unwrap();
    }
    waker.join().unwrap();
    check(late.len() == n, "wake");
    report_late("wake", late, 1e3, "us");
}

async fn idle(n: usize) {
    // So that all of the runtime has been awake before.
    let all = Countdown::new(1000);
    for _ in 0..1000 {
        let all = all.clone();
        tokio::spawn(async move {
            yield_now().await;
            all.done();
        });
    }
    all.wait().await;

    let cpu = cpu_seconds();
    let start = Instant::now();
    tokio::time::sleep(Duration::from_millis(n as u64)).await;
    report("idle", (cpu_seconds() - cpu) * 1e3 / ms_since(start) * 100.0, "%");
}
