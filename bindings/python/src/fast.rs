//! Methods that are called so often that what pyo3 does around each call counts: it parses the
//! arguments, and counts attached frames. Each has a function here in front of pyo3's. It does what
//! neither waits nor fails; anything else is left to pyo3's function, with the same arguments, and so is
//! every call in a bubble, where it is a step.
//!
//! No function here makes or drops a `Py`: pyo3 doesn't know that the GIL is held.

use crate::bubble;
use crate::channel::Channel;
use crate::errors;
use crate::sync::lock::Lock;
use crate::sync::rlock::RLock;
use crate::sync::semaphore::Semaphore;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

type Object = *mut ffi::PyObject;
type NoArgs = unsafe extern "C" fn(Object, Object) -> Object;
type Keywords = ffi::PyCFunctionFastWithKeywords;

const KEYWORDS: c_int = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;

/// pyo3's function of a method: set at import, and never again.
struct Usual(AtomicPtr<c_void>);

impl Usual {
    const fn new() -> Usual {
        Usual(AtomicPtr::new(ptr::null_mut()))
    }

    /// # Safety
    /// The method takes arguments with keywords.
    #[cold]
    unsafe fn call(&self, slf: Object, args: *const Object, n: isize, names: Object) -> Object {
        // SAFETY: `replace` has put such a function there.
        unsafe {
            let f: Keywords = mem::transmute(self.0.load(Ordering::Relaxed));
            f(slf, args, n, names)
        }
    }

    /// # Safety
    /// The method takes no arguments.
    #[cold]
    unsafe fn call0(&self, slf: Object) -> Object {
        // SAFETY: `replace` has put such a function there.
        unsafe {
            let f: NoArgs = mem::transmute(self.0.load(Ordering::Relaxed));
            f(slf, ptr::null_mut())
        }
    }
}

/// Calls `f` with the contents of an object.
///
/// # Safety
/// The GIL is held, and the object is a `T`: Python has seen to that before it calls a method.
#[inline(always)]
unsafe fn with<T, R>(slf: Object, f: impl FnOnce(Python<'_>, &T) -> R) -> R
where
    T: pyo3::PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Sync,
{
    // SAFETY: as the caller says.
    unsafe {
        let py = Python::assume_attached();
        f(py, Borrowed::from_ptr(py, slf).cast_unchecked::<T>().get())
    }
}

/// # Safety
/// The GIL is held, and the object lives.
#[inline(always)]
unsafe fn new_reference(object: Object) -> Object {
    // SAFETY: as the caller says.
    unsafe { ffi::Py_INCREF(object) };
    object
}

#[inline(always)]
fn new_none() -> Object {
    // SAFETY: the GIL is held in all functions here.
    unsafe { new_reference(ffi::Py_None()) }
}

#[inline(always)]
fn new_true() -> Object {
    // SAFETY: the GIL is held in all functions here.
    unsafe { new_reference(ffi::Py_True()) }
}

/// `$name`: a method that takes keywords; `$try` gives its result for `$args` arguments by
/// position.
macro_rules! with_arguments {
    ($name:ident, $usual:ident, $class:ty, $args:literal, $try:expr) => {
        static $usual: Usual = Usual::new();

        unsafe extern "C" fn $name(
            slf: Object,
            args: *const Object,
            n: isize,
            names: Object,
        ) -> Object {
            // SAFETY: called by Python, as `replace` has said that it is to be.
            unsafe {
                if n == $args && names.is_null() && !bubble::is_inside() {
                    let done: Option<Object> =
                        with(slf, |py, object: &$class| $try(py, object, args));
                    if let Some(result) = done {
                        return result;
                    }
                }
                $usual.call(slf, args, n, names)
            }
        }
    };
}

/// `$name`: a method without arguments; `$try` gives its result.
macro_rules! without_arguments {
    ($name:ident, $usual:ident, $class:ty, $try:expr) => {
        static $usual: Usual = Usual::new();

        unsafe extern "C" fn $name(slf: Object, _: Object) -> Object {
            // SAFETY: as above.
            unsafe {
                if bubble::is_inside() {
                    return $usual.call0(slf);
                }
                let done: Option<Object> = with(slf, |py, object: &$class| $try(py, object));
                done.unwrap_or_else(|| $usual.call0(slf))
            }
        }
    };
}

with_arguments!(channel_send, SEND, Channel, 1, |py, channel: &Channel, args: *const Object| {
    channel.send_now(py, *args).then(new_none)
});
with_arguments!(channel_recv, RECV, Channel, 0, |py, channel: &Channel, _| channel.recv_now(py));

with_arguments!(lock_acquire, LOCK, Lock, 0, |py, lock: &Lock, _| lock.take_now(py).then(new_true));
without_arguments!(lock_release, UNLOCK, Lock, |py, lock: &Lock| lock.give_now(py).then(new_none));
without_arguments!(lock_enter, ENTER, Lock, |py, lock: &Lock| lock.take_now(py).then(new_true));

with_arguments!(rlock_acquire, RLOCK, RLock, 0, |py, lock: &RLock, _| lock
    .take_now(py)
    .then(new_true));
without_arguments!(rlock_release, UNRLOCK, RLock, |py, lock: &RLock| lock
    .give_now(py)
    .then(new_none));
without_arguments!(rlock_enter, RENTER, RLock, |py, lock: &RLock| lock.take_now(py).then(new_true));

with_arguments!(semaphore_acquire, ACQUIRE, Semaphore, 0, |py, semaphore: &Semaphore, _| semaphore
    .take_now(py)
    .then(new_true));
with_arguments!(semaphore_release, RELEASE, Semaphore, 0, |py, semaphore: &Semaphore, _| semaphore
    .give_now(py)
    .then(new_none));

/// Puts a function in the place of a class's method, whose function becomes `usual`.
fn replace(
    class: &Bound<'_, PyType>,
    name: &str,
    flags: c_int,
    function: *mut c_void,
    usual: &Usual,
) -> PyResult<()> {
    let method = class.getattr(name)?;
    // SAFETY: the descriptor of a method has the layout, and its definition lives as long as its
    // class.
    unsafe {
        let is_method = ffi::Py_IS_TYPE(method.as_ptr(), &raw mut ffi::PyMethodDescr_Type) != 0;
        let descriptor = method.as_ptr().cast::<ffi::PyMethodDescrObject>();
        if !is_method || (*(*descriptor).d_method).ml_flags != flags {
            return Err(errors::runtime("a method is not called as it was expected to be"));
        }
        let mut definition = *(*descriptor).d_method;
        usual.0.store(definition.ml_meth.as_ptr(), Ordering::Relaxed);
        definition.ml_meth = mem::transmute::<*mut c_void, ffi::PyMethodDefPointer>(function);
        // The class, which is never freed, keeps the address.
        let definition = Box::leak(Box::new(definition));
        let new = ffi::PyDescr_NewMethod(class.as_type_ptr(), definition);
        class.setattr(name, Bound::from_owned_ptr_or_err(class.py(), new)?)
    }
}

/// At import.
pub fn init(py: Python<'_>) -> PyResult<()> {
    let channel = py.get_type::<Channel>();
    let lock = py.get_type::<Lock>();
    let rlock = py.get_type::<RLock>();
    let semaphore = py.get_type::<Semaphore>();
    let keywords: [(_, _, Keywords, _); 6] = [
        (&channel, "send", channel_send, &SEND),
        (&channel, "recv", channel_recv, &RECV),
        (&lock, "acquire", lock_acquire, &LOCK),
        (&rlock, "acquire", rlock_acquire, &RLOCK),
        (&semaphore, "acquire", semaphore_acquire, &ACQUIRE),
        (&semaphore, "release", semaphore_release, &RELEASE),
    ];
    for (class, name, function, usual) in keywords {
        replace(class, name, KEYWORDS, function as *mut c_void, usual)?;
    }
    let no_arguments: [(_, _, NoArgs, _); 4] = [
        (&lock, "release", lock_release, &UNLOCK),
        (&lock, "__enter__", lock_enter, &ENTER),
        (&rlock, "release", rlock_release, &UNRLOCK),
        (&rlock, "__enter__", rlock_enter, &RENTER),
    ];
    for (class, name, function, usual) in no_arguments {
        replace(class, name, ffi::METH_NOARGS, function as *mut c_void, usual)?;
    }
    Ok(())
}
