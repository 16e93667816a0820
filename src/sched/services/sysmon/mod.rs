//! sysmon: a thread without a P that handles what no M can see: P's whose thread is blocked, P's
//! whose goroutine computes and so polls no files, timers of idle P's, nodes without a watcher, M's
//! that are wanted.
//!
//! sysmon checks all P's every 20 us at first and less often while nothing happens, down to once a
//! millisecond. When every P has been idle for a while, sysmon sleeps until a P is started, or
//! until shortly after the next timer.

use crate::sched::run::requests;

pub mod state;

use super::follower::Following;
use super::poller::PollerCheck;
use super::strays::Strays;
use super::{deadlock, last_words};
use crate::os::forking::{self, is_forking};
use crate::os::thread::{self, Turns};
use crate::os::time;
use crate::sched::prim::clock;
use crate::sched::run::park::FOREVER;
use crate::sched::run::preempted::WAKE_UP;
use crate::sched::run::{order, owner, stacks, start, steal};
use crate::sched::take::events::{self, Heir};
use crate::sched::take::loan;
use crate::sched::take::preempt::{self, Doing, Sent};
use crate::sched::types::attention;
use crate::sched::types::m::MRef;
use crate::sched::types::node::Node;
use crate::sched::types::p::{PRef, PStatus};
use crate::sched::types::runtime::{Runtime, rt};
use crate::sched::wait::{netpoll, timers};
use crate::trace::probes;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{Ordering, fence};

/// sysmon's shortest and longest sleep between two checks, in ns. An event on a P whose goroutine
/// has just begun waits for the next check, so the longest sleep bounds its delay.
const SHORTEST: i64 = 20_000;
const LONGEST: i64 = 1_000_000;
/// The number of checks without work after which the sleeps become longer. With no idle processor,
/// each check takes 10 us from a goroutine that computes.
const QUIET_CHECKS: u32 = 4;
/// After all P's have been idle for this time, in ns, sysmon sleeps deeply: until it is woken.
const DEEP_AFTER: i64 = 4_000_000;
/// A deep sleep ends this time, in ns, after the next timer is due. A thread that starts a P before
/// then need not wake sysmon.
const AFTER_TIMER: i64 = 500_000;
/// When a goroutine has run for this time, in ns, without a switch or a call, sysmon asks the
/// kernel what its thread does; and again after twice, four times ... as long, up to
/// `LONGEST_CHECK` (ns).
const CHECK: i64 = 300_000;
const LONGEST_CHECK: i64 = 5_000_000;
/// In an ordered run a call that lasts for this time, in ns, loses its P.
const LONG_CALL: i64 = 20_000_000;
/// sysmon polls the files of a running P if no thread has done so for this time, in ns.
const FILES: i64 = 300_000;
/// sysmon checks a P again this time, in ns, after it has sent its thread a signal.
const AGAIN: i64 = 1_000_000;
/// How often sysmon counts the free stacks that were not needed lately, in ns. It frees the memory
/// of `TRIM_AT_ONCE` such stacks at a time, at 1 us or more each, and goes on after `TRIM_PAUSE`
/// ns.
const TRIM: i64 = 100_000_000;
const TRIM_AT_ONCE: usize = 256;
const TRIM_PAUSE: i64 = 1_000_000;

/// What sysmon remembers of each P. All times are in ns.
#[derive(Clone, Copy)]
struct SeenP {
    tick: u32,
    turn: u32,
    syscall_tick: u32,
    /// When sysmon last checked the P.
    looked: i64,
    /// When the counters last changed.
    since: i64,
    /// When the P's current turn began. A turn belongs to one goroutine with all its system calls,
    /// or to goroutines that hand over to each other.
    slice: i64,
    /// The P has been asked to end this turn. If the request is gone at the next decision, another
    /// goroutine may run in this turn, so the P is asked again.
    asked: bool,
    /// When sysmon next asks what the P's thread does, and the pause until it asks again.
    check: i64,
    delay: i64,
    /// The latest time of the next check of this P.
    next: i64,
}

impl SeenP {
    fn new(now: i64) -> SeenP {
        SeenP {
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

/// Frees the memory of free stacks that were not needed lately.
struct Trimmer {
    /// When to trim next, and when to count the stacks next, in ns.
    next: i64,
    ask: i64,
}

impl Trimmer {
    fn new() -> Trimmer {
        Trimmer { next: 0, ask: 0 }
    }

    fn trim_if_due(&mut self, rt: &Runtime, now: i64) {
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

    /// Whether there are free stacks to trim if they are not needed.
    fn is_needed(rt: &Runtime) -> bool {
        rt.nodes.iter().any(|n| n.with_stack.has_spare() || n.stacks.has_spare())
    }
}

/// Starts the thread. `-ENOMEM`, `-EAGAIN`: the system gives no thread.
pub fn start(rt: &Runtime) -> Result<(), i32> {
    // A filter of system calls may refuse the thread with any error; the documented errors are
    // these two.
    let documented = |e| if e == -libc::ENOMEM { e } else { -libc::EAGAIN };
    rt.sysmon.service.start(main).map_err(documented)
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    thread::set_up_current(c"gosched-sysmon");
    thread::ask_for_turns(0, Turns::Short);
    let rt = rt();
    let mut sysmon = Sysmon::new();
    while sysmon.check_and_sleep(rt) {}
    rt.sysmon.service.leave();
    ptr::null_mut()
}

/// What sysmon keeps from one check to the next.
struct Sysmon {
    seen: Vec<SeenP>,
    /// The number of checks in a row that found nothing to do.
    quiet: u32,
    /// The longest sleep until the next check, in ns.
    delay: i64,
    /// Since when all P's have been idle, in ns.
    idle_since: Option<i64>,
    deadlock: deadlock::Detector,
    strays: Strays,
    poller: PollerCheck,
    trimmer: Trimmer,
    following: Following,
}

impl Sysmon {
    fn new() -> Sysmon {
        Sysmon {
            seen: Vec::new(),
            quiet: 0,
            delay: SHORTEST,
            idle_since: None,
            deadlock: deadlock::Detector::new(),
            strays: Strays::new(),
            poller: PollerCheck::new(),
            trimmer: Trimmer::new(),
            following: Following::new(),
        }
    }

    /// Checks everything once, and sleeps until the next check. False: the runtime ends.
    fn check_and_sleep(&mut self, rt: &Runtime) -> bool {
        let note = rt.sysmon.service.note();
        rt.sysmon.begins_check();
        if rt.exiting.load(Ordering::Acquire) {
            return false;
        }
        let now = time::now();
        clock::set(now);
        // Read before everything else. sysmon sleeps deeply only if the number is still the same
        // once threads that start a P wake sysmon: then it has missed nothing.
        let before = decisions(rt);
        last_words::serve_if_asked();
        let allocates = forking::keep_from_forking();
        if allocates {
            self.seen.resize(rt.procs(), SeenP::new(now));
        }
        let gangs = rt.gangs.tick(rt, now);
        let acted = check_all(rt, &mut self.seen, &mut self.strays, now) | rt.aside.retry(rt, now);
        let polled = allocates && self.poller.check(rt, now);
        self.adapt_delay(acted | polled);
        if allocates {
            rt.inspector.start_if_needed(rt);
            rt.template.start_if_needed(rt);
            rt.template.reap(rt);
            self.following.look_if_due(rt, now);
            probes::look();
            self.trimmer.trim_if_due(rt, now);
        }
        self.note_idle(rt, now);
        let deep = allocates && self.may_sleep_deep(rt, now);
        let end = (deep && Trimmer::is_needed(rt)).then_some(self.trimmer.next);
        if allocates {
            // SAFETY: `allocates` says that `keep_from_forking` has taken the lock.
            unsafe { forking::may_fork() };
        }
        if !deep {
            self.sleep(rt, note, now, gangs);
        } else if sleep_deep(rt, note, before, &mut self.deadlock, end) {
            // A P was started. In the other case timers or stacks were due, and the next sleep is
            // deep again.
            (self.quiet, self.delay, self.idle_since) = (0, CHECK, None);
        }
        true
    }

    /// Makes the checks rarer while there is nothing to do.
    fn adapt_delay(&mut self, acted: bool) {
        if acted {
            (self.quiet, self.delay) = (0, SHORTEST);
            return;
        }
        self.quiet += 1;
        if self.quiet > QUIET_CHECKS {
            self.delay = (self.delay * 2).min(LONGEST);
        }
    }

    /// Notes whether all P's are idle. Idle P's don't need sysmon, and an M watches their timers.
    fn note_idle(&mut self, rt: &Runtime, now: i64) {
        let all_idle = rt.idle.ps() as usize >= rt.procs();
        match (all_idle, self.idle_since) {
            (true, None) => self.delay = LONGEST,
            (false, Some(_)) => self.delay = self.delay.min(CHECK),
            _ => {}
        }
        self.idle_since = if all_idle { self.idle_since.or(Some(now)) } else { None };
    }

    /// Whether nothing will need sysmon before a P is started.
    fn may_sleep_deep(&mut self, rt: &Runtime, now: i64) -> bool {
        let long_idle = self.idle_since.is_some_and(|since| now - since >= DEEP_AFTER);
        // If an M is wanted, work may wait for it.
        let waits = rt.ms_wanted.load(Ordering::Relaxed) || !rt.aside.tasks.is_empty();
        // sysmon stays awake for a timer that is due, in case the timer watcher needs help.
        let due = timers::next_of_idle_ps() <= now;
        long_idle && !waits && !due && self.poller.may_sleep(rt)
    }

    /// Sleeps until the next check. `gangs`: when a gang must be looked at, in ns.
    fn sleep(&self, rt: &Runtime, note: u32, now: i64, gangs: i64) {
        let next = self.seen.iter().map(|s| s.next).min().unwrap_or(i64::MAX);
        let next = next.min(next_wake_up(rt)).min(gangs);
        let until = next.min(self.poller.next()).max(now + SHORTEST);
        let until = until.min(now + self.delay);
        rt.sysmon.next_check_at(until);
        rt.sysmon.service.sleep(note, until);
    }
}

/// The number of decisions that all P's have made. While the number stays, no P switches
/// goroutines.
fn decisions(rt: &Runtime) -> u32 {
    // A thread that sees that a P is idle also sees the decisions that the P made before, and the
    // other way round. Pairs with the fences in `make_idle` and in the functions that start a P.
    fence(Ordering::SeqCst);
    let n = rt.ps().fold(0u32, |n, p| n.wrapping_add(p.tick.load(Ordering::Relaxed)));
    fence(Ordering::SeqCst);
    n
}

/// Sleeps until a P is started, or until `end` (ns); looks for a deadlock meanwhile, less and less
/// often. Returns at once if the P's have made decisions since `before`: a goroutine may have run,
/// and need sysmon, between sysmon's check and the moment from which threads wake sysmon. Returns
/// whether a P was started.
fn sleep_deep(
    rt: &Runtime,
    note: u32,
    before: u32,
    watch: &mut deadlock::Detector,
    end: Option<i64>,
) -> bool {
    let woken = || (rt.idle.ps() as usize) < rt.procs() || rt.sysmon.service.note() != note;
    let deep_until = |until| {
        rt.sysmon.deep_until.store(until, Ordering::SeqCst);
        // Pairs with the fence of a thread that starts a P: it takes the P out of the idle set,
        // fences, and reads `deep_until`.
        fence(Ordering::SeqCst);
    };
    let end = end.unwrap_or(i64::MAX);
    // From here on a thread that starts a P wakes sysmon.
    deep_until(i64::MAX);
    watch.again();
    while !woken() && decisions(rt) == before && time::now() < end {
        let until = match watch.check(rt) {
            FOREVER => i64::MAX,
            until => until,
        };
        // Soon after the next timer, the goroutine that it wakes may need sysmon.
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

/// Checks everything once. True: there was something to do, so the next check comes soon.
fn check_all(rt: &Runtime, seen: &mut [SeenP], strays: &mut Strays, now: i64) -> bool {
    let mut acted = false;
    if rt.ms_wanted.swap(false, Ordering::Acquire) {
        acted |= create_wanted(rt);
    }
    // While the world is stopped, P's that their M's have left belong to the stopper.
    if !requests::is_stopping() {
        for (p, seen) in rt.ps().zip(seen.iter_mut()) {
            acted |= check_p(rt, p, seen, now);
        }
    }
    // Both calls allocate, and hold the lock of the list of M's meanwhile.
    if !is_forking() {
        requests::clear_answered(rt);
    }
    if !is_forking() {
        strays.check(rt, now);
    }
    if next_wake_up(rt) <= now {
        if is_forking() {
            // No thread is made during a fork, and `wake_one` would wake sysmon for its next check
            // at once, over and over.
            rt.ms_wanted.store(true, Ordering::SeqCst);
        } else {
            acted |= wake_one(rt);
        }
    }
    acted
}

/// When sysmon must wake an M for a timer or a task, in ns; `i64::MAX`: there is none, or the world
/// is stopped.
fn next_wake_up(rt: &Runtime) -> i64 {
    if requests::is_stopping() { i64::MAX } else { next_timer(rt).min(next_placed(rt)) }
}

/// When sysmon must look at timers of P's that no M runs, in ns. The timer watcher, which sleeps
/// until the first timer of an idle P is due, wakes by itself. It needs sysmon only if it doesn't
/// wake, or if an M runs that P by then.
fn next_timer(rt: &Runtime) -> i64 {
    let idle = timers::next_of_idle_ps();
    let late = if rt.is_watched_until(idle) { WAKE_UP } else { 0 };
    idle.saturating_add(late).min(timers::next_of_left_ps())
}

/// When a node may take a task that waits on another node, where it was placed, in ns; `i64::MAX`:
/// no task waits, or no P is idle.
fn next_placed(rt: &Runtime) -> i64 {
    if rt.idle.ps() == 0 {
        return i64::MAX;
    }
    rt.nodes.iter().map(|n| n.placed_due(rt.theft_time())).min().unwrap_or(i64::MAX)
}

/// Starts an M on an idle P if work or a timer waits for one: by now an M may be idle, or the
/// system may give a thread again.
fn create_wanted(rt: &Runtime) -> bool {
    let due = || rt.ps().any(|p| p.timers.next() <= time::now());
    if !steal::work_anywhere(rt) && !rt.lacks_timer_watcher() && !due() {
        return false;
    }
    let Some(p) = owner::take_idle_p(rt, None, rt.any_node()) else { return false };
    start::start_m_patiently(rt, p)
}

/// What sysmon finds when it looks at a P. Read once, because the P goes on meanwhile.
struct Look {
    now: i64,
    status: PStatus,
    tick: u32,
    turn: u32,
    syscall_tick: u32,
    /// Since when the P's goroutine is known to run, as any thread may have noted, in ns.
    known: i64,
}

impl Look {
    fn at(p: PRef, now: i64) -> Look {
        let tick = p.tick.load(Ordering::Relaxed);
        let syscall_tick = p.calls();
        let status = p.status();
        Look { now, status, tick, turn: p.turn(), syscall_tick, known: p.stands_since() }
    }

    /// Whether the P has switched goroutines since the last look.
    fn has_switched(&self, seen: &SeenP) -> bool {
        self.tick != seen.tick
    }

    /// Whether the P has switched goroutines, or its goroutine has begun a call.
    fn has_moved(&self, seen: &SeenP) -> bool {
        self.has_switched(seen) || self.syscall_tick != seen.syscall_tick
    }
}

fn check_p(rt: &Runtime, p: PRef, seen: &mut SeenP, now: i64) -> bool {
    let look = Look::at(p, now);
    seen.next = i64::MAX;
    if rt.course.is_some() {
        return check_ordered(rt, p, seen, &look);
    }
    if loan::end_if_long(rt, p, now) {
        (seen.slice, seen.asked) = (now, false);
    }
    share_if_slow(rt, p, seen, &look);
    ask_at_end_of_turn(rt, p, seen, &look);
    if look.has_moved(seen) {
        return check_moving(rt, p, seen, &look);
    }
    let acted = match look.status {
        PStatus::Syscall => retake(rt, p),
        PStatus::Running => check_unmoved(rt, p, seen, now),
        _ => return false,
    };
    poll_if_late(p, seen, now);
    acted
}

/// Checks the P of an ordered run: no turn ends, and a P is taken only from a call that is long, by any
/// clock, because a goroutine that can run may have to end it.
fn check_ordered(rt: &Runtime, p: PRef, seen: &mut SeenP, look: &Look) -> bool {
    if look.has_moved(seen) {
        let Look { now, tick, turn, syscall_tick, .. } = *look;
        *seen = SeenP { tick, turn, syscall_tick, ..SeenP::new(now) };
    }
    let is_long = look.now - seen.since >= LONG_CALL;
    is_long && look.status == PStatus::Syscall && retake(rt, p)
}

/// Makes a P that is no longer quick share its work.
fn share_if_slow(rt: &Runtime, p: PRef, seen: &mut SeenP, look: &Look) {
    let decisions = i64::from(look.tick.wrapping_sub(seen.tick));
    let is_slow = decisions * steal::STEAL_TIME < look.now - seen.looked;
    if is_slow && look.status == PStatus::Running && !p.private.is_empty() {
        p.set_quick(false);
        wake_one(rt);
    }
    seen.looked = look.now;
}

/// Asks the P to end its turn once the turn's time is over. The turn is short while others wait, if
/// the goroutines hand over to each other or make short calls: these answer at once. A goroutine
/// that computes may have to be stopped by a signal.
fn ask_at_end_of_turn(rt: &Runtime, p: PRef, seen: &mut SeenP, look: &Look) {
    let others_wait =
        || p.queued() > usize::from(look.has_switched(seen)) || steal::work_in_node(p);
    let slice = match look.has_moved(seen) && others_wait() {
        true => order::TURN.min(rt.slice),
        false => rt.slice,
    };
    let runs = matches!(look.status, PStatus::Running | PStatus::Syscall);
    if look.turn != seen.turn || !runs {
        // During a loan the lender's turn goes on.
        let known = if p.loan.is_open() { p.loan.stands_since() } else { look.known };
        let begun = if known == i64::MAX { look.now } else { known };
        (seen.slice, seen.asked) = (begun, false);
    } else if look.now - seen.slice >= slice && !seen.asked && !hands_over_alone(p, seen, look) {
        seen.asked = true;
        requests::ask(p, attention::SLICE);
    }
}

/// Whether the P's goroutines hand over to each other, and no other task waits for their turn to
/// end. If the turn ended, an idle P would take one of these goroutines, and each hand-over would
/// cross from one CPU to another.
fn hands_over_alone(p: PRef, seen: &SeenP, look: &Look) -> bool {
    look.has_switched(seen) && p.runner().is_some_and(|m| order::nothing_waits(m, p))
}

/// Checks a P that has switched goroutines, or whose goroutine has begun a call, since the last
/// look. True: something was done.
fn check_moving(rt: &Runtime, p: PRef, seen: &mut SeenP, look: &Look) -> bool {
    let Look { now, status, tick, turn, syscall_tick, known } = *look;
    if known == i64::MAX {
        p.seen_at(now);
    }
    *seen = SeenP {
        tick,
        turn,
        syscall_tick,
        slice: seen.slice,
        asked: seen.asked && p.attention.load(Ordering::Relaxed) & attention::SLICE != 0,
        ..SeenP::new(now)
    };
    match status {
        PStatus::Syscall => {
            poll_if_late(p, seen, now);
            check_call(rt, p, seen, now)
        }
        PStatus::Running => {
            // The P's owner polls, so sysmon need not check this P sooner than others.
            poll_if_due(p, now);
            check_running(rt, p, seen, look)
        }
        _ => false,
    }
}

/// Checks a P whose goroutine has made a call or switched lately. The goroutine is preempted for an
/// event, or for a goroutine that has returned from a call, only after it has run for a while.
fn check_running(rt: &Runtime, p: PRef, seen: &mut SeenP, look: &Look) -> bool {
    let now = look.now;
    if p.next_event() <= now && now - seen.slice >= WAKE_UP && !seen.asked {
        seen.asked = true;
        requests::ask(p, attention::SLICE);
    }
    let computes = look.known != i64::MAX;
    let next = match goroutine_is_back(rt, p) {
        true => seen.slice + WAKE_UP,
        false if computes => p.next_event().max(seen.slice + WAKE_UP),
        // The owner serves the event itself, at its next decision. On the P's CPU sysmon would be
        // in its way.
        false => p.next_event().saturating_add(WAKE_UP).max(seen.slice + WAKE_UP),
    };
    if computes && next <= now {
        seen.check = now;
        return check_unmoved(rt, p, seen, now);
    }
    seen.next = seen.next.min(next.max(now + WAKE_UP));
    false
}

/// Checks a P in a call that sysmon sees for the first time. sysmon takes the P for other work only
/// if it sees the call twice. At the usual distance most calls would be over, so the second check
/// comes sooner.
fn check_call(rt: &Runtime, p: PRef, seen: &mut SeenP, now: i64) -> bool {
    if p.next_event() <= now {
        return retake(rt, p);
    }
    seen.next = seen.next.min(p.next_event());
    if p.has_work() || steal::work_anywhere(rt) {
        seen.next = seen.next.min(now + SHORTEST);
    }
    false
}

/// Polls the files of a P whose owner doesn't get to it: its goroutine runs on and on, or it has
/// too much to do between two polls.
fn poll_if_late(p: PRef, seen: &mut SeenP, now: i64) {
    if p.poll.is_waited_for() && !p.poll.is_attended() {
        poll_if_due(p, now);
        seen.next = seen.next.min(p.poll.last_poll() + FILES).max(now);
    }
}

/// Polls the files of a P that no thread has polled for `FILES`, and to which no M attends.
fn poll_if_due(p: PRef, now: i64) {
    if p.poll.is_waited_for() && !p.poll.is_attended() && now - p.poll.last_poll() >= FILES {
        netpoll::poll_into_inbox(p);
    }
}

/// Checks a P on which one goroutine has run since the last check. If others could use the P,
/// sysmon asks the kernel what the P's thread does, less and less often. True: something was done.
fn check_unmoved(rt: &Runtime, p: PRef, seen: &mut SeenP, now: i64) -> bool {
    if now - seen.since >= CHECK
        && let Some(m) = p.runner()
    {
        m.ask_for_usual_turns();
    }
    let event = p.next_event();
    let is_back = goroutine_is_back(rt, p);
    let due = event <= now || is_back;
    // `wake_one` wakes an M that spins, which takes that work, timers of other P's included.
    if (p.has_work() || due) && wake_one(rt) {
        return true;
    }
    let waiting = p.has_work() || due || steal::work_anywhere(rt);
    let free = rt.idle.ps() + rt.idle.spinning() != 0;
    if rt.cooperative || (free && !p.has_work()) && event == i64::MAX {
        return false;
    }
    let slice_ends = seen.slice + rt.slice;
    let yields = seen.slice + WAKE_UP;
    let at_event = event.max(yields);
    seen.next = if due && now < yields {
        yields.min(slice_ends)
    } else if due {
        seen.check.max(yields.min(slice_ends))
    } else if waiting {
        at_event.min(seen.check.max(slice_ends))
    } else {
        at_event
    };
    let must_ask = due && now >= yields && !seen.asked;
    let looks = now >= seen.check || must_ask;
    // The event gets this P, if the P's goroutine has run for long enough in this turn, or another
    // P where that is known.
    let serve = || {
        (now >= yields && events::take_to_serve(rt, p, p, now, Heir::IdleM))
            || events::take_p(rt, p, now, Heir::IdleM).is_some()
    };
    if event <= now && serve() {
        // False, although something was done: the next event doesn't come sooner after this one, so
        // sysmon need not check more often.
        return false;
    }
    if !looks {
        return false;
    }
    seen.delay = (seen.delay * 2).min(LONGEST_CHECK);
    seen.check = now + seen.delay;
    match preempt::doing(rt, p) {
        Doing::Library | Doing::Unknown => false,
        Doing::Blocked(m) => take_from_blocked(rt, p, m),
        Doing::Computes => {
            if must_ask {
                seen.asked = true;
                requests::ask(p, attention::SLICE);
            }
            seen.asked && waiting && interrupt(rt, p, seen, now)
        }
    }
}

/// Hands off the P of a blocked M. False: the M is back.
fn take_from_blocked(rt: &Runtime, p: PRef, m: MRef) -> bool {
    let taken = preempt::take_outside(rt, p, m, PStatus::Idle);
    if taken {
        start::hand_off(p);
    }
    taken
}

/// Sends a signal to the thread of a P whose goroutine computes on, although it was asked to end
/// its turn. True: the P was taken instead, because no signal may stop the goroutine, an
/// interpreter's (`GS_SPAWN_NOSIGNAL`, in a worker group).
fn interrupt(rt: &Runtime, p: PRef, seen: &mut SeenP, now: i64) -> bool {
    let sent = preempt::interrupt(rt, p);
    // After a signal the goroutine answers soon, or must not be preempted.
    seen.check = now + if sent == Sent::NotYet { WAKE_UP } else { AGAIN };
    let slice_ends = seen.slice + rt.slice;
    let taken = sent == Sent::Never && now >= slice_ends && preempt::take_from_member(rt, p);
    if taken {
        start::hand_off(p);
    }
    taken
}

/// Whether a goroutine that is back from a system call waits for a P of the node.
pub fn goroutine_is_back(rt: &Runtime, p: PRef) -> bool {
    if !rt.back_from_call.load(Ordering::Relaxed) {
        return false;
    }
    let waits_on = |n: &Node| !n.runq.is_empty() || !n.high.is_empty();
    let none_waits = || !rt.nodes.iter().any(waits_on);
    let waits = waits_on(p.of_node());
    if !waits && none_waits() {
        rt.back_from_call.store(false, Ordering::Relaxed);
        // Pairs with the fence in `Idle::work_added`: if a thread has queued a goroutine and set
        // the flag before it was cleared here, this thread sees the goroutine.
        fence(Ordering::SeqCst);
        if !none_waits() {
            rt.back_from_call.store(true, Ordering::Relaxed);
        }
    }
    waits
}

/// Takes the P of an M whose call sysmon has seen before, or whose P has an event that is due.
/// True: something needs the P. Go's `retake`. seed: S7
fn retake(rt: &Runtime, p: PRef) -> bool {
    let needed = p.has_work()
        || p.timers.next() != i64::MAX
        || p.poll.is_waited_for()
        || steal::work_anywhere(rt);
    let taken = p.take_from_call(PStatus::Idle);
    if taken {
        start::hand_off(p);
    }
    taken && needed
}

/// Wakes an M that looks for work everywhere, timers of other P's included, unless an M is about to
/// do so anyway.
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
