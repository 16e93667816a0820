//! Deadlock detection. seed: S8
//!
//! A deadlock is reported only when nothing can ever wake a goroutine again: every P is idle, no
//! queue has a task, no timer runs, no goroutine waits for a file, no thread is in a system call,
//! and every other thread of the process is blocked without a deadline in a call of this library.
//! If a thread runs or blocks elsewhere, it could still call the library, so there is no deadlock.

use super::quit;
use crate::backtrace::symbols::Symbols;
use crate::backtrace::unwind;
use crate::os::locked::Locked;
use crate::os::log::{self, Callback, HostArg};
use crate::os::{self, thread, time};
use crate::sched::run::steal;
use crate::sched::take::registers;
use crate::sched::types::blocked::{self, BLOCKED_CALLS, BLOCKED_THREADS, BLOCKS, blocked_calls};
use crate::sched::types::course::Outcome;
use crate::sched::types::g::{G, GRef, Status, describe_creator};
use crate::sched::types::hold::Hold;
use crate::sched::types::m::{self, M};
use crate::sched::types::points::ScriptFrame;
use crate::sched::types::runtime::{Guest, Ms, Runtime, rt};
use crate::sched::wait::netpoll;
use crate::{stack, trace};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

/// The number of the embedders' holds: while there is a hold, something outside the library can
/// wake goroutines.
static HOLDS: AtomicU32 = AtomicU32::new(0);

/// Takes a hold: no deadlock is reported until it is given back. `gs_hold`.
pub fn hold() {
    HOLDS.fetch_add(1, Ordering::SeqCst);
}

/// Gives a hold back. False: there is no hold. `gs_unhold`.
#[must_use]
pub fn unhold() -> bool {
    let less = HOLDS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    if less.is_ok()
        && let Some(_inside) = Guest::try_enter()
    {
        // sysmon may sleep without a deadline, because there was a hold.
        rt().sysmon.wake();
    }
    less.is_ok()
}

/// The number of threads that run a bubble. Such a thread goes on outside when the bubble is over.
static IN_BUBBLES: AtomicU32 = AtomicU32::new(0);

/// The calling thread begins to run a bubble; [`bubble_is_over`] undoes this.
pub fn bubble_begins() {
    IN_BUBBLES.fetch_add(1, Ordering::SeqCst);
}

/// The calling thread, which is no M any more, has run a bubble. In the child of a fork in that
/// bubble it is not counted.
pub fn bubble_is_over() {
    let less = |n: u32| n.checked_sub(1);
    let _ = IN_BUBBLES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
}

/// Resets the counts in the child of a fork, where no other thread is left.
pub fn forget_threads() {
    IN_BUBBLES.store(0, Ordering::SeqCst);
    BLOCKED_THREADS.store(0, Ordering::SeqCst);
    BLOCKED_CALLS.store(0, Ordering::SeqCst);
    HOLDS.store(0, Ordering::SeqCst);
}

/// The first check comes `FIRST` ns after everything has become idle. The pauses between later
/// checks grow up to `LAST` ns.
const FIRST: i64 = 10_000_000;
const LAST: i64 = 10_000_000_000;

/// The search for a deadlock during one period in which all P's are idle.
pub struct Detector {
    delay: i64,
    /// The activity when the last check saw a deadlock; another check must confirm it.
    suspected: Option<Activity>,
    /// The activity at the last report: no other report comes before something has run.
    told: Activity,
}

/// Changes whenever a goroutine runs or a thread blocks. A check takes time; if the activity is
/// equal before the first of two checks and after the second, nothing has moved in between.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Activity {
    switches: u64,
    blocks: u64,
}

impl Activity {
    fn now(rt: &Runtime) -> Activity {
        Activity { switches: rt.switches(), blocks: BLOCKS.load(Ordering::SeqCst) }
    }
}

impl Detector {
    pub fn new() -> Detector {
        let never = Activity { switches: u64::MAX, blocks: u64::MAX };
        Detector { delay: FIRST, suspected: None, told: never }
    }

    /// Begins a new period.
    pub fn again(&mut self) {
        (self.delay, self.suspected) = (FIRST, None);
    }

    /// Checks once. Returns when to check next, in ns (-1: no goroutine waits, so no check is
    /// needed).
    pub fn check(&mut self, rt: &Runtime) -> i64 {
        if rt.goroutines() == 0 {
            return -1;
        }
        if HOLDS.load(Ordering::SeqCst) > 0 || waits_for_something(rt) {
            // The awaited event will start a P, which ends this period; `unhold` ends it too.
            self.suspected = None;
            return time::now() + LAST;
        }
        let before = Activity::now(rt);
        let dead = is_deadlocked(rt);
        if dead && self.suspected.take() == Some(Activity::now(rt)) && self.told != before {
            tell(rt);
            self.told = before;
        }
        let delay = if dead { FIRST } else { self.delay };
        self.suspected = dead.then_some(before);
        self.delay = (self.delay * 2).min(LAST);
        time::now() + delay
    }
}

/// Whether a timer may run, or a file may be ready at any time.
fn waits_for_something(rt: &Runtime) -> bool {
    rt.ps().any(|p| p.timers.may_fire()) || netpoll::any_file_is_waited_for(rt)
}

fn is_deadlocked(rt: &Runtime) -> bool {
    rt.idle.ps() as usize >= rt.procs()
        && !steal::work_anywhere(rt)
        && !waits_for_something(rt)
        && rt.aside.tasks.is_empty()
        // The M of a bubble is `Held`, but its P is not among `procs`.
        && IN_BUBBLES.load(Ordering::SeqCst) == 0
        // A spare M is counted among the M's before the kernel counts its thread.
        && !rt.template.is_asked()
        && thread::count() == rt.threads_that_cannot_wake() + blocked_plain_threads()
        // Read after `thread::count`: a thread that is counted there has changed `blocked` before.
        && !rt.any_m_may_bring_work()
        // Checked last, because it may take long: `may_fire` may count dead entries.
        && !rt.ps().any(|p| p.timers.will_fire())
}

fn blocked_plain_threads() -> usize {
    BLOCKED_THREADS.load(Ordering::SeqCst) as usize
}

/// The function, with its argument, that the user wants called in place of the report.
static HANDLER: Locked<Option<Callback<Handler>>> = Locked::new(None);

/// Locks the handler around a fork: the child must not find it locked by a thread that the child
/// lacks.
pub fn lock_handler() {
    HANDLER.lock();
}

/// Unlocks the handler after [`lock_handler`].
///
/// # Safety
/// The calling thread holds the lock.
pub unsafe fn unlock_handler() {
    // SAFETY: as the caller says.
    unsafe { HANDLER.unlock() };
}

/// The user's function of `gs_set_deadlock_handler`.
pub type Handler = unsafe extern "C" fn(ctx: *mut c_void);

/// Sets the handler; `None`: the process reports and aborts.
pub fn set_handler(handler: Option<Handler>, ctx: *mut c_void) {
    HANDLER.with(|set| *set = handler.map(|f| Callback(f, HostArg(ctx))));
}

/// Calls the handler, or reports the goroutines that wait and ends the process.
fn tell(rt: &Runtime) {
    match HANDLER.with(|set| *set) {
        // SAFETY: the user gave this function for this argument.
        Some(Callback(f, HostArg(ctx))) => unsafe { f(ctx) },
        None => {
            trace::flight_write_at_end();
            unwind::refresh_modules();
            // Without memory for names the report has addresses.
            let with_names = || report(rt, &mut Symbols::new(rt.debug.all_frames));
            let named = Symbols::have_memory().then(|| stack::on_large(with_names)).flatten();
            let text = named.unwrap_or_else(|| report(rt, &mut Symbols::none()));
            log::say(format_args!("{text}"));
            os::abort()
        }
    }
}

/// The lines of the report about the goroutines of the calling thread's bubble, which all wait.
pub fn of_bubble() -> String {
    unwind::refresh_modules();
    let text = |symbols: &mut Symbols| {
        let (mut text, mut count) = (String::new(), 0);
        rt().for_each_g(|g| {
            if g.is_in_bubble() && count < LISTED {
                count += 1;
                text += &lines(g, symbols);
            }
        });
        text
    };
    let shows_all = rt().debug.all_frames;
    let named = Symbols::have_memory()
        .then(|| stack::on_large(|| text(&mut Symbols::new(shows_all))))
        .flatten();
    named.unwrap_or_else(|| text(&mut Symbols::none()))
}

/// The lines of a report about the goroutine of the calling thread's bubble that has crashed: its
/// functions.
pub fn of_crash() -> String {
    unwind::refresh_modules();
    let Some(m) = m::current() else { return String::new() };
    let Some((bubble, from)) = m.bubble().and_then(|b| Some((b, b.crashed_at.get()?))) else {
        return String::new();
    };
    let Some(Outcome::Crashed(id, _)) = bubble.outcome.borrow().clone() else {
        return String::new();
    };
    let mut frames = Vec::new();
    rt().for_each_g(|g| {
        if g.is_in_bubble() && g.id.load(Ordering::Relaxed) == id {
            // SAFETY: `g` is a descriptor.
            let bounds = unsafe { GRef::from_ptr(g) }.stack_bounds();
            let mut add = |frame| {
                frames.push(frame);
                true
            };
            // SAFETY: the goroutine has left this stack for good.
            unsafe { unwind::walk(from, bounds, &mut add) };
        }
    });
    let text = |symbols: &mut Symbols| {
        let mut text = String::new();
        symbols.of_user(&frames, &mut |symbol| text += &format!("    {}\n", symbol.describe()));
        text
    };
    let named = Symbols::have_memory().then(|| stack::on_large(|| text(&mut Symbols::new(false))));
    named.flatten().unwrap_or_default()
}

/// The most goroutines that the report lists.
const LISTED: usize = 100;
/// The most of an interpreter's frames that the report shows of a goroutine.
const SCRIPT_FRAMES: usize = 16;

fn report(rt: &Runtime, symbols: &mut Symbols) -> String {
    let mut text = String::from("gosched: all goroutines are asleep - deadlock!\n");
    let mut count = 0;
    rt.for_each_g(|g| {
        if g.status() == Status::Waiting {
            count += 1;
            if count <= LISTED {
                text += &lines(g, symbols);
            }
        }
    });
    if count > LISTED {
        text += &format!("  ... and {} more\n", count - LISTED);
    }
    text += &format!(
        "{count} goroutines wait, {} threads wait for them, and nothing can wake any of them.\n\
         See to it that one is woken, or give its wait a deadline. If something that the library \
         can't see will wake one, take a hold first (gs_hold).\n",
        blocked_plain_threads() + blocked_calls()
    );
    text
}

/// The lines of the report about a goroutine: its id, its name (quoted and escaped), what the
/// goroutine waits for, and where it was spawned; then its functions.
fn lines(g: &G, symbols: &mut Symbols) -> String {
    // SAFETY: `g` is a descriptor.
    let g = unsafe { GRef::from_ptr(g) };
    let id = g.id.load(Ordering::Relaxed);
    // SAFETY: the goroutine waits, and nothing can wake it, so it has not ended.
    let name = unsafe { g.name() };
    let name = name.map_or(String::new(), |name| format!(" {:?}", name.to_string_lossy()));
    let mut place = "an unknown place".to_string();
    symbols.caller_of_user(g.pc.get(), &mut |symbol| place = symbol.describe());
    let creator = describe_creator(g.creator.get());
    let why = g.why.get().text();
    let mut room = [ScriptFrame::NONE; SCRIPT_FRAMES];
    let scripts = (rt().points.script_frames)(g, &mut room);
    if !scripts.is_empty() {
        // The functions of the interpreter itself say nothing to who reads the report.
        let mut text = format!("  goroutine {id}{name} waits {why}; spawned by {creator}\n");
        for frame in scripts {
            // SAFETY: the goroutine waits, and nothing can wake it, so the strings are valid.
            text += &format!("    {}\n", unsafe { frame.describe() });
        }
        return text;
    }
    let mut text = format!("  goroutine {id}{name} waits {why}; spawned at {place} by {creator}\n");
    let mut frames = Vec::new();
    if let Some((_, from)) = registers::at_rest(g) {
        let mut add = |frame| {
            frames.push(frame);
            true
        };
        // SAFETY: the goroutine waits, and nothing can wake it, so its stack stays as it is.
        unsafe { unwind::walk(from, g.stack_bounds(), &mut add) };
    }
    symbols.of_user(&frames, &mut |symbol| text += &format!("    {}\n", symbol.describe()));
    text
}

impl Runtime {
    /// The number of threads that can't wake a goroutine of their own accord: M's, sysmon, the
    /// template thread, the inspector, the follower, the thread for SIGQUIT, the tracer's thread, those of `observe`,
    /// and workers without a job.
    pub fn threads_that_cannot_wake(&self) -> usize {
        // Acquire: pairs with the Release in `add_runner`.
        let services = [
            self.template.is_there(),
            self.inspector.is_there(),
            self.follower.is_there(),
            quit::is_there(),
        ];
        let own = 1 + services.iter().filter(|&&there| there).count();
        let watching = trace::threads() + self.observers.load(Ordering::Acquire);
        self.m_count.load(Ordering::Acquire) + own + self.workers.asleep() + watching
    }

    /// Whether an M without a P may come back with a goroutine, or its thread may go back to
    /// `gs_run`'s caller.
    pub fn any_m_may_bring_work(&self) -> bool {
        // Read before the M's, because a thread is counted out before it is woken.
        let blocked = blocked::blocked_calls();
        self.ms.with(|Ms { all, .. }| {
            let mut in_calls = 0;
            let mut may = |m: &M| {
                let hold = m.hold.get();
                in_calls += usize::from(hold == Hold::InCall);
                !matches!(hold, Hold::Held | Hold::InCall)
                    || !m.pinned.is_empty()
                    || (m.is_runner() && m.leaves.load(Ordering::Relaxed))
            };
            all.iter().any(|m| may(m)) || in_calls > blocked
        })
    }
}
