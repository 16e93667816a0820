//! The two counters of the wake-up protocol: idle P's and spinning M's.
//!
//! `run/QUEUES.md` states the protocol and why no wake-up is lost; the model test is in
//! `tests/models`.
//! seed: S6, W2

use crate::atomic::{AtomicU32, Ordering, fence};

/// The number of P's that no M runs, and of M's that look for work.
pub struct Idle {
    ps: AtomicU32,
    spinning: AtomicU32,
}

/// A duty: the caller must start a spinning M, which is counted already.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct StartOne;

impl Idle {
    pub fn new() -> Idle {
        Idle { ps: AtomicU32::new(0), spinning: AtomicU32::new(0) }
    }

    /// The number of P's that no M runs.
    #[inline(always)]
    pub fn ps(&self) -> u32 {
        self.ps.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub fn spinning(&self) -> u32 {
        self.spinning.load(Ordering::Relaxed)
    }

    /// Answers whether to start a spinning M, for a thread that has made work visible.
    #[inline(always)]
    pub fn work_added(&self) -> Option<StartOne> {
        if self.needs_spinner() { self.add_first_spinner() } else { None }
    }

    /// Whether no M would find the work that the caller has made visible, though a P is idle.
    #[inline(always)]
    pub fn needs_spinner(&self) -> bool {
        // Pairs with the fences in `make_idle`, `spin_found` and `spin_ended`: either this thread
        // sees the idle P and that no M spins, or the callers of those functions see the work.
        fence(Ordering::SeqCst);
        self.ps() != 0 && self.spinning() == 0
    }

    #[cold]
    fn add_first_spinner(&self) -> Option<StartOne> {
        self.spinning
            .compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed)
            .ok()
            .map(|_| StartOne)
    }

    /// Counts an M that begins to look for work.
    pub fn spin_begins(&self) {
        self.spinning.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts out a spinning M that has found work. If it was the last, a P is idle and `more` sees
    /// more work, another M must take its place. A thread that adds work after the call of `more`
    /// sees that no M spins.
    #[inline]
    pub fn spin_found(&self, more: impl FnOnce() -> bool) -> Option<StartOne> {
        let before = self.spinning.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0);
        // Pairs with the fence in `work_added`.
        fence(Ordering::SeqCst);
        if before == 1 && self.ps() != 0 && more() { self.work_added() } else { None }
    }

    /// Counts out a spinning M that gives up. The M must look everywhere once more after this.
    pub fn spin_ended(&self) {
        let before = self.spinning.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0);
        // Pairs with the fence in `work_added`.
        fence(Ordering::SeqCst);
    }

    /// Counts a P that is about to enter the set of idle P's. The caller puts it there, fences, and
    /// then looks for work everywhere once more.
    pub fn p_idle(&self) {
        self.ps.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts out an idle P that the caller has taken.
    pub fn p_taken(&self) {
        let before = self.ps.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_starts_one_spinner_and_only_while_a_p_is_idle() {
        // seed: S6
        let i = Idle::new();
        assert_eq!(i.work_added(), None);
        i.p_idle();
        assert_eq!(i.work_added(), Some(StartOne));
        assert_eq!(i.work_added(), None);
        assert_eq!(i.spin_found(|| true), Some(StartOne));
        assert_eq!(i.spin_found(|| false), None);
        i.spin_begins();
        i.p_taken();
        assert_eq!(i.spin_found(|| true), None);
        assert_eq!((i.ps(), i.spinning()), (0, 0));
    }
}
