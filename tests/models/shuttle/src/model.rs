//! How the models are run, and what they are written with.

use crate::machine;
use crate::os::thread::Thread;
use crate::sched::config::Request;
use crate::sched::g::GRef;
use crate::sched::task::GoFn;
use crate::sched::{runtime, spawn};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The runtime is one for each process, and so is what shuttle runs with one.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs a model `times` times with each of shuttle's schedulers: one chooses the
/// next thread each time anew, the other one (PCT) changes its mind seldom.
pub fn check(times: usize, model: impl Fn() + Send + Sync + 'static) {
    let _alone = ALONE.lock().expect("an earlier model has failed and left its runtime: run this one alone");
    let times = times * factor();
    let model = Arc::new(model);
    let began = Instant::now();
    run(RandomScheduler::new(times), model.clone());
    run(PctScheduler::new(3, times), model);
    println!("2 * {times} interleavings in {:.1} s", began.elapsed().as_secs_f64());
}

/// `MODEL_FACTOR`: so many times as many runs as usual.
fn factor() -> usize {
    std::env::var("MODEL_FACTOR").ok().and_then(|f| f.parse().ok()).unwrap_or(1)
}

fn run(scheduler: impl Scheduler + 'static, model: Arc<impl Fn() + Send + Sync + 'static>) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(3_000_000);
    config.max_time = Some(Duration::from_secs(20 * factor() as u64));
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || {
        machine::reset();
        model();
    });
}

/// Starts the runtime, lets `f` begin goroutines, and ends it when all of them
/// have ended.
pub fn in_runtime(procs: usize, nodes: usize, f: impl FnOnce()) {
    let topology = format!("{nodes}");
    let request =
        Request { procs: Some(procs), max_threads: None, stack_size: None, topology: Some(&topology) };
    assert_eq!(runtime::init(&request), Ok(()));
    f();
    assert_eq!(runtime::shutdown(-1), 0);
    assert_eq!(machine::threads(), 1, "a thread has outlived the runtime");
}

/// What one goroutine or plain thread of a model does.
pub type Actor = Box<dyn FnOnce() + Send>;

pub fn actor(f: impl FnOnce() + Send + 'static) -> Actor {
    Box::new(f)
}

/// Runs all of them at a time, until the last one has ended.
pub type Run<'a> = &'a dyn Fn(Vec<Actor>);

/// Checks a model with plain threads, with goroutines on two P's, and with some
/// of each.
pub fn check_with_all(times: usize, model: impl Fn(Run) + Send + Sync + Copy + 'static) {
    let threads = |actors: Vec<Actor>| {
        let threads: Vec<_> = actors.into_iter().map(Plain::start).collect();
        threads.into_iter().for_each(Plain::join);
    };
    check(times, move || model(&threads));
    check(times, move || model(&|actors| in_runtime(2, 1, || actors.into_iter().for_each(go))));
    check(times, move || {
        model(&|actors| {
            in_runtime(2, 1, || {
                let mut plain = Vec::new();
                for (i, actor) in actors.into_iter().enumerate() {
                    match i % 2 {
                        0 => go(actor),
                        _ => plain.push(Plain::start(actor)),
                    }
                }
                plain.into_iter().for_each(Plain::join);
            })
        })
    });
}

/// A goroutine's function and its argument, from a closure.
pub fn body(f: impl FnOnce() + Send + 'static) -> (GoFn, *mut c_void) {
    unsafe extern "C" fn begin(arg: *mut c_void) {
        // SAFETY: made of a box just below.
        let f = unsafe { Box::from_raw(arg.cast::<Actor>()) };
        f();
    }
    let f: Box<Actor> = Box::new(Box::new(f));
    (begin, Box::into_raw(f).cast())
}

/// Begins a goroutine.
pub fn go(f: impl FnOnce() + Send + 'static) {
    let (f, arg) = body(f);
    assert_eq!(spawn::spawn(f, arg, 0), 0);
}

/// Begins a goroutine and keeps a reference to it.
pub fn go_referenced(f: impl FnOnce() + Send + 'static) -> GRef {
    let (f, arg) = body(f);
    let options =
        spawn::Options { name: None, stack: None, priority: 0, node: None, flags: 0, referenced: true };
    match spawn::spawn_with(f, arg, 0, &options) {
        Ok(g) => g,
        Err(e) => panic!("no goroutine: {e}"),
    }
}

/// A plain thread.
#[must_use]
pub struct Plain(Thread);

impl Plain {
    pub fn start(f: impl FnOnce() + Send + 'static) -> Plain {
        extern "C" fn main(arg: *mut c_void) -> *mut c_void {
            // SAFETY: made of a box just below.
            let f = unsafe { Box::from_raw(arg.cast::<Actor>()) };
            f();
            core::ptr::null_mut()
        }
        let f: Box<Actor> = Box::new(Box::new(f));
        match Thread::start(main, Box::into_raw(f).cast()) {
            Ok(t) => Plain(t),
            Err(e) => panic!("no thread: {e}"),
        }
    }

    pub fn join(self) {
        self.0.join();
    }
}

/// A number that is no part of the model.
#[derive(Default)]
pub struct Count(std::sync::atomic::AtomicU64);

impl Count {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A place where one may be at a time.
#[derive(Default)]
pub struct Alone(AtomicU32);

impl Alone {
    /// Enters, lets others go on, and leaves.
    pub fn visit(&self) {
        assert_eq!(self.0.swap(1, Ordering::SeqCst), 0, "two are where one may be");
        assert_eq!(self.0.swap(0, Ordering::SeqCst), 1, "two are where one may be");
    }
}
