//! The ring of a P's run queue, and the queue of a node, against crossbeam-deque: README.md.
//!
//! All sides take turns, round after round. Where one thread works the clock is its CPU time, and where several do
//! that of the process, so that other programs cost them nothing but caches.

use crossbeam_deque::{Injector, Steal, Stealer, Worker};
use queues::Ring;
use queues::os::spin::{SpinLock, backoff};
use std::cell::UnsafeCell;
use std::hint::{black_box, spin_loop};
use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

// ---- The queues, as a P's owner uses them ----

/// What an owner does. `SHARED`: thieves may come, so the owner looks for them.
trait Queue: Sync {
    const NAME: &'static str;
    fn new() -> Self;
    /// False: it is full.
    fn push(&self, entry: usize) -> bool;
    fn pop(&self) -> Option<usize>;
    /// Makes room by giving the older half away, if it has a bound.
    fn spill(&self, to: &mut dyn FnMut(usize));
    /// Moves half of the entries to `into`, which the caller owns, less one: that it gives.
    fn steal_half(&self, into: &Self) -> Option<usize>;
    fn len(&self) -> usize;
}

struct RingLifo(Ring);
struct RingFifo(Ring);

macro_rules! ring {
    ($type:ident, $name:literal, $pop:ident) => {
        impl Queue for $type {
            const NAME: &'static str = $name;
            fn new() -> Self {
                $type(Ring::new(1024))
            }
            #[inline(always)]
            fn push(&self, entry: usize) -> bool {
                self.0.push(entry)
            }
            #[inline(always)]
            fn pop(&self) -> Option<usize> {
                self.0.$pop(false)
            }
            fn spill(&self, to: &mut dyn FnMut(usize)) {
                let mut round = 0;
                while self.0.drain_half(&mut *to) == 0 {
                    round += 1;
                    backoff(round); // a thief is at it
                }
            }
            #[inline(always)]
            fn steal_half(&self, into: &Self) -> Option<usize> {
                self.0.steal_half(&into.0).map(|(first, _)| first)
            }
            fn len(&self) -> usize {
                self.0.len()
            }
        }
    };
}
ring!(RingLifo, "ring, LIFO", pop_back);
ring!(RingFifo, "ring, FIFO", pop_front);

/// The ring where its owner knows that there are no thieves (one P): it leaves out the fences.
struct RingAlone(Ring);

impl Queue for RingAlone {
    const NAME: &'static str = "ring, LIFO, alone";
    fn new() -> Self {
        RingAlone(Ring::new(1024))
    }
    #[inline(always)]
    fn push(&self, entry: usize) -> bool {
        self.0.push(entry)
    }
    #[inline(always)]
    fn pop(&self) -> Option<usize> {
        self.0.pop_back(true)
    }
    fn spill(&self, to: &mut dyn FnMut(usize)) {
        self.0.drain_half(to);
    }
    fn steal_half(&self, _: &Self) -> Option<usize> {
        None
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}

/// A worker and its stealer. SAFETY of `Sync`: only the owner touches the worker; the measurements see to it.
struct Deque(Worker<usize>, Stealer<usize>);
struct DequeLifo(Deque);
struct DequeFifo(Deque);
unsafe impl Sync for Deque {}

macro_rules! deque {
    ($type:ident, $name:literal, $new:ident) => {
        impl Queue for $type {
            const NAME: &'static str = $name;
            fn new() -> Self {
                let worker = Worker::$new();
                let stealer = worker.stealer();
                $type(Deque(worker, stealer))
            }
            #[inline(always)]
            fn push(&self, entry: usize) -> bool {
                self.0.0.push(entry);
                true
            }
            #[inline(always)]
            fn pop(&self) -> Option<usize> {
                self.0.0.pop()
            }
            fn spill(&self, _: &mut dyn FnMut(usize)) {}
            #[inline(always)]
            fn steal_half(&self, into: &Self) -> Option<usize> {
                // Its own limit is 32.
                match self.0.1.steal_batch_with_limit_and_pop(&into.0.0, 512) {
                    Steal::Success(first) => Some(first),
                    _ => None,
                }
            }
            fn len(&self) -> usize {
                self.0.1.len()
            }
        }
    };
}
deque!(DequeLifo, "crossbeam, LIFO", new_lifo);
deque!(DequeFifo, "crossbeam, FIFO", new_fifo);

// ---- The queue of a node ----

/// As the library's `task::Fifo`: a list through the tasks, under a spin lock.
struct Node {
    lock: SpinLock,
    ends: UnsafeCell<(*mut Linked, *mut Linked)>,
}

struct Linked {
    next: *mut Linked,
    entry: usize,
}

// SAFETY: `ends` is only used with the lock held.
unsafe impl Sync for Node {}

impl Node {
    fn new() -> Node {
        Node { lock: SpinLock::new(), ends: UnsafeCell::new((ptr::null_mut(), ptr::null_mut())) }
    }

    fn push(&self, task: *mut Linked) {
        self.lock.with(|| {
            // SAFETY: the lock is held, and the task is the caller's until it is in the list.
            unsafe {
                let ends = &mut *self.ends.get();
                (*task).next = ptr::null_mut();
                if ends.1.is_null() {
                    ends.0 = task;
                } else {
                    (*ends.1).next = task;
                }
                ends.1 = task;
            }
        });
    }

    fn pop(&self) -> Option<usize> {
        self.lock.with(|| {
            // SAFETY: the lock is held; tasks in the list are there.
            unsafe {
                let ends = &mut *self.ends.get();
                let first = ends.0.as_mut()?;
                ends.0 = first.next;
                if ends.0.is_null() {
                    ends.1 = ptr::null_mut();
                }
                Some(first.entry)
            }
        })
    }
}

// ---- Clocks and figures ----

fn clock(which: libc::clockid_t) -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is there.
    unsafe { libc::clock_gettime(which, &mut t) };
    t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
}

/// CPU time of this thread, in ns.
fn thread_ns() -> f64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of all threads, in ns.
fn process_ns() -> f64 {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// One side of a measurement: its name, and what one round of it gives.
type Side<'a> = (&'static str, Box<dyn Fn() -> f64 + 'a>);

/// All sides in turn; a line for each with the least, the median, and the ratio to the first of both.
fn in_turn(rounds: usize, title: &str, unit: &str, sides: &[Side]) {
    let mut figures = vec![Vec::new(); sides.len()];
    for round in 0..=rounds {
        for (side, figures) in sides.iter().zip(&mut figures) {
            let figure = side.1();
            if round > 0 {
                figures.push(figure); // the first one warms up
            }
        }
    }
    for f in &mut figures {
        f.sort_by(f64::total_cmp);
    }
    let (least, median) = (figures[0][0], figures[0][rounds / 2]);
    for (k, (side, f)) in sides.iter().zip(&figures).enumerate() {
        let ratio = if k == 0 {
            "".into()
        } else {
            format!("{:.2} ({:.2})", f[0] / least, f[rounds / 2] / median)
        };
        println!("| {title} | {} | {:.2} ({:.2}) {unit} | {ratio} |", side.0, f[0], f[rounds / 2]);
    }
}

// ---- (1) push and pop alone, (2) with an idle thief ----

const BATCH: usize = 64;
const PAIRS: usize = 200_000;

fn push_and_pop<Q: Queue>(queue: &Q) -> f64 {
    let start = thread_ns();
    for _ in 0..PAIRS / BATCH {
        for entry in 1..=BATCH {
            queue.push(black_box(entry));
        }
        for _ in 0..BATCH {
            black_box(queue.pop());
        }
    }
    (thread_ns() - start) / PAIRS as f64
}

fn alone<Q: Queue>() -> Side<'static> {
    (Q::NAME, Box::new(|| push_and_pop(&Q::new())))
}

/// The thief looks each 5 us or so at a queue in which it finds nothing as a rule, as a P without work does.
fn beside_a_thief<Q: Queue>() -> Side<'static> {
    let round = || {
        let (queue, over) = (Q::new(), AtomicBool::new(false));
        std::thread::scope(|s| {
            s.spawn(|| {
                let mine = Q::new();
                while !over.load(Ordering::Relaxed) {
                    if queue.len() > BATCH {
                        black_box(queue.steal_half(&mine)); // never: the compiler doesn't know
                    }
                    (0..150).for_each(|_| spin_loop());
                }
            });
            let ns = push_and_pop(&queue);
            over.store(true, Ordering::Relaxed);
            ns
        })
    };
    (Q::NAME, Box::new(round))
}

// ---- (3) stealing half ----

/// CPU time for one theft of half of `n` entries.
fn theft<Q: Queue>(n: usize) -> Side<'static> {
    let round = move || {
        let thief = Q::new();
        let victims: Vec<Q> = (0..200).map(|_| Q::new()).collect();
        for victim in &victims {
            (1..=n).for_each(|entry| assert!(victim.push(entry)));
        }
        let mut ns = 0.0;
        for victims in victims.chunks(8) {
            let start = thread_ns();
            for victim in victims {
                assert!(black_box(victim.steal_half(&thief)).is_some());
                // What was stolen is run: else a FIFO victim's thief would grow.
                if thief.len() > 256 {
                    while thief.pop().is_some() {}
                }
            }
            ns += thread_ns() - start;
            while thief.pop().is_some() {}
        }
        assert!(victims.iter().all(|v| v.len() == n / 2));
        ns / victims.len() as f64
    };
    (Q::NAME, Box::new(round))
}

// ---- (4) a burst and its drain ----

const BURST: usize = 100_000;

fn burst<Q: Queue>() -> Side<'static> {
    let round = || {
        let (queue, node) = (Q::new(), Node::new());
        let mut tasks: Vec<Linked> =
            (0..=BURST).map(|entry| Linked { next: ptr::null_mut(), entry }).collect();
        let tasks = tasks.as_mut_ptr();
        let mut sum = 0;
        let start = thread_ns();
        for entry in 1..=BURST {
            while !queue.push(entry) {
                // SAFETY: entries are places in `tasks`.
                queue.spill(&mut |entry| node.push(unsafe { tasks.add(entry) }));
            }
        }
        while let Some(entry) = queue.pop().or_else(|| node.pop()) {
            sum += entry;
        }
        let ns = (thread_ns() - start) / BURST as f64;
        assert_eq!(sum, BURST * (BURST + 1) / 2);
        ns
    };
    (Q::NAME, Box::new(round))
}

// ---- (5) the owner while thieves lose their CPU in the middle of a theft ----

fn on_cpu(cpu: usize) {
    // SAFETY: a set of CPUs of this thread's.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// The owner on CPU 0, three thieves on CPU 1, where at most one runs at a time. Gives the 99.9th percentile of the
/// owner's operations in ns, or the greatest.
fn owner_beside_descheduled_thieves<Q: Queue>(quantile: f64) -> Side<'static> {
    let round = move || {
        let (queue, over, barrier) = (Q::new(), AtomicBool::new(false), Barrier::new(4));
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    on_cpu(1);
                    let mine = Q::new();
                    barrier.wait();
                    while !over.load(Ordering::Relaxed) {
                        queue.steal_half(&mine);
                        while mine.pop().is_some() {}
                    }
                });
            }
            let owner = s.spawn(|| {
                on_cpu(0);
                barrier.wait();
                let mut took = Vec::with_capacity(300_000);
                while took.len() < 300_000 {
                    for entry in 1..=8 {
                        queue.push(entry);
                    }
                    for _ in 0..8 {
                        let start = Instant::now();
                        black_box(queue.pop());
                        took.push(start.elapsed().as_nanos() as f64);
                    }
                }
                over.store(true, Ordering::Relaxed);
                took.sort_by(f64::total_cmp);
                took[((took.len() - 1) as f64 * quantile) as usize]
            });
            owner.join().unwrap()
        })
    };
    (Q::NAME, Box::new(round))
}

// ---- (6) the node's queue ----

/// CPU time of all threads for one task that `producers` push and two consumers take.
fn node(producers: usize, ours: bool) -> Side<'static> {
    const EACH: usize = 50_000;
    let round = move || {
        let (node, injector, taken) = (Node::new(), Injector::new(), AtomicUsize::new(0));
        let (node, injector, taken) = (&node, &injector, &taken);
        let all = producers * EACH;
        let mut tasks: Vec<Linked> =
            (0..all).map(|entry| Linked { next: ptr::null_mut(), entry }).collect();
        let tasks = tasks.as_mut_ptr() as usize;
        let start = process_ns();
        std::thread::scope(|s| {
            for p in 0..producers {
                s.spawn(move || {
                    for entry in p * EACH..(p + 1) * EACH {
                        if ours {
                            // SAFETY: a place in `tasks`, which no other thread pushes.
                            node.push(unsafe { (tasks as *mut Linked).add(entry) });
                        } else {
                            injector.push(entry);
                        }
                    }
                });
            }
            for _ in 0..2 {
                s.spawn(move || {
                    let mut round = 0;
                    while taken.load(Ordering::Relaxed) < all {
                        let got = if ours {
                            node.pop()
                        } else {
                            match injector.steal() {
                                Steal::Success(entry) => Some(entry),
                                _ => None,
                            }
                        };
                        if got.is_some() {
                            taken.fetch_add(1, Ordering::Relaxed);
                            round = 0;
                        } else {
                            round += 1;
                            backoff(round);
                        }
                    }
                });
            }
        });
        (process_ns() - start) / all as f64
    };
    (if ours { "list under a spin lock" } else { "crossbeam, Injector" }, Box::new(round))
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(Ok(30), |n| n.parse());
    let Some(rounds) = rounds.ok().filter(|n| *n > 0) else {
        eprintln!("usage: queues [ROUNDS]");
        std::process::exit(2);
    };
    println!("| | | least (median) | ratio to the first, of the least (of the medians) |");
    println!("| --- | --- | ---: | ---: |");
    let sides = [alone::<RingLifo>(), alone::<DequeLifo>(), alone::<RingAlone>()];
    in_turn(rounds, "1. push and pop, newest first", "ns", &sides);
    in_turn(
        rounds,
        "1. push and pop, oldest first",
        "ns",
        &[alone::<RingFifo>(), alone::<DequeFifo>()],
    );
    let sides = [beside_a_thief::<RingLifo>(), beside_a_thief::<DequeLifo>()];
    in_turn(rounds, "2. beside an idle thief, newest first", "ns", &sides);
    let sides = [beside_a_thief::<RingFifo>(), beside_a_thief::<DequeFifo>()];
    in_turn(rounds, "2. beside an idle thief, oldest first", "ns", &sides);
    for n in [8, 64, 512] {
        let sides = [theft::<RingLifo>(n), theft::<DequeLifo>(n), theft::<DequeFifo>(n)];
        in_turn(rounds, &format!("3. stealing half of {n}"), "ns", &sides);
    }
    let sides = [burst::<RingLifo>(), burst::<DequeLifo>(), burst::<DequeFifo>()];
    in_turn(rounds, "4. a burst of 100,000 and its drain, an entry", "ns", &sides);
    for (name, quantile) in [("p50", 0.5), ("p99.9", 0.999), ("greatest", 1.0)] {
        let sides = [
            owner_beside_descheduled_thieves::<RingLifo>(quantile),
            owner_beside_descheduled_thieves::<DequeLifo>(quantile),
            owner_beside_descheduled_thieves::<RingFifo>(quantile),
            owner_beside_descheduled_thieves::<DequeFifo>(quantile),
        ];
        in_turn(
            rounds,
            &format!("5. the owner's pop beside descheduled thieves, {name}"),
            "ns",
            &sides,
        );
    }
    for producers in [1, 4] {
        let sides = [node(producers, true), node(producers, false)];
        in_turn(
            rounds,
            &format!("6. the node's queue, {producers} producers, 2 consumers, a task"),
            "ns",
            &sides,
        );
    }
}
