//! The choices of an ordered run: which goroutine goes on, and which faults happen.
//!
//! Every choice is a *draw*: a number, of which 0 is the plain choice (the running goroutine goes on,
//! or else the goroutine that waits longest; no fault). A draw is known by the goroutine that makes it and
//! by the number of draws that this goroutine has made before. So a run is described by its draws
//! that are not plain, and a part of them still means something without the rest: that is what a
//! shrinker needs.

use core::fmt::{self, Write};
use core::str::FromStr;
use std::collections::VecDeque;

/// How goroutines are chosen. `gs_test_opts.schedule`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// Any goroutine that can run, at each step.
    Random,
    /// Probabilistic concurrency testing with this depth: the goroutine with the highest priority
    /// runs; priorities are random, and change at `depth - 1` random steps. Burckhardt et al., "A
    /// Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS 2010.
    Pct(u32),
    /// The next one at each step.
    RoundRobin,
}

/// A draw that isn't plain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Draw {
    /// The goroutine that drew, by its number in the run.
    pub by: u32,
    /// How many draws that goroutine had made before.
    pub nth: u32,
    /// The number of the goroutine that goes on; or the size of a fault.
    pub value: u32,
}

/// Draws as a string: `1.5:3,2.0:1` says that goroutine 1's sixth draw is 3, and goroutine 2's first
/// draw is 1.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script(pub Vec<Draw>);

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(i, d)| {
            if i > 0 {
                f.write_char(',')?;
            }
            write!(f, "{}.{}:{}", d.by, d.nth, d.value)
        })
    }
}

impl FromStr for Script {
    type Err = ();

    fn from_str(text: &str) -> Result<Script, ()> {
        let draw = |part: &str| {
            let (place, value) = part.split_once(':')?;
            let (by, nth) = place.split_once('.')?;
            Some(Draw { by: by.parse().ok()?, nth: nth.parse().ok()?, value: value.parse().ok()? })
        };
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let mut draws = parts.map(draw).collect::<Option<Vec<Draw>>>().ok_or(())?;
        draws.sort_unstable();
        Ok(Script(draws))
    }
}

/// The number of steps among which [`Schedule::Pct`] chooses those that change a priority, unless
/// the caller knows better.
const USUAL_STEPS: u64 = 1000;

/// The draws of one run.
pub struct Draws {
    rng: u64,
    schedule: Schedule,
    /// Draws come from here, and all others are plain. Sorted.
    script: Option<Script>,
    /// How many draws each goroutine has made.
    counts: Vec<u32>,
    /// The draws so far that are not plain, in their order.
    made: Vec<Draw>,
    /// All switches that could have been made, if they are wanted.
    possible: Option<Vec<Draw>>,
    /// [`Schedule::Random`]: the chance out of 16 that the running goroutine goes on whatever others
    /// there are; 0: it is one among equals.
    stays: u64,
    /// [`Schedule::Pct`]: the priority of each goroutine, 0 for unknown; the steps that change one,
    /// the last first; and the next lowest priority.
    priorities: Vec<u64>,
    changes: Vec<u64>,
    lowest: u64,
    steps: u64,
}

impl Draws {
    /// `steps`: about how many steps the run will have; 0: not known.
    pub fn new(seed: u64, schedule: Schedule, steps: u64, script: Option<Script>) -> Draws {
        // Never 0, and far apart for seeds that are neighbours.
        let mixed = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mut draws = Draws {
            rng: (mixed ^ mixed >> 31) | 1,
            schedule,
            script,
            counts: Vec::new(),
            made: Vec::new(),
            possible: None,
            stays: 0,
            priorities: Vec::new(),
            changes: Vec::new(),
            lowest: LOW,
            steps: 0,
        };
        // Bugs that need many switches want runs that switch often, and bugs that need long
        // stretches want runs that don't.
        draws.stays = [0, 8, 12, 15][draws.below(4) as usize];
        if let Schedule::Pct(depth) = schedule {
            let steps = if steps == 0 { USUAL_STEPS } else { steps };
            draws.changes = (1..depth).map(|_| draws.below(steps)).collect();
            draws.changes.sort_unstable_by(|a, b| b.cmp(a));
        }
        draws
    }

    /// A random number below `n`, which is not 0.
    fn below(&mut self, n: u64) -> u64 {
        let mut x = self.rng;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.rng = x;
        let random = x.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(random) * u128::from(n)) >> 64) as u64
    }

    /// The draws so far that are not plain.
    pub fn made(&self) -> &[Draw] {
        &self.made
    }

    /// From now on notes all switches that are possible, for [`Draws::possible`].
    pub fn list_possible(&mut self) {
        self.possible = Some(Vec::new());
    }

    /// All switches that could have been made.
    pub fn possible(&self) -> &[Draw] {
        self.possible.as_deref().unwrap_or(&[])
    }

    /// How often goroutines have been chosen.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The number of this goroutine's next draw; counts it.
    fn count(&mut self, by: u32) -> u32 {
        let by = by as usize;
        if self.counts.len() <= by {
            self.counts.resize(by + 1, 0);
        }
        self.counts[by] += 1;
        self.counts[by] - 1
    }

    fn scripted(&self, by: u32, nth: u32) -> Option<u32> {
        let draws = &self.script.as_ref()?.0;
        let found = draws.binary_search_by_key(&(by, nth), |d| (d.by, d.nth));
        Some(found.map_or(0, |i| draws[i].value))
    }

    /// Chooses which goroutine goes on: `None`: goroutine `by`, which can. Else the place of the
    /// goroutine in `others`, which has one at least unless `by` can go on.
    pub fn switch<T>(
        &mut self,
        by: u32,
        can_go_on: bool,
        others: &VecDeque<T>,
        number: impl Fn(&T) -> u32,
    ) -> Option<usize> {
        self.steps += 1;
        let plain = if can_go_on { None } else { Some(0) };
        if others.is_empty() || (!can_go_on && others.len() == 1) {
            self.follow_priorities(by);
            return plain;
        }
        let nth = self.count(by);
        if let Some(possible) = &mut self.possible {
            let draws = others.iter().map(|other| Draw { by, nth, value: number(other) });
            possible.extend(draws.skip(usize::from(!can_go_on)));
        }
        let chosen = match self.scripted(by, nth) {
            Some(value) => others.iter().position(|other| number(other) == value).or(plain),
            None => self.by_schedule(by, can_go_on, others, &number),
        };
        if chosen != plain
            && let Some(at) = chosen
        {
            self.made.push(Draw { by, nth, value: number(&others[at]) });
        }
        chosen
    }

    fn by_schedule<T>(
        &mut self,
        by: u32,
        can_go_on: bool,
        others: &VecDeque<T>,
        number: &impl Fn(&T) -> u32,
    ) -> Option<usize> {
        match self.schedule {
            Schedule::RoundRobin => Some(0),
            Schedule::Random => {
                if can_go_on && self.stays > 0 && self.below(16) < self.stays {
                    return None;
                }
                let equals = others.len() as u64 + u64::from(can_go_on && self.stays == 0);
                Some(self.below(equals) as usize).filter(|&at| at < others.len())
            }
            Schedule::Pct(_) => {
                self.follow_priorities(by);
                let mut best =
                    (can_go_on.then_some(None), if can_go_on { self.priority(by) } else { 0 });
                for (at, other) in others.iter().enumerate() {
                    let priority = self.priority(number(other));
                    if best.0.is_none() || priority > best.1 {
                        best = (Some(Some(at)), priority);
                    }
                }
                best.0.flatten()
            }
        }
    }

    /// Lowers the priority of `by` if this step is one of those that change one.
    fn follow_priorities(&mut self, by: u32) {
        while self.changes.last().is_some_and(|&step| step < self.steps) {
            self.changes.pop();
            self.yields(by);
        }
    }

    /// Goroutine `by` lets others go first: with [`Schedule::Pct`] it comes last from now on. Without
    /// this a goroutine that yields until something happens could keep all others from running.
    pub fn yields(&mut self, by: u32) {
        if !matches!(self.schedule, Schedule::Pct(_)) {
            return;
        }
        self.priority(by);
        self.lowest -= 1;
        self.priorities[by as usize] = self.lowest;
    }

    fn priority(&mut self, of: u32) -> u64 {
        let of = of as usize;
        if self.priorities.len() <= of {
            self.priorities.resize(of + 1, 0);
        }
        if self.priorities[of] == 0 {
            self.priorities[of] = LOW + self.below(u64::MAX - LOW);
        }
        self.priorities[of]
    }

    /// Draws the size of a fault: 0, or with a chance of `odds` out of 1000 a number from 1 to
    /// `most`.
    pub fn fault(&mut self, by: u32, odds: u32, most: u32) -> u32 {
        if odds == 0 || most == 0 {
            return 0;
        }
        let nth = self.count(by);
        let value = match self.scripted(by, nth) {
            Some(value) => value.min(most),
            None if self.below(1000) < u64::from(odds) => 1 + self.below(u64::from(most)) as u32,
            None => 0,
        };
        if value != 0 {
            self.made.push(Draw { by, nth, value });
        }
        value
    }
}

/// Priorities that were lowered are below this, and all others are not.
const LOW: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// A game of `n` goroutines that each make `moves` steps. Returns who made them.
    fn play(draws: &mut Draws, n: u32, moves: u32) -> Vec<u32> {
        let mut left: Vec<u32> = vec![moves; n as usize + 1];
        let mut others: VecDeque<u32> = (2..=n).collect();
        let (mut current, mut log) = (1, Vec::new());
        loop {
            log.push(current);
            left[current as usize] -= 1;
            let can_go_on = left[current as usize] > 0;
            if !can_go_on && others.is_empty() {
                return log;
            }
            if let Some(at) = draws.switch(current, can_go_on, &others, |&id| id) {
                let next = others.remove(at).unwrap();
                if can_go_on {
                    others.push_back(current);
                }
                current = next;
            }
        }
    }

    #[test]
    fn a_script_gives_the_same_run_whatever_the_schedule_was() {
        for schedule in [Schedule::Random, Schedule::Pct(4), Schedule::RoundRobin] {
            for seed in 0..200 {
                let mut first = Draws::new(seed, schedule, 40, None);
                let log = play(&mut first, 4, 10);
                let script = Script(first.made().to_vec());
                let text = script.to_string();
                let again: Script = text.parse().unwrap();
                let mut second = Draws::new(99, Schedule::Random, 0, Some(again));
                assert_eq!(play(&mut second, 4, 10), log, "{schedule:?} {seed} {text}");
                assert_eq!(second.made(), first.made());
            }
        }
    }

    /// Goroutines 1 and 2 wait for each other in turn, and 3 runs now and then. Each meets faults.
    fn play_with_waits(draws: &mut Draws) -> Vec<(u32, u32)> {
        let mut log = Vec::new();
        for round in 0..20 {
            for (by, others) in [(1, [2].as_slice()), (2, &[1, 3]), (3, &[1])] {
                let others: VecDeque<u32> = others.iter().copied().collect();
                let chosen = draws.switch(by, round % 3 == 0, &others, |&id| id);
                log.push((by, chosen.map_or(0, |at| others[at])));
                log.push((by, draws.fault(by, 200, 5)));
            }
        }
        log
    }

    #[test]
    fn a_choice_without_alternative_is_no_draw_in_a_script_either() {
        for seed in 0..200 {
            let mut first = Draws::new(seed, Schedule::Random, 40, None);
            let log = play_with_waits(&mut first);
            let mut made = first.made().to_vec();
            made.sort_unstable();
            let mut second = Draws::new(1, Schedule::Random, 0, Some(Script(made)));
            assert_eq!(play_with_waits(&mut second), log, "{seed}");
        }
    }

    #[test]
    fn an_empty_script_is_the_plain_run() {
        let mut plain = Draws::new(7, Schedule::Random, 0, Some(Script::default()));
        assert_eq!(play(&mut plain, 3, 2), [1, 1, 2, 2, 3, 3]);
        assert!(plain.made().is_empty());
    }

    #[test]
    fn seeds_give_different_runs_and_one_seed_gives_one() {
        let run = |seed| play(&mut Draws::new(seed, Schedule::Random, 0, None), 4, 6);
        let mut all: Vec<_> = (0..300).map(run).collect();
        assert_eq!(run(5), all[5]);
        all.sort();
        all.dedup();
        assert!(all.len() > 200, "{}", all.len());
    }

    #[test]
    fn round_robin_takes_turns() {
        let mut draws = Draws::new(0, Schedule::RoundRobin, 0, None);
        assert_eq!(play(&mut draws, 3, 2), [1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn depth_1_never_switches_without_need() {
        for seed in 0..50 {
            let log = play(&mut Draws::new(seed, Schedule::Pct(1), 0, None), 3, 5);
            let changes = log.windows(2).filter(|w| w[0] != w[1]).count();
            // The first step is goroutine 1's, whatever its priority.
            assert!(changes <= 3, "{log:?}");
        }
    }

    #[test]
    fn a_goroutine_that_yields_comes_last() {
        let mut draws = Draws::new(3, Schedule::Pct(1), 0, None);
        draws.yields(1);
        let others: VecDeque<u32> = [2].into();
        assert_eq!(draws.switch(1, true, &others, |&id| id), Some(0));
    }

    #[test]
    fn faults_come_at_their_odds_and_again_by_the_script() {
        let mut draws = Draws::new(11, Schedule::Random, 0, None);
        let drawn: Vec<u32> = (0..1000).map(|_| draws.fault(1, 100, 9)).collect();
        let faults = drawn.iter().filter(|&&n| n > 0).count();
        assert!((50..200).contains(&faults), "{faults}");
        assert!(drawn.iter().all(|&n| n <= 9));
        let script = Script(draws.made().to_vec());
        let mut again = Draws::new(0, Schedule::Random, 0, Some(script));
        assert_eq!((0..1000).map(|_| again.fault(1, 100, 9)).collect::<Vec<_>>(), drawn);
        assert_eq!(again.fault(2, 0, 9), 0);
    }

    #[test]
    fn what_is_no_script_is_refused() {
        for text in ["1", "1.2", "1:2", "a.1:2", "1.2:3;4", "1.2:-1"] {
            assert_eq!(text.parse::<Script>(), Err(()), "{text}");
        }
        assert_eq!(" 2.0:1 , 1.5:3,".parse::<Script>().unwrap().to_string(), "1.5:3,2.0:1");
    }
}
