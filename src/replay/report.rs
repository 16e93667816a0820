//! What a run that failed was, for people.

use super::explore::{Plan, Told};
use crate::backtrace::symbols::{Symbol, Symbols};
use crate::sched::prim::draws::Script;
use crate::sched::types::course::{Drawn, Event, Happened, Influence, Note, Outcome, Seen, What};
use crate::{os, stack};
use core::{fmt, slice};

/// A run that has failed.
pub struct Report<'a> {
    pub plan: &'a Plan,
    pub seed: u64,
    pub told: &'a Told,
    /// How the run ended that was found.
    pub first: Option<&'a Outcome>,
    /// After how many runs of how many, and the runs that it took to shrink the schedule.
    pub runs: Option<(u64, u64, u32)>,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let ran = &self.told.ran;
        let first = self.first.map_or(String::new(), |first| match first {
            Outcome::Failed(why) | Outcome::Disturbed(why) => format!(" ({why})"),
            _ => String::new(),
        });
        let what = match &ran.outcome {
            Outcome::Done if self.first.is_none() => "the run is good",
            Outcome::Done if ran.influences.is_empty() => &format!(
                "the failure{first} did not come again: the function keeps state between runs"
            ),
            Outcome::Done => {
                &format!("the failure{first} did not come again: not only the seed decides the run")
            }
            Outcome::Deadlock => "all goroutines are asleep - deadlock!",
            Outcome::TooLong => "the run takes too many steps",
            Outcome::Crashed(id, sig) => {
                &format!("goroutine {id} crashes by {}", os::signal_name(*sig))
            }
            Outcome::Failed(why) | Outcome::Disturbed(why) => why,
        };
        write!(f, "gosched: test: seed {}", self.seed)?;
        if let Some((nth, of, _)) = self.runs {
            write!(f, ", run {nth} of {of}")?;
        }
        writeln!(f, ": {what}")?;
        f.write_str(&self.told.waiting)?;
        let shown = stack::on_large(|| influences(&ran.influences)).unwrap_or_default();
        if !shown.is_empty() {
            f.write_str(&shown)?;
        } else if matches!(ran.outcome, Outcome::Disturbed(_)) {
            writeln!(f, "  Such a run can't be had again: let goroutines of the bubble do this.")?;
        }
        if ran.outcome == Outcome::Done && self.first.is_none() {
            return Ok(());
        }
        let again = match self.runs {
            None if self.plan.script.is_none() => format!("seed={}", self.seed),
            _ => format!("replay={}", Script(ran.draws.clone())),
        };
        if let Some((_, _, tried)) = self.runs {
            match ran.draws.len() {
                0 => writeln!(f, "It fails without any switch that isn't needed.")?,
                n => writeln!(
                    f,
                    "The shortest schedule that fails has {n} choice{}, and {} steps ({tried} \
                     runs to find it):",
                    if n == 1 { "" } else { "s" },
                    ran.steps
                )?,
            }
            let shown = stack::on_large(|| notes(&ran.notes)).unwrap_or_default();
            f.write_str(&shown)?;
        }
        writeln!(f, "To have it again: GOSCHED_TEST={again}")
    }
}

/// Names for addresses; none if there is no memory for them.
fn symbols() -> Symbols {
    if Symbols::have_memory() { Symbols::new(false) } else { Symbols::none() }
}

/// The most switches that are shown.
const MOST: usize = 40;

/// The most functions that are shown of a stack.
const MOST_FRAMES: usize = 4;

fn notes(notes: &[Note]) -> String {
    let mut symbols = symbols();
    let mut text = String::new();
    for (i, note) in notes.iter().take(MOST).enumerate() {
        let (nth, step) = (i + 1, note.step);
        text += &match &note.what {
            Drawn::Switch { from: Some(from), to } => {
                let (from, to) = (place(from, &mut symbols), place(to, &mut symbols));
                format!("  {nth}. step {step}: {from}\n     gives way to {to}\n")
            }
            Drawn::Switch { from: None, to } => {
                format!("  {nth}. step {step}: next is {}\n", place(to, &mut symbols))
            }
            Drawn::Fault { by, what, size } => {
                format!("  {nth}. step {step}: goroutine {by}: {what} ({size})\n")
            }
        };
    }
    if notes.len() > MOST {
        text += &format!("  ... and {} more\n", notes.len() - MOST);
    }
    text
}

/// What besides the draws has had a say in a run, one a line.
fn influences(all: &[Influence]) -> String {
    let mut symbols = symbols();
    let mut text = String::new();
    for Influence { what, by } in all {
        text += &format!("  {}", who(by));
        text += &match what {
            What::Calls { function, does } => format!(" {does} ({function})"),
            What::Blocks(ns) => format!(" blocks the thread for {} ms", ns / 1_000_000),
            What::Differs(earlier, later) => {
                let of = |event: &Option<Event>| match event {
                    Some(event) => log(slice::from_ref(event)).trim_end().to_owned(),
                    None => "the end".to_owned(),
                };
                format!(": a second run differs: first {}, then {}", of(earlier), of(later))
            }
        };
        let mut shown = 0;
        let mut add = |at: String| {
            shown += 1;
            if shown <= MOST_FRAMES {
                text += if shown == 1 { "\n    in " } else { ", called by " };
                text += &at;
            }
        };
        if !by.script.is_empty() {
            // The rest is the interpreter's.
            add(by.script.clone());
        }
        symbols.of_user(&by.frames, &mut |symbol| {
            if by.script.is_empty() && !symbol.is_library && !is_inline_part(symbol) {
                add(symbol.describe());
            }
        });
        text.push('\n');
    }
    text
}

/// Functions in which CPython reads the clock for its own locks.
const OF_INTERPRETERS: [&str; 3] = ["PyThread_acquire_lock_timed", "take_gil", "drop_gil"];

/// Leaves out what an interpreter has done for itself, and not because the goroutine's code has asked
/// for it.
pub fn leave_out_interpreters(all: &mut Vec<Influence>) {
    let leave_out = || {
        let mut symbols = symbols();
        all.retain(|Influence { by, .. }| {
            let mut found = false;
            symbols.visible(&by.frames, &mut |symbol| {
                found |= OF_INTERPRETERS.contains(&symbol.function);
            });
            !found
        });
    };
    let _ = stack::on_large(leave_out);
}

/// A goroutine, with its name.
fn who(seen: &Seen) -> String {
    match &*seen.name {
        "" => format!("goroutine {}", seen.id),
        name => format!("goroutine {} {name:?}", seen.id),
    }
}

/// A goroutine, with the function that it calls and the place of that call.
fn place(seen: &Seen, symbols: &mut Symbols) -> String {
    let text = who(seen);
    if !seen.script.is_empty() {
        let new = if seen.frames.is_empty() { ", new, with" } else { " in" };
        return format!("{text}{new} {}", seen.script);
    }
    let (mut call, mut by) = (None, None);
    symbols.of_user(&seen.frames, &mut |symbol| {
        if symbol.is_library {
            call.get_or_insert(symbol.function.to_owned());
        } else if by.is_none() && !is_inline_part(symbol) {
            by = Some(symbol.describe());
        }
    });
    if by.is_none() && seen.function != 0 {
        symbols.frames(seen.function, true, &mut |symbol| {
            if !symbol.is_library && !symbol.is_inlined {
                by = Some(spawned_by_go(symbol).unwrap_or_else(|| symbol.describe()));
            }
        });
        return by.map_or(text.clone(), |by| format!("{text}, new, with {by}"));
    }
    match (call, by) {
        (Some(call), Some(by)) => format!("{text} at {call} in {by}"),
        (None, Some(by)) => format!("{text} in {by}"),
        _ => text,
    }
}

/// What `gs::go` was called with, if this is its function, whose type has it as the second parameter.
fn spawned_by_go(entry: &Symbol) -> Option<String> {
    let (_, types) = entry.function.split_once("::go_state<")?;
    let (mut depth, mut nth, mut from) = (0, 0, 0);
    for (at, c) in types.char_indices() {
        match c {
            '<' | '(' | '{' => depth += 1,
            ',' | '>' if depth == 0 => {
                nth += 1;
                if nth == 2 {
                    return Some(types[from..at].trim().to_owned());
                }
                from = at + 1;
            }
            '>' | ')' | '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Whether the function is one of the header's that are inlined into the caller's.
fn is_inline_part(symbol: &Symbol) -> bool {
    symbol.function.starts_with("gs_") && symbol.function.ends_with("_inline")
}

/// The events of a run, one a line: the virtual time in s, the number of steps, the goroutine, and
/// what has happened. Has no address, so that it is the same in each process.
pub fn log(events: &[Event]) -> String {
    let text = || {
        let mut symbols = symbols();
        let mut text = String::new();
        for Event { time, step, id, what } in events {
            let (s, ns) = (time / 1_000_000_000, time % 1_000_000_000);
            text += &format!("{s}.{ns:09} {step} goroutine {id} ");
            match what {
                Happened::Spawns { id, function } => {
                    text += &format!("spawns goroutine {id}");
                    symbols.frames(*function, true, &mut |symbol| {
                        if !symbol.is_inlined && !symbol.is_library && !symbol.function.is_empty() {
                            text += &format!(": {}", symbol.function);
                        }
                    });
                }
                Happened::Runs => text += "runs",
                Happened::GivesWay => text += "gives way",
                Happened::Waits(why) => text += &format!("waits {}", why.text()),
                Happened::Stops => text += "stops",
                Happened::Ends => text += "ends",
                Happened::Ready => text += "can run",
                Happened::Fault(what, size) => text += &format!("draws {size}: {what}"),
            }
            text.push('\n');
        }
        text
    };
    stack::on_large(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_new_goroutine_of_cxx_calls_is_named() {
        let with = |function| {
            let (file, module) = ("", "");
            spawned_by_go(&Symbol {
                pc: 0,
                function,
                file,
                line: 0,
                offset: 0,
                module,
                is_library: false,
                is_inlined: false,
            })
        };
        let all = [
            (
                "gs::v1::detail::go_state<void, main::{lambda()#1}>::entry(void*)",
                "main::{lambda()#1}",
            ),
            (
                "gs::v1::detail::go_state<int, f::{lambda(a<b, c>)#2}, >::entry(void*)",
                "f::{lambda(a<b, c>)#2}",
            ),
            ("gs::v1::detail::go_state<a<b, c>, int (*)(d, e), d>::entry(void*)", "int (*)(d, e)"),
        ];
        for (function, wanted) in all {
            assert_eq!(with(function).as_deref(), Some(wanted));
        }
        assert_eq!(with("consume(void*)"), None);
    }
}
