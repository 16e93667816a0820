//! Tests of concurrent code: runs that can be had again.

use super::sized::{self, Given, Grows};
use super::{EINVAL, gs_duration, gs_fn};
use crate::arch::with_return_address;
use crate::io::memory;
use crate::os::log;
use crate::replay::{self, Plan};
use crate::sched::lifecycle::bubble;
use crate::sched::prim::draws::{Schedule, Script};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

/// Any goroutine that can run goes on, at each step.
pub const GS_TEST_RANDOM: u32 = 0;
/// Probabilistic concurrency testing: goroutines have random priorities, which change at depth - 1
/// random steps. Finds a bug that needs depth things to happen in a certain order with a known
/// chance, however long the run is. A goroutine that calls gs_yield comes last from then on.
pub const GS_TEST_PCT: u32 = 1;
/// The next goroutine goes on, at each step.
pub const GS_TEST_ROUND_ROBIN: u32 = 2;

/// A flag: nothing is printed.
pub const GS_TEST_QUIET: u32 = 1;
/// A flag: a crash ends the process, in gs_test_explore too. For interpreters, whose locks a goroutine
/// may hold when it crashes.
pub const GS_TEST_CRASH: u32 = 2;
/// A flag: a run fails with -EPERM if not only the seed decides it. Each run is made twice: both must
/// do the same, and no goroutine may read the system's clock, get random bytes of the kernel or start
/// a thread. The report names the goroutine and the place. If a goroutine blocks the thread for 5 ms
/// or more, a message says so.
pub const GS_TEST_STRICT: u32 = 4;

/// How the network of a bubble behaves: see gs_test_run. Chances are out of 1000.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct gs_test_net {
    /// How long everything takes in one direction, in ns; 0: 100 us.
    pub delay: gs_duration,
    /// By how much longer it may take, in ns. Datagrams overtake each other then.
    pub jitter: gs_duration,
    /// A datagram is lost; a part of a stream is lost and sent again, 200 ms later or more.
    pub loss: u32,
    /// A datagram comes twice.
    pub duplicate: u32,
    /// With a call that sends, a connection falls silent for good; an attempt to connect is not
    /// answered, and fails after 127 s.
    pub cut: u32,
    /// With a call that sends, a connection is reset.
    pub reset: u32,
    /// An attempt to connect is refused.
    pub refuse: u32,
    /// A call reads or writes less than it could.
    pub short_io: u32,
}

/// Options of gs_test_run and gs_test_explore. Zero stands for the default of each.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct gs_test_opts {
    /// sizeof(gs_test_opts).
    pub size: usize,
    /// Decides the run; 0: 1.
    pub seed: u64,
    /// GS_TEST_RANDOM, GS_TEST_PCT, GS_TEST_ROUND_ROBIN.
    pub schedule: u32,
    /// The depth of GS_TEST_PCT; 0: 3.
    pub depth: u32,
    /// The most steps of a run; 0: a million.
    pub max_steps: u64,
    /// Called with check_arg after each step, and not before f has begun: if the result isn't 0, the
    /// run has failed. It may look at whatever the goroutines share, and must not call the library.
    /// NULL: no check.
    pub check: Option<unsafe extern "C" fn(arg: *mut c_void) -> c_int>,
    pub check_arg: *mut c_void,
    /// A schedule that a report has printed, instead of a seed; NULL: none.
    pub replay: *const c_char,
    /// GS_TEST_QUIET, GS_TEST_CRASH, GS_TEST_STRICT.
    pub flags: u32,
    /// A file descriptor to which the events of the run are written, one a line: the virtual time in
    /// s, the number of steps, the goroutine, and what has happened. The same seed gives the same
    /// bytes, in each process. For gs_test_explore: of the run that is reported. 0: none.
    pub log: c_int,
    pub net: gs_test_net,
    /// A file descriptor to which reports are written, in place of standard error. 0: none.
    pub report: c_int,
    /// The chance out of 1000 that a goroutine is cancelled before a call, as by gs_cancel. Only
    /// goroutines that others could cancel, because there is a reference to them (gs_spawn_with,
    /// gs_self).
    pub cancel: u32,
    /// The chance out of 1000 that there is no memory when a function of the library needs some: the
    /// function fails as its description says (-ENOMEM, NULL).
    pub no_memory: u32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with its size and has no padding.
unsafe impl Grows for gs_test_opts {
    const FIRST: usize = 40;
}

impl Given for gs_test_opts {
    const DEFAULT: gs_test_opts = gs_test_opts {
        size: 0,
        seed: 0,
        schedule: GS_TEST_RANDOM,
        depth: 0,
        max_steps: 0,
        check: None,
        check_arg: ptr::null_mut(),
        replay: ptr::null(),
        flags: 0,
        log: 0,
        net: gs_test_net {
            delay: 0,
            jitter: 0,
            loss: 0,
            duplicate: 0,
            cut: 0,
            reset: 0,
            refuse: 0,
            short_io: 0,
        },
        report: 0,
        cancel: 0,
        no_memory: 0,
        reserved: 0,
    };
}

/// The defaults of `gs_test_opts`.
const SEED: u64 = 1;
const DEPTH: u32 = 3;
const MAX_STEPS: u64 = 1_000_000;
/// In ns.
const DELAY: i64 = 100_000;

/// Runs f(arg) and all goroutines that come of it in a bubble: on the calling thread alone, in an
/// order that opts->seed decides, with a virtual clock. Returns when all of them have ended.
///
/// A bubble has its own time: gs_now and all deadlines, sleeps, timers and tickers of its goroutines
/// begin at one second, and stand still while a goroutine can run. When all wait, the clock jumps to
/// the next deadline. Each call of a function of the library is a step, before which another
/// goroutine may go on. So the same seed gives the same run, as long as nothing else has a say: no
/// thread, no other clock, no file that another process writes. Goroutines of a bubble and others
/// must not wake each other; if they do, the run ends with -EPERM. While a goroutine waits for a
/// file, the clock of its bubble goes as the real one does.
///
/// If a run doesn't end well, a report goes to standard error; goroutines that are left never run
/// again, and what they hold stays as it is. opts may be NULL.
///
/// 0; -EDEADLK: all goroutines wait, and no timer is left; -ETIMEDOUT: max_steps; -EPROTO: the check
/// or gs_test_fail says that the run has failed; -EPERM: the bubble was disturbed, or
/// GS_TEST_STRICT; -EINVAL: f is
/// NULL, or an option is unknown; -EBUSY: the thread is in gs_run or attached, or the caller is a
/// goroutine; -EAGAIN: 64 threads do this already; -ENOMEM. Plain threads, with or without a runtime.
///
/// # Safety
/// `opts` is null or a gs_test_opts of the size that it says.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn gs_test_run(
    f: gs_fn,
    arg: *mut c_void,
    opts: *const gs_test_opts,
) -> c_int {
    with_return_address!(3, run_at)
}

unsafe extern "C" fn run_at(
    f: gs_fn,
    arg: *mut c_void,
    opts: *const gs_test_opts,
    pc: usize,
) -> c_int {
    // SAFETY: as `gs_test_run`.
    match unsafe { plan(f, arg, opts, pc) } {
        Ok(plan) => replay::run(&plan),
        Err(e) => e,
    }
}

/// gs_test_run with runs seeds, from opts->seed on, until one of the runs fails. Then it looks for the
/// shortest schedule that fails, and prints it: as a list of the switches that it takes, and as a
/// string for opts->replay or GOSCHED_TEST=replay=STRING.
///
/// The number of good runs, which is runs; or a negative errno value as gs_test_run. Plain threads,
/// with or without a runtime.
///
/// # Safety
/// As gs_test_run.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn gs_test_explore(
    f: gs_fn,
    arg: *mut c_void,
    opts: *const gs_test_opts,
    runs: u64,
) -> i64 {
    with_return_address!(4, explore_at)
}

unsafe extern "C" fn explore_at(
    f: gs_fn,
    arg: *mut c_void,
    opts: *const gs_test_opts,
    runs: u64,
    pc: usize,
) -> i64 {
    // SAFETY: as `gs_test_explore`.
    match unsafe { plan(f, arg, opts, pc) } {
        Ok(_) if i64::try_from(runs).is_err() => EINVAL.into(),
        Ok(plan) => replay::explore(&plan, runs),
        Err(e) => e.into(),
    }
}

/// # Safety
/// As [`gs_test_run`].
unsafe fn plan(
    f: gs_fn,
    arg: *mut c_void,
    opts: *const gs_test_opts,
    pc: usize,
) -> Result<Plan, c_int> {
    // SAFETY: null or of the size that it says.
    let o = unsafe { sized::read(opts)? }.unwrap_or(gs_test_opts::DEFAULT);
    if o.flags & !(GS_TEST_QUIET | GS_TEST_CRASH | GS_TEST_STRICT) != 0
        || o.log < 0
        || o.report < 0
        || o.reserved != 0
        || o.cancel > 1000
        || o.no_memory > 1000
    {
        return Err(EINVAL);
    }
    let schedule = match o.schedule {
        GS_TEST_RANDOM => Schedule::Random,
        GS_TEST_PCT => Schedule::Pct(if o.depth == 0 { DEPTH } else { o.depth }),
        GS_TEST_ROUND_ROBIN => Schedule::RoundRobin,
        _ => return Err(EINVAL),
    };
    let script = if o.replay.is_null() {
        None
    } else {
        // SAFETY: not null, so it is a C string.
        let text = unsafe { CStr::from_ptr(o.replay) }.to_str().map_err(|_| EINVAL)?;
        Some(text.parse::<Script>().map_err(|()| EINVAL)?)
    };
    let plan = Plan {
        f: f.ok_or(EINVAL)?,
        arg,
        pc,
        seed: if o.seed == 0 { SEED } else { o.seed },
        schedule,
        max_steps: if o.max_steps == 0 { MAX_STEPS } else { o.max_steps },
        check: o.check.map(|check| (check as _, o.check_arg)),
        net: net(&o.net)?,
        cancels: o.cancel,
        no_memory: o.no_memory,
        log: (o.log > 0).then_some(o.log),
        script,
        report: (o.report > 0).then_some(o.report),
        is_quiet: o.flags & GS_TEST_QUIET != 0,
        catches: o.flags & GS_TEST_CRASH == 0,
        is_strict: o.flags & GS_TEST_STRICT != 0,
    };
    let said = std::env::var("GOSCHED_TEST").ok();
    plan.by_environment(said.as_deref()).ok_or_else(|| {
        let said = said.unwrap_or_default();
        log::say(format_args!(
            "gosched: GOSCHED_TEST={said}: it may be seed=NUMBER, seed=random or replay=STRING"
        ));
        EINVAL
    })
}

/// `-EINVAL`: a chance is above 1000, or a time below 0.
fn net(o: &gs_test_net) -> Result<memory::Options, c_int> {
    let chances = [o.loss, o.duplicate, o.cut, o.reset, o.refuse, o.short_io];
    if o.delay < 0 || o.jitter < 0 || chances.iter().any(|&chance| chance > 1000) {
        return Err(EINVAL);
    }
    Ok(memory::Options {
        delay: if o.delay == 0 { DELAY } else { o.delay },
        jitter: o.jitter,
        loss: o.loss,
        twice: o.duplicate,
        cut: o.cut,
        reset: o.reset,
        refuse: o.refuse,
        short: o.short_io,
    })
}

/// Ends the bubble that the caller is in: gs_test_run returns -EPROTO, and the report says why. The
/// caller goes on no more. Outside of a bubble this does nothing. why may be NULL. Goroutines of a
/// bubble.
///
/// # Safety
/// `why` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_test_fail(why: *const c_char) {
    let why = if why.is_null() {
        "gs_test_fail was called".to_owned()
    } else {
        // SAFETY: not null, so it is a C string.
        unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned()
    };
    bubble::fail(why);
}

/// The seed of the bubble that the caller is in; 0: the caller is in none. Goroutines and plain
/// threads.
#[unsafe(no_mangle)]
pub extern "C" fn gs_test_seed() -> u64 {
    bubble::seed()
}
