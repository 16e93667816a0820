//! A copy of the state and the stack of every goroutine.
//!
//! The world is stopped while everything is copied, so that the copy shows one moment and no name
//! is freed meanwhile. Only addresses are copied from the stacks. Names of functions are looked up
//! when the world runs again: a stopped goroutine may hold the loader's lock, which the look-up
//! needs, or read the pipe that the text goes into.
//!
//! For 10,000 goroutines of 4 frames each the world stood for 10 ms on a virtual machine with a free
//! core, and for 30 ms while six threads shared its two cores. Most of that is the first touch of
//! each stack, which no cache holds and which takes a walk of the page tables: `gs_foreach_g` takes
//! as long, and reads one frame.

use super::embed::{self, GSnapshot};
use crate::backtrace::symbols::{Symbol, Symbols};
use crate::backtrace::unwind::{self, Frame, MOST_FRAMES};
use crate::os::{file, heap, time};
use crate::sched::ext::hooks::{self, ScriptFrame};
use crate::sched::lifecycle::stopping;
use crate::sched::take::call;
use crate::sched::types::g::Status;
use crate::sched::types::runtime::{Visit, try_rt};
use crate::stack;
use core::ffi::{CStr, c_char};
use core::ops::Range;
use std::borrow::Cow;

/// The most frames of an interpreter that are copied for a goroutine.
const MOST_SCRIPT_FRAMES: usize = 64;

/// Frames of a goroutine for which there is room before the world is stopped. If goroutines have
/// more, room is made while the world stands.
const USUAL_FRAMES: usize = 12;

/// The copy of a goroutine.
pub struct Goroutine {
    pub seen: GSnapshot,
    /// Where the name is in `Snapshot::text`.
    name: Range<usize>,
    /// Where the frames are in `Snapshot::frames`, and in `Snapshot::scripts`.
    frames: Range<usize>,
    scripts: Range<usize>,
}

/// A frame of an interpreter, with its strings in `Snapshot::text`.
struct Script {
    function: Range<usize>,
    file: Range<usize>,
    line: u32,
}

/// Copies of goroutines, and what they refer to.
#[derive(Default)]
pub struct Snapshot {
    /// By id; those without an id, which have not begun, come first.
    pub all: Vec<Goroutine>,
    text: Vec<u8>,
    frames: Vec<Frame>,
    scripts: Vec<Script>,
    /// When it was taken.
    pub now: i64,
}

/// Takes a snapshot, and calls `f` with it and with the symbols for its addresses. Returns what `f`
/// returns, `-ENOMEM`, or `-EBADF`: `fd` isn't open. `f` runs on a large stack, in an announced
/// call: it may write to a pipe that a goroutine reads.
pub fn with(fd: i32, f: impl FnOnce(&Snapshot, &mut Symbols) -> i32) -> i32 {
    if !file::is_open(fd) {
        return -libc::EBADF;
    }
    // In a system call: a goroutine that was stopped in the middle of dlopen(3) may need the P.
    call::enter();
    unwind::refresh_modules();
    call::exit();
    let Some(snapshot) = Snapshot::take() else { return -libc::ENOMEM };
    if !Symbols::have_memory() {
        return -libc::ENOMEM;
    }
    let shows_all = try_rt().is_some_and(|rt| rt.debug.all_frames);
    // The goroutine that reads the other end of a pipe may need the P too.
    call::enter();
    let result = stack::on_large(|| f(&snapshot, &mut Symbols::new(shows_all)));
    call::exit();
    result.unwrap_or(-libc::ENOMEM)
}

impl Snapshot {
    /// `None`: there is no memory.
    fn take() -> Option<Snapshot> {
        let mut snapshot = Snapshot::default();
        let mut has_room = true;
        if let Some(rt) = Visit::begin() {
            let count = rt.goroutines();
            has_room = heap::reserve(&mut snapshot.all, count)
                && heap::reserve(&mut snapshot.frames, USUAL_FRAMES * count);
            // A caller that has stopped the world itself keeps it stopped.
            let stopped_here = stopping::stop() == 0;
            embed::for_each(|seen| has_room = has_room && snapshot.add(seen));
            if stopped_here {
                stopping::start();
            }
        }
        snapshot.now = time::now();
        snapshot.all.sort_unstable_by_key(|g| g.seen.id);
        has_room.then_some(snapshot)
    }

    /// Copies a goroutine. False: there is no memory.
    fn add(&mut self, seen: &GSnapshot) -> bool {
        let (frames, scripts) = (self.frames.len(), self.scripts.len());
        // SAFETY: the world is stopped, so the goroutine keeps its name.
        let Some(name) = (unsafe { self.copy(seen.name) }) else { return false };
        if !self.add_frames(seen) || !self.add_scripts(seen) || !heap::reserve(&mut self.all, 1) {
            return false;
        }
        let (frames, scripts) = (frames..self.frames.len(), scripts..self.scripts.len());
        self.all.push(Goroutine { seen: *seen, name, frames, scripts });
        true
    }

    fn add_frames(&mut self, seen: &GSnapshot) -> bool {
        let Some(from) = seen.from else { return true };
        let mut has_room = true;
        let mut add = |frame| {
            has_room = heap::reserve(&mut self.frames, 1);
            if has_room {
                self.frames.push(frame);
            }
            has_room
        };
        // SAFETY: the goroutine's stack, and the world is stopped, or the caller's own.
        unsafe { unwind::walk(from, seen.stack, &mut add) };
        has_room
    }

    fn add_scripts(&mut self, seen: &GSnapshot) -> bool {
        // A goroutine that has not begun has no frames.
        let (Some(g), Some(_)) = (seen.g, seen.from) else { return true };
        let mut room = [ScriptFrame::NONE; MOST_SCRIPT_FRAMES];
        hooks::script_frames(g, &mut room).iter().all(|frame| {
            // SAFETY: the world is stopped, so the strings are valid.
            let (function, file) = unsafe { (self.copy(frame.function), self.copy(frame.file)) };
            let (Some(function), Some(file)) = (function, file) else { return false };
            let line = u32::try_from(frame.line).unwrap_or_default();
            let has_room = heap::reserve(&mut self.scripts, 1);
            if has_room {
                self.scripts.push(Script { function, file, line });
            }
            has_room
        })
    }

    /// Copies a C string into `text`. `None`: there is no memory.
    ///
    /// # Safety
    /// Null, or a valid C string.
    unsafe fn copy(&mut self, string: *const c_char) -> Option<Range<usize>> {
        let bytes = match string.is_null() {
            true => &[][..],
            // SAFETY: as the caller says.
            false => unsafe { CStr::from_ptr(string) }.to_bytes(),
        };
        let begin = self.text.len();
        heap::reserve(&mut self.text, bytes.len()).then(|| {
            self.text.extend_from_slice(bytes);
            begin..self.text.len()
        })
    }

    fn string(&self, at: &Range<usize>) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.text[at.clone()])
    }

    /// The goroutine's name; empty: none.
    pub fn name(&self, g: &Goroutine) -> Cow<'_, str> {
        self.string(&g.name)
    }

    /// Calls `f` with each visible function on the goroutine's stack, the innermost first. The
    /// frames of an interpreter come before all others, and have neither a module nor a `pc`.
    pub fn each_symbol(&self, g: &Goroutine, symbols: &mut Symbols, f: &mut dyn FnMut(&Symbol)) {
        let mut any = false;
        for script in &self.scripts[g.scripts.clone()] {
            any = true;
            f(&Symbol {
                pc: 0,
                function: &self.string(&script.function),
                file: &self.string(&script.file),
                line: script.line,
                offset: 0,
                module: "",
                is_library: false,
                is_inlined: false,
            });
        }
        symbols.visible(&self.frames[g.frames.clone()], &mut |symbol| {
            any = true;
            f(symbol);
        });
        // A goroutine that has not begun shows the function that it will call.
        if !any && g.seen.function != 0 {
            symbols.frames(g.seen.function, true, &mut |symbol| {
                if !symbol.is_library {
                    f(symbol);
                }
            });
        }
    }

    /// Whether the goroutine has more frames than were copied.
    pub fn is_cut(&self, g: &Goroutine) -> bool {
        g.frames.len() == MOST_FRAMES
    }
}

impl Goroutine {
    /// What the goroutine does, in Go's words.
    pub fn state(&self) -> &'static str {
        match (self.seen.status, self.seen.why) {
            (Status::Waiting, Some(why)) => why.reason().to_str().unwrap_or("waiting"),
            (status, _) => status_name(status),
        }
    }

    /// For how long the goroutine has waited, or been in its call, in ns; 0: neither.
    pub fn waits_for(&self, now: i64) -> i64 {
        if self.seen.since == 0 { 0 } else { (now - self.seen.since).max(0) }
    }
}

/// A status in one word.
pub fn status_name(status: Status) -> &'static str {
    match status {
        Status::Waiting => "waiting",
        Status::Running => "running",
        Status::Syscall => "syscall",
        Status::Runnable => "runnable",
        Status::Dead => "dead",
    }
}
