//! Dumps: the state of every goroutine, as text. `gs_dump`.
//!
//! The world is stopped while everything is copied, so that the copy shows one moment and no name
//! is freed meanwhile. The text is made and written when the world runs again: a stopped goroutine
//! may hold the loader's lock, which the look-up of a place needs, or read the pipe that the text
//! goes into.

use super::embed::{self, GSnapshot};
use super::out::Out;
use crate::os::{self, file, heap, time};
use crate::sched::lifecycle::stopping;
use crate::sched::take::call;
use crate::sched::types::g::{Status, describe_creator};
use crate::sched::types::runtime::Visit;
use core::ffi::CStr;
use core::fmt::{self, Write};
use core::ops::Range;

/// The copy of a goroutine's state.
struct DumpRecord {
    seen: GSnapshot,
    /// Where the goroutine's name is in [`Records::names`].
    name: Range<usize>,
}

/// Copies of goroutines' states, and their names one after the other.
#[derive(Default)]
struct Records {
    all: Vec<DumpRecord>,
    names: Vec<u8>,
}

impl Records {
    /// Copies the state and name of a goroutine. False: there is no memory.
    fn add(&mut self, seen: &GSnapshot) -> bool {
        let name = match seen.name.is_null() {
            true => &[][..],
            // SAFETY: the world is stopped, so the goroutine keeps its name.
            false => unsafe { CStr::from_ptr(seen.name) }.to_bytes(),
        };
        if !heap::reserve(&mut self.names, name.len()) || !heap::reserve(&mut self.all, 1) {
            return false;
        }
        let begin = self.names.len();
        self.names.extend_from_slice(name);
        self.all.push(DumpRecord { seen: *seen, name: begin..self.names.len() });
        true
    }
}

/// Writes a line or two for each goroutine to the file. Returns 0, `-ENOMEM`, or the error of
/// write(2).
pub fn dump(fd: i32) -> i32 {
    let mut records = Records::default();
    if let Some(_runtime) = Visit::begin() {
        // A caller that has stopped the world itself keeps it stopped.
        let stopped_here = stopping::stop() == 0;
        let mut has_room = true;
        embed::for_each_without_stack(|seen| has_room &= has_room && records.add(seen));
        if stopped_here {
            stopping::start();
        }
        if !has_room {
            return -libc::ENOMEM;
        }
    }
    // Ids follow the order of the spawns; the order of the descriptors means nothing.
    records.all.sort_unstable_by_key(|record| record.seen.id);
    // In a system call: the goroutine that reads the other end of a pipe may need the P.
    call::enter();
    let error = records.write(&mut Out::new(|bytes| file::write_whole(fd, bytes)));
    call::exit();
    error
}

impl Records {
    fn write(&self, out: &mut Out<impl FnMut(&[u8]) -> i32>) -> i32 {
        let now = time::now();
        let _ = writeln!(out, "goroutines: {}", self.all.len());
        for record in &self.all {
            if out.has_failed() {
                break;
            }
            let _ = write_one(out, &record.seen, &self.names[record.name.clone()], now);
        }
        out.end()
    }
}

fn write_one(out: &mut impl Write, seen: &GSnapshot, name: &[u8], now: i64) -> fmt::Result {
    let state = match (seen.status, seen.why) {
        (Status::Waiting, Some(why)) => why.reason().to_str().unwrap_or("waiting"),
        (Status::Waiting, None) => "waiting",
        (Status::Running, _) => "running",
        (Status::Syscall, _) => "syscall",
        (Status::Runnable, _) => "runnable",
        (Status::Dead, _) => "dead",
    };
    match seen.id {
        0 => write!(out, "\ngoroutine - [{state}, not begun")?,
        id => write!(out, "\ngoroutine {id} [{state}")?,
    }
    if seen.since != 0 {
        write!(out, ", {} ms", (now - seen.since).max(0) / 1_000_000)?;
    }
    write!(out, "]: node {}", seen.node)?;
    if !name.is_empty() {
        // Quoted and escaped: a name with a line break stays on its line.
        write!(out, ", {:?}", String::from_utf8_lossy(name))?;
    }
    writeln!(out)?;
    let creator = describe_creator(seen.creator);
    match seen.pc {
        0 => writeln!(out, "  spawned by the library"),
        pc => writeln!(out, "  spawned by {creator} at {}", os::place_of(pc)),
    }
}
