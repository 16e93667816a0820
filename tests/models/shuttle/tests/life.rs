//! The start and the end of a runtime: threads start it, end it, enter it with a call and fork, all at once, again and
//! again. All of it is the library's own code: `init`, `shutdown`, `Guest`, and the handlers of fork.
//!
//! To see that the models notice a mistake, take `wait_until_none_is_inside()` out of `init_with`, and run them: a
//! thread that has found `CHANGING` not set, and only then reads `RUNTIME`, enters a runtime that has no P's yet. The
//! README has more such changes.

use shuttle_models::machine;
use shuttle_models::model::{Count, Plain, check, fork, go};
use shuttle_models::os;
use shuttle_models::sched::ext::hooks;
use shuttle_models::sched::ext::hooks::Hooks;
use shuttle_models::sched::lifecycle::init;
use shuttle_models::sched::prim::config::ConfigRequest;
use shuttle_models::sched::types::p::PStatus;
use shuttle_models::sched::types::runtime::{self, AT_THE_DOOR, CHANGING, GUESTS, Guest, NUMBER};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// The number of P's of a runtime that `init` has made.
const PROCS: usize = 1;
/// The number of P's of a runtime that a call has made, because there was none.
const PROCS_BY_DEFAULT: usize = 2;

/// What the parties of a model count.
#[derive(Default)]
struct Counts {
    /// Runtimes that `init` has made.
    made: Count,
    /// Shutdowns that have begun.
    ending: Count,
    begun: Count,
    ran: Count,
}

impl Counts {
    /// gs_init. Whether it has made the runtime.
    fn init(&self) -> bool {
        let request = ConfigRequest {
            procs: Some(PROCS),
            max_threads: None,
            stack_size: None,
            topology: Some("1"),
            ..ConfigRequest::default()
        };
        match init::init(&request) {
            Ok(()) => self.made.add(1),
            Err(e) => {
                assert_eq!(e, -libc::EBUSY);
                return false;
            }
        }
        true
    }

    fn shutdown(&self, deadline: i64) -> i32 {
        self.ending.add(1);
        init::shutdown(deadline)
    }

    /// A call from outside that begins a goroutine, and makes the runtime if need be.
    fn spawn(self: &Arc<Counts>) {
        let counts = self.clone();
        self.begun.add(1);
        go(move || counts.ran.add(1));
    }
}

/// The caller is inside: the runtime is whole, and stays while others go on. Gives its number.
fn look(_: &Guest) -> u32 {
    let first = runtime::try_rt().expect("inside there is a runtime");
    let number = first.number;
    for _ in 0..3 {
        let rt = runtime::try_rt().expect("the runtime stays while a thread is inside");
        assert_eq!(rt.number, number, "another runtime while a thread is inside");
        let exiting = rt.exiting.load(std::sync::atomic::Ordering::Relaxed);
        assert!(!exiting, "the runtime ends while a thread is inside");
        let procs = rt.procs();
        assert!(procs == PROCS || procs == PROCS_BY_DEFAULT, "{procs} P's");
        assert!(rt.p_if_made(procs - 1).is_some(), "a P has not been made");
        assert!(rt.nodes[0].ps.len() == procs, "a P is in no node");
        assert!(rt.ps().all(|p| p.status() != PStatus::Dead), "a P has not been opened");
    }
    number
}

/// A call from outside that makes no runtime. Whether there was one.
fn visit() -> bool {
    Guest::enter_if_there().is_some_and(|inside| look(&inside) != 0)
}

/// A thread that calls again and again.
fn visit_often(_: &Arc<Counts>) {
    for _ in 0..3 {
        visit();
    }
}

/// A call from outside that makes the runtime if need be.
fn visit_always() {
    match Guest::enter() {
        Ok(inside) => assert_ne!(look(&inside), 0),
        Err(e) => panic!("no runtime: {e}"),
    }
}

/// What one thread of a model does.
type Party = Box<dyn FnOnce(&Arc<Counts>) + Send>;

fn party(f: impl FnOnce(&Arc<Counts>) + Send + 'static) -> Party {
    Box::new(f)
}

/// Runs the parties at once, until all have ended; then ends the runtime. Gives how many runtimes were made.
fn play(parties: Vec<Party>) -> (u64, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let before = NUMBER.peek();
    let begin = |f: Party| {
        let counts = counts.clone();
        Plain::start(move || f(&counts))
    };
    let threads: Vec<_> = parties.into_iter().map(begin).collect();
    threads.into_iter().for_each(Plain::join);
    assert_eq!(init::shutdown(-1), 0);
    assert!(!visit(), "a runtime after the last shutdown");
    assert_eq!(machine::threads(), 1, "a thread has outlived the runtime");
    assert_eq!((GUESTS.is_zero(), AT_THE_DOOR.is_zero(), CHANGING.peek()), (true, true, false));
    assert_eq!(counts.ran.get(), counts.begun.get());
    (u64::from(NUMBER.peek() - before), counts)
}

/// A thread that looks for a runtime meets the start of one.
#[test]
fn a_thread_enters_no_runtime_that_is_being_made() {
    check(3000, || {
        let (made, _) = play(vec![
            party(|c| assert!(c.init())),
            party(visit_often),
            party(|_| {
                if let Some(inside) = Guest::try_enter() {
                    look(&inside);
                }
            }),
        ]);
        assert_eq!(made, 1);
    });
}

/// Two threads start the runtime, and the call of a third.
#[test]
fn starts_at_once_make_one_runtime() {
    let starts = |c: &Arc<Counts>| {
        c.init();
        assert!(visit(), "no runtime after a start");
    };
    check(2000, move || {
        let (made, c) = play(vec![party(starts), party(starts), party(|_| visit_always())]);
        assert_eq!(made, 1);
        assert!(c.made.get() <= 1, "one runtime has been made twice");
    });
}

/// A start makes one runtime or says that there is one, however many end meanwhile.
#[test]
fn starts_and_ends_meet_a_call_and_a_fork() {
    check(1500, || {
        let (made, c) = play(vec![
            party(|c| {
                for _ in 0..2 {
                    c.init();
                    visit();
                }
            }),
            party(|c| (0..2).for_each(|_| assert_eq!(c.shutdown(-1), 0))),
            party(visit_often),
            party(|_| (0..2).for_each(|_| fork())),
        ]);
        assert_eq!(made, c.made.get(), "not each runtime was made by one start");
    });
}

/// Calls that need a runtime find one, or make it, while others start and end runtimes. A goroutine that was begun
/// runs, and a shutdown that doesn't wait for it changes nothing.
#[test]
fn calls_make_a_runtime_while_others_end_it() {
    check(1000, || {
        play(vec![
            party(|c| {
                c.spawn();
                visit_always();
            }),
            party(|c| {
                let e = c.shutdown(0);
                assert!(e == 0 || e == -libc::EAGAIN, "{e}");
                assert_eq!(c.shutdown(-1), 0);
            }),
            party(|c| {
                c.init();
                c.spawn();
            }),
            party(|_| fork()),
        ]);
    });
}

/// A goroutine that is begun at the last moment, by a thread that was inside already, runs before the end.
#[test]
fn a_goroutine_is_begun_while_another_thread_ends_the_runtime() {
    check(3000, || {
        play(vec![
            party(|c| c.spawn()),
            party(|c| assert_eq!(c.shutdown(-1), 0)),
            party(|c| c.spawn()),
        ]);
    });
}

/// A thread that is inside forks, as one may that has stopped the world, while another waits for it to leave.
#[test]
fn a_thread_forks_inside_while_another_ends_the_runtime() {
    check(1500, || {
        play(vec![
            party(|_| match Guest::enter() {
                Ok(inside) => {
                    let number = look(&inside);
                    fork();
                    assert_eq!(look(&inside), number);
                }
                Err(e) => panic!("no runtime: {e}"),
            }),
            party(|c| assert_eq!(c.shutdown(-1), 0)),
            party(|c| {
                c.init();
            }),
        ]);
    });
}

/// A third start begins while the second of two shutdowns is under way, beside a call.
#[test]
fn a_third_start_meets_the_second_shutdown() {
    check(1000, || {
        let (made, _) = play(vec![
            party(|c| {
                for _ in 0..2 {
                    assert!(c.init());
                    assert_eq!(c.shutdown(-1), 0);
                }
            }),
            party(|c| {
                while c.ending.get() < 2 {
                    os::time::sleep(2_000);
                }
                // There may still be the second runtime.
                while !c.init() {
                    os::thread::yield_now();
                }
                assert!(visit(), "the third runtime is not there");
            }),
            party(visit_often),
        ]);
        assert_eq!(made, 3);
    });
}

/// Shutdowns that begin at once end one runtime, and none returns before it is gone.
#[test]
fn shutdowns_at_once_end_one_runtime() {
    let ends = |c: &Arc<Counts>| {
        assert_eq!(c.shutdown(-1), 0);
        assert!(!visit(), "the runtime is there after its end");
    };
    check(2000, move || {
        assert!(Counts::default().init());
        let (made, _) = play(vec![party(ends), party(ends), party(visit_often), party(|_| fork())]);
        assert_eq!(made, 0);
    });
}

unsafe extern "C" fn fork_in_a_hook(_: *mut c_void) {
    fork();
}

/// The hook of the end forks, and so do those of the threads that end, beside others that start, enter and fork.
#[test]
fn the_hooks_of_the_end_fork() {
    check(1000, || {
        let forks = Hooks {
            ctx: os::log::HostArg(ptr::null_mut()),
            thread_start: None,
            thread_stop: Some(fork_in_a_hook),
            switch_in: None,
            switch_out: None,
            switch_over: None,
            idle: None,
            goexit: None,
            dead: None,
            tick: None,
            fork_child: None,
            shutdown: Some(fork_in_a_hook),
            frames: None,
            tick_every: 1,
        };
        assert_eq!(hooks::set(Some(forks)), 0);
        play(vec![
            party(|c| c.spawn()),
            party(|c| assert_eq!(c.shutdown(-1), 0)),
            party(|c| {
                c.init();
                visit();
                fork();
            }),
        ]);
        assert_eq!(hooks::set(None), 0);
    });
}
