//! What runs on a goroutine's stack.

use super::frames;
use super::list;
use super::object::{Call, Goroutine, Status, usual_stack};
use super::report::{report, will_be_watched};
use crate::bubble;
use crate::errors::Cancelled;
use crate::ffi::*;
use crate::sys::attach;
use crate::sys::state::State;
use crate::worker::current;
use pyo3::exceptions::PySystemExit;
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;

/// At import.
pub fn init() -> PyResult<()> {
    frames::init(run)
}

/// The function of each goroutine. `object` is the reference that `spawn_call` has given.
pub(super) unsafe extern "C" fn run(object: *mut c_void) {
    let object: *mut py_ffi::PyObject = object.cast();
    // SAFETY: a `Py` is the address of its object, and a frozen object may be read without the GIL.
    let (stack, ident) = unsafe {
        let g = std::mem::transmute::<*mut py_ffi::PyObject, ManuallyDrop<Py<Goroutine>>>(object);
        (g.get().stack, g.get().id)
    };
    // Only the first thread uses the states that are kept.
    let is_usual = stack == usual_stack() && !bubble::is_inside();
    let mut state = State::new();
    // SAFETY: a new goroutine; the reference keeps the object until `body` has ended.
    unsafe {
        if !attach::begin(&mut state, stack, is_usual, ident) {
            // It stays new for ever: there is no memory to say so.
            return;
        }
        Python::attach(|py| {
            let g = Bound::<PyAny>::from_owned_ptr(py, object).cast_into_unchecked::<Goroutine>();
            body(&g, &state);
            bubble::ended(py, g.get());
            current::away(Some(g.get()));
        });
        attach::end(&mut state, is_usual);
    }
}

/// Calls the goroutine's function. Then notes the outcome, reports an error, wakes the goroutines
/// and threads that wait for the end, and calls the callbacks.
fn body(slf: &Bound<'_, Goroutine>, state: &State) {
    let (py, g) = (slf.py(), slf.get());
    current::set_current(Some(g));
    // SAFETY: the running goroutine.
    let handle = unsafe { gs_self() };
    list::add(py, g);
    g.shown.set_owner(state.owner());
    let call = g.inner.with(py, |i| {
        (i.handle, i.status, i.state) = (handle, Status::Running, state);
        i.call.take()
    });
    // What the goroutine was given ends with it, before its thread state does.
    let mut context = None;
    let outcome = match g.take_thrown(py) {
        Some(e) => {
            drop(call);
            Err(e)
        }
        None => call.map_or_else(|| Ok(py.None()), |call| perform(py, call, &mut context)),
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
        report(py, slf, e, context.as_ref());
    }
    drop(context);
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
    list::note_ended(g.is_own);
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
        report(py, slf, &e, None);
        end_if_forked();
    }
    g.inner.with(py, |i| (i.handle, i.state) = (ptr::null_mut(), ptr::null()));
    list::remove(py, g);
    // What a callback has left behind.
    // SAFETY: this goroutine, in Python.
    unsafe { state.clear() };
    end_if_forked();
    g.shown.set_owner(ptr::null_mut());
    // The object may end before the goroutine.
    // SAFETY: never switches.
    unsafe { gs_set_data(handle, ptr::null_mut()) };
}

/// Calls the goroutine's function in its context, with the hooks of `threading`. If the function
/// raises, `context` is that context.
fn perform(py: Python<'_>, call: Call, context: &mut Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
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
    if result.is_err() {
        *context = Some(call.context);
    }
    result
}

/// threading.settrace and threading.setprofile hold for goroutines too, and for calls of
/// `blocking`.
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

/// A module, if it is imported already.
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

/// Calls a callback of a goroutine that has ended.
pub(super) fn call_back(py: Python<'_>, function: &Py<PyAny>, g: &Bound<'_, Goroutine>) {
    if let Err(e) = function.call1(py, (g,)) {
        e.write_unraisable(py, Some(function.bind(py)));
    }
}

/// Ends the child of a fork that the called function has made: a goroutine's function, a callback,
/// or a function that `blocking` calls. With the end of that function the child's program ends.
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
