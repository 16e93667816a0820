//! How late the kernel wakes a thread that sleeps to a deadline. A processor leaves its idle state
//! only some time after its timer: 50 to 100 us on a virtual machine, 2 to 100 us on others, less
//! after a short sleep than after a long one. A thread that asks to be woken earlier by that time
//! runs at its deadline, give or take how much the delay differs from sleep to sleep. It spins for
//! the rest, if there is any.

use core::sync::atomic::{AtomicI64, Ordering};

/// How much earlier a thread asks to be woken, at most, in ns; so also the longest time that it
/// spins.
pub const MOST: i64 = 200_000;

/// How much one sleep changes the known delay, at most, in ns. So a sleep that ends very late,
/// because the thread had to wait for a processor, counts no more than others.
const STEP: i64 = 2_000;

/// Number of classes by length: up to 64 us, 256 us, 1 ms, ..., 64 ms, and longer.
const CLASSES: usize = 7;

/// How late most sleeps of each class have ended, in ns.
pub struct Oversleep([AtomicI64; CLASSES]);

/// A sleep to a deadline.
#[derive(Clone, Copy)]
pub struct Sleep {
    /// The time at which the kernel is asked to wake the thread, in ns; 0 or less: there is no
    /// deadline.
    pub until: i64,
    class: usize,
}

impl Oversleep {
    pub const fn new() -> Oversleep {
        Oversleep([const { AtomicI64::new(0) }; CLASSES])
    }

    /// Plans a sleep from `now` for a thread that is to run at `deadline`, both in ns. `deadline` 0
    /// or less: none.
    pub fn plan(&self, now: i64, deadline: i64) -> Sleep {
        let length = u64::try_from(deadline.saturating_sub(now)).unwrap_or(0);
        // A class spans two bits; 64 us is about 2 to the 16th ns.
        let class =
            (length >> 16).checked_ilog2().map_or(0, |n| n as usize / 2 + 1).min(CLASSES - 1);
        let late = self.0[class].load(Ordering::Relaxed);
        Sleep { until: if deadline <= 0 { deadline } else { (deadline - late).max(1) }, class }
    }

    /// Learns from a sleep that the clock has ended, and no other event, at `now` (ns).
    pub fn learn(&self, sleep: Sleep, now: i64) {
        let late = &self.0[sleep.class];
        let known = late.load(Ordering::Relaxed);
        let step = (now - sleep.until - known).clamp(-STEP, STEP);
        late.store((known + step).clamp(0, MOST), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// `times` sleeps of `length` ns that end `late` ns late. Returns how many ns earlier the next
    /// sleep is to end.
    fn sleep(o: &Oversleep, times: usize, length: i64, late: i64) -> i64 {
        for _ in 0..times {
            let sleep = o.plan(MS, MS + length);
            o.learn(sleep, sleep.until + late);
        }
        MS + length - o.plan(MS, MS + length).until
    }

    #[test]
    fn most_sleeps_count_and_not_the_latest() {
        let o = Oversleep::new();
        assert_eq!([-1, 0].map(|deadline| o.plan(MS, deadline).until), [-1, 0]);
        assert_eq!(sleep(&o, 100, 2 * MS, 60_000), 60_000);
        assert_eq!(sleep(&o, 1, 2 * MS, 90 * MS), 60_000 + STEP);
        assert_eq!(sleep(&o, 2, 2 * MS, 60_000), 60_000);
        assert_eq!(sleep(&o, 1000, 2 * MS, 5 * MS), MOST);
        assert_eq!(sleep(&o, 1000, 2 * MS, 0), 0);
    }

    #[test]
    fn short_and_long_sleeps_are_apart() {
        let o = Oversleep::new();
        let lengths = [20_000, 100_000, MS / 2, 2 * MS, 10 * MS, 50 * MS, 3_600_000 * MS];
        for (n, length) in lengths.into_iter().enumerate() {
            let late = (n as i64 + 1) * 10_000;
            assert_eq!(sleep(&o, 100, length, late), late.min(length + MS - 1));
        }
        for (n, length) in lengths.into_iter().enumerate() {
            assert_eq!(sleep(&o, 0, length, 0), (n as i64 + 1) * 10_000);
        }
        // Near its deadline, and after it.
        assert_eq!(o.plan(MS, MS + 5_000).until, MS - 5_000);
        assert_eq!(o.plan(MS, 5).until, 1);
    }
}
