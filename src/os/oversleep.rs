//! How late the kernel wakes a thread that sleeps to a deadline. A processor leaves its idle state only some time after
//! its timer: 50 to 90 us on a virtual machine, 2 to 30 us on others. A thread that asks to be woken earlier by that time
//! runs at its deadline, give or take how much the delay differs from sleep to sleep. It spins for the rest, if there is
//! any.

use core::sync::atomic::{AtomicI64, Ordering};

/// The most that a thread asks to be woken early, in ns, and so the longest that it spins.
pub const MOST: i64 = 100_000;

/// A sleep shorter than this, in ns, says nothing: its processor may not have been idle.
const TELLING: i64 = 50_000;

/// By how much one sleep changes the delay that is known, in ns, at most. So a sleep that ends very late, because the
/// thread had to wait for a processor, counts no more than others.
const STEP: i64 = 2_000;

/// How late most sleeps have ended, in ns.
pub struct Oversleep(AtomicI64);

impl Oversleep {
    pub const fn new() -> Oversleep {
        Oversleep(AtomicI64::new(0))
    }

    /// The time, in ns, to which a thread sleeps that is to run at the deadline. A deadline that is not above 0 is none.
    pub fn ahead_of(&self, deadline: i64) -> i64 {
        if deadline <= 0 { deadline } else { (deadline - self.0.load(Ordering::Relaxed)).max(1) }
    }

    /// A sleep from `began` to `until` has ended at `now`, all in ns, by the clock and nothing else.
    pub fn learn(&self, began: i64, until: i64, now: i64) {
        if until - began < TELLING || now < until {
            return;
        }
        let known = self.0.load(Ordering::Relaxed);
        let step = (now - until - known).clamp(-STEP, STEP);
        self.0.store((known + step).clamp(0, MOST), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_sleeps_count_and_not_the_latest() {
        let o = Oversleep::new();
        assert_eq!(o.ahead_of(-1), -1);
        assert_eq!(o.ahead_of(0), 0);
        let sleeps = |late: i64| (0..200).for_each(|_| o.learn(0, 1_000_000, 1_000_000 + late));
        sleeps(60_000);
        assert_eq!(o.ahead_of(1_000_000), 940_000);
        o.learn(0, 1_000_000, 90_000_000);
        assert_eq!(o.ahead_of(1_000_000), 940_000 - STEP);
        sleeps(60_000);
        // Ended by a signal; too short to tell.
        o.learn(0, 1_000_000, 500_000);
        o.learn(0, TELLING - 1, TELLING + 5_000_000);
        assert_eq!(o.ahead_of(1_000_000), 940_000);
        sleeps(5_000_000);
        assert_eq!(o.ahead_of(1_000_000), 1_000_000 - MOST);
        assert_eq!(o.ahead_of(10), 1);
        sleeps(0);
        assert_eq!(o.ahead_of(1_000_000), 1_000_000);
    }
}
