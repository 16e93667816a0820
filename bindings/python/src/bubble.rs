//! The bubble that a thread runs, for the files below `testing`: whether the caller is in one, its
//! steps, and its goroutines.

use crate::ffi::*;
use crate::goroutine::object::Goroutine;
use crate::sys::attach::{self, Away};
use crate::sys::threads;
use crate::worker::current;
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// How many runs there were.
pub static RUNS: AtomicU64 = AtomicU64::new(0);

/// How many bubbles there are.
pub static BUBBLES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The bubble that the thread runs; null: none.
    pub static MINE: Cell<*const Bubble> = const { Cell::new(ptr::null()) };
}

/// A bubble, from the first of its runs to the last. Used by its thread, with the GIL.
pub struct Bubble {
    /// What the thread does.
    pub worker: threads::Worker,
    /// The thread state of the thread itself, while `gs_test_run` runs.
    pub away: Cell<Option<Away>>,
    pub function: Py<PyAny>,
    pub context: Py<PyAny>,
    /// The goroutine that calls the function.
    pub main: RefCell<Option<Py<Goroutine>>>,
    /// The goroutines of the run that have not ended, by their identities.
    pub alive: RefCell<BTreeMap<u64, Py<Goroutine>>>,
    /// Goroutines that have ended with an error for which a caller may still ask.
    pub failed: RefCell<Vec<Py<Goroutine>>>,
    /// The error that has ended the run.
    pub error: RefCell<Option<Py<PyAny>>>,
    /// The error's text.
    pub why: RefCell<CString>,
    /// The number of the run, from 1 on: no other run of the process has it.
    pub run: Cell<u64>,
    /// `check` looks at it.
    pub _stop: Py<Stop>,
}

/// Ends a run from another thread.
#[pyclass(frozen, name = "_Stop", module = "gosched._gosched")]
pub struct Stop {
    pub is_set: AtomicBool,
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
pub fn mine<'a>() -> Option<&'a Bubble> {
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
pub fn fail(py: Python<'_>, bubble: &Bubble, error: &Py<PyAny>) -> ! {
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
