//! The modelled machine: threads, futexes and a clock.
//!
//! The clock goes on when it is read, sometimes by a leap, so that any deadline
//! may pass at any moment; and when every thread sleeps, to the next deadline.
//! When every thread sleeps for ever, or nothing but deadlines happen for very
//! long, the model has failed.

use core::ffi::c_void;
use core::order;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, Thread as Handle};
use std::cell::RefCell;

/// More time than this passes in no model, in ns.
const TOO_LONG: i64 = 20_000_000_000;
/// More threads than this are started in no model.
const TOO_MANY: usize = 24;
/// One in this many signals comes while the thread is in the library, whose handler does nothing then.
const IN_THE_LIBRARY: u32 = 4;
/// How far the clock leaps.
const LEAPS: [i64; 6] = [1_000, 20_000, 100_000, 1_100_000, 3_000_000, 12_000_000];

/// What belongs to one modelled thread.
#[derive(Default)]
pub struct Thread {
    pub tls: usize,
    pub errno: Box<i32>,
    /// A signal has been sent to it that its handler has not seen.
    signalled: bool,
    /// It runs the handler, which keeps the signal off.
    handles: bool,
}

struct Sleeper {
    number: u64,
    thread: Handle,
    task: usize,
    /// The futex's address; [`JUST_SLEEPS`], [`ENDED_BY_SIGNALS`], [`IN_FAULT`].
    address: usize,
    deadline: Option<i64>,
}

/// Values of [`Sleeper::address`] that aren't addresses. `ENDED_BY_SIGNALS` is a sleep in the user's code, `IN_FAULT` a wait
/// for a page.
const JUST_SLEEPS: usize = 0;
const ENDED_BY_SIGNALS: usize = 1;
const IN_FAULT: usize = 2;

/// A handler of the preemption signal, which is given the interrupted context.
pub type Handler = fn(*mut c_void);

#[derive(Default)]
struct Machine {
    clock: i64,
    /// Threads there are, and how many of them don't sleep.
    threads: usize,
    running: usize,
    /// Threads there have ever been.
    started: usize,
    sleepers: Vec<Sleeper>,
    numbers: u64,
    /// Sleeps that a deadline has ended, and others that have ended.
    timed_out: Vec<u64>,
    woken: Vec<u64>,
    of_thread: Vec<Thread>,
    handler: Option<Handler>,
    keeps_boundary: bool,
}

thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::default();
}

fn with<R>(f: impl FnOnce(&mut Machine) -> R) -> R {
    MACHINE.with_borrow_mut(f)
}

/// A fresh machine, with the calling thread.
pub fn reset() {
    order::reset();
    crate::poll::reset();
    with(|m| *m = Machine { clock: 1_000_000, threads: 1, running: 1, ..Machine::default() });
}

/// Runs `f` with what belongs to the running thread.
pub fn with_thread<R>(f: impl FnOnce(&mut Thread) -> R) -> R {
    with_thread_of(usize::from(thread::current().id()), f)
}

fn with_thread_of<R>(task: usize, f: impl FnOnce(&mut Thread) -> R) -> R {
    with(|m| {
        if m.of_thread.len() <= task {
            m.of_thread.resize_with(task + 1, Thread::default);
        }
        f(&mut m.of_thread[task])
    })
}

/// How many threads there are.
pub fn threads() -> usize {
    with(|m| m.threads)
}

/// True once in `n` times.
pub fn chance(n: u32) -> bool {
    thread_rng().gen_ratio(1, n)
}

/// Reads the clock.
pub fn now() -> i64 {
    let leap = if chance(24) { LEAPS[thread_rng().gen_range(0..LEAPS.len())] } else { 100 };
    let clock = with(|m| {
        m.clock += leap;
        m.clock
    });
    fire();
    clock
}

/// Ends the sleeps whose time has come.
fn fire() {
    end_sleeps(|m| {
        let clock = m.clock;
        take(
            m,
            usize::MAX,
            |s| s.deadline.is_some_and(|d| d <= clock),
            |m, s| m.timed_out.push(s.number),
        )
    });
}

/// Takes up to `most` sleepers for which `which` says so.
fn take(
    m: &mut Machine,
    most: usize,
    which: impl Fn(&Sleeper) -> bool,
    note: fn(&mut Machine, &Sleeper),
) -> Vec<Handle> {
    let mut out = Vec::new();
    let mut i = 0;
    while i < m.sleepers.len() && out.len() < most {
        if which(&m.sleepers[i]) {
            let s = m.sleepers.remove(i);
            note(m, &s);
            m.running += 1;
            out.push(s.thread);
        } else {
            i += 1;
        }
    }
    out
}

fn end_sleeps(f: impl FnOnce(&mut Machine) -> Vec<Handle>) {
    let handles = with(f);
    handles.iter().for_each(Handle::unpark);
}

/// When no thread is left that runs: time passes until one does.
fn pass_time() {
    loop {
        let next = with(|m| {
            if m.running > 0 || m.sleepers.is_empty() {
                return None;
            }
            let next = m.sleepers.iter().filter_map(|s| s.deadline).min();
            assert!(next.is_some(), "every thread sleeps for ever: a wake-up is lost");
            next
        });
        let Some(next) = next else { return };
        assert!(next < TOO_LONG, "nothing happens any more: a wake-up is lost");
        with(|m| m.clock = m.clock.max(next));
        fire();
    }
}

/// Sleeps at an address; false: the deadline has passed.
fn sleep_at(address: usize, deadline: Option<i64>) -> bool {
    let number = with(|m| {
        m.numbers += 1;
        m.running -= 1;
        let (number, thread) = (m.numbers, thread::current());
        let task = usize::from(thread.id());
        m.sleepers.push(Sleeper { number, thread, task, address, deadline });
        number
    });
    pass_time();
    loop {
        let ended = with(|m| {
            let was_in = |list: &mut Vec<u64>| {
                let at = list.iter().position(|&n| n == number);
                at.map(|i| list.swap_remove(i)).is_some()
            };
            match () {
                _ if was_in(&mut m.woken) => Some(true),
                _ if was_in(&mut m.timed_out) => Some(false),
                _ => None,
            }
        });
        match ended {
            Some(woken) => return woken,
            None => thread::park(),
        }
    }
}

/// FUTEX_WAIT: blocks while the word has that value. False: the deadline has
/// passed.
pub fn futex_wait(address: usize, unchanged: impl Fn() -> bool, deadline: Option<i64>) -> bool {
    order::point();
    order::finish_stores();
    if chance(32) || !unchanged() {
        return true;
    }
    if deadline.is_some_and(|d| d <= with(|m| m.clock)) {
        return false;
    }
    sleep_at(address, deadline)
}

/// FUTEX_WAKE.
pub fn futex_wake(address: usize, n: usize) {
    order::point();
    order::finish_stores();
    end_sleeps(|m| take(m, n, |s| s.address == address, |m, s| m.woken.push(s.number)));
}

/// Sleeps for a while.
pub fn sleep(ns: i64) {
    order::finish_stores();
    let until = with(|m| m.clock + ns.max(1));
    sleep_at(JUST_SLEEPS, Some(until));
}

/// What `f` gives for the sleep of the thread with this number, if that thread sleeps.
fn of_sleeper<R>(id: i32, f: impl FnOnce(&Sleeper) -> R) -> Option<R> {
    with(|m| m.sleepers.iter().find(|s| s.task == id as usize).map(f))
}

/// Whether the thread with this number sleeps.
pub fn sleeps(id: i32) -> bool {
    sleep_of(id).is_some()
}

/// The number of the sleep of the thread with this number.
pub fn sleep_of(id: i32) -> Option<u64> {
    of_sleeper(id, |s| s.number)
}

/// Whether the thread with this number waits for a page.
pub fn is_in_fault(id: i32) -> bool {
    of_sleeper(id, |s| s.address == IN_FAULT) == Some(true)
}

/// From here on the model's goroutines enter the library for each call of it. A P may be taken only from such a goroutine.
pub fn keep_boundary() {
    with(|m| m.keeps_boundary = true);
}

pub fn keeps_boundary() -> bool {
    with(|m| m.keeps_boundary)
}

/// Has this function called when a signal is delivered.
pub fn handle_signals(handler: Handler) {
    with(|m| m.handler = Some(handler));
}

/// Sends the signal to the thread with this number. In the user's code it is delivered soon, and a
/// sleep there ends for that. A signal that comes while the thread is in the library comes to nothing:
/// the handler looks and returns.
pub fn send_signal(id: i32) {
    order::point();
    order::finish_stores();
    if !is_in_fault(id) && chance(IN_THE_LIBRARY) {
        return;
    }
    let task = id as usize;
    with_thread_of(task, |t| t.signalled = true);
    let is_it = move |s: &Sleeper| s.task == task && s.address == ENDED_BY_SIGNALS;
    end_sleeps(|m| take(m, 1, is_it, |m, s| m.woken.push(s.number)));
}

/// The user's code goes on, and time with it: another thread may go on here, and a signal is
/// delivered.
pub fn run_user_code() {
    order::point();
    now();
    deliver();
}

/// Calls the handler, as the kernel would, for a signal that has come.
fn deliver() {
    let come = with_thread(|t| {
        let come = t.signalled && !t.handles;
        if come {
            (t.signalled, t.handles) = (false, true);
        }
        come
    });
    if !come {
        return;
    }
    // Stands for the interrupted context: the library passes it on, and reads it in no model.
    static CONTEXT: u8 = 0;
    let handler = with(|m| m.handler).expect("the handler is set before a signal is sent");
    handler((&raw const CONTEXT).cast_mut().cast());
    with_thread(|t| t.handles = false);
}

/// The user's code sleeps for a while; signals interrupt that.
pub fn sleep_in_user_code(ns: i64) {
    order::finish_stores();
    let until = with(|m| m.clock + ns.max(1));
    loop {
        deliver();
        if with(|m| m.clock) >= until || !sleep_at(ENDED_BY_SIGNALS, Some(until)) {
            return deliver();
        }
    }
}

/// The user's code waits for a page; signals come when it is there.
pub fn fault_in_user_code(ns: i64) {
    order::finish_stores();
    deliver();
    let until = with(|m| m.clock + ns.max(1));
    sleep_at(IN_FAULT, Some(until));
    deliver();
}

/// Starts a thread; `joined` lets those go on who wait for its end.
pub fn start(f: impl FnOnce() + Send + 'static, joined: impl FnOnce() + Send + 'static) {
    with(|m| {
        m.threads += 1;
        m.running += 1;
        m.started += 1;
        assert!(m.started < TOO_MANY, "threads are started without end");
    });
    order::finish_stores();
    thread::spawn(move || {
        f();
        order::finish_stores();
        with(|m| m.threads -= 1);
        joined();
        order::finish_stores();
        with(|m| m.running -= 1);
        pass_time();
    });
}
