//! How the models are run, and what they are written with.

use crate::machine;
use crate::sched::config::Request;
use crate::sched::{runtime, spawn};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The runtime is one for each process, and so is what shuttle runs with one.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs a model `times` times with each of shuttle's schedulers: one chooses the
/// next thread each time anew, the other one (PCT) changes its mind seldom.
pub fn check(times: usize, model: impl Fn() + Send + Sync + 'static) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let model = Arc::new(model);
    let began = Instant::now();
    run(RandomScheduler::new(times), model.clone());
    run(PctScheduler::new(3, times), model);
    println!("2 * {times} interleavings in {:.1} s", began.elapsed().as_secs_f64());
}

fn run(scheduler: impl Scheduler + 'static, model: Arc<impl Fn() + Send + Sync + 'static>) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(3_000_000);
    config.max_time = Some(Duration::from_secs(20));
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || {
        machine::reset();
        model();
    });
}

/// The same with the runtime: the model begins goroutines and ends when all of
/// them have ended.
pub fn check_scheduler(times: usize, procs: usize, nodes: usize, model: impl Fn() + Send + Sync + 'static) {
    let nodes: &'static str = nodes.to_string().leak();
    check(times, move || {
        let request = Request {
            procs: Some(procs),
            max_threads: None,
            stack_size: None,
            topology: Some(nodes),
        };
        assert_eq!(runtime::init(&request), Ok(()));
        model();
        assert_eq!(runtime::shutdown(-1), 0);
        assert_eq!(machine::threads(), 1, "a thread has outlived the runtime");
    });
}

/// Begins a goroutine.
pub fn go(f: impl FnOnce() + Send + 'static) {
    type Body = Box<dyn FnOnce() + Send>;
    unsafe extern "C" fn begin(arg: *mut c_void) {
        // SAFETY: `go` has made it of a box.
        let body = unsafe { Box::from_raw(arg.cast::<Body>()) };
        body();
    }
    let body: Box<Body> = Box::new(Box::new(f));
    assert_eq!(spawn::spawn(begin, Box::into_raw(body).cast(), 0), 0);
}

/// A plain thread.
#[must_use]
pub struct Plain(crate::os::thread::Thread);

impl Plain {
    pub fn start(f: impl FnOnce() + Send + 'static) -> Plain {
        extern "C" fn main(arg: *mut c_void) -> *mut c_void {
            // SAFETY: made of a box just below.
            let f = unsafe { Box::from_raw(arg.cast::<Box<dyn FnOnce() + Send>>()) };
            f();
            core::ptr::null_mut()
        }
        let f: Box<Box<dyn FnOnce() + Send>> = Box::new(Box::new(f));
        match crate::os::thread::Thread::start(main, Box::into_raw(f).cast()) {
            Ok(t) => Plain(t),
            Err(e) => panic!("no thread: {e}"),
        }
    }

    pub fn join(self) {
        self.0.join();
    }
}

/// A count that all have in common and that is no part of the model.
#[derive(Default)]
pub struct Count(std::sync::atomic::AtomicU32);

impl Count {
    pub fn add(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Says so if two are inside at a time.
#[derive(Default)]
pub struct Alone(AtomicU32);

impl Alone {
    pub fn visit(&self) {
        assert_eq!(self.0.swap(1, Ordering::SeqCst), 0, "two are where one may be");
        self.0.store(0, Ordering::SeqCst);
    }
}
