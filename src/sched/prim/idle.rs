//! The two counters of the wake-up protocol: idle P's, and spinning M's.
//!
//! `run/QUEUES.md` states the protocol and why no wake-up is lost; the
//! model test is in `tests/models`. seed: S6, W2

use crate::atomic::{AtomicU32, Ordering, fence};

/// How many P's no M runs, and how many M's look for work.
pub struct Idle {
    ps: AtomicU32,
    spinning: AtomicU32,
}

/// The caller must start an M that spins. The M is counted already.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct StartOne;

impl Idle {
    pub fn new() -> Idle {
        Idle { ps: AtomicU32::new(0), spinning: AtomicU32::new(0) }
    }

    /// How many P's no M runs.
    #[inline(always)]
    pub fn ps(&self) -> u32 {
        self.ps.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub fn spinning(&self) -> u32 {
        self.spinning.load(Ordering::Relaxed)
    }

    /// A thread calls this after it has made work visible.
    #[inline(always)]
    pub fn work_added(&self) -> Option<StartOne> {
        if self.needs_spinner() { self.add_first_spinner() } else { None }
    }

    /// For a thread that has made work visible: whether no M would find that work, though a P is idle.
    #[inline(always)]
    pub fn needs_spinner(&self) -> bool {
        // Pairs with the fences in `make_idle`, `spin_found` and `spin_ended`: either this thread sees the idle P and
        // the missing spinner, or these see the work.
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

    /// An M begins to look for work.
    pub fn spin_begins(&self) {
        self.spinning.fetch_add(1, Ordering::SeqCst);
    }

    /// A spinning M has found work. If it was the last spinning M, a P is idle and `more`
    /// sees more work, another M takes its place. A thread that adds work after `more` has looked
    /// sees that no M spins.
    #[inline]
    pub fn spin_found(&self, more: impl FnOnce() -> bool) -> Option<StartOne> {
        let before = self.spinning.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0);
        // Pairs with the fence in `work_added`.
        fence(Ordering::SeqCst);
        if before == 1 && self.ps() != 0 && more() { self.work_added() } else { None }
    }

    /// A spinning M gives up. It must look everywhere again after this.
    pub fn spin_ended(&self) {
        let before = self.spinning.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0);
        // Pairs with the fence in `work_added`.
        fence(Ordering::SeqCst);
    }

    /// A P is about to be put into the set of idle P's. The caller puts it there, fences,
    /// and then looks everywhere once more.
    pub fn p_idle(&self) {
        self.ps.fetch_add(1, Ordering::SeqCst);
    }

    /// The caller has taken an idle P.
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
