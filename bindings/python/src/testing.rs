//! Bubbles, for `gosched.testing`: runs of a function in an order that a seed decides.
//!
//! A plain thread, which is made for that, calls `gs_test_run` or `gs_test_explore` and runs the
//! goroutines of the bubble. The goroutine with which the library begins a run, `begin`, is C's: it
//! starts the one of Python that calls the test's function.
//!
//! A goroutine that is left when its run is over never runs again. The frames that it was in stay, and
//! so does its thread state: other objects may refer to them.

use crate::bubble::{BUBBLES, Bubble, MINE, RUNS, Stop, fail, mine};
use crate::errors;
use crate::ffi::*;
use crate::goroutine::{list, spawn};
use crate::interpreter;
use crate::sys::attach;
use crate::sys::threads;
use crate::worker::{current, start};
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

/// Ends the run that the caller is in as failed by an exception. Does nothing outside of a bubble.
#[pyfunction]
pub fn _test_fail(py: Python<'_>, error: Py<PyAny>) {
    if let Some(bubble) = mine().filter(|_| current::current(py).is_some()) {
        fail(py, bubble, &error);
    }
}

/// The seed of the run that the caller is in; 0: it is in none.
#[pyfunction]
pub fn _test_seed() -> u64 {
    // SAFETY: never switches.
    unsafe { gs_test_seed() }
}

/// The time that deadlines are compared with, in seconds: in a bubble the virtual one.
#[pyfunction]
pub fn _test_now() -> f64 {
    // SAFETY: no preconditions.
    unsafe { gs_now() as f64 / 1e9 }
}

/// Bytes of stack that `begin` may use: half of what a goroutine has (`gs_config.stack_size`).
const BEGIN_STACK: usize = 120 << 10;

/// The goroutine with which a run begins. `bubble`: its bubble.
unsafe extern "C" fn begin(bubble: *mut c_void) {
    // SAFETY: it stays until the thread's call has returned.
    let bubble = unsafe { &*bubble.cast::<Bubble>() };
    let Some(away) = bubble.away.take() else { return };
    bubble.run.set(RUNS.fetch_add(1, Ordering::Relaxed) + 1);
    // SAFETY: the thread has left Python with this state, and enters again only after its call. pyo3
    // takes the thread for attached: the frame of `_test_run` is below.
    let spawned = unsafe {
        attach::enter(away);
        let py = Python::assume_attached();
        let spawned = interpreter::on_stack(py, BEGIN_STACK, || {
            bubble.sweep(py);
            bubble.error.replace(None);
            let spawned = bubble.make_main(py);
            if let Err(e) = &spawned {
                bubble.error.replace(Some(e.clone_ref(py).into_value(py).into_any()));
            }
            spawned
        });
        bubble.away.set(Some(attach::leave()));
        spawned.is_ok()
    };
    if !spawned {
        // SAFETY: a goroutine of the bubble.
        unsafe { gs_test_fail(c"the goroutine can't be made".as_ptr()) };
    }
}

impl Bubble {
    /// Spawns the goroutine that calls the function, in a fresh copy of the caller's context.
    fn make_main(&self, py: Python<'_>) -> PyResult<()> {
        let context = self.context.bind(py).call_method0("copy")?.unbind();
        let g = spawn::spawn_main_of_bubble(py, &self.function, context)?;
        self.main.replace(Some(g));
        Ok(())
    }

    /// After a run: its goroutines that are left are nothing that Python code could wait for any more.
    fn sweep(&self, py: Python<'_>) {
        let left = std::mem::take(&mut *self.alive.borrow_mut());
        for g in left.into_values() {
            list::abandon(py, g.bind(py));
        }
        drop(self.failed.take());
        drop(self.main.take());
        self.worker.set_current(ptr::null_mut());
    }
}

/// Called after each step of a run, without the GIL: whether the run is to end.
unsafe extern "C" fn check(stop: *mut c_void) -> c_int {
    // SAFETY: the bubble keeps it.
    unsafe { c_int::from((*stop.cast::<Stop>()).is_set.load(Ordering::Relaxed)) }
}

/// What decides a run: `gs_test_opts` without the pointers.
#[derive(FromPyObject)]
pub struct Options {
    seed: u64,
    schedule: u32,
    depth: u32,
    max_steps: u64,
    strict: bool,
    replay: Option<String>,
    log: c_int,
    report: c_int,
    /// The fields of `gs_test_net`.
    net: (i64, i64, u32, u32, u32, u32, u32, u32),
}

/// Runs function() in a bubble on the calling thread, a plain one: once, or with `runs` seeds. Gives the
/// library's result, what the function has returned, and the error that has ended the run.
#[pyfunction]
pub fn _test_run(
    py: Python<'_>,
    function: Py<PyAny>,
    context: Py<PyAny>,
    runs: Option<u64>,
    options: Options,
    stop: Py<Stop>,
) -> PyResult<(i64, Py<PyAny>, Option<Py<PyAny>>)> {
    if threads::IS_PARALLEL {
        return Err(errors::runtime("a bubble needs a Python with a GIL"));
    }
    start::ensure(py)?;
    let replay = options.replay.map(CString::new).transpose();
    let Ok(replay) = replay else { return Err(errors::value("replay has a null character")) };
    let n = options.net;
    let net = gs_test_net {
        delay: n.0,
        jitter: n.1,
        loss: n.2,
        duplicate: n.3,
        cut: n.4,
        reset: n.5,
        refuse: n.6,
        short_io: n.7,
    };
    let opts = gs_test_opts {
        size: size_of::<gs_test_opts>(),
        seed: options.seed,
        schedule: options.schedule,
        depth: options.depth,
        max_steps: options.max_steps,
        check: Some(check),
        check_arg: ptr::from_ref(stop.get()).cast_mut().cast(),
        replay: replay.as_deref().map_or(ptr::null(), CStr::as_ptr),
        flags: GS_TEST_CRASH | if options.strict { GS_TEST_STRICT } else { 0 },
        log: options.log,
        net,
        report: options.report,
        reserved: 0,
    };
    let bubble = Bubble {
        worker: threads::Worker::new(),
        away: Cell::new(None),
        function,
        context,
        main: RefCell::new(None),
        alive: RefCell::new(BTreeMap::new()),
        failed: RefCell::new(Vec::new()),
        error: RefCell::new(None),
        why: RefCell::new(CString::default()),
        run: Cell::new(0),
        _stop: stop,
    };
    let at = ptr::from_ref(&bubble) as usize;
    BUBBLES.fetch_add(1, Ordering::Relaxed);
    MINE.with(|mine| mine.set(&raw const bubble));
    let worker = &raw const bubble.worker;
    // SAFETY: the bubble stays until this is undone, below.
    threads::set_own(Some(unsafe { &*worker }));
    // SAFETY: a plain thread, which leaves Python with its state. `begin` takes the state for a moment
    // in each run, and puts it back.
    let result = unsafe {
        bubble.away.set(Some(attach::leave()));
        let arg = at as *mut c_void;
        let result = match runs {
            None => i64::from(gs_test_run(begin, arg, &raw const opts)),
            Some(runs) => gs_test_explore(begin, arg, &raw const opts, runs),
        };
        if let Some(away) = bubble.away.take() {
            attach::enter(away);
        }
        result
    };
    threads::set_own(None);
    MINE.with(|mine| mine.set(ptr::null()));
    BUBBLES.fetch_sub(1, Ordering::Relaxed);
    let value = bubble.main.borrow().as_ref().and_then(|main| main.get().value(py));
    let unasked = || {
        let failed = bubble.failed.borrow();
        failed.iter().find_map(|g| g.get().unasked_error(py))
    };
    let error = bubble.error.take().or_else(unasked);
    bubble.sweep(py);
    Ok((result, value.unwrap_or_else(|| py.None()), error))
}
