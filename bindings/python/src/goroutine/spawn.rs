//! Makes goroutines. The callers have seen to it that there is a thread for them (`worker::start`).

use super::body::run;
use super::frames;
use super::list;
use super::object::{Call, Goroutine, Status, usual_stack};
use crate::bubble;
use crate::errors;
use crate::ffi::*;
use crate::interpreter::stack_for;
use crate::sys::state::State;
use crate::sys::{attach, group};
use crate::worker::{current, ending, first};
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The identity of the next goroutine.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Makes the object of the main goroutine, which is the caller, attached. `handle`: the library's
/// goroutine.
pub fn main_object(py: Python<'_>, handle: *mut gs_g) -> PyResult<Py<Goroutine>> {
    // SAFETY: no preconditions.
    let id = unsafe { libc::pthread_self() } as u64;
    let g = Py::new(py, Goroutine::new(id, 0, false, None, Status::Running))?;
    let name = "main".into_pyobject(py)?.into_any().unbind();
    let state = Box::leak(Box::new(State::new()));
    // SAFETY: the main goroutine, attached.
    unsafe { attach::adopt(state) };
    let owner = state.owner();
    g.get().inner.with(py, |i| {
        i.handle = handle;
        i.name = Some(name);
        i.state = state;
    });
    g.get().shown.set_owner(owner);
    // SAFETY: never switches; the object lives as long as the goroutine.
    unsafe { gs_set_data(handle, g.as_ptr().cast()) };
    frames::set_main(handle);
    Ok(g)
}

/// The call of a function in a copy of the caller's context. TypeError: it isn't callable.
pub(super) fn call_of<'py>(
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

/// Starts a goroutine. With `is_own` it does the package's own work, on the first thread that runs
/// goroutines.
pub(super) fn spawn_call(
    py: Python<'_>,
    call: Call,
    name: Option<Py<PyAny>>,
    stack: usize,
    is_own: bool,
) -> PyResult<Py<Goroutine>> {
    if ending::is_ending() && ending::is_over() {
        return Err(ending::error());
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
        workers: if is_own { first::group() } else { group::group() },
    };
    let arg = g.clone_ref(py).into_ptr();
    list::note_spawned(is_own);
    // SAFETY: `run` takes the reference; the options live through the call.
    let e = current::call(py, || unsafe {
        gs_spawn_with(run, arg.cast(), &raw const opts, ptr::null_mut())
    });
    if e != 0 {
        list::note_ended(is_own);
        // SAFETY: it was not taken.
        drop(unsafe { Bound::from_owned_ptr(py, arg) });
        return Err(if e == -libc::EINVAL {
            errors::value("the stack is too large")
        } else {
            errors::of(e)
        });
    }
    bubble::spawned(py, &g);
    Ok(g)
}

/// Starts `function()` as the goroutine of Python with which a bubble begins. The caller is a goroutine
/// of C there, with the state of its thread.
pub fn spawn_main_of_bubble(
    py: Python<'_>,
    function: &Py<PyAny>,
    context: Py<PyAny>,
) -> PyResult<Py<Goroutine>> {
    let (function, args) = (function.clone_ref(py), PyTuple::empty(py).unbind());
    let call = Call { function, args, kwargs: None, context };
    let name = PyString::new(py, "main").into_any().unbind();
    spawn_call(py, call, Some(name), stack_for(py, usual_stack()), false)
}

/// Starts `function()` as a goroutine of the package's own, on the first thread that runs
/// goroutines.
pub fn spawn_own(function: &Bound<'_, PyAny>, name: &str) -> PyResult<Py<Goroutine>> {
    let py = function.py();
    let name = PyString::new(py, name).into_any().unbind();
    let call = call_of(function, PyTuple::empty(py), None)?;
    spawn_call(py, call, Some(name), stack_for(py, usual_stack()), true)
}
