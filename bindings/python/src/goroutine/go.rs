//! Python's functions that start goroutines, and those that tell which one runs.

use super::list::object_of;
use super::object::{Call, Goroutine, LEAST_STACK, usual_stack};
use super::spawn::{call_of, spawn_call, spawn_own};
use crate::interpreter::stack_for;
use crate::sys::inspect;
use crate::worker::current::current as running;
use crate::worker::{first, start};
use crate::{errors, info};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::atomic::{AtomicBool, Ordering};

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
    ensure_and_spawn(
        py,
        call_of(function, args, kwargs)?,
        None,
        stack_for(py, usual_stack()),
        false,
    )
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
        && (n < 0 || n >= info::nodes(py)?)
    {
        return Err(errors::value("there is no such node"));
    }
    let stack =
        if stack_size == 0 { stack_for(py, usual_stack()) } else { stack_size.max(LEAST_STACK) };
    ensure_and_spawn(py, call_of(function, args, kwargs)?, name, stack, false)
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
    ensure_and_spawn(
        py,
        call_of(function, args, None)?,
        Some(name),
        stack_for(py, usual_stack()),
        true,
    )
}

/// Makes sure that there is a thread for goroutines, and starts one: see `spawn_call`.
fn ensure_and_spawn(
    py: Python<'_>,
    call: Call,
    name: Option<Py<PyAny>>,
    stack: usize,
    is_own: bool,
) -> PyResult<Py<Goroutine>> {
    start::ensure(py)?;
    spawn_call(py, call, name, stack, is_own)
}

/// Starts a goroutine of the package's own on the first thread that runs goroutines, unless it runs
/// already: `runs` says so from then on.
pub fn spawn_once(runs: &AtomicBool, function: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    if !runs.load(Ordering::Relaxed) {
        start::ensure(function.py())?;
        spawn_own(function, name)?;
        runs.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// The running goroutine; None on a thread that runs none.
#[pyfunction]
pub fn current(py: Python<'_>) -> PyResult<Option<Py<Goroutine>>> {
    if first::is_main_thread() {
        start::ensure(py)?;
    }
    Ok(running(py).and_then(|g| object_of(py, g)))
}

/// The main goroutine, that of the main thread; None before the first use of goroutines, and where
/// another thread was first.
#[pyfunction]
pub fn main(py: Python<'_>) -> Option<Py<Goroutine>> {
    first::main(py)
}

/// Called when the threads of the module threading become goroutines. With a GIL the interpreter does from then on for
/// the goroutine with a given identity what it does for a thread with one. (Without a GIL a thread state is the thread's.)
#[pyfunction]
pub fn _are_threads(py: Python<'_>) {
    inspect::are_threads(py);
}

/// Calls f(*args), which looks for threads by their identities and neither waits nor runs Python code. From `_are_threads`
/// on it finds the goroutine with an identity.
#[pyfunction]
#[pyo3(signature = (f, /, *args))]
pub fn _as_threads(f: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
    inspect::as_threads(f.py(), || f.call1(args)).map(Bound::unbind)
}
