//! Plain threads with crossbeam's channels and std's mutex: what a program does
//! that has no scheduler of its own. Only workloads for which a thread for each
//! task makes sense.
//!
//! The number of processors is the number of CPUs that the process may use.

use crossbeam_channel::{Receiver, Sender, bounded, select};
use rustbench::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

struct Threads {
    /// The CPUs that the process had before.
    all_cpus: libc::cpu_set_t,
}

fn main() {
    rustbench::main::<Threads>();
}

impl Peer for Threads {
    const PROGRAM: &str = "threadbench";
    const WORKLOADS: &[&str] = &[
        "yield2", "yield1k", "pingpong", "chan_buf", "mpmc", "mutex", "select", "ring", "syscalls",
        "echo", "timer", "preempt", "wake",
    ];

    fn start(procs: usize, _workload: &str) -> Threads {
        let all_cpus = cpus();
        use_cpus(&all_cpus, procs);
        Threads { all_cpus }
    }

    fn run(&self, workload: &str, n: usize) {
        match workload {
            "yield2" => yield_among("yield2", 2, n),
            "yield1k" => yield_among("yield1k", 1000, n),
            "pingpong" => pingpong(n),
            "chan_buf" => produce_and_consume("chan_buf", 1, 1024, n),
            "mpmc" => produce_and_consume("mpmc", 4, 128, n),
            "mutex" => mutex(n),
            "select" => select4(n),
            "ring" => ring(n),
            "syscalls" => syscalls(n),
            "echo" => self.echo(n),
            "timer" => timer(n),
            "preempt" => self.preempt(n),
            "wake" => wake(n),
            _ => unreachable!(),
        }
    }
}

fn cpus() -> libc::cpu_set_t {
    // SAFETY: sched_getaffinity fills the set in.
    unsafe {
        let mut set = std::mem::zeroed();
        check(libc::sched_getaffinity(0, size_of_val(&set), &mut set) == 0, "sched_getaffinity");
        set
    }
}

/// This thread, and those that it starts from now on, run on the first `most` of them.
fn use_cpus(of: &libc::cpu_set_t, most: usize) {
    // SAFETY: the sets are initialised and CPU numbers lie within them.
    unsafe {
        let mut some: libc::cpu_set_t = std::mem::zeroed();
        (0..libc::CPU_SETSIZE as usize)
            .filter(|&cpu| libc::CPU_ISSET(cpu, of))
            .take(most)
            .for_each(|cpu| libc::CPU_SET(cpu, &mut some));
        check(libc::sched_setaffinity(0, size_of_val(&some), &some) == 0, "sched_setaffinity");
    }
}

// yield2 and yield1k: threads that yield to each other.

fn yield_among(name: &str, threads: usize, n: usize) {
    let each = share(n, threads);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..each).for_each(|_| thread::yield_now()));
        }
    });
    report_ns_each(name, start, each * threads);
}

// pingpong, chan_buf and mpmc: what a channel operation costs.

fn pingpong(n: usize) {
    let (ping, pinged) = bounded(0);
    let (pong, ponged) = bounded(0);
    let ponger = thread::spawn(move || pinged.iter().for_each(|ball| pong.send(ball + 1).unwrap()));
    let mut ball = 0;
    let start = Instant::now();
    for _ in 0..n {
        ping.send(ball).unwrap();
        ball = ponged.recv().unwrap();
    }
    report_ns_each("pingpong", start, n);

    check(ball == n, "pingpong");
    drop(ping);
    ponger.join().unwrap();
}

fn produce_and_consume(name: &str, on_each_side: usize, capacity: usize, n: usize) {
    let each = share(n, on_each_side);
    let sum = AtomicUsize::new(0);
    let (items, received) = bounded(capacity);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..on_each_side {
            let (items, received, sum) = (items.clone(), received.clone(), &sum);
            scope.spawn(move || (1..=each).for_each(|item| items.send(item).unwrap()));
            scope.spawn(move || sum.fetch_add(received.iter().sum(), Ordering::Relaxed));
        }
        drop(items);
    });
    report_ns_each(name, start, each * on_each_side);
    check(sum.into_inner() == sum_of(on_each_side, each), name);
}

fn mutex(n: usize) {
    let each = share(n, 8);
    let value = Mutex::new(0);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..each).for_each(|_| *value.lock().unwrap() += 1));
        }
    });
    report_ns_each("mutex", start, each * 8);
    check(value.into_inner().unwrap() == each * 8, "mutex");
}

/// select: one thread receives from four unbuffered channels, each with a sender
/// of its own.
fn select4(n: usize) {
    let each = share(n, 4);
    let source = || {
        let (items, received) = bounded(0);
        thread::spawn(move || {
            (1..=each).for_each(|item| items.send(item).unwrap());
            thread::park(); // a closed channel would be chosen again and again
        });
        received
    };
    let start = Instant::now();
    let (a, b, c, d) = (source(), source(), source(), source());
    let mut sum = 0;
    for _ in 0..4 * each {
        sum += select! {
            recv(a) -> item => item.unwrap(),
            recv(b) -> item => item.unwrap(),
            recv(c) -> item => item.unwrap(),
            recv(d) -> item => item.unwrap(),
        }
    }
    report_ns_each("select", start, 4 * each);
    check(sum == sum_of(4, each), "select");
}

/// ring: a token goes round a thousand threads, of which this is one.
fn ring(n: usize) {
    const THREADS: usize = 1000;
    let laps = share(n, THREADS);
    let channels: Vec<(Sender<usize>, Receiver<usize>)> =
        (0..THREADS).map(|_| bounded(0)).collect();
    let start = Instant::now();
    thread::scope(|scope| {
        for i in 1..THREADS {
            let (before, next) = (&channels[i - 1].1, &channels[i].0);
            scope.spawn(move || {
                (0..laps).for_each(|_| next.send(before.recv().unwrap() + 1).unwrap())
            });
        }
        let mut token = 0;
        for _ in 0..laps {
            channels[0].0.send(token + 1).unwrap();
            token = channels[THREADS - 1].1.recv().unwrap();
        }
        check(token == laps * THREADS, "ring");
    });
    report_ns_each("ring", start, laps * THREADS);
}

fn syscalls(n: usize) {
    let whole_core = undisturbed_steps_per_ms();
    let (stop, steps) = (AtomicBool::new(false), AtomicUsize::new(0));
    let start = Instant::now();
    let mut ms = 0.0;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut done, mut x) = (0, 1);
                while !stop.load(Ordering::Relaxed) {
                    x = step(x);
                    done += 1;
                }
                SINK.fetch_xor(x, Ordering::Relaxed);
                steps.fetch_add(done, Ordering::Relaxed);
            });
        }
        let sleep = || (0..n).for_each(|_| blocking_ms());
        for sleeper in [(); 4].map(|()| scope.spawn(sleep)) {
            sleeper.join().unwrap();
        }
        ms = ms_since(start);
        stop.store(true, Ordering::Relaxed);
    });
    let computing_ms = ms_since(start);
    report("syscalls", ms, "ms");
    report("syscalls.compute", steps.into_inner() as f64 / whole_core / computing_ms, "cores");
}

impl Threads {
    /// echo: a thread for each connection. The load may use all CPUs, as with every peer.
    fn echo(&self, n: usize) {
        allow_many_files();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                socket.set_nodelay(true).unwrap();
                thread::spawn(move || {
                    let mut block = [0; 4096];
                    loop {
                        match socket.read(&mut block).unwrap() {
                            0 => break,
                            n => socket.write_all(&block[..n]).unwrap(),
                        }
                    }
                });
            }
        });
        let all_cpus = self.all_cpus;
        for connections in [1, 100, 1000] {
            load_with(port, connections, n, |command| {
                // SAFETY: makes one system call.
                unsafe {
                    command.pre_exec(move || {
                        use_cpus(&all_cpus, usize::MAX);
                        Ok(())
                    })
                };
            });
        }
    }

    /// preempt: a sleeper beside an endless loop, both on one CPU.
    fn preempt(&self, n: usize) {
        let before = cpus();
        use_cpus(&before, 1);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    count += 1;
                }
                SINK.fetch_xor(count, Ordering::Relaxed);
            });
            report_late("preempt", sleep_late(n, Duration::from_millis(1)), 1e6, "ms");
            stop.store(true, Ordering::Relaxed);
        });
        use_cpus(&before, usize::MAX);
    }
}

fn timer(n: usize) {
    report_late("timer", sleep_late(n, Duration::from_millis(2)), 1e3, "us");
}

fn sleep_late(n: usize, duration: Duration) -> Vec<u128> {
    (0..n)
        .map(|_| {
            let start = Instant::now();
            thread::sleep(duration);
            late_by(duration, start)
        })
        .collect()
}

/// wake: one thread sends to another.
fn wake(n: usize) {
    let (sender, receiver) = bounded(1);
    let (answer, answered) = bounded(1);
    let waker = thread::spawn(move || {
        for _ in 0..n {
            thread::sleep(BEFORE_WAKE);
            sender.send(Instant::now()).unwrap();
            answered.recv().unwrap();
        }
    });
    let mut late = Vec::with_capacity(n);
    for sent in &receiver {
        late.push(sent.elapsed().as_nanos());
        answer.send(()).unwrap();
    }
    waker.join().unwrap();
    check(late.len() == n, "wake");
    report_late("wake", late, 1e3, "us");
}
