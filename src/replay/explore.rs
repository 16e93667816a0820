//! One run; or many, until a run fails.

use super::report::{self, Report};
use super::shrink::shrink;
use crate::backtrace::unwind;
use crate::io::memory::{self, Network};
use crate::os::{self, file, log, time};
use crate::sched::lifecycle::bubble::{self, Ran, Setup};
use crate::sched::lifecycle::watch;
use crate::sched::prim::draws::{Schedule, Script};
use crate::sched::services::deadlock;
use crate::sched::types::course::{Check, Event, Outcome};
use crate::sched::types::task::GoFn;
use core::ffi::c_void;
use core::{fmt, mem};

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
    pub net: memory::Options,
    /// Chances out of 1000: see `Bubble`.
    pub cancels: u32,
    pub no_memory: u32,
    /// Runs have these draws, and no seed decides.
    pub script: Option<Script>,
    /// The file into which the events of the reported run are written.
    pub log: Option<i32>,
    /// The file into which reports are written; `None`: the library's messages have them.
    pub report: Option<i32>,
    /// Nothing is printed.
    pub is_quiet: bool,
    /// Whether a crash in one of many runs is a failure like others.
    pub catches: bool,
    /// Whether a run fails in which something besides its draws has a say.
    pub is_strict: bool,
}

/// What a run is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It is the only one: a crash ends the process.
    Alone,
    /// One of many: a crash is a failure like others.
    OneOfMany,
    /// One of many, of which all switches that are possible are wanted.
    Listed,
    /// To report what it does.
    Explained,
    /// To crash again, for good.
    Last,
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

    /// Whether the process ends if a goroutine crashes in such a run.
    fn is_last(&self, manner: Manner) -> bool {
        manner == Manner::Alone || !self.catches
    }

    /// Writes a report, or a message before it.
    fn say(&self, text: fmt::Arguments) {
        match self.report {
            None => log::say(text),
            Some(fd) => {
                let mut text = text.to_string();
                if !text.ends_with('\n') {
                    text.push('\n');
                }
                if let e @ ..0 = file::write_whole(fd, text.as_bytes()) {
                    log::say(format_args!(
                        "gosched: test: the report can't be written: errno {}",
                        -e
                    ));
                }
            }
        }
    }

    /// Runs once; if the plan is strict and the run is good, twice. `steps`: about how many steps the
    /// run will have; 0: not known.
    pub fn once(
        &self,
        seed: u64,
        steps: u64,
        script: Option<Script>,
        manner: Manner,
    ) -> Result<Told, i32> {
        let mut told = self.run(seed, steps, script.clone(), manner, None)?;
        if self.is_strict && told.ran.outcome == Outcome::Done {
            let earlier = mem::take(&mut told.ran.log);
            let mut again = self.run(seed, steps, script, manner, Some(earlier.clone()))?;
            if again.ran.outcome == Outcome::Done {
                let found = &mut again.ran.influences;
                told.ran.influences.drain(..).for_each(|one| watch::add(found, one));
                found.extend(watch::compare_ends(&earlier, &again.ran.log));
                if found.iter().any(|influence| influence.what.changes_runs()) {
                    again.ran.outcome = Outcome::Disturbed(watch::NOT_ONLY_THE_SEED.to_owned());
                }
            }
            told = again;
        }
        if let (Some(fd), Manner::Alone | Manner::Explained) = (self.log, manner)
            && let e @ ..0 = file::write_whole(fd, report::log(&told.ran.log).as_bytes())
        {
            log::say(format_args!("gosched: test: the log can't be written: errno {}", -e));
        }
        Ok(told)
    }

    /// Runs once. `earlier`: the events of a run with the same draws.
    fn run(
        &self,
        seed: u64,
        steps: u64,
        script: Option<Script>,
        manner: Manner,
        earlier: Option<Vec<Event>>,
    ) -> Result<Told, i32> {
        let explains = manner == Manner::Explained;
        let tells = !self.is_quiet && matches!(manner, Manner::Alone | Manner::Explained);
        let watches = explains || self.is_strict;
        let setup = Setup {
            seed,
            schedule: self.schedule,
            steps,
            script,
            max_steps: self.max_steps,
            check: self.check,
            logs: self.is_strict
                || self.log.is_some() && matches!(manner, Manner::Alone | Manner::Explained),
            net: Some(Box::new(Network::new(self.net))),
            cancels: self.cancels,
            no_memory: self.no_memory,
            explains,
            watches,
            earlier,
            lists_possible: manner == Manner::Listed,
            catches: self.catches
                && matches!(manner, Manner::OneOfMany | Manner::Listed | Manner::Explained),
            last_words: match manner {
                Manner::Alone | Manner::OneOfMany if self.is_last(manner) => format!(
                    "gosched: test: seed {seed}: the process ends; to have it again: GOSCHED_TEST={}\n",
                    match &self.script {
                        Some(script) => format!("replay={script}"),
                        None => format!("seed={seed}"),
                    }
                ),
                _ => String::new(),
            },
        };
        if watches {
            unwind::refresh_modules();
        }
        let mut waiting = String::new();
        let mut when_over = |outcome: &Outcome| {
            waiting = match outcome {
                Outcome::Deadlock if tells => deadlock::of_bubble(),
                Outcome::Crashed(..) if tells => deadlock::of_crash(),
                _ => String::new(),
            };
        };
        let mut ran = bubble::run(self.f, self.arg, self.pc, setup, &mut when_over)?;
        if !ran.influences.is_empty() {
            report::leave_out_interpreters(&mut ran.influences);
        }
        Ok(Told { ran, waiting })
    }
}

/// The result of a function of the C API for an outcome.
fn errno_of(outcome: &Outcome) -> i32 {
    match outcome {
        Outcome::Done => 0,
        Outcome::Deadlock => -libc::EDEADLK,
        Outcome::TooLong => -libc::ETIMEDOUT,
        Outcome::Failed(_) | Outcome::Crashed(..) => -libc::EPROTO,
        Outcome::Disturbed(_) => -libc::EPERM,
    }
}

/// Runs once, and reports a failure. `gs_test_run`.
pub fn run(plan: &Plan) -> i32 {
    let told = match plan.once(plan.seed, 0, plan.script.clone(), Manner::Alone) {
        Ok(told) => told,
        Err(e) => return e,
    };
    let is_good = told.ran.outcome == Outcome::Done;
    if !plan.is_quiet && (!is_good || !told.ran.influences.is_empty()) {
        let report = Report { plan, seed: plan.seed, told: &told, first: None, runs: None };
        plan.say(format_args!("{report}"));
    }
    errno_of(&told.ran.outcome)
}

/// Runs with `runs` seeds, until one fails; then looks for the shortest schedule that fails, and
/// reports it. Returns the number of good runs, or the error of the run that failed. If a goroutine
/// crashes, the process ends in the end. `gs_test_explore`.
pub fn explore(plan: &Plan, runs: u64) -> i64 {
    let mut steps = 0;
    let mut has_warned = plan.is_quiet;
    for i in 0..runs {
        let seed = plan.seed.wrapping_add(i);
        let told = match plan.once(seed, steps, plan.script.clone(), Manner::OneOfMany) {
            Ok(told) => told,
            Err(e) => return e.into(),
        };
        if told.ran.outcome == Outcome::Done {
            steps = told.ran.steps;
            if !has_warned && !told.ran.influences.is_empty() {
                has_warned = true;
                let report = Report { plan, seed, told: &told, first: None, runs: None };
                plan.say(format_args!("{report}"));
            }
            continue;
        }
        let ran = told.ran;
        let crashed = matches!(ran.outcome, Outcome::Crashed(..));
        let mut script = Script(ran.draws.clone());
        if !plan.is_quiet {
            // If something goes wrong from here on, this is known.
            plan.say(format_args!(
                "gosched: test: seed {seed}, run {} of {runs} fails; now for the shortest schedule",
                i + 1
            ));
            let hush = crashed.then(Hush::begin);
            let (shortest, tried) = shrink(plan, seed, &ran);
            let told = plan.once(seed, 0, Some(shortest.clone()), Manner::Explained);
            drop(hush);
            if let Ok(told) = told {
                let report = Report {
                    plan,
                    seed,
                    told: &told,
                    first: Some(&ran.outcome),
                    runs: Some((i + 1, runs, tried)),
                };
                plan.say(format_args!("{report}"));
            }
            script = shortest;
        }
        if let Outcome::Crashed(_, sig) = ran.outcome {
            script.0.sort_unstable();
            let _ = plan.once(seed, 0, Some(script), Manner::Last);
            os::end_by_signal(sig);
        }
        return errno_of(&ran.outcome).into();
    }
    runs as i64
}

/// While this exists, nothing is written to standard error: a test that crashes says so each time.
struct Hush {
    stderr: i32,
}

impl Hush {
    fn begin() -> Hush {
        Hush { stderr: file::divert(libc::STDERR_FILENO) }
    }
}

impl Drop for Hush {
    fn drop(&mut self) {
        file::undivert(libc::STDERR_FILENO, self.stderr);
    }
}
