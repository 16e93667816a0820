//! sysmon: a thread without a P that looks after what no M can see:
//! P's whose thread is blocked, P's that are stuck and don't look at their files,
//! timers of idle P's, nodes without a watcher, threads that are wanted.
//!
//! It looks every 20 us at first and less often while nothing happens, down to once a
//! millisecond; when every P has been idle for a while it sleeps until one is started, or
//! shortly after the next timer.

use super::deadlock;
use crate::os::thread::{self};
use crate::os::time;
use crate::sched::core::netpoll;
use crate::sched::core::order;
use crate::sched::core::owner;
use crate::sched::core::park::FOREVER;
use crate::sched::core::preempt::{self, BACK, Doing, Sent, WAKE_UP};
use crate::sched::core::stacks;
use crate::sched::core::start;
use crate::sched::core::steal;
use crate::sched::core::timers;
use crate::sched::core::world;
use crate::sched::who::attention;
use crate::sched::who::p::{PRef, status};
use crate::sched::who::runtime::{Runtime, rt};
use crate::sched::words::clock;
use crate::sched::words::forking::{self, is_forking};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{Ordering, fence};

/// The shortest and the longest sleep in ns. An event that finds a goroutine which has just begun waits for the next
/// look, so the longest bounds how late it is.
const SHORTEST: i64 = 20_000;
const LONGEST: i64 = 1_000_000;
/// After this number of looks without an event the sleeps become longer.
const PATIENCE: u32 = 50;
/// All P's idle for so long: it sleeps until it is woken.
const DEEP_AFTER: i64 = 4_000_000;
/// It ends its sleep so long after a timer is due, and whoever starts a P before that need
/// not wake it.
const AFTER_TIMER: i64 = 500_000;
/// A P in a system call is left to its M for this long (ns) when no other needs it.
const SYSCALL_GRACE: i64 = 10_000_000;
/// A goroutine that stands for so long has its thread looked at, and again after
/// twice, four times ... as long.
const CHECK: i64 = 300_000;
const LONGEST_CHECK: i64 = 5_000_000;
/// The files of a P are looked at when no thread has for this time, in ns.
const FILES: i64 = 300_000;
/// How often it looks for threads that run without a P, and at how many.
const STRAYS: i64 = 2_000_000;
const STRAYS_AT_ONCE: usize = 8;
/// So long after a signal it is looked at again.
const AGAIN: i64 = 1_000_000;
/// How often it asks how many free stacks were not needed lately, and how many of those
/// give their memory back at once, with a pause then: that costs 1 us each or more.
const TRIM: i64 = 100_000_000;
const TRIM_AT_ONCE: usize = 256;
const TRIM_PAUSE: i64 = 1_000_000;

/// A look takes less, in ns; the least that the kernel knows.
const TURN: u64 = 100_000;

/// What it remembers of each P.
#[derive(Clone, Copy)]
struct Seen {
    tick: u32,
    turn: u32,
    syscall_tick: u32,
    /// When it was looked at last.
    looked: i64,
    /// Since when the counters stand.
    since: i64,
    /// When the P's current turn began: of one goroutine, with all its system calls, or of goroutines that hand over
    /// to each other.
    slice: i64,
    /// It has been asked to give way.
    asked: bool,
    /// When its thread is looked at next, and how long after that again.
    check: i64,
    delay: i64,
    /// When this P needs the next look, if not before.
    next: i64,
}

impl Seen {
    fn new(now: i64) -> Seen {
        Seen {
            tick: 0,
            turn: 0,
            syscall_tick: 0,
            looked: now,
            since: now,
            slice: now,
            asked: false,
            check: now + CHECK,
            delay: CHECK,
            next: i64::MAX,
        }
    }
}

/// Has free stacks give their memory back that were not needed lately.
struct Trimmer {
    /// When it does the next thing, and when it asks next.
    next: i64,
    ask: i64,
}

impl Trimmer {
    fn new() -> Trimmer {
        Trimmer { next: 0, ask: 0 }
    }

    fn look(&mut self, rt: &Runtime, now: i64) {
        if now < self.next {
            return;
        }
        if now >= self.ask {
            self.ask = now + TRIM;
            for node in &rt.nodes {
                node.with_stack.assess();
                node.stacks.assess();
            }
        }
        let mut left = TRIM_AT_ONCE;
        for node in &rt.nodes {
            left -= stacks::trim(rt, node, left);
            left -= node.stacks.trim(left);
        }
        self.next = if left == 0 { now + TRIM_PAUSE } else { self.ask };
    }

    /// Whether there is something left that will be given back if it isn't needed.
    fn is_needed(rt: &Runtime) -> bool {
        rt.nodes.iter().any(|n| n.with_stack.has_spare() || n.stacks.has_spare())
    }
}

/// Starts the thread. Fails with a negative errno value.
pub fn start(rt: &Runtime) -> Result<(), i32> {
    rt.sysmon.service.start(main)
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    thread::set_up_current(c"gosched-sysmon");
    thread::ask_for_short_turns(TURN);
    let rt = rt();
    let mut seen: Vec<Seen> = Vec::new();
    let (mut quiet, mut delay) = (0, SHORTEST);
    let mut idle_since: Option<i64> = None;
    let mut watch = deadlock::Watch::new();
    // When it last looked for strays, and the number of the next.
    let mut strays = (0, 0);
    let mut poller = netpoll::Sysmon::new();
    let mut trimmer = Trimmer::new();
    loop {
        let note = rt.sysmon.service.note();
        rt.sysmon.begins_a_look();
        if rt.exiting.load(Ordering::Acquire) {
            break;
        }
        let now = time::now();
        clock::set(now);
        // Before it looks at anything: only if this still stands when those who start a P are
        // to wake it has nothing happened since that it has not seen.
        let before = decisions(rt);
        let allocates = forking::keep_from_forking();
        if allocates {
            seen.resize(rt.procs(), Seen::new(now));
        }
        let gangs = rt.gangs.tick(rt, now);
        let acted = look(rt, &mut seen, &mut strays, now) | rt.aside.look(rt, now);
        if acted | (allocates && poller.look(rt, now)) {
            (quiet, delay) = (0, SHORTEST);
        } else {
            quiet += 1;
            if quiet > PATIENCE {
                delay = (delay * 2).min(LONGEST);
            }
        }
        if allocates {
            rt.inspector.start_if_needed(rt);
            rt.template.start_if_needed(rt);
            rt.template.reap(rt);
            trimmer.look(rt, now);
        }
        let all_idle = rt.idle.ps() as usize >= rt.procs();
        // No P needs it then, and timers have a watcher of their own.
        match (all_idle, idle_since) {
            (true, None) => delay = LONGEST,
            (false, Some(_)) => delay = delay.min(CHECK),
            _ => {}
        }
        idle_since = if all_idle { idle_since.or(Some(now)) } else { None };
        let long_idle = idle_since.is_some_and(|since| now - since >= DEEP_AFTER);
        // Work may wait for an M that isn't there yet.
        let wanted = rt.ms_wanted.load(Ordering::Relaxed);
        // Somebody is about to wake for a timer that is due, or has to be helped.
        let due = timers::next_of_idle_ps() <= now;
        let waits = wanted || !rt.aside.is_empty();
        let deep = allocates && long_idle && !waits && !due && netpoll::Sysmon::may_sleep(rt);
        let end = (deep && Trimmer::is_needed(rt)).then_some(trimmer.next);
        if allocates {
            forking::may_fork();
        }
        match deep {
            true => {
                // After what it does meanwhile it sleeps on at once.
                if sleep_deep(rt, note, before, &mut watch, end) {
                    (quiet, delay, idle_since) = (0, CHECK, None);
                }
            }
            false => {
                let next = seen.iter().map(|s| s.next).min().unwrap_or(i64::MAX);
                let until =
                    next.min(next_timer(rt)).min(next_placed(rt)).min(gangs).max(now + SHORTEST);
                let until = until.min(now + delay);
                rt.sysmon.looks_next_at(until);
                rt.sysmon.service.sleep(note, until);
            }
        }
    }
    rt.sysmon.service.leave();
    ptr::null_mut()
}

/// Counts what all P's have decided: as long as it stands nothing runs.
fn decisions(rt: &Runtime) -> u32 {
    // Whoever sees that a P is idle sees what it decided before that, and the other way round.
    // Pairs with the fences in `make_idle` and in those who start a P.
    fence(Ordering::SeqCst);
    let n = rt.ps().fold(0u32, |n, p| n.wrapping_add(p.tick.load(Ordering::Relaxed)));
    fence(Ordering::SeqCst);
    n
}

/// Sleeps until a P is started, or that time; watches for deadlock meanwhile, less and
/// less often. It doesn't begin to if the P's have decided anything since `before`: a goroutine
/// may have run between the look at what it needs sysmon for and the moment from which on it
/// would wake sysmon. Gives whether a P was started.
fn sleep_deep(
    rt: &Runtime,
    note: u32,
    before: u32,
    watch: &mut deadlock::Watch,
    end: Option<i64>,
) -> bool {
    let woken = || (rt.idle.ps() as usize) < rt.procs() || rt.sysmon.service.note() != note;
    let deep_until = |until| {
        rt.sysmon.deep_until.store(until, Ordering::SeqCst);
        // Who starts a P takes it from the idle ones first, and looks here then.
        fence(Ordering::SeqCst);
    };
    let end = end.unwrap_or(i64::MAX);
    // From here on whoever starts a P wakes us.
    deep_until(i64::MAX);
    watch.again();
    while !woken() && decisions(rt) == before && time::now() < end {
        let until = match watch.check(rt) {
            FOREVER => i64::MAX,
            until => until,
        };
        // Whom the next timer wakes finds us awake soon.
        let next = timers::next_of_idle_ps().saturating_add(AFTER_TIMER);
        let until = until.min(end).min(next);
        deep_until(until);
        if !woken() {
            rt.sysmon.service.sleep(note, if until == i64::MAX { FOREVER } else { until });
        }
        if until == next {
            break;
        }
    }
    deep_until(0);
    woken()
}

/// One look at everything. True: something had to be done.
fn look(rt: &Runtime, seen: &mut [Seen], strays: &mut (i64, usize), now: i64) -> bool {
    let mut acted = false;
    if rt.ms_wanted.swap(false, Ordering::Acquire) {
        acted |= create_wanted(rt);
    }
    // A P that is left while the world is stopped is the stopper's.
    if !world::is_stopping() {
        for (p, seen) in rt.ps().zip(seen.iter_mut()) {
            acted |= look_at(rt, p, seen, now);
        }
    }
    world::forget_answered(rt);
    if now - strays.0 >= STRAYS && !is_forking() {
        *strays = (now, strays.1 + STRAYS_AT_ONCE);
        acted |= preempt::interrupt_strays(rt, strays.1, STRAYS_AT_ONCE) > 0;
    }
    if next_timer(rt).min(next_placed(rt)) <= now {
        acted |= wake_one(rt);
    }
    acted
}

/// When somebody is to look at the timers of P's that nobody runs. Who sleeps until that of
/// an idle one is due wakes by itself, and has to be helped only if it doesn't, or if the P
/// is run by then.
fn next_timer(rt: &Runtime) -> i64 {
    let idle = timers::next_of_idle_ps();
    let late = if rt.is_watched_until(idle) { BACK } else { 0 };
    idle.saturating_add(late).min(timers::next_of_left_ps())
}

/// From when on a node may take what another node has left waiting, in ns; `i64::MAX`: nothing, or no
/// P is idle.
fn next_placed(rt: &Runtime) -> i64 {
    if rt.idle.ps() == 0 {
        return i64::MAX;
    }
    rt.nodes.iter().map(|n| n.placed_due(rt.theft_time())).min().unwrap_or(i64::MAX)
}

/// Work, or a timer, waits for a P that waits for a thread: one may be idle by
/// now, or may be made, now that some time has passed.
fn create_wanted(rt: &Runtime) -> bool {
    let due = || rt.ps().any(|p| p.timers.next() <= time::now());
    if !steal::work_anywhere(rt) && !rt.lacks_watcher() && !due() {
        return false;
    }
    let Some(p) = owner::take_idle_p(rt, None, rt.any_node()) else { return false };
    start::start_m_patiently(rt, p)
}

fn look_at(rt: &Runtime, p: PRef, seen: &mut Seen, now: i64) -> bool {
    let tick = p.tick.load(Ordering::Relaxed);
    let syscall_tick = p.syscall_tick.load(Ordering::Relaxed);
    let status = p.status();
    seen.next = i64::MAX;
    // What it does takes longer than it did: it doesn't keep anything for itself now.
    let decisions = i64::from(tick.wrapping_sub(seen.tick));
    let is_slow = decisions * steal::STEAL_TIME < now - seen.looked;
    if is_slow && status == status::RUNNING && !p.private.is_empty() {
        p.set_quick(false);
        wake_one(rt);
    }
    seen.looked = now;
    // Other threads may have seen since when it runs what it runs now.
    let known = p.stands_since();
    let turn = p.turn();
    // Goroutines that hand over to each other or make short calls answer at once, so while others wait their turns
    // are short. A goroutine that computes may have to be stopped by a signal.
    let hands_over = tick != seen.tick;
    let answers = hands_over || syscall_tick != seen.syscall_tick;
    let others_wait = p.queued() > usize::from(hands_over) || steal::work_in_node(p);
    let slice = if answers && others_wait { order::TURN.min(rt.slice) } else { rt.slice };
    if turn != seen.turn || !matches!(status, status::RUNNING | status::SYSCALL) {
        (seen.slice, seen.asked) = (if known == i64::MAX { now } else { known }, false);
    } else if now - seen.slice >= slice && !seen.asked {
        seen.asked = true;
        world::ask(p, attention::SLICE);
    }
    if tick != seen.tick || syscall_tick != seen.syscall_tick {
        if known == i64::MAX {
            p.seen_at(now);
        }
        *seen = Seen {
            tick,
            turn,
            syscall_tick,
            slice: seen.slice,
            asked: seen.asked,
            ..Seen::new(now)
        };
        match status {
            status::SYSCALL => look_at_files(p, seen, now),
            // Its owner looks by itself, so that needs no look of sysmon sooner than others do.
            status::RUNNING => look_at_files_if_due(p, now),
            _ => {}
        }
        // Whoever is preempted for these has run for a while, beginning now.
        if status == status::RUNNING {
            // It makes short calls: after one of them it answers.
            if next_event(p) <= now && now - seen.slice >= WAKE_UP && !seen.asked {
                seen.asked = true;
                world::ask(p, attention::SLICE);
            }
            let for_event = next_event(p).max(seen.slice + WAKE_UP);
            let next = if somebody_is_back(rt, p) { seen.slice + BACK } else { for_event };
            if known != i64::MAX && next <= now {
                seen.check = now;
                return stands(rt, p, seen, now);
            }
            seen.next = seen.next.min(next.max(now + BACK));
        }
        if status != status::SYSCALL {
            return false;
        }
        if next_event(p) <= now {
            return retake(rt, p, now - seen.since);
        }
        // Only the second look at the same call takes the P for other work: a call is mostly over by
        // the next one if that comes when it would.
        seen.next = seen.next.min(next_event(p));
        if p.has_work() || steal::work_anywhere(rt) {
            seen.next = seen.next.min(now + SHORTEST);
        }
        return false;
    }
    let acted = match status {
        status::SYSCALL => retake(rt, p, now - seen.since),
        status::RUNNING => stands(rt, p, seen, now),
        _ => return false,
    };
    look_at_files(p, seen, now);
    acted
}

/// The files of a P whose owner doesn't get to it: it stands, or it has more to do
/// between two of its looks than they have time.
fn look_at_files(p: PRef, seen: &mut Seen, now: i64) {
    if p.poll.is_waited_for() {
        look_at_files_if_due(p, now);
        seen.next = seen.next.min(p.poll.last_look() + FILES).max(now);
    }
}

fn look_at_files_if_due(p: PRef, now: i64) {
    if p.poll.is_waited_for() && now - p.poll.last_look() >= FILES {
        netpoll::look_from_outside(p);
    }
}

/// The same goroutine has been on the P since the last look. When others could
/// use it, its thread is looked at, more and more seldom.
fn stands(rt: &Runtime, p: PRef, seen: &mut Seen, now: i64) -> bool {
    let event = next_event(p);
    let is_back = somebody_is_back(rt, p);
    let due = event <= now || is_back;
    // An M that looks for work takes it, timers of others included.
    if (p.has_work() || due) && wake_one(rt) {
        return true;
    }
    let waiting = p.has_work() || due || steal::work_anywhere(rt);
    let free = rt.idle.ps() + rt.idle.spinning() != 0;
    if rt.cooperative || (free && !p.has_work()) && event == i64::MAX {
        return false;
    }
    let slice_ends = seen.slice + rt.slice;
    let yields = seen.slice + if is_back { BACK } else { WAKE_UP };
    let at_event = event.max(yields);
    seen.next = match () {
        _ if due && now < yields => yields.min(slice_ends),
        _ if due => seen.check.max(yields.min(slice_ends)),
        _ if waiting => at_event.min(seen.check.max(slice_ends)),
        _ => at_event,
    };
    let must_ask = due && now >= yields && !seen.asked;
    if now < seen.check && !must_ask {
        return false;
    }
    seen.delay = (seen.delay * 2).min(LONGEST_CHECK);
    seen.check = now + seen.delay;
    match preempt::doing(rt, p) {
        Doing::Library | Doing::Unknown => false,
        Doing::Blocked(m) => {
            let taken = preempt::take_blocked(rt, p, m, status::IDLE);
            if taken {
                start::hand_off(p);
            }
            taken
        }
        Doing::Computes => {
            if must_ask {
                seen.asked = true;
                world::ask(p, attention::SLICE);
            }
            if seen.asked && waiting {
                // It has answered soon, or is not to be preempted.
                seen.check =
                    now + if preempt::interrupt(rt, p) == Sent::NotYet { BACK } else { AGAIN };
            }
            false
        }
    }
}

/// When the next event comes for which the goroutine on the P is preempted: 0 if the event waits already,
/// `i64::MAX` if none is known.
fn next_event(p: PRef) -> i64 {
    if p.inbox.is_empty() { p.timers.next() } else { 0 }
}

/// Whether a goroutine that is back from a system call waits for a P of the node.
fn somebody_is_back(rt: &Runtime, p: PRef) -> bool {
    if !rt.back_from_call.load(Ordering::Relaxed) {
        return false;
    }
    let waits = !p.of_node().runq.is_empty();
    if !waits && rt.nodes.iter().all(|n| n.runq.is_empty()) {
        rt.back_from_call.store(false, Ordering::Relaxed);
    }
    waits
}

/// Takes the P of an M in a system call, if it has lasted since the last look. True: work waited for the P. seed: S7
fn retake(rt: &Runtime, p: PRef, lasted: i64) -> bool {
    let needed = p.has_work()
        || p.timers.next() != i64::MAX
        || p.poll.is_waited_for()
        || steal::work_anywhere(rt);
    let none_is_idle = || rt.idle.ps() + rt.idle.spinning() == 0;
    if (needed || none_is_idle() || lasted >= SYSCALL_GRACE) && p.take_from_call(status::IDLE) {
        start::hand_off(p);
        return needed;
    }
    false
}

/// Wakes an M that looks at everything, timers of others included. One that is about to look
/// by itself will do.
fn wake_one(rt: &Runtime) -> bool {
    if rt.idle.ps() == 0 || rt.is_any_m_between() {
        return false;
    }
    match rt.idle.work_added() {
        Some(one) => {
            start::start_one(one, None, rt.any_node());
            true
        }
        None => false,
    }
}
