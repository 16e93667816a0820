//! Hooks and worker groups: an interpreter with one lock for all its threads, whose goroutines are
//! in on one thread at a time, while a third party takes the P's of the threads that wait for that
//! lock.

use shuttle_models::machine;
use shuttle_models::model::{Count, Plain, check, go, go_in_group, in_runtime, inside, yield_now};
use shuttle_models::os;
use shuttle_models::sched::ext::hooks;
use shuttle_models::sched::ext::hooks::Hooks;
use shuttle_models::sched::run::group;
use shuttle_models::sched::run::park;
use shuttle_models::sched::run::start;
use shuttle_models::sched::take::call;
use shuttle_models::sched::types::g::GRef;
use shuttle_models::sched::types::m;
use shuttle_models::sched::types::p::PStatus;
use shuttle_models::sched::types::runtime;
use shuttle_models::sched::types::waiter;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard};

/// What an interpreter knows; not part of the model.
#[derive(Default)]
struct Interpreter {
    /// The thread that has the lock.
    owner: Option<i32>,
    /// The goroutine that is in on each thread that has started.
    threads: HashMap<i32, Option<usize>>,
    /// Hand-overs.
    overs: usize,
}

static INTERPRETER: Mutex<Option<Interpreter>> = Mutex::new(None);

struct Known(MutexGuard<'static, Option<Interpreter>>);

/// What is known now. It must not be kept over a scheduling point.
fn known() -> Known {
    Known(INTERPRETER.lock().expect("a model that panics ends the process"))
}

impl std::ops::Deref for Known {
    type Target = Interpreter;
    fn deref(&self) -> &Interpreter {
        self.0.as_ref().expect("a model has begun")
    }
}

impl std::ops::DerefMut for Known {
    fn deref_mut(&mut self) -> &mut Interpreter {
        self.0.as_mut().expect("a model has begun")
    }
}

fn me() -> i32 {
    os::thread::id()
}

unsafe extern "C" fn starts(_: *mut c_void) {
    assert_eq!(known().threads.insert(me(), None), None, "a thread starts twice");
}

unsafe extern "C" fn stops(_: *mut c_void) {
    let mut i = known();
    assert_eq!(i.threads.remove(&me()), Some(None), "a goroutine is in when its thread stops");
    if i.owner == Some(me()) {
        i.owner = None;
    }
}

unsafe extern "C" fn comes_in(_: *mut c_void, g: GRef) {
    // Waits for the lock, as any thread would.
    loop {
        {
            let mut i = known();
            if i.owner.is_none_or(|o| o == me()) {
                i.owner = Some(me());
                break;
            }
        }
        os::time::sleep(5_000);
    }
    let mut i = known();
    assert!(!i.threads.values().any(|&other| other == Some(g.address())), "it is in elsewhere");
    assert_eq!(i.threads.insert(me(), Some(g.address())), Some(None), "another one is in");
}

unsafe extern "C" fn goes_out(_: *mut c_void, g: GRef) {
    let mut i = known();
    assert_eq!(i.threads.insert(me(), None), Some(Some(g.address())), "it was not in");
}

unsafe extern "C" fn hands_over(_: *mut c_void, from: GRef, to: GRef) -> bool {
    let mut i = known();
    assert!(!i.threads.values().any(|&other| other == Some(to.address())), "it is in elsewhere");
    assert_eq!(i.threads.insert(me(), Some(to.address())), Some(Some(from.address())));
    i.overs += 1;
    true
}

unsafe extern "C" fn is_idle(_: *mut c_void) {
    let mut i = known();
    assert_eq!(i.threads.get(&me()), Some(&None), "one is in when its thread is idle");
    if i.owner == Some(me()) {
        i.owner = None;
    }
}

fn all_hooks() -> Hooks {
    Hooks {
        ctx: os::log::HostArg(ptr::null_mut()),
        thread_start: Some(starts),
        thread_stop: Some(stops),
        switch_in: Some(comes_in),
        switch_out: Some(goes_out),
        switch_over: Some(hands_over),
        idle: Some(is_idle),
        goexit: None,
        dead: None,
        tick: None,
        fork_child: None,
        shutdown: None,
        frames: None,
        tick_every: 1,
    }
}

/// A step of the interpreter's: the goroutine is in on this thread, which has the lock.
fn step() {
    let g = m::current().expect("a goroutine runs on an M").curg.get();
    let i = known();
    assert_eq!(i.owner, Some(me()), "without the lock");
    assert_eq!(i.threads.get(&me()), Some(&Some(g as usize)), "not in");
}

/// Takes the P's of calls, as sysmon does without its patience.
fn take_ps_of_calls(looks: usize) -> Plain {
    Plain::start(move || {
        for _ in 0..looks {
            for p in runtime::rt().ps() {
                if p.take_from_call(PStatus::Idle) {
                    start::hand_off(p);
                }
            }
            os::time::sleep(2_000);
        }
    })
}

/// Runs a model with the hooks set, and sees that everything is stopped at its end.
fn with_hooks(procs: usize, f: impl FnOnce()) {
    *INTERPRETER.lock().expect("unlocked") = Some(Interpreter::default());
    assert_eq!(hooks::set(Some(all_hooks())), 0);
    in_runtime(procs, 1, f);
    assert_eq!(hooks::set(None), 0);
    let i = known();
    assert!(i.threads.is_empty() && i.owner.is_none());
}

fn interpret(steps: usize) {
    for n in 0..steps {
        inside(step);
        match n % 3 {
            0 => inside(yield_now),
            1 => {
                let until = os::time::now() + 3_000;
                let _ = inside(|| park::sleep_until(until, waiter::Why::Sleep));
            }
            _ => {
                inside(call::enter);
                os::time::sleep(1_000);
                inside(call::exit);
            }
        }
        inside(step);
    }
}

fn goroutines_of_an_interpreter(procs: usize, count: usize, steps: usize) {
    with_hooks(procs, || {
        let third = take_ps_of_calls(15);
        for _ in 0..count {
            go(move || interpret(steps));
        }
        third.join();
    });
}

#[test]
fn goroutines_are_in_on_one_thread_under_the_lock_on_one_p() {
    check(1000, || goroutines_of_an_interpreter(1, 3, 3));
}

#[test]
fn goroutines_are_in_on_one_thread_under_the_lock_on_two_ps() {
    check(1000, || goroutines_of_an_interpreter(2, 3, 3));
}

#[test]
fn hooks_change_while_goroutines_run() {
    check(1000, || {
        *INTERPRETER.lock().expect("unlocked") = Some(Interpreter::default());
        in_runtime(2, 1, || {
            for _ in 0..2 {
                go(|| (0..4).for_each(|_| inside(yield_now)));
            }
            assert_eq!(hooks::set(Some(all_hooks())), 0);
            go(|| (0..2).for_each(|_| inside(yield_now)));
            os::time::sleep(2_000);
            assert_eq!(hooks::set(None), 0);
        });
        assert!(known().threads.is_empty());
    });
}

fn members_stay(procs: usize, size: usize, with_the_hooks: bool) {
    let threads: Arc<Mutex<Vec<i32>>> = Arc::default();
    let count = Arc::new(Count::default());
    let group = group::create(size, 0).expect("memory");
    let model = || {
        let third = take_ps_of_calls(10);
        for _ in 0..3 {
            let (threads, count) = (threads.clone(), count.clone());
            go_in_group(group, 0, move || {
                let here = me();
                threads.lock().expect("unlocked").push(here);
                for _ in 0..2 {
                    inside(yield_now);
                    assert_eq!(me(), here);
                    inside(call::enter);
                    os::time::sleep(1_000);
                    inside(call::exit);
                    assert_eq!(me(), here);
                }
                count.add(1);
            });
            go(|| inside(yield_now));
        }
        third.join();
    };
    match with_the_hooks {
        true => with_hooks(procs, model),
        false => in_runtime(procs, 1, model),
    }
    assert_eq!(count.get(), 3);
    let mut threads = threads.lock().expect("unlocked").clone();
    threads.sort_unstable();
    threads.dedup();
    assert!(threads.len() <= size, "{} threads for a group of {size}", threads.len());
    // SAFETY: its goroutines have ended, and no thread uses it any more.
    assert_eq!(unsafe { group::free(group) }, 0);
    assert!(machine::threads() >= 1);
}

#[test]
fn members_of_a_group_of_one_stay_on_its_thread() {
    check(700, || members_stay(2, 1, false));
}

#[test]
fn members_of_a_group_of_two_stay_on_its_threads() {
    check(700, || members_stay(2, 2, false));
}

#[test]
fn members_of_a_group_stay_on_its_thread_under_hooks() {
    check(500, || members_stay(2, 1, true));
}
