//! Bubbles: `gs_test_run` makes the calling thread run a function and all goroutines that come of it,
//! alone, in an order that draws decide, with a virtual clock. `run/BUBBLES.md` has the protocol.

use super::crash;
use super::run::borrow;
use super::spawn::{self, Options};
use crate::arch::sanitizer;
use crate::os::{heap, locked::Locked, time};
use crate::sched::prim::draws::{Draw, Draws, Schedule, Script};
use crate::sched::run::requests;
use crate::sched::services::deadlock;
use crate::sched::types::course::{
    self, Bubble, Check, Course, ENDING, Event, Influence, Net, Note, Outcome, Watch,
};
use crate::sched::types::g::{GRef, flags};
use crate::sched::types::m::{self, MRef};
use crate::sched::types::p::{P, PRef};
use crate::sched::types::runtime::{Guest, rt};
use crate::sched::types::task::GoFn;
use core::cell::{Cell, RefCell};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

/// The virtual time at which each bubble begins, in ns.
const BEGINNING: i64 = 1_000_000_000;

/// What decides a run.
pub struct Setup {
    pub seed: u64,
    pub schedule: Schedule,
    /// About how many steps the run will have; 0: not known.
    pub steps: u64,
    /// The run has these draws, and all others are plain.
    pub script: Option<Script>,
    pub max_steps: u64,
    pub check: Option<(Check, *mut c_void)>,
    pub net: Option<Box<dyn Net>>,
    /// See [`Bubble`].
    pub cancels: u32,
    pub no_memory: u32,
    /// Whether [`Ran::possible`] is wanted.
    pub lists_possible: bool,
    /// Whether [`Ran::log`] is wanted.
    pub logs: bool,
    /// Whether a crash of a goroutine ends the run, and not the process. If not, `last_words` are
    /// written before.
    pub catches: bool,
    pub last_words: String,
    /// Whether [`Ran::notes`] are wanted.
    pub explains: bool,
    /// Whether [`Ran::influences`] are wanted.
    pub watches: bool,
    /// The events of an earlier run with the same draws: if this run has others, it ends with
    /// [`Outcome::Disturbed`]. Needs `logs` and `watches`.
    pub earlier: Option<Vec<Event>>,
}

/// What a run was.
#[derive(Clone, Debug)]
pub struct Ran {
    pub outcome: Outcome,
    pub steps: u64,
    /// The draws that were not plain.
    pub draws: Vec<Draw>,
    /// All switches that could have been made.
    pub possible: Vec<Draw>,
    /// What has happened.
    pub log: Vec<Event>,
    /// What these draws were.
    pub notes: Vec<Note>,
    /// What besides has had a say.
    pub influences: Vec<Influence>,
}

/// Runs `f(arg)` in a bubble. `when_over` is called when the run is over, while its goroutines are
/// still there. Fails with `-EBUSY` (the thread is an M already), `-EDEADLK` (it has stopped the
/// world), `-EAGAIN` (too many bubbles), `-ENOMEM`.
pub fn run(
    f: GoFn,
    arg: *mut c_void,
    pc: usize,
    setup: Setup,
    when_over: &mut dyn FnMut(&Outcome),
) -> Result<Ran, i32> {
    if m::current().is_some() {
        return Err(-libc::EBUSY);
    }
    let _inside = Guest::enter()?;
    let p = rt().take_bubble_p()?;
    let mut draws = Draws::new(setup.seed, setup.schedule, setup.steps, setup.script);
    if setup.lists_possible {
        draws.list_possible();
    }
    let bubble = Bubble {
        net: setup.net,
        cancels: setup.cancels,
        no_memory: setup.no_memory,
        seed: setup.seed,
        p,
        clock: Cell::new(BEGINNING),
        next_id: Cell::new(1),
        max_steps: setup.max_steps,
        check: setup.check,
        notes: setup.explains.then(|| RefCell::new(Vec::new())),
        log: setup.logs.then(|| RefCell::new(Vec::new())),
        catches: setup.catches,
        last_words: setup.last_words,
        crashed_at: Cell::new(None),
        watch: setup.watches.then(|| Watch::begin(setup.earlier)),
        outcome: RefCell::new(None),
        is_disturbed: AtomicBool::new(false),
        why: Locked::new(String::new()),
    };
    let course = Course::new(draws, Some(bubble));
    let ran = Cell::new(None);
    let create = |m: MRef| {
        // SAFETY: `end` below, or this, undoes it before `course` is gone.
        unsafe { m.set_course(&course) };
        let root = spawn::spawn_in_bubble(m, f, arg, pc, &Options::DEFAULT);
        if root.is_err() {
            rt().join_course(m);
        }
        root
    };
    let begin = |m: MRef, _| {
        p.spawns_carefully.set(true);
        // Files that are registered with the P of a bubble that is over find that P dead.
        p.become_idle();
        p.become_running(m);
        m.p.set(p.as_ptr().cast_const().cast::<P>());
        ordered_runs_begin();
    };
    let end = |m: MRef| {
        if let Some(bubble) = &course.bubble {
            let outcome = bubble.outcome.borrow().clone().unwrap_or(Outcome::Done);
            when_over(&outcome);
            let draws = course.draws.borrow();
            ran.set(Some(Ran {
                outcome,
                steps: draws.steps(),
                draws: draws.made().to_vec(),
                possible: draws.possible().to_vec(),
                log: bubble.log.as_ref().map_or(Vec::new(), |log| log.take()),
                notes: bubble.notes.as_ref().map_or(Vec::new(), |notes| notes.take()),
                influences: bubble.watch.as_ref().map_or(Vec::new(), |watch| watch.found.take()),
            }));
        }
        ordered_runs_end();
        give_up(m, p);
        m.p.set(ptr::null());
        p.become_dead();
    };
    deadlock::bubble_begins();
    let e = borrow(create, begin, end);
    deadlock::bubble_is_over();
    // The network closes what is left open, and so needs the P.
    drop(course);
    rt().give_bubble_p_back(p);
    ran.take().ok_or(e)
}

/// The run is over: its goroutines that are left never run again. Their stacks and descriptors stay
/// as they are, because objects of the user may have waiters there.
fn give_up(m: MRef, p: PRef) {
    ENDING.with(|()| {
        if p.created.load(Ordering::Relaxed) != p.ended.load(Ordering::Relaxed) {
            rt().for_each_g(|g| {
                if g.is_in_bubble_of(m) {
                    g.flags.set(g.flags.get() & !flags::BUBBLE | flags::GIVEN_UP);
                    if sanitizer::is_on() {
                        // The frames never return, and the memory is another stack's one day.
                        // SAFETY: `g` is a descriptor.
                        sanitizer::abandon(unsafe { GRef::from_ptr(g) }.stack_bounds());
                    }
                }
            });
        }
        rt().join_course(m);
    });
    m.stash.set(None);
    p.timers.close(false, None);
    p.poll.forget_waits();
    for count in [&p.created, &p.ended] {
        count.store(0, Ordering::Relaxed);
    }
}

/// The number of bubbles, with whose first and last the clock changes.
static BUBBLES: Locked<usize> = Locked::new(0);

fn ordered_runs_begin() {
    requests::ordered_run_begins();
    crash::begin();
    BUBBLES.with(|n| {
        *n += 1;
        time::set_clock(Some(clock));
        heap::refuse(Some(lacks_memory));
    });
}

fn ordered_runs_end() {
    BUBBLES.with(|n| {
        *n -= 1;
        if *n == 0 {
            time::set_clock(None);
            heap::refuse(None);
        }
    });
    crash::end();
    requests::ordered_run_ends();
}

/// In the child of a fork, which has no bubble.
///
/// # Safety
/// The caller is the child's only thread.
pub unsafe fn forked() {
    // SAFETY: as the caller says.
    unsafe {
        BUBBLES.reset();
        ENDING.reset();
        crash::forked();
    }
    BUBBLES.with(|n| *n = 0);
    time::set_clock(None);
    heap::refuse(None);
    requests::forget_ordered_runs();
}

/// Whether the draws of the calling goroutine's bubble say that there is no memory.
fn lacks_memory() -> bool {
    let bubble = m::on_goroutine().and_then(|m| m.bubble().map(|bubble| bubble.no_memory));
    bubble.is_some_and(|odds| course::fault("there is no memory", odds, 1) > 0)
}

/// clock_gettime(2), but in a bubble its virtual time.
unsafe extern "C" fn clock(id: libc::clockid_t, to: *mut libc::timespec) -> c_int {
    match m::current().and_then(|m| m.bubble().map(|b| b.clock.get())) {
        Some(now) => {
            // SAFETY: writable, as the caller says.
            unsafe { *to = time::timespec(now) };
            0
        }
        // SAFETY: as the caller says.
        None => unsafe { libc::clock_gettime(id, to) },
    }
}

/// The seed of the bubble that the caller is in; 0: it is in none.
pub fn seed() -> u64 {
    m::current().and_then(|m| m.bubble().map(|b| b.seed)).unwrap_or(0)
}

/// The number of goroutines of the bubble that the caller is in; `None`: the caller is in none.
pub fn goroutines() -> Option<usize> {
    let p = m::current()?.bubble()?.p;
    let [created, ended] = [&p.created, &p.ended].map(|count| count.load(Ordering::Relaxed));
    Some(created.wrapping_sub(ended) as usize)
}

/// Ends the bubble that the calling goroutine is in, as failed, and never returns then.
pub fn fail(why: String) {
    let Some(m) = m::current() else { return };
    if let Some(bubble) = m.bubble() {
        bubble.end(Outcome::Failed(why));
        if m::is_on_goroutine(m) {
            crate::sched::run::ordered::leave_for_good(m);
        }
    }
}
