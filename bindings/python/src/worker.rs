//! The threads that run goroutines of Python.
//!
//! The first thread that uses a goroutine becomes such a thread, if it is the main thread of the process.
//! That thread is attached (`gs_attach`), and what it runs from then on is the main goroutine. If another
//! thread is first, a thread is made for goroutines. With a GIL there is only this one thread. The goroutines
//! belong to a worker group of that thread.
//!
//! Without a GIL, and with several P's, there is also a second worker group, of as many threads as there are
//! P's. All goroutines begin there, except those that handle signals.

use crate::ffi::*;
use crate::goroutine::{self, Goroutine};
#[cfg(Py_GIL_DISABLED)]
use crate::park::Sem;
use crate::{blocking, errors, io, own, signals, state, sync};
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
#[cfg(Py_GIL_DISABLED)]
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// The first thread that runs goroutines, as `pthread_self` gives it; 0: there is none; `STARTING`: not yet
/// known.
static WORKER: AtomicUsize = AtomicUsize::new(0);
#[cfg(not(Py_GIL_DISABLED))]
const STARTING: usize = 1;
/// The worker group of that thread.
static GROUP: AtomicPtr<gs_workers> = AtomicPtr::new(ptr::null_mut());
/// Python is about to end: see `is_over`.
static ENDING: AtomicBool = AtomicBool::new(false);
/// The main goroutine's object, of which this is a reference; null: there is none.
static MAIN: AtomicPtr<py_ffi::PyObject> = AtomicPtr::new(ptr::null_mut());

/// A thread that runs goroutines of Python. Only that thread changes it.
pub struct Worker {
    /// The goroutine that runs Python code there; null while none does.
    current: AtomicPtr<Goroutine>,
    /// Goes up whenever a goroutine enters Python and at each checkpoint.
    tick: AtomicU32,
    /// The thread, as of gettid(2).
    id: AtomicI32,
    #[cfg(Py_GIL_DISABLED)]
    state: AtomicPtr<py_ffi::PyThreadState>,
    /// What the goroutine that keeps the thread waits for: see `settle`.
    #[cfg(Py_GIL_DISABLED)]
    asked: Sem,
    /// The thread that was registered before this one, or null.
    #[cfg(Py_GIL_DISABLED)]
    before: AtomicPtr<Worker>,
}

impl Worker {
    const fn new() -> Worker {
        Worker {
            current: AtomicPtr::new(ptr::null_mut()),
            tick: AtomicU32::new(0),
            id: AtomicI32::new(0),
            #[cfg(Py_GIL_DISABLED)]
            state: AtomicPtr::new(ptr::null_mut()),
            #[cfg(Py_GIL_DISABLED)]
            asked: Sem::new(),
            #[cfg(Py_GIL_DISABLED)]
            before: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The calling thread is this one.
    fn note_thread(&self) {
        // SAFETY: no preconditions.
        self.id.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    }

    /// It gets on.
    #[inline(always)]
    fn tick(&self) {
        self.tick.store(self.tick.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// For other threads: the tick at which a goroutine runs Python code there, or a call that gave the GIL back
    /// and is no wait of the library's. `None`: none does.
    pub fn busy_at(&self) -> Option<u32> {
        let is_busy = !self.current.load(Ordering::Relaxed).is_null();
        is_busy.then(|| self.tick.load(Ordering::Relaxed))
    }

    /// For other threads: the frames that the goroutine, which runs there, is in; None if it doesn't any more.
    #[cfg(Py_GIL_DISABLED)]
    pub fn stack(&self, py: Python<'_>, g: &Goroutine) -> PyResult<Py<PyAny>> {
        state::stack(py, self.state.load(Ordering::Relaxed), &self.current, g)
    }

    /// For other threads: whether it is this goroutine that does so.
    pub fn runs(&self, g: &Goroutine) -> bool {
        ptr::eq(self.current.load(Ordering::Relaxed), g)
    }
}

fn this_thread() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// The threads that run goroutines of Python, and run none now, as of gettid(2).
pub fn idle_threads() -> impl Iterator<Item = i32> {
    let idle = all().into_iter().filter(|worker| worker.busy_at().is_none());
    idle.map(|worker| worker.id.load(Ordering::Relaxed))
}

pub fn is_main_thread() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() == libc::getpid() }
}

#[cfg(not(Py_GIL_DISABLED))]
mod threads {
    use super::*;

    static THE: Worker = Worker::new();

    /// The calling thread, if it runs goroutines.
    #[inline(always)]
    pub fn mine() -> Option<&'static Worker> {
        (this_thread() == WORKER.load(Ordering::Relaxed)).then_some(&THE)
    }

    /// The thread on which a goroutine runs that calls this.
    #[inline(always)]
    pub fn of_goroutine() -> &'static Worker {
        &THE
    }

    /// All threads that run goroutines, by number.
    pub fn all() -> Vec<&'static Worker> {
        vec![&THE]
    }

    /// The calling thread runs goroutines from here on.
    pub fn register(_ts: *mut py_ffi::PyThreadState) {
        THE.note_thread();
    }

    pub fn forked() {
        THE.current.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

#[cfg(Py_GIL_DISABLED)]
mod threads {
    use super::*;
    use crate::state::Frames;
    use std::cell::Cell;

    struct Mine {
        worker: Cell<Option<&'static Worker>>,
        state: Cell<*mut py_ffi::PyThreadState>,
        /// Those of the goroutine that is in Python; null while none is.
        frames: Cell<*mut Frames>,
    }

    // Goroutines of Python stay on their thread, so the address of these stays right across their waits.
    thread_local! {
        static MINE: Mine = const {
            Mine {
                worker: Cell::new(None),
                state: Cell::new(ptr::null_mut()),
                frames: Cell::new(ptr::null_mut()),
            }
        };
    }

    /// The newest of the threads, from which a list leads to the first. None is ever taken out.
    static NEWEST: AtomicPtr<Worker> = AtomicPtr::new(ptr::null_mut());

    #[inline(always)]
    pub fn mine() -> Option<&'static Worker> {
        MINE.with(|mine| mine.worker.get())
    }

    #[inline(always)]
    pub fn of_goroutine() -> &'static Worker {
        mine().expect("a goroutine of Python runs on one of its threads")
    }

    pub fn all() -> Vec<&'static Worker> {
        let mut all = Vec::new();
        let mut next = NEWEST.load(Ordering::Acquire);
        // SAFETY: null or a worker, which stays for ever.
        while let Some(worker) = unsafe { next.as_ref() } {
            all.push(worker);
            next = worker.before.load(Ordering::Relaxed);
        }
        all.reverse();
        all
    }

    /// The calling thread, which is attached to Python with its own state, runs goroutines from here on.
    pub fn register(ts: *mut py_ffi::PyThreadState) {
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
        let ts = state::of_thread(goroutine::interpreter());
        if ts.is_null() {
            return false;
        }
        // SAFETY: a thread without another state. It keeps this one.
        unsafe {
            py_ffi::PyEval_RestoreThread(ts);
            register(ts);
            py_ffi::PyEval_SaveThread();
        }
        true
    }

    pub fn forked() {
        NEWEST.store(ptr::null_mut(), Ordering::Relaxed);
        MINE.with(|mine| {
            mine.worker.set(None);
            mine.state.set(ptr::null_mut());
            mine.frames.set(ptr::null_mut());
        });
    }

    /// The state of the calling thread, which runs goroutines. Null: no memory for one.
    pub fn thread_state() -> *mut py_ffi::PyThreadState {
        let mine = || MINE.with(|mine| mine.state.get());
        // A thread that another user of the library has made run goroutines may have joined a group of ours.
        if mine().is_null() && !prepare() { ptr::null_mut() } else { mine() }
    }

    /// The goroutine to which these belong is in Python from here on.
    #[inline(always)]
    pub fn set_frames(frames: *mut Frames) {
        MINE.with(|mine| mine.frames.set(frames));
    }

    /// Those of the goroutine that calls this.
    pub fn frames_here() -> *mut Frames {
        MINE.with(|mine| mine.frames.get())
    }

    /// The goroutine that is in Python on this thread, if any, leaves.
    #[inline(always)]
    pub fn take_frames() -> Option<*mut Frames> {
        MINE.with(|mine| {
            let frames = mine.frames.replace(ptr::null_mut());
            (!frames.is_null()).then_some(frames)
        })
    }
}

pub use threads::{all, mine};
#[cfg(Py_GIL_DISABLED)]
pub use threads::{frames_here, set_frames, take_frames, thread_state};

/// The running goroutine; `None` on threads that run none.
#[inline(always)]
pub fn current<'a>(_py: Python<'a>) -> Option<&'a Goroutine> {
    // SAFETY: null, or a goroutine that runs, and so keeps its object.
    unsafe { mine()?.current.load(Ordering::Relaxed).as_ref() }
}

/// The goroutine is in Python from here on.
#[inline(always)]
pub fn set_current(g: Option<&Goroutine>) {
    if let Some(g) = g {
        let worker = threads::of_goroutine();
        worker.current.store(ptr::from_ref(g).cast_mut(), Ordering::Relaxed);
        worker.tick();
        #[cfg(Py_GIL_DISABLED)]
        if is_ending() {
            parallel::leave_if_closed();
        }
    }
}

/// The goroutine is about to leave Python: it waits, gives way or ends.
#[inline(always)]
pub fn away(g: Option<&Goroutine>) {
    if g.is_some() {
        threads::of_goroutine().current.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// The calling thread gets on, if it runs goroutines.
#[inline(always)]
pub fn tick() {
    if let Some(worker) = mine() {
        worker.tick();
    }
}

/// How often goroutines have come to run on the calling thread, or have got on there. 0: it runs none.
#[inline(always)]
pub fn turns() -> u32 {
    mine().map_or(0, |worker| worker.tick.load(Ordering::Relaxed))
}

/// The goroutine that runs Python code on the first thread, or is in a call that gave the GIL back and is no wait
/// of the library's; for other threads.
pub fn busy(py: Python<'_>) -> Option<Py<Goroutine>> {
    running_on(py, all().first()?)
}

/// The goroutine that runs Python code on a thread, for other threads.
pub fn running_on(py: Python<'_>, worker: &Worker) -> Option<Py<Goroutine>> {
    goroutine::find(py, |g| worker.runs(g))
}

/// The main goroutine, once there is one.
pub fn main(py: Python<'_>) -> Option<Py<Goroutine>> {
    // SAFETY: null, or an object that stays: the main goroutine never ends.
    let main = unsafe { Bound::from_borrowed_ptr_or_opt(py, MAIN.load(Ordering::Acquire)) }?;
    // SAFETY: its class is that.
    Some(unsafe { main.cast_into_unchecked::<Goroutine>() }.unbind())
}

/// The group of the first thread.
pub fn first_group() -> *mut gs_workers {
    GROUP.load(Ordering::Acquire)
}

/// The group in which goroutines begin.
#[cfg(not(Py_GIL_DISABLED))]
#[inline(always)]
pub fn group() -> *mut gs_workers {
    first_group()
}

#[cfg(Py_GIL_DISABLED)]
pub use parallel::group;

/// A lock for what takes long.
#[cfg(Py_GIL_DISABLED)]
struct Slow(UnsafeCell<std::sync::Mutex<()>>);

// SAFETY: the lock may be used by all threads, and is replaced where there is only one.
#[cfg(Py_GIL_DISABLED)]
unsafe impl Sync for Slow {}

#[cfg(Py_GIL_DISABLED)]
impl Slow {
    const fn new() -> Slow {
        Slow(UnsafeCell::new(std::sync::Mutex::new(())))
    }

    fn lock(&self, py: Python<'_>) -> std::sync::MutexGuard<'_, ()> {
        // Not while attached: who has the lock waits for others.
        // SAFETY: nothing replaces it but `forked`.
        state::outside(py, || unsafe { &*self.0.get() }.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// In the child of a fork: the thread that may have it is the parent's.
    fn forked(&self) {
        // SAFETY: there is no other thread.
        unsafe { *self.0.get() = std::sync::Mutex::new(()) };
    }
}

/// Held by the thread that starts all this.
#[cfg(Py_GIL_DISABLED)]
static STARTS: Slow = Slow::new();
/// Held by the thread that makes more threads.
#[cfg(Py_GIL_DISABLED)]
static GROWS: Slow = Slow::new();

/// The threads beside the first.
#[cfg(Py_GIL_DISABLED)]
mod parallel {
    use super::*;

    /// Their group; null: there is none yet.
    static GROUP: AtomicPtr<gs_workers> = AtomicPtr::new(ptr::null_mut());
    /// How many threads it has room for.
    static ROOM: AtomicUsize = AtomicUsize::new(0);
    /// How many there are; 0: goroutines begin on the first thread.
    static COUNT: AtomicUsize = AtomicUsize::new(0);

    pub fn has_threads() -> bool {
        // Acquire: pairs with the release in `grow`.
        COUNT.load(Ordering::Acquire) > 0
    }

    pub fn group() -> *mut gs_workers {
        if has_threads() { GROUP.load(Ordering::Relaxed) } else { first_group() }
    }

    /// Makes sure that there are `n` threads, if `n` is more than 1, but not more than one for each CPU unless there
    /// were as many P's at the start. There are never fewer again: goroutines that have begun stay on theirs.
    pub fn grow(py: Python<'_>, n: usize) -> PyResult<()> {
        let _locked = GROWS.lock(py);
        let before = COUNT.load(Ordering::Relaxed);
        if n < 2 || n <= before {
            return Ok(());
        }
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        let made = state::outside(py, || {
            if GROUP.load(Ordering::Relaxed).is_null() {
                let room = n.max(cpus);
                // SAFETY: a plain call.
                let group = unsafe { gs_workers_create(room as i32, GS_WORKERS_RUNNERS) };
                if group.is_null() {
                    return Err(-libc::ENOMEM);
                }
                GROUP.store(group, Ordering::Relaxed);
                ROOM.store(room, Ordering::Relaxed);
            }
            for i in before..n.min(ROOM.load(Ordering::Relaxed)) {
                begin_thread(i)?;
                // Release: pairs with the Acquire in `has_threads`. A thread that sees the new count finds thread `i`
                // attached.
                COUNT.store(i + 1, Ordering::Release);
            }
            Ok(())
        });
        made.map_err(errors::of)
    }

    /// Starts a thread, which joins the group that waits for threads, and waits until it has.
    fn begin_thread(i: usize) -> Result<(), i32> {
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name(format!("gosched-py-{i}")).spawn(move || {
            if !threads::prepare() {
                let _ = tell.send(-libc::ENOMEM);
                return;
            }
            stay_attached(|e| _ = tell.send(e));
        });
        if let Err(e) = thread {
            return Err(-e.raw_os_error().unwrap_or(libc::EAGAIN));
        }
        match told.recv().unwrap_or(-libc::EAGAIN) {
            0 => Ok(()),
            e => Err(e),
        }
    }

    /// Goroutines don't enter Python: the program is at its end.
    static CLOSED: AtomicBool = AtomicBool::new(false);
    /// How many goroutines wait until that is over.
    static OUTSIDE: AtomicUsize = AtomicUsize::new(0);
    static OPENED: Sem = Sem::new();

    /// How long the end of the program waits for goroutines that are in Python on these threads, in ns.
    const PATIENCE: i64 = 100_000_000;

    /// At the end of the program: keeps the goroutines out of Python. Otherwise a goroutine may be in the middle of
    /// `print` when Python ends and stops its thread. That thread has the lock of the file for good, and Python aborts,
    /// because it can't flush the file.
    pub fn close(py: Python<'_>) {
        if has_threads() {
            CLOSED.store(true, Ordering::SeqCst);
            wait_until_out(py, PATIENCE);
        }
    }

    /// The main goroutine uses goroutines: a function of atexit does that was registered before `_finalize`.
    #[inline(always)]
    pub fn open(py: Python<'_>) {
        if CLOSED.load(Ordering::Relaxed) && is_main_thread() {
            CLOSED.store(false, Ordering::SeqCst);
            let n = OUTSIDE.load(Ordering::SeqCst) as i64;
            // Goroutines that find it open take no unit: too many of them do no harm.
            // SAFETY: outside of Python.
            state::outside(py, || unsafe { OPENED.release(n) });
        }
    }

    /// For a goroutine, not the main one, that is about to enter Python.
    pub fn wait_until_open() {
        OUTSIDE.fetch_add(1, Ordering::SeqCst);
        while CLOSED.load(Ordering::SeqCst) {
            // SAFETY: a goroutine outside of Python. A cancel is for the wait in which the goroutine is.
            unsafe {
                gs_cancel_disable();
                OPENED.acquire(GS_FOREVER);
                gs_cancel_enable();
            }
        }
        OUTSIDE.fetch_sub(1, Ordering::SeqCst);
    }

    /// For a goroutine that has just entered Python: the end may have begun meanwhile.
    #[cold]
    pub fn leave_if_closed() {
        if CLOSED.load(Ordering::Relaxed) && !is_main_goroutine() {
            let worker = threads::of_goroutine();
            let current = worker.current.swap(ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: the goroutine is attached, and enters again on its thread.
            unsafe { state::enter(state::leave()) };
            worker.current.store(current, Ordering::Relaxed);
        }
    }

    /// In the child of a fork: the threads are the parent's, and the group has its room again.
    pub fn forked() {
        COUNT.store(0, Ordering::Relaxed);
        CLOSED.store(false, Ordering::Relaxed);
        OUTSIDE.store(0, Ordering::Relaxed);
        OPENED.forked();
    }
}

/// The calling thread, a plain one, runs goroutines for ever; `tell` hears of it, or of an error.
fn stay_attached(tell: impl FnOnce(i32)) {
    // SAFETY: a plain thread, which never ends.
    let e = unsafe { gs_attach(GS_SPAWN_NOSIGNAL) };
    tell(e);
    if e != 0 {
        return;
    }
    loop {
        // SAFETY: the goroutine only keeps the thread, and settles what is the thread's.
        unsafe {
            #[cfg(not(Py_GIL_DISABLED))]
            gs_sleep_until(GS_FOREVER);
            #[cfg(Py_GIL_DISABLED)]
            if threads::of_goroutine().asked.acquire(GS_FOREVER) == 0 {
                state::settle(thread_state());
            }
        }
    }
}

/// Memory that waits for its thread.
///
/// Without a GIL, an object belongs to the thread that made it. If another thread drops the last reference, the owner
/// frees the object the next time that the owner runs Python code. A thread of goroutines may have nothing to run for a
/// long time. So, a while after some goroutine has left Python, a goroutine on the first thread checks the other
/// threads, and wakes those for which objects wait. It sleeps while no goroutine leaves Python.
#[cfg(Py_GIL_DISABLED)]
mod settling {
    use super::*;
    use crate::park::{self, Timeout};
    use crate::state::Frames;

    /// The goroutine that checks the threads has been started.
    static RUNS: AtomicBool = AtomicBool::new(false);
    /// How long goroutines may go on before the threads are looked at, in seconds.
    const PAUSE: f64 = 0.05;

    /// A goroutine has left Python since the last look.
    static HAS_LEFT: AtomicBool = AtomicBool::new(false);
    static WAKE: Sem = Sem::new();
    /// The frames of the goroutine that checks the threads: it doesn't wake itself.
    static LOOKER: AtomicPtr<Frames> = AtomicPtr::new(ptr::null_mut());

    /// A goroutine has left Python.
    #[inline(always)]
    pub fn has_left(frames: *mut Frames) {
        if !HAS_LEFT.load(Ordering::Relaxed) {
            wake(frames);
        }
    }

    #[cold]
    fn wake(frames: *mut Frames) {
        let looker = LOOKER.load(Ordering::Relaxed);
        if looker.is_null() || looker == frames || HAS_LEFT.swap(true, Ordering::Relaxed) {
            return;
        }
        // SAFETY: outside of Python, so it may switch.
        unsafe { WAKE.release(1) };
    }

    /// Starts the goroutine that looks, unless it runs.
    pub fn start(py: Python<'_>) -> PyResult<()> {
        if !parallel::has_threads() {
            return Ok(());
        }
        let settle = py.import("gosched._signals")?.getattr("_settle")?;
        goroutine::spawn_once(&RUNS, &settle, "gosched-settle")
    }

    /// For gosched._signals: one look, when there is something to see. False: it was the last one.
    #[pyfunction]
    pub fn _settle(py: Python<'_>) -> PyResult<bool> {
        LOOKER.store(frames_here(), Ordering::Relaxed);
        // SAFETY: outside of Python.
        let waited = park::wait(py, Timeout::Forever, |d| unsafe { WAKE.acquire(d) });
        if is_over() {
            return Ok(false);
        }
        waited?;
        goroutine::sleep(py, PAUSE)?;
        HAS_LEFT.store(false, Ordering::Relaxed);
        park::call(py, || {
            for worker in all() {
                let state = worker.state.load(Ordering::Relaxed);
                // SAFETY: the state of a thread that never ends. The first thread is this one.
                if worker.busy_at().is_none() && unsafe { state::must_settle(state) } {
                    // SAFETY: outside of Python.
                    unsafe { worker.asked.release(1) };
                }
            }
        });
        Ok(true)
    }

    /// In the child of a fork.
    pub fn forked() {
        WAKE.forked();
        LOOKER.store(ptr::null_mut(), Ordering::Relaxed);
        RUNS.store(false, Ordering::Relaxed);
        HAS_LEFT.store(false, Ordering::Relaxed);
    }
}

#[cfg(Py_GIL_DISABLED)]
pub use settling::{_settle, has_left};

/// Makes sure that there is a thread for goroutines, unless Python has ended for them: then the caller is a plain thread.
#[inline(always)]
pub fn ensure(py: Python<'_>) -> PyResult<()> {
    #[cfg(Py_GIL_DISABLED)]
    parallel::open(py);
    if WORKER.load(Ordering::Relaxed) != 0 { Ok(()) } else { start(py) }
}

#[cold]
fn start(py: Python<'_>) -> PyResult<()> {
    if is_over() {
        return Ok(());
    }
    // With a GIL it keeps others from being here at the same time until the state of the thread is `STARTING`.
    #[cfg(Py_GIL_DISABLED)]
    let _locked = STARTS.lock(py);
    if WORKER.load(Ordering::Acquire) != 0 {
        return Ok(());
    }
    if first_group().is_null() {
        // SAFETY: a plain call; nothing runs goroutines of Python yet.
        let group = unsafe { gs_workers_create(1, GS_WORKERS_RUNNER) };
        if group.is_null() {
            return Err(errors::no_memory());
        }
        GROUP.store(group, Ordering::Release);
    }
    #[cfg(not(Py_GIL_DISABLED))]
    // Others that come while the GIL is away find a worker thread.
    WORKER.store(STARTING, Ordering::Relaxed);
    let started = if is_main_thread() { attach_main(py) } else { make_thread(py) };
    #[cfg(Py_GIL_DISABLED)]
    let started = started.and_then(|thread| {
        parallel::grow(py, crate::info::gomaxprocs(py, None)? as usize)?;
        Ok(thread)
    });
    match started {
        Ok(thread) => {
            // Release: who sees it finds all of that done.
            WORKER.store(thread, Ordering::Release);
            // SAFETY: no preconditions. A signal, or another thread, can wake goroutines.
            unsafe { gs_hold() };
            begin(py, thread == this_thread())
        }
        Err(e) => {
            WORKER.store(0, Ordering::Relaxed);
            Err(e)
        }
    }
}

/// What Python code does once there is a thread for goroutines; `is_main`: the calling thread. If a signal's handler
/// raises an exception in the middle, the rest is done nevertheless, and the exception is raised then.
fn begin(py: Python<'_>, is_main: bool) -> PyResult<()> {
    let all = || {
        py.import("gosched._imports")?.call_method0("start")?;
        #[cfg(Py_GIL_DISABLED)]
        settling::start(py)?;
        if is_main {
            py.import("gosched._signals")?.call_method0("start")?;
        }
        Ok(())
    };
    // What has been done is not done again.
    all().or_else(|first: PyErr| all().and(Err(first)))
}

/// More P's, or fewer.
pub fn procs_changed(py: Python<'_>, n: i32) -> PyResult<()> {
    #[cfg(Py_GIL_DISABLED)]
    if WORKER.load(Ordering::Acquire) != 0 {
        parallel::grow(py, n as usize)?;
        settling::start(py)?;
    }
    let _ = (py, n);
    Ok(())
}

/// Gives the thread.
fn attach_main(py: Python<'_>) -> PyResult<usize> {
    // SAFETY: a plain thread, which stays attached until the process ends.
    let e = state::outside(py, || unsafe { gs_attach(GS_SPAWN_NOSIGNAL) });
    errors::check(e)?;
    #[cfg(not(Py_GIL_DISABLED))]
    WORKER.store(this_thread(), Ordering::Relaxed);
    // SAFETY: attached.
    threads::register(unsafe { py_ffi::PyThreadState_Get() });
    // SAFETY: the goroutine that the thread runs now.
    let handle = unsafe { gs_self() };
    let main = goroutine::main_object(py, handle)?;
    set_current(Some(main.bind(py).get()));
    MAIN.store(main.into_ptr(), Ordering::Release);
    Ok(this_thread())
}

/// Gives the thread.
fn make_thread(py: Python<'_>) -> PyResult<usize> {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("gosched-python".into()).spawn(move || {
        #[cfg(Py_GIL_DISABLED)]
        if !threads::prepare() {
            let _ = tell.send((-libc::ENOMEM, 0));
            return;
        }
        stay_attached(|e| {
            #[cfg(not(Py_GIL_DISABLED))]
            if e == 0 {
                WORKER.store(this_thread(), Ordering::Relaxed);
                threads::register(ptr::null_mut());
            }
            let _ = tell.send((e, this_thread()));
        });
    });
    if let Err(e) = thread {
        return Err(e.into());
    }
    let (e, thread) = state::outside(py, || told.recv().unwrap_or((-libc::EAGAIN, 0)));
    errors::check(e)?;
    Ok(thread)
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

/// Whether Python has ended for goroutines: from then on only the main goroutine enters it. If goroutines run
/// on the main thread, that is when Python finalizes itself: until then functions of atexit may use
/// goroutines.
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
    !MAIN.load(Ordering::Relaxed).is_null() || WORKER.load(Ordering::Relaxed) == 0
}

/// For a goroutine that is about to enter Python: if Python has ended for goroutines, the goroutine waits for
/// ever.
#[inline(always)]
pub fn stop_if_finalizing() {
    if is_ending() {
        stop_if_over();
    }
}

#[cold]
fn stop_if_over() {
    if mine().is_none() || is_main_goroutine() {
        return;
    }
    #[cfg(Py_GIL_DISABLED)]
    parallel::wait_until_open();
    if is_over() {
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

/// Whether the caller, a goroutine, is the main one.
pub fn is_main_goroutine() -> bool {
    // SAFETY: the data of a goroutine of the group, or of the main one, is its object, which lives.
    let data = unsafe { gs_data(gs_self()) };
    !data.is_null() && ptr::eq(data, MAIN.load(Ordering::Relaxed).cast())
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
    while blocking::running() > 0 || goroutine::late_reports() > 0 {
        goroutine::sleep(py, 0.001)?;
    }
    // These calls need no goroutine, and a goroutine that computes would not give the thread back.
    while blocking::brief() > 0 {
        state::outside(py, || std::thread::sleep(std::time::Duration::from_millis(1)));
    }
    if !is_main_worker() {
        leave_python(py);
    }
    #[cfg(Py_GIL_DISABLED)]
    parallel::close(py);
    Ok(())
}

/// How long the end of Python waits for a goroutine that computes on another thread, in ns.
const PATIENCE: i64 = 1_000_000_000;

/// Waits until the threads that run goroutines have left Python. They don't enter it again.
#[cfg(Py_GIL_DISABLED)]
fn leave_python(py: Python<'_>) {
    wait_until_out(py, PATIENCE);
}

/// Waits up to `patience` ns until no goroutine is in Python on another thread than this one.
#[cfg(Py_GIL_DISABLED)]
fn wait_until_out(py: Python<'_>, patience: i64) {
    let here = mine().map_or(ptr::null(), ptr::from_ref);
    let is_busy = || all().iter().any(|&w| !ptr::eq(w, here) && w.busy_at().is_some());
    // SAFETY: no preconditions.
    let until = unsafe { gs_now() } + patience;
    loop {
        // At least once: what another thread stored before it saw the end is visible here afterwards.
        state::outside(py, || std::thread::sleep(std::time::Duration::from_millis(1)));
        // SAFETY: no preconditions.
        if !is_busy() || unsafe { gs_now() } >= until {
            return;
        }
    }
}

#[cfg(not(Py_GIL_DISABLED))]
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

/// At import: has the child of each fork forget the goroutines and threads that slept in the parent, before Python runs
/// anything there. What runs before `_forked`, such as `threading`'s own function, may use locks.
pub fn init() -> PyResult<()> {
    unsafe extern "C" fn forked() {
        sync::forked();
        #[cfg(Py_GIL_DISABLED)]
        settling::forked();
    }
    // SAFETY: the function allocates nothing and takes no lock.
    match unsafe { libc::pthread_atfork(None, None, Some(forked)) } {
        0 => Ok(()),
        e => Err(errors::of(-e)),
    }
}

/// In the child of a fork: no goroutine is left, and what runs is a plain thread.
#[pyfunction]
pub fn _forked(py: Python<'_>) {
    WORKER.store(0, Ordering::Relaxed);
    threads::forked();
    #[cfg(Py_GIL_DISABLED)]
    {
        STARTS.forked();
        GROWS.forked();
        parallel::forked();
    }
    state::forked();
    blocking::forked();
    own::forked(py);
    io::forked(py);
    signals::forked();
    goroutine::forked(py);
    // Its frames are the thread's still: it is not dropped.
    MAIN.store(ptr::null_mut(), Ordering::Relaxed);
}
