//! Bubbles, for `gosched.testing`: runs of a function in an order that a seed decides.
//!
//! A plain thread, which is made for that, calls `gs_test_run` or `gs_test_explore` and runs the
//! goroutines of the bubble. The goroutine with which the library begins a run, `begin`, is C's: it
//! starts the one of Python that calls the test's function.
//!
//! A goroutine that is left when its run is over never runs again. The frames that it was in stay, and
//! so does its thread state: other objects may refer to them.

use crate::errors;
use crate::ffi::*;
use crate::goroutine::object::Goroutine;
use crate::goroutine::{list, spawn};
use crate::sys::attach::{self, Away};
use crate::sys::threads;
use crate::worker::{current, start};
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How many bubbles there are.
static BUBBLES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The bubble that the thread runs; null: none.
    static MINE: Cell<*const Bubble> = const { Cell::new(ptr::null()) };
}

/// A bubble, from the first of its runs to the last. Used by its thread, with the GIL.
struct Bubble {
    /// What the thread does.
    worker: threads::Worker,
    /// The thread state of the thread itself, while `gs_test_run` runs.
    away: Cell<Option<Away>>,
    function: Py<PyAny>,
    context: Py<PyAny>,
    /// The goroutine that calls the function.
    main: RefCell<Option<Py<Goroutine>>>,
    /// The goroutines of the run that have not ended, by their identities.
    alive: RefCell<BTreeMap<u64, Py<Goroutine>>>,
    /// Goroutines that have ended with an error for which a caller may still ask.
    failed: RefCell<Vec<Py<Goroutine>>>,
    /// The error that has ended the run.
    error: RefCell<Option<Py<PyAny>>>,
    /// The error's text.
    why: RefCell<CString>,
    /// `check` looks at it.
    _stop: Py<Stop>,
}

/// Ends a run from another thread.
#[pyclass(frozen, name = "_Stop", module = "gosched._gosched")]
pub struct Stop {
    is_set: AtomicBool,
}

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Stop {
        Stop { is_set: AtomicBool::new(false) }
    }

    /// Ends the run at its next step, and all further ones.
    fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
    }
}

/// The bubble that the calling thread runs.
#[inline(always)]
fn mine<'a>() -> Option<&'a Bubble> {
    if BUBBLES.load(Ordering::Relaxed) == 0 {
        return None;
    }
    // SAFETY: null, or a bubble that stays until its thread's call has returned.
    MINE.with(|mine| unsafe { mine.get().as_ref() })
}

/// Whether the caller is in a bubble.
#[inline(always)]
pub fn is_inside() -> bool {
    mine().is_some()
}

/// What the calling thread, which runs a bubble, does. `None`: it runs none.
#[cfg_attr(Py_GIL_DISABLED, allow(dead_code, reason = "there are no bubbles without a GIL"))]
#[inline(always)]
pub fn worker() -> Option<&'static threads::Worker> {
    // SAFETY: the bubble stays as long as its goroutines run.
    mine().map(|bubble| unsafe { &*ptr::from_ref(&bubble.worker) })
}

/// A step of a bubble: another goroutine may go first. For operations on objects of the package that
/// call the library only if they wait.
#[inline(always)]
pub fn step(py: Python<'_>) {
    if BUBBLES.load(Ordering::Relaxed) != 0 {
        step_inside(py);
    }
}

/// See `step`.
#[cold]
fn step_inside(py: Python<'_>) {
    if is_inside()
        && let Some(me) = current::current(py)
    {
        // SAFETY: without the GIL.
        current::call_as(py, me, || unsafe { gs_preempt_now() });
    }
}

/// A goroutine was spawned by the caller.
pub fn spawned(py: Python<'_>, g: &Py<Goroutine>) {
    if let Some(bubble) = mine() {
        bubble.alive.borrow_mut().insert(g.get().ident(), g.clone_ref(py));
    }
}

/// The calling goroutine has ended. With the last one all errors are looked at for which no caller has
/// asked.
pub fn ended(py: Python<'_>, g: &Goroutine) {
    let Some(bubble) = mine() else { return };
    let gone = bubble.alive.borrow_mut().remove(&g.ident());
    if bubble.alive.borrow().is_empty() {
        let failed = bubble.failed.take();
        if let Some(error) = failed.iter().find_map(|g| g.get().unasked_error(py)) {
            fail(py, bubble, &error);
        }
    }
    drop(gone);
}

/// A goroutine ends with an error for which no caller has asked. False: the caller is in no bubble.
pub fn unhandled(py: Python<'_>, g: &Bound<'_, Goroutine>, error: &Py<PyAny>) -> bool {
    let Some(bubble) = mine() else { return false };
    // SAFETY: attached. Two of the references are the goroutine's own and that in `alive`.
    let may_ask = unsafe { py_ffi::Py_REFCNT(g.as_ptr()) } > 2;
    let is_main = bubble.main.borrow().as_ref().is_some_and(|main| main.is(g));
    if may_ask && !is_main {
        bubble.failed.borrow_mut().push(g.clone().unbind());
        return true;
    }
    fail(py, bubble, error)
}

/// Ends the run as failed by this error. The calling goroutine goes on no more.
fn fail(py: Python<'_>, bubble: &Bubble, error: &Py<PyAny>) -> ! {
    let text = text_of(error.bind(py)).unwrap_or_else(|_| "an exception".into());
    *bubble.why.borrow_mut() = CString::new(text.replace('\0', "?")).unwrap_or_default();
    bubble.error.replace(Some(error.clone_ref(py)));
    let why = bubble.why.borrow().as_ptr() as usize;
    current::away(current::current(py));
    // SAFETY: attached. The goroutine never enters again; `why` stays until the next run.
    unsafe {
        let _ = attach::leave();
        gs_test_fail(why as *const _);
    }
    unreachable!("a goroutine of a bubble goes on after gs_test_fail")
}

/// The last line of a traceback.
fn text_of(error: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = error.py();
    let lines =
        py.import("traceback")?.call_method1("format_exception_only", (error.get_type(), error))?;
    let text: Vec<String> = lines.extract()?;
    Ok(text.concat().trim_end().to_owned())
}

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

/// The goroutine with which a run begins. `bubble`: its bubble.
unsafe extern "C" fn begin(bubble: *mut c_void) {
    // SAFETY: it stays until the thread's call has returned.
    let bubble = unsafe { &*bubble.cast::<Bubble>() };
    let Some(away) = bubble.away.take() else { return };
    // SAFETY: the thread has left Python with this state, and enters again only after its call. pyo3
    // takes the thread for attached: the frame of `_test_run` is below.
    let spawned = unsafe {
        attach::enter(away);
        let py = Python::assume_attached();
        bubble.sweep(py);
        bubble.error.replace(None);
        let spawned = bubble.make_main(py);
        if let Err(e) = &spawned {
            bubble.error.replace(Some(e.clone_ref(py).into_value(py).into_any()));
        }
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
        flags: GS_TEST_CRASH,
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
        _stop: stop,
    };
    let at = ptr::from_ref(&bubble) as usize;
    BUBBLES.fetch_add(1, Ordering::Relaxed);
    MINE.with(|mine| mine.set(&raw const bubble));
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
