//! From a run that fails to the shortest schedule that fails.

use super::explore::{Manner, Plan};
use crate::sched::lifecycle::bubble::Ran;
use crate::sched::prim::draws::{Draw, Script};
use crate::sched::types::course::Outcome;
use core::mem::discriminant;

/// The most runs that are made to shrink a schedule.
const MOST_RUNS: u32 = 5000;

/// Finds draws of a run that fails without which it doesn't fail any more: draws that are left out
/// are plain. Returns them, and how many runs it took. Zeller and Hildebrandt, "Simplifying and
/// Isolating Failure-Inducing Input", IEEE TSE 28 (2), 2002 (ddmin).
pub fn shrink(plan: &Plan, seed: u64, failed: &Ran) -> (Script, u32) {
    let kind = discriminant(&failed.outcome);
    let mut runs = 0;
    // A run that has fewer draws in its script may make others as it likes: its own draws count.
    let mut fails = |draws: &[Draw]| -> Option<Vec<Draw>> {
        runs += 1;
        let mut sorted = draws.to_vec();
        sorted.sort_unstable();
        let told = plan.once(seed, 0, Some(Script(sorted)), Manner::OneOfMany).ok()?;
        (discriminant::<Outcome>(&told.ran.outcome) == kind).then_some(told.ran.draws)
    };
    let mut best = failed.draws.clone();
    if let Some(made) = fails(&best) {
        best = made;
    }
    if let Some(made) = fails(&[]) {
        best = made;
    }
    let mut parts = 2;
    let mut left = MOST_RUNS;
    while !best.is_empty() && left > 0 {
        let size = best.len().div_ceil(parts);
        let mut smaller = None;
        // From the end: the failure depends least on what comes after it.
        for at in (0..best.len().div_ceil(size)).rev() {
            let without = best[at * size..(at * size + size).min(best.len())].to_vec();
            let rest: Vec<Draw> = best.iter().copied().filter(|d| !without.contains(d)).collect();
            left = left.saturating_sub(1);
            smaller = fails(&rest).filter(|made| made.len() < best.len());
            if smaller.is_some() || left == 0 {
                break;
            }
        }
        match smaller {
            Some(made) => {
                best = made;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(best.len()),
        }
    }
    best.sort_unstable();
    (Script(best), runs)
}
