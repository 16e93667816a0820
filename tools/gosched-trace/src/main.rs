//! `gosched-trace`: prints execution traces, sums them up, and converts them for Perfetto.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gosched_trace::{Item, Reader, perfetto, print, summary};
use lexopt::prelude::*;

const HELP: &str = "\
gosched-trace - print, sum up and convert execution traces

Usage:
  gosched-trace print   [-s] [--json] TRACE
  gosched-trace summary [-n ROWS] [--json] TRACE
  gosched-trace convert TRACE -o OUT [--name NAME]

TRACE is a file in Go's format, of a program with libgosched or of a Go program; - is the standard input. The formats
of Go 1.22 to 1.26 are known; later versions of Go write the last of them.

Commands:
  print    Prints each event as a line: the seconds since the first event, the M (the thread), the P and the goroutine
           that the M had just before the event, with the goroutine's function; the event, by Go's name; its arguments.
           A stack is shown by its innermost function.
  summary  Says who waited longest, and for what; how long goroutines that could run waited for a P; who kept a P
           longest; what the P's did; system calls; how many events and bytes there are of each kind.
  convert  Writes a trace for Perfetto (https://ui.perfetto.dev): a row for each P with the functions of the
           goroutines that run there, arrows for wake-ups, rows of the threads with system calls, counters.

Options:
  -s, --stacks     print: the stacks in full
      --json       print: a line of JSON for each event, with its stacks; times are nanoseconds of the trace's clock
                   summary: one object; times are nanoseconds
  -n, --rows ROWS  summary: how many rows each table has at most (20; 0: all)
  -o, --output OUT convert: the file to write; - is the standard output
      --name NAME  convert: the name of the process (by default TRACE's)
  -h, --help       this text
  -V, --version    the version

Memory: one generation of the trace at a time; a program that traces begins a generation each second or so.

Exit status: 0 if all is well; 1 if the trace is damaged or its end is missing, or if a file can't be read or written;
2 if the command line is wrong. What can be read of a damaged trace is shown first; the error names the byte of the
file where reading ends.

Examples:
  gosched-trace summary app.trace
  gosched-trace print app.trace | grep 'G=7 '
  gosched-trace convert app.trace -o app.perfetto-trace
";

/// How the program ends when it isn't well.
enum Failure {
    /// What is wrong with the command line.
    Usage(String),
    /// What couldn't be read or written.
    Other(String),
    /// The reader of the output has closed its end.
    Closed,
}

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Failure {
        Failure::Usage(error.to_string())
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(Failure::Other(what)) => {
            eprintln!("gosched-trace: {what}");
            ExitCode::from(1)
        }
        Err(Failure::Usage(what)) => {
            eprintln!("gosched-trace: {what}; try gosched-trace --help");
            ExitCode::from(2)
        }
    }
}

/// The command line.
#[derive(Default)]
struct Arguments {
    command: Option<String>,
    trace: Option<PathBuf>,
    stacks: bool,
    json: bool,
    rows: Option<usize>,
    output: Option<PathBuf>,
    name: Option<String>,
}

fn run() -> Result<(), Failure> {
    let mut arguments = Arguments::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return said(io::stdout().write_all(HELP.as_bytes())),
            Short('V') | Long("version") => {
                return said(writeln!(io::stdout(), "gosched-trace {}", env!("CARGO_PKG_VERSION")));
            }
            Short('s') | Long("stacks") => arguments.stacks = true,
            Long("json") => arguments.json = true,
            Short('n') | Long("rows") => arguments.rows = Some(parser.value()?.parse()?),
            Short('o') | Long("output") => arguments.output = Some(parser.value()?.into()),
            Long("name") => arguments.name = Some(parser.value()?.string()?),
            Value(value) if arguments.command.is_none() => {
                arguments.command = Some(value.string()?)
            }
            Value(value) if arguments.trace.is_none() => arguments.trace = Some(value.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(command) = &arguments.command else {
        return Err(Failure::Usage("no command".to_string()));
    };
    let belongs = |given: bool, option: &str, owners: &[&str]| {
        if given && !owners.contains(&command.as_str()) {
            return Err(Failure::Usage(format!("{option} is no option of {command}")));
        }
        Ok(())
    };
    if !["print", "summary", "convert"].contains(&command.as_str()) {
        return Err(Failure::Usage(format!("there is no command '{command}'")));
    }
    belongs(arguments.stacks, "--stacks", &["print"])?;
    belongs(arguments.json, "--json", &["print", "summary"])?;
    belongs(arguments.rows.is_some(), "--rows", &["summary"])?;
    belongs(arguments.output.is_some(), "--output", &["convert"])?;
    belongs(arguments.name.is_some(), "--name", &["convert"])?;
    let Some(trace) = &arguments.trace else {
        return Err(Failure::Usage("no trace is named".to_string()));
    };
    match command.as_str() {
        "print" => print(trace, &arguments),
        "summary" => summary(trace, &arguments),
        _ => convert(trace, &arguments),
    }
}

/// The outcome of writing to the standard output.
fn said(outcome: io::Result<()>) -> Result<(), Failure> {
    outcome.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::Other(format!("can't write: {error}")),
    })
}

fn open(trace: &Path) -> Result<Reader<Box<dyn Read>>, Failure> {
    let input: Box<dyn Read> = if trace == Path::new("-") {
        Box::new(io::stdin())
    } else {
        let opened = File::open(trace);
        Box::new(opened.map_err(|error| Failure::Other(format!("{}: {error}", trace.display())))?)
    };
    Reader::new(input).map_err(|error| broken(trace, &error))
}

fn broken(trace: &Path, error: &gosched_trace::Error) -> Failure {
    let name = if trace == Path::new("-") { Path::new("standard input") } else { trace };
    Failure::Other(format!("{}: {error}", name.display()))
}

/// Calls `each` with all items. Ok(Some): what is wrong with the trace behind them.
fn items(
    trace: &Path,
    reader: &mut Reader<Box<dyn Read>>,
    mut each: impl FnMut(&Item, &Reader<Box<dyn Read>>) -> io::Result<()>,
) -> Result<Option<Failure>, Failure> {
    loop {
        match reader.next() {
            Ok(Some(item)) => said(each(&item, reader))?,
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(broken(trace, &error))),
        }
    }
}

fn print(trace: &Path, arguments: &Arguments) -> Result<(), Failure> {
    let mut reader = open(trace)?;
    let options = print::Options { stacks: arguments.stacks, json: arguments.json };
    let mut printer = print::Printer::new(BufWriter::new(io::stdout().lock()), options);
    let wrong = items(trace, &mut reader, |item, reader| match item {
        Item::Generation => printer.generation(reader.tables()),
        Item::Event(event) => printer.event(event, reader.tables()),
    })?;
    said(printer.finish())?;
    wrong.map_or(Ok(()), Err)
}

fn summary(trace: &Path, arguments: &Arguments) -> Result<(), Failure> {
    let mut reader = open(trace)?;
    let mut sums = summary::Sums::new(reader.version());
    let wrong = items(trace, &mut reader, |item, reader| {
        match item {
            Item::Generation => sums.generation(reader.tables()),
            Item::Event(event) => sums.event(event, reader.tables()),
        }
        Ok(())
    })?;
    let rows = match arguments.rows.unwrap_or(20) {
        0 => usize::MAX,
        rows => rows,
    };
    let summary = sums.finish(reader.offset(), rows);
    let mut out = BufWriter::new(io::stdout().lock());
    said(if arguments.json { summary.json(&mut out) } else { summary.text(&mut out) })?;
    said(out.flush())?;
    wrong.map_or(Ok(()), Err)
}

/// Whether the trace, if it is a file, is the file at this path.
fn is_same_file(trace: &Path, path: &Path) -> bool {
    let file = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    trace != Path::new("-") && file(trace).is_some_and(|trace| file(path) == Some(trace))
}

fn convert(trace: &Path, arguments: &Arguments) -> Result<(), Failure> {
    let Some(output) = &arguments.output else {
        return Err(Failure::Usage("convert needs -o OUT".to_string()));
    };
    let mut reader = open(trace)?;
    let wrote = |outcome: io::Result<()>| {
        outcome.map_err(|error| Failure::Other(format!("{}: {error}", output.display())))
    };
    let stem = || match trace.file_stem() {
        Some(stem) if trace != Path::new("-") => stem.to_string_lossy().into_owned(),
        _ => "trace".to_string(),
    };
    let name = arguments.name.clone().unwrap_or_else(stem);
    let to_stdout = output == Path::new("-");
    let out: Box<dyn Write> = if to_stdout {
        Box::new(io::stdout().lock())
    } else {
        if is_same_file(trace, output) {
            let output = output.display();
            return Err(Failure::Other(format!("{output} is the trace itself: name another file")));
        }
        match File::create(output) {
            Ok(file) => Box::new(file),
            Err(error) => return wrote(Err(error)),
        }
    };
    let mut converter = perfetto::Converter::new(BufWriter::new(out), &name);
    let mut failed = None;
    let wrong = items(trace, &mut reader, |item, reader| {
        let written = match item {
            Item::Generation => converter.generation(reader.tables()),
            Item::Event(event) => converter.event(event, reader.tables()),
        };
        written.map_err(|error| {
            let kind = error.kind();
            failed = Some(error);
            kind.into()
        })
    });
    let wrong = match (wrong, failed) {
        (Err(Failure::Closed), _) if to_stdout => return Err(Failure::Closed),
        (_, Some(error)) => return wrote(Err(error)),
        (wrong, None) => wrong?,
    };
    wrote(converter.finish())?;
    wrong.map_or(Ok(()), Err)
}
