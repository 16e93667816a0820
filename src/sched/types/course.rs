//! Ordered runs: one thread runs goroutines in an order that draws decide (`prim::draws`). There are
//! two kinds: *bubbles*, which `gs_test_run` makes, with a virtual clock; and the whole runtime with
//! `seed` of `GOSCHED_DEBUG`, with the real clock. `run/BUBBLES.md` has the protocol.

use super::g::{G, GRef, flags};
use super::m::{self, MRef};
use super::p::PRef;
use super::task::Task;
use super::waiter::Why;
use crate::arch::Registers;
use crate::backtrace::unwind::Frame;
use crate::os::locked::Locked;
use crate::os::thread::Usage;
use crate::sched::prim::draws::Draws;
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering, fence};
use std::collections::VecDeque;

/// The user's check after each step of a bubble: 0: all is well.
pub type Check = unsafe extern "C" fn(*mut c_void) -> c_int;

/// How a bubble has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All goroutines have ended.
    Done,
    /// All goroutines wait, and no timer is left.
    Deadlock,
    /// The run has taken too many steps.
    TooLong,
    /// The check or `gs_test_fail` says so, with this text.
    Failed(String),
    /// This goroutine has ended the process by this signal, or would have.
    Crashed(u64, i32),
    /// Something that isn't part of the bubble has acted in it.
    Disturbed(String),
}

/// An ordered run. Only the thread that holds its P uses it, but for `disturbed`.
pub struct Course {
    /// The goroutines that can run, but for the running one; who waits longest comes first.
    pub ready: RefCell<VecDeque<Task>>,
    pub draws: RefCell<Draws>,
    /// The goroutine that a step has chosen, until g0 runs it.
    pub next: Cell<Option<Task>>,
    /// The number of the goroutine that has run last: it makes the draws on g0.
    pub last: Cell<u32>,
    /// That goroutine, until it is told why it doesn't run any more.
    pub last_g: Cell<Option<GRef>>,
    /// How many choices in a row were made while a goroutine could run.
    pub busy: Cell<u32>,
    /// `Some` in a bubble.
    pub bubble: Option<Bubble>,
}

// SAFETY: the thread that holds the run's P uses the cells, and a P passes from thread to thread with
// what its holder has written; `is_disturbed` and `why` are for any thread.
unsafe impl Send for Course {}
// SAFETY: as above.
unsafe impl Sync for Course {}

/// A network that a bubble has in memory.
pub trait Net {
    /// When something happens next, in ns; `i64::MAX`: never.
    fn next(&self) -> i64;
    /// Lets everything happen that is due. Returns events for the poller: the data of a file's
    /// registration, and what has happened.
    fn run(&self, now: i64) -> Vec<(u64, u32)>;
    fn as_any(&self) -> &dyn Any;
}

/// What a bubble has besides.
pub struct Bubble {
    pub net: Option<Box<dyn Net>>,
    pub seed: u64,
    /// The bubble's own P, which is in none of the runtime's lists.
    pub p: PRef,
    /// The virtual clock, in ns.
    pub clock: Cell<i64>,
    /// The id of the next goroutine.
    pub next_id: Cell<u64>,
    pub max_steps: u64,
    /// The chances out of 1000 that a step cancels its goroutine, if others may do so too, and that
    /// there is no memory for something.
    pub cancels: u32,
    pub no_memory: u32,
    pub check: Option<(Check, *mut c_void)>,
    /// What each draw that isn't plain was, if the run is to be explained.
    pub notes: Option<RefCell<Vec<Note>>>,
    /// What has happened, if that is to be told.
    pub log: Option<RefCell<Vec<Event>>>,
    /// Whether a crash ends the run and not the process; if not, these words are written first.
    pub catches: bool,
    pub last_words: String,
    /// The registers at the crash.
    pub crashed_at: Cell<Option<Registers>>,
    /// What besides the draws has a say in the run, if that is looked for.
    pub watch: Option<Watch>,
    /// Set once: the run is over.
    pub outcome: RefCell<Option<Outcome>>,
    /// Something from outside has woken a goroutine of the bubble: `why` has the text.
    pub is_disturbed: AtomicBool,
    pub why: Locked<String>,
}

/// What a draw that isn't plain was.
#[derive(Clone, Debug)]
pub struct Note {
    /// At which step, from 1 on.
    pub step: u64,
    pub what: Drawn,
}

#[derive(Clone, Debug)]
pub enum Drawn {
    /// The goroutine that the run has left, unless that goroutine waits or has ended; and the goroutine
    /// that went on.
    Switch { from: Option<Seen>, to: Seen },
    /// A fault that this goroutine met, and its size.
    Fault { by: u64, what: &'static str, size: u32 },
}

/// What a run keeps to find whatever has a say in it besides its draws (`lifecycle::watch`).
pub struct Watch {
    /// Called after the goroutine has run: at a step, or on g0.
    pub look: fn(&Course, &Bubble, &Watch, GRef),
    pub found: RefCell<Vec<Influence>>,
    /// What the thread had used when `look` was called last.
    pub used: Cell<Usage>,
    /// The events of an earlier run with the same draws.
    pub earlier: Option<Vec<Event>>,
    /// The first event that the earlier run did not have in this place, until `look` has noted it.
    pub differs: Cell<Option<(Option<Event>, Event)>>,
}

/// Something besides the draws that has had a say in a bubble.
#[derive(Clone, Debug)]
pub struct Influence {
    pub what: What,
    /// The goroutine that it came by.
    pub by: Seen,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// It has called this function, which does something that no draw decides.
    Calls { function: &'static str, does: &'static str },
    /// It has blocked the thread, for this time in ns.
    Blocks(i64),
    /// The earlier run had the first event, or none, where this run has the second, or none.
    Differs(Option<Event>, Option<Event>),
}

impl What {
    /// Whether the next run with the same draws may be another run because of this.
    pub fn changes_runs(self) -> bool {
        !matches!(self, What::Blocks(_))
    }
}

/// Something that has happened in a bubble.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The virtual time, in ns, and the number of steps before.
    pub time: i64,
    pub step: u64,
    /// The goroutine that it happened to.
    pub id: u64,
    pub what: Happened,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happened {
    /// It has spawned this goroutine with this function.
    Spawns {
        id: u64,
        function: usize,
    },
    /// It goes on, or begins.
    Runs,
    /// Another goroutine goes first.
    GivesWay,
    Waits(Why),
    /// The run is over while the goroutine runs: it never goes on.
    Stops,
    Ends,
    /// It can run again.
    Ready,
    Fault(&'static str, u32),
}

/// A goroutine at a step.
#[derive(Clone, Debug)]
pub struct Seen {
    pub id: u64,
    /// Empty: none.
    pub name: String,
    /// Its frames, the innermost first; none: it has not begun.
    pub frames: Vec<Frame>,
    /// The address of its function; 0: not known.
    pub function: usize,
    /// Where it is in an interpreter's code: a function with file and line. Empty: in none.
    pub script: String,
}

impl Seen {
    /// A goroutine of which only its number and its function are known.
    pub fn only(id: u64, function: usize) -> Seen {
        Seen { id, name: String::new(), frames: Vec::new(), function, script: String::new() }
    }
}

/// Held by a thread that disturbs a bubble, and by the thread that ends one: a goroutine of a bubble
/// that is over is found [given up](flags::GIVEN_UP).
pub static ENDING: Locked<()> = Locked::new(());

impl Course {
    pub fn new(draws: Draws, bubble: Option<Bubble>) -> Course {
        Course {
            ready: RefCell::new(VecDeque::new()),
            draws: RefCell::new(draws),
            next: Cell::new(None),
            last: Cell::new(0),
            last_g: Cell::new(None),
            busy: Cell::new(0),
            bubble,
        }
    }
}

impl Course {
    /// Notes what has happened to a goroutine, if the run is a bubble with a log.
    #[inline]
    pub fn log(&self, id: u64, what: Happened) {
        if let Some(bubble) = &self.bubble
            && let Some(log) = &bubble.log
        {
            let (time, step) = (bubble.clock.get(), self.draws.borrow().steps());
            let (event, mut log) = (Event { time, step, id, what }, log.borrow_mut());
            if let Some(watch) = &bubble.watch {
                watch.compare(log.len(), event);
            }
            log.push(event);
        }
    }

    /// Looks at what the goroutine has done since the last look, if the run is watched.
    pub fn look(&self, g: GRef) {
        if let Some(bubble) = &self.bubble
            && let Some(watch) = &bubble.watch
        {
            (watch.look)(self, bubble, watch, g);
        }
    }
}

impl Watch {
    /// Compares the event in this place with the earlier run's.
    fn compare(&self, at: usize, event: Event) {
        let Some(earlier) = &self.earlier else { return };
        let other = earlier.get(at).copied();
        if other != Some(event) && self.differs.get().is_none() {
            self.differs.set(Some((other, event)));
        }
    }
}

impl Bubble {
    pub fn is_over(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    /// Ends the run, unless it is over.
    pub fn end(&self, outcome: Outcome) {
        self.outcome.borrow_mut().get_or_insert(outcome);
    }

    /// Takes an id for a goroutine: ids count from 1 in each bubble, so that a run that comes again
    /// has them again.
    pub fn take_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }
}

/// The number of a goroutine in its run: its id. Numbers that don't fit are no worse than others:
/// they only have to come again.
pub fn number(g: GRef) -> u32 {
    g.id.load(Ordering::Relaxed) as u32
}

impl G {
    /// Whether the goroutine is in a bubble, or was given up with one.
    #[inline(always)]
    pub fn is_in_bubble(&self) -> bool {
        self.flags.seen() & (flags::BUBBLE | flags::GIVEN_UP) != 0
    }

    /// Whether the goroutine is in the bubble of this M.
    pub fn is_in_bubble_of(&self, m: MRef) -> bool {
        if self.flags.seen() & flags::BUBBLE == 0 {
            return false;
        }
        // Pairs with the fence in `spawn_in_bubble`: with the flag comes the M.
        fence(Ordering::Acquire);
        self.bound_m.seen() == m.as_ptr().cast_const()
    }
}

/// A draw of the calling goroutine, or on g0 of the goroutine that has run last: 0, or with a chance of
/// `odds` out of 1000 a number from 1 to `most`. 0 outside of ordered runs. `what`: what happens then.
pub fn fault(what: &'static str, odds: u32, most: u32) -> u32 {
    let Some(m) = m::current() else { return 0 };
    let Some(course) = m.course() else { return 0 };
    let by = if m.curg.get().is_null() { course.last.get() } else { number(m.g()) };
    let size = course.draws.borrow_mut().fault(by, odds, most);
    if size > 0 {
        course.log(by.into(), Happened::Fault(what, size));
        if let Some(notes) = course.bubble.as_ref().and_then(|bubble| bubble.notes.as_ref()) {
            let what = Drawn::Fault { by: by.into(), what, size };
            notes.borrow_mut().push(Note { step: course.draws.borrow().steps(), what });
        }
    }
    size
}
