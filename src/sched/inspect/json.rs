//! Dumps as JSON, for tools. `gs_dump_json`.

use super::out::Out;
use super::snapshot::{self, Goroutine, Snapshot, status_name};
use crate::backtrace::symbols::{Symbol, Symbols};
use crate::os::file;
use core::fmt::{self, Write};

/// Writes one object with all goroutines to the file. Returns as [`dump`](super::dump::dump) does.
pub fn dump(fd: i32) -> i32 {
    snapshot::with(fd, |snapshot, symbols| {
        let mut out = Out::new(|bytes| file::write_whole(fd, bytes));
        let _ = write!(out, "{{\"goroutines\":[");
        for (i, g) in snapshot.all.iter().enumerate() {
            if out.has_failed() {
                break;
            }
            let _ = writeln!(out, "{}", if i == 0 { "" } else { "," });
            let _ = write_one(&mut out, snapshot, g, symbols);
        }
        let _ = writeln!(out, "\n]}}");
        out.end()
    })
}

fn write_one(
    out: &mut dyn Write,
    snapshot: &Snapshot,
    g: &Goroutine,
    symbols: &mut Symbols,
) -> fmt::Result {
    let seen = &g.seen;
    write!(out, "{{\"id\":{}", seen.id)?;
    field(out, "name", &snapshot.name(g))?;
    field(out, "state", status_name(seen.status))?;
    field(out, "wait_reason", seen.why.map_or("", |_| g.state()))?;
    write!(out, ",\"wait_ns\":{}", g.waits_for(snapshot.now))?;
    write!(out, ",\"node\":{},\"locked\":{}", seen.node, seen.is_locked)?;
    match seen.pc {
        0 => write!(out, ",\"creator\":null")?,
        pc => symbols.caller(pc, &mut |by| {
            let _ = write!(out, ",\"creator\":{{\"id\":{}", seen.creator);
            let _ = write_symbol(out, by);
            let _ = write!(out, "}}");
        }),
    }
    write!(out, ",\"frames\":[")?;
    let mut first = true;
    snapshot.each_symbol(g, symbols, &mut |symbol| {
        let comma = if first { "" } else { "," };
        let _ = write!(out, "{comma}{{\"inlined\":{}", symbol.is_inlined);
        let _ = write_symbol(out, symbol);
        let _ = write!(out, "}}");
        first = false;
    });
    write!(out, "],\"cut\":{}}}", snapshot.is_cut(g))
}

/// Further fields of an object: the function and its place.
fn write_symbol(out: &mut dyn Write, symbol: &Symbol) -> fmt::Result {
    field(out, "function", symbol.function)?;
    field(out, "file", symbol.file)?;
    write!(out, ",\"line\":{},\"offset\":{}", symbol.line, symbol.offset)?;
    field(out, "module", symbol.module)?;
    match symbol.pc {
        0 => write!(out, ",\"pc\":null"),
        pc => write!(out, ",\"pc\":\"{pc:#x}\""),
    }
}

/// A further field of an object: a string, or null if it is empty.
fn field(out: &mut dyn Write, name: &str, value: &str) -> fmt::Result {
    write!(out, ",\"{name}\":")?;
    match value {
        "" => out.write_str("null"),
        value => write_string(out, value),
    }
}

fn write_string(out: &mut dyn Write, value: &str) -> fmt::Result {
    out.write_char('"')?;
    write_escaped(out, value)?;
    out.write_char('"')
}

/// The characters of a string, without the quotation marks.
pub fn write_escaped(out: &mut dyn Write, value: &str) -> fmt::Result {
    for c in value.chars() {
        match c {
            '"' | '\\' => write!(out, "\\{c}")?,
            c if c.is_control() => write!(out, "\\u{:04x}", u32::from(c))?,
            c => out.write_char(c)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_and_empty_strings_are_null() {
        let written = |value| {
            let mut text = String::new();
            field(&mut text, "x", value).unwrap();
            text
        };
        assert_eq!(written(""), ",\"x\":null");
        assert_eq!(written("a\"b\\c\nd\u{7f}é"), ",\"x\":\"a\\\"b\\\\c\\u000ad\\u007fé\"");
    }
}
