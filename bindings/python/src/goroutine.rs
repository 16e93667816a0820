//! Goroutines.

use crate::errors::{self, Cancelled};
use crate::ffi::*;
use crate::park::{self, Timeout};
use crate::shared::Shared;
use crate::signals;
use crate::state::{State, stack_for};
use crate::sync::{Queue, forks};
use crate::worker;
use pyo3::exceptions::{PyBaseException, PySystemExit, PyTypeError};
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::collections::VecDeque;
use std::ffi::{CString, c_void};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Bytes of stack that a goroutine reserves if nothing else is asked for: with its guard page the largest that
/// the library keeps warm for the next goroutine (1 MiB). It takes memory as it is touched.
const STACK: usize = 960 << 10;
/// The least: source code that is nested as deeply as Python allows is compiled on it.
const LEAST_STACK: usize = 256 << 10;

/// The main interpreter, in which the module was imported.
static INTERPRETER: AtomicPtr<py_ffi::PyInterpreterState> = AtomicPtr::new(ptr::null_mut());
static NEXT_ID: AtomicU64 = AtomicU64::new(1);
/// All goroutines except the main one that have begun and not ended. Borrowed pointers: each goroutine keeps its own
/// object alive.
static ALL: Shared<Vec<*const Goroutine>> = Shared::new(Vec::new());
/// Goroutines that were spawned and have not ended, those of the package's own not included.
static ALIVE: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, PartialEq)]
enum Status {
    New,
    Running,
    Done,
}

/// What `fn` is called with.
struct Call {
    function: Py<PyAny>,
    args: Py<PyTuple>,
    kwargs: Option<Py<PyDict>>,
    context: Py<PyAny>,
}

/// What goroutines share.
struct Inner {
    call: Option<Call>,
    status: Status,
    result: Option<Py<PyAny>>,
    /// An exception instead of a result.
    error: Option<Py<PyAny>>,
    /// Its traceback as the goroutine has left it: each caller of result() adds its own frames to that alone.
    traceback: Option<Py<PyAny>>,
    cancelled: bool,
    /// The library's goroutine while it runs; else null.
    handle: *mut gs_g,
    /// Exceptions to be raised at its next waits.
    thrown: VecDeque<Py<PyAny>>,
    /// The `Timeout`s within which it is, each with its time in ns.
    timeouts: Vec<(i64, Py<PyAny>)>,
    /// How many calls of `park::_through` it is in.
    through: u32,
    callbacks: Vec<Py<PyAny>>,
    name: Option<Py<PyAny>>,
    /// A caller has its exception, or a callback will ask for it.
    watched: bool,
    /// How many callers wait for the outcome, to ask for it.
    asking: u32,
    /// Its exception was not reported because of those.
    unreported: bool,
    /// Its place in `ALL`.
    at: usize,
    /// While it runs; else null.
    state: *const State,
}

/// A goroutine: what go() gives.
#[pyclass(frozen, weakref, module = "gosched")]
pub struct Goroutine {
    id: u64,
    stack: usize,
    /// Whether it does the package's own work: `goroutines` and `num_goroutines` leave it out.
    is_own: bool,
    /// The `sync::forks` of the process that made it.
    forks: u32,
    inner: Shared<Inner>,
    /// Goroutines and threads that wait for its end; the state: whether it has ended.
    joiners: Queue<bool>,
}

/// The library's goroutine while it runs, with a reference of the caller's own; else null.
fn retained(i: &Inner) -> *mut gs_g {
    // SAFETY: null, or it runs; never switches.
    unsafe { gs_retain(i.handle) }
}

/// Ends the present wait of a goroutine, or its next one. Takes the reference.
pub fn cancel(py: Python<'_>, handle: *mut gs_g) {
    if !handle.is_null() {
        let handle = handle as usize;
        // SAFETY: the caller's reference.
        park::call(py, || unsafe {
            gs_cancel(handle as *mut gs_g);
            gs_release(handle as *mut gs_g);
        });
    }
}

impl Goroutine {
    fn new(id: u64, stack: usize, is_own: bool, call: Option<Call>, status: Status) -> Goroutine {
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
            forks: forks(),
            inner: Shared::new(inner),
            joiners: Queue::new(false),
        }
    }

    /// Whether the goroutine belongs to the parent that forked this process: it doesn't run here.
    #[inline(always)]
    fn is_lost(&self) -> bool {
        self.forks != forks()
    }

    /// The first exception that was thrown at it; within `park::_through` only what ends the program.
    #[inline(always)]
    pub fn take_thrown(&self, py: Python<'_>) -> Option<PyErr> {
        let (thrown, was_last, is_through) = self.inner.with(py, |i| {
            if i.thrown.is_empty() || i.through > 0 {
                return (None, false, !i.thrown.is_empty());
            }
            (i.thrown.pop_front(), i.thrown.is_empty(), false)
        });
        if is_through && worker::is_main_goroutine() {
            return self.take_end(py);
        }
        let thrown = thrown?;
        if was_last {
            // SAFETY: never switches; the caller is this goroutine.
            unsafe { gs_uncancel() };
        }
        if is_interrupt(py, &thrown) && worker::is_main_goroutine() {
            signals::discard_repeated(py, self);
        }
        Some(errors::raised(thrown.bind(py)))
    }

    /// The first exception that was thrown at it, of those that end the program.
    pub fn take_end(&self, py: Python<'_>) -> Option<PyErr> {
        let end = self.inner.with(py, |i| {
            let at = i
                .thrown
                .iter()
                .position(|e| is_interrupt(py, e) || e.bind(py).is_instance_of::<PySystemExit>())?;
            i.thrown.remove(at)
        })?;
        if is_interrupt(py, &end) {
            signals::discard_repeated(py, self);
        }
        Some(errors::raised(end.bind(py)))
    }

    /// Has the library know whether there is something to be raised at the goroutine's next wait. It runs now.
    pub fn cancel_if_thrown(&self, py: Python<'_>) {
        let handle = self
            .inner
            .with(py, |i| if i.thrown.is_empty() { ptr::null_mut() } else { retained(i) });
        if handle.is_null() {
            // SAFETY: never switches; the caller is this goroutine.
            unsafe { gs_uncancel() };
        }
        cancel(py, handle);
    }

    /// Has the goroutine, which runs now, raise at its next wait what has just ended a wait of it.
    pub fn put_back(&self, py: Python<'_>, e: PyErr) {
        let e = e.into_value(py).into_any();
        let handle = self.inner.with(py, |i| {
            if let Some(timeout) = i.timeouts.iter_mut().find(|t| t.1.is(&e)) {
                timeout.0 = 1;
                return Err(e);
            }
            i.thrown.push_front(e);
            Ok(retained(i))
        });
        if let Ok(handle) = handle {
            cancel(py, handle);
        }
    }

    /// When the first of the `Timeout`s expires; within `park::_through` none does.
    #[inline(always)]
    pub fn next_timeout(&self, py: Python<'_>) -> Option<i64> {
        self.inner.with(py, |i| match i.through {
            0 => i.timeouts.iter().map(|t| t.0).min(),
            _ => None,
        })
    }

    /// The `Timeout` that has expired, as an exception, once.
    #[inline(always)]
    pub fn expired(&self, py: Python<'_>) -> Option<PyErr> {
        let is_none = self.inner.with(py, |i| i.timeouts.is_empty() || i.through > 0);
        if is_none { None } else { self.first_expired(py) }
    }

    /// Before a call of `park::_through`.
    pub fn begin_through(&self, py: Python<'_>) {
        self.inner.with(py, |i| i.through += 1);
    }

    /// After it. What was thrown at the goroutine meanwhile is for its next wait.
    pub fn end_through(&self, py: Python<'_>) {
        self.inner.with(py, |i| i.through -= 1);
        self.cancel_if_thrown(py);
    }

    #[cold]
    fn first_expired(&self, py: Python<'_>) -> Option<PyErr> {
        // SAFETY: no preconditions.
        let now = unsafe { gs_now() };
        let timeout = self.inner.with(py, |i| {
            let first = i.timeouts.iter_mut().filter(|t| t.0 <= now).min_by_key(|t| t.0)?;
            first.0 = i64::MAX;
            Some(first.1.clone_ref(py))
        })?;
        Some(errors::raised(timeout.bind(py)))
    }

    fn is_done(&self, py: Python<'_>) -> bool {
        self.inner.with(py, |i| i.status == Status::Done) || self.is_lost()
    }

    /// For a goroutine that has ended: fails if it has left no outcome in this process.
    fn outcome_is_known(&self, py: Python<'_>) -> PyResult<()> {
        if self.inner.with(py, |i| i.status == Status::Done) {
            return Ok(());
        }
        Err(Cancelled::new_err("the goroutine belongs to the process that forked this one"))
    }

    fn wait_for_end(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = Timeout::after(timeout)?;
        if self.is_done(py) {
            return Ok(true);
        }
        if worker::current(py).is_some_and(|me| ptr::eq(me, self)) {
            return Err(errors::runtime("a goroutine can't wait for its own end"));
        }
        while !self.is_done(py) {
            let woken = self.joiners.wait(py, 0, timeout, |ended, _| *ended).map_err(|(e, _)| e)?;
            if !woken {
                return Ok(self.is_done(py));
            }
        }
        Ok(true)
    }

    /// For result() and exception(): waits until it has ended. The error is the caller's from then on.
    fn wait_for_outcome(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<()> {
        let (py, g) = (slf.py(), slf.get());
        g.inner.with(py, |i| i.asking += 1);
        let ended = g.wait_for_end(py, timeout).and_then(|has_ended| {
            if has_ended { g.outcome_is_known(py) } else { Err(errors::timed_out()) }
        });
        let has_it = ended.is_ok();
        let left = g.inner.with(py, |i| {
            i.asking -= 1;
            i.watched |= has_it;
            // It has ended meanwhile, and this caller is the last that gives up.
            let is_left = i.unreported && (has_it || i.asking == 0);
            i.unreported &= !is_left;
            if is_left && !i.watched { i.error.as_ref().map(|e| e.clone_ref(py)) } else { None }
        });
        if let Some(e) = left {
            report(py, slf, &e);
        }
        ended
    }

    pub fn throw_at(&self, py: Python<'_>, exception: Py<PyAny>) -> bool {
        let handle = self.inner.with(py, |i| {
            if i.status == Status::Done || self.is_lost() {
                return Err(exception);
            }
            i.thrown.push_back(exception);
            Ok(retained(i))
        });
        match handle {
            Ok(handle) => {
                cancel(py, handle);
                true
            }
            Err(exception) => {
                drop(exception);
                false
            }
        }
    }

    /// For `cancel`: the library's goroutine while it runs.
    pub fn handle(&self, py: Python<'_>) -> *mut gs_g {
        self.inner.with(py, |i| retained(i))
    }

    /// Where it is: see `state::stack`. `None`: it has not begun, or has ended.
    #[cfg(Py_GIL_DISABLED)]
    fn stack(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        loop {
            // With the lock of `inner` the goroutine doesn't end before it is held.
            let held = self.inner.with(py, |i| {
                // SAFETY: null, or the state of a goroutine that has not ended.
                let state = unsafe { i.state.as_ref()? };
                // SAFETY: the lock of `inner` is held, so the goroutine doesn't end.
                Some(unsafe { state.hold() }.then_some(ptr::from_ref(state)))
            });
            match held {
                None => return Ok(None),
                // SAFETY: held, so it doesn't end.
                Some(Some(state)) => return unsafe { (*state).stack_and_let_go(py) }.map(Some),
                Some(None) => {}
            }
            // It runs, unless it has stopped just now.
            if let Some(worker) = worker::all().into_iter().find(|worker| worker.runs(self)) {
                let stack = worker.stack(py, self)?;
                if !stack.is_none(py) {
                    return Ok(Some(stack));
                }
            }
            // It begins, ends or changes over: for a moment, for which it may need this thread's processor.
            park::call(py, std::thread::yield_now);
            py.check_signals()?;
        }
    }

    /// Makes the goroutine, which runs now, call the handlers of signals soon.
    pub fn look_for_signals(&self, py: Python<'_>) {
        self.inner.with(py, |i| {
            // SAFETY: null, or the state of a goroutine that doesn't end before `inner` is free again.
            if let Some(state) = unsafe { i.state.as_ref() } {
                state.interrupt(py);
            }
        });
    }

    /// Calls `f`, which neither runs Python code nor waits, if a KeyboardInterrupt was thrown at it and not raised yet.
    /// The goroutine doesn't raise it meanwhile. Whether that is so.
    pub fn if_interrupted(&self, py: Python<'_>, f: impl FnOnce()) -> bool {
        self.inner.with(py, |i| {
            let is_interrupted = i.thrown.iter().any(|e| is_interrupt(py, e));
            if is_interrupted {
                f();
            }
            is_interrupted
        })
    }

    pub fn ident(&self) -> u64 {
        self.id
    }
}

#[pymethods]
impl Goroutine {
    /// A number that no other goroutine alive has.
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// Its name, for reports.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        let name = self.inner.with(py, |i| i.name.as_ref().map(|n| n.clone_ref(py)));
        name.unwrap_or_else(|| {
            format!("goroutine-{}", self.id).into_pyobject(py).unwrap().into_any().unbind()
        })
    }

    #[setter]
    fn set_name(&self, py: Python<'_>, name: Py<PyAny>) {
        let before = self.inner.with(py, |i| i.name.replace(name));
        drop(before);
    }

    /// Waits until it has ended. False: the timeout, in seconds, has passed.
    #[pyo3(signature = (timeout=None))]
    fn join(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.wait_for_end(py, timeout)
    }

    /// Waits until it has ended; gives what its function has returned, or raises what that has raised.
    /// TimeoutError: the timeout, in seconds, has passed.
    #[pyo3(signature = (timeout=None))]
    fn result(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        Self::wait_for_outcome(slf, timeout)?;
        let py = slf.py();
        let (result, error, traceback) = slf.get().inner.with(py, |i| {
            let copy = |object: &Option<Py<PyAny>>| object.as_ref().map(|o| o.clone_ref(py));
            (copy(&i.result), copy(&i.error), copy(&i.traceback))
        });
        match error {
            Some(e) => Err(errors::raised_anew(e.bind(py), traceback)),
            None => Ok(result.unwrap_or_else(|| py.None())),
        }
    }

    /// Waits until it has ended; gives the exception that its function has raised, or None.
    /// TimeoutError: the timeout, in seconds, has passed.
    #[pyo3(signature = (timeout=None))]
    fn exception(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
        Self::wait_for_outcome(slf, timeout)?;
        let py = slf.py();
        Ok(slf.get().inner.with(py, |i| i.error.as_ref().map(|e| e.clone_ref(py))))
    }

    /// Whether it has ended.
    fn done(&self, py: Python<'_>) -> bool {
        self.is_done(py)
    }

    /// Whether it has ended by Cancelled.
    fn cancelled(&self, py: Python<'_>) -> bool {
        self.inner.with(py, |i| i.cancelled)
    }

    /// Raises Cancelled in it, once, at its present or next wait. False: it has ended already.
    #[pyo3(signature = (msg=None))]
    fn cancel(&self, py: Python<'_>, msg: Option<Py<PyAny>>) -> bool {
        let e = match msg {
            Some(msg) => Cancelled::new_err((msg,)),
            None => Cancelled::new_err(()),
        };
        self.throw_at(py, e.into_value(py).into_any())
    }

    /// Raises an exception in it, once, at its present or next wait. False: it has ended already.
    fn throw(&self, exc: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = exc.py();
        let is_class = exc
            .cast::<pyo3::types::PyType>()
            .is_ok_and(|c| c.is_subclass_of::<PyBaseException>().unwrap_or(false));
        let e = if is_class { exc.call0()? } else { exc.clone() };
        if !e.is_instance_of::<PyBaseException>() {
            return Err(PyTypeError::new_err("exceptions must derive from BaseException"));
        }
        Ok(self.throw_at(py, e.unbind()))
    }

    /// Has fn(goroutine) called when it has ended, by the goroutine itself; now, if it has already.
    fn add_done_callback(slf: &Bound<'_, Self>, function: &Bound<'_, PyAny>) -> PyResult<()> {
        if !function.is_callable() {
            return Err(errors::not_callable(function));
        }
        slf.get().inner.with(slf.py(), |i| i.watched = true);
        Self::_on_end(slf, function.clone().unbind());
        Ok(())
    }

    /// As add_done_callback, but an error of the goroutine is reported all the same.
    fn _on_end(slf: &Bound<'_, Self>, function: Py<PyAny>) {
        let (py, g) = (slf.py(), slf.get());
        let late = g.inner.with(py, |i| {
            if i.status == Status::Done {
                return Some(function);
            }
            i.callbacks.push(function);
            None
        });
        if let Some(function) = late {
            call_back(py, &function, slf);
        }
    }

    /// Takes back what was thrown at it and not raised yet. Whether it has.
    fn _take_back(&self, py: Python<'_>, exc: &Bound<'_, PyAny>) -> bool {
        let gone = self.inner.with(py, |i| {
            let at = i.thrown.iter().position(|e| e.is(exc))?;
            i.thrown.remove(at)
        });
        gone.is_some()
    }

    /// Takes a callback back; gives how often it was there.
    fn remove_done_callback(&self, py: Python<'_>, function: &Bound<'_, PyAny>) -> PyResult<usize> {
        let all: Vec<_> =
            self.inner.with(py, |i| i.callbacks.iter().map(|f| f.clone_ref(py)).collect());
        // Comparing runs Python code, which may change the list.
        let mut equal = Vec::new();
        for f in all {
            if f.bind(py).eq(function)? {
                equal.push(f);
            }
        }
        let mut removed = Vec::new();
        self.inner.with(py, |i| {
            for f in &equal {
                if let Some(at) = i.callbacks.iter().position(|g| g.is(f)) {
                    removed.push(i.callbacks.remove(at));
                }
            }
        });
        Ok(removed.len())
    }

    /// The frame that it is in; None: it isn't running, or not in Python. On a free-threaded Python, where it may go
    /// on meanwhile, a copy of what traceback uses.
    #[getter]
    pub fn frame(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if self.is_lost() {
            return Ok(None);
        }
        #[cfg(not(Py_GIL_DISABLED))]
        {
            let state = self.inner.with(py, |i| i.state);
            // SAFETY: null, or the state of a goroutine that has not ended.
            Ok(unsafe { state.as_ref() }.and_then(|state| unsafe { state.frame(py) }))
        }
        #[cfg(Py_GIL_DISABLED)]
        {
            if worker::current(py).is_some_and(|me| ptr::eq(me, self)) {
                // SAFETY: attached; a new reference or null.
                let frame = unsafe {
                    let frame = PyThreadState_GetFrame(py_ffi::PyThreadState_Get());
                    Bound::from_owned_ptr_or_opt(py, frame)
                };
                return Ok(frame.map(Bound::unbind));
            }
            let Some(stack) = self.stack(py)? else { return Ok(None) };
            let module = py.import("gosched._runtime")?;
            let frame = module.call_method1("_frame_of", (stack,))?;
            Ok((!frame.is_none()).then(|| frame.unbind()))
        }
    }

    /// Whether it has begun, has not ended, and waits or has given way.
    fn _is_away(&self, py: Python<'_>) -> bool {
        if self.is_lost() {
            return false;
        }
        #[cfg(not(Py_GIL_DISABLED))]
        {
            let runs = self.inner.with(py, |i| i.status == Status::Running);
            runs && worker::all().iter().all(|w| !w.runs(self))
        }
        #[cfg(Py_GIL_DISABLED)]
        self.inner.with(py, |i| {
            // SAFETY: null, or the state of a goroutine that has not ended; let go if it was held.
            unsafe { i.state.as_ref().filter(|s| s.hold()).map(|s| s.let_go()).is_some() }
        })
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let g = slf.get();
        let py = slf.py();
        let state = g.inner.with(py, |i| match i.status {
            Status::New | Status::Running if g.is_lost() => "lost in a fork",
            Status::New => "new",
            Status::Running => "running",
            Status::Done if i.cancelled => "cancelled",
            Status::Done if i.error.is_some() => "failed",
            Status::Done => "done",
        });
        let name = g.name(py).bind(py).str()?.to_string();
        Ok(format!("<gosched.Goroutine {} {state}>", name))
    }

    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        // The collector runs with the GIL held.
        self.inner.with_thread(|i| {
            if let Some(call) = &i.call {
                visit.call(&call.function)?;
                visit.call(&call.args)?;
                visit.call(&call.kwargs)?;
                visit.call(&call.context)?;
            }
            visit.call(&i.result)?;
            visit.call(&i.error)?;
            visit.call(&i.traceback)?;
            visit.call(&i.name)?;
            i.thrown.iter().chain(&i.callbacks).try_for_each(|o| visit.call(o))?;
            i.timeouts.iter().try_for_each(|t| visit.call(&t.1))
        })
    }

    fn __clear__(&self) {
        let all = self.inner.with_thread(|i| {
            (
                i.call.take(),
                i.result.take(),
                i.error.take(),
                i.traceback.take(),
                i.name.take(),
                std::mem::take(&mut i.callbacks),
                std::mem::take(&mut i.thrown),
                std::mem::take(&mut i.timeouts),
            )
        });
        drop(all);
    }

    #[classmethod]
    fn __class_getitem__(
        cls: &Bound<'_, pyo3::types::PyType>,
        _item: &Bound<'_, PyAny>,
    ) -> Py<PyAny> {
        cls.clone().into_any().unbind()
    }
}

#[cfg(Py_GIL_DISABLED)]
unsafe extern "C" {
    fn PyThreadState_GetFrame(ts: *mut py_ffi::PyThreadState) -> *mut py_ffi::PyObject;
}

/// At import.
pub fn init() {
    // SAFETY: attached.
    INTERPRETER.store(unsafe { py_ffi::PyInterpreterState_Get() }, Ordering::Relaxed);
}

/// The main interpreter.
pub fn interpreter() -> *mut py_ffi::PyInterpreterState {
    INTERPRETER.load(Ordering::Relaxed)
}

/// The object of the main goroutine, whose handle this is.
pub fn main_object(py: Python<'_>, handle: *mut gs_g) -> PyResult<Py<Goroutine>> {
    // SAFETY: no preconditions.
    let id = unsafe { libc::pthread_self() } as u64;
    let g = Py::new(py, Goroutine::new(id, 0, false, None, Status::Running))?;
    let name = "main".into_pyobject(py)?.into_any().unbind();
    let state = Box::leak(Box::new(State::new()));
    // SAFETY: the main goroutine, attached.
    unsafe { state.adopt() };
    g.get().inner.with(py, |i| {
        i.handle = handle;
        i.name = Some(name);
        i.state = state;
    });
    // SAFETY: never switches; the object lives as long as the goroutine.
    unsafe { gs_set_data(handle, g.as_ptr().cast()) };
    Ok(g)
}

/// In the child of a fork.
pub fn forked(py: Python<'_>) {
    ALL.with(py, Vec::clear);
    ALIVE.store(0, Ordering::Relaxed);
    LATE.store(0, Ordering::Relaxed);
}

/// Starts a goroutine. With `is_own` it does the package's own work, on the first thread that runs goroutines.
fn spawn_call(
    py: Python<'_>,
    call: Call,
    name: Option<Py<PyAny>>,
    stack: usize,
    is_own: bool,
) -> PyResult<Py<Goroutine>> {
    worker::ensure(py)?;
    if worker::is_ending() && worker::is_over() {
        return Err(worker::ending());
    }
    let label = match &name {
        Some(name) => CString::new(name.bind(py).str()?.to_string_lossy().into_owned()).ok(),
        None => None,
    };
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let g = Py::new(py, Goroutine::new(id, stack, is_own, Some(call), Status::New))?;
    g.get().inner.with(py, |i| i.name = name);
    let opts = gs_spawn_opts {
        size: size_of::<gs_spawn_opts>(),
        name: label.as_ref().map_or(ptr::null(), |l| l.as_ptr()),
        stack_size: stack,
        priority: 0,
        // The threads that run goroutines of Python are where they are.
        node: -1,
        flags: GS_SPAWN_PINNED | GS_SPAWN_NOSIGNAL,
        reserved: 0,
        data: g.as_ptr().cast(),
        workers: if is_own { worker::first_group() } else { worker::group() },
    };
    let arg = g.clone_ref(py).into_ptr();
    ALIVE.fetch_add(u64::from(!is_own), Ordering::Relaxed);
    // SAFETY: `run` takes the reference; the options live through the call.
    let e = park::call(py, || unsafe {
        gs_spawn_with(run, arg.cast(), &raw const opts, ptr::null_mut())
    });
    if e != 0 {
        ALIVE.fetch_sub(u64::from(!is_own), Ordering::Relaxed);
        // SAFETY: it was not taken.
        drop(unsafe { Bound::from_owned_ptr(py, arg) });
        return Err(if e == -libc::EINVAL {
            errors::value("the stack is too large")
        } else {
            errors::of(e)
        });
    }
    Ok(g)
}

/// The function of each goroutine. `object` is the reference that `spawn_call` has given.
unsafe extern "C" fn run(object: *mut c_void) {
    let object: *mut py_ffi::PyObject = object.cast();
    // SAFETY: a `Py` is the address of its object, and a frozen object may be read without the GIL.
    let (stack, ident) = unsafe {
        let g = std::mem::transmute::<*mut py_ffi::PyObject, ManuallyDrop<Py<Goroutine>>>(object);
        (g.get().stack, g.get().id)
    };
    let is_usual = stack == STACK;
    let mut state = State::new();
    // SAFETY: a new goroutine; the reference keeps the object until `body` has ended.
    unsafe {
        if !state.begin(interpreter(), stack, is_usual, ident) {
            // It stays new for ever: there is no memory to say so.
            return;
        }
        Python::attach(|py| {
            let g = Bound::<PyAny>::from_owned_ptr(py, object).cast_into_unchecked::<Goroutine>();
            body(&g, &state);
            worker::away(Some(g.get()));
        });
        state.end(is_usual);
    }
}

fn body(slf: &Bound<'_, Goroutine>, state: &State) {
    let (py, g) = (slf.py(), slf.get());
    worker::set_current(Some(g));
    // SAFETY: the running goroutine.
    let handle = unsafe { gs_self() };
    ALL.with(py, |all| {
        g.inner.with(py, |i| i.at = all.len());
        all.push(g);
    });
    let call = g.inner.with(py, |i| {
        (i.handle, i.status, i.state) = (handle, Status::Running, state);
        i.call.take()
    });
    let outcome = match g.take_thrown(py) {
        Some(e) => {
            // What it was given ends with it, before its thread state does.
            drop(call);
            Err(e)
        }
        None => call.map_or_else(|| Ok(py.None()), |call| perform(py, call)),
    };
    if g.is_lost() {
        end_of_child(py, outcome);
    }
    // What runs from here on, such as a callback, may fork too.
    let end_if_forked = || {
        if g.is_lost() {
            end_of_child(py, Ok(py.None()));
        }
    };
    let (result, error) = match outcome {
        Ok(value) => (Some(value), None),
        Err(e) => (None, Some(e)),
    };
    let is_quiet = error
        .as_ref()
        .is_none_or(|e| e.is_instance_of::<Cancelled>(py) || e.is_instance_of::<PySystemExit>(py));
    let cancelled = error.as_ref().is_some_and(|e| e.is_instance_of::<Cancelled>(py));
    let traceback = error.as_ref().and_then(|e| e.traceback(py)).map(|t| t.into_any().unbind());
    let error = error.map(|e| e.into_value(py).into_any());
    let is_left = !is_quiet && will_be_watched(slf);
    if !is_quiet
        && !is_left
        && let Some(e) = &error
    {
        report(py, slf, e);
    }
    // SAFETY: this goroutine, in Python.
    unsafe { state.clear() };
    end_if_forked();
    let (callbacks, left, late) = g.inner.with(py, |i| {
        (i.result, i.error, i.cancelled) = (result, error, cancelled);
        i.traceback = traceback;
        i.status = Status::Done;
        let left = (std::mem::take(&mut i.thrown), std::mem::take(&mut i.timeouts));
        i.unreported = is_left && !i.watched && i.asking > 0;
        // Those that asked have given up meanwhile.
        let is_late = is_left && !i.watched && i.asking == 0;
        let late = if is_late { i.error.as_ref().map(|e| e.clone_ref(py)) } else { None };
        (std::mem::take(&mut i.callbacks), left, late)
    });
    drop(left);
    // SAFETY: never switches.
    unsafe { gs_uncancel() };
    ALIVE.fetch_sub(u64::from(!g.is_own), Ordering::Relaxed);
    // Before the callbacks, which may wait.
    g.joiners.wake(py, |ended, waiting| {
        *ended = true;
        waiting
    });
    for f in callbacks {
        call_back(py, &f, slf);
        end_if_forked();
    }
    if let Some(e) = late {
        report(py, slf, &e);
        end_if_forked();
    }
    g.inner.with(py, |i| (i.handle, i.state) = (ptr::null_mut(), ptr::null()));
    ALL.with(py, |all| {
        let at = g.inner.with(py, |i| i.at);
        all.swap_remove(at);
        if let Some(moved) = all.get(at) {
            // SAFETY: a goroutine that has not ended keeps its object.
            unsafe { &**moved }.inner.with(py, |i| i.at = at);
        }
    });
    // What a callback has left behind.
    // SAFETY: this goroutine, in Python.
    unsafe { state.clear() };
    end_if_forked();
}

/// What was called has forked, and this is the child: the end of that function, a goroutine's, a callback or one called
/// by `blocking`, is that of the program.
pub fn end_of_child(py: Python<'_>, outcome: PyResult<Py<PyAny>>) -> ! {
    let error = outcome.err().map(|e| e.into_value(py));
    let ended =
        py.import("gosched._runtime").and_then(|m| m.call_method1("_end_of_child", (error,)));
    if let Err(e) = ended {
        e.write_unraisable(py, None);
    }
    // SAFETY: no preconditions.
    unsafe { libc::_exit(1) }
}

/// Calls the goroutine's function in its context, with the hooks of `threading`.
fn perform(py: Python<'_>, call: Call) -> PyResult<Py<PyAny>> {
    // SAFETY: a context that no other state is in: it was copied for this goroutine.
    if unsafe { py_ffi::PyContext_Enter(call.context.as_ptr()) } != 0 {
        return Err(PyErr::fetch(py));
    }
    let result = apply_hooks(py).and_then(|()| {
        let kwargs = call.kwargs.as_ref().map(|k| k.bind(py));
        call.function.bind(py).call(call.args.bind(py), kwargs)
    });
    let result = result.map(Bound::unbind);
    // SAFETY: entered above.
    if unsafe { py_ffi::PyContext_Exit(call.context.as_ptr()) } != 0 {
        drop(PyErr::take(py));
    }
    result
}

/// threading.settrace and threading.setprofile hold for goroutines too, and for calls of `blocking`.
pub fn apply_hooks(py: Python<'_>) -> PyResult<()> {
    let Some(threading) = loaded(py, pyo3::intern!(py, "threading")) else { return Ok(()) };
    for (hook, set) in [("_trace_hook", "settrace"), ("_profile_hook", "setprofile")] {
        if let Ok(f) = threading.getattr(hook)
            && !f.is_none()
        {
            py.import("sys")?.call_method1(set, (f,))?;
        }
    }
    Ok(())
}

/// A module that is imported already.
fn loaded<'py>(
    py: Python<'py>,
    name: &Bound<'py, pyo3::types::PyString>,
) -> Option<Bound<'py, PyAny>> {
    // SAFETY: a new reference or null; an error is no error here.
    unsafe {
        let module = py_ffi::PyImport_GetModule(name.as_ptr());
        if module.is_null() {
            py_ffi::PyErr_Clear();
            return None;
        }
        Some(Bound::from_owned_ptr(py, module))
    }
}

fn is_interrupt(py: Python<'_>, e: &Py<PyAny>) -> bool {
    e.bind(py).is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>()
}

fn call_back(py: Python<'_>, function: &Py<PyAny>, g: &Bound<'_, Goroutine>) {
    if let Err(e) = function.call1(py, (g,)) {
        e.write_unraisable(py, Some(function.bind(py)));
    }
}

/// Reports that are put off because a caller may still ask for the error.
static LATE: AtomicU64 = AtomicU64::new(0);

pub fn late_reports() -> u64 {
    LATE.load(Ordering::Relaxed)
}

/// How long a report waits at most, and between looks, in ns.
const LATE_MOST: i64 = 20_000_000;
const LATE_STEP: i64 = 500_000;

/// Whether a caller asks for the error with which the goroutine has ended. Without a GIL the goroutine's starter runs at
/// the same time and may be about to ask, so this waits up to `LATE_MOST` for it.
fn will_be_watched(slf: &Bound<'_, Goroutine>) -> bool {
    let (py, g) = (slf.py(), slf.get());
    let is_watched = || g.inner.with(py, |i| i.watched || i.asking > 0);
    if cfg!(Py_GIL_DISABLED) && !is_watched() {
        // SAFETY: no preconditions.
        let until = unsafe { gs_now() } + LATE_MOST;
        // False: no other reference is left, or the holders wait in join().
        let may_ask = || {
            // SAFETY: attached. One reference is the goroutine's own.
            let references = unsafe { py_ffi::Py_REFCNT(slf.as_ptr()) };
            references > 1 && g.joiners.with(py, |_, [waiting]| waiting) == 0
        };
        LATE.fetch_add(1, Ordering::Relaxed);
        // SAFETY: no preconditions.
        while !is_watched() && may_ask() && !worker::is_ending() && unsafe { gs_now() } < until {
            // SAFETY: outside of Python, on this goroutine.
            park::call(py, || unsafe {
                gs_cancel_disable();
                gs_sleep_until(gs_now() + LATE_STEP);
                gs_cancel_enable();
            });
        }
        LATE.fetch_sub(1, Ordering::Relaxed);
    }
    is_watched()
}

/// Reports an exception that no caller has asked for.
fn report(py: Python<'_>, g: &Bound<'_, Goroutine>, e: &Py<PyAny>) {
    let told = py.import("gosched").and_then(|m| m.call_method1("excepthook", (g, e)));
    if let Err(e) = told {
        e.write_unraisable(py, None);
    }
}

fn call_of<'py>(
    function: &Bound<'py, PyAny>,
    args: Bound<'py, PyTuple>,
    kwargs: Option<Bound<'py, PyDict>>,
) -> PyResult<Call> {
    if !function.is_callable() {
        return Err(errors::not_callable(function));
    }
    let py = function.py();
    // SAFETY: a new reference or an error.
    let context = unsafe {
        let context = py_ffi::PyContext_CopyCurrent();
        if context.is_null() {
            return Err(PyErr::fetch(py));
        }
        Bound::from_owned_ptr(py, context)
    };
    Ok(Call {
        function: function.clone().unbind(),
        args: args.unbind(),
        kwargs: kwargs.map(Bound::unbind),
        context: context.unbind(),
    })
}

/// Starts fn(*args, **kwargs) as a goroutine, and gives that.
///
/// >>> import gosched
/// >>> gosched.go(pow, 2, 10).result()
/// 1024
#[pyfunction]
#[pyo3(signature = (function, /, *args, **kwargs), text_signature = "(fn, /, *args, **kwargs)")]
pub fn go<'py>(
    function: &Bound<'py, PyAny>,
    args: Bound<'py, PyTuple>,
    kwargs: Option<Bound<'py, PyDict>>,
) -> PyResult<Py<Goroutine>> {
    let py = function.py();
    spawn_call(py, call_of(function, args, kwargs)?, None, stack_for(py, STACK), false)
}

/// Starts fn(*args, **kwargs) as a goroutine with a name, on a NUMA node, or with a stack of a given size in bytes.
#[pyfunction]
#[pyo3(
    signature = (function, /, args=None, kwargs=None, *, name=None, node=None, stack_size=0),
    text_signature = "(fn, /, args=(), kwargs=None, *, name=None, node=None, stack_size=0)"
)]
pub fn spawn<'py>(
    function: &Bound<'py, PyAny>,
    args: Option<&Bound<'py, PyAny>>,
    kwargs: Option<&Bound<'py, PyAny>>,
    name: Option<Py<PyAny>>,
    node: Option<i32>,
    stack_size: isize,
) -> PyResult<Py<Goroutine>> {
    let py = function.py();
    let stack_size = usize::try_from(stack_size)
        .map_err(|_| errors::value("stack_size must not be negative"))?;
    let args = match args {
        Some(args) => py.get_type::<PyTuple>().call1((args,))?.cast_into::<PyTuple>()?,
        None => PyTuple::empty(py),
    };
    let kwargs = match kwargs {
        Some(kwargs) if !kwargs.is_none() => {
            let copy = PyDict::new(py);
            copy.update(kwargs.cast::<pyo3::types::PyMapping>()?)?;
            Some(copy)
        }
        _ => None,
    };
    if let Some(n) = node
        && (n < 0 || n >= crate::info::nodes(py)?)
    {
        return Err(errors::value("there is no such node"));
    }
    let stack = if stack_size == 0 { stack_for(py, STACK) } else { stack_size.max(LEAST_STACK) };
    spawn_call(py, call_of(function, args, kwargs)?, name, stack, false)
}

/// For gosched.asyncio: starts a goroutine of the package's own on the first thread that runs goroutines, the main thread.
#[pyfunction]
#[pyo3(signature = (function, /, *args, name))]
pub fn _spawn_first<'py>(
    function: &Bound<'py, PyAny>,
    args: Bound<'py, PyTuple>,
    name: Py<PyAny>,
) -> PyResult<Py<Goroutine>> {
    let py = function.py();
    spawn_call(py, call_of(function, args, None)?, Some(name), stack_for(py, STACK), true)
}

/// As `_spawn_first`, for a goroutine of the package's own, unless it runs already: `runs` says so from then on.
pub fn spawn_once(runs: &AtomicBool, function: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    if !runs.load(Ordering::Relaxed) {
        let py = function.py();
        let name = PyString::new(py, name).into_any().unbind();
        _spawn_first(function, PyTuple::empty(py), name)?;
        runs.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// The running goroutine; None on a thread that runs none.
#[pyfunction]
pub fn current(py: Python<'_>) -> PyResult<Option<Py<Goroutine>>> {
    if worker::is_main_thread() {
        worker::ensure(py)?;
    }
    Ok(worker::current(py).and_then(|g| object_of(py, g)))
}

/// The object whose contents these are; `None` for a goroutine of which only the last destructors run.
pub fn object_of(py: Python<'_>, g: &Goroutine) -> Option<Py<Goroutine>> {
    let handle = g.inner.with(py, |i| i.handle);
    if handle.is_null() {
        return None;
    }
    // SAFETY: its data is the object, which lives while it runs.
    unsafe {
        let object = Bound::<PyAny>::from_borrowed_ptr_or_opt(py, gs_data(handle).cast())?;
        Some(object.cast_into_unchecked::<Goroutine>().unbind())
    }
}

/// The main goroutine, that of the main thread; None before the first use of goroutines, and where
/// another thread was first.
#[pyfunction]
pub fn main(py: Python<'_>) -> Option<Py<Goroutine>> {
    worker::main(py)
}

/// A number that no other goroutine or thread alive has: on a thread that runs no goroutines, and in the
/// main goroutine, that of threading.get_ident().
#[pyfunction]
pub fn get_ident(py: Python<'_>) -> u64 {
    // SAFETY: no preconditions.
    worker::current(py).map_or_else(|| unsafe { libc::pthread_self() } as u64, Goroutine::ident)
}

/// How often yield_() gives way until another goroutine has run: now and then the scheduler looks at its queues in
/// another order, and takes the goroutine that has just yielded before those that wait for longer.
const YIELDS: u32 = 4;

/// Lets other goroutines run.
#[pyfunction]
pub fn yield_(py: Python<'_>) -> PyResult<()> {
    worker::ensure(py)?;
    let me = worker::current(py);
    let raised = || me.and_then(|me| me.take_thrown(py).or_else(|| me.expired(py)));
    if let Some(e) = raised() {
        return Err(e);
    }
    _give_way(py);
    raised().map_or(Ok(()), Err)
}

/// As yield_(), but raises nothing.
#[pyfunction]
pub fn _give_way(py: Python<'_>) {
    let turns = worker::turns();
    park::call(py, || {
        for _ in 0..YIELDS {
            // SAFETY: without the GIL.
            unsafe { gs_yield() };
            if worker::turns() != turns {
                break;
            }
        }
    });
}

/// Waits for this number of seconds; for 0 it lets other goroutines run.
#[pyfunction]
pub fn sleep(py: Python<'_>, seconds: f64) -> PyResult<()> {
    if seconds < 0.0 {
        return Err(errors::value("sleep length must be non-negative"));
    }
    match Timeout::after(Some(seconds))? {
        Timeout::Never => yield_(py),
        timeout => {
            let until = match timeout {
                Timeout::At(at) => at,
                _ => GS_FOREVER,
            };
            // SAFETY: without the GIL. The end of the time is a timeout, as that of a `Timeout` is.
            park::wait(py, timeout, |d| match unsafe { gs_sleep_until(d) } {
                0 if d != until || until != GS_FOREVER => -libc::ETIMEDOUT,
                e => e,
            })?;
            Ok(())
        }
    }
}

/// For gosched.Timeout: it expires in this number of seconds, in the running goroutine.
#[pyfunction]
pub fn _push_timeout(py: Python<'_>, timeout: Py<PyAny>, seconds: f64) -> PyResult<()> {
    worker::ensure(py)?;
    let at = match Timeout::after(Some(seconds))? {
        Timeout::Never => 1,
        Timeout::At(at) => at,
        Timeout::Forever => i64::MAX,
    };
    match worker::current(py) {
        Some(me) => me.inner.with(py, |i| i.timeouts.push((at, timeout))),
        None => return Err(errors::runtime("a Timeout needs a goroutine: this thread runs none")),
    }
    Ok(())
}

/// For gosched.Timeout: it is over.
#[pyfunction]
pub fn _pop_timeout(py: Python<'_>, timeout: &Bound<'_, PyAny>) {
    let Some(me) = worker::current(py) else { return };
    let gone = me.inner.with(py, |i| {
        let at = i.timeouts.iter().rposition(|t| t.1.is(timeout))?;
        Some(i.timeouts.remove(at))
    });
    drop(gone);
}

/// All goroutines that have begun and not ended, the main one first. Those with which the package waits for signals are
/// left out.
#[pyfunction]
pub fn goroutines(py: Python<'_>) -> Vec<Py<Goroutine>> {
    // SAFETY: a goroutine that is listed has not ended, and keeps its object.
    let others: Vec<_> = ALL.with(py, |all| {
        let all = all.iter().map(|g| unsafe { &**g }).filter(|g| !g.is_own);
        all.filter_map(|g| object_of(py, g)).collect()
    });
    worker::main(py).into_iter().chain(others).collect()
}

/// Called when the threads of the module threading become goroutines: what the interpreter does for a thread with a
/// given identity it does for the goroutine then. (Without a GIL a thread state is the thread's.)
#[pyfunction]
pub fn _are_threads(py: Python<'_>) {
    #[cfg(not(Py_GIL_DISABLED))]
    {
        crate::state::are_threads(py);
        ALL.with(py, |all| {
            for g in all.iter() {
                // SAFETY: as in `goroutines`; null, or the state of a goroutine that has not ended.
                unsafe {
                    let g = &**g;
                    if let Some(state) = g.inner.with(py, |i| i.state).as_ref() {
                        state.identify(py, g.id);
                    }
                }
            }
        });
    }
    #[cfg(Py_GIL_DISABLED)]
    let _ = py;
}

/// The goroutine for which `f` gives true. `f` must be quick: it may run with the lock of the list held.
pub fn find(py: Python<'_>, f: impl Fn(&Goroutine) -> bool) -> Option<Py<Goroutine>> {
    let main = worker::main(py).filter(|g| f(g.get()));
    main.or_else(|| {
        ALL.with(py, |all| {
            // SAFETY: as in `goroutines`.
            let found = all.iter().map(|g| unsafe { &**g }).find(|g| f(g))?;
            object_of(py, found)
        })
    })
}

/// How many goroutines there are, the main one and those that have not begun yet included. Those with which the package
/// waits for signals are left out.
#[pyfunction]
pub fn num_goroutines(py: Python<'_>) -> u64 {
    ALIVE.load(Ordering::Relaxed) + u64::from(worker::main(py).is_some())
}
