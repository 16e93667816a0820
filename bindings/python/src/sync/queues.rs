//! A state, and queues of goroutines and threads that wait for it to change.

use crate::ffi::*;
use crate::forks;
use crate::shared::Shared;
use pyo3::prelude::*;

/// A queue of goroutines and threads that wait.
struct Waiters {
    /// How many wait, or have been woken and have not entered Python yet.
    count: u32,
    /// How many of `count` have been woken.
    woken: u32,
    /// Each waiter that is woken gets a unit.
    sem: gs_sem,
}

impl Waiters {
    const fn new() -> Waiters {
        Waiters { count: 0, woken: 0, sem: gs_sem::new() }
    }

    /// How many wait and have not been woken.
    fn waiting(&self) -> u32 {
        self.count - self.woken
    }

    /// The address of the queue's semaphore.
    fn semaphore(&mut self) -> usize {
        &raw mut self.sem as usize
    }
}

/// What `Queues` guards.
struct Queued<S, const N: usize> {
    state: S,
    queues: [Waiters; N],
    /// The `forks::count` of the process whose waiters these are.
    forks: u32,
}

/// A state, and `N` queues of goroutines and threads that wait for it to change. Each queue is
/// first come, first served.
pub struct Queues<S, const N: usize>(Shared<Queued<S, N>>);

/// One queue.
pub type Queue<S> = Queues<S, 1>;

impl<S, const N: usize> Queues<S, N> {
    pub const fn new(state: S) -> Queues<S, N> {
        Queues(Shared::new(Queued { state, queues: [const { Waiters::new() }; N], forks: 0 }))
    }

    /// Calls `f` with the state and the queues. The waiters of a parent are forgotten before.
    #[inline(always)]
    fn queued<R>(&self, py: Python<'_>, f: impl FnOnce(&mut Queued<S, N>) -> R) -> R {
        self.0.with(py, |q| {
            let forks = forks::count();
            if q.forks != forks {
                (q.queues, q.forks) = ([const { Waiters::new() }; N], forks);
            }
            f(q)
        })
    }

    /// Calls `f` with the state and how many wait in each queue.
    #[inline(always)]
    pub fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&mut S, [u32; N]) -> R) -> R {
        self.queued(py, |q| f(&mut q.state, q.queues.each_ref().map(Waiters::waiting)))
    }

    /// Calls `f` with the state, for the collector: see `Shared::with_thread`.
    pub fn with_thread<R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        self.0.with_thread(|q| f(&mut q.state))
    }

    /// Joins queue number `at`, unless `ready`, called as by `with`, gives true. Gives the address
    /// of the queue's semaphore, of which each waiter that is woken gets a unit. `None`: it was
    /// ready. From here on a thread that makes it ready sees this waiter.
    #[inline(always)]
    pub(super) fn join(
        &self,
        py: Python<'_>,
        at: usize,
        ready: impl Fn(&mut S, [u32; N]) -> bool,
    ) -> Option<usize> {
        self.queued(py, |q| {
            if ready(&mut q.state, q.queues.each_ref().map(Waiters::waiting)) {
                return None;
            }
            q.queues[at].count += 1;
            Some(q.queues[at].semaphore())
        })
    }

    /// Leaves queue number `at`. `is_woken`: with a unit of its semaphore. True: the caller was
    /// woken after all, and has to take the unit.
    #[inline(always)]
    pub(super) fn leave(&self, py: Python<'_>, at: usize, is_woken: bool) -> bool {
        self.queued(py, |q| {
            let w = &mut q.queues[at];
            w.count -= 1;
            if is_woken {
                w.woken -= 1;
                return false;
            }
            // Woken between the end of the wait and now, when those that are woken outnumber the
            // rest.
            let is_late = w.woken > w.count;
            if is_late {
                w.woken -= 1;
            }
            is_late
        })
    }

    /// Calls `f` as `with`, and counts as many of each queue as woken as it says: at most as many
    /// as wait there. Gives for each queue how many units its semaphore is to get, and the
    /// semaphore's address.
    #[inline(always)]
    pub(super) fn note_woken(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut S, [u32; N]) -> [u32; N],
    ) -> [(u32, usize); N] {
        self.queued(py, |q| {
            let n = f(&mut q.state, q.queues.each_ref().map(Waiters::waiting));
            let mut woken = [(0, 0); N];
            for (i, w) in q.queues.iter_mut().enumerate() {
                w.woken += n[i];
                woken[i] = (n[i], w.semaphore());
            }
            woken
        })
    }

    /// Sets the state and forgets all waiters: see `_at_fork_reinit` of locks.
    pub(super) fn reset(&self, py: Python<'_>, state: S) {
        self.queued(py, |q| {
            q.state = state;
            for w in &mut q.queues {
                // Waiters of this process are on the semaphore's list, and stay there.
                if w.count == 0 {
                    *w = Waiters::new();
                }
            }
        });
    }
}
