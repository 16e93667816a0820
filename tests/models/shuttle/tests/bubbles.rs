//! Bubbles that end while goroutines and threads outside wake their goroutines, and are woken by
//! them (`sched/run/BUBBLES.md`).

use shuttle_models::chan::{Chan, Op};
use shuttle_models::model::{Count, Plain, body, check, go, in_runtime, inside, yield_now};
use shuttle_models::os;
use shuttle_models::sched::lifecycle::bubble::{self, Setup};
use shuttle_models::sched::prim::draws::Schedule;
use shuttle_models::sched::types::course::Outcome;
use std::ptr;
use std::sync::Arc;

/// A time that is over in no run, in ns.
const LONG: i64 = 3_600_000_000_000;

/// A channel of nothing, without a buffer, that is never freed: a goroutine that was given up may wait
/// there.
#[derive(Clone, Copy)]
struct Signal(&'static Chan);

// SAFETY: any thread may use a channel, and its elements are nothing.
unsafe impl Send for Signal {}

impl Signal {
    fn new() -> Signal {
        Signal(Box::leak(Chan::new(0, 0).expect("memory")))
    }

    /// 0; `-ETIMEDOUT`. Waits until this time of the caller's clock, in ns.
    fn receive(self, until: i64) -> i32 {
        // SAFETY: the elements have no bytes.
        inside(|| unsafe {
            let done = self.0.try_recv(ptr::null_mut(), until);
            done.unwrap_or_else(|| self.0.wait(Op::Recv, ptr::null_mut(), until))
        })
    }

    fn send(self, until: i64) -> i32 {
        // SAFETY: likewise.
        inside(|| unsafe {
            let done = self.0.try_send(ptr::null(), until);
            done.unwrap_or_else(|| self.0.wait(Op::Send, ptr::null_mut(), until))
        })
    }
}

/// How a run ends.
fn run(seed: u64, f: impl FnOnce() + Send + 'static) -> Outcome {
    let (root, arg) = body(f);
    let setup = Setup {
        seed,
        schedule: Schedule::Random,
        steps: 0,
        script: None,
        max_steps: 1000,
        check: None,
        net: None,
        cancels: 0,
        no_memory: 0,
        lists_possible: false,
        logs: false,
        catches: false,
        last_words: String::new(),
        explains: false,
        watches: false,
        earlier: None,
    };
    bubble::run(root, arg, 0, setup, &mut |_| ()).expect("a bubble").outcome
}

/// A thread that makes three runs. The last has nothing to do with the goroutines that the others may
/// have left.
fn runner(f: impl Fn() + Clone + Send + 'static) -> Plain {
    Plain::start(move || {
        for seed in [1, 2] {
            let outcome = run(seed, f.clone());
            let is_right =
                matches!(outcome, Outcome::Done | Outcome::Deadlock | Outcome::Disturbed(_));
            assert!(is_right, "{outcome:?}");
        }
        let yields = || {
            go(|| (0..3).for_each(|_| yield_now()));
            (0..3).for_each(|_| yield_now());
        };
        assert_eq!(run(3, yields), Outcome::Done);
    })
}

/// Two bubbles at a time, each followed by others on the same thread, whose goroutines wait for others of
/// the bubble and for a signal; goroutines and a thread that send such signals, and two that wait for
/// them. Each goroutine outside ends, with a result or by its deadline.
fn outsiders(procs: usize) {
    let (inner, outer) = (Signal::new(), Signal::new());
    let ends = Arc::new(Count::default());
    in_runtime(procs, 1, || {
        let waits = move || {
            let until = 1_000_000_000 + LONG;
            go(move || {
                inner.receive(until);
                yield_now();
            });
            go(move || {
                outer.send(until);
            });
            yield_now();
            inner.receive(until);
        };
        let runners = [runner(waits), runner(waits)];
        for (signal, sends) in [(inner, true), (inner, true), (outer, false), (outer, false)] {
            let e = ends.clone();
            go(move || {
                let until = os::time::real() + 200_000;
                let result = if sends { signal.send(until) } else { signal.receive(until) };
                assert!(result == 0 || result == -libc::ETIMEDOUT, "{result}");
                e.add(1);
            });
        }
        let sender = Plain::start(move || {
            os::time::sleep(20_000);
            inner.send(os::time::real() + 100_000);
        });
        runners.into_iter().chain([sender]).for_each(Plain::join);
    });
    assert_eq!(ends.get(), 4);
}

#[test]
fn outsiders_meet_bubbles_that_end_beside_one_p() {
    check(1000, || outsiders(1));
}

#[test]
fn outsiders_meet_bubbles_that_end_beside_two_ps() {
    check(1000, || outsiders(2));
}
