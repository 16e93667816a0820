//! Dumps as text, in the shape of Go's tracebacks, so that tools that read those read these too.
//! `gs_dump`.

use super::out::Out;
use super::snapshot::{self, Goroutine, Snapshot};
use crate::backtrace::symbols::Symbols;
use crate::os::file;
use core::fmt::{self, Write};

/// Writes each goroutine's state and backtrace to the file. Returns 0, `-ENOMEM`, or the error of
/// write(2).
pub fn dump(fd: i32) -> i32 {
    snapshot::with(fd, |snapshot, symbols| {
        let mut out = Out::new(|bytes| file::write_whole(fd, bytes));
        let _ = writeln!(out, "goroutines: {}", snapshot.all.len());
        for g in &snapshot.all {
            if out.has_failed() {
                break;
            }
            let _ = write_one(&mut out, snapshot, g, symbols);
        }
        out.end()
    })
}

/// Go's `goroutineheader`, `traceback` and `printcreatedby`.
fn write_one(
    out: &mut dyn Write,
    snapshot: &Snapshot,
    g: &Goroutine,
    symbols: &mut Symbols,
) -> fmt::Result {
    write_header(out, snapshot, g)?;
    snapshot.each_symbol(g, symbols, &mut |symbol| {
        let _ = symbol.write(out);
    });
    symbols.write_end(snapshot.is_cut(g), g.seen.pc, g.seen.creator, out)
}

/// A line such as `goroutine 18 [chan receive, 2 minutes, node 1, locked to thread] {name: w}:`.
fn write_header(out: &mut dyn Write, snapshot: &Snapshot, g: &Goroutine) -> fmt::Result {
    const MINUTE: i64 = 60_000_000_000;
    write!(out, "\ngoroutine {} [{}", g.seen.id, g.state())?;
    if g.seen.id == 0 {
        write!(out, ", not begun")?;
    }
    match g.waits_for(snapshot.now) {
        0 => {}
        ns if ns < MINUTE => write!(out, ", {} ms", ns / 1_000_000)?,
        ns => write!(out, ", {} minutes", ns / MINUTE)?,
    }
    write!(out, ", node {}", g.seen.node)?;
    if g.seen.is_locked {
        write!(out, ", locked to thread")?;
    }
    write!(out, "]")?;
    let name = snapshot.name(g);
    // As Go writes labels: quoted if a reader could take a part for something else.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '_');
    match name.is_empty() {
        true => {}
        false if name.chars().all(is_plain) => write!(out, " {{name: {name}}}")?,
        false => write!(out, " {{name: {name:?}}}")?,
    }
    writeln!(out, ":")
}
