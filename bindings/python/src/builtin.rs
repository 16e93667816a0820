//! Functions of Python in the place of built-in ones. An attribute of a class that is a built-in function is no
//! method, where a function of Python is one: a class with `nap = time.sleep` calls `self.nap(1)`.

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString};
use std::ffi::{CStr, CString};
use std::mem::ManuallyDrop;

/// What the module that a built-in function belongs to calls the function of Python.
const FUNCTION: &CStr = c"function";

/// A built-in function that calls `function`: with its name, its documentation (the signature in front, if there is
/// one) and the name of a module. It stays for ever.
#[pyfunction]
pub fn _built_in<'py>(
    function: &Bound<'py, PyAny>,
    doc: CString,
    module: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let name: String = function.getattr("__name__")?.extract()?;
    let name =
        CString::new(name).map_err(|_| PyValueError::new_err("a null character in a name"))?;
    // A pickle takes a built-in function by its name only if what it is bound to is a module.
    let holder = PyModule::new(py, module.to_str()?)?;
    holder.setattr(FUNCTION.to_string_lossy().as_ref(), function)?;
    // CPython keeps the pointers for as long as the function lives.
    let (name, doc) = (ManuallyDrop::new(name), ManuallyDrop::new(doc));
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: forward },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: doc.as_ptr(),
    }));
    // SAFETY: the definition and its strings are never freed.
    unsafe {
        let made = ffi::PyCFunction_NewEx(definition, holder.as_ptr(), module.as_ptr());
        Bound::from_owned_ptr_or_err(py, made)
    }
}

/// Calls the function of Python. It may wait, so pyo3 mustn't count it as a frame that has the GIL.
unsafe extern "C" fn forward(
    holder: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: CPython calls it with the GIL, and with the module that `_built_in` made. The arguments live until it
    // returns.
    unsafe {
        let function = ffi::PyObject_GetAttrString(holder, FUNCTION.as_ptr());
        if function.is_null() {
            return function;
        }
        let result = ffi::PyObject_Vectorcall(function, args, n as usize, names);
        ffi::Py_DECREF(function);
        result
    }
}
