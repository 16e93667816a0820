//! How the M of an ordered run chooses on g0, and when the virtual clock of a bubble moves.

use super::g0::find_runnable;
use crate::arch::Registers;
use crate::backtrace::unwind;
use crate::os::{thread, time};
use crate::sched::ext::hooks::{self, ScriptFrame};
use crate::sched::run::order::own_timer_due;
use crate::sched::run::ordered::{count_step, gather, number_of, scatter};
use crate::sched::take::registers;
use crate::sched::types::course::{Bubble, Course, Drawn, Happened, Note, Outcome, Seen};
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::m::MRef;
use crate::sched::types::p::PRef;
use crate::sched::types::task::{Task, TaskKind};
use crate::sched::wait::netpoll;
use core::sync::atomic::Ordering;

/// The longest time for which a bubble that waits for a real file sleeps before it looks whether it
/// was disturbed, in ns.
const LOOK: i64 = 10_000_000;

/// After this number of choices in a row among goroutines that can run, timers and files have a turn.
const BUSY: u32 = 500;

/// The most frames of a goroutine that are kept for a [`Note`].
const FRAMES: usize = 24;
/// The most of an interpreter's frames that are kept for a [`Note`].
const SCRIPT_FRAMES: usize = 3;

/// Takes the task that the M of an ordered run runs next, with its P. `None`: the bubble is over
/// ([`is_over`]); or the caller looks again from the start.
#[cold]
#[inline(never)]
pub fn next_task(m: MRef) -> Option<Task> {
    let course = m.course()?;
    let chosen = course.next.take();
    let stepped = chosen.is_some();
    if let Some(g) = course.last_g.take() {
        let why = why_left(m, g);
        course.log(course.last.get().into(), why);
        if why == Happened::GivesWay && !stepped {
            course.draws.borrow_mut().yields(course.last.get());
        }
        if let Some(bubble) = &course.bubble {
            // A goroutine that parks takes this time from the real clock.
            g.since.set(bubble.clock.get());
        }
        course.look(g);
    }
    let task = m.stash.take().or(chosen).or_else(|| match &course.bubble {
        Some(bubble) => next_in_bubble(m, course, bubble),
        None => next_by_seed(m, course),
    });
    if let Some(task) = &task {
        if let Some(notes) = course.bubble.as_ref().and_then(|bubble| bubble.notes.as_ref()) {
            note(course, &mut notes.borrow_mut(), stepped, task);
        }
        course.last.set(number_of(task));
        if let (Some(_), TaskKind::Goroutine(g)) = (&course.bubble, task.kind()) {
            course.last_g.set(Some(g));
            course.log(g.id.load(Ordering::Relaxed), Happened::Runs);
        }
    }
    task
}

/// Why the goroutine that the M has just left doesn't run.
fn why_left(m: MRef, g: GRef) -> Happened {
    match g.status() {
        _ if g.has(flags::ENDS) => Happened::Ends,
        Status::Waiting if is_over(m) => Happened::Stops,
        Status::Waiting => Happened::Waits(g.why.get()),
        Status::Dead => Happened::Ends,
        _ => Happened::GivesWay,
    }
}

/// Notes what the latest draw was, if it wasn't plain. `stepped`: the goroutine before was left at a
/// step, and is the last of those that can run.
fn note(course: &Course, notes: &mut Vec<Note>, stepped: bool, task: &Task) {
    let draws = course.draws.borrow();
    // Faults have their notes already.
    if draws.made().len() <= notes.len() {
        return;
    }
    let Some(to) = see(task) else { return };
    let list = course.ready.borrow();
    let from = if stepped { list.back().and_then(see) } else { None };
    notes.push(Note { step: draws.steps(), what: Drawn::Switch { from, to } });
}

fn see(task: &Task) -> Option<Seen> {
    let TaskKind::Goroutine(g) = task.kind() else { return None };
    Some(see_goroutine(g, registers::at_rest(g).map(|(_, from)| from)))
}

/// A goroutine of the M's bubble that has not ended, with these registers.
pub fn see_goroutine(g: GRef, from: Option<Registers>) -> Seen {
    let mut frames = Vec::new();
    if !g.has(flags::UNBORN)
        && let Some(from) = from
    {
        let mut add = |frame| {
            frames.push(frame);
            frames.len() < FRAMES
        };
        // SAFETY: the goroutine is at rest or the caller, and this M is its bubble's.
        unsafe { unwind::walk(from, g.stack_bounds(), &mut add) };
    }
    // SAFETY: the goroutine has not ended, as the caller says.
    let name =
        unsafe { g.name() }.map_or(String::new(), |name| name.to_string_lossy().into_owned());
    let function = g.f.get().map_or(0, |f| f as usize);
    let mut room = [ScriptFrame::NONE; SCRIPT_FRAMES];
    let script = hooks::script_frames(g, &mut room);
    // SAFETY: the goroutine is at rest or the caller, so the strings are valid.
    let script: Vec<_> = script.iter().map(|frame| unsafe { frame.describe() }).collect();
    let script = script.join(", in ");
    Seen { id: g.id.load(Ordering::Relaxed), name, frames, function, script }
}

/// Whether the M's bubble is over, so that its thread goes back to its owner.
pub fn is_over(m: MRef) -> bool {
    m.bubble().is_some_and(Bubble::is_over)
}

/// For a goroutine of the M's bubble for whose stack there is no memory: ends the bubble. Elsewhere
/// tasks wait aside for memory, but other M's let those try again. False: the M runs no bubble.
#[cold]
pub fn ends_for_want_of_stack(m: MRef, g: GRef) -> bool {
    let bubble = m.bubble();
    if let Some(bubble) = bubble {
        let id = g.id.load(Ordering::Relaxed);
        bubble.end(Outcome::Disturbed(format!("no memory for the stack of goroutine {id}")));
    }
    bubble.is_some()
}

/// Chooses one of the goroutines that can run.
fn choose(course: &Course) -> Option<Task> {
    let mut list = course.ready.borrow_mut();
    let at = course.draws.borrow_mut().switch(course.last.get(), false, &list, number_of)?;
    list.remove(at)
}

/// In a runtime that is one ordered run: timers depend on the real clock, so they fire one after the
/// other and only when nothing else can run, or has for `BUSY` choices.
fn next_by_seed(m: MRef, course: &Course) -> Option<Task> {
    let p = m.p();
    gather(m, course);
    let busy = course.busy.get() + 1;
    if busy >= BUSY || course.ready.borrow().is_empty() {
        course.busy.set(0);
        if own_timer_due(p).is_some() {
            p.timers.run(p.timers.next());
        }
        if netpoll::is_due(p) {
            netpoll::poll(m, p);
        }
        gather(m, course);
    } else {
        course.busy.set(busy);
    }
    let chosen = choose(course);
    scatter(m, course);
    chosen.or_else(|| find_runnable(m))
}

fn next_in_bubble(m: MRef, course: &Course, bubble: &Bubble) -> Option<Task> {
    let p = m.p();
    loop {
        if p.timers.next() <= bubble.clock.get() {
            p.timers.run(bubble.clock.get());
        }
        if let Some(net) = bubble.net.as_ref().filter(|net| net.next() <= bubble.clock.get()) {
            netpoll::deliver(p, &net.run(bubble.clock.get()));
        }
        gather(m, course);
        if !count_step(course, bubble) {
            return None;
        }
        if !course.ready.borrow().is_empty() {
            return choose(course);
        }
        if p.created.load(Ordering::Relaxed) == p.ended.load(Ordering::Relaxed) {
            bubble.end(Outcome::Done);
            continue;
        }
        let next = next_event(p, bubble);
        if p.poll.is_waited_for() && p.poll.has_real_files.get() {
            hooks::idle(m);
            wait_for_files(m, p, bubble, next);
            if let Some(watch) = &bubble.watch {
                watch.used.set(thread::usage());
            }
        } else if next != i64::MAX {
            bubble.clock.set(next.max(bubble.clock.get()));
        } else {
            bubble.end(Outcome::Deadlock);
        }
    }
}

/// When the next timer is due, or something arrives in the bubble's network, in ns; `i64::MAX`: never.
fn next_event(p: PRef, bubble: &Bubble) -> i64 {
    p.timers.next().min(bubble.net.as_ref().map_or(i64::MAX, |net| net.next()))
}

/// Waits for real files, but at most until the next timer is due. Meanwhile the virtual clock goes as
/// the real one does: whatever answers by these files knows no other time.
fn wait_for_files(m: MRef, p: PRef, bubble: &Bubble, next: i64) {
    if netpoll::poll(m, p) > 0 {
        return;
    }
    let (clock, began) = (bubble.clock.get(), time::real());
    let until = next.min(clock + LOOK);
    let found = netpoll::take_events(p, until);
    let now = (clock + time::real() - began).min(until);
    bubble.clock.set(if found.len() == 0 { until } else { now });
    found.into_queues(p);
}
