//! Protocols between two parties of the scheduler that a third one enters, on the same P's: a
//! thread like sysmon takes P's and preempts, while goroutines call, block without a word and
//! compute, and threads fork, lend themselves and stop the world.

use shuttle_models::chan::{Chan, Op};
use shuttle_models::io::want::Want;
use shuttle_models::io::{table, wait};
use shuttle_models::model::{
    Alone, Count, Owners, Plain, allocate, begin_call, block, blocking_call, body,
    call_without_need_of_p, check, end_call, fault, fork, fork_and_look, go, go_in_group,
    go_pinned, in_runtime, in_runtime_with_threads, inside, prepare_preemption, user_code,
    yield_now,
};
use shuttle_models::os;
use shuttle_models::poll;
use shuttle_models::sched::inspect::embed;
use shuttle_models::sched::lifecycle::lock_thread;
use shuttle_models::sched::lifecycle::run;
use shuttle_models::sched::lifecycle::stopping;
use shuttle_models::sched::run::group;
use shuttle_models::sched::run::park;
use shuttle_models::sched::run::start;
use shuttle_models::sched::run::{preempted, requests};
use shuttle_models::sched::take::call;
use shuttle_models::sched::take::events;
use shuttle_models::sched::take::preempt;
use shuttle_models::sched::take::world;
use shuttle_models::sched::types::attention;
use shuttle_models::sched::types::g::flags;
use shuttle_models::sched::types::p::PStatus;
use shuttle_models::sched::types::runtime;
use shuttle_models::sched::types::waiter::Why;
use shuttle_models::sched::wait::timers::queue::{After, Timer};
use shuttle_models::sync::Sem;
use shuttle_models::time;
use std::ptr;
use std::sync::Arc;

/// What the thread that plays sysmon does.
#[derive(Clone, Copy)]
enum Look {
    /// Takes the P of a call.
    Calls,
    /// Takes the P of a goroutine that is in the user's code, as if it were blocked.
    Blocks,
    /// Takes the P of a member of a group that computes.
    Members,
    /// Preempts the goroutine.
    Slices,
    /// Takes the P of a goroutine that is in the user's code for events of another P, and lets idle M's do so, too.
    Events,
    /// Notes that the goroutine has computed for long, so that a goroutine that is back from a call may take the P.
    Stands,
    /// Interrupts those that have lost their P.
    Strays,
}

/// Plays sysmon's part beside sysmon, without its patience: looks at each P in these ways in turn.
fn play_sysmon(looks: usize, ways: &'static [Look]) -> Plain {
    Plain::start(move || {
        let rt = runtime::rt();
        for look in 0..looks {
            let way = ways[look % ways.len()];
            if !requests::is_stopping() {
                rt.ps().for_each(|p| look_at(p, way));
            }
            match look % 4 {
                0 => os::time::sleep(3_000),
                _ => os::thread::yield_now(),
            }
        }
    })
}

fn look_at(p: shuttle_models::sched::types::p::PRef, way: Look) {
    let rt = runtime::rt();
    match way {
        Look::Calls => {
            if p.take_from_call(PStatus::Idle) {
                start::hand_off(p);
            }
        }
        Look::Blocks => {
            if let Some(m) = p.runner()
                && preempt::take_outside(rt, p, m, PStatus::Idle)
            {
                start::hand_off(p);
            }
        }
        Look::Members => {
            if preempt::take_from_member(rt, p) {
                start::hand_off(p);
            }
        }
        Look::Slices => {
            requests::ask(p, attention::SLICE);
            preempt::interrupt(rt, p);
        }
        Look::Events => {
            let now = os::time::now();
            p.seen_at(now - 2 * preempted::WAKE_UP);
            let home = rt.ps_after(p, 1).next().unwrap_or(p);
            let _ = events::take_to_serve(rt, p, home, now, events::Heir::IdleM);
        }
        Look::Stands => p.seen_at(os::time::now() - 2 * preempted::WAKE_UP),
        Look::Strays => preempt::strays(rt).into_iter().for_each(|m| preempt::stop_stray(rt, m)),
    }
}

const ALL: &[Look] = &[
    Look::Slices,
    Look::Events,
    Look::Blocks,
    Look::Slices,
    Look::Calls,
    Look::Events,
    Look::Strays,
];

/// sysmon starts no inspector while a goroutine waits in the handler. Without an inspector sysmon, and a thread that stops
/// the world, don't learn which threads are blocked.
#[test]
fn the_inspector_is_there_before_goroutines_wait_in_the_handler() {
    check(1000, || {
        in_runtime(1, 1, || {
            prepare_preemption();
            assert!(runtime::rt().inspector.was_started());
        });
    });
}

/// Announces a call that lasts this long.
fn call(ns: i64) {
    begin_call();
    block(ns);
    end_call();
}

/// A thread that forks `n` times.
fn forker(n: usize) -> Plain {
    Plain::start(move || {
        for _ in 0..n {
            fork();
            os::time::sleep(10_000);
        }
    })
}

/// A thread that lends itself `n` times for what `f` makes.
fn lender(n: usize, f: impl Fn() -> Box<dyn FnOnce() + Send> + Send + 'static) -> Plain {
    Plain::start(move || {
        for _ in 0..n {
            let (f, arg) = body(f());
            assert_eq!(run::run(f, arg, 0), 0);
        }
    })
}

/// Stops the world once, after this many ns.
fn stopper(after: i64, owners: &Arc<Owners>) -> Plain {
    let owners = owners.clone();
    Plain::start(move || {
        os::time::sleep(after);
        let world = world::stop();
        owners.visit_all();
        world::start(world);
    })
}

/// Begins a goroutine that does this twice and needs its P after each time.
fn go_twice(owners: &Arc<Owners>, ends: &Arc<Count>, f: impl Fn(&Owners) + Send + 'static) {
    let (owners, ends) = (owners.clone(), ends.clone());
    go(move || {
        for _ in 0..2 {
            f(&owners);
            inside(|| owners.visit());
        }
        ends.add(1);
    });
}

fn all_at_once(procs: usize) {
    let (owners, ends) = (Arc::new(Owners::default()), Arc::new(Count::default()));
    in_runtime(procs, 1, || {
        prepare_preemption();
        let begin = |f: fn(&Owners)| go_twice(&owners, &ends, f);
        begin(|_| call(10_000));
        begin(|_| block(20_000));
        begin(|owners| {
            user_code();
            inside(|| {
                owners.visit();
                yield_now();
            });
            user_code();
        });
        begin(|_| allocate());
        let stops = owners.clone();
        let others = [
            play_sysmon(25, ALL),
            forker(2),
            lender(2, {
                let (owners, ends) = (owners.clone(), ends.clone());
                move || {
                    let (owners, ends) = (owners.clone(), ends.clone());
                    Box::new(move || {
                        user_code();
                        let e = ends.clone();
                        inside(|| {
                            owners.visit();
                            go(move || e.add(1));
                            yield_now();
                        });
                        block(5_000);
                        inside(|| owners.visit());
                        ends.add(1);
                    })
                }
            }),
            Plain::start(move || {
                let world = world::stop();
                stops.visit_all();
                world::start(world);
            }),
        ];
        others.into_iter().for_each(Plain::join);
    });
    assert_eq!(ends.get(), 4 + 2 * 2);
}

#[test]
fn all_of_them_at_once_on_one_p() {
    check(1000, || all_at_once(1));
}

#[test]
fn all_of_them_at_once_on_two_ps() {
    check(1000, || all_at_once(2));
}

/// A channel of nothing, without a buffer.
struct Signal(Box<Chan>);

impl Signal {
    fn new() -> Arc<Signal> {
        Arc::new(Signal(Chan::new(0, 0).expect("memory")))
    }

    fn receive(&self) {
        // SAFETY: the elements have no bytes.
        let received = inside(|| unsafe {
            let done = self.0.try_recv(ptr::null_mut(), park::FOREVER);
            done.unwrap_or_else(|| self.0.wait(Op::Recv, ptr::null_mut(), park::FOREVER))
        });
        assert_eq!(received, 0);
    }

    /// A receiver that waits runs next on the caller's P. No M is woken for it.
    fn send(&self) {
        // SAFETY: likewise.
        let sent = inside(|| unsafe {
            let done = self.0.try_send(ptr::null(), park::FOREVER);
            done.unwrap_or_else(|| self.0.wait(Op::Send, ptr::null_mut(), park::FOREVER))
        });
        assert_eq!(sent, 0);
    }
}

// SAFETY: any thread may use a channel, and its elements are nothing.
unsafe impl Send for Signal {}
// SAFETY: likewise.
unsafe impl Sync for Signal {}

/// A goroutine is preempted while another P is idle or about to be. Its P goes on with the goroutine in `runnext`, of
/// which no thread was told, and which blocks without a word until the preempted one has run: on the other P.
fn preempted_beside_an_idle_p() {
    let ends = Arc::new(Count::default());
    let signal = Signal::new();
    in_runtime(2, 1, || {
        prepare_preemption();
        let (s, e) = (signal.clone(), ends.clone());
        go(move || {
            s.receive();
            while e.get() == 0 {
                block(20_000);
            }
        });
        let (s, e) = (signal.clone(), ends.clone());
        go(move || {
            s.send();
            (0..20).for_each(|_| user_code());
            e.add(1);
        });
        play_sysmon(8, &[Look::Slices]).join();
    });
    assert_eq!(ends.get(), 1);
}

#[test]
fn one_that_is_preempted_does_not_wait_beside_an_idle_p() {
    check(4000, preempted_beside_an_idle_p);
}

/// `turns`: how often the world was stopped and started.
fn check_that_world_runs(turns: &Count) {
    assert_eq!(turns.get() % 2, 0, "it runs while the world is stopped");
}

/// A thread stops the world twice, each time after a time and for a time, in ns.
fn stops_twice(after: i64, ns: i64, owners: &Arc<Owners>, turns: &Arc<Count>) -> Plain {
    let (owners, turns) = (owners.clone(), turns.clone());
    Plain::start(move || {
        for _ in 0..2 {
            os::time::sleep(after);
            assert_eq!(stopping::stop(), 0);
            turns.add(1);
            os::time::sleep(ns);
            owners.visit_all();
            turns.add(1);
            assert_eq!(stopping::start(), 0);
        }
    })
}

/// A goroutine stops the world and makes calls meanwhile. Others come back from calls of their own: they don't get the
/// stopper's P, which is there when the stopper's call is over.
fn a_stopper_makes_calls(procs: usize) {
    let (owners, ends) = (Arc::new(Owners::default()), Arc::new(Count::default()));
    // How often the world was stopped and started.
    let turns = Arc::new(Count::default());
    in_runtime(procs, 1, || {
        prepare_preemption();
        let (stops, t) = (owners.clone(), turns.clone());
        go_twice(&owners, &ends, move |_| {
            assert_eq!(inside(stopping::stop), 0);
            t.add(1);
            call(5_000);
            stops.visit_all();
            call(5_000);
            t.add(1);
            assert_eq!(inside(stopping::start), 0);
        });
        for _ in 0..2 {
            let t = turns.clone();
            go_twice(&owners, &ends, move |_| {
                call(5_000);
                check_that_world_runs(&t);
                inside(|| check_that_world_runs(&t));
            });
        }
        play_sysmon(25, ALL).join();
    });
    assert_eq!(ends.get(), 3);
}

#[test]
fn a_stopper_of_the_world_makes_calls_on_one_p() {
    check(1000, || a_stopper_makes_calls(1));
}

#[test]
fn a_stopper_of_the_world_makes_calls_on_two_ps() {
    check(1000, || a_stopper_makes_calls(2));
}

/// Goroutines go from call to call beside another goroutine that computes, so they go on without P's. Meanwhile the world
/// is stopped twice, a goroutine and a thread fork, and a third party preempts and takes P's. While the world is stopped no
/// goroutine runs, and a goroutine that needs a P has the P for itself.
fn calls_without_a_p(procs: usize) {
    let (owners, ends) = (Arc::new(Owners::default()), Arc::new(Count::default()));
    // How often the world was stopped and started.
    let turns = Arc::new(Count::default());
    in_runtime(procs, 1, || {
        prepare_preemption();
        for i in 0..3 {
            let (o, e, t) = (owners.clone(), ends.clone(), turns.clone());
            go(move || {
                for round in 0..3 {
                    if (i + round) % 3 == 0 {
                        blocking_call(5_000)
                    } else {
                        call(5_000)
                    }
                    check_that_world_runs(&t);
                    user_code();
                    call_without_need_of_p();
                    check_that_world_runs(&t);
                    user_code();
                }
                match i {
                    0 => {}
                    1 => fork(),
                    _ => {
                        inside(|| o.visit());
                        call(5_000);
                    }
                }
                inside(|| o.visit());
                e.add(1);
            });
        }
        go(|| (0..20).for_each(|_| user_code()));
        let others =
            [play_sysmon(25, ALL), forker(1), stops_twice(10_000, 20_000, &owners, &turns)];
        others.into_iter().for_each(Plain::join);
    });
    assert_eq!(ends.get(), 3);
}

#[test]
fn goroutines_go_from_call_to_call_without_the_only_p() {
    check(1500, || calls_without_a_p(1));
}

#[test]
fn goroutines_go_from_call_to_call_without_ps() {
    check(1500, || calls_without_a_p(2));
}

/// Goroutines wait for pages, and lose their P's, while the world is stopped twice. They don't go on in between, not even
/// when their pages are there.
fn faults_beside_a_stopper(procs: usize) {
    let (owners, ends) = (Arc::new(Owners::default()), Arc::new(Count::default()));
    // How often the world was stopped and started.
    let turns = Arc::new(Count::default());
    in_runtime(procs, 1, || {
        prepare_preemption();
        for _ in 0..2 {
            let t = turns.clone();
            go_twice(&owners, &ends, move |_| {
                fault(20_000);
                check_that_world_runs(&t);
                user_code();
            });
        }
        go_twice(&owners, &ends, |_| user_code());
        let others = [play_sysmon(25, ALL), forker(1), stops_twice(5_000, 30_000, &owners, &turns)];
        others.into_iter().for_each(Plain::join);
    });
    assert_eq!(ends.get(), 3);
}

#[test]
fn one_in_a_page_fault_stops_with_the_world_on_one_p() {
    check(1500, || faults_beside_a_stopper(1));
}

#[test]
fn those_in_page_faults_stop_with_the_world_on_two_ps() {
    check(1500, || faults_beside_a_stopper(2));
}

/// Goroutines block, and so lose their P, and disable preemption when they come back: from there on each has a P for
/// itself, and none of them is there while the world is stopped.
fn preemption_is_disabled(procs: usize) {
    let (owners, ends) = (Arc::new(Owners::default()), Arc::new(Count::default()));
    in_runtime(procs, 1, || {
        prepare_preemption();
        for _ in 0..2 {
            go_twice(&owners, &ends, |owners| {
                block(20_000);
                stopping::disable_preemption();
                owners.visit();
                user_code();
                owners.visit();
                stopping::enable_preemption();
            });
        }
        go_twice(&owners, &ends, |_| user_code());
        let stops = owners.clone();
        let others = [
            play_sysmon(25, ALL),
            Plain::start(move || {
                assert_eq!(stopping::stop(), 0);
                stops.visit_all();
                assert_eq!(stopping::start(), 0);
            }),
        ];
        others.into_iter().for_each(Plain::join);
    });
    assert_eq!(ends.get(), 3);
}

#[test]
fn one_that_disables_preemption_has_the_only_p() {
    check(1000, || preemption_is_disabled(1));
}

#[test]
fn those_that_disable_preemption_have_ps() {
    check(1000, || preemption_is_disabled(2));
}

/// Collectors stop the world one after the other and ask for the registers of all goroutines, which are in calls and in
/// blocks that were not announced. Each goroutine goes on afterwards.
fn registers_are_shown(procs: usize) {
    let ends = Arc::new(Count::default());
    in_runtime(procs, 1, || {
        prepare_preemption();
        for _ in 0..2 {
            let ends = ends.clone();
            go(move || {
                begin_call();
                (0..20).for_each(|_| user_code());
                end_call();
                block(40_000);
                ends.add(1);
            });
        }
        let collector = || {
            Plain::start(|| {
                for _ in 0..2 {
                    assert_eq!(stopping::stop(), 0);
                    embed::for_each(|_| {});
                    assert_eq!(stopping::start(), 0);
                    os::time::sleep(5_000);
                }
            })
        };
        let others = [collector(), collector(), play_sysmon(6, &[Look::Calls, Look::Blocks])];
        others.into_iter().for_each(Plain::join);
    });
    assert_eq!(ends.get(), 2);
}

#[test]
fn registers_are_shown_with_one_p() {
    check(6000, || registers_are_shown(1));
}

#[test]
fn registers_are_shown_with_two_ps() {
    check(6000, || registers_are_shown(2));
}

/// The thread of a goroutine that must not change it.
struct Home(i32);

impl Home {
    fn here() -> Home {
        Home(os::thread::id())
    }

    fn check(&self) {
        assert_eq!(os::thread::id(), self.0, "it has changed its thread");
    }
}

/// A semaphore without units at first.
struct Units(Sem);

impl Units {
    fn new() -> Arc<Units> {
        Arc::new(Units(Sem::with(0)))
    }

    fn take(&self) {
        assert_eq!(inside(|| self.0.acquire(1, park::FOREVER)), 0);
    }

    fn give(&self) {
        assert_eq!(inside(|| self.0.release(1)), 0);
    }
}

// SAFETY: any thread may use a semaphore.
unsafe impl Send for Units {}
// SAFETY: likewise.
unsafe impl Sync for Units {}

/// Two goroutines are pinned to one thread; one locks it and waits for the other. Both are handed
/// over with P's, which a third party takes from them.
fn pinned_beside_a_locked_one(procs: usize) {
    let (owners, ends) = (Arc::new(Owners::default()), Arc::new(Count::default()));
    in_runtime(procs, 1, || {
        prepare_preemption();
        let (o, e) = (owners.clone(), ends.clone());
        go_pinned(move || {
            let (home, units) = (Home::here(), Units::new());
            let (u, o2, e2) = (units.clone(), o.clone(), e.clone());
            inside(|| {
                go_pinned(move || {
                    inside(lock_thread::lock);
                    let home = Home::here();
                    for _ in 0..2 {
                        u.take();
                        home.check();
                        inside(|| o2.visit());
                        user_code();
                    }
                    assert_eq!(inside(lock_thread::unlock), 0);
                    home.check();
                    e2.add(1);
                })
            });
            for _ in 0..2 {
                inside(yield_now);
                block(5_000);
                home.check();
                inside(|| o.visit());
                units.give();
            }
            e.add(1);
        });
        let (o, e) = (owners.clone(), ends.clone());
        go(move || {
            for _ in 0..2 {
                call(5_000);
                user_code();
                inside(|| o.visit());
            }
            e.add(1);
        });
        play_sysmon(20, &[Look::Blocks, Look::Slices, Look::Calls]).join();
    });
    assert_eq!(ends.get(), 3);
}

#[test]
fn pinned_goroutines_run_beside_a_locked_one_on_one_p() {
    check(1500, || pinned_beside_a_locked_one(1));
}

#[test]
fn pinned_goroutines_run_beside_a_locked_one_on_two_ps() {
    check(1500, || pinned_beside_a_locked_one(2));
}

/// Goroutines that must not stay on a borrowed thread are born there while no thread is made,
/// because a thread forks or there may be no more; and the thread goes back.
fn born_on_a_borrowed_thread(max_threads: Option<usize>) {
    let (owners, ends) = (Arc::new(Owners::default()), Arc::new(Count::default()));
    in_runtime_with_threads(1, 1, max_threads, || {
        let (o, e) = (owners.clone(), ends.clone());
        let lends = lender(2, move || {
            let (o, e) = (o.clone(), e.clone());
            Box::new(move || {
                for i in 0..2 {
                    let (o, e) = (o.clone(), e.clone());
                    inside(|| {
                        go_pinned(move || {
                            let home = Home::here();
                            if i == 0 {
                                inside(lock_thread::lock);
                            }
                            block(5_000);
                            inside(|| {
                                o.visit();
                                yield_now();
                            });
                            home.check();
                            call(5_000);
                            home.check();
                            e.add(1);
                        })
                    });
                }
                inside(yield_now);
                inside(|| o.visit());
                call(5_000);
                e.add(1);
            })
        });
        let others = [lends, forker(3), play_sysmon(10, &[Look::Blocks, Look::Calls])];
        others.into_iter().for_each(Plain::join);
    });
    assert_eq!(ends.get(), 2 * 3);
}

#[test]
fn what_is_born_on_a_borrowed_thread_while_a_thread_forks_is_not_lost() {
    check(1500, || born_on_a_borrowed_thread(None));
}

#[test]
fn what_is_born_on_a_borrowed_thread_at_the_limit_is_not_lost() {
    check(1500, || born_on_a_borrowed_thread(Some(2)));
}

/// Goroutines are preempted in the middle of malloc, and wait in the handler with the lock that a
/// fork waits for, while calls take and leave the P's.
fn a_fork_beside_one_in_the_handler(procs: usize) {
    let (owners, ends) = (Arc::new(Owners::default()), Arc::new(Count::default()));
    in_runtime(procs, 1, || {
        prepare_preemption();
        for i in 0..3 {
            let (owners, ends) = (owners.clone(), ends.clone());
            go(move || {
                for _ in 0..2 {
                    match i {
                        0 | 1 => allocate(),
                        _ => call(5_000),
                    }
                    inside(|| owners.visit());
                }
                if i == 1 {
                    fork();
                    inside(|| owners.visit());
                }
                ends.add(1);
            });
        }
        let others = [forker(2), play_sysmon(20, &[Look::Slices, Look::Slices, Look::Calls])];
        others.into_iter().for_each(Plain::join);
    });
    assert_eq!(ends.get(), 3);
}

#[test]
fn a_fork_waits_for_no_goroutine_in_the_handler_on_one_p() {
    check(1500, || a_fork_beside_one_in_the_handler(1));
}

#[test]
fn a_fork_waits_for_no_goroutine_in_the_handler_on_two_ps() {
    check(1500, || a_fork_beside_one_in_the_handler(2));
}

/// A timer that fires again and again, each time for a while.
#[derive(Default)]
struct Fires {
    now: Alone,
    fired: Count,
}

impl Fires {
    /// [`Timer::free`] ends the timer, before this value.
    fn begin(self: &Arc<Fires>) -> *const Timer {
        fn fire(timer: &Timer, _: i64) -> After {
            // SAFETY: the address of a `Fires`, which stays until the timer is stopped.
            let fires = unsafe { &*(timer.data[0] as *const Fires) };
            fires.fired.add(1);
            fires.now.visit();
            After::Nothing
        }
        match inside(|| time::start(1_000, 2_000, fire, [Arc::as_ptr(self) as usize, 0])) {
            Ok(timer) => timer,
            Err(e) => panic!("no timer: {e}"),
        }
    }
}

/// Timers fire while a plain thread forks, and goroutines that have lost their P's in a block. At the moment of a fork
/// none fires: the child would have the lock of that timer, and no thread that unlocks it.
fn timers_fire_beside_forks(procs: usize) {
    let ends = Arc::new(Count::default());
    let all = [Arc::new(Fires::default()), Arc::new(Fires::default())];
    let fork = {
        let all = all.clone();
        move || fork_and_look(|| all.iter().for_each(|fires| fires.now.look()))
    };
    in_runtime(procs, 1, || {
        prepare_preemption();
        let timers = [0, 1].map(|i| all[i].begin());
        for _ in 0..2 {
            let (fork, ends) = (fork.clone(), ends.clone());
            go(move || {
                for _ in 0..2 {
                    block(10_000);
                    fork();
                    inside(yield_now);
                }
                ends.add(1);
            });
        }
        let ended = ends.clone();
        go(move || {
            for _ in 0..5 {
                let _ = inside(|| park::sleep_until(os::time::now() + 5_000, Why::Sleep));
            }
            ended.add(1);
        });
        let others = [
            Plain::start(move || (0..2).for_each(|_| fork())),
            play_sysmon(20, &[Look::Blocks, Look::Events]),
        ];
        others.into_iter().for_each(Plain::join);
        while ends.get() < 3 {
            os::time::sleep(5_000);
        }
        // SAFETY: each has been begun above, and is used no more.
        timers.into_iter().for_each(|timer| unsafe { Timer::free(timer) });
    });
    assert!(all.iter().all(|fires| fires.fired.get() > 0));
}

#[test]
fn no_timer_fires_while_one_forks_on_one_p() {
    check(1500, || timers_fire_beside_forks(1));
}

#[test]
fn no_timer_fires_while_one_forks_on_two_ps() {
    check(1500, || timers_fire_beside_forks(2));
}

/// Events take P's from goroutines that compute, block without a word or are about to enter the library: a plain thread
/// releases a semaphore, timers are due, and idle M's and two threads like sysmon act for them. Each P has one owner, and
/// each event gets its goroutine a P.
fn events_take_ps(procs: usize) {
    let (owners, ends) = (Arc::new(Owners::default()), Arc::new(Count::default()));
    in_runtime(procs, 1, || {
        prepare_preemption();
        let units = Units::new();
        let taken = units.clone();
        go_twice(&owners, &ends, move |_| taken.take());
        go_twice(&owners, &ends, |_| {
            let _ = inside(|| park::sleep_until(os::time::now() + 30_000, Why::Sleep));
        });
        go_twice(&owners, &ends, |_| user_code());
        go_twice(&owners, &ends, |_| block(20_000));
        let source = Plain::start(move || {
            for _ in 0..2 {
                units.give();
                os::time::sleep(20_000);
            }
        });
        let others = [
            source,
            play_sysmon(20, &[Look::Events, Look::Events, Look::Strays]),
            play_sysmon(20, &[Look::Events, Look::Blocks, Look::Slices]),
        ];
        others.into_iter().for_each(Plain::join);
    });
    assert_eq!(ends.get(), 4);
}

#[test]
fn events_take_the_only_p_from_goroutines_in_the_users_code() {
    check(2000, || events_take_ps(1));
}

#[test]
fn events_take_ps_from_goroutines_in_the_users_code() {
    check(2000, || events_take_ps(2));
}

/// Goroutines are back from calls while others compute or block without a word. Third parties take P's, for calls, for
/// events and because they are blocked, and a thread stops the world.
fn back_from_calls(procs: usize) {
    let (owners, ends) = (Arc::new(Owners::default()), Arc::new(Count::default()));
    in_runtime(procs, 1, || {
        prepare_preemption();
        for i in 1..=procs as i64 {
            go_twice(&owners, &ends, move |_| call(i * 7_000));
            go_twice(&owners, &ends, |_| (0..3).for_each(|_| user_code()));
        }
        go_twice(&owners, &ends, |_| block(20_000));
        let others = [
            play_sysmon(20, &[Look::Stands, Look::Calls, Look::Strays]),
            play_sysmon(20, &[Look::Stands, Look::Events, Look::Blocks]),
            stopper(10_000, &owners),
        ];
        others.into_iter().for_each(Plain::join);
    });
    assert_eq!(ends.get(), 2 * procs as u64 + 1);
}

#[test]
fn a_goroutine_is_back_from_a_call_while_another_has_the_only_p() {
    check(2000, || back_from_calls(1));
}

#[test]
fn goroutines_are_back_from_calls_while_others_have_all_ps() {
    check(2000, || back_from_calls(2));
}

/// Timers borrow P's from goroutines that compute. The timers' goroutines give them back when they begin a call, while the
/// lenders call the library. Third parties take the same P's, and a thread stops the world.
fn loans(procs: usize) {
    let (owners, ends) = (Arc::new(Owners::default()), Arc::new(Count::default()));
    in_runtime(procs, 1, || {
        prepare_preemption();
        for _ in 0..procs {
            let (o, e) = (owners.clone(), ends.clone());
            go(move || {
                for _ in 0..4 {
                    let _ = inside(|| park::sleep_until(os::time::now() + 3_000, Why::Sleep));
                    call(2_000);
                    inside(|| o.visit());
                }
                e.add(1);
            });
            let (o, e) = (owners.clone(), ends.clone());
            go(move || {
                for _ in 0..8 {
                    user_code();
                    inside(|| o.visit());
                }
                e.add(1);
            });
        }
        let others = [
            play_sysmon(30, &[Look::Stands, Look::Events]),
            play_sysmon(8, &[Look::Stands, Look::Events, Look::Blocks, Look::Strays]),
            stopper(15_000, &owners),
        ];
        others.into_iter().for_each(Plain::join);
    });
    assert_eq!(ends.get(), 2 * procs as u64);
}

#[test]
fn the_only_p_is_lent_and_given_back() {
    check(6000, || loans(1));
}

#[test]
fn ps_are_lent_and_given_back() {
    check(2000, || loans(2));
}

/// A byte from a file, as `gs_read` reads it.
fn read(fd: i32) -> isize {
    let file = table::get(fd).expect("open");
    inside(|| wait::until_done(fd, file, Want::READ, park::FOREVER, || poll::read(fd)))
}

/// A plain thread writes to files while goroutines compute on all P's, and call the library. An M that has served a reader
/// gives the P back, attends to it, and borrows it again for the next byte. Third parties preempt, take P's of
/// goroutines that seem blocked, and stop the world. Each reader gets each byte.
fn files_beside_goroutines_that_compute(procs: usize) {
    let (owners, ends) = (Arc::new(Owners::default()), Arc::new(Count::default()));
    in_runtime(procs, 1, || {
        prepare_preemption();
        let fds: Vec<i32> = (0..procs).map(|_| poll::make_file()).collect();
        for &fd in &fds {
            let (o, e) = (owners.clone(), ends.clone());
            go(move || {
                for _ in 0..4 {
                    assert_eq!(read(fd), 1);
                    inside(|| o.visit());
                }
                e.add(1);
            });
            let (o, e) = (owners.clone(), ends.clone());
            go(move || {
                for i in 0..3 {
                    (0..20).for_each(|_| user_code());
                    inside(|| {
                        o.visit();
                        if i % 2 == 0 {
                            yield_now();
                        }
                    });
                }
                e.add(1);
            });
        }
        let source = Plain::start(move || {
            for _ in 0..4 {
                fds.iter().for_each(|&fd| poll::write(fd, 1));
                os::time::sleep(2_000);
            }
        });
        let others = [
            source,
            play_sysmon(40, &[Look::Stands]),
            play_sysmon(10, &[Look::Stands, Look::Slices, Look::Events, Look::Blocks]),
            stopper(15_000, &owners),
        ];
        others.into_iter().for_each(Plain::join);
    });
    assert_eq!(ends.get(), 2 * procs as u64);
}

#[test]
fn one_that_attends_to_the_only_p_borrows_it_for_its_files() {
    check(3000, || files_beside_goroutines_that_compute(1));
}

#[test]
fn those_that_attend_to_ps_borrow_them_for_their_files() {
    check(2000, || files_beside_goroutines_that_compute(2));
}

/// Members of a group compute, call and fork, and no signal may stop them. Third parties take their P's, also as if the
/// members were blocked, fork, and stop the world. A native goroutine beside the members still gets a P.
fn members_compute(procs: usize, members: usize) {
    let (owners, ends) = (Arc::new(Owners::default()), Arc::new(Count::default()));
    let group = group::create(members, 0).expect("memory");
    in_runtime(procs, 1, || {
        prepare_preemption();
        for i in 0..2 {
            let (owners, ends) = (owners.clone(), ends.clone());
            go_in_group(group, flags::NOSIGNAL, move || {
                let home = Home::here();
                for _ in 0..2 {
                    user_code();
                    inside(|| owners.visit());
                    if i == 0 {
                        call(5_000);
                    } else {
                        inside(yield_now);
                    }
                    home.check();
                }
                if i == 1 {
                    fork();
                    inside(|| owners.visit());
                }
                ends.add(1);
            });
        }
        let (o, e) = (owners.clone(), ends.clone());
        go(move || {
            for _ in 0..2 {
                inside(yield_now);
                user_code();
                inside(|| o.visit());
            }
            e.add(1);
        });
        let stops = owners.clone();
        let others = [
            play_sysmon(
                25,
                &[Look::Members, Look::Members, Look::Blocks, Look::Slices, Look::Strays],
            ),
            forker(1),
            Plain::start(move || {
                let world = world::stop();
                stops.visit_all();
                world::start(world);
            }),
        ];
        others.into_iter().for_each(Plain::join);
    });
    assert_eq!(ends.get(), 3);
    // SAFETY: its goroutines have ended, and no thread uses it any more.
    assert_eq!(unsafe { group::free(group) }, 0);
}

#[test]
fn members_that_compute_lose_their_p_on_one_p() {
    check(1500, || members_compute(1, 1));
}

#[test]
fn members_that_compute_lose_their_p_on_two_ps() {
    check(1500, || members_compute(2, 2));
}

/// One member of a group is in a call that ends only when a third goroutine of the group has run, and the other member is
/// about to sleep when that goroutine is spawned: it must not be left with the first.
fn a_member_goes_to_sleep(procs: usize) {
    let (begun, ran) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let group = group::create(2, 0).expect("memory");
    let sleep = |ns| park::sleep_until(os::time::now() + ns, Why::Sleep);
    in_runtime(procs, 1, || {
        let (b, r) = (begun.clone(), ran.clone());
        go_in_group(group, 0, move || {
            b.add(1);
            inside(call::enter);
            while r.get() == 0 {
                os::time::sleep(2_000);
            }
            assert_eq!(inside(call::exit), 0);
        });
        let b = begun.clone();
        go_in_group(group, 0, move || {
            b.add(1);
            while b.get() < 2 {
                call(1_000);
            }
        });
        let (b, r) = (begun.clone(), ran.clone());
        go(move || {
            while b.get() < 2 {
                let _ = inside(|| sleep(500));
            }
            go_in_group(group, 0, move || r.add(1));
            (0..2).for_each(|_| inside(yield_now));
        });
    });
    assert_eq!(ran.get(), 1);
    // SAFETY: its goroutines have ended, and no thread uses it any more.
    assert_eq!(unsafe { group::free(group) }, 0);
}

#[test]
fn a_member_does_not_sleep_while_another_has_its_work_on_one_p() {
    check(2000, || a_member_goes_to_sleep(1));
}

#[test]
fn a_member_does_not_sleep_while_another_has_its_work_on_two_ps() {
    check(2000, || a_member_goes_to_sleep(2));
}
