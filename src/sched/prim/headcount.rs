//! A count of threads that starts again at 0 in the child of a fork.

use core::sync::atomic::{AtomicU64, Ordering};

/// The lowest bit of the number of forks in the word. The bits below it count threads.
const FORKS: u32 = 32;

/// The number of threads in some part of the code. A thread may fork while it is counted, in a
/// signal handler of the host's that interrupts a call. The child's count starts again at 0, so
/// when the handler returns there, the thread is not in the count that it is about to leave.
/// Therefore the word also holds the number of forks so far, and [`Headcount::take`] counts the
/// thread out only if that number has not changed since the thread was counted in.
pub struct Headcount(AtomicU64);

/// The number of forks when a thread was counted: [`Headcount::add`] returns it for
/// [`Headcount::take`].
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

    /// Counts one thread less, unless this process is the child of a fork made since the thread's
    /// [`Headcount::add`].
    pub fn take(&self, since: Forks) {
        let less = |word: u64| (Forks(word >> FORKS) == since).then(|| word - 1);
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }

    /// The value that [`Headcount::add`] would return now.
    pub fn forks(&self) -> Forks {
        Forks(self.0.load(Ordering::SeqCst) >> FORKS)
    }

    pub fn is_zero(&self) -> bool {
        self.len() == 0
    }

    /// The number of threads counted.
    pub fn len(&self) -> usize {
        self.0.load(Ordering::SeqCst) as u32 as usize
    }

    /// Sets the count to 0, in the child of a fork.
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
