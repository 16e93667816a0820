//! The thread that runs goroutines of Python.
//!
//! The first thread that uses one becomes that thread, if it is the main thread of the process: it is
//! attached (`gs_attach`), and what it runs from there on is the main goroutine. Where another thread is
//! first a thread is made for them. The goroutines belong to a worker group of that one thread.

use crate::ffi::*;
use crate::goroutine::{self, Goroutine};
use crate::shared::Shared;
use crate::{blocking, errors, io, signals, state, sync, watch};
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// The thread that runs goroutines, as `pthread_self` gives it; 0: there is none; `STARTING`: not yet known.
static WORKER: AtomicUsize = AtomicUsize::new(0);
const STARTING: usize = 1;
/// The worker group of that thread.
static GROUP: AtomicPtr<gs_workers> = AtomicPtr::new(ptr::null_mut());
/// Python is about to end: see `is_over`.
static ENDING: AtomicBool = AtomicBool::new(false);
/// The main goroutine's.
static MAIN: Shared<Option<Py<Goroutine>>> = Shared::new(None);
/// The goroutine that runs Python code on the worker thread; null while none does. Changed with the GIL held,
/// by that thread; `watch` looks at it without.
static CURRENT: AtomicPtr<Goroutine> = AtomicPtr::new(ptr::null_mut());

fn this_thread() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// Whether the calling thread is the thread that runs goroutines.
#[inline(always)]
pub fn is_here() -> bool {
    this_thread() == WORKER.load(Ordering::Relaxed)
}

pub fn is_main_thread() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() == libc::getpid() }
}

/// The running goroutine; `None` on other threads than the one for goroutines.
#[inline(always)]
pub fn current<'a>(_py: Python<'a>) -> Option<&'a Goroutine> {
    if !is_here() {
        return None;
    }
    // SAFETY: null, or a goroutine that runs, and so keeps its object.
    unsafe { CURRENT.load(Ordering::Relaxed).as_ref() }
}

/// The goroutine has the GIL from here on.
#[inline(always)]
pub fn set_current(g: Option<&Goroutine>) {
    if let Some(g) = g {
        CURRENT.store(ptr::from_ref(g).cast_mut(), Ordering::Relaxed);
        watch::tick();
    }
}

/// The goroutine is about to leave Python: it waits, gives way or ends. With the GIL.
#[inline(always)]
pub fn away(g: Option<&Goroutine>) {
    if g.is_some() {
        CURRENT.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Whether a goroutine runs Python code, or a call that gave the GIL back and is no wait of the library's.
/// For other threads.
pub fn is_busy() -> bool {
    !CURRENT.load(Ordering::Relaxed).is_null()
}

/// The goroutine that does so, for other threads.
pub fn busy<'a>(_py: Python<'a>) -> Option<&'a Goroutine> {
    // SAFETY: it was set, and is unset, with the GIL held; and before the goroutine ends.
    unsafe { CURRENT.load(Ordering::Relaxed).as_ref() }
}

/// The main goroutine, once there is one.
pub fn main(py: Python<'_>) -> Option<Py<Goroutine>> {
    MAIN.with(py, |main| main.as_ref().map(|g| g.clone_ref(py)))
}

pub fn group() -> *mut gs_workers {
    GROUP.load(Ordering::Relaxed)
}

/// Makes sure that there is a thread for goroutines.
#[inline(always)]
pub fn ensure(py: Python<'_>) -> PyResult<()> {
    if WORKER.load(Ordering::Relaxed) != 0 { Ok(()) } else { start(py) }
}

#[cold]
fn start(py: Python<'_>) -> PyResult<()> {
    if is_over() {
        return Err(ending());
    }
    if group().is_null() {
        // SAFETY: plain calls; nothing runs goroutines of Python yet.
        let group = unsafe { gs_workers_create(1, GS_WORKERS_RUNNER) };
        if group.is_null() {
            return Err(errors::no_memory());
        }
        GROUP.store(group, Ordering::Relaxed);
    }
    // Others that come while the GIL is away find a worker thread.
    WORKER.store(STARTING, Ordering::Relaxed);
    let started = if is_main_thread() { attach_main(py) } else { make_thread(py) };
    match started {
        Ok(()) => {
            // SAFETY: no preconditions. A signal, or another thread, can wake goroutines.
            unsafe { gs_hold() };
            py.import("gosched._imports")?.call_method0("start")?;
            if is_here() { goroutine::watch_signals(py) } else { Ok(()) }
        }
        Err(e) => {
            WORKER.store(0, Ordering::Relaxed);
            Err(e)
        }
    }
}

fn attach_main(py: Python<'_>) -> PyResult<()> {
    // SAFETY: a plain thread, which stays attached until the process ends.
    let e = state::outside(py, || unsafe { gs_attach(GS_SPAWN_NOSIGNAL) });
    errors::check(e)?;
    // SAFETY: the goroutine that the thread runs now.
    let handle = unsafe { gs_self() };
    let main = goroutine::main_object(py, handle)?;
    WORKER.store(this_thread(), Ordering::Relaxed);
    set_current(Some(main.bind(py).get()));
    let before = MAIN.with(py, |m| m.replace(main));
    drop(before);
    Ok(())
}

fn make_thread(py: Python<'_>) -> PyResult<()> {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("gosched-python".into()).spawn(move || {
        // SAFETY: a plain thread, which never ends.
        let e = unsafe { gs_attach(GS_SPAWN_NOSIGNAL) };
        if e != 0 {
            let _ = tell.send(e);
            return;
        }
        WORKER.store(this_thread(), Ordering::Relaxed);
        let _ = tell.send(0);
        loop {
            // SAFETY: the goroutine only keeps the thread.
            unsafe { gs_sleep_until(GS_FOREVER) };
        }
    });
    if let Err(e) = thread {
        return Err(e.into());
    }
    let e = state::outside(py, || told.recv().unwrap_or(-libc::EAGAIN));
    errors::check(e)
}

/// Whether the functions that Python calls at its end have begun.
#[inline(always)]
pub fn is_ending() -> bool {
    // SeqCst: pairs with the count of `blocking::with_gil`.
    ENDING.load(Ordering::SeqCst)
}

/// Whether the program is at its end: a call of `blocking` runs where its caller is then.
#[pyfunction]
pub fn _is_ending() -> bool {
    is_ending()
}

/// Python has ended, for goroutines: none but the main one enters it any more. Where they run on the main
/// thread that is when Python takes itself down; before, functions of atexit may use them.
pub fn is_over() -> bool {
    is_ending() && (!is_main_worker() || state::is_finalizing())
}

/// The error of what would need goroutines when there are none any more.
pub fn ending() -> PyErr {
    errors::runtime("Python is about to end: no goroutine runs any more")
}

/// Goroutines run on the main thread.
fn is_main_worker() -> bool {
    // Only the main thread's goroutine is one of Python's.
    MAIN.with_thread(|main| main.is_some()) || WORKER.load(Ordering::Relaxed) == 0
}

/// For a goroutine that is about to enter Python: if that is over it waits for ever.
#[inline(always)]
pub fn stop_if_finalizing() {
    if is_ending() {
        stop_if_over();
    }
}

#[cold]
fn stop_if_over() {
    if is_over() && is_here() && !is_main_goroutine() {
        rest();
    }
}

/// Waits for ever, even if the goroutine is cancelled.
fn rest() -> ! {
    loop {
        // SAFETY: a goroutine.
        unsafe {
            gs_uncancel();
            gs_sleep_until(GS_FOREVER);
        }
    }
}

fn is_main_goroutine() -> bool {
    // SAFETY: the data of a goroutine of the group, or of the main one, is its object, which lives.
    let data = unsafe { gs_data(gs_self()) } as *const py_ffi::PyObject;
    MAIN.with_thread(|main| main.as_ref().is_some_and(|g| g.as_ptr().cast_const() == data))
}

/// Runs the handlers of signals that have come, on the main thread. The interpreter itself does so in the
/// thread state of the main goroutine only, from Python 3.13 on.
#[pyfunction]
pub fn _check_signals(py: Python<'_>) -> PyResult<()> {
    py.check_signals()
}

/// At the end of Python, after its threads have been joined: waits for the calls of `blocking`, and for the
/// thread that runs goroutines if that isn't this one. Other functions of atexit may still use goroutines,
/// unless these have a thread of their own: that could not be told later that it must not enter Python.
#[pyfunction]
pub fn _finalize(py: Python<'_>) -> PyResult<()> {
    ENDING.store(true, Ordering::SeqCst);
    while blocking::running() > 0 {
        goroutine::sleep(py, 0.001)?;
    }
    // These calls need no goroutine, and a goroutine that computes would not give the thread back.
    while blocking::brief() > 0 {
        state::outside(py, || std::thread::sleep(std::time::Duration::from_millis(1)));
    }
    if !is_main_worker() {
        leave_python(py);
    }
    Ok(())
}

/// How long the end of Python waits for a goroutine that computes on another thread, in ns.
const PATIENCE: i64 = 1_000_000_000;

/// Waits until the thread that runs goroutines has left Python. It doesn't enter it again.
fn leave_python(py: Python<'_>) {
    unsafe extern "C" fn tell(left: *mut std::ffi::c_void) {
        // SAFETY: the semaphore is leaked.
        unsafe { gs_sem_release(left.cast(), 1) };
    }
    let left = Box::leak(Box::new(gs_sem::new())) as *mut gs_sem as usize;
    let opts = gs_spawn_opts {
        size: size_of::<gs_spawn_opts>(),
        name: ptr::null(),
        stack_size: 0,
        priority: 0,
        node: -1,
        flags: GS_SPAWN_PINNED | GS_SPAWN_NOSIGNAL,
        reserved: 0,
        data: ptr::null_mut(),
        workers: group(),
    };
    state::outside(py, || {
        // SAFETY: when that goroutine runs on its thread, no other one there is in Python.
        unsafe {
            if gs_spawn_with(tell, left as *mut _, &raw const opts, ptr::null_mut()) == 0 {
                gs_sem_acquire(left as *mut gs_sem, 1, gs_now() + PATIENCE);
            }
        }
    });
}

/// In the child of a fork: no goroutine is left, and what runs is a plain thread.
#[pyfunction]
pub fn _forked(py: Python<'_>) {
    WORKER.store(0, Ordering::Relaxed);
    CURRENT.store(ptr::null_mut(), Ordering::Relaxed);
    state::forked();
    sync::forked();
    blocking::forked();
    io::forked(py);
    signals::forked(py);
    goroutine::forked(py);
    let main = MAIN.with(py, Option::take);
    // Its frames are the thread's still: it is not dropped.
    std::mem::forget(main);
}
