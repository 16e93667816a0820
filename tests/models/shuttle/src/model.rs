//! How the models are run, and what they are written with.

use crate::bursts::Bursts;

use crate::machine;
use crate::os::{self, c_heap, thread::Thread};
use crate::sched::ext::gang::state::Gang;
use crate::sched::lifecycle::init;
use crate::sched::lifecycle::spawn;
use crate::sched::prim::config::ConfigRequest;
use crate::sched::run::group::Group;
use crate::sched::run::yielding;
use crate::sched::take::boundary;
use crate::sched::take::{blocking, call};
use crate::sched::types::g::{GRef, flags};
use crate::sched::types::m;
use crate::sched::types::runtime;
use crate::sched::types::task::GoFn;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use shuttle::scheduler::{PctScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a run leaves the order of its threads that it prefers.
const PCT_DEPTH: usize = 3;
/// A test takes no longer than this with each scheduler, whatever it was to do, in s.
const LONGEST: f64 = 10.0;

/// The number in an environment variable.
fn variable<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// How much longer than usual each model is to run: MODEL_FACTOR, which may be less than 1.
fn factor() -> f64 {
    variable("MODEL_FACTOR").unwrap_or(1.0)
}

/// Runs a model `times` times with each of two schedulers: one lets each thread
/// go on for a while, the other one (PCT) lets the most important thread go on
/// and seldom changes which that is.
///
/// The runtime is one for each process, and a model that fails leaves it as it
/// is: so each test runs in a process of its own.
pub fn check(times: usize, model: impl Fn() + Send + Sync + 'static) {
    if std::env::var_os("MODEL_CHILD").is_none() {
        return in_child();
    }
    end_at_a_panic();
    let model = Arc::new(model);
    // What a process does only once is done before the schedules that may be
    // asked for again.
    run(Bursts::new(0, 1), model.clone());
    if let Some(schedule) = std::env::var_os("MODEL_SCHEDULE") {
        return match ReplayScheduler::new_from_file(&schedule) {
            Ok(replay) => drop(run(replay, model)),
            Err(e) => panic!("no schedule in {}: {e}", schedule.display()),
        };
    }
    let seed = variable("MODEL_SEED").unwrap_or(1);
    let times = (times as f64 * factor()).ceil() as usize;
    let began = Instant::now();
    let bursts = run(Bursts::new(seed, times), model.clone());
    let pct = run(PctScheduler::new_from_seed(seed, PCT_DEPTH, times), model);
    println!("\n{bursts} + {pct} interleavings in {:.1} s", began.elapsed().as_secs_f64());
}

/// Runs the calling test in a child process.
fn in_child() {
    let me = std::env::current_exe().expect("a test is a program");
    let thread = std::thread::current();
    let name = thread.name().expect("a test's thread has its name");
    let child = Command::new(me)
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env("MODEL_CHILD", "1")
        .output()
        .expect("a program can be started twice");
    let text = String::from_utf8_lossy(&child.stdout);
    text.lines().filter(|l| l.contains("interleavings")).for_each(|l| println!("{name}: {l}"));
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "the model has failed ({})\n{errors}", child.status);
    assert!(text.contains("1 passed"), "the child has run no model: {text}");
}

/// A panic may be on a stack that can't be unwound. shuttle puts a hook in front
/// of this one, which saves the schedule.
fn end_at_a_panic() {
    std::panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        // SAFETY: no preconditions.
        unsafe { libc::_exit(101) };
    }));
}

/// Gives how many runs there were.
fn run(
    scheduler: impl Scheduler + 'static,
    model: Arc<impl Fn() + Send + Sync + 'static>,
) -> usize {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(3_000_000);
    config.max_time = Some(Duration::from_secs_f64(LONGEST * factor()));
    config.failure_persistence = FailurePersistence::File(Some(std::env::temp_dir()));
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || {
        machine::reset();
        load();
        model();
        core::order::finish_stores();
    })
}

/// What the library does when it is loaded.
fn load() {
    init::on_load();
    crate::io::on_load();
}

/// Starts the runtime, lets `f` begin goroutines, and ends it when all of them
/// have ended.
pub fn in_runtime(procs: usize, nodes: usize, f: impl FnOnce()) {
    in_runtime_with_threads(procs, nodes, None, f);
}

/// [`in_runtime`] with a limit of threads.
pub fn in_runtime_with_threads(
    procs: usize,
    nodes: usize,
    max_threads: Option<usize>,
    f: impl FnOnce(),
) {
    let topology = format!("{nodes}");
    let request = ConfigRequest {
        procs: Some(procs),
        max_threads,
        stack_size: None,
        topology: Some(&topology),
        ..ConfigRequest::default()
    };
    assert_eq!(init::init(&request), Ok(()));
    f();
    assert_eq!(init::shutdown(-1), 0);
    assert_eq!(machine::threads(), 1, "a thread has outlived the runtime");
}

/// What one goroutine or plain thread of a model does.
pub type Actor = Box<dyn FnOnce() + Send>;

pub fn actor(f: impl FnOnce() + Send + 'static) -> Actor {
    Box::new(f)
}

/// Who the actors of a model are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cast {
    Threads,
    /// On two P's.
    Goroutines,
    /// Every other one is a plain thread.
    Mixed,
}

impl Cast {
    /// Runs all of them at a time, until the last one has ended.
    pub fn play(self, actors: Vec<Actor>) {
        let begin = || {
            let mut threads = Vec::new();
            for (i, actor) in actors.into_iter().enumerate() {
                match self == Cast::Threads || (self == Cast::Mixed && i % 2 == 1) {
                    true => threads.push(Plain::start(actor)),
                    false => go(actor),
                }
            }
            threads.into_iter().for_each(Plain::join);
        };
        match self {
            Cast::Threads => begin(),
            _ => in_runtime(2, 1, begin),
        }
    }
}

/// Tests of a model, a `fn(Cast)`: with plain threads, with goroutines, and with
/// some of each. Without the runtime's threads it takes so little time that there
/// are more runs.
#[macro_export]
macro_rules! with_each_cast {
    ($($model:ident: $times:expr),* $(,)?) => {$(
        mod $model {
            use $crate::model::{Cast, check};

            #[test]
            fn by_threads() {
                check(8 * $times, || super::$model(Cast::Threads));
            }

            #[test]
            fn by_goroutines() {
                check($times, || super::$model(Cast::Goroutines));
            }

            #[test]
            fn by_threads_and_goroutines() {
                check($times, || super::$model(Cast::Mixed));
            }
        }
    )*};
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

/// The running goroutine lets others go first.
pub fn yield_now() {
    // SAFETY: a goroutine of the model calls this.
    let m = unsafe { m::must_current() };
    if yielding::look(m) {
        yielding::yield_now(m);
    }
}

/// What a goroutine does in the library, as a function of the C API does it.
pub fn inside<R>(f: impl FnOnce() -> R) -> R {
    machine::keep_boundary();
    let entered = boundary::Entered::new();
    let result = f();
    drop(entered);
    result
}

/// Announces a call, as the user's code does.
pub fn begin_call() {
    machine::keep_boundary();
    if let Ok(_entered) = boundary::Entered::for_call() {
        call::enter();
    }
}

/// Ends what [`begin_call`] has begun. The goroutine may go on without a P.
pub fn end_call() {
    machine::keep_boundary();
    let entered = boundary::Entered::without_giving_way();
    assert_eq!(call::exit_from(&entered), 0);
}

/// Sleeps in `gs_blocking`, for this many ns. The goroutine may be without a P before, and afterwards.
pub fn blocking_call(ns: i64) {
    unsafe extern "C" fn sleep(ns: *mut core::ffi::c_void) -> *mut core::ffi::c_void {
        machine::sleep(ns as i64);
        ns
    }
    machine::keep_boundary();
    // SAFETY: `sleep` takes a number.
    unsafe { blocking::call_from_user(sleep, core::ptr::without_provenance_mut(ns as usize)) };
}

/// Calls a function of the library that needs no P, such as `gs_chan_take`.
pub fn call_without_need_of_p() {
    machine::keep_boundary();
    drop(boundary::Entered::without_giving_way());
}

/// A goroutine computes outside the library, where the preemption signal reaches it. Nowhere else
/// is one delivered: the handler does nothing while its thread is in the library.
pub fn user_code() {
    (0..2).for_each(|_| machine::run_user_code());
}

/// A goroutine blocks its thread without a word, for this many ns. The signal interrupts it.
pub fn block(ns: i64) {
    machine::sleep_in_user_code(ns);
}

/// A goroutine waits for a page that it has touched, for this many ns. A signal comes when the page is there.
pub fn fault(ns: i64) {
    machine::fault_in_user_code(ns);
}

/// A goroutine calls malloc(3), in the middle of which it may be preempted.
pub fn allocate() {
    while !c_heap::try_lock() {
        block(20_000);
    }
    user_code();
    c_heap::unlock();
}

/// The calling goroutine, outside the library, or plain thread forks: the parent's side of it.
pub fn fork() {
    fork_and_look(|| ());
}

/// [`fork`]; `look` is called at the moment of which the child has a copy.
pub fn fork_and_look(look: impl FnOnce()) {
    os::thread::fork(look);
}

/// From here on goroutines may be made to wait in the handler.
pub fn prepare_preemption() {
    machine::keep_boundary();
    let template = &runtime::rt().template;
    while !template.is_there() {
        template.is_ready(runtime::rt());
        os::time::sleep(20_000);
    }
}

/// Begins a goroutine.
pub fn go(f: impl FnOnce() + Send + 'static) {
    let (f, arg) = body(f);
    assert_eq!(spawn::spawn(f, arg, 0), 0);
}

/// Begins a goroutine and keeps a reference to it.
pub fn go_referenced(f: impl FnOnce() + Send + 'static) -> GRef {
    go_with(None, None, true, 0, f)
}

/// Begins a goroutine that stays on the thread where it first runs.
pub fn go_pinned(f: impl FnOnce() + Send + 'static) {
    go_with(None, None, false, flags::PINNED, f);
}

/// Begins a member of a gang.
pub fn go_in_gang(gang: &'static Gang, f: impl FnOnce() + Send + 'static) {
    go_with(Some(gang), None, false, 0, f);
}

/// Begins a goroutine of a group.
pub fn go_in_group(group: &'static Group, more: u32, f: impl FnOnce() + Send + 'static) {
    go_with(None, Some(group), false, more | flags::PINNED, f);
}

fn go_with(
    gang: Option<&'static Gang>,
    workers: Option<&'static Group>,
    referenced: bool,
    flags: u32,
    f: impl FnOnce() + Send + 'static,
) -> GRef {
    let (f, arg) = body(f);
    let options = spawn::Options { gang, workers, flags, referenced, ..spawn::Options::DEFAULT };
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

/// A counter outside the model: using it isn't a scheduling point.
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

    /// Lets others go on, and is there with others who look; it has no visitors.
    pub fn look(&self) {
        for _ in 0..2 {
            assert_eq!(self.0.load(Ordering::SeqCst), 0, "two are there at once");
        }
    }
}

/// One place for each P.
#[derive(Default)]
pub struct Owners([Alone; 8]);

impl Owners {
    /// The running goroutine, which is inside, has its P for itself.
    pub fn visit(&self) {
        let p = || m::current().expect("on a goroutine").p().id as usize;
        let id = p();
        self.0[id].visit();
        assert_eq!(p(), id);
    }

    /// The caller has stopped the world, and so every P.
    pub fn visit_all(&self) {
        self.0.iter().take(runtime::rt().procs()).for_each(Alone::visit);
    }
}
