//! The Python object of a goroutine, and what it holds.

use crate::ffi::*;
use crate::forks;
use crate::frames::Shown;
use crate::shared::Shared;
use crate::sync::queues::Queue;
use crate::sys::state::State;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of stack that a goroutine reserves as a rule. With its guard it is the largest stack that
/// the library keeps warm for the next goroutine (1 MiB). A stack takes memory as it is touched.
const STACK: usize = 960 << 10;

/// Bytes of stack that a goroutine reserves if the program asks for no other size: `STACK`, or more
/// for the sake of libraries that are loaded.
static USUAL: AtomicUsize = AtomicUsize::new(STACK);

/// Bytes of stack that a goroutine reserves if the program asks for no other size.
#[inline(always)]
pub(super) fn usual_stack() -> usize {
    // Relaxed: a goroutine that begins meanwhile has either size.
    USUAL.load(Ordering::Relaxed)
}

/// Goroutines that are started from now on reserve at least this many bytes of stack.
#[pyfunction]
pub fn _want_stack(bytes: usize) {
    USUAL.fetch_max(bytes, Ordering::Relaxed);
}

/// Bytes of stack that a goroutine has at least: enough to compile source code that is nested as
/// deeply as Python allows.
pub(super) const LEAST_STACK: usize = 256 << 10;

/// How far a goroutine has got.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Status {
    /// It was spawned, and has not begun.
    New,
    /// It has begun.
    Running,
    /// Its function has ended, and its outcome is known.
    Done,
}

/// The call that a goroutine is to make.
pub(super) struct Call {
    pub(super) function: Py<PyAny>,
    pub(super) args: Py<PyTuple>,
    pub(super) kwargs: Option<Py<PyDict>>,
    pub(super) context: Py<PyAny>,
}

/// What of a goroutine other goroutines and threads may change.
pub(super) struct Inner {
    pub(super) call: Option<Call>,
    pub(super) status: Status,
    pub(super) result: Option<Py<PyAny>>,
    /// An exception instead of a result.
    pub(super) error: Option<Py<PyAny>>,
    /// The traceback of `error` as the goroutine has left it. Each caller of result() begins with
    /// this one, and adds its own frames.
    pub(super) traceback: Option<Py<PyAny>>,
    pub(super) cancelled: bool,
    /// The library's goroutine while it runs; else null.
    pub(super) handle: *mut gs_g,
    /// Exceptions that it is to raise at its next waits, in this order.
    pub(super) thrown: VecDeque<Py<PyAny>>,
    /// The `Timeout`s within which it is, each with its time in ns.
    pub(super) timeouts: Vec<(i64, Py<PyAny>)>,
    /// How many calls of `park::_through` it is in.
    pub(super) through: u32,
    pub(super) callbacks: Vec<Py<PyAny>>,
    pub(super) name: Option<Py<PyAny>>,
    /// Whether a caller has its exception, or a callback will ask for the exception: then nothing
    /// reports it.
    pub(super) watched: bool,
    /// How many callers wait for the outcome, to ask for it.
    pub(super) asking: u32,
    /// Whether its exception was not reported because of these callers.
    pub(super) unreported: bool,
    /// Its place in the list of all goroutines (`list`).
    pub(super) at: usize,
    /// What it runs Python code in, while it runs; else null.
    pub(super) state: *const State,
}

/// A goroutine: what go() gives.
#[pyclass(frozen, weakref, module = "gosched")]
pub struct Goroutine {
    pub(super) id: u64,
    pub(super) stack: usize,
    /// Whether it does the package's own work: `goroutines` and `num_goroutines` leave it out.
    pub(super) is_own: bool,
    /// The `forks::count` of the process that made it.
    forks: u32,
    pub(super) inner: Shared<Inner>,
    /// For the library's dumps and traces.
    pub shown: Shown,
    /// Goroutines and threads that wait for its end; the state: whether it has ended.
    pub(super) joiners: Queue<bool>,
}

/// The library's goroutine while it runs, with a reference of the caller's own; else null.
pub(super) fn retained(i: &Inner) -> *mut gs_g {
    // SAFETY: null, or it runs; never switches.
    unsafe { gs_retain(i.handle) }
}

impl Goroutine {
    pub(super) fn new(
        id: u64,
        stack: usize,
        is_own: bool,
        call: Option<Call>,
        status: Status,
    ) -> Goroutine {
        let shown = Shown::new(call.as_ref().map(|call| &call.function));
        let inner = Inner {
            call,
            status,
            result: None,
            error: None,
            traceback: None,
            cancelled: false,
            handle: ptr::null_mut(),
            thrown: VecDeque::new(),
            timeouts: Vec::new(),
            through: 0,
            callbacks: Vec::new(),
            name: None,
            watched: false,
            asking: 0,
            unreported: false,
            at: usize::MAX,
            state: ptr::null(),
        };
        Goroutine {
            id,
            stack,
            is_own,
            forks: forks::count(),
            inner: Shared::new(inner),
            shown,
            joiners: Queue::new(false),
        }
    }

    /// Whether the goroutine belongs to the parent that forked this process: it doesn't run here.
    #[inline(always)]
    pub fn is_lost(&self) -> bool {
        self.forks != forks::count()
    }

    /// Whether it has ended, or doesn't run in this process.
    pub(super) fn is_done(&self, py: Python<'_>) -> bool {
        self.inner.with(py, |i| i.status == Status::Done) || self.is_lost()
    }

    /// Whether it has begun and not ended.
    pub fn is_running(&self, py: Python<'_>) -> bool {
        self.inner.with(py, |i| i.status == Status::Running)
    }

    /// The state that it runs in; null: it has not begun, or has ended.
    pub fn state(&self, py: Python<'_>) -> *const State {
        self.inner.with(py, |i| i.state)
    }

    /// Calls `f`, which neither runs Python code nor waits, with the state that the goroutine runs
    /// in. The goroutine doesn't end meanwhile. `None`: it has not begun, or has ended.
    pub fn with_state<R>(&self, py: Python<'_>, f: impl FnOnce(&State) -> R) -> Option<R> {
        // SAFETY: null, or the state of a goroutine that doesn't end before `inner` is free again.
        self.inner.with(py, |i| unsafe { i.state.as_ref() }.map(f))
    }

    /// For `thrown::cancel`: the library's goroutine while it runs, with a reference of the
    /// caller's own; else null.
    pub fn handle(&self, py: Python<'_>) -> *mut gs_g {
        self.inner.with(py, |i| retained(i))
    }

    /// Makes the goroutine, which runs now, call the handlers of signals soon.
    pub fn look_for_signals(&self, py: Python<'_>) {
        self.with_state(py, |state| state.interrupt(py));
    }

    /// What its function has returned. `None`: it has not ended, or by an exception.
    pub fn value(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.inner.with(py, |i| i.result.as_ref().map(|result| result.clone_ref(py)))
    }

    /// The exception with which it has ended, if no caller has asked for that.
    pub fn unasked_error(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.inner.with(py, |i| {
            let error = i.error.as_ref().filter(|_| !i.watched);
            error.map(|e| e.clone_ref(py))
        })
    }

    pub fn ident(&self) -> u64 {
        self.id
    }
}
