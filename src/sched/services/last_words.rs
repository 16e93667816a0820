//! The backtrace in the report of a stack overflow.
//!
//! The report is made in a signal handler, which must not allocate, and must take no lock: the
//! overflow may have happened in the middle of `malloc`, of the loader, or of this library. So
//! sysmon walks the stack, looks up the names and writes the text, while the handler waits. If
//! sysmon doesn't answer in time, because it waits for a lock that the stopped thread holds, the
//! handler walks the stack itself, and writes addresses without names.

use crate::arch::Registers;
use crate::backtrace::symbols::Symbols;
use crate::backtrace::unwind::{self, Frame};
use crate::os::forking::is_forking;
use crate::os::{self, futex, time};
use crate::sched::types::runtime::Runtime;
use crate::stack;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

/// How long the handler waits for sysmon to begin, and then for the text, in ns. Reading the debug
/// information of a large program takes seconds.
const BEGINS_WITHIN: i64 = 2_000_000_000;
const ENDS_WITHIN: i64 = 20_000_000_000;

/// The most frames of the report. The frames of an overflow are mostly equal.
const MOST: usize = 50;

/// What the handler asks for.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// The registers at the fault.
    pub from: Registers,
    pub stack: (usize, usize),
    /// The return address of the call that spawned the goroutine; 0: the library spawned it.
    pub spawned_at: usize,
    /// The id of the goroutine that spawned it; 0: a thread.
    pub creator: u64,
}

/// States of a request. `NONE` to `ASKED`: by the handler. `ASKED` to `BEGUN`: by sysmon, or by the
/// handler that waits no longer. `BEGUN` to `DONE`: by sysmon.
const NONE: u32 = 0;
const ASKED: u32 = 1;
const BEGUN: u32 = 2;
const DONE: u32 = 3;

struct Request {
    state: AtomicU32,
    /// Written before the state becomes `ASKED`.
    wanted: Cell<Option<Wanted>>,
}

// SAFETY: the thread that makes the state `ASKED` has written `wanted`, and no thread writes it after
// that: the process ends.
unsafe impl Sync for Request {}

static REQUEST: Request = Request { state: AtomicU32::new(NONE), wanted: Cell::new(None) };

/// Only one thread writes `Request::wanted`.
static IS_WRITTEN: AtomicU32 = AtomicU32::new(0);

/// In the signal handler of a fault that ends the process: writes the functions of the goroutine
/// that has run into its stack's end to standard error.
pub fn write(rt: &Runtime, wanted: Wanted) {
    if IS_WRITTEN.swap(1, Ordering::Relaxed) == 0 {
        REQUEST.wanted.set(Some(wanted));
        // Release: pairs with the Acquire in `serve`.
        REQUEST.state.store(ASKED, Ordering::Release);
        rt.sysmon.wake();
        wait_while(ASKED, BEGINS_WITHIN);
        let taken =
            REQUEST.state.compare_exchange(ASKED, BEGUN, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_err() {
            wait_while(BEGUN, ENDS_WITHIN);
            if REQUEST.state.load(Ordering::Acquire) == DONE {
                return;
            }
        }
    }
    write_addresses(wanted);
}

fn wait_while(state: u32, patience: i64) {
    let deadline = time::now() + patience;
    while REQUEST.state.load(Ordering::Acquire) == state && time::now() < deadline {
        futex::wait(&REQUEST.state, state, deadline);
    }
}

/// Without names: allocates nothing, and takes no lock.
fn write_addresses(wanted: Wanted) {
    let mut count = 0;
    let mut add = |frame: Frame| {
        let mut line = [0; 32];
        let mut rest = &mut line[..];
        let _ = std::io::Write::write_fmt(&mut rest, format_args!("\t{:#x}\n", frame.pc));
        let len = 32 - rest.len();
        os::write_all(2, &line[..len]);
        count += 1;
        count < MOST
    };
    // SAFETY: the stack of the goroutine that this handler has interrupted.
    unsafe { unwind::walk(wanted.from, wanted.stack, &mut add) };
}

/// For sysmon: does what a handler asks for.
#[inline(always)]
pub fn serve_if_asked() {
    if REQUEST.state.load(Ordering::Relaxed) == ASKED && !is_forking() {
        serve();
    }
}

#[cold]
#[inline(never)]
fn serve() {
    // Acquire: pairs with the Release in `write`.
    let taken = REQUEST.state.compare_exchange(ASKED, BEGUN, Ordering::Acquire, Ordering::Relaxed);
    let Some(wanted) = REQUEST.wanted.get().filter(|_| taken.is_ok()) else { return };
    unwind::refresh_modules();
    if Symbols::have_memory() {
        stack::on_large(|| os::write_all(2, text_of(wanted).as_bytes()));
    } else {
        write_addresses(wanted);
    }
    // Release: pairs with the Acquire in `write`.
    REQUEST.state.store(DONE, Ordering::Release);
    futex::wake(&REQUEST.state, 1);
}

fn text_of(wanted: Wanted) -> String {
    let mut symbols = Symbols::new(false);
    let mut frames = Vec::new();
    let mut add = |frame| {
        frames.push(frame);
        true
    };
    // SAFETY: the thread of the stack waits in its handler.
    unsafe { unwind::walk(wanted.from, wanted.stack, &mut add) };
    let (mut text, mut count) = (String::new(), 0);
    symbols.visible(&frames, &mut |symbol| {
        count += 1;
        if count <= MOST {
            let _ = symbol.write(&mut text);
        }
    });
    let _ = symbols.write_end(count > MOST, wanted.spawned_at, wanted.creator, &mut text);
    text
}
