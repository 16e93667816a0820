//! One run, or as many as it takes to find one that fails.

use super::report::Report;
use super::shrink::shrink;
use crate::backtrace::unwind;
use crate::os::{log, time};
use crate::sched::lifecycle::bubble::{self, Ran, Setup};
use crate::sched::prim::draws::{Schedule, Script};
use crate::sched::services::deadlock;
use crate::sched::types::course::{Check, Outcome};
use crate::sched::types::task::GoFn;
use core::ffi::c_void;

/// What is to be run, and how.
#[derive(Clone)]
pub struct Plan {
    pub f: GoFn,
    pub arg: *mut c_void,
    /// The return address of the user's call.
    pub pc: usize,
    /// The seed of the first run; each further run has the next.
    pub seed: u64,
    pub schedule: Schedule,
    pub max_steps: u64,
    pub check: Option<(Check, *mut c_void)>,
    /// Runs have these draws, and no seed decides.
    pub script: Option<Script>,
    /// Nothing is printed.
    pub is_quiet: bool,
}

/// A run, and the report of the goroutines that wait in it if it has ended with a deadlock.
pub struct Told {
    pub ran: Ran,
    pub waiting: String,
}

impl Plan {
    /// Changes the plan as `GOSCHED_TEST` says: `seed=N` or `replay=STRING`. `None`: it says
    /// something else.
    pub fn by_environment(mut self, said: Option<&str>) -> Option<Plan> {
        match said.map(|said| said.split_once('=').unwrap_or((said, ""))) {
            None => {}
            Some(("seed", "random")) => self.seed = time::real() as u64 & 0xffff_ffff,
            Some(("seed", seed)) => self.seed = seed.parse().ok().filter(|&seed| seed != 0)?,
            Some(("replay", script)) => self.script = Some(script.parse().ok()?),
            Some(_) => return None,
        }
        Some(self)
    }

    /// Runs once. `steps`: about how many steps the run will have; 0: not known.
    pub fn once(
        &self,
        seed: u64,
        steps: u64,
        script: Option<Script>,
        explains: bool,
    ) -> Result<Told, i32> {
        let setup = Setup {
            seed,
            schedule: self.schedule,
            steps,
            script,
            max_steps: self.max_steps,
            check: self.check,
            explains,
        };
        if explains {
            unwind::refresh_modules();
        }
        let mut waiting = String::new();
        let mut when_over = |outcome: &Outcome| {
            if explains && *outcome == Outcome::Deadlock {
                waiting = deadlock::of_bubble();
            }
        };
        let ran = bubble::run(self.f, self.arg, self.pc, setup, &mut when_over)?;
        Ok(Told { ran, waiting })
    }
}

/// The result of a function of the C API for an outcome.
fn errno_of(outcome: &Outcome) -> i32 {
    match outcome {
        Outcome::Done => 0,
        Outcome::Deadlock => -libc::EDEADLK,
        Outcome::TooLong => -libc::ETIMEDOUT,
        Outcome::Failed(_) => -libc::EPROTO,
        Outcome::Disturbed(_) => -libc::EPERM,
    }
}

/// Runs once, and reports a failure. `gs_test_run`.
pub fn run(plan: &Plan) -> i32 {
    match plan.once(plan.seed, 0, plan.script.clone(), !plan.is_quiet) {
        Ok(told) => {
            if told.ran.outcome != Outcome::Done && !plan.is_quiet {
                let report = Report { plan, seed: plan.seed, told: &told, runs: None };
                log::say(format_args!("{report}"));
            }
            errno_of(&told.ran.outcome)
        }
        Err(e) => e,
    }
}

/// Runs with `runs` seeds, until one fails; then looks for the shortest schedule that fails, and
/// reports it. Returns the number of good runs, or the error of the run that failed.
/// `gs_test_explore`.
pub fn explore(plan: &Plan, runs: u64) -> i64 {
    let mut steps = 0;
    for i in 0..runs {
        let seed = plan.seed.wrapping_add(i);
        let ran = match plan.once(seed, steps, plan.script.clone(), false) {
            Ok(told) => told.ran,
            Err(e) => return e.into(),
        };
        if ran.outcome == Outcome::Done {
            steps = ran.steps;
            continue;
        }
        if !plan.is_quiet {
            let (script, tried) = shrink(plan, seed, &ran);
            if let Ok(told) = plan.once(seed, 0, Some(script), true) {
                let report = Report { plan, seed, told: &told, runs: Some((i + 1, runs, tried)) };
                log::say(format_args!("{report}"));
            }
        }
        return errno_of(&ran.outcome).into();
    }
    runs as i64
}
