//! Leaked goroutines: goroutines that wait for an object to which nothing refers that may run
//! again. `gs_leaks`.
//!
//! Go finds them in its collector (`goroutineleak`, Go 1.26): it marks from the goroutines that can
//! run; then each goroutine that waits for a marked object is marked too, and what it refers to,
//! until nothing changes; the rest is leaked. C has no types that tell pointers from other words.
//! So here each word of the process that could be a reference counts as a reference.
//!
//! ```text
//!   live:    all memory that can be read  -+
//!            registers of all threads     -+->  objects  ->  goroutines that wait  --+
//!            stacks of goroutines that     |    for them                             |
//!            are not blocked for ever     -+                                         |
//!               ^                                                                    |
//!               +---------- their stacks  <------------------------------------------+
//!   not:     stacks of goroutines that are not live yet; below the stack pointers; the threads'
//!            signal stacks; the scheduler's own memory
//! ```
//!
//! A leak that is reported must be one. A leak that isn't found is a limit: a stale pointer, in a
//! freed block or in a part of a stack that a function has reserved and not written yet, hides it.
//!
//! | file | what it does |
//! | --- | --- |
//! | `search.rs` | collects goroutines, objects and memory, and looks at the memory |
//! | `marks.rs` | what is live so far, and what a word adds to it |
//! | `blocks.rs` | the blocks of malloc that objects lie in |
//!
//! # All memory at one moment
//!
//! If a thread moved a pointer from a word that was not looked at yet to a word that was, the
//! pointer would be missed. So everything stands still: goroutines by the stopped world, goroutines in
//! system calls by `registers::show_all`, and plain threads, and functions of `gs_blocking`, by
//! `os::halt`. The search takes no lock that a halted thread may hold, and no memory from a heap.
//!
//! A thread that blocks the signal may need what a halted thread has. So a search waits only shortly
//! for threads that don't react. Then all threads go on, and the next search waits longer. `os::halt`
//! has the reasons.

mod blocks;
mod marks;
mod search;

use super::embed;
use super::out::Out;
use crate::arch;
use crate::backtrace::symbols::Symbols;
use crate::backtrace::unwind::{self, Frame, MOST_FRAMES, Registers};
use crate::os::mapped::Mapped;
use crate::os::thread::NoCancel;
use crate::os::{file, heap, log, process, time};
use crate::sched::lifecycle::stopping;
use crate::sched::run::requests;
use crate::sched::take::call;
use crate::sched::types::g::GRef;
use crate::sched::types::runtime::{Visit, try_rt};
use crate::sched::types::waiter::Why;
use crate::stack;
use core::cmp;
use core::ffi::CStr;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};
use search::{Caller, Failure};

/// A leaked goroutine.
#[derive(Clone, Copy)]
struct Leak {
    id: u64,
    why: Why,
    /// When its wait began, in ns.
    since: i64,
    node: usize,
    /// The return address of the call that spawned it; 0: the library did.
    pc: usize,
    creator: u64,
    /// Where the frames and the name are in `Leaks`: begin and length.
    frames: (usize, usize),
    name: (usize, usize),
}

/// For how long threads may not react, in all searches of a call and the pauses between them, in ns.
const PATIENCE: i64 = 2_000_000_000;
/// For how long threads may not react in the first search, in ns; twice as long in each further one.
const LEAST_PATIENCE: i64 = 20_000_000;
/// The pause after a search that has found a lock taken, in ns.
const LOCKED_PAUSE: i64 = 1_000_000;

/// Copies of leaked goroutines.
struct Leaks {
    all: Mapped<Leak>,
    frames: Mapped<Frame>,
    text: Mapped<u8>,
}

/// Writes a report of the leaked goroutines to the file; nothing if `only_if_any` and there are
/// none. Returns how many there are, or a negative errno value.
pub fn leaks(fd: i32, only_if_any: bool) -> i32 {
    if stopping::has_stopped() {
        return -libc::EDEADLK;
    }
    if !file::is_open(fd) {
        return -libc::EBADF;
    }
    // In a system call: a goroutine that was stopped in the middle of dlopen(3) may need the P.
    call::enter();
    unwind::refresh_modules();
    call::exit();
    let leaks = match Leaks::find() {
        Ok(leaks) => leaks,
        Err(e) => return e,
    };
    let count = leaks.all.len() as i32;
    if only_if_any && count == 0 {
        return 0;
    }
    // In a system call: the goroutine that reads the other end of a pipe may need the P.
    call::enter();
    let written = stack::on_large(|| leaks.write(fd)).unwrap_or(-libc::ENOMEM);
    call::exit();
    if written < 0 { written } else { count }
}

/// Reports leaks at the exit of the process from here on, and when a shutdown finds goroutines, if
/// `GOSCHED_DEBUG` asks for it. Called by a thread that has made a runtime.
pub fn report_at_exit() {
    static IS_SET: AtomicBool = AtomicBool::new(false);
    extern "C" fn at_exit() {
        report();
    }
    if try_rt().is_some_and(|rt| rt.debug.leaks) && !IS_SET.swap(true, Ordering::Relaxed) {
        process::at_exit(at_exit);
    }
}

/// Writes a report to standard error if there are leaks, and `GOSCHED_DEBUG` asks for it. Doesn't
/// wait for another thread that ends the runtime or has stopped the world.
pub fn report() {
    if !Visit::try_begin().is_some_and(|rt| rt.debug.leaks) {
        return;
    }
    let e = if requests::is_stopping() { -libc::EBUSY } else { leaks(libc::STDERR_FILENO, true) };
    if e < 0 {
        log::say(format_args!("gosched: no report of leaks: error {}\n", -e));
    }
}

impl Leaks {
    /// Finds and copies the leaked goroutines.
    ///
    /// A thread that doesn't react may wait for another that stands still. So the world goes on
    /// between two searches, for as long as it has stood still in the first.
    #[inline(never)]
    fn find() -> Result<Leaks, i32> {
        // open(2) and read(2) are cancellation points, and a thread that pthread_cancel(3) ended here
        // would leave all others standing.
        let _no_cancel = NoCancel::new();
        let registers = arch::kept_registers();
        let caller = Caller { sp: core::hint::black_box(&registers).as_ptr() as usize, registers };
        let mut patience = LEAST_PATIENCE;
        let mut left = PATIENCE;
        let found = loop {
            let pause = match Leaks::find_once(&caller, patience) {
                Ok(leaks) => break Ok(leaks),
                Err(Failure::Error(e)) => break Err(e),
                Err(Failure::Locked) => LOCKED_PAUSE,
                Err(Failure::Late) => {
                    patience *= 2;
                    patience / 2
                }
            };
            // A search that fails takes about as long as the pause after it. What the search waits for
            // another stopper of the world doesn't count.
            left -= 2 * pause;
            if left < 0 {
                break Err(-libc::EBUSY);
            }
            // In a system call, so that others get the P.
            call::enter();
            time::sleep(pause);
            call::exit();
        };
        core::hint::black_box(&caller);
        found
    }

    /// One search, with the world stopped.
    #[inline(never)]
    fn find_once(caller: &Caller, patience: i64) -> Result<Leaks, Failure> {
        let mut leaks = Leaks { all: Mapped::new(), frames: Mapped::new(), text: Mapped::new() };
        let Some(rt) = Visit::begin() else { return Ok(leaks) };
        match stopping::stop() {
            0 => {}
            e => return Err(Failure::Error(e)),
        }
        let found = search::leaked(&rt, caller, patience);
        let copied = found.map(|found| {
            // SAFETY: addresses of descriptors.
            found.iter().all(|&g| leaks.add(unsafe { GRef::at(g) }))
        });
        stopping::start();
        if !copied? {
            return Err(Failure::Error(-libc::ENOMEM));
        }
        leaks.all.sort_unstable_by_key(|leak| leak.id);
        Ok(leaks)
    }

    /// Copies a goroutine at rest. The world is stopped. False: there is no memory.
    fn add(&mut self, g: GRef) -> bool {
        let (first, begin) = (self.frames.len(), self.text.len());
        let stack = g.stack_bounds();
        let mut has_room = true;
        let mut add = |frame| {
            has_room &= self.frames.push(frame);
            has_room
        };
        // SAFETY: the context of a goroutine at rest, and its stack.
        unsafe {
            let from = Registers::of_context(g.context.load(Ordering::Acquire));
            unwind::walk(from, stack, &mut add);
        }
        // SAFETY: the world is stopped, so the goroutine keeps its name.
        let name = unsafe { g.name() }.map_or(&[][..], CStr::to_bytes);
        has_room &= name.iter().all(|&byte| self.text.push(byte));
        let leak = Leak {
            id: g.id.load(Ordering::Relaxed),
            why: g.why.seen(),
            since: g.since.seen(),
            node: embed::node_of(g),
            pc: g.pc.seen(),
            creator: g.creator.seen(),
            frames: (first, self.frames.len() - first),
            name: (begin, name.len()),
        };
        has_room && self.all.push(leak)
    }

    fn frames(&self, leak: &Leak) -> &[Frame] {
        &self.frames[leak.frames.0..][..leak.frames.1]
    }

    /// Orders goroutines so that those are beside each other that are shown as one: they wait for the
    /// same reason, in the same calls, and the same call has spawned them.
    fn order(&self, a: &Leak, b: &Leak) -> cmp::Ordering {
        let own = arch::own_code();
        let is_own = |frame: &&Frame| own.as_ref().is_some_and(|own| own.contains(&frame.pc));
        // The library's frames are not shown, and depend on what the M did next.
        let pcs = |leak| self.frames(leak).iter().skip_while(is_own).map(|frame| frame.pc);
        let by_words = (a.why as u8, a.pc).cmp(&(b.why as u8, b.pc));
        by_words.then_with(|| pcs(a).cmp(pcs(b)))
    }

    fn write(&self, fd: i32) -> i32 {
        let mut order: Vec<&Leak> = Vec::new();
        let mut groups: Vec<&[&Leak]> = Vec::new();
        if !heap::reserve(&mut order, self.all.len()) || !heap::reserve(&mut groups, self.all.len())
        {
            return -libc::ENOMEM;
        }
        order.extend(self.all.iter());
        order.sort_unstable_by(|a, b| self.order(a, b).then(a.id.cmp(&b.id)));
        groups.extend(order.chunk_by(|a, b| self.order(a, b).is_eq()));
        groups.sort_unstable_by_key(|group| group[0].id);
        let shows_all = try_rt().is_some_and(|rt| rt.debug.all_frames);
        let (mut out, mut symbols) =
            (Out::new(|bytes: &[u8]| file::write_whole(fd, bytes)), Symbols::new(shows_all));
        let _ = writeln!(out, "leaked goroutines: {}", self.all.len());
        for group in groups {
            if out.has_failed() {
                break;
            }
            let _ = self.write_group(&mut out, group, &mut symbols, time::now());
        }
        out.end()
    }

    fn write_group(
        &self,
        out: &mut dyn Write,
        group: &[&Leak],
        symbols: &mut Symbols,
        now: i64,
    ) -> fmt::Result {
        let leak = group[0];
        let why = leak.why.reason().to_str().unwrap_or("waiting");
        let ms = (now - leak.since).max(0) / 1_000_000;
        write!(out, "\ngoroutine {} [{why} (leaked), {ms} ms, node {}]", leak.id, leak.node)?;
        let name = &self.text[leak.name.0..][..leak.name.1];
        if !name.is_empty() {
            // Quoted and escaped: a name with a line break stays on its line.
            write!(out, " {{name: {:?}}}", String::from_utf8_lossy(name))?;
        }
        writeln!(out, ":")?;
        symbols.visible(self.frames(leak), &mut |symbol| {
            let _ = symbol.write(out);
        });
        symbols.write_end(leak.frames.1 == MOST_FRAMES, leak.pc, leak.creator, out)?;
        if let Some(others) = group.get(1..).filter(|others| !others.is_empty()) {
            write!(out, "{} goroutines wait as this one:", others.len())?;
            for other in &others[..others.len().min(MOST_IDS)] {
                write!(out, " {}", other.id)?;
            }
            writeln!(out, "{}", if others.len() > MOST_IDS { " ..." } else { "" })?;
        }
        Ok(())
    }
}

/// The most goroutines of a group whose ids are shown.
const MOST_IDS: usize = 10;
