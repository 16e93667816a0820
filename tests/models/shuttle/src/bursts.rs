//! A scheduler for shuttle that stays with a thread for a while.
//!
//! A choice made anew at each operation hardly ever leaves a thread where it is
//! while another one goes a long way, which is what most lost wake-ups need. So
//! here a thread goes on for some operations, how many is different from run to
//! run: from one (a new choice each time) to [`LONGEST`], on average.

use shuttle::current::TaskId;
use shuttle::scheduler::{RandomScheduler, Schedule, Scheduler, Task};

/// A power of two.
const LONGEST: u64 = 128;

pub struct Bursts {
    choice: RandomScheduler,
    random: u64,
    /// One operation in this number ends a burst.
    length: u64,
}

impl Bursts {
    pub fn new(seed: u64, times: usize) -> Bursts {
        let choice = RandomScheduler::new_from_seed(seed, times);
        Bursts { choice, random: seed | 1 << 63, length: 1 }
    }

    /// A number below `n` (xorshift*).
    fn below(&mut self, n: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % n
    }
}

impl Scheduler for Bursts {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.length = 1 << self.below(u64::from(LONGEST.ilog2()) + 1);
        self.choice.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        yields: bool,
    ) -> Option<TaskId> {
        let goes_on = current.filter(|&c| !yields && runnable.iter().any(|t| t.id() == c));
        let ends = self.below(self.length) == 0;
        goes_on.filter(|_| !ends).or_else(|| self.choice.next_task(runnable, current, yields))
    }

    fn next_u64(&mut self) -> u64 {
        self.choice.next_u64()
    }
}
