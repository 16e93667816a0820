//! The threads that run goroutines of Python.

use super::state::{self, Frames};
use crate::ffi::GS_FOREVER;
use crate::goroutine::object::Goroutine;
use crate::interpreter;
use crate::sem::Sem;
use crate::worker::activity::Activity;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::Cell;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Whether goroutines of Python run at the same time.
pub const IS_PARALLEL: bool = true;

/// A thread that runs goroutines of Python.
pub struct Worker {
    activity: Activity,
    /// The thread's own state, which the thread keeps.
    state: AtomicPtr<ffi::PyThreadState>,
    /// What the goroutine that keeps the thread waits for: see `settle`.
    asked: Sem,
    /// The thread that was registered before this one, or null.
    before: AtomicPtr<Worker>,
}

/// Sets what the calling thread does, which runs a bubble: without a GIL there are none.
pub fn set_own(_: Option<&'static Worker>) {}

impl Worker {
    pub const fn new() -> Worker {
        Worker {
            activity: Activity::new(),
            state: AtomicPtr::new(ptr::null_mut()),
            asked: Sem::new(),
            before: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// For other threads: whether objects wait for this thread, which alone can free them, while no
    /// goroutine runs Python code there.
    pub fn must_settle(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        // SAFETY: the state of a thread that never ends.
        self.busy_at().is_none() && unsafe { state::must_settle(state) }
    }

    /// Asks the thread to free what waits for it.
    ///
    /// # Safety
    /// Outside of Python: it may switch.
    pub unsafe fn ask(&self) {
        // SAFETY: as the caller says.
        unsafe { self.asked.release(1) };
    }

    /// Waits until another thread has called `ask`. False: an error has ended the wait.
    ///
    /// # Safety
    /// Called by the goroutine that keeps the thread, outside of Python.
    pub unsafe fn wait_until_asked(&self) -> bool {
        // SAFETY: as the caller says.
        unsafe { self.asked.acquire(GS_FOREVER) == 0 }
    }

    /// For other threads: the stack of the goroutine `g` that runs there, as `state::stack` gives
    /// it; None: `g` doesn't run there any more.
    pub fn stack(&self, py: Python<'_>, g: &Goroutine) -> PyResult<Py<PyAny>> {
        state::stack(py, self.state.load(Ordering::Relaxed), self.place_of_current(), g)
    }
}

impl Deref for Worker {
    type Target = Activity;

    #[inline(always)]
    fn deref(&self) -> &Activity {
        &self.activity
    }
}

/// What a thread that runs goroutines knows of itself.
struct Mine {
    worker: Cell<Option<&'static Worker>>,
    state: Cell<*mut ffi::PyThreadState>,
    /// The frames of the goroutine that is in Python; null while none is.
    frames: Cell<*mut Frames>,
}

// Goroutines of Python stay on their thread, so the address of this stays right across their waits.
thread_local! {
    static MINE: Mine = const {
        Mine {
            worker: Cell::new(None),
            state: Cell::new(ptr::null_mut()),
            frames: Cell::new(ptr::null_mut()),
        }
    };
}

/// The thread that was registered last; a list leads from there to the first thread. No thread is
/// ever taken out.
static NEWEST: AtomicPtr<Worker> = AtomicPtr::new(ptr::null_mut());

/// The calling thread, if it runs goroutines.
#[inline(always)]
pub fn mine() -> Option<&'static Worker> {
    MINE.with(|mine| mine.worker.get())
}

/// The thread on which the goroutine runs that calls this.
#[inline(always)]
pub fn of_goroutine() -> &'static Worker {
    mine().expect("a goroutine of Python runs on one of its threads")
}

/// All threads that run goroutines, in the order in which they were registered.
pub fn all() -> Vec<&'static Worker> {
    let mut all = Vec::new();
    // Acquire: pairs with the Release in `register`.
    let mut next = NEWEST.load(Ordering::Acquire);
    // SAFETY: null or a worker, which stays for ever.
    while let Some(worker) = unsafe { next.as_ref() } {
        all.push(worker);
        next = worker.before.load(Ordering::Relaxed);
    }
    all.reverse();
    all
}

/// The calling thread, which is attached to Python with its own state, runs goroutines from here
/// on.
pub fn register(ts: *mut ffi::PyThreadState) {
    let worker: &Worker = Box::leak(Box::new(Worker::new()));
    worker.state.store(ts, Ordering::Relaxed);
    worker.note_thread();
    let mut before = NEWEST.load(Ordering::Relaxed);
    loop {
        worker.before.store(before, Ordering::Relaxed);
        let new = ptr::from_ref(worker).cast_mut();
        // Release: pairs with the Acquire in `all`.
        match NEWEST.compare_exchange(before, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => before = now,
        }
    }
    MINE.with(|mine| {
        mine.worker.set(Some(worker));
        mine.state.set(ts);
    });
}

/// Makes a state for the calling thread, which is to run goroutines. False: no memory.
pub fn prepare() -> bool {
    let ts = state::of_thread(interpreter::main());
    if ts.is_null() {
        return false;
    }
    // SAFETY: a thread without another state. It keeps this one.
    unsafe {
        ffi::PyEval_RestoreThread(ts);
        register(ts);
        ffi::PyEval_SaveThread();
    }
    true
}

/// In the child of a fork: the threads are the parent's, and the calling one runs no goroutine.
pub fn forked() {
    NEWEST.store(ptr::null_mut(), Ordering::Relaxed);
    MINE.with(|mine| {
        mine.worker.set(None);
        mine.state.set(ptr::null_mut());
        mine.frames.set(ptr::null_mut());
    });
}

/// The state of the calling thread, which runs goroutines. Null: no memory for one.
pub fn thread_state() -> *mut ffi::PyThreadState {
    let mine = || MINE.with(|mine| mine.state.get());
    // A thread that another user of the library has made run goroutines may have joined a group of
    // ours.
    if mine().is_null() && !prepare() { ptr::null_mut() } else { mine() }
}

/// The goroutine with these frames is in Python on the calling thread from here on.
#[inline(always)]
pub fn set_frames(frames: *mut Frames) {
    MINE.with(|mine| mine.frames.set(frames));
}

/// The frames of the goroutine that calls this, in Python.
pub fn frames_here() -> *mut Frames {
    MINE.with(|mine| mine.frames.get())
}

/// Takes the frames of the goroutine that is in Python on the calling thread and leaves. `None`: no
/// goroutine is.
#[inline(always)]
pub fn take_frames() -> Option<*mut Frames> {
    MINE.with(|mine| {
        let frames = mine.frames.replace(ptr::null_mut());
        (!frames.is_null()).then_some(frames)
    })
}
