//! Leaving and entering Python around waits, and thread states of goroutines.
//!
//! A goroutine leaves Python before each call of the library that may switch, and enters again afterwards, on the
//! same thread. So another goroutine always finds the thread without Python (and the GIL, if there is one, free),
//! and nothing of pyo3's is told: its count of attached frames is the thread's, and as goroutines stay on
//! theirs the sum stays right. For the same reason no wait happens inside `Python::detach`, which sets that
//! count back by force.
//!
//! - With a GIL each goroutine has a `PyThreadState`, and gives the GIL back with it.
//! - Without one each thread has, and a goroutine that leaves takes along what of the state is its own
//!   ([`Frames`]).

#[cfg(not(Py_GIL_DISABLED))]
use crate::shared::Shared;
use crate::worker;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_ulong, c_void};
use std::ptr;

unsafe extern "C" {
    fn gosched_python_compiled_for() -> c_ulong;
    fn gosched_state_init() -> c_int;
    fn gosched_is_finalizing() -> c_int;
    fn gosched_state_enter(ts: *mut ffi::PyThreadState);
    fn gosched_state_stack(usual: usize) -> usize;
    fn gosched_state_reset(ts: *mut ffi::PyThreadState);
    fn gosched_state_before_fork();
    fn gosched_state_after_fork();
    fn gosched_state_forked();
    fn gosched_state_interrupt(ts: *mut ffi::PyThreadState);
}

#[cfg(not(Py_GIL_DISABLED))]
unsafe extern "C" {
    fn gosched_state_new(
        interp: *mut ffi::PyInterpreterState,
        stack_size: usize,
    ) -> *mut ffi::PyThreadState;
    fn gosched_state_is_clean(ts: *mut ffi::PyThreadState) -> c_int;
    fn gosched_state_are_threads();
    fn gosched_state_identify(ts: *mut ffi::PyThreadState, ident: c_ulong);
    fn PyThreadState_GetFrame(ts: *mut ffi::PyThreadState) -> *mut ffi::PyObject;
}

#[cfg(Py_GIL_DISABLED)]
unsafe extern "C" {
    fn gosched_thread_state(interp: *mut ffi::PyInterpreterState) -> *mut ffi::PyThreadState;
    fn gosched_frames_adopt(f: *mut Frames);
    fn gosched_frames_begin(f: *mut Frames, ts: *mut ffi::PyThreadState, stack_size: usize);
    fn gosched_frames_end(f: *mut Frames);
    fn gosched_frames_leave(f: *mut Frames);
    fn gosched_frames_enter(f: *mut Frames);
    fn gosched_frames_hold(f: *mut Frames) -> c_int;
    fn gosched_frames_let_go(f: *mut Frames);
    fn gosched_frames_stack(f: *mut Frames) -> *mut ffi::PyObject;
    fn gosched_object_give(o: *mut ffi::PyObject);
    fn gosched_must_settle(ts: *mut ffi::PyThreadState) -> c_int;
    fn gosched_settle(ts: *mut ffi::PyThreadState);
    fn gosched_thread_stack(
        ts: *mut ffi::PyThreadState,
        running: *const *mut c_void,
        expected: *const c_void,
    ) -> *mut ffi::PyObject;
}

/// What of its thread's state is a goroutine's, while it is not in Python: `struct gosched_frames`. Once it has
/// begun it stays where it is.
#[cfg(Py_GIL_DISABLED)]
#[repr(C)]
pub struct Frames([u64; FRAMES_WORDS]);

/// `FRAMES_WORDS` in state.c.
#[cfg(Py_GIL_DISABLED)]
const FRAMES_WORDS: usize = 48;

/// What has left Python: a thread state; or with the lowest bit set, where there is no GIL, the `Frames` of a
/// goroutine.
pub struct Away(usize);

impl Away {
    /// For C: see `capi`.
    pub fn into_raw(self) -> *mut c_void {
        self.0 as *mut c_void
    }

    pub fn from_raw(away: *mut c_void) -> Away {
        Away(away as usize)
    }
}

/// Gives Python back, and the GIL.
///
/// # Safety
/// The caller is attached, and uses nothing of Python's until `enter`.
#[inline(always)]
pub unsafe fn leave() -> Away {
    #[cfg(Py_GIL_DISABLED)]
    if let Some(frames) = worker::take_frames() {
        // SAFETY: those of the goroutine that is in Python here, which calls this.
        unsafe { gosched_frames_leave(frames) };
        worker::has_left(frames);
        return Away(frames as usize | 1);
    }
    // SAFETY: as the caller says.
    Away(unsafe { ffi::PyEval_SaveThread() } as usize)
}

/// Takes Python, and the GIL, again.
///
/// # Safety
/// On the thread that has left, by the goroutine that has.
#[inline(always)]
pub unsafe fn enter(away: Away) {
    worker::stop_if_finalizing();
    #[cfg(Py_GIL_DISABLED)]
    if away.0 & 1 != 0 {
        let frames = (away.0 & !1) as *mut Frames;
        // SAFETY: as the caller says; the goroutine is on its thread.
        unsafe {
            gosched_frames_enter(frames);
            worker::set_frames(frames);
        }
        return;
    }
    // SAFETY: as the caller says.
    unsafe { gosched_state_enter(away.0 as *mut ffi::PyThreadState) };
}

/// Whether the exit functions have run, and Python is being taken apart.
#[inline(always)]
pub fn is_finalizing() -> bool {
    // SAFETY: no preconditions.
    unsafe { gosched_is_finalizing() != 0 }
}

/// Calls `f`, which may switch, outside of Python.
#[inline(always)]
pub fn outside<R>(_py: Python<'_>, f: impl FnOnce() -> R) -> R {
    // SAFETY: `_py` says that the caller is attached; `f` gets nothing of Python's.
    unsafe {
        let away = leave();
        let result = f();
        enter(away);
        result
    }
}

/// One more reference to an object that goes to another goroutine, maybe on another thread.
#[inline(always)]
pub fn give(object: &Bound<'_, PyAny>) -> *mut ffi::PyObject {
    #[cfg(Py_GIL_DISABLED)]
    {
        // SAFETY: the caller has a reference.
        unsafe { gosched_object_give(object.as_ptr()) };
        object.as_ptr()
    }
    #[cfg(not(Py_GIL_DISABLED))]
    object.clone().into_ptr()
}

/// Thread states of goroutines that have ended, for the next ones. They keep the memory of their frames.
#[cfg(not(Py_GIL_DISABLED))]
static FREE: Shared<Vec<*mut ffi::PyThreadState>> = Shared::new(Vec::new());
/// How many of them are kept.
#[cfg(not(Py_GIL_DISABLED))]
const FREE_STATES: usize = 256;

/// At import. An error: this Python is not the version that the module was compiled for, or keeps its
/// thread state in an unknown place.
pub fn init(py: Python<'_>) -> PyResult<()> {
    // SAFETY: the caller is attached.
    let (compiled_for, known) = unsafe { (gosched_python_compiled_for(), gosched_state_init()) };
    let here = py.version_info();
    let (major, minor) = (here.major as c_ulong, here.minor as c_ulong);
    if compiled_for >> 16 != (major << 8 | minor) || known != 0 {
        return Err(pyo3::exceptions::PyImportError::new_err(
            "gosched was built for another version of Python",
        ));
    }
    Ok(())
}

/// Bytes of stack for a goroutine whose code may recurse as deeply as Python allows; `usual` if that has not
/// been raised.
#[inline(always)]
pub fn stack_for(_py: Python<'_>, usual: usize) -> usize {
    // SAFETY: the caller is attached.
    unsafe { gosched_state_stack(usual) }
}

/// What a goroutine runs Python code in. It stays where it is from `begin` or `adopt` on.
pub struct State {
    /// Null before.
    ts: *mut ffi::PyThreadState,
    #[cfg(Py_GIL_DISABLED)]
    frames: Frames,
}

impl State {
    pub const fn new() -> State {
        State {
            ts: ptr::null_mut(),
            #[cfg(Py_GIL_DISABLED)]
            frames: Frames([0; FRAMES_WORDS]),
        }
    }

    /// That of a goroutine which is in Python already, the main one.
    ///
    /// # Safety
    /// The caller is that goroutine, attached. It never ends.
    pub unsafe fn adopt(&mut self) {
        // SAFETY: as the caller says.
        unsafe {
            self.ts = ffi::PyThreadState_Get();
            #[cfg(Py_GIL_DISABLED)]
            {
                gosched_frames_adopt(&raw mut self.frames);
                worker::set_frames(&raw mut self.frames);
            }
        }
    }

    /// Drops what the goroutine has put into its thread state: thread-local data. Runs destructors.
    ///
    /// # Safety
    /// Called by the goroutine, in Python.
    pub unsafe fn clear(&self) {
        // SAFETY: as the caller says.
        unsafe { gosched_state_reset(self.ts) };
    }

    /// Has the goroutine, or what runs in its thread's state meanwhile, call the handlers of signals soon.
    pub fn interrupt(&self, _py: Python<'_>) {
        // SAFETY: the state is the goroutine's, or its thread's, as long as this is here.
        unsafe { gosched_state_interrupt(self.ts) };
    }
}

#[cfg(not(Py_GIL_DISABLED))]
impl State {
    /// Enters Python at the beginning of a goroutine. False: no memory.
    ///
    /// # Safety
    /// On the stack of a goroutine that has no state, without the GIL.
    pub unsafe fn begin(
        &mut self,
        interp: *mut ffi::PyInterpreterState,
        stack_size: usize,
        is_usual: bool,
        ident: u64,
    ) -> bool {
        worker::stop_if_finalizing();
        // Only this thread uses the list: goroutines of Python all run here.
        let kept = if is_usual { FREE.with_thread(Vec::pop) } else { None };
        // SAFETY: the interpreter is the main one, which lives as long as goroutines may enter it.
        unsafe {
            self.ts = match kept {
                Some(ts) => ts,
                None => gosched_state_new(interp, stack_size),
            };
            if self.ts.is_null() {
                return false;
            }
            gosched_state_enter(self.ts);
            gosched_state_identify(self.ts, ident as c_ulong);
        }
        true
    }

    /// Leaves Python at the end of a goroutine.
    ///
    /// # Safety
    /// It is the current state, and nothing refers to it.
    pub unsafe fn end(&mut self, is_usual: bool) {
        // SAFETY: as the caller says.
        unsafe {
            let reusable = is_usual
                && gosched_state_is_clean(self.ts) != 0
                && FREE.with_thread(|free| free.len() < FREE_STATES);
            if reusable {
                gosched_state_identify(self.ts, 0);
                ffi::PyEval_SaveThread();
                FREE.with_thread(|free| free.push(self.ts));
            } else {
                ffi::PyThreadState_Clear(self.ts);
                ffi::PyThreadState_DeleteCurrent();
            }
        }
    }

    /// See `are_threads`: for a goroutine that has begun before.
    ///
    /// # Safety
    /// The goroutine has not ended.
    pub unsafe fn identify(&self, _py: Python<'_>, ident: u64) {
        // SAFETY: as the caller says.
        unsafe { gosched_state_identify(self.ts, ident as c_ulong) };
    }

    /// The frame in which the goroutine is. `None`: it has none.
    ///
    /// # Safety
    /// The goroutine has not ended.
    pub unsafe fn frame(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        // SAFETY: as the caller says; a new reference or null.
        unsafe { Bound::from_owned_ptr_or_opt(py, PyThreadState_GetFrame(self.ts)) }
            .map(Bound::unbind)
    }
}

#[cfg(Py_GIL_DISABLED)]
impl State {
    /// Enters Python at the beginning of a goroutine. False: no memory.
    ///
    /// # Safety
    /// On the stack of a goroutine that has no state, on its thread, outside of Python.
    pub unsafe fn begin(
        &mut self,
        _interp: *mut ffi::PyInterpreterState,
        stack_size: usize,
        _is_usual: bool,
        _ident: u64,
    ) -> bool {
        worker::stop_if_finalizing();
        self.ts = worker::thread_state();
        let frames = &raw mut self.frames;
        // SAFETY: the thread's own state, outside of Python.
        unsafe { gosched_frames_begin(frames, self.ts, stack_size) };
        worker::set_frames(frames);
        true
    }

    /// Leaves Python at the end of a goroutine.
    ///
    /// # Safety
    /// Called by the goroutine, in Python; `clear` was.
    pub unsafe fn end(&mut self, _is_usual: bool) {
        worker::take_frames();
        // SAFETY: as the caller says.
        unsafe { gosched_frames_end(&raw mut self.frames) };
    }

    /// Keeps the goroutine out of Python until `let_go`. False: it is in Python, and runs on.
    ///
    /// # Safety
    /// The goroutine has not ended; the caller neither waits nor runs Python code before `let_go`.
    pub unsafe fn hold(&self) -> bool {
        // SAFETY: as the caller says.
        unsafe { gosched_frames_hold((&raw const self.frames).cast_mut()) != 0 }
    }

    /// See `hold`.
    ///
    /// # Safety
    /// `hold` gave true.
    pub unsafe fn let_go(&self) {
        // SAFETY: as the caller says.
        unsafe { gosched_frames_let_go((&raw const self.frames).cast_mut()) };
    }

    /// See `hold`: the stack of the goroutine, which may go on then. As that of `stack`.
    ///
    /// # Safety
    /// `hold` gave true.
    pub unsafe fn stack_and_let_go(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        // SAFETY: as the caller says; a new reference or an error.
        unsafe {
            let list = gosched_frames_stack((&raw const self.frames).cast_mut());
            Ok(Bound::from_owned_ptr_or_err(py, list)?.unbind())
        }
    }
}

/// A thread state for the calling thread, which keeps it. Null: no memory.
#[cfg(Py_GIL_DISABLED)]
pub fn of_thread(interp: *mut ffi::PyInterpreterState) -> *mut ffi::PyThreadState {
    // SAFETY: the main interpreter.
    unsafe { gosched_thread_state(interp) }
}

/// Whether objects wait for this thread, as only it can free them.
///
/// # Safety
/// The state of a thread that never ends.
#[cfg(Py_GIL_DISABLED)]
pub unsafe fn must_settle(ts: *mut ffi::PyThreadState) -> bool {
    // SAFETY: as the caller says.
    unsafe { gosched_must_settle(ts) != 0 }
}

/// Frees them.
///
/// # Safety
/// The calling thread's state; outside of Python.
#[cfg(Py_GIL_DISABLED)]
pub unsafe fn settle(ts: *mut ffi::PyThreadState) {
    worker::stop_if_finalizing();
    // SAFETY: as the caller says.
    unsafe { gosched_settle(ts) };
}

/// The frames of a thread while `running`, which only that thread changes, is `expected`: see `gosched_thread_stack`.
#[cfg(Py_GIL_DISABLED)]
pub fn stack<T>(
    py: Python<'_>,
    ts: *mut ffi::PyThreadState,
    running: &std::sync::atomic::AtomicPtr<T>,
    expected: &T,
) -> PyResult<Py<PyAny>> {
    let expected = ptr::from_ref(expected).cast();
    // SAFETY: attached; the state of a thread that never ends; a new reference or an error.
    unsafe {
        let list = gosched_thread_stack(ts, running.as_ptr().cast_const().cast(), expected);
        Ok(Bound::from_owned_ptr_or_err(py, list)?.unbind())
    }
}

/// From now on the interpreter knows goroutines as threads with the identities of the goroutines.
#[cfg(not(Py_GIL_DISABLED))]
pub fn are_threads(_py: Python<'_>) {
    // SAFETY: attached.
    unsafe { gosched_state_are_threads() };
}

/// Before a fork: no thread makes a thread state until it is over.
#[pyfunction]
pub fn _before_fork() {
    // SAFETY: the caller's thread forks next, and calls one of the others then.
    unsafe { gosched_state_before_fork() };
}

/// After a fork, in the parent.
#[pyfunction]
pub fn _after_fork() {
    // SAFETY: `_before_fork` was called on this thread.
    unsafe { gosched_state_after_fork() };
}

/// In the child of a fork Python has deleted all states but the running one.
pub fn forked() {
    // SAFETY: attached, on the only thread of the child.
    unsafe { gosched_state_forked() };
    #[cfg(not(Py_GIL_DISABLED))]
    FREE.with_thread(Vec::clear);
}
