//! Makes sure that there is a thread for goroutines.

use crate::errors;
use crate::ffi::*;
use crate::goroutine::spawn;
use crate::outside::outside;
use crate::sys::starting::{self, Starting};
use crate::sys::{closing, group, settler, threads};
use crate::worker::{current, ending, first, stay::stay_attached};
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;

/// Makes sure that there is a thread for goroutines, unless Python has ended for them: then the
/// caller is a plain thread.
#[inline(always)]
pub fn ensure(py: Python<'_>) -> PyResult<()> {
    closing::open(py);
    if first::thread() != 0 { Ok(()) } else { start(py) }
}

/// See `ensure`.
#[cold]
fn start(py: Python<'_>) -> PyResult<()> {
    if ending::is_over() {
        return Ok(());
    }
    let starting = Starting::begin(py);
    if first::has_begun() {
        return Ok(());
    }
    if first::group().is_null() {
        // SAFETY: a plain call; nothing runs goroutines of Python yet.
        let group = unsafe { gs_workers_create(1, GS_WORKERS_RUNNER) };
        if group.is_null() {
            return Err(errors::no_memory());
        }
        first::set_group(group);
    }
    starting.announce();
    let started = if first::is_main_thread() { attach_main(py) } else { make_thread(py) };
    let started = started.and_then(|thread| group::grow_to_procs(py).map(|()| thread));
    match started {
        Ok(thread) => {
            // A thread that sees it with `has_begun` finds all of that done.
            first::set_thread(thread);
            // SAFETY: no preconditions. A signal, or another thread, can wake goroutines.
            unsafe { gs_hold() };
            begin(py, thread == first::this_thread())
        }
        Err(e) => {
            first::set_thread(0);
            Err(e)
        }
    }
}

/// What Python code does once there is a thread for goroutines. `is_main`: that is the calling
/// thread. If a signal's handler raises an exception in the middle, the rest is done nevertheless,
/// and the exception is raised then.
fn begin(py: Python<'_>, is_main: bool) -> PyResult<()> {
    let all = || {
        py.import("gosched._imports")?.call_method0("start")?;
        settler::start(py)?;
        if is_main {
            py.import("gosched._signals")?.call_method0("start")?;
        }
        Ok(())
    };
    // What has been done is not done again.
    all().or_else(|first: PyErr| all().and(Err(first)))
}

/// The program has set the number of P's to `n`: makes more threads for goroutines if need be.
pub fn procs_changed(py: Python<'_>, n: i32) -> PyResult<()> {
    if first::has_begun() {
        group::grow(py, n as usize)?;
        settler::start(py)?;
    }
    Ok(())
}

/// Attaches the calling thread, the main one, whose goroutine is the main goroutine from here on.
/// Gives the thread.
fn attach_main(py: Python<'_>) -> PyResult<usize> {
    // SAFETY: a plain thread, which stays attached until the process ends.
    let e = outside(py, || unsafe { gs_attach(GS_SPAWN_NOSIGNAL) });
    errors::check(e)?;
    starting::attached();
    // SAFETY: attached.
    threads::register(unsafe { py_ffi::PyThreadState_Get() });
    // SAFETY: the goroutine that the thread runs now.
    let handle = unsafe { gs_self() };
    let main = spawn::main_object(py, handle)?;
    current::set_current(Some(main.bind(py).get()));
    first::set_main(main);
    Ok(first::this_thread())
}

/// Makes a thread for goroutines. Gives the thread.
fn make_thread(py: Python<'_>) -> PyResult<usize> {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("gosched-python".into()).spawn(move || {
        if !starting::prepare() {
            let _ = tell.send((-libc::ENOMEM, 0));
            return;
        }
        stay_attached(|e| {
            if e == 0 {
                starting::attached_made();
            }
            let _ = tell.send((e, first::this_thread()));
        });
    });
    if let Err(e) = thread {
        return Err(e.into());
    }
    let (e, thread) = outside(py, || told.recv().unwrap_or((-libc::EAGAIN, 0)));
    errors::check(e)?;
    Ok(thread)
}
