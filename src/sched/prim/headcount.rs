//! A count of threads that starts again at 0 in the child of a fork.

use core::sync::atomic::{AtomicU64, Ordering};

/// The first bit of the number of forks in the word. The bits below it count the threads.
const FORKS: u32 = 32;

/// How many threads are in some part of the code. A thread may fork while it is counted: a signal handler of the host's
/// may interrupt it in the middle of a call, and fork. In the child the count starts again at 0. If the handler returns
/// in the child, the thread is about to take itself out of a count that doesn't include it. So the word also holds the
/// number of forks so far, and [`Headcount::take`] counts the thread out only if that number is what it was when the
/// thread was counted in.
pub struct Headcount(AtomicU64);

/// What [`Headcount::add`] gives for [`Headcount::take`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forks(u64);

impl Headcount {
    pub const fn new() -> Headcount {
        Headcount(AtomicU64::new(0))
    }

    /// Counts one more thread. All operations are SeqCst: see `Guest::try_enter`.
    pub fn add(&self) -> Forks {
        Forks(self.0.fetch_add(1, Ordering::SeqCst) >> FORKS)
    }

    /// Counts one thread less, unless this process is the child of a fork since then.
    pub fn take(&self, since: Forks) {
        let less = |word: u64| (Forks(word >> FORKS) == since).then(|| word - 1);
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }

    /// What [`Headcount::add`] would give.
    pub fn forks(&self) -> Forks {
        Forks(self.0.load(Ordering::SeqCst) >> FORKS)
    }

    pub fn is_zero(&self) -> bool {
        self.len() == 0
    }

    /// How many threads are counted.
    pub fn len(&self) -> usize {
        self.0.load(Ordering::SeqCst) as u32 as usize
    }

    /// In the child of a fork: none.
    pub fn forked(&self) {
        let forks = self.0.load(Ordering::SeqCst) >> FORKS;
        self.0.store((forks + 1) << FORKS, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_counts_anew() {
        let count = Headcount::new();
        let (before, other) = (count.add(), count.add());
        count.take(other);
        assert!(!count.is_zero());
        count.forked();
        assert!(count.is_zero());
        count.take(before);
        assert!(count.is_zero());
        let after = count.add();
        count.take(before);
        assert!(!count.is_zero());
        count.take(after);
        assert!(count.is_zero());
    }
}
