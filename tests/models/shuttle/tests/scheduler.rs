//! The scheduler: parking and waking of its threads, and who owns a P.

use shuttle_models::model::{
    Alone, Count, Owners, Plain, actor, body, check, go, go_in_gang, go_referenced, in_runtime,
    yield_now,
};
use shuttle_models::sched::ext::gang;
use shuttle_models::sched::inspect::embed;
use shuttle_models::sched::lifecycle::cancel;
use shuttle_models::sched::lifecycle::goroutine;
use shuttle_models::sched::lifecycle::keys;
use shuttle_models::sched::lifecycle::lock_thread;
use shuttle_models::sched::lifecycle::run;
use shuttle_models::sched::run::park;
use shuttle_models::sched::run::start;
use shuttle_models::sched::take::boundary;
use shuttle_models::sched::take::preempt;
use shuttle_models::sched::take::world;
use shuttle_models::sched::take::{blocking, call};
use shuttle_models::sched::types::g::{G, GRef};
use shuttle_models::sched::types::p::{PRef, PStatus};
use shuttle_models::sched::types::runtime::{self, rt};
use shuttle_models::sched::wait::timers::queue as timer;
use shuttle_models::sync::{Sem, WaitGroup};
use shuttle_models::{machine, os, time};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, Ordering};

/// Begins `n` goroutines, each by a plain thread of its own.
fn from_outside(n: usize, count: &Arc<Count>) {
    let begin = |count: Arc<Count>| Plain::start(move || go(move || count.add(1)));
    let threads: Vec<_> = (0..n).map(|_| begin(count.clone())).collect();
    threads.into_iter().for_each(Plain::join);
}

/// A thread relies on a wake-up that comes to nothing: work is left and every M
/// sleeps.
#[test]
fn one_p_that_goes_idle_does_the_work_that_comes_just_then() {
    check(2500, || {
        let count = Arc::new(Count::default());
        in_runtime(1, 1, || from_outside(3, &count));
        assert_eq!(count.get(), 3);
    });
}

/// [`one_p_that_goes_idle_does_the_work_that_comes_just_then`] with threads that spin, also at the end.
#[test]
fn two_ps_that_go_idle_do_the_work_that_comes_just_then() {
    check(2500, || {
        let count = Arc::new(Count::default());
        in_runtime(2, 1, || from_outside(3, &count));
        assert_eq!(count.get(), 3);
    });
}

/// One M finds work and no other looks for the rest: the two need both P's, for
/// neither of them parks.
#[test]
fn two_goroutines_that_wait_for_each_other_both_run() {
    check(1500, || {
        let met = Arc::new(Count::default());
        let begin = |met: Arc<Count>| {
            Plain::start(move || {
                go(move || {
                    met.add(1);
                    let patience = os::time::now() + 1_000_000_000;
                    while met.get() < 2 {
                        assert!(os::time::now() < patience, "the other one does not run");
                        os::spin::backoff(0);
                    }
                })
            })
        };
        in_runtime(2, 1, || {
            let threads = [begin(met.clone()), begin(met.clone())];
            threads.into_iter().for_each(Plain::join);
        });
    });
}

/// Work is left in the queues of a P whose thread sleeps, or in the other node's.
#[test]
fn goroutines_that_begin_others_and_yield_all_end_on_two_nodes() {
    check(1500, || {
        let count = Arc::new(Count::default());
        in_runtime(2, 2, || {
            for _ in 0..2 {
                let count = count.clone();
                go(move || {
                    for _ in 0..2 {
                        let count = count.clone();
                        go(move || {
                            yield_now();
                            count.add(1);
                        });
                    }
                    yield_now();
                    count.add(1);
                });
            }
        });
        assert_eq!(count.get(), 6);
    });
}

/// The thread that comes back from a system call, sysmon, and another thread in
/// a system call on the same P all want it.
#[test]
fn a_p_has_one_owner_though_system_calls_take_and_leave_it() {
    check(1500, || {
        let (owners, count) = (Arc::new(Owners::default()), Arc::new(Count::default()));
        in_runtime(2, 1, || {
            for i in 0..4 {
                let (owners, count) = (owners.clone(), count.clone());
                go(move || {
                    owners.visit();
                    for round in 0..2 {
                        match i + round {
                            2 => call::enter_block(),
                            _ => call::enter(),
                        };
                        if i % 2 == 0 {
                            os::time::sleep(50_000);
                        }
                        assert_eq!(call::exit(), 0);
                        owners.visit();
                    }
                    count.add(1);
                });
            }
        });
        assert_eq!(count.get(), 4);
    });
}

/// With one P, which each of them needs when its call ends: the thread that comes
/// back, or sysmon, who gives it to the other goroutine.
#[test]
fn a_p_goes_to_sysmon_or_back_to_its_thread_when_a_call_ends() {
    check(4000, || {
        let owners = Arc::new(Owners::default());
        in_runtime(1, 1, || {
            for i in 0..2 {
                let owners = owners.clone();
                go(move || {
                    for round in 1..4 {
                        call::enter();
                        os::time::sleep(i * 20_000 + round * 10_000);
                        assert_eq!(call::exit(), 0);
                        owners.visit();
                    }
                });
            }
        });
    });
}

/// Calls for a pool of threads that is empty at first: each is made once, and its
/// owner goes on after it.
#[test]
fn calls_that_keep_a_thread_are_made_by_a_pool() {
    for procs in [1, 2] {
        check(2500, move || {
            let count = Arc::new(Count::default());
            in_runtime(procs, 1, || {
                for i in 0..3 {
                    let count = count.clone();
                    go(move || {
                        for round in 0..2 {
                            let called = count.clone();
                            let result = rt().workers.call(rt(), move || {
                                os::time::sleep(10_000);
                                called.add(1);
                                i * 2 + round
                            });
                            assert!(result.is_ok_and(|r| r == i * 2 + round));
                        }
                        count.add(100);
                    });
                }
            });
            assert_eq!(count.get(), 3 * 100 + 6);
        });
    }
}

/// A P is taken from a thread that is in the user's code, while that comes back:
/// one of them has it. With one P, so that two in the library are one too many.
#[test]
fn a_p_taken_from_one_that_is_outside_has_one_owner() {
    check(4000, || {
        let owners = Arc::new(Owners::default());
        in_runtime(1, 1, || {
            for _ in 0..2 {
                let owners = owners.clone();
                go(move || {
                    for _ in 0..3 {
                        let inside = boundary::Entered::new();
                        owners.visit();
                        drop(inside);
                        os::time::sleep(10_000);
                    }
                });
            }
            let taker = Plain::start(|| {
                let rt = runtime::rt();
                for _ in 0..6 {
                    take_and_hand_off(rt.p(0));
                    os::time::sleep(5_000);
                }
            });
            taker.join();
        });
    });
}

/// What sysmon does with a P whose M it has found blocked.
fn take_and_hand_off(p: PRef) {
    machine::keep_boundary();
    if let Some(m) = p.runner()
        && preempt::take_outside(runtime::rt(), p, m, PStatus::Idle)
    {
        start::hand_off(p);
    }
}

/// Three goroutines begin and end announced calls on one P and block without a word in between,
/// so the P passes from one call to the next while a thread like sysmon takes it from whatever M
/// it has just read there: an M whose own call began on the P later has no P to lose.
#[test]
fn a_p_passes_from_call_to_call_while_it_is_taken_from_those_that_block() {
    check(6000, || {
        let owners = Arc::new(Owners::default());
        in_runtime(1, 1, || {
            for i in 0..3 {
                let owners = owners.clone();
                go(move || {
                    for round in 0..3 {
                        let inside = boundary::Entered::new();
                        owners.visit();
                        call::enter();
                        drop(inside);
                        os::time::sleep(10_000 * (i + round));
                        let inside = boundary::Entered::new();
                        assert_eq!(call::exit(), 0);
                        owners.visit();
                        drop(inside);
                    }
                });
            }
            let taker = Plain::start(|| {
                // It sleeps between some of its looks only: most of what it is to meet is over
                // within one.
                for look in 0..40 {
                    take_and_hand_off(runtime::rt().p(0));
                    match look % 4 {
                        0 => os::time::sleep(3_000),
                        _ => os::thread::yield_now(),
                    }
                }
            });
            taker.join();
        });
    });
}

/// Events for goroutines that wait find the P's in calls of others, whose M's come back, and sysmon looks. The
/// waker, the M that comes back and the M that has begun another call all may take a P: each P has one owner, and each
/// event gets its goroutine a P.
#[test]
fn an_event_takes_a_p_from_a_call_while_other_calls_begin_and_end() {
    for procs in [1, 2] {
        check(3000, move || {
            let (owners, woken) = (Arc::new(Owners::default()), Arc::new(Count::default()));
            in_runtime(procs, 1, || {
                let sem = Arc::new(Units::new());
                for i in 0..=procs as i64 {
                    let owners = owners.clone();
                    go(move || {
                        for round in 1..4 {
                            call::enter();
                            os::time::sleep(i * 20_000 + round * 10_000);
                            assert_eq!(call::exit(), 0);
                            owners.visit();
                        }
                    });
                }
                let (events, count) = (sem.clone(), woken.clone());
                let waiter = owners.clone();
                go(move || {
                    for _ in 0..3 {
                        events.take();
                        waiter.visit();
                        count.add(1);
                    }
                });
                let source = Plain::start(move || {
                    for _ in 0..3 {
                        sem.give();
                        os::time::sleep(15_000);
                    }
                });
                source.join();
            });
            assert_eq!(woken.get(), 3);
        });
    }
}

/// The work comes while the P is given up, and the call ends when it is done.
#[test]
fn work_is_done_though_the_p_is_handed_off_just_then() {
    check(4000, || {
        let count = Arc::new(Count::default());
        in_runtime(1, 1, || {
            let done = count.clone();
            go(move || {
                call::enter_block();
                let patience = os::time::now() + 1_000_000_000;
                while done.get() == 0 {
                    assert!(os::time::now() < patience, "the work waits for a P that is idle");
                    os::time::sleep(1_000_000);
                }
                assert_eq!(call::exit(), 0);
            });
            from_outside(1, &count);
        });
    });
}

/// While the world is stopped no goroutine has a P, whatever calls begin and end.
#[test]
fn a_stopped_world_stands_still() {
    check(4000, || {
        let still = Arc::new(Alone::default());
        in_runtime(1, 1, || {
            let runs = still.clone();
            go(move || {
                for _ in 0..3 {
                    call::enter();
                    assert_eq!(call::exit(), 0);
                    runs.look();
                }
            });
            for _ in 0..2 {
                let world = world::stop();
                still.visit();
                world::start(world);
            }
        });
    });
}

/// The thread that stops the world takes P's in system calls and idle ones, and gives
/// all of them back.
#[test]
fn stopping_the_world_leaves_no_p_with_two_owners_and_none_without() {
    check(1000, || {
        let (owners, count) = (Arc::new(Owners::default()), Arc::new(Count::default()));
        in_runtime(2, 1, || {
            for _ in 0..3 {
                let (owners, count) = (owners.clone(), count.clone());
                go(move || {
                    owners.visit();
                    call::enter();
                    call::exit();
                    owners.visit();
                    yield_now();
                    owners.visit();
                    count.add(1);
                });
            }
            let stopper = Plain::start(|| {
                world::gomaxprocs(1);
                world::gomaxprocs(3);
            });
            world::gomaxprocs(2);
            stopper.join();
        });
        assert_eq!(count.get(), 3);
    });
}

/// A node loses its last P: what its queues hold and what is on its way there
/// runs elsewhere.
#[test]
fn goroutines_of_a_node_without_ps_all_end() {
    check(1500, || a_node_loses_its_ps(false));
}

#[test]
fn goroutines_of_a_node_all_end_that_gets_its_ps_back() {
    check(1500, || a_node_loses_its_ps(true));
}

fn a_node_loses_its_ps(gets_them_back: bool) {
    let count = Arc::new(Count::default());
    in_runtime(2, 2, || {
        let gate = Gate::new();
        for _ in 0..2 {
            let (gate, count) = (gate.clone(), count.clone());
            go(move || {
                let inner = count.clone();
                go(move || {
                    let _ = time::sleep(20_000);
                    inner.add(1);
                });
                gate.pass();
                call::enter();
                call::exit();
                count.add(1);
            });
        }
        let c = count.clone();
        let others = Plain::start(move || {
            gate.open();
            go(move || c.add(1));
        });
        world::gomaxprocs(1);
        if gets_them_back {
            world::gomaxprocs(2);
        }
        others.join();
    });
    assert_eq!(count.get(), 5);
}

/// The goroutine that stops the world keeps its P, also when another one does
/// the same.
#[test]
fn two_goroutines_stop_the_world_one_after_the_other() {
    check(1000, || {
        let (owners, stopped) = (Arc::new(Owners::default()), Arc::new(Alone::default()));
        in_runtime(2, 1, || {
            for _ in 0..2 {
                let (owners, stopped) = (owners.clone(), stopped.clone());
                go(move || {
                    let world = world::stop();
                    stopped.visit();
                    world::start(world);
                    owners.visit();
                });
            }
            let owners = owners.clone();
            go(move || {
                owners.visit();
                call::enter();
                call::exit();
                owners.visit();
            });
        });
    });
}

/// The call runs on the thread's own stack while its goroutine waits; the P goes
/// to others.
#[test]
fn blocking_calls_give_their_result_to_their_goroutine() {
    extern "C" fn add_one(n: *mut core::ffi::c_void) -> *mut core::ffi::c_void {
        os::time::sleep(100_000);
        n.wrapping_byte_add(1)
    }
    check(1500, || {
        let count = Arc::new(Count::default());
        in_runtime(1, 1, || {
            for i in 0..3 {
                let count = count.clone();
                go(move || {
                    // SAFETY: it takes any argument.
                    let result =
                        unsafe { blocking::call(add_one, core::ptr::without_provenance_mut(i)) };
                    assert_eq!(result.addr(), i + 1);
                    count.add(1);
                });
            }
        });
        assert_eq!(count.get(), 3);
    });
}

/// Closed at first.
struct Gate(WaitGroup);

// SAFETY: it may be used by any thread.
unsafe impl Send for Gate {}
// SAFETY: likewise.
unsafe impl Sync for Gate {}

impl Gate {
    fn new() -> Arc<Gate> {
        // SAFETY: valid when zero.
        let gate = Arc::new(Gate(unsafe { std::mem::zeroed() }));
        assert_eq!(gate.0.add(1), 0);
        gate
    }

    fn open(&self) {
        assert_eq!(self.0.add(-1), 0);
    }

    fn pass(&self) {
        assert_eq!(self.0.wait(park::FOREVER), 0);
    }
}

/// A plain thread that lends itself gets back when its function has ended, and
/// not before; it isn't needed any more then.
#[test]
fn a_borrowed_thread_goes_back_when_its_goroutine_has_ended() {
    check(1500, || {
        let count = Arc::new(Count::default());
        in_runtime(2, 1, || {
            let runs = |count: Arc<Count>| {
                move || {
                    let (mine, other) = (Arc::new(Count::default()), count.clone());
                    let done = mine.clone();
                    let (f, arg) = body(move || {
                        go(move || other.add(1));
                        yield_now();
                        done.add(1);
                    });
                    assert_eq!(run::run(f, arg, 0), 0);
                    assert_eq!(mine.get(), 1);
                }
            };
            let plain = Plain::start(runs(count.clone()));
            runs(count.clone())();
            plain.join();
        });
        assert_eq!(count.get(), 2);
    });
}

/// The thread is wanted back while it runs others, or is just about to: these go
/// on until it is back.
#[test]
fn a_borrowed_thread_goes_back_though_others_keep_it_busy() {
    check(8000, || {
        let back = Arc::new(Count::default());
        in_runtime(2, 1, || {
            // The goroutine that lets it continue runs next, usually on another thread.
            let gate = Gate::new();
            let (others, g) = (back.clone(), gate.clone());
            let (f, arg) = body(move || {
                g.pass();
                for _ in 0..2 {
                    let back = others.clone();
                    go(move || {
                        while back.get() == 0 {
                            yield_now();
                        }
                    });
                }
            });
            let from_outside = Plain::start(move || go(move || gate.open()));
            assert_eq!(run::run(f, arg, 0), 0);
            back.add(1);
            from_outside.join();
        });
    });
}

/// A borrowed thread goes back that was to see to the timers of idle P's, since its
/// goroutine has ended elsewhere: another M does.
#[test]
fn a_borrowed_thread_that_goes_back_leaves_no_timer_alone() {
    check(4000, || {
        let (sleeps, wakes) = (Arc::new(Count::default()), Arc::new(Count::default()));
        in_runtime(2, 1, || {
            let (gate, before, after) = (Gate::new(), sleeps.clone(), wakes.clone());
            let g = gate.clone();
            let (f, arg) = body(move || {
                go(move || {
                    before.add(1);
                    assert_eq!(time::sleep(5_000_000), 0);
                    after.add(1);
                });
                g.pass();
            });
            let sleeps = sleeps.clone();
            let elsewhere = Plain::start(move || {
                go(move || {
                    while sleeps.get() == 0 {
                        yield_now();
                    }
                    assert_eq!(time::sleep(50_000), 0);
                    gate.open();
                });
            });
            assert_eq!(run::run(f, arg, 0), 0);
            elsewhere.join();
        });
        assert_eq!(wakes.get(), 1);
    });
}

/// The timer watcher, which sleeps until a timer of an idle P is due, gets another P, blocks, and finds no work for that
/// P: another thread watches the timers all the same.
#[test]
fn timers_are_watched_although_their_watcher_blocks() {
    check(4000, || {
        let woken = Arc::new(Count::default());
        in_runtime(3, 1, || {
            let gate = Gate::new();
            let block = |gate: Arc<Gate>| {
                assert_eq!(call::enter_block(), 0);
                gate.pass();
                assert_eq!(call::exit(), 0);
            };
            let (open, count) = (gate.clone(), woken.clone());
            go(move || {
                assert_eq!(time::sleep(20_000_000), 0);
                count.add(1);
                open.open();
            });
            for _ in 0..2 {
                let (one, other) = (gate.clone(), gate.clone());
                go(move || {
                    go(move || block(other));
                    yield_now();
                    block(one);
                });
            }
        });
        assert_eq!(woken.get(), 1);
    });
}

/// A goroutine that owns its thread is handed over to it with a P, by whoever
/// makes it ready.
#[test]
fn a_locked_goroutine_runs_on_its_own_thread_only() {
    check(1500, || {
        let count = Arc::new(Count::default());
        in_runtime(2, 1, || {
            for _ in 0..2 {
                let count = count.clone();
                go(move || {
                    lock_thread::lock();
                    let thread = os::thread::id();
                    yield_now();
                    assert_eq!(os::thread::id(), thread);
                    call::enter();
                    call::exit();
                    assert_eq!(os::thread::id(), thread);
                    if count.get() == 0 {
                        assert_eq!(lock_thread::unlock(), 0);
                    }
                    count.add(1);
                });
            }
            let count = count.clone();
            go(move || count.add(1));
        });
        assert_eq!(count.get(), 3);
    });
}

/// A sleep ends though every P is idle, or busy with something else.
#[test]
fn sleeping_goroutines_wake_up() {
    check(1000, || {
        let count = Arc::new(Count::default());
        in_runtime(2, 1, || {
            for i in 1..4 {
                let count = count.clone();
                go(move || {
                    let until = os::time::now() + i * 500_000;
                    assert_eq!(time::sleep(i * 500_000), 0);
                    assert!(os::time::now() >= until, "it woke up too early");
                    count.add(1);
                });
            }
        });
        assert_eq!(count.get(), 3);
    });
}

/// A park by hand is woken, cancelled and timed out at once, some of it before its commit is
/// over: the goroutine stays at rest until then, and one waker has woken it.
#[test]
fn a_goroutine_that_parks_by_hand_rests_until_its_commit_is_over() {
    struct Hand {
        commits: Count,
        wakes: Count,
        resting: Alone,
    }
    unsafe extern "C" fn commit(_: *const G, hand: *mut c_void) -> bool {
        // SAFETY: the model's own, which outlives the goroutine.
        let hand = unsafe { &*hand.cast::<Hand>() };
        hand.commits.add(1);
        hand.resting.visit();
        hand.resting.visit();
        os::time::now() % 4 != 0
    }
    check(2500, || {
        let hand = Arc::new(Hand {
            commits: Count::default(),
            wakes: Count::default(),
            resting: Alone::default(),
        });
        in_runtime(2, 1, || {
            let parks = hand.clone();
            let g = go_referenced(move || {
                let deadline = os::time::now() + 20_000;
                let arg = Arc::as_ptr(&parks).cast_mut().cast();
                // SAFETY: `hand` lives longer.
                let result = unsafe { embed::park(Some(commit), arg, deadline) };
                parks.resting.visit();
                match result {
                    0 => {}
                    r => assert!(r == -libc::ETIMEDOUT || r == -libc::ECANCELED, "{r}"),
                }
            });
            let (wakes, address) = (hand.clone(), g.address());
            // SAFETY: the model has a reference until both have ended.
            let g_of = |address| unsafe { GRef::at(address) };
            let waker = Plain::start(move || {
                let g = g_of(address);
                let _inside = runtime::Guest::enter();
                for _ in 0..3 {
                    wakes.wakes.add(u64::from(embed::ready(g)));
                }
            });
            let canceller = Plain::start(move || {
                let g = g_of(address);
                let _inside = runtime::Guest::enter();
                cancel::cancel(g);
            });
            waker.join();
            canceller.join();
            goroutine::release(g);
        });
        assert!(hand.commits.get() <= 1 && hand.wakes.get() <= 1);
    });
}

/// Two delete one key while a third makes others in its place: it loses none of them.
#[test]
fn a_key_is_deleted_once() {
    check(2500, || {
        let Ok(key) = keys::create(None) else { panic!("too many keys") };
        let deletes = Arc::new(Count::default());
        let delete = |deletes: Arc<Count>| {
            Plain::start(move || deletes.add(u64::from(keys::delete(key) == 0)))
        };
        let threads = [delete(deletes.clone()), delete(deletes.clone())];
        let creates = Plain::start(|| {
            for _ in 0..3 {
                let Ok(mine) = keys::create(None) else { panic!("too many keys") };
                assert_eq!(keys::delete(mine), 0);
            }
        });
        threads.into_iter().for_each(Plain::join);
        creates.join();
        assert_eq!(deletes.get(), 1);
    });
}

/// A cancel comes before the park, while its registers are being saved, or
/// against the deadline: the goroutine wakes up once.
#[test]
fn a_cancel_meets_a_park_at_any_moment() {
    check(2500, || {
        in_runtime(2, 1, || {
            let g = go_referenced(|| {
                let _ = time::sleep(200_000);
                let _ = time::sleep(200_000);
            });
            cancel::cancel(g);
            assert_eq!(goroutine::join(g, park::FOREVER), 0);
            goroutine::release(g);
        });
    });
}

/// A cancel meets the begin of a park that nothing else will end.
#[test]
fn a_cancel_is_never_overlooked() {
    check(4000, || {
        in_runtime(2, 1, || {
            let (gate, begun) = (Gate::new(), Arc::new(Count::default()));
            let b = begun.clone();
            let g = go_referenced(move || {
                b.add(1);
                assert_eq!(gate.0.wait(park::FOREVER), -libc::ECANCELED);
            });
            while begun.get() == 0 {
                os::spin::backoff(0);
            }
            cancel::cancel(g);
            assert_eq!(goroutine::join(g, park::FOREVER), 0);
            goroutine::release(g);
        });
    });
}

/// A cancel meets a goroutine that disables cancelling, waits, and enables it: the wait goes on until
/// its deadline, and the next one after that, which nothing else would end, is cancelled.
#[test]
fn a_cancel_waits_until_it_is_enabled() {
    check(4000, || {
        in_runtime(2, 1, || {
            let (gate, begun) = (Gate::new(), Arc::new(Count::default()));
            let b = begun.clone();
            let g = go_referenced(move || {
                cancel::disable();
                b.add(1);
                let deadline = os::time::now() + 20_000;
                assert_eq!(gate.0.wait(deadline), -libc::ETIMEDOUT);
                assert_eq!(cancel::enable(), 0);
                assert_eq!(gate.0.wait(park::FOREVER), -libc::ECANCELED);
            });
            while begun.get() == 0 {
                os::spin::backoff(0);
            }
            cancel::cancel(g);
            assert_eq!(goroutine::join(g, park::FOREVER), 0);
            goroutine::release(g);
        });
    });
}

/// A cancel that has seen a wait which may be cancelled comes late, to a wait which may not: that wait takes a
/// lock that another goroutine has.
#[test]
fn a_cancel_that_comes_late_leaves_a_later_wait_alone() {
    check(4000, || {
        in_runtime(2, 1, || {
            let (gate, begun) = (Gate::new(), Arc::new(Count::default()));
            let b = begun.clone();
            let g = go_referenced(move || {
                b.add(1);
                for _ in 0..2 {
                    let r = gate.0.wait(os::time::now() + 5_000);
                    assert!(r == -libc::ETIMEDOUT || r == -libc::ECANCELED, "{r}");
                    cancel::disable();
                    assert_eq!(gate.0.wait(os::time::now() + 5_000), -libc::ETIMEDOUT);
                    assert_eq!(cancel::enable(), 0);
                }
                assert_eq!(gate.0.wait(park::FOREVER), -libc::ECANCELED);
            });
            while begun.get() == 0 {
                os::spin::backoff(0);
            }
            cancel::cancel(g);
            assert_eq!(goroutine::join(g, park::FOREVER), 0);
            goroutine::release(g);
        });
    });
}

/// Two stop a timer that fires, and whose function may start it once more: when both have it from the
/// timer that the function doesn't run, it doesn't, and is not called any more.
#[test]
fn a_timer_is_stopped_when_its_function_has_ended() {
    struct Used {
        timer: AtomicPtr<timer::Timer>,
        again: Count,
        running: Count,
        ended: Count,
        gone: AtomicBool,
    }
    unsafe extern "C" fn function(used: *mut c_void) {
        // SAFETY: the model's own, which outlives the timer's calls: that is what it shows.
        let used = unsafe { &*used.cast::<Used>() };
        assert!(!used.gone.load(Ordering::Relaxed), "called after the end");
        used.running.add(1);
        os::time::now();
        if used.again.get() == 0 {
            used.again.add(1);
            // SAFETY: freed after both have waited for us.
            let timer = unsafe { &*used.timer.load(Ordering::Relaxed) };
            assert!(time::reset(timer, 3_000).is_ok());
        }
        os::time::now();
        assert!(!used.gone.load(Ordering::Relaxed), "it still runs");
        used.ended.add(1);
    }
    check(2500, || {
        let used = Arc::new(Used {
            timer: AtomicPtr::default(),
            again: Count::default(),
            running: Count::default(),
            ended: Count::default(),
            gone: AtomicBool::new(false),
        });
        in_runtime(2, 1, || {
            let arg = Arc::as_ptr(&used).cast_mut().cast();
            let Ok(timer) = time::after_func(1_000_000_000_000, function, arg) else {
                panic!("no timer")
            };
            used.timer.store(timer.cast_mut(), Ordering::Relaxed);
            // SAFETY: freed below.
            let timer = unsafe { &*timer };
            assert!(time::reset(timer, 2_000).is_ok());
            let waits = |used: Arc<Used>| {
                move || {
                    // Until it is about to fire, mostly.
                    assert_eq!(time::sleep(2_000), 0);
                    // SAFETY: freed when this has ended.
                    let timer = unsafe { &*used.timer.load(Ordering::Relaxed) };
                    assert!(timer.stop_and_wait(park::FOREVER).is_ok());
                }
            };
            let goroutine = go_referenced(waits(used.clone()));
            let plain = Plain::start(waits(used.clone()));
            assert_eq!(goroutine::join(goroutine, park::FOREVER), 0);
            goroutine::release(goroutine);
            plain.join();
            // A start that the function has made before one of them has looked is over too, unless
            // both had looked before: then it is ours to stop.
            assert!(timer.stop_and_wait(park::FOREVER).is_ok());
            used.gone.store(true, Ordering::Relaxed);
            // SAFETY: used no more.
            unsafe { timer::Timer::free(timer) };
        });
        assert_eq!(used.running.get(), used.ended.get());
    });
}

/// A goroutine and a thread put a timer off that fires: it is called once for its first start, and once for each start
/// that found it fired already.
#[test]
fn a_timer_that_is_put_off_fires_once_for_each_start() {
    struct Used {
        timer: AtomicPtr<timer::Timer>,
        calls: Count,
        starts: Count,
        last_call: AtomicI64,
        put_off_until: AtomicI64,
    }
    unsafe extern "C" fn function(used: *mut c_void) {
        // SAFETY: the model's own, which outlives the timer's calls.
        let used = unsafe { &*used.cast::<Used>() };
        used.last_call.fetch_max(os::time::now(), Ordering::SeqCst);
        used.calls.add(1);
    }
    check(2500, || {
        let used = Arc::new(Used {
            timer: AtomicPtr::default(),
            calls: Count::default(),
            starts: Count::default(),
            last_call: AtomicI64::new(0),
            put_off_until: AtomicI64::new(i64::MAX),
        });
        in_runtime(2, 1, || {
            let arg = Arc::as_ptr(&used).cast_mut().cast();
            let Ok(timer) = time::after_func(2_000, function, arg) else { panic!("no timer") };
            used.starts.add(1);
            used.timer.store(timer.cast_mut(), Ordering::Relaxed);
            let puts_off = |used: Arc<Used>, rest: i64| {
                move || {
                    // Until it is about to fire, mostly.
                    assert_eq!(time::sleep(rest), 0);
                    // SAFETY: freed when this has ended.
                    let timer = unsafe { &*used.timer.load(Ordering::Relaxed) };
                    used.put_off_until.fetch_min(os::time::now() + 2_000, Ordering::SeqCst);
                    match time::reset(timer, 2_000) {
                        Ok(true) => {}
                        Ok(false) => used.starts.add(1),
                        Err(e) => panic!("{e}"),
                    }
                }
            };
            let goroutine = go_referenced(puts_off(used.clone(), 1_000));
            let plain = Plain::start(puts_off(used.clone(), 2_000));
            assert_eq!(goroutine::join(goroutine, park::FOREVER), 0);
            goroutine::release(goroutine);
            plain.join();
            while used.calls.get() < used.starts.get() {
                assert_eq!(time::sleep(1_000), 0);
            }
            assert_eq!(time::sleep(10_000), 0);
            // SAFETY: used no more.
            unsafe { timer::Timer::free(timer) };
        });
        assert_eq!(used.calls.get(), used.starts.get());
        // Either of the two may have had the last word.
        let [last, until] =
            [&used.last_call, &used.put_off_until].map(|t| t.load(Ordering::SeqCst));
        assert!(last >= until, "{last} is before {until}");
    });
}

/// Two that join it and its end: each is woken once, and the last reference
/// frees it.
#[test]
fn the_end_of_a_goroutine_meets_its_joiners() {
    check(1500, || {
        let count = Arc::new(Count::default());
        in_runtime(2, 1, || {
            let end = count.clone();
            let g = go_referenced(move || end.add(1));
            g.refs.fetch_add(2, core::sync::atomic::Ordering::Relaxed);
            let g = Shared(g);
            let join = |count: Arc<Count>| {
                actor(move || {
                    let Shared(g) = { g };
                    let result = goroutine::join(g, os::time::now() + 100_000);
                    assert!(
                        result == -libc::ETIMEDOUT || (result == 0 && count.get() > 0),
                        "{result}"
                    );
                    goroutine::release(g);
                })
            };
            go(join(count.clone()));
            let plain = Plain::start(join(count.clone()));
            goroutine::release(g.0);
            plain.join();
        });
    });
}

#[derive(Clone, Copy)]
struct Shared(shuttle_models::sched::types::g::GRef);
// SAFETY: a pointer to what stays while there are references.
unsafe impl Send for Shared {}

/// A semaphore that begins with nothing.
struct Units(Sem);

impl Units {
    fn new() -> Units {
        Units(Sem::with(0))
    }

    fn take(&self) {
        assert_eq!(self.0.acquire(1, park::FOREVER), 0);
    }

    fn give(&self) {
        assert_eq!(self.0.release(1), 0);
    }
}

// SAFETY: any thread may use a semaphore.
unsafe impl Send for Units {}

/// A member is ready and no P takes it: its gang waits for its turn, or a P of the gang
/// waits for members, runs something else, or has just gone idle.
fn gangs_beside_another(procs: usize, gangs: u64) {
    check(1000, move || {
        let count = Arc::new(Count::default());
        in_runtime(procs, 1, || {
            for _ in 0..gangs {
                let gang = gang::create().expect("memory");
                let (there, back) = (Arc::new(Units::new()), Arc::new(Units::new()));
                let (count1, there1, back1) = (count.clone(), there.clone(), back.clone());
                go_in_gang(gang, move || {
                    for _ in 0..2 {
                        there1.give();
                        back1.take();
                    }
                    count1.add(1);
                });
                let count2 = count.clone();
                go_in_gang(gang, move || {
                    for _ in 0..2 {
                        there.take();
                        yield_now();
                        back.give();
                    }
                    count2.add(1);
                });
                gang::release(gang);
            }
            let count = count.clone();
            go(move || {
                for _ in 0..3 {
                    yield_now();
                }
                count.add(1);
            });
        });
        assert_eq!(count.get(), 2 * gangs + 1);
    });
}

#[test]
fn members_of_a_gang_run_beside_another_on_one_p() {
    gangs_beside_another(1, 1);
}

#[test]
fn members_of_a_gang_run_beside_another_on_two_ps() {
    gangs_beside_another(2, 1);
}

#[test]
fn members_of_two_gangs_run_beside_another() {
    gangs_beside_another(2, 2);
}

/// They meet only if they run at the same time: the P that fills its slot with the
/// other, which never parks, must take the member that becomes ready meanwhile.
#[test]
fn a_member_gets_a_p_though_another_goroutine_fills_the_slot() {
    check(1500, || {
        let done = Arc::new(Count::default());
        in_runtime(2, 1, || {
            let gang = gang::create().expect("memory");
            let there = Arc::new(Units::new());
            let (done1, there1) = (done.clone(), there.clone());
            go_in_gang(gang, move || {
                there1.take();
                done1.add(1);
            });
            let done2 = done.clone();
            go_in_gang(gang, move || {
                there.give();
                done2.add(1);
            });
            gang::release(gang);
            let done = done.clone();
            go(move || {
                let patience = os::time::now() + 1_000_000_000;
                while done.get() < 2 {
                    assert!(os::time::now() < patience, "the members do not run");
                    boundary::outside(|| os::spin::backoff(0));
                }
            });
        });
        assert_eq!(done.get(), 2);
    });
}
