//! Prints each event as a line of text, or as a line of JSON.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::change::{GoState, ProcState};
use crate::generation::Tables;
use crate::names::{Names, UNKNOWN};
use crate::reader::Event;
use crate::wire::{Arg, NONE};

/// What is printed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The stacks, too.
    pub stacks: bool,
    /// JSON: an object for each event, which has its stacks.
    pub json: bool,
}

/// Prints events to `out`.
pub struct Printer<W> {
    out: W,
    options: Options,
    names: Names,
    /// The time of the first event.
    begin: Option<i64>,
}

impl<W: Write> Printer<W> {
    pub fn new(out: W, options: Options) -> Printer<W> {
        Printer { out, options, names: Names::default(), begin: None }
    }

    /// Prints the head of a generation.
    pub fn generation(&mut self, tables: &Tables) -> io::Result<()> {
        if self.options.json {
            let clocks = tables.snapshot.map(
                |clocks| json!({"trace": clocks.trace, "mono": clocks.mono, "wall": clocks.wall}),
            );
            let line = json!({"generation": tables.number, "clocks": clocks});
            return writeln!(self.out, "{line}");
        }
        writeln!(self.out, "# generation {}", tables.number)
    }

    /// Prints an event.
    pub fn event(&mut self, event: &Event, tables: &Tables) -> io::Result<()> {
        self.names.learn(event, tables);
        let begin = *self.begin.get_or_insert(event.time);
        if self.options.json {
            self.json(event, tables)?;
        } else {
            self.text(event, event.time.saturating_sub(begin), tables)?;
        }
        self.names.forget(event);
        Ok(())
    }

    pub fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn text(&mut self, event: &Event, time: i64, tables: &Tables) -> io::Result<()> {
        let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
        let (m, p) = (id(event.m), id(event.p));
        let name = event.kind.name();
        write!(self.out, "{seconds:>5}.{rest:09} M={m:<7} P={p:<3} ")?;
        let g = match event.g {
            NONE => "G=-".to_string(),
            g => format!("G={g} {}", self.names.get(g)),
        };
        write!(self.out, "{g:<24} {name}")?;
        for (&arg, &value) in event.kind.args().iter().zip(&event.args) {
            match arg {
                // With the option they come below.
                Arg::Stack | Arg::NewStack if self.options.stacks => continue,
                Arg::Stack | Arg::NewStack if value == 0 => continue,
                _ => write!(self.out, " {}=", arg.name())?,
            }
            match arg {
                Arg::P | Arg::M => write!(self.out, "{}", id(value))?,
                Arg::G => write!(self.out, "{value} ({})", self.names.get(value))?,
                Arg::Seq | Arg::Number(_) => write!(self.out, "{value}")?,
                Arg::ProcStatus | Arg::GoStatus => write!(self.out, "{}", status(arg, value))?,
                Arg::String(_) => write!(self.out, "{:?}", tables.string(value))?,
                Arg::Stack | Arg::NewStack => {
                    write!(self.out, "{}", tables.leaf(value).unwrap_or(UNKNOWN))?;
                }
            }
        }
        writeln!(self.out)?;
        if self.options.stacks {
            for (&arg, &value) in event.kind.args().iter().zip(&event.args) {
                if !matches!(arg, Arg::Stack | Arg::NewStack) || value == 0 {
                    continue;
                }
                if arg == Arg::NewStack {
                    writeln!(self.out, "        of goroutine {}:", event.args[0])?;
                }
                for frame in tables.stack(value) {
                    let (function, file) =
                        (tables.string(frame.function), tables.string(frame.file));
                    writeln!(self.out, "        {function}\n            {file}:{}", frame.line)?;
                }
            }
        }
        Ok(())
    }

    fn json(&mut self, event: &Event, tables: &Tables) -> io::Result<()> {
        let mut args = Map::new();
        for (&arg, &value) in event.kind.args().iter().zip(&event.args) {
            let value = match arg {
                Arg::P | Arg::M => number(value),
                Arg::G => {
                    args.insert("function".to_string(), json!(*self.names.get(value)));
                    json!(value)
                }
                Arg::Seq | Arg::Number(_) => json!(value),
                Arg::ProcStatus | Arg::GoStatus => json!(status(arg, value)),
                Arg::String(_) => json!(tables.string(value)),
                Arg::Stack | Arg::NewStack => frames(value, tables),
            };
            args.insert(arg.name().to_string(), value);
        }
        let function = match event.g {
            NONE => Value::Null,
            g => json!(*self.names.get(g)),
        };
        let line = json!({
            "time": event.time,
            "m": number(event.m),
            "p": number(event.p),
            "g": number(event.g),
            "function": function,
            "event": event.kind.name(),
            "args": args,
        });
        writeln!(self.out, "{line}")
    }
}

fn frames(stack: u64, tables: &Tables) -> Value {
    let frame = |frame: crate::generation::Frame| {
        json!({
            "function": tables.string(frame.function),
            "file": tables.string(frame.file),
            "line": frame.line,
            "pc": frame.pc,
        })
    };
    tables.stack(stack).map(frame).collect()
}

fn status(arg: Arg, value: u64) -> &'static str {
    let name = match arg {
        Arg::ProcStatus => ProcState::from_number(value).map(ProcState::name),
        _ => GoState::from_number(value).map(GoState::name),
    };
    name.unwrap_or(UNKNOWN)
}

fn id(value: u64) -> String {
    if value == NONE { "-".to_string() } else { value.to_string() }
}

fn number(value: u64) -> Value {
    if value == NONE { Value::Null } else { json!(value) }
}
