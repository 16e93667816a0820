//! Scheduling decisions, among them those of the rows in `docs/seeds.md`, on a real runtime whose
//! world is stopped: the test owns every P and sees each choice.

use super::g0::find_runnable;
use crate::numa::{NumaNode, Topology};
use crate::os::cpu::{self, CpuSet};
use crate::os::{membarrier, thread, time};
use crate::sched::lifecycle::init;
use crate::sched::prim::config::{Config, ConfigRequest};
use crate::sched::run::order::{
    self, GLOBAL, OTHERS, OTHERS_WAIT, TURN, TURNS, next_local, now_and_then,
};
use crate::sched::run::owner::{acquire_p, release_p};
use crate::sched::run::post::Woken;
use crate::sched::run::preempted::{WAKE_UP, computes_from_now};
use crate::sched::run::steal::{from_global, steal_from, work_anywhere, work_for_thieves};
use crate::sched::run::{ready, requests, start};
use crate::sched::services::sysmon;
use crate::sched::take::events::{Heir, take_p};
use crate::sched::take::{loan, preempt, world};
use crate::sched::types::attention;
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::hold::Hold;
use crate::sched::types::m::{self, MRef};
use crate::sched::types::node::priority;
use crate::sched::types::p::{PRef, PStatus, read_clock_next};
use crate::sched::types::runtime::{Runtime, rt};
use crate::sched::types::task::{Newborn, Task, TaskKind};
use crate::sched::wait::netpoll::{self, EventClass, Events};
use crate::sched::wait::timers::queue::{After, Fire, Timer};
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;
use std::process::Command;
use std::sync::Mutex;

/// Held by the test that runs: there is one runtime in a process.
static ALONE: Mutex<()> = Mutex::new(());

struct Stage {
    rt: &'static Runtime,
    m: MRef,
    /// Boxed: queues hold their addresses.
    #[allow(clippy::vec_box)]
    tasks: Vec<Box<Newborn>>,
}

impl Stage {
    /// Runs `f` with P 0 in hand, on an M without a thread; all queues are empty
    /// again when it returns.
    fn set(procs: usize, topology: &str, f: impl FnOnce(&mut Stage)) {
        let request = ConfigRequest {
            procs: Some(procs),
            topology: Some(topology),
            ..ConfigRequest::default()
        };
        Stage::set_by(|| request.resolve(), f);
    }

    /// [`Stage::set`] with any configuration.
    fn set_by(config: impl FnOnce() -> Result<Config, i32>, f: impl FnOnce(&mut Stage)) {
        let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
        assert_eq!(init::init_with(config), Ok(()));
        let rt = rt();
        let world = world::stop();
        assert!(rt.count_m_in());
        let m = rt.add_m(rt.p(0).node as usize).expect("memory");
        let mut stage = Stage { rt, m, tasks: Vec::new() };
        acquire_p(m, rt.p(0));
        rt.p(0).attention.store(0, Ordering::Relaxed);
        f(&mut stage);
        rt.p(0).attention.store(attention::STOP, Ordering::Relaxed);
        if m.spinning.replace(false) {
            rt.idle.spin_ended();
        }
        release_p(m).become_stopped();
        assert!(!work_anywhere(rt), "the test leaves tasks behind");
        rt.forget_m(m);
        world::start(world);
        assert_eq!(init::shutdown(-1), 0);
    }

    fn p(&self, id: usize) -> PRef {
        self.rt.p(id)
    }

    /// Makes a task that is never run. Its name is its number in `tasks`.
    fn task(&mut self) -> Task {
        self.tasks.push(Box::new(Newborn::default()));
        Task::newborn(NonNull::from(self.tasks.last().expect("just pushed").as_ref()))
    }

    /// The task's number, in the order in which the tasks were made.
    fn name(&self, task: Option<Task>) -> Option<usize> {
        let word = task?.into_word();
        let word_of = |n: &Newborn| Task::newborn(NonNull::from(n)).into_word();
        self.tasks.iter().position(|n| word_of(n) == word)
    }

    fn find(&self) -> Option<usize> {
        // So that no queue of `now_and_then` has its turn.
        at_tick(self.p(0), 0);
        self.name(find_runnable(self.m))
    }
}

/// A goroutine that has run before, in no queue. Its descriptor goes back by `put_descriptor`.
fn has_run(s: &Stage) -> Task {
    // SAFETY: the pool holds descriptors.
    let g = unsafe { GRef::from_non_null(s.rt.nodes[0].gs.get().expect("memory")) };
    g.context.store(1, Ordering::Relaxed);
    Task::goroutine(g)
}

/// A task to queue once more. Nothing runs it, so it may be in several places.
fn again(task: &Task) -> Task {
    // SAFETY: the word is a task's, and nothing runs it.
    unsafe { Task::from_word(task.word()) }.expect("a task")
}

fn put_descriptor(s: &Stage, task: Task) {
    match task.kind() {
        TaskKind::Goroutine(g) => s.rt.nodes[0].gs.put(g.as_non_null()),
        TaskKind::Newborn(_) => unreachable!("it is a goroutine"),
    }
}

/// Makes the P look as if it had made `tick` decisions, and had just served its other queues.
fn at_tick(p: PRef, tick: u32) {
    p.tick.store(tick, Ordering::Relaxed);
    p.pace.others_turn.set(p.turn());
}

#[test]
fn b7_n4_queues_are_searched_from_near_to_far() {
    // seed: B7, N4, N8, S10
    Stage::set(4, "node:2 core:2 pu:1", |s| {
        let (own, sibling, far) = (s.p(0), s.p(1), s.p(2));
        assert_eq!(own.node, sibling.node);
        assert_ne!(own.node, far.node);
        let (near, remote) = (own.of_node(), far.of_node());
        let put: [&dyn Fn(Task); 9] = [
            &|t| own.runnext.store(t.into_word(), Ordering::Relaxed),
            &|t| assert!(own.private.push(t.into_word())),
            &|t| assert!(own.shared.push(t.into_word())),
            &|t| near.runq.push(t),
            &|t| assert!(sibling.shared.push(t.into_word())),
            &|t| remote.runq.push(t),
            &|t| assert!(far.shared.push(t.into_word())),
            &|t| assert!(near.push(t, priority::LOW).is_ok()),
            &|t| assert!(near.push(t, priority::IDLE).is_ok()),
        ];
        for place in put {
            place(s.task());
        }
        for n in 0..put.len() {
            assert_eq!(s.find(), Some(n));
        }
        assert_eq!(own.stats.steals_near.load(Ordering::Relaxed), 1);
        assert_eq!(own.stats.steals_remote_queue.load(Ordering::Relaxed), 1);
        assert_eq!(own.stats.steals_remote_p.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn s3_a_thief_takes_half_and_the_oldest_first() {
    // seed: S3
    Stage::set(2, "flat", |s| {
        let room = s.p(0).private.room();
        for _ in 0..8 {
            let t = s.task();
            assert!(s.p(1).private.push(t.into_word()));
        }
        assert_eq!(s.find(), Some(0));
        assert_eq!([0, 1].map(|p| room - s.p(p).private.room()), [3, 4]);
        for n in [3, 2, 1] {
            assert_eq!(s.find(), Some(n));
        }
        while s.p(1).private.pop_back(true).is_some() {}
    });
}

#[test]
fn a_p_that_two_ms_take_for_theirs_ends_the_process() {
    const NAME: &str = "sched::schedule::tests::a_p_that_two_ms_take_for_theirs_ends_the_process";
    const ASKED: &str = "GOSCHED_TEST_TWO_OWNERS";
    if std::env::var_os(ASKED).is_some() {
        // This ends the process: the stage's M runs that P already.
        Stage::set(1, "flat", |s| s.p(0).become_running(s.m));
    }
    let me = std::env::current_exe().expect("a test is a program");
    let run = Command::new(me).args([NAME, "--exact", "--nocapture"]).env(ASKED, "1").output();
    let run = run.expect("it can be started");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success(), "{said}");
    assert!(said.contains("a P that is Running becomes Running"), "{said}");
}

/// A thread that stayed on the CPUs of its former node would be in the way of that node's threads,
/// and leave free CPUs unused.
#[test]
fn a_thread_of_a_node_whose_cpus_are_all_gone_runs_anywhere() {
    /// Above what Linux counts to, so that it refuses this CPU like an unplugged one.
    const GONE: usize = 1 << 16;
    let all = cpu::affinity();
    if all.len() == 1 {
        eprintln!("left out: with one CPU all threads run on the same one");
        return;
    }
    let node = |cpu| NumaNode { os_index: 0, cpus: vec![cpu] };
    let config = || {
        let request = ConfigRequest { procs: Some(2), ..ConfigRequest::default() };
        let topology = Topology {
            nodes: vec![node(all[0]), node(GONE)],
            distances: vec![vec![10, 20], vec![20, 10]],
            is_real: true,
        };
        Ok(Config { topology, bind: true, ..request.resolve()? })
    };
    Stage::set_by(config, |s| {
        // Nodes are numbered in any order.
        let node_of = |cpu| s.rt.topology.nodes.iter().position(|n| n.cpus == [cpu]).unwrap();
        s.m.bind_to(node_of(all[0]));
        assert_eq!(cpu::affinity(), all[..1]);
        s.m.bind_to(node_of(GONE));
        assert_eq!(cpu::affinity(), all);
        // A node whose CPUs are there.
        s.m.bind_to(node_of(all[0]));
        assert_eq!(cpu::affinity(), all[..1]);
        assert!(CpuSet::new(&all).bind());
    });
}

#[test]
fn s3_a_thief_leaves_few_goroutines_to_a_quick_p() {
    // seed: S3
    Stage::set(2, "flat", |s| {
        let (thief, victim, newborn) = (s.p(0), s.p(1), s.task());
        let gs: Vec<_> = (0..9).map(|_| has_run(s)).collect();
        let push = |n: usize| gs[..n].iter().for_each(|g| assert!(victim.private.push(g.word())));
        let steals = |last| {
            let stolen = steal_from(thief, victim, last).is_some();
            [thief, victim].iter().for_each(|p| while p.private.pop_back(true).is_some() {});
            stolen
        };
        victim.become_running(s.m);
        // The victim makes no decisions while the thief watches.
        push(2);
        assert!(!steals(false));
        push(2);
        assert!(steals(true));
        victim.attention.store(0, Ordering::Relaxed);
        victim.set_quick(true);
        push(2);
        assert!(work_anywhere(s.rt) && !work_for_thieves(s.rt, 0) && victim.keeps(&gs[0]));
        assert!(!steals(true));
        // Many goroutines, or a newborn among them.
        push(9);
        assert!(work_for_thieves(s.rt, 0) && !victim.keeps(&gs[0]));
        assert!(steals(false));
        push(2);
        assert!(victim.private.push(newborn.word()));
        assert!(work_for_thieves(s.rt, 0) && !victim.keeps(&newborn));
        assert!(steals(false));
        // One of them hasn't begun.
        let TaskKind::Goroutine(first) = gs[0].kind() else { unreachable!("it is one") };
        first.context.store(0, Ordering::Relaxed);
        push(2);
        assert!(work_for_thieves(s.rt, 0) && !victim.keeps(&gs[0]) && victim.keeps(&gs[1]));
        assert!(steals(false));
        first.context.store(1, Ordering::Relaxed);
        // The victim is asked for something; its M is in a system call; the victim isn't quick any
        // more.
        push(2);
        victim.attention.store(attention::GANG, Ordering::Relaxed);
        assert!(work_for_thieves(s.rt, 0) && !victim.keeps(&gs[0]));
        victim.attention.store(0, Ordering::Relaxed);
        assert!(!work_for_thieves(s.rt, 0));
        assert!(!steals(true));
        victim.leave_to_call(s.m);
        push(2);
        assert!(work_for_thieves(s.rt, 0));
        assert!(victim.take_back(s.m));
        victim.set_quick(false);
        assert!(work_for_thieves(s.rt, 0) && !victim.keeps(&gs[0]));
        assert!(steals(true));
        victim.attention.store(attention::STOP, Ordering::Relaxed);
        victim.become_idle();
        victim.become_stopped();
        gs.into_iter().for_each(|g| put_descriptor(s, g));
    });
}

#[test]
fn w1_one_decision_in_61_begins_with_the_global_queue() {
    // seed: W1
    Stage::set(1, "flat", |s| {
        let (global, local) = (s.task(), s.task());
        s.p(0).of_node().runq.push(global);
        // Number 53 is another queue's turn.
        for tick in (1..=GLOBAL).filter(|t| !t.is_multiple_of(OTHERS)) {
            at_tick(s.p(0), tick - 1);
            assert!(s.p(0).private.push(local.word()));
            let taken = s.name(next_local(s.m, s.p(0)));
            assert_eq!(taken, Some(if tick == GLOBAL { 0 } else { 1 }), "decision {tick}");
        }
        assert_eq!(s.find(), Some(1));
    });
}

#[test]
fn goroutines_that_hand_over_share_one_turn_which_the_clock_ends() {
    Stage::set(1, "flat", |s| {
        let (global, local) = (s.task(), s.task());
        let p = s.p(0);
        p.of_node().runq.push(global);
        let decide_after = |began: i64| {
            p.runnext.store(local.word(), Ordering::Relaxed);
            at_tick(p, GLOBAL - 1);
            p.pace.turn.set(GLOBAL.wrapping_sub(p.inherited.load(Ordering::Relaxed)));
            p.pace.turn_seen_at.set(began);
            read_clock_next(p);
            s.name(next_local(s.m, p))
        };
        assert_eq!(decide_after(time::now()), Some(1));
        assert_eq!(decide_after(time::now() - TURN), Some(0));
        // `local` is behind the others now.
        assert_eq!((p.runnext.load(Ordering::Relaxed), p.shared.len()), (0, 1));
        assert_eq!(s.find(), Some(1));
    });
}

#[test]
fn turns_that_begin_anew_keep_the_other_queues_waiting_for_a_while_only() {
    Stage::set(1, "flat", |s| {
        let (low, local) = (s.task(), s.task());
        let p = s.p(0);
        p.of_node().low.push(low);
        let decide = |n: u32| {
            p.runnext.store(local.word(), Ordering::Relaxed);
            at_tick(p, n * GLOBAL - 1);
            read_clock_next(p);
            s.name(next_local(s.m, p))
        };
        assert_eq!(decide(1), Some(1));
        let began = p.pace.others_wait_since.get();
        // In another turn, the wait of the other queues goes on.
        assert_eq!(decide(2), Some(1));
        assert_eq!(p.pace.others_wait_since.replace(began - OTHERS_WAIT), began);
        assert_eq!(decide(3), Some(0));
        assert_eq!(p.pace.others_wait_since.get(), 0);
        assert_eq!(s.find(), Some(1));
    });
}

#[test]
fn a_p_that_answers_a_request_to_end_its_turn_begins_a_new_turn() {
    Stage::set(1, "flat", |s| {
        let (taken, next) = (s.task(), s.task());
        let p = s.p(0);
        let answer = || {
            let turn = p.turn();
            requests::ask(p, attention::SLICE);
            assert!(!world::give_way(s.m, p));
            assert_eq!(p.attention.load(Ordering::Relaxed), 0);
            assert!(!requests::any_p_is_asked());
            turn
        };
        // A task already taken by the M runs without another decision.
        s.m.stash.set(Some(taken));
        assert_ne!(answer(), p.turn());
        assert_eq!(s.name(s.m.stash.take()), Some(0));
        // The task in `runnext` doesn't inherit the turn.
        p.runnext.store(next.into_word(), Ordering::Relaxed);
        let turn = answer();
        assert_ne!(turn, p.turn());
        assert_eq!(s.name(next_local(s.m, p)), Some(1));
        assert_ne!(turn, p.turn());
    });
}

#[test]
fn an_answer_leaves_the_request_to_another_p() {
    Stage::set(2, "flat", |s| {
        let (p, other) = (s.p(0), s.p(1));
        // The stopper has asked the other P.
        assert_eq!(other.attention.swap(0, Ordering::Relaxed), attention::STOP);
        requests::ask(p, attention::SLICE);
        requests::ask(other, attention::SLICE);
        assert!(!world::give_way(s.m, p));
        assert!(requests::any_p_is_asked());
        other.attention.store(0, Ordering::Relaxed);
        requests::ask(p, attention::SLICE);
        assert!(!world::give_way(s.m, p));
        assert!(!requests::any_p_is_asked());
        other.attention.store(attention::STOP, Ordering::Relaxed);
    });
}

#[test]
fn a_pair_that_hands_over_is_alone_only_while_all_queues_are_empty() {
    Stage::set(1, "flat", |s| {
        let (next, other) = (s.task(), s.task());
        let (p, m) = (s.p(0), s.m);
        let node = p.of_node();
        p.runnext.store(next.into_word(), Ordering::Relaxed);
        // Six turns of the other queues: each of them comes first once.
        let turns = || (1..=6).find_map(|n| now_and_then(m, p, n * OTHERS)).map(Task::into_word);
        assert!(order::nothing_waits(m, p) && !order::nothing_else(m, p));
        assert_eq!(turns(), None);
        let queues: [&dyn Fn(); 8] = [
            &|| assert!(p.shared.push(other.word())),
            &|| assert!(p.private.push(other.word())),
            &|| assert!(p.inbox.try_push(again(&other)).is_ok()),
            &|| m.pinned.push(again(&other)),
            &|| node.runq.push(again(&other)),
            &|| node.high.push(again(&other)),
            &|| node.low.push(again(&other)),
            &|| assert!(node.place(again(&other)).is_ok()),
        ];
        for push in queues {
            push();
            assert!(!order::nothing_waits(m, p) && !order::nothing_else(m, p));
            assert_eq!(turns(), Some(other.word()));
            assert!(order::nothing_waits(m, p) && !order::nothing_else(m, p));
            assert_eq!(turns(), None);
        }
        p.attention.store(attention::SLICE, Ordering::Relaxed);
        assert!(!order::nothing_waits(m, p));
        p.attention.store(0, Ordering::Relaxed);
        assert_eq!(s.name(next_local(m, p)), Some(0));
    });
}

#[test]
fn a_p_whose_goroutine_computes_serves_the_events_of_another_p() {
    membarrier::set_up();
    Stage::set(2, "flat", |s| {
        let (event, own) = (s.task(), s.task());
        let (p, home) = (s.p(0), s.p(1));
        // SAFETY: the descriptor is new.
        let g = unsafe { GRef::from_non_null(s.rt.nodes[0].gs.get().expect("memory")) };
        s.m.tid.store(thread::id(), Ordering::Relaxed);
        s.m.curg.set(g.as_ptr());
        s.m.outside.store(m::OUTSIDE, Ordering::Relaxed);
        let take = || take_p(s.rt, home, time::now(), Heir::Taker);
        assert!(home.inbox.try_push(event).is_ok());
        p.seen_at(time::now());
        assert!(take().is_none(), "its goroutine has just begun");
        p.seen_at(time::now() - 2 * WAKE_UP);
        s.m.outside.store(m::INSIDE, Ordering::Relaxed);
        assert!(take().is_none(), "its goroutine is in the library");
        s.m.outside.store(m::OUTSIDE, Ordering::Relaxed);
        g.set_flag(flags::NOPREEMPT, true);
        assert!(take().is_none(), "its goroutine is not to be preempted");
        g.set_flag(flags::NOPREEMPT, false);
        assert!(take() == Some(p));
        assert_eq!(s.m.hold.get(), Hold::Lent(p.id));
        assert!(take().is_none(), "no M runs it now");

        // The M that gets the P.
        s.m.hold.end();
        s.m.outside.store(m::INSIDE, Ordering::Relaxed);
        s.m.curg.set(ptr::null());
        s.m.p.set(ptr::null());
        acquire_p(s.m, p);
        assert!(p.private.push(own.into_word()));
        assert_eq!((s.find(), s.find()), (Some(0), Some(1)));
        assert_eq!(p.serves.load(Ordering::Relaxed), 0);
    });
}

/// A stage with one P, which the M `s.m` runs; its goroutine computes. Calls `f` with a second M,
/// the borrower.
fn with_lender(f: impl FnOnce(&mut Stage, MRef)) {
    membarrier::set_up();
    Stage::set(2, "flat", |s| {
        let p = s.p(0);
        // SAFETY: the descriptor is new.
        let g = unsafe { GRef::from_non_null(s.rt.nodes[0].gs.get().expect("memory")) };
        s.m.tid.store(thread::id(), Ordering::Relaxed);
        s.m.curg.set(g.as_ptr());
        s.m.outside.store(m::OUTSIDE, Ordering::Relaxed);
        p.seen_at(time::now() - 2 * WAKE_UP);
        let borrower = s.rt.add_m(p.of_node().id).expect("memory");
        f(s, borrower);
        s.m.outside.store(m::INSIDE, Ordering::Relaxed);
        s.m.curg.set(ptr::null());
    });
}

#[test]
fn a_p_on_loan_goes_back_when_the_borrower_begins_a_call() {
    with_lender(|s, borrower| {
        let p = s.p(0);
        let since = p.stands_since();
        for is_asked in [false, true] {
            if is_asked {
                requests::ask(p, attention::SLICE);
            }
            assert!(loan::lend(p, time::now()));
            assert_eq!(s.m.hold.get(), Hold::Lent(p.id));
            assert_eq!(p.attention.load(Ordering::Relaxed), 0, "the request is the lender's");
            acquire_p(borrower, p);
            assert_eq!(p.stands_since(), i64::MAX, "the lender's goroutine isn't on it");
            order::next_tick(p);
            assert!(loan::give_to_lender(borrower, p));
            assert!(p.is_run_by(s.m));
            assert_eq!(p.stands_since(), since, "the turn is the lender's");
            assert_eq!(s.m.hold.get(), Hold::Held);
            let asked = if is_asked { attention::SLICE } else { 0 };
            assert_eq!(p.attention.load(Ordering::Relaxed), asked);
            borrower.p.set(ptr::null());
        }
        p.attention.store(0, Ordering::Relaxed);
    });
}

#[test]
fn a_p_that_a_thread_asks_for_something_is_taken_for_good() {
    with_lender(|s, borrower| {
        let p = s.p(0);
        requests::ask(p, attention::GANG);
        assert!(take_p(s.rt, p, time::now(), Heir::Taker) == Some(p));
        assert_eq!(s.m.hold.get(), Hold::Taken);
        assert!(!p.loan.is_open());
        p.attention.store(0, Ordering::Relaxed);
        acquire_p(borrower, p);
        // The lender has noticed its loss.
        borrower.p.set(ptr::null());
        p.pass_to(s.m);
        s.m.hold.end();
    });
}

#[test]
fn a_preempted_goroutine_does_not_get_a_p_on_loan() {
    with_lender(|s, borrower| {
        let (p, task) = (s.p(0), has_run(s));
        let TaskKind::Goroutine(preempted) = task.kind() else { unreachable!("it is one") };
        preempted.left_at.set(time::now() - 2 * s.rt.slice);
        p.of_node().preempted.push(again(&task));
        assert!(loan::lend(p, time::now()));
        acquire_p(borrower, p);
        assert!(order::preempted_in_turn(p).is_none());
        assert!((0..2000).all(|tick| order::now_and_then(borrower, p, tick).is_none()));
        assert!(from_global(p).is_none());
        assert!(loan::give_to_lender(borrower, p));
        borrower.p.set(ptr::null());
        let now = time::now();
        assert!(loan::may_be_lent(s.rt, p, now));
        p.seen_at(now - s.rt.slice);
        assert!(!loan::may_be_lent(s.rt, p, now), "its goroutine has had its turn");
        assert!(order::preempted_in_turn(p).is_some());
        assert!(loan::may_be_lent(s.rt, p, now), "no other goroutine waits");
        put_descriptor(s, task);
    });
}

#[test]
fn a_lender_that_calls_the_library_has_lost_its_p() {
    with_lender(|s, borrower| {
        let p = s.p(0);
        assert!(loan::lend(p, time::now()));
        acquire_p(borrower, p);
        assert!(s.m.hold.has_lost_p());
        assert_eq!(s.m.hold.get(), Hold::Taken);
        assert!(!loan::give_to_lender(borrower, p));
        assert!(p.is_run_by(borrower) && !p.loan.is_open());
        // The lender gets another P, lends that, and gets it back: each time while the borrower of
        // the first P is late.
        let other = s.p(1);
        s.m.hold.lose(Hold::Lent(other.id));
        p.loan.begin(s.m, time::now(), false, i64::MAX);
        assert!(!loan::give_to_lender(borrower, p), "that loan is the other P's borrower's");
        assert!(p.is_run_by(borrower));
        s.m.p.set(other.as_ptr());
        s.m.hold.end();
        p.pass_to(s.m);
        assert!(!preempt::take(p, s.m, PStatus::Idle), "the M has another P");
        p.pass_to(borrower);
        borrower.p.set(ptr::null());
        p.pass_to(s.m);
        s.m.p.set(p.as_ptr());
    });
}

#[test]
fn an_idle_m_gets_the_p_that_is_taken_for_a_timer_of_another_p() {
    membarrier::set_up();
    Stage::set(2, "flat", |s| {
        let (p, home) = (s.p(0), s.p(1));
        let node = p.of_node();
        // SAFETY: the descriptor is new.
        let g = unsafe { GRef::from_non_null(node.gs.get().expect("memory")) };
        s.m.tid.store(thread::id(), Ordering::Relaxed);
        s.m.curg.set(g.as_ptr());
        s.m.outside.store(m::OUTSIDE, Ordering::Relaxed);
        let idle = s.rt.add_m(node.id).expect("memory");
        node.add_idle_m(idle, false);
        p.seen_at(time::now() - 2 * WAKE_UP);
        // A timer is in no run queue.
        assert!(take_p(s.rt, home, time::now(), Heir::IdleM) == Some(p));
        assert!(idle.gift.take_p() == Some(p));
        assert!(!node.is_idle_p(p));

        s.m.hold.end();
        s.m.outside.store(m::INSIDE, Ordering::Relaxed);
        s.m.curg.set(ptr::null());
        s.m.p.set(ptr::null());
        acquire_p(s.m, p);
        assert_eq!(p.serves.swap(0, Ordering::Relaxed), u32::from(home.id) + 1);
    });
}

#[test]
fn an_event_that_a_preempted_goroutine_keeps_waiting_is_known_until_the_next_decision() {
    Stage::set(1, "flat", |s| {
        let p = s.p(0);
        assert_eq!(p.next_event(), i64::MAX);
        p.let_event_wait();
        computes_from_now(p);
        assert_eq!(p.next_event(), 0);
        order::next_tick(p);
        assert_eq!(p.next_event(), i64::MAX);
    });
}

#[test]
fn what_an_event_made_ready_runs_before_the_turn_is_over() {
    Stage::set(1, "flat", |s| {
        let (woken, local) = (s.task(), s.task());
        let p = s.p(0);
        p.runnext.store(local.word(), Ordering::Relaxed);
        assert!(p.private.push(woken.into_word()));
        p.pace.events.set(1);
        read_clock_next(p);
        assert_eq!((s.find(), s.find()), (Some(0), Some(1)));
    });
}

#[test]
fn what_an_event_made_ready_need_not_wait_until_others_end_a_turn_that_is_over() {
    Stage::set(1, "flat", |s| {
        let (woken, local) = (s.task(), s.task());
        let p = s.p(0);
        p.runnext.store(local.word(), Ordering::Relaxed);
        assert!(p.private.push(woken.into_word()));
        p.pace.turn.set(1u32.wrapping_sub(p.inherited.load(Ordering::Relaxed)));
        p.pace.turn_seen_at.set(time::now() - TURN);
        // A direct switch and then g0 read the clock for the same decision.
        for _ in 0..2 {
            p.pace.note(1, time::now(), true);
        }
        p.pace.set_events(1);
        read_clock_next(p);
        assert_eq!((s.find(), s.find()), (Some(0), Some(1)));
    });
}

#[test]
fn what_came_by_the_inbox_runs_before_a_turn_that_began_meanwhile_is_over() {
    Stage::set(1, "flat", |s| {
        let (before, woken, local) = (s.task(), s.task(), s.task());
        let p = s.p(0);
        assert!(p.shared.push(before.into_word()));
        p.inbox.push(woken);
        p.unusual_at.store(10, Ordering::Relaxed);
        assert_eq!(s.find(), Some(0));
        p.runnext.store(local.word(), Ordering::Relaxed);
        at_tick(p, 0);
        read_clock_next(p);
        assert_eq!((s.find(), s.find()), (Some(1), Some(2)));
    });
}

#[test]
fn room_is_made_for_a_goroutine_of_any_rank_that_is_back_from_a_call() {
    Stage::set(1, "flat", |s| {
        let p = s.p(0);
        let is_back = || sysmon::goroutine_is_back(s.rt, p);
        let says = || s.rt.back_from_call.load(Ordering::Relaxed);
        for queue in [&p.of_node().runq, &p.of_node().high] {
            s.rt.back_from_call.store(true, Ordering::Relaxed);
            queue.push(s.task());
            assert!(is_back() && says());
            assert!(queue.pop().is_some());
            assert!(!is_back() && !says());
        }
    });
}

#[test]
fn the_oldest_goroutine_has_its_turn_after_a_number_of_short_turns() {
    Stage::set(1, "flat", |s| {
        let (newborn, newest) = (s.task(), s.task());
        let oldest = has_run(s);
        let p = s.p(0);
        let turn = (1..).map(|n| n * OTHERS).find(|t| 1 + t / OTHERS % 6 == 2).expect("it comes");
        // A new turn of `newest` has just begun, after `turns` turns without the other queues.
        let decide_after = |turns: u32| {
            at_tick(p, turn - 1);
            // The decision counts as a turn.
            p.pace.others_turn.set(p.turn().wrapping_add(1).wrapping_sub(turns));
            p.pace.others_wait_since.set(0);
            p.runnext.store(newest.word(), Ordering::Relaxed);
            read_clock_next(p);
            next_local(s.m, p)
        };
        assert!(p.private.push(newborn.into_word()));
        assert!(decide_after(TURNS).as_ref() == Some(&newest));
        assert!(p.private.pop_front(true).is_some() && p.private.push(oldest.word()));
        assert!(decide_after(TURNS - 1).as_ref() == Some(&newest));
        assert!(decide_after(TURNS).as_ref() == Some(&oldest));
        // Thieves find `newest`, and the next turns are counted from here.
        assert_eq!((p.runnext.load(Ordering::Relaxed), p.shared.len()), (0, 1));
        assert_eq!(p.turn().wrapping_sub(p.pace.others_turn.get()), 0);
        assert_eq!(s.find(), Some(1));
        put_descriptor(s, oldest);
    });
}

#[test]
fn n5_the_private_queue_is_lifo_and_its_old_end_has_a_turn_too() {
    // seed: N5, S11
    Stage::set(1, "flat", |s| {
        for _ in 0..3 {
            let t = s.task();
            assert!(s.p(0).private.push(t.into_word()));
        }
        assert_eq!(s.find(), Some(2));
        let turn = (1..).map(|n| n * OTHERS).find(|t| 1 + t / OTHERS % 5 == 2).expect("it comes");
        assert_eq!(s.name(now_and_then(s.m, s.p(0), turn)), Some(0));
        assert_eq!(s.find(), Some(1));
    });
}

#[test]
fn n8_the_private_queue_comes_before_the_shared_one_which_is_fifo() {
    // seed: N8
    Stage::set(1, "flat", |s| {
        for n in 0..4 {
            let t = s.task();
            let queue = if n < 2 { &s.p(0).shared } else { &s.p(0).private };
            assert!(queue.push(t.into_word()));
        }
        assert_eq!([(); 4].map(|()| s.find()), [Some(3), Some(2), Some(0), Some(1)]);
    });
}

#[test]
fn s2_n2_idle_ps_are_a_set_of_each_node_and_each_is_taken_once() {
    // seed: S2, N2
    Stage::set(8, "node:4 core:2 pu:1", |s| {
        for node in &s.rt.nodes {
            assert_eq!(node.ps.len(), 2);
            assert!((0..2).all(|i| node.ps.get(i).of_node().id == node.id));
        }
        let p = s.p(5);
        let node = p.of_node();
        assert!(!node.take_idle_p(p));
        node.add_idle_p(p);
        assert_eq!(s.p(0).of_node().take_any_idle_p(8), None);
        let taken = std::thread::scope(|scope| {
            let take = || scope.spawn(|| node.take_any_idle_p(8));
            [take(), take(), take()].map(|t| t.join().expect("no panic"))
        });
        assert_eq!(taken.iter().flatten().collect::<Vec<_>>(), [&5]);
    });
}

#[test]
fn n3_a_p_is_started_on_the_m_that_ran_it_last() {
    // seed: N3, S11
    Stage::set(2, "flat", |s| {
        let p = s.p(1);
        let node = p.of_node();
        let ms = [(); 3].map(|()| s.rt.add_m(node.id).expect("memory"));
        for m in ms {
            node.add_idle_m(m, false);
        }
        s.p(1).last_m.store(ms[0].as_ptr(), Ordering::Relaxed);
        assert!(start::m_for(s.rt, s.p(1), false) == Some(ms[0]));
        // That M isn't idle now, so the M that went idle last, and is still warm, is taken.
        assert!(start::m_for(s.rt, s.p(1), false) == Some(ms[2]));
        assert!(node.take_idle_m(ms[1]));
        s.p(1).last_m.store(ptr::null_mut(), Ordering::Relaxed);
    });
}

#[test]
fn s11_a_goroutine_that_a_plain_thread_wakes_goes_to_the_p_where_it_last_ran() {
    // seed: S11
    Stage::set(4, "node:2 core:2 pu:1", |s| {
        unsafe extern "C" fn nothing(_: *mut c_void) {}
        let g = crate::sched::lifecycle::spawn::create_root(nothing, ptr::null_mut(), 0)
            .expect("memory");
        g.last_p.set(2);
        ready::ready(g, crate::sched::types::waiter::When::Soon);
        assert_eq!(s.p(2).inbox.len(), 1);
        assert!(s.p(2).inbox.pop() == Some(Task::goroutine(g)));
        // The goroutine ends as if it had run.
        g.set_status(Status::Dead);
        s.p(0).count_end();
        s.p(0).of_node().gs.put(g.as_non_null());
    });
}

/// Queues goroutines of files' events by `put`; returns the order in which they would run.
fn order_of(classes: &[EventClass], put: impl FnOnce(&mut Stage, Events)) -> Vec<usize> {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    let mut order = Vec::new();
    Stage::set(2, "flat", |s| {
        let mut found = Events::default();
        let gs: Vec<GRef> = classes
            .iter()
            .map(|&class| {
                let g = crate::sched::lifecycle::spawn::create_root(nothing, ptr::null_mut(), 0)
                    .expect("memory");
                found.add(g, class);
                g
            })
            .collect();
        put(s, found);
        for _ in &gs {
            at_tick(s.p(0), 0);
            let task = find_runnable(s.m);
            order.extend(gs.iter().position(|&g| task == Some(Task::goroutine(g))));
        }
        for g in gs {
            // The goroutines end as if they had run.
            g.set_status(Status::Dead);
            s.p(0).count_end();
            s.p(0).of_node().gs.put(g.as_non_null());
        }
    });
    order
}

#[test]
fn the_watcher_takes_a_p_with_events_from_a_call() {
    Stage::set(2, "flat", |s| {
        let (own, calling) = (s.p(0), s.p(1));
        let caller = s.rt.add_m(calling.of_node().id).expect("memory");
        acquire_p(caller, calling);
        calling.leave_to_call(caller);
        let mut woken = Woken::for_events_of(calling);
        assert!(woken.take_p(s.rt) == Some(calling));
        assert!(!calling.take_back(caller), "the call has lost its P");
        // A P that another M runs is left to that M.
        assert!(Woken::for_events_of(own).take_p(s.rt).is_none());
        assert_eq!((own.status(), calling.status()), (PStatus::Running, PStatus::Idle));
        calling.become_stopped();
        caller.p.set(ptr::null());
        s.rt.ms.with(|ms| ms.free.push(caller));
    });
}

#[test]
fn the_watcher_runs_on_an_idle_p_what_events_of_a_running_p_have_made_ready() {
    let order = order_of(&[EventClass::Read], |s, found| {
        let (idle, busy) = (s.p(1), s.p(0));
        idle.become_idle();
        s.rt.idle.p_idle();
        idle.of_node().add_idle_p(idle);
        let mut woken = Woken::with_found(busy, found);
        assert!(woken.take_p(s.rt) == Some(idle));
        woken.deliver_to_inbox();
        idle.become_stopped();
    });
    assert_eq!(order, [0]);
}

#[test]
fn n8_writers_run_before_readers_and_those_who_accept_come_last() {
    // seed: N8
    use EventClass::{Accept, Read, Write};
    let classes = [Accept, Read, Write, Accept, Read, Write];
    let order = [2, 5, 1, 4, 0, 3];
    assert_eq!(order_of(&classes, |s, found| found.into_queues(s.p(0))), order);
    assert_eq!(order_of(&classes, |s, found| found.into_inbox(s.p(0))), order);
}

#[test]
fn n8_those_who_accept_are_in_the_shared_queue_and_the_others_in_the_private_one() {
    // seed: N8
    let classes = [EventClass::Accept, EventClass::Read, EventClass::Write];
    let in_queues = |s: &mut Stage, found: Events| {
        let room = s.p(0).private.room();
        found.into_queues(s.p(0));
        assert_eq!((room - s.p(0).private.room(), room - s.p(0).shared.room()), (2, 1));
    };
    assert_eq!(order_of(&classes, in_queues), [2, 1, 0]);
}

#[test]
fn n7_root_goroutines_go_to_all_nodes_and_ps_in_turn() {
    // seed: N7
    Stage::set(8, "node:4 core:2 pu:1", |s| {
        let ps: Vec<PRef> = (0..8).map(|_| s.rt.next_root_p()).collect();
        let mut ids: Vec<u16> = ps.iter().map(|p| p.id).collect();
        for four in ps.chunks(4) {
            let mut nodes: Vec<u16> = four.iter().map(|p| p.node).collect();
            nodes.sort_unstable();
            assert_eq!(nodes, [0, 1, 2, 3]);
        }
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7]);
    });
}

#[test]
fn n7_a_burst_of_new_goroutines_is_spread_over_the_nodes() {
    // seed: N7
    Stage::set(4, "node:2 core:2 pu:1", |s| {
        let p = s.p(0);
        let full = p.private.room();
        let in_queues = |s: &Stage| [0, 1].map(|node: usize| s.rt.nodes[node].runq.len());
        for _ in 0..full {
            let task = s.task();
            ready::push_private_quietly(p, task);
        }
        assert_eq!(in_queues(s), [0, 0]);
        // Each half ring that is too much goes to the next node.
        for n in 1..=4 {
            for _ in 0..=full / 2 {
                let task = s.task();
                ready::push_private_quietly(p, task);
            }
            let [first, second] = in_queues(s);
            assert!(first.abs_diff(second) <= full / 2, "{first} and {second}");
            assert!(first + second >= n * full / 2 && (n == 1 || (first > 0 && second > 0)));
        }
        for node in &s.rt.nodes {
            while node.runq.pop().is_some() {}
        }
        while p.private.pop_back(true).is_some() {}
    });
}

#[test]
fn n6_a_file_stays_with_its_home_whoever_waits_for_it() {
    // seed: N6
    use crate::io::file::WaitLock;
    use crate::io::table;
    use crate::io::want::Want;
    Stage::set(2, "node:2 core:1 pu:1", |s| {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let file = table::get(fd).expect("open");
        // Waits as `io::wait` does, but parks no goroutine.
        let wait_on = |p: PRef| {
            let generation = file.enter().expect("no thread closes it").generation;
            match file.lock_to_wait(generation, &Want::READ, file.seen()) {
                WaitLock::Yes(waiting) => {
                    let home = waiting.register(fd, &Want::READ, s.rt, p);
                    waiting.unlock();
                    home.map(|home| home.expect("no read was short").id)
                }
                _ => panic!("nothing has happened"),
            }
        };
        assert_eq!(wait_on(s.p(0)), Ok(0));
        netpoll::poll(s.m, s.p(0));
        // A thief has the goroutine now, and the goroutine waits again.
        assert_eq!(wait_on(s.p(1)), Ok(0));
        netpoll::poll(s.m, s.p(0));
        let before = file.seen();
        std::io::Write::write_all(&mut writer, b"x").expect("room");
        netpoll::poll(s.m, s.p(1));
        assert_eq!(file.seen(), before);
        netpoll::poll(s.m, s.p(0));
        assert_ne!(file.seen(), before);
    });
}

#[test]
fn waits_are_verified_in_pieces() {
    use crate::io::{file, table};
    Stage::set(1, "flat", |_| {
        assert!(table::get(0).is_ok_and(|_| table::get(1).is_ok()), "entries come in chunks");
        file::verify_again();
        let next = netpoll::verify(0, 0).expect("the time is over, and entries are left");
        assert!(!netpoll::is_to_verify());
        // A wait begins behind the place that the pass has reached.
        file::verify_again();
        assert_eq!(netpoll::verify(next, i64::MAX), None);
        assert!(netpoll::is_to_verify(), "another pass has to begin");
        assert_eq!(netpoll::verify(0, i64::MAX), None);
        assert!(!netpoll::is_to_verify());
    });
}

#[test]
fn n12_one_node_is_a_flat_scheduler() {
    // seed: N12
    Stage::set(4, "flat", |s| {
        assert_eq!(s.rt.nodes.len(), 1);
        assert!(s.rt.nodes[0].neighbours.is_empty());
        assert_eq!(s.rt.nodes[0].ps.len(), 4);
    });
}

#[test]
fn a_node_that_loses_its_ps_loses_no_task() {
    Stage::set(8, "node:4 core:2 pu:1", |s| {
        let last = s.p(7).of_node().id;
        for prio in [priority::HIGH, priority::NORMAL, priority::LOW, priority::IDLE] {
            let t = s.task();
            assert!(s.rt.nodes[last].push(t, prio).is_ok());
        }
        s.rt.set_proc_count(1);
        let late = s.task();
        s.rt.push(last, late, priority::NORMAL);
        let p = s.p(0);
        let first = p.of_node();
        assert!(s.rt.nodes.iter().all(|n| n.id == first.id || n.runq.is_empty()));
        let found = [&first.high, &first.runq, &first.runq, &first.low, &first.idle_class];
        assert_eq!(found.map(|q| s.name(q.pop())), [0, 1, 4, 2, 3].map(Some));
        s.rt.set_proc_count(8);
    });
}

/// [`Stage::set`] with two P's. The stage's M is the calling thread's meanwhile.
fn set_as_current(f: impl FnOnce(&mut Stage)) {
    Stage::set(2, "flat", |s| {
        let outside = m::current();
        // SAFETY: the stage's M runs on no other thread.
        unsafe { m::set_current(Some(s.m)) };
        f(s);
        // SAFETY: this is the M, or none, that the thread had before.
        unsafe { m::set_current(outside) };
    });
}

/// Starts a timer that has been due for long, on the P of the calling thread's M.
fn started(fire: Fire, period: i64) -> *const Timer {
    let timer = Timer::new(fire, [0; 2]).expect("memory");
    // SAFETY: the timer was just made.
    assert!(unsafe { &*timer }.start(1, period).is_ok());
    timer
}

/// Starts `timers` timers, which are due and make a task ready each, on the first of two P's, and
/// lets the M there decide. Gives the tasks that the M finds, and whether its first decision gave
/// the second P, which was idle, to an idle M.
fn decide_with_timers(timers: usize) -> (Vec<Option<usize>>, bool) {
    static WORDS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    fn fire(_: &Timer, _: i64) -> After {
        let word = WORDS.lock().expect("no test panics with the lock").pop();
        // SAFETY: the word of a task of the stage's.
        let task =
            word.and_then(|word| unsafe { Task::from_word(word) }).expect("one for each timer");
        ready::push_private(m::current().expect("the stage's").p(), task);
        After::Nothing
    }
    let mut result = (Vec::new(), false);
    set_as_current(|s| {
        let (own, second) = (s.p(0), s.p(1));
        let node = own.of_node();
        let idle = s.rt.add_m(node.id).expect("memory");
        node.add_idle_m(idle, false);
        second.become_idle();
        s.rt.idle.p_idle();
        node.add_idle_p(second);

        let words: Vec<_> = (0..timers).map(|_| s.task().into_word()).collect();
        *WORDS.lock().expect("no test panics with the lock") = words;
        let timers: Vec<_> = (0..timers).map(|_| started(fire, 0)).collect();
        result.0.push(s.find());
        result.1 = idle.gift.take_p() == Some(second);
        result.0.extend((1..timers.len()).map(|_| s.find()));
        result.0.sort();

        // SAFETY: the timers are not used after this.
        timers.into_iter().for_each(|t| unsafe { Timer::free(t) });
        if result.1 {
            s.rt.idle.spin_ended();
        } else {
            assert!(node.take_idle_m(idle) && s.rt.take_idle_p(second));
        }
        second.become_stopped();
    });
    result
}

#[test]
fn another_m_is_woken_for_sleepers_that_the_first_leaves() {
    assert_eq!(decide_with_timers(1), (vec![Some(0)], false));
    assert_eq!(decide_with_timers(2), (vec![Some(0), Some(1)], true));
}

/// The number of a P's timer entries that are counted as dead, and that are dead.
fn dead(p: PRef) -> (i32, i32) {
    p.timers.census()
}

#[test]
fn a_timer_that_a_thief_has_fired_is_dead_where_it_is() {
    use core::sync::atomic::AtomicU32;
    static FIRED: AtomicU32 = AtomicU32::new(0);
    fn fire(_: &Timer, _: i64) -> After {
        FIRED.fetch_add(1, Ordering::Relaxed);
        After::Nothing
    }
    set_as_current(|s| {
        let (own, victim) = (s.p(0), s.p(1));
        // The victim gets a ticker and a timer that fires once.
        release_p(s.m);
        acquire_p(s.m, victim);
        let timers = [3_600_000_000_000, 0].map(|period| started(fire, period));
        release_p(s.m).become_stopped();
        acquire_p(s.m, own);
        assert_eq!(victim.timers.run(2), 2);
        assert_eq!(FIRED.load(Ordering::Relaxed), 2);
        // SAFETY: the timers are freed below.
        assert_eq!(timers.map(|t| unsafe { &*t }.stop()), [true, false]);
        assert_eq!([dead(own), dead(victim)], [(1, 1), (0, 0)]);
        // SAFETY: the timers are not used after this.
        timers.into_iter().for_each(|t| unsafe { Timer::free(t) });
        // A thief that finds the dead entry counts it out.
        assert_eq!(own.timers.run(i64::MAX - 1), 0);
        assert_eq!([dead(own), dead(victim)], [(0, 0), (0, 0)]);
    });
}

#[test]
fn n11_other_nodes_leave_a_node_for_a_while_what_was_spawned_for_it() {
    // seed: N11
    Stage::set(4, "node:2 core:2 pu:1", |s| {
        let (own, far) = (s.p(0), s.p(2));
        let placed = far.of_node();
        assert_ne!(own.node, far.node);
        let tasks: Vec<_> = (0..3).map(|_| s.task()).collect();
        tasks.iter().for_each(|t| assert!(placed.place(again(t)).is_ok()));
        // Thieves take no task before it is due; the node's own P's take one at a time.
        assert!(placed.steal_placed(1_000_000_000).is_none());
        assert!(work_for_thieves(s.rt, far.node as usize) && work_anywhere(s.rt));
        assert!(from_global(far).as_ref() == Some(&tasks[0]) && placed.placed() == 2);
        assert!(placed.steal_placed(0).as_ref() == Some(&tasks[1]));
        // A node without P's gives its tasks away.
        placed.open_queues(false, own.of_node());
        assert!(placed.place(again(&tasks[0])).is_err());
        assert!(own.of_node().runq.pop().as_ref() == Some(&tasks[2]));
        placed.open_queues(true, own.of_node());
    });
}
