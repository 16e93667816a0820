//! Signals while no goroutine runs, or one computes.
//!
//! Python's own handler, in C, writes the signal's number to a pipe. A plain thread reads the pipe:
//! it needs no P, which goroutines that compute may all have. The thread wakes the goroutine
//! `gosched-signals`, which calls the handlers in Python if none has yet; and if the worker thread
//! computes, it has the goroutine that does so call them. (Until 3.12 the interpreter does that by
//! itself; from 3.13 on only in the thread state of the main goroutine.)

use crate::ffi::*;
use crate::goroutine::{go, list};
use crate::outside::outside;
use crate::park::{self, Timeout};
use crate::sem::Sem;
use crate::worker::{current, ending, first};
use crate::{blocking, own};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Released for each time that signals have come.
static COME: Sem = Sem::new();

/// How often signals have come, as far as the pipe tells, and how often of these `gosched-signals`
/// has called the handlers.
static ASKED: AtomicU64 = AtomicU64::new(0);
static ANSWERED: AtomicU64 = AtomicU64::new(0);
/// The handler of SIGINT throws KeyboardInterrupt at the main goroutine, which has not raised it
/// yet.
static THROWN: AtomicBool = AtomicBool::new(false);

/// How long a goroutine that was told to give way has for that, at first and at most, in ns.
const FIRST_PAUSE: i64 = 5_000_000;
const LAST_PAUSE: i64 = 100_000_000;

/// Waits until the pipe can be read, or that time of `gs_now`'s; `GS_FOREVER`: for ever. Whether it
/// can be read.
fn wait_for_pipe(fd: i32, until: i64) -> bool {
    loop {
        let timeout = match until {
            GS_FOREVER => -1,
            // SAFETY: no preconditions. Rounded up, in ms.
            until => ((until - unsafe { gs_now() }).max(0) + 999_999) / 1_000_000,
        };
        let mut pipe = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        let found = unsafe { libc::poll(&raw mut pipe, 1, timeout as i32) };
        if found >= 0 || errno() != libc::EINTR {
            return found > 0;
        }
    }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Reads the pipe, for ever. Sees to it that the handler of SIGINT is called, and that what it
/// throws reaches the main goroutine while others compute: whichever runs before that is told to
/// call the handler again, which gives way.
fn listen(fd: i32) {
    let mut numbers = [0u8; 64];
    // The value of `ASKED` at the last SIGINT, while there is something to do for it.
    let mut interrupt = None;
    // When that is done next, and how long after that again.
    let (mut look_at, mut pause) = (0, FIRST_PAUSE);
    loop {
        if wait_for_pipe(fd, if interrupt.is_some() { look_at } else { GS_FOREVER }) {
            // SAFETY: `numbers` has room for the bytes asked for.
            let n = unsafe { libc::read(fd, numbers.as_mut_ptr().cast(), numbers.len()) };
            if n <= 0 {
                match std::io::Error::last_os_error().raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR) if n < 0 => continue,
                    _ => return,
                }
            }
            let asked = ASKED.fetch_add(1, Ordering::Relaxed) + 1;
            // SAFETY: a thread that is not in Python.
            unsafe { COME.release(1) };
            // Others' handlers may raise what is not meant for the goroutine that computes.
            if numbers[..n as usize].contains(&(libc::SIGINT as u8)) {
                // `look` makes more of them: these don't begin anew.
                if interrupt.is_none() {
                    // SAFETY: no preconditions.
                    (look_at, pause) = (unsafe { gs_now() }, FIRST_PAUSE);
                }
                interrupt = Some(asked);
            }
        }
        // SAFETY: no preconditions.
        if let Some(asked) = interrupt
            && unsafe { gs_now() } >= look_at
        {
            let is_thrown = blocking::with_gil(look);
            let is_answered = ANSWERED.load(Ordering::Relaxed) >= asked;
            if ending::is_ending() || is_answered && !is_thrown {
                interrupt = None;
            }
            // SAFETY: no preconditions.
            look_at = unsafe { gs_now() } + pause;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }
}

/// Whether the exception is on its way.
fn look(py: Python<'_>) -> bool {
    let running = list::busy(py);
    // Has the handler called again, which gives way.
    let repeat = || {
        if running.is_some() {
            // SAFETY: attached.
            unsafe { py_ffi::PyErr_SetInterrupt() };
        }
    };
    let is_thrown = THROWN.load(Ordering::Relaxed)
        && first::main(py).is_some_and(|main| main.get().if_interrupted(py, repeat));
    if !is_thrown {
        THROWN.store(false, Ordering::Relaxed);
    }
    if let Some(running) = running {
        running.get().look_for_signals(py);
    }
    is_thrown
}

/// For the handler of SIGINT: throws KeyboardInterrupt at the main goroutine, unless that has been thrown already
/// and is not raised yet; and lets others run, without raising what was thrown at the caller.
#[pyfunction]
pub fn _interrupt_main(py: Python<'_>) -> PyResult<()> {
    let Some(main) = first::main(py) else { return Ok(()) };
    let exception = py.get_type::<PyKeyboardInterrupt>().call0()?.unbind();
    // Before it is thrown: the thread that wakes the main goroutine may give way to a goroutine
    // that computes.
    THROWN.store(true, Ordering::Relaxed);
    if !main.get().if_interrupted(py, || {}) {
        main.get().throw_at(py, exception);
    }
    // Again: without a GIL `look` may have come in between, found nothing thrown and cleared it.
    THROWN.store(true, Ordering::Relaxed);
    // SAFETY: without the GIL.
    current::call(py, || unsafe { gs_yield() });
    Ok(())
}

/// Whether system calls that the signal interrupts go on: see `signal.siginterrupt`.
#[pyfunction]
pub fn _restarts(number: i32) -> bool {
    // SAFETY: zeros are an action, and it is only read.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &raw mut action) == 0
            && action.sa_flags & libc::SA_RESTART != 0
    }
}

/// The thread that reads the pipe runs.
static LISTENS: AtomicBool = AtomicBool::new(false);
/// `gosched-signals` runs.
static WATCHES: AtomicBool = AtomicBool::new(false);

/// Starts the thread that reads the pipe, and the goroutine `gosched-signals`, which runs `watch`. If a signal's handler
/// ends this half way, the next call does the rest.
#[pyfunction]
pub fn _listen(fd: i32, watch: &Bound<'_, PyAny>) -> PyResult<()> {
    if !LISTENS.load(Ordering::Relaxed) {
        let py = watch.py();
        own::add(py, start_thread(py, fd)?);
        LISTENS.store(true, Ordering::Relaxed);
    }
    go::spawn_once(&WATCHES, watch, "gosched-signals")
}

/// Gives the thread, as of gettid(2).
fn start_thread(py: Python<'_>, fd: i32) -> PyResult<i32> {
    let (tell, told) = std::sync::mpsc::channel();
    let run = move || {
        // SAFETY: no preconditions.
        let _ = tell.send(unsafe { libc::gettid() });
        listen(fd);
    };
    // The thread inherits the mask: signals are for the main thread, whose system calls they end.
    // SAFETY: plain calls, with sets of this frame's.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        // The library's preemption signal, by which it halts all threads in `gs_leaks`.
        libc::sigdelset(&raw mut all, libc::SIGURG);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        // The pipe is closed in the child of a fork only, which has no such thread.
        let started = std::thread::Builder::new().name("gosched-sigread".into()).spawn(run);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        started?;
    }
    Ok(outside(py, || told.recv()).expect("the thread tells it first"))
}

/// What `ANSWERED` is to be when the handlers have been called.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// For `gosched-signals`: waits until signals have come. It has called the handlers of those before.
#[pyfunction]
pub fn _wait_for_signal(py: Python<'_>) -> PyResult<()> {
    ANSWERED.store(SEEN.load(Ordering::Relaxed), Ordering::Relaxed);
    // SAFETY: outside of Python.
    park::wait(py, Timeout::Forever, |d| unsafe { COME.acquire(d) })?;
    SEEN.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// In the child of a fork.
pub fn forked() {
    for count in [&ASKED, &SEEN, &ANSWERED] {
        count.store(0, Ordering::Relaxed);
    }
    THROWN.store(false, Ordering::Relaxed);
    LISTENS.store(false, Ordering::Relaxed);
    WATCHES.store(false, Ordering::Relaxed);
    COME.forked();
}

/// Runs the handlers of signals that have come, on the main thread. The interpreter itself does so in the
/// thread state of the main goroutine only, from Python 3.13 on.
#[pyfunction]
pub fn _check_signals(py: Python<'_>) -> PyResult<()> {
    py.check_signals()
}
