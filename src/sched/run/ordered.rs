//! Ordered runs: how their goroutines become ready, and the steps at which others may go on.
//! `BUBBLES.md` has the protocol.

use super::ready;
use super::switch::switch_away;
use crate::os::thread;
use crate::sched::types::course::{Bubble, Course, ENDING, Happened, Outcome, fault, number};
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::m::{self, M, MRef};
use crate::sched::types::runtime::rt;
use crate::sched::types::task::{Task, TaskKind};
use core::sync::atomic::Ordering;

/// The number of a task's goroutine in its run; 0: a goroutine that has not begun, of a plain thread.
pub fn number_of(task: &Task) -> u32 {
    match task.kind() {
        TaskKind::Goroutine(g) => number(g),
        TaskKind::Newborn(_) => 0,
    }
}

/// Makes a goroutine ready that is in a bubble, or was given up with one. The caller owns it. `m`:
/// the caller's, if it has a P.
#[cold]
#[inline(never)]
pub fn ready_in_bubble(m: Option<MRef>, g: GRef) {
    match m {
        Some(m) if g.is_in_bubble_of(m) => {
            if let Some(course) = m.course() {
                course.ready.borrow_mut().push_back(Task::goroutine(g));
                course.log(g.id.load(Ordering::Relaxed), Happened::Ready);
            }
        }
        _ => disturb(g),
    }
}

/// Something that isn't in the goroutine's bubble wakes the goroutine, so the run can't be had again:
/// ends the run. The goroutine doesn't run.
fn disturb(g: GRef) {
    ENDING.with(|()| {
        if g.flags.seen() & flags::GIVEN_UP != 0 {
            return;
        }
        // SAFETY: the goroutine is in a bubble that isn't over, so its M runs the bubble, and `Course`
        // stays as long as `ENDING` is held.
        let bubble = unsafe { (*g.bound_m.seen()).bubble() };
        if let Some(bubble) = bubble {
            bubble.why.with(|why| {
                if why.is_empty() {
                    let id = g.id.load(Ordering::Relaxed);
                    *why = format!("goroutine {id} was woken by {}", caller());
                }
            });
            // Release: pairs with the Acquire in `gather`.
            bubble.is_disturbed.store(true, Ordering::Release);
        }
    });
}

/// The calling goroutine or thread, for a report.
fn caller() -> String {
    match m::current_g() {
        Some(g) => {
            format!("goroutine {}, which is not in the bubble", g.id.load(Ordering::Relaxed))
        }
        None => format!("thread {}, which is not in the bubble", thread::id()),
    }
}

/// Moves all goroutines that can run on the M's P to the list of the run, in an order that depends on
/// nothing but the run. For the M of an ordered run, with its P.
pub fn gather(m: MRef, course: &Course) {
    let p = m.p();
    let next = p.runnext.swap(0, Ordering::Acquire);
    // SAFETY: `runnext` and the rings hold tasks.
    let task = |word| unsafe { Task::from_word(word) };
    let alone = p.alone.get();
    let mut list = course.ready.borrow_mut();
    let mut add = |task: Task| match (&course.bubble, task.kind()) {
        (Some(_), TaskKind::Goroutine(g)) if !g.is_in_bubble_of(m) => woke_outsider(course, g),
        _ => list.push_back(task),
    };
    task(next).into_iter().for_each(&mut add);
    while let Some(task) = p.private.pop_front(alone).and_then(task) {
        add(task);
    }
    while let Some(task) = p.shared.pop_front(alone).and_then(task) {
        add(task);
    }
    while let Some(task) = p.inbox.pop() {
        add(task);
    }
    if course.bubble.is_some() || !m.is_locked() {
        while let Some(task) = m.pinned.pop() {
            add(task);
        }
    }
}

/// Puts the goroutines that can run back into the P's queue, if the run isn't a bubble: the P may pass
/// to another M at any time, and its queues say whether it has work.
pub fn scatter(m: MRef, course: &Course) {
    if course.bubble.is_none() {
        let p = m.p();
        course.ready.borrow_mut().drain(..).for_each(|task| ready::push_shared(p, task));
    }
}

/// A goroutine of the bubble has woken a goroutine that isn't in it: that goroutine runs, and the
/// bubble ends.
fn woke_outsider(course: &Course, g: GRef) {
    let id = g.id.load(Ordering::Relaxed);
    if let Some(bubble) = &course.bubble {
        let text = format!(
            "goroutine {} woke goroutine {id}, which is not in the bubble",
            course.last.get()
        );
        bubble.end(Outcome::Disturbed(text));
    }
    rt().push(rt().any_node(), Task::goroutine(g), g.priority.get());
}

/// Counts a step of a bubble, and calls the user's check, but not before the bubble's function has begun:
/// the check looks at what that function sets up. False: the run is over.
pub fn count_step(course: &Course, bubble: &Bubble) -> bool {
    // Acquire: pairs with the Release in `disturb`.
    if bubble.is_disturbed.load(Ordering::Acquire) {
        bubble.end(Outcome::Disturbed(bubble.why.with(|why| why.clone())));
    }
    let steps = course.draws.borrow().steps();
    if steps >= bubble.max_steps {
        bubble.end(Outcome::TooLong);
    }
    if !bubble.is_over()
        && steps > 0
        && let Some((check, arg)) = bubble.check
    {
        // SAFETY: the user gave this function for this argument.
        let result = unsafe { check(arg) };
        if result != 0 {
            bubble.end(Outcome::Failed(format!("the check returned {result}")));
        }
    }
    !bubble.is_over()
}

/// A step: the running goroutine is about to call a function of the library, and another goroutine
/// may go on first. Returns the M on which the caller resumes.
#[cold]
#[inline(never)]
pub fn step(m: MRef) -> MRef {
    let Some(course) = m.course().filter(|_| m::is_on_goroutine(m)) else { return m };
    let g = m.g();
    course.look(g);
    if let Some(bubble) = &course.bubble
        && !count_step(course, bubble)
    {
        return leave_for_good(m);
    }
    if g.preempt_off.load(Ordering::Relaxed) != 0 || g.has(flags::NOPREEMPT) || m.is_locked() {
        return m;
    }
    if let Some(bubble) = &course.bubble
        && g.shared.get()
        && fault("the goroutine is cancelled", bubble.cancels, 1) > 0
    {
        g.cancelled.store(true, Ordering::SeqCst);
    }
    gather(m, course);
    let chosen = {
        let list = course.ready.borrow();
        course.draws.borrow_mut().switch(number(g), true, &list, number_of)
    };
    let next = chosen.and_then(|at| course.ready.borrow_mut().remove(at));
    scatter(m, course);
    let Some(next) = next else { return m };
    course.next.set(Some(next));
    g.set_status(Status::Runnable);
    // SAFETY: `commit_step` takes the address of a goroutine, which this M runs and so owns.
    unsafe { switch_away(m, commit_step, g.address()) }
}

/// # Safety
/// The caller is on the thread of an M of an ordered run. `g` is the address of a goroutine that the
/// caller owns.
unsafe fn commit_step(g: usize) {
    // SAFETY: as the caller says.
    let (m, g) = unsafe { (m::must_current(), GRef::at(g)) };
    match m.course() {
        Some(course) if course.bubble.is_some() => {
            course.ready.borrow_mut().push_back(Task::goroutine(g));
        }
        _ => ready::push_shared(m.p(), Task::goroutine(g)),
    }
}

/// The run is over while this goroutine runs: it never goes on.
pub fn leave_for_good(m: MRef) -> MRef {
    m.g().set_status(Status::Waiting);
    // SAFETY: the commit does nothing.
    unsafe { switch_away(m, |_| {}, 0) }
}

/// Whether another goroutine of the run could go on now.
pub fn others_can_run(m: MRef) -> bool {
    m.course().is_some_and(|course| {
        gather(m, course);
        let any = !course.ready.borrow().is_empty();
        scatter(m, course);
        any
    })
}

/// The bubble that runs the calling goroutine; null on all other threads.
pub fn current_bubble() -> Option<&'static Bubble> {
    let m: *const M = m::current()?.as_ptr();
    // SAFETY: M's stay mapped; the bubble stays while its M runs it, and so while the caller does.
    unsafe { (*m).bubble() }
}
