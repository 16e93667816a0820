//! Random operations on the ring and on crossbeam's deque, which must give the same entries. The
//! deque has no bound and steals one at a time; the reference does what the ring promises with it.

use crossbeam_deque::{Steal, Stealer, Worker};
use queues::Ring;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// splitmix64
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// What a ring of some capacity should hold.
struct Reference {
    worker: Worker<usize>,
    stealer: Stealer<usize>,
    capacity: usize,
}

impl Reference {
    fn new(capacity: usize) -> Reference {
        let worker = Worker::new_lifo();
        Reference { stealer: worker.stealer(), worker, capacity }
    }

    fn len(&self) -> usize {
        self.worker.len()
    }

    fn push(&self, entry: usize) -> bool {
        let room = self.len() < self.capacity;
        if room {
            self.worker.push(entry);
        }
        room
    }

    fn oldest(&self) -> Option<usize> {
        match self.stealer.steal() {
            Steal::Success(entry) => Some(entry),
            Steal::Empty => None,
            Steal::Retry => unreachable!("no other thread is there"),
        }
    }

    fn steal_half(&self, into: &Reference) -> Option<(usize, usize)> {
        let n = (self.len() - self.len() / 2).min(into.capacity - into.len() + 1);
        let first = self.oldest()?;
        for _ in 1..n {
            into.worker.push(self.oldest().unwrap());
        }
        Some((first, n))
    }
}

/// Two rings, each the other's victim, one operation after the other. Gives how many had a result.
fn compare(seed: u64, capacities: [usize; 2], steps: usize) -> usize {
    let mut random = Random(seed);
    let rings = capacities.map(Ring::new);
    let references = capacities.map(Reference::new);
    let mut next = 1;
    let mut results = 0;
    // Whether it grows or shrinks changes every now and then, so that it gets full and empty.
    let mut grows = 50;
    for step in 0..steps {
        let (a, b) = if random.below(2) == 0 { (0, 1) } else { (1, 0) };
        let (ring, reference) = (&rings[a], &references[a]);
        let said = format!("seed {seed}, capacities {capacities:?}, step {step}");
        if random.below(64) == 0 {
            grows = 10 + random.below(80);
        }
        let alone = random.below(2) == 0;
        if random.below(100) < grows {
            assert_eq!(ring.push(next), reference.push(next), "{said}: push");
            next += 1;
        } else {
            let (got, want) = match random.below(7) {
                0..=2 => (ring.pop_back(alone), reference.worker.pop()),
                3 => (ring.pop_front(alone), reference.oldest()),
                4 => {
                    let got = ring.steal_half(&rings[b]);
                    assert_eq!(got, reference.steal_half(&references[b]), "{said}: steal_half");
                    (got.map(|g| g.0), got.map(|g| g.0))
                }
                5 => {
                    let mut out = Vec::new();
                    let n = ring.drain_half(|entry| out.push(entry));
                    let wanted = reference.len() - reference.len() / 2;
                    let want: Vec<_> = (0..wanted).map(|_| reference.oldest().unwrap()).collect();
                    assert_eq!((n, &out), (want.len(), &want), "{said}: drain_half");
                    (out.first().copied(), want.first().copied())
                }
                _ => {
                    // Takes the oldest and appends, if there is one, and room for one more.
                    let possible = reference.len() > 0 && reference.len() < reference.capacity;
                    let want = possible.then(|| {
                        reference.worker.push(next);
                        reference.oldest().unwrap()
                    });
                    let got = ring.rotate(next).map(|taken| taken.entry);
                    next += 1;
                    (got, want)
                }
            };
            assert_eq!(got, want, "{said}");
            results += usize::from(got.is_some());
        }
        for i in 0..2 {
            assert_eq!(rings[i].len(), references[i].len(), "{said}: length");
            assert_eq!(rings[i].room(), capacities[i] - references[i].len(), "{said}: room");
            assert_eq!(rings[i].is_empty(), references[i].len() == 0, "{said}: is it empty?");
        }
    }
    results
}

#[test]
fn random_operations_give_what_crossbeam_gives() {
    for seed in 0..300 {
        for capacities in [[1, 2], [4, 4], [8, 64], [1024, 256]] {
            let results = compare(seed, capacities, 2000);
            assert!(results > 100, "seed {seed}, {capacities:?}: only {results} had a result");
        }
    }
}

/// An owner and thieves at the same time: of both queues each entry comes out once, and what a
/// thief gets from one victim it gets in the order in which that was pushed.
#[test]
fn with_thieves_each_entry_comes_out_once_of_both() {
    const ENTRIES: usize = 300_000;
    const THIEVES: usize = 3;
    let ring = Ring::new(256);
    let worker = Worker::new_lifo();
    let stealer: Stealer<usize> = worker.stealer();
    let over = AtomicBool::new(false);
    let all = Mutex::new([Vec::new(), Vec::new()]);
    std::thread::scope(|s| {
        for _ in 0..THIEVES {
            s.spawn(|| {
                let (mine, other) = (Ring::new(256), Worker::new_fifo());
                let mut got = [Vec::new(), Vec::new()];
                let mut last = 0;
                while !over.load(Ordering::Relaxed) {
                    if let Some((first, _)) = ring.steal_half(&mine) {
                        let mut batch = vec![first];
                        batch.extend(std::iter::from_fn(|| mine.pop_front(true)));
                        assert!(batch.is_sorted(), "a claim in another order: {batch:?}");
                        assert!(batch[0] > last, "older than what was stolen before");
                        last = *batch.last().unwrap();
                        got[0].append(&mut batch);
                    }
                    if let Steal::Success(first) = stealer.steal_batch_and_pop(&other) {
                        got[1].push(first);
                        got[1].extend(std::iter::from_fn(|| other.pop()));
                    }
                }
                let mut all = all.lock().unwrap();
                all[0].append(&mut got[0]);
                all[1].append(&mut got[1]);
            });
        }
        let mut random = Random(7);
        let mut kept = [Vec::new(), Vec::new()];
        for entry in 1..=ENTRIES {
            while !ring.push(entry) {
                kept[0].extend(ring.pop_back(false));
            }
            worker.push(entry);
            if random.below(3) > 0 {
                kept[0].extend(ring.pop_back(false));
                kept[1].extend(worker.pop());
            }
        }
        kept[0].extend(std::iter::from_fn(|| ring.pop_back(false)));
        kept[1].extend(std::iter::from_fn(|| worker.pop()));
        over.store(true, Ordering::Relaxed);
        let mut all = all.lock().unwrap();
        all[0].append(&mut kept[0]);
        all[1].append(&mut kept[1]);
    });
    for (which, entries) in ["the ring", "crossbeam"].iter().zip(all.into_inner().unwrap()) {
        assert_eq!(entries.len(), ENTRIES, "{which}");
        assert_eq!(entries.iter().collect::<HashSet<_>>().len(), ENTRIES, "{which}: twice");
    }
}
