//! What besides the draws has a say in a bubble, and where: a clock of the system, random numbers of
//! the kernel, threads, and calls that block the thread. Only in runs that are explained or strict.
//!
//! Clocks, random numbers and threads are found by functions that stand in front of the C library's
//! ([`interpose`]); a block by what the kernel says about the thread; anything else by two runs with
//! the same draws that differ.

use crate::arch::Registers;
use crate::os::interpose::{self, Replacement};
use crate::os::thread;
use crate::sched::schedule::ordered::see_goroutine;
use crate::sched::take::registers;
use crate::sched::types::course::{Bubble, Course, Event, Influence, Outcome, Seen, Watch, What};
use crate::sched::types::g::{GRef, flags};
use crate::sched::types::m::{self, OUTSIDE};
use crate::stack;
use core::cell::{Cell, RefCell};
use core::ffi::{c_int, c_uint, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Why a strict run fails in which something else has a say.
pub const NOT_ONLY_THE_SEED: &str = "not only the seed decides the run";

/// The most influences that are kept of a run.
const MOST: usize = 16;

/// A goroutine that keeps the thread in a wait of the kernel's for this time in ns between two steps
/// has blocked it. Reading a page of the program takes less.
const BLOCK: i64 = 5_000_000;

impl Watch {
    /// Begins to look. `earlier`: the events of a run with the same draws.
    pub fn begin(earlier: Option<Vec<Event>>) -> Watch {
        interpose::replace(&REPLACEMENTS);
        Watch {
            look,
            found: RefCell::new(Vec::new()),
            used: Cell::new(thread::usage()),
            earlier,
            differs: Cell::new(None),
        }
    }

    /// Notes an influence that came by a goroutine of the M's bubble, which has this id. `from`: the
    /// goroutine's registers, if it is the caller.
    fn note(&self, what: What, g: GRef, id: u64, from: Option<Registers>) {
        let see = || match g.has(flags::ENDS) {
            // Its name is gone, and its stack.
            true => Seen::only(id, g.f.get().map_or(0, |f| f as usize)),
            false => see_goroutine(g, from.or_else(|| registers::at_rest(g).map(|(_, from)| from))),
        };
        let (Some(by), Ok(mut found)) = (stack::on_large(see), self.found.try_borrow_mut()) else {
            return;
        };
        add(&mut found, Influence { what, by });
    }
}

/// Adds an influence, unless it has come from the same code before.
pub fn add(to: &mut Vec<Influence>, one: Influence) {
    if to.len() < MOST && !to.iter().any(|other| is_same(other, &one)) {
        to.push(one);
    }
}

/// Compares the ends of two runs with the same draws, as [`look`] does with the rest: the earlier run
/// may have had events that the later run has not had.
pub fn compare_ends(earlier: &[Event], later: &[Event]) -> Option<Influence> {
    let event = *earlier.get(later.len())?;
    Some(Influence { what: What::Differs(Some(event), None), by: Seen::only(event.id, 0) })
}

/// Whether two influences are of one kind and came from the same code.
fn is_same(a: &Influence, b: &Influence) -> bool {
    let is_same_kind = match (a.what, b.what) {
        (What::Blocks(_), What::Blocks(_)) => true,
        (a, b) => a == b,
    };
    let places = |by: &Seen| by.frames.iter().map(|frame| frame.pc).collect::<Vec<_>>();
    is_same_kind && a.by.function == b.by.function && places(&a.by) == places(&b.by)
}

/// Looks at what the goroutine has done since the last look. On the goroutine at a step, or on g0
/// when it was left.
fn look(course: &Course, bubble: &Bubble, watch: &Watch, g: GRef) {
    let id = course.last.get().into();
    // Not in a closure, whose frame would be gone when the stack is walked.
    let here = if m::on_goroutine().is_some() { Some(Registers::here()) } else { None };
    let now = thread::usage();
    let waited = now.waited_since(watch.used.replace(now));
    if waited >= BLOCK {
        watch.note(What::Blocks(waited), g, id, here);
    }
    if let Some((earlier, event)) = watch.differs.take()
        && !bubble.is_over()
    {
        watch.note(What::Differs(earlier, Some(event)), g, id, here);
        bubble.end(Outcome::Disturbed(NOT_ONLY_THE_SEED.to_owned()));
    }
}

/// Notes the call of a replaced function, if a watched bubble's goroutine in the user's code has made
/// it.
#[cold]
fn called(function: &'static str, does: &'static str) {
    let Some(m) = m::on_goroutine().filter(|m| m.outside.load(Ordering::Relaxed) == OUTSIDE) else {
        return;
    };
    if let Some(watch) = m.bubble().and_then(|bubble| bubble.watch.as_ref()) {
        let (g, what) = (m.g(), What::Calls { function, does });
        watch.note(what, g, g.id.load(Ordering::Relaxed), Some(Registers::here()));
    }
}

/// `name(arguments) -> result: what it does`, for each function of the C library that is looked at.
macro_rules! replaced {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty: $does:literal;)*) => {
        static REPLACEMENTS: [Replacement; [$(stringify!($name)),*].len()] = [$({
            static REAL: AtomicUsize = AtomicUsize::new(0);
            unsafe extern "C" fn by($($arg: $type),*) -> $result {
                called(stringify!($name), $does);
                // SAFETY: not called before `REAL` is set, to the function of this name and type;
                // the caller keeps that function's rules.
                unsafe {
                    let real = REAL.load(Ordering::Relaxed);
                    transmute::<usize, unsafe extern "C" fn($($type),*) -> $result>(real)($($arg),*)
                }
            }
            Replacement {
                // SAFETY: ends with the only 0.
                name: unsafe {
                    core::ffi::CStr::from_bytes_with_nul_unchecked(
                        concat!(stringify!($name), "\0").as_bytes(),
                    )
                },
                by: by as *const (),
                real: &REAL,
            }
        }),*];
    };
}

replaced! {
    clock_gettime(id: libc::clockid_t, to: *mut libc::timespec) -> c_int: "reads the system's clock";
    gettimeofday(to: *mut libc::timeval, zone: *mut c_void) -> c_int: "reads the system's clock";
    time(to: *mut libc::c_long) -> libc::c_long: "reads the system's clock";
    timespec_get(to: *mut libc::timespec, base: c_int) -> c_int: "reads the system's clock";
    getrandom(to: *mut c_void, len: usize, flags: c_uint) -> isize: "gets random bytes of the kernel";
    getentropy(to: *mut c_void, len: usize) -> c_int: "gets random bytes of the kernel";
    arc4random() -> u32: "gets random bytes of the kernel";
    pthread_create(
        thread: *mut libc::pthread_t, attr: *const libc::pthread_attr_t,
        f: *mut c_void, arg: *mut c_void
    ) -> c_int: "starts a thread";
}
