//! Where the scheduler's changes of state become events of a trace. `trace/README.md` says which
//! event belongs to which change, and why nothing here costs anything while there is no trace.

use super::order::{self, next_direct};
use super::probes;
use crate::arch::{self, Registers};
use crate::sched::types::g::{G, GRef, Status, flags};
use crate::sched::types::m::{self, MRef, TRACED};
use crate::sched::types::p::PRef;
use crate::sched::types::points::ScriptFrame;
use crate::sched::types::runtime::rt;
use crate::sched::types::scripts;
use crate::sched::types::task::{Task, TaskKind};
use crate::sched::types::waiter::Why;
use crate::trace::format::event;
use crate::trace::stacks::{self, ForeignFrame};
use crate::trace::{self, By, GoRef, Leaves, Names, Stream, string};
use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The number of a goroutine in traces. The runtimes of a process count their goroutines from 1, so
/// the number of the runtime goes along.
const RUNTIME: u32 = 40;

/// The goroutine, for an event.
#[inline(always)]
pub fn go(g: &GRef) -> GoRef<'_> {
    let runtime = u64::from(rt().number - 1) << RUNTIME;
    GoRef { id: runtime | g.id.load(Ordering::Relaxed), word: &g.trace, names: &**g }
}

impl Names for G {
    fn function(&self) -> usize {
        let is_attached = self.flags.seen() & flags::ATTACHED != 0;
        // A goroutine of an interpreter is named by its outermost frame: see `creates`.
        if is_attached || scripts::has(self) { 0 } else { self.f.get().map_or(0, |f| f as usize) }
    }

    fn name(&self) -> Option<&CStr> {
        // SAFETY: the goroutine of an event has not ended, so it keeps its name.
        unsafe { G::name(self) }
    }
}

/// The reason of a wait, as a string of the trace.
fn reason(why: Why) -> u32 {
    match why {
        Why::Receive => string::CHAN_RECEIVE,
        Why::Send => string::CHAN_SEND,
        Why::Select => string::SELECT,
        Why::SelectNothing => string::FOREVER,
        Why::Mutex
        | Why::ReadLock
        | Why::WriteLock
        | Why::WaitGroup
        | Why::Semaphore
        | Why::Once => string::SYNC,
        Why::Cond => string::COND,
        Why::Join => string::JOIN,
        Why::Sleep => string::SLEEP,
        Why::File => string::NETWORK,
        Why::Thread | Why::Timer => string::SYSTEM_WAIT,
        Why::Ready => string::PARK,
    }
}

/// For an M that has just got this P: traces from now on, or no longer. The world was stopped when
/// the trace began, so each M has got its P since.
#[inline(always)]
pub fn follow(m: MRef, p: PRef) {
    if trace::is_on() || m.is_traced() {
        change(m, p);
    }
}

#[cold]
#[inline(never)]
fn change(m: MRef, p: PRef) {
    let is_on = trace::is_on();
    m.set_traced(is_on);
    m.shown.set(ptr::null());
    // `P::stop_measuring` resets this after the trace.
    p.is_careful.set(p.is_careful.get() || is_on);
    p.spawns_carefully.set(p.migrates || is_on);
}

/// `switch::successor` for an M whose `by_g0` isn't 0.
#[cold]
#[inline(never)]
pub fn successor(m: MRef) -> Option<Task> {
    if !m.is_traced() {
        return None;
    }
    if !trace::is_on() {
        m.set_traced(false);
    }
    if m.by_g0.get() & !TRACED != 0 {
        leaves(m, m.g());
        return None;
    }
    let Some(task) = next_direct(m, m.p()) else {
        leaves(m, m.g());
        return None;
    };
    match task.kind() {
        // The goroutine leaves, and the next one runs: one operation.
        TaskKind::Goroutine(next) if next.flags.get() & flags::SPECIAL == 0 => {
            leaves_for(m, m.g(), Some(next));
            probes::run(m, m.p(), next);
        }
        // Whether this M runs the goroutine is not decided yet. If it does, that counts as a move.
        TaskKind::Goroutine(next) => {
            leaves(m, m.g());
            probes::migrate(m.p(), next);
            next.last_p.set(NO_P);
        }
        TaskKind::Newborn(_) => leaves(m, m.g()),
    }
    Some(task)
}

/// A [`G::last_p`](crate::sched::types::g::G::last_p) that is no P's.
const NO_P: u16 = u16::MAX;

/// The M's goroutine leaves the M: it parks, yields, is preempted, begins `gs_blocking` or ends.
#[cold]
#[inline(never)]
pub fn leaves(m: MRef, g: GRef) {
    leaves_for(m, g, None);
}

/// [`leaves`] for an M that runs `next` then.
#[inline(always)]
fn leaves_for(m: MRef, g: GRef, next: Option<GRef>) {
    let p = p_of(m);
    let how = match g.status() {
        _ if g.has(flags::ENDS) => {
            probes::end(m, p, g);
            Leaves::Ends
        }
        Status::Waiting => {
            let why = g.why.get();
            probes::park(m, p, g, why.reason());
            Leaves::Blocks(reason(why))
        }
        Status::Syscall => return begins_call(m, g),
        _ if g.has(flags::INTERRUPTED) || p.is_some_and(order::is_asked) => {
            probes::preempt(m, p, g);
            Leaves::Stops(string::PREEMPTED)
        }
        _ => {
            probes::yields(m, p, g);
            Leaves::Stops(string::GOSCHED)
        }
    };
    let Some(stream) = stream_of(m) else { return };
    let stack = if matches!(how, Leaves::Ends) { 0 } else { stack_of(m, stream) };
    if stream.leaves(p.map(|p| p.id), go(&g), how, stack, next.as_ref().map(go))
        && let Some(p) = p
    {
        log_queue(stream, p);
    }
}

/// Logs how many goroutines wait for the P.
#[cold]
#[inline(never)]
fn log_queue(stream: &Stream, p: PRef) {
    let key = trace::string_id(format!("P{} queue", p.id).as_bytes());
    let length = p.queued() + p.of_node().runq.len();
    // The trace has each number once, as a string.
    let shown = if length < 1000 { length } else { length / 100 * 100 };
    stream.logs_queue(key, trace::string_id(shown.to_string().as_bytes()));
}

/// The M has stolen the task that it runs next. `how`: a string of the trace; `from`: the node.
#[cold]
#[inline(never)]
pub fn steals(m: MRef, how: u32, from: usize) {
    probes::steal(m.p(), from);
    if let Some(stream) = stream_of(m) {
        stream.logs_next(how, trace::string_id(format!("node {from}").as_bytes()));
    }
}

/// The goroutine of which a trace shows that it has stopped the world, by its descriptor; null: none.
/// A reader refuses a second stop of a goroutine whose first one has not ended.
static SHOWN_STOPPER: AtomicPtr<G> = AtomicPtr::new(ptr::null_mut());

/// The M's goroutine has stopped the world.
#[cold]
#[inline(never)]
pub fn world_stops(m: MRef) {
    if let Some(stream) = stream_of(m)
        && SHOWN_STOPPER.load(Ordering::Relaxed).is_null()
    {
        let stack = u64::from(stack_of(m, stream));
        if stream.notes(event::STW_BEGIN, [string::STOP_THE_WORLD.into(), stack]) {
            SHOWN_STOPPER.store(m.g().as_ptr(), Ordering::Relaxed);
        }
    }
}

/// The M's goroutine starts the world again, maybe in a call.
#[cold]
#[inline(never)]
pub fn world_starts(m: MRef, g: GRef) {
    if let Some(stream) = stream_of(m)
        && SHOWN_STOPPER.load(Ordering::Relaxed) == g.as_ptr()
        && stream.notes(event::STW_END, [])
    {
        SHOWN_STOPPER.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// The M's P, if the M has one.
fn p_of(m: MRef) -> Option<PRef> {
    (!m.p.get().is_null()).then(|| m.p())
}

/// The M's stream, if events are recorded. Those of bubbles aren't: their goroutines have the numbers
/// of others, and take their turns in another order of time.
#[inline(always)]
fn stream_of(m: MRef) -> Option<&'static Stream> {
    if trace::records() && m.bubble().is_none() { m.stream() } else { None }
}

/// The most frames of an interpreter in a traced stack.
const SCRIPT_FRAMES: usize = 32;

/// A string of an interpreter's frame, as a string of the trace.
fn string_of(text: *const c_char) -> u32 {
    // SAFETY: null or a C string that the hook has just given.
    if text.is_null() { 0 } else { trace::string_id(unsafe { CStr::from_ptr(text) }.to_bytes()) }
}

/// The id of the stack of the M's goroutine, which calls this, or whose thread is in the handler of
/// the preemption signal; 0: unknown.
#[inline(always)]
fn stack_of(m: MRef, stream: &Stream) -> u32 {
    let g = m.g();
    let bounds = g.stack_bounds();
    let context = m.context.get();
    let from = match context.is_null() {
        true => Registers::here(),
        // SAFETY: the handler of the signal was given this context, and has not returned.
        false => unsafe { arch::interrupted(context) },
    };
    if (rt().points.has_script_frames)() {
        return stack_with_script(g, stream, from, bounds);
    }
    // SAFETY: the calling thread is the M's, and runs or has interrupted the goroutine on this
    // stack, if the stack pointer is in it.
    unsafe { stream.shapes.id_of(from, bounds, &[]) }
}

/// [`stack_of`] with the frames of an interpreter. If the interpreter has said whose goroutines are
/// its own, the frames of C are not shown, so that the outermost frame names the goroutine.
#[cold]
#[inline(never)]
fn stack_with_script(g: GRef, stream: &Stream, from: Registers, bounds: (usize, usize)) -> u32 {
    if scripts::has(&g) {
        let id = stack_of_script(g);
        if id != 0 {
            return id;
        }
    }
    let mut foreign = [NO_FRAME; SCRIPT_FRAMES];
    let count = foreign_frames(g, &mut foreign);
    // SAFETY: as in `stack_of`, which waits.
    unsafe { stream.shapes.id_of(from, bounds, &foreign[..count]) }
}

/// The id of the stack that has only the frames of an interpreter; 0: it gives none.
///
/// The goroutine is the caller, or what the caller is about to start.
#[cold]
#[inline(never)]
fn stack_of_script(g: GRef) -> u32 {
    let mut foreign = [NO_FRAME; SCRIPT_FRAMES];
    match foreign_frames(g, &mut foreign) {
        0 => 0,
        count => stacks::add(&foreign[..count], &[]),
    }
}

const NO_FRAME: ForeignFrame = ForeignFrame { function: 0, file: 0, line: 0 };

/// Puts the frames of an interpreter into `to`. Returns their number.
fn foreign_frames(g: GRef, to: &mut [ForeignFrame; SCRIPT_FRAMES]) -> usize {
    let mut room = [ScriptFrame::NONE; SCRIPT_FRAMES];
    let frames = (rt().points.script_frames)(g, &mut room);
    for (to, frame) in to.iter_mut().zip(frames) {
        let (function, file) = (string_of(frame.function), string_of(frame.file));
        *to = ForeignFrame { function, file, line: u32::try_from(frame.line).unwrap_or(0) };
    }
    frames.len()
}

/// The calling M runs the goroutine with this P from now on. Allowed for a goroutine that runs
/// already.
#[cold]
#[inline(never)]
pub fn runs(p: PRef, g: GRef) {
    let Some(m) = m::current() else { return };
    probes::run(m, p, g);
    if let Some(stream) = stream_of(m) {
        stream.runs(p.id, go(&g));
    }
}

/// The M, whose goroutine computes without a P, gets back the P that it has lent to the calling M. The
/// lender may have come inside already, and have left that goroutine.
pub fn goes_on_with(lender: MRef, p: PRef) {
    trace::proc_was_taken(p.id);
    if let Some(stream) = stream_of(lender) {
        stream.goes_on_with(p.id);
    }
}

/// The caller makes the goroutine ready.
#[cold]
#[inline(never)]
pub fn readies(g: GRef) {
    let m = m::current();
    probes::ready(m, g);
    if !trace::records() {
        return;
    }
    match m.and_then(|m| m.stream()) {
        Some(own) => own.readies(By::Own, go(&g)),
        None => trace::outside().readies(By::Other, go(&g)),
    }
}

/// The M's goroutine, or a thread that has no P, has spawned this goroutine, which no queue has yet.
#[cold]
#[inline(never)]
pub fn creates(m: Option<MRef>, g: GRef) {
    probes::spawn(m, g);
    if let Some(m) = m
        && let Some(stream) = stream_of(m)
    {
        let has_goroutine = !m.curg.get().is_null();
        let stack = if has_goroutine { stack_of(m, stream) } else { 0 };
        // An interpreter gives the function that a new goroutine will call as its frame.
        let start = if scripts::has(&g) { stack_of_script(g) } else { 0 };
        stream.creates(go(&g), start, stack);
    }
}

/// The M's goroutine begins a call that it has announced, or `gs_blocking`.
#[cold]
#[inline(never)]
pub fn begins_call(m: MRef, g: GRef) {
    let p = p_of(m);
    probes::syscall_begin(p, g);
    if let (Some(p), Some(stream)) = (p, stream_of(m)) {
        stream.begins_call(p.id, go(&g), stack_of(m, stream));
    }
}

/// The M's goroutine, which has no P after a call, is queued.
#[cold]
#[inline(never)]
pub fn loses_g(m: MRef, g: GRef) {
    m.shown.set(ptr::null());
    if let Some(stream) = stream_of(m) {
        stream.loses_go(go(&g));
    }
}

/// The M gives its P up.
#[cold]
#[inline(never)]
pub fn gives_up_p(m: MRef) {
    if let Some(stream) = stream_of(m) {
        stream.gives_up_proc();
    }
}
