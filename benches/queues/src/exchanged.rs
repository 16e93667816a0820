//! `sched::prim::ring` by crossbeam-deque, for `benches/queues/exchange`, which puts it in the place of
//! `src/sched/prim/ring.rs` in a copy of the library. Only for measuring: it aborts where the ring reports
//! that there is no memory, and a child of fork must not use it.

use crossbeam_deque::{Steal, Stealer, Worker};

/// As `prim::ring::Ring`, without a bound.
pub struct Ring {
    /// Only its owner calls what takes or gives entries.
    worker: Worker<usize>,
    stealer: Stealer<usize>,
    lifo: bool,
}

// SAFETY: `worker` is used by the P's owner alone, one thread at a time; others use `stealer`.
unsafe impl Sync for Ring {}

/// As `prim::ring::Taken`; positions are unknown.
pub struct Taken {
    pub entry: usize,
    pub at: u32,
    pub left: u32,
}

impl Ring {
    /// The owner takes the newest; the oldest by stealing from itself.
    pub fn new(_: usize) -> Ring {
        let worker = Worker::new_lifo();
        Ring { stealer: worker.stealer(), worker, lifo: true }
    }

    /// The owner takes the oldest.
    pub fn new_fifo(_: usize) -> Ring {
        let worker = Worker::new_fifo();
        Ring { stealer: worker.stealer(), worker, lifo: false }
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.stealer.is_empty()
    }

    #[inline(always)]
    pub fn push(&self, entry: usize) -> bool {
        self.worker.push(entry);
        true
    }

    pub fn len(&self) -> usize {
        self.stealer.len()
    }

    /// No hint.
    pub fn oldest(&self, _: u32) -> usize {
        0
    }

    /// No hint.
    #[inline(always)]
    pub fn at(&self, _: u32) -> usize {
        0
    }

    #[allow(dead_code)]
    pub fn room(&self) -> usize {
        usize::MAX
    }

    #[inline(always)]
    pub fn pop_back(&self, _: bool) -> Option<usize> {
        self.worker.pop()
    }

    #[inline(always)]
    pub fn take_back(&self, _: bool) -> Option<Taken> {
        self.worker.pop().map(|entry| Taken { entry, at: 0, left: 0 })
    }

    #[inline(always)]
    pub fn pop_front(&self, _: bool) -> Option<usize> {
        if !self.lifo {
            return self.worker.pop();
        }
        loop {
            match self.stealer.steal() {
                Steal::Success(entry) => return Some(entry),
                Steal::Empty => return None,
                Steal::Retry => {}
            }
        }
    }

    #[inline(always)]
    pub fn take_front(&self, alone: bool) -> Option<Taken> {
        self.pop_front(alone).map(|entry| Taken { entry, at: 0, left: 0 })
    }

    #[inline(always)]
    pub fn rotate(&self, entry: usize) -> Option<Taken> {
        let taken = self.take_front(true)?;
        self.worker.push(entry);
        Some(taken)
    }

    pub fn steal_half(&self, into: &Ring) -> Option<(usize, usize)> {
        match self.stealer.steal_batch_with_limit_and_pop(&into.worker, 512) {
            Steal::Success(entry) => Some((entry, into.len() + 1)),
            Steal::Empty | Steal::Retry => None,
        }
    }

    pub fn drain_half(&self, mut take: impl FnMut(usize)) -> usize {
        let n = self.len() - self.len() / 2;
        (0..n).map_while(|_| self.pop_front(false)).map(&mut take).count()
    }
}
