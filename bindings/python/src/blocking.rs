//! `blocking`: calls in other threads.

use crate::bubble;
use crate::errors;
use crate::ffi::*;
use crate::forks;
use crate::goroutine::body;
use crate::outside::outside;
use crate::park::{self, Ended, Timeout};
use crate::worker::{current, ending, start};
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of calls under way.
static RUNNING: AtomicU64 = AtomicU64::new(0);

/// The number of calls of `with_gil` under way.
static BRIEF: AtomicU64 = AtomicU64::new(0);

/// The number of the program's functions that run in the library's threads right now: those of
/// calls under way, except while they wait for a semaphore.
static AT_WORK: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread runs such a function.
    static IS_AT_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Notes that the calling thread begins or ends such a function. Returns the former value.
fn set_at_work(is_at_work: bool) -> bool {
    let before = IS_AT_WORK.replace(is_at_work);
    if before != is_at_work {
        if is_at_work {
            AT_WORK.fetch_add(1, Ordering::Relaxed);
        } else {
            AT_WORK.fetch_sub(1, Ordering::Relaxed);
        }
    }
    before
}

/// Whether another thread than the caller's runs such a function.
pub fn beside_this() -> bool {
    AT_WORK.load(Ordering::Relaxed) > u64::from(IS_AT_WORK.get())
}

pub fn brief() -> u64 {
    BRIEF.load(Ordering::SeqCst)
}

pub fn running() -> u64 {
    RUNNING.load(Ordering::Relaxed)
}

/// Resets the counts in the child of a fork.
pub fn forked() {
    RUNNING.store(0, Ordering::Relaxed);
    BRIEF.store(0, Ordering::Relaxed);
    AT_WORK.store(u64::from(IS_AT_WORK.get()), Ordering::Relaxed);
}

/// A function and its arguments.
type Call = (Py<PyAny>, Py<PyTuple>, Option<Py<PyDict>>);

/// A call. Its caller and the goroutine that makes it have a reference each.
struct Job {
    /// The function to call, taken by the thread that calls it.
    call: UnsafeCell<Option<Call>>,
    /// The call's result. Used with the GIL held.
    outcome: UnsafeCell<Option<PyResult<Py<PyAny>>>>,
    done: UnsafeCell<gs_sem>,
}

// SAFETY: `call` and `outcome` are used with the GIL held, `done` by the library.
unsafe impl Sync for Job {}
// SAFETY: a job's fields are used with the GIL held, or by the library, on any thread.
unsafe impl Send for Job {}

/// The function of the native goroutine that makes a call.
unsafe extern "C" fn perform(job: *mut c_void) {
    // SAFETY: `gs_blocking` only calls the function; the job's references are kept until the end.
    unsafe {
        // A thread that serves a NUMA node is bound to the node's CPUs, except while a goroutine
        // locks the thread. The program's code, and the threads and programs that it starts, must
        // see the CPUs of the process.
        let has_nodes = gs_numa_nodes() > 1;
        if has_nodes {
            gs_lock_os_thread();
        }
        gs_blocking(call, job);
        let job = Arc::from_raw(job as *const Job);
        gs_sem_release(job.done.get(), 1);
        // The last reference owns the objects, so it is dropped with the GIL held.
        if let Some(job) = Arc::into_inner(job) {
            gs_blocking(forget, Box::into_raw(Box::new(job)).cast());
        }
        if has_nodes {
            gs_unlock_os_thread();
        }
    }
    // Counted down last: the end of Python waits until no call is under way.
    RUNNING.fetch_sub(1, Ordering::Relaxed);
}

unsafe extern "C" fn call(job: *mut c_void) -> *mut c_void {
    // SAFETY: the goroutine keeps the job; meanwhile this thread is a plain one.
    unsafe {
        let job = &*(job as *const Job);
        let gil = gosched_state_ensure();
        let before = set_at_work(true);
        Python::attach(|py| {
            if let Some((f, args, kwargs)) = (*job.call.get()).take() {
                let kwargs = kwargs.as_ref().map(|k| k.bind(py));
                let before = forks::count();
                let outcome = body::apply_hooks(py)
                    .and_then(|()| f.bind(py).call(args.bind(py), kwargs))
                    .map(Bound::unbind);
                if forks::count() != before {
                    body::end_of_child(py, outcome);
                }
                *job.outcome.get() = Some(outcome);
            }
        });
        set_at_work(before);
        py_ffi::PyGILState_Release(gil);
    }
    ptr::null_mut()
}

/// Calls `f`, which doesn't wait, with the GIL, on a plain thread. The end of Python waits for the
/// call; if it has already begun, `f` is not called, and this returns false.
pub fn with_gil(f: fn(Python<'_>) -> bool) -> bool {
    BRIEF.fetch_add(1, Ordering::SeqCst);
    // SeqCst: pairs with `ending::begin`. Either the end of Python sees `BRIEF`, or this thread
    // sees that the end has begun.
    let answer = !ending::is_ending() && {
        // SAFETY: a plain thread, which has no thread state.
        let gil = unsafe { gosched_state_ensure() };
        let answer = Python::attach(f);
        // SAFETY: undoes `gosched_state_ensure`, above.
        unsafe { py_ffi::PyGILState_Release(gil) };
        answer
    };
    BRIEF.fetch_sub(1, Ordering::SeqCst);
    answer
}

/// Waits, keeping the thread, until a semaphore of the system has a unit or `seconds` have passed.
/// Takes no unit. For locks that processes share.
#[pyfunction]
pub fn _wait_for_semaphore(py: Python<'_>, address: usize, seconds: f64) -> PyResult<()> {
    let semaphore = address as *mut libc::sem_t;
    // SAFETY: all bytes zero are a valid out parameter.
    let mut until = unsafe { std::mem::zeroed::<libc::timespec>() };
    let seconds = seconds.clamp(0.0, 1e6);
    let address = semaphore as usize;
    // Not at work during the wait: the child of a fork needs nothing that this thread holds.
    let before = set_at_work(false);
    outside(py, || {
        // SAFETY: the caller keeps the semaphore.
        unsafe {
            let semaphore = address as *mut libc::sem_t;
            libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until);
            let ns = until.tv_nsec + (seconds.fract() * 1e9) as i64;
            until.tv_sec += seconds as i64 + ns / 1_000_000_000;
            until.tv_nsec = ns % 1_000_000_000;
            if libc::sem_timedwait(semaphore, &raw const until) == 0 {
                libc::sem_post(semaphore);
            }
        }
    });
    set_at_work(before);
    Ok(())
}

unsafe extern "C" fn forget(job: *mut c_void) -> *mut c_void {
    // SAFETY: only `perform` has the job: its caller has given up, or has the result.
    unsafe {
        let gil = gosched_state_ensure();
        Python::attach(|_| drop(Box::from_raw(job as *mut Job)));
        py_ffi::PyGILState_Release(gil);
    }
    ptr::null_mut()
}

unsafe extern "C" {
    fn gosched_state_ensure() -> py_ffi::PyGILState_STATE;
    fn gosched_state_call(
        function: *mut py_ffi::PyObject,
        args: *mut py_ffi::PyObject,
        kwargs: *mut py_ffi::PyObject,
    ) -> *mut py_ffi::PyObject;
}

/// Calls fn(*args, **kwargs) in another thread, and returns its result or raises its exception;
/// meanwhile other goroutines run. For functions that wait, or that compute without the GIL. If the
/// caller is cancelled, the call goes on, and its result is dropped.
///
/// >>> import gosched, hashlib
/// >>> gosched.blocking(hashlib.sha256, b"abc").hexdigest()[:8]
/// 'ba7816bf'
#[pyfunction]
#[pyo3(signature = (function, /, *args, **kwargs), text_signature = "(fn, /, *args, **kwargs)")]
pub fn blocking<'py>(
    function: &Bound<'py, PyAny>,
    args: Bound<'py, PyTuple>,
    kwargs: Option<Bound<'py, PyDict>>,
) -> PyResult<Py<PyAny>> {
    let py = function.py();
    start::ensure(py)?;
    // A bubble has no other thread.
    if current::current(py).is_none() || ending::is_ending() || bubble::is_inside() {
        let kwargs = kwargs.as_ref().map_or(ptr::null_mut(), |k| k.as_ptr());
        // SAFETY: returns a new reference or an error.
        unsafe {
            let result = gosched_state_call(function.as_ptr(), args.as_ptr(), kwargs);
            return Bound::from_owned_ptr_or_err(py, result).map(Bound::unbind);
        }
    }
    if !function.is_callable() {
        return Err(errors::not_callable(function));
    }
    // In the caller's context, as by asyncio.to_thread.
    // SAFETY: returns a new reference or an error.
    let context = unsafe {
        let context = py_ffi::PyContext_CopyCurrent();
        if context.is_null() {
            return Err(PyErr::fetch(py));
        }
        Bound::<PyAny>::from_owned_ptr(py, context)
    };
    let mut all = vec![function.clone()];
    all.extend(args.iter());
    let all = PyTuple::new(py, all)?;
    let run = context.getattr(pyo3::intern!(py, "run"))?.unbind();
    let job = Arc::new(Job {
        call: UnsafeCell::new(Some((run, all.unbind(), kwargs.map(Bound::unbind)))),
        outcome: UnsafeCell::new(None),
        done: UnsafeCell::new(gs_sem::new()),
    });
    let theirs = Arc::into_raw(job.clone());
    RUNNING.fetch_add(1, Ordering::Relaxed);
    let at = theirs as usize;
    // SAFETY: `perform` takes the reference.
    let e = current::call(py, || unsafe {
        gs_spawn_with(perform, at as *mut c_void, ptr::null(), ptr::null_mut())
    });
    if e != 0 {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the reference was not taken.
        drop(unsafe { Arc::from_raw(theirs) });
        return Err(errors::of(e));
    }
    let done = job.done.get() as usize;
    // SAFETY: this frame has a reference to the job.
    let ended =
        park::wait(py, Timeout::Forever, |d| unsafe { gs_sem_acquire(done as *mut gs_sem, 1, d) });
    match ended {
        // SAFETY: the call has ended, and the GIL is held.
        Ok(Ended::With(0)) => match unsafe { (*job.outcome.get()).take() } {
            Some(outcome) => outcome,
            None => Err(errors::runtime("the call has had no outcome")),
        },
        Ok(Ended::With(e)) => Err(errors::of(e)),
        Ok(_) => Err(errors::timed_out()),
        Err(e) => Err(e),
    }
}
