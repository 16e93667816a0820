//! The capsule `gosched._gosched._C_API`: see python/gosched/include/gosched_python.h, which has
//! the same structures and says what each function does.

use crate::channel::Channel;
use crate::ffi::*;
use crate::format::Format;
use crate::goroutine::object::Goroutine;
use crate::handle::{self, Handle};
use crate::park::{self, Ended, Timeout};
use crate::sys::attach::{self, Away};
use crate::worker::current;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// GOSCHED_PYTHON_VERSION
const VERSION: u32 = 1;

#[repr(C)]
struct Left {
    state: *mut c_void,
    goroutine: *const Goroutine,
}

type Waits = unsafe extern "C" fn(*mut c_void, i64) -> c_int;

#[repr(C)]
struct Api {
    version: u32,
    reserved: u32,
    leave: unsafe extern "C" fn(*mut Left),
    enter: unsafe extern "C" fn(*mut Left),
    wait: unsafe extern "C" fn(Waits, *mut c_void, i64) -> c_int,
    chan_get: unsafe extern "C" fn(*mut py_ffi::PyObject, *const c_char) -> *mut Handle,
    chan_put: unsafe extern "C" fn(*mut Handle),
    chan_new: unsafe extern "C" fn(usize, *const c_char) -> *mut py_ffi::PyObject,
}

static API: Api =
    Api { version: VERSION, reserved: 0, leave, enter, wait, chan_get, chan_put, chan_new };

/// The capsule.
pub fn capsule(py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
    let name = c"gosched._gosched._C_API".as_ptr();
    // SAFETY: `API` and its name are static; the caller has the GIL.
    unsafe {
        let object = py_ffi::PyCapsule_New((&raw const API).cast_mut().cast(), name, None);
        Ok(Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked())
    }
}

unsafe extern "C" fn leave(left: *mut Left) {
    // SAFETY: the caller has the GIL, and gives it back here.
    unsafe {
        let py = Python::assume_attached();
        let me = current::current(py);
        let goroutine = me.map_or(ptr::null(), ptr::from_ref);
        current::away(me);
        *left = Left { state: attach::leave().into_raw(), goroutine };
    }
}

unsafe extern "C" fn enter(left: *mut Left) {
    // SAFETY: what `leave` has put there, on the same stack.
    unsafe {
        attach::enter(Away::from_raw((*left).state));
        current::set_current((*left).goroutine.as_ref());
    }
}

unsafe extern "C" fn wait(f: Waits, arg: *mut c_void, deadline: i64) -> c_int {
    // SAFETY: the caller has the GIL.
    let py = unsafe { Python::assume_attached() };
    let timeout = match deadline {
        GS_NOWAIT => Timeout::Never,
        at if at < 0 => Timeout::Forever,
        at => Timeout::At(at),
    };
    let arg = arg as usize;
    // SAFETY: as the extension promises.
    match park::wait(py, timeout, |until| unsafe { f(arg as *mut c_void, until) }) {
        Ok(Ended::With(e)) => e,
        Ok(_) if timeout == Timeout::Never => -libc::EAGAIN,
        Ok(_) => -libc::ETIMEDOUT,
        Err(e) => {
            e.restore(py);
            -libc::EINTR
        }
    }
}

unsafe extern "C" fn chan_get(object: *mut py_ffi::PyObject, format: *const c_char) -> *mut Handle {
    // SAFETY: the caller has the GIL, and a reference to the object.
    let (py, format) = unsafe { (Python::assume_attached(), CStr::from_ptr(format)) };
    // SAFETY: the caller has a reference to the object until this returns.
    let object = unsafe { Borrowed::from_ptr(py, object) };
    handle::collect(py);
    let found = || -> PyResult<*mut Handle> {
        let Ok(channel) = object.cast::<Channel>() else {
            let kind = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("a Channel is needed, not {kind}")));
        };
        let wanted = format.to_str().map_err(|_| PyValueError::new_err("a format in ASCII"))?;
        let channel = channel.get();
        let has = channel.text().map(Format::new).transpose()?;
        if !has.is_some_and(|has| Format::new(wanted).is_ok_and(|wanted| wanted.matches(&has))) {
            return Err(PyTypeError::new_err(format!(
                "a Channel with the format {wanted:?} is needed"
            )));
        }
        let object = object.to_owned().into_ptr();
        Ok(Handle::make(channel.chan(), object))
    };
    found().unwrap_or_else(|e| {
        e.restore(py);
        ptr::null_mut()
    })
}

unsafe extern "C" fn chan_put(handle: *mut Handle) {
    if handle.is_null() {
        return;
    }
    // SAFETY: the caller gives the handle up.
    unsafe { handle::give_back(handle) };
}

unsafe extern "C" fn chan_new(capacity: usize, format: *const c_char) -> *mut py_ffi::PyObject {
    // SAFETY: the caller has the GIL.
    let (py, format) = unsafe { (Python::assume_attached(), CStr::from_ptr(format)) };
    let made = || {
        let format = Format::new(&format.to_string_lossy())?;
        Py::new(py, Channel::with_format(py, capacity, Some(format))?)
    };
    made().map_or_else(
        |e| {
            e.restore(py);
            ptr::null_mut()
        },
        Py::into_ptr,
    )
}
