//! From a run that fails to the shortest schedule that fails.

use super::explore::{Manner, Plan};
use crate::sched::lifecycle::bubble::Ran;
use crate::sched::prim::draws::{Draw, Script};
use crate::sched::types::course::Outcome;
use core::mem::discriminant;

/// The most runs that are made to shrink a schedule.
const MOST_RUNS: u32 = 5000;

/// Finds the fewest draws with which a run fails in the same way as `failed`: all other draws are
/// plain. Returns them, and how many runs it took.
pub fn shrink(plan: &Plan, seed: u64, failed: &Ran) -> (Script, u32) {
    let mut search = Search { plan, seed, failed: &failed.outcome, runs: 0 };
    let mut best = failed.draws.clone();
    if let Some(made) = search.fails(&best) {
        best = made;
    }
    match search.fails(&[]) {
        Some(made) => best = made,
        None => search.leave_out(&mut best),
    }
    if best.len() > 1
        && let Some(made) = search.single_switch()
    {
        best = made;
    }
    best.sort_unstable();
    (Script(best), search.runs)
}

struct Search<'a> {
    plan: &'a Plan,
    seed: u64,
    failed: &'a Outcome,
    runs: u32,
}

impl Search<'_> {
    /// Runs with these draws. `Some`: it has failed in the same way. A run may make other draws than
    /// those in its script: its own draws count.
    fn fails(&mut self, draws: &[Draw]) -> Option<Vec<Draw>> {
        let ran = self.run(draws, Manner::OneOfMany)?;
        (discriminant(&ran.outcome) == discriminant(self.failed)).then_some(ran.draws)
    }

    fn run(&mut self, draws: &[Draw], manner: Manner) -> Option<Ran> {
        self.runs += 1;
        let mut script = draws.to_vec();
        script.sort_unstable();
        Some(self.plan.once(self.seed, 0, Some(Script(script)), manner).ok()?.ran)
    }

    /// Leaves out draws, in ever smaller parts, until each that is left is needed. Zeller and
    /// Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28 (2), 2002 (ddmin).
    fn leave_out(&mut self, best: &mut Vec<Draw>) {
        let mut parts = 2;
        while !best.is_empty() && self.runs < MOST_RUNS {
            let size = best.len().div_ceil(parts);
            // From the end: the failure depends least on what comes after it.
            let places = (0..best.len().div_ceil(size)).rev();
            let smaller = places.into_iter().find_map(|at| {
                let part = at * size..(at * size + size).min(best.len());
                let rest = [&best[..part.start], &best[part.end..]].concat();
                self.fails(&rest).filter(|made| made.len() < best.len())
            });
            match smaller {
                Some(made) => {
                    *best = made;
                    parts = (parts - 1).max(2);
                }
                None if size == 1 => break,
                None => parts = (parts * 2).min(best.len()),
            }
        }
    }

    /// Looks for a run that fails after a single switch, among all that the plain run could make.
    fn single_switch(&mut self) -> Option<Vec<Draw>> {
        let possible = self.run(&[], Manner::Listed)?.possible;
        let few = possible.into_iter().take(MOST_RUNS as usize);
        few.into_iter().find_map(|draw| self.fails(&[draw]).filter(|made| made.len() <= 1))
    }
}
