//! Waiting for files, and reading and writing files that don't block.

use crate::bubble;
use crate::errors;
use crate::ffi::*;
use crate::goroutine::object::Goroutine;
use crate::goroutine::thrown;
use crate::lookers;
use crate::park::{self, Ended, Timeout};
use crate::shared::Shared;
use crate::worker::{current, start};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyOSError, PyTypeError};
use pyo3::ffi as py_ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, ptr};

const IN: i32 = libc::POLLIN as i32;
const OUT: i32 = libc::POLLOUT as i32;

/// A goroutine that waits for a file; on the goroutine's stack. The waiters for one file form a
/// doubly linked list.
struct Waiting {
    who: *const Goroutine,
    is_dropped: AtomicBool,
    next: Cell<*const Waiting>,
    before: Cell<*const Waiting>,
}

/// The first waiter of each file, or null.
static WAITING: Shared<Vec<*const Waiting>> = Shared::new(Vec::new());

/// Forgets the waiters, in the child of a fork: none of them waits there.
pub fn forked(py: Python<'_>) {
    WAITING.with(py, Vec::clear);
}

impl Waiting {
    fn begin(&self, py: Python<'_>, fd: usize) {
        WAITING.with(py, |all| {
            if all.len() <= fd {
                all.resize((fd + 1).next_power_of_two(), ptr::null());
            }
            let first = std::mem::replace(&mut all[fd], self);
            self.next.set(first);
            // SAFETY: a waiter in the list is still waiting.
            if let Some(first) = unsafe { first.as_ref() } {
                first.before.set(self);
            }
        });
    }

    fn end(&self, py: Python<'_>, fd: usize) {
        WAITING.with(py, |all| {
            // SAFETY: waiters in the list are still waiting.
            unsafe {
                if let Some(next) = self.next.get().as_ref() {
                    next.before.set(self.before.get());
                }
                match self.before.get().as_ref() {
                    Some(before) => before.next.set(self.next.get()),
                    None => all[fd] = self.next.get(),
                }
            }
        });
    }
}

/// Waits for a file by `f`; `cancel_fd` can end the wait. `is_look`: `f` only returns the events
/// for which the file is ready.
pub fn wait_for(
    py: Python<'_>,
    fd: i32,
    timeout: Timeout,
    is_look: bool,
    f: impl FnMut(i64) -> i32,
) -> PyResult<Ended> {
    start::ensure(py)?;
    let Some(me) = current::current(py) else {
        return park::wait_dropping(py, timeout, || false, f);
    };
    let waiting = Waiting {
        who: me,
        is_dropped: AtomicBool::new(false),
        next: Cell::new(ptr::null()),
        before: Cell::new(ptr::null()),
    };
    let is_dropped = || waiting.is_dropped.load(Ordering::Relaxed);
    waiting.begin(py, fd as usize);
    let ended = park::wait_dropping(py, timeout, is_dropped, f);
    waiting.end(py, fd as usize);
    match ended {
        // An event has ended the wait before the cancel did. By now the number may be another
        // file's.
        Ok(Ended::With(_)) if is_look && is_dropped() => Ok(Ended::Dropped),
        ended => ended,
    }
}

/// Waits for events of poll(2). Returns the events that have come; 0: the time is up.
fn wait_events(py: Python<'_>, fd: i32, events: i32, timeout: Timeout) -> PyResult<i32> {
    if fd < 0 {
        return Err(errors::of_os(libc::EBADF));
    }
    // SAFETY: called without the GIL.
    let ended = wait_for(py, fd, timeout, true, |d| unsafe { gs_poll_fd(fd, events, d) })?;
    match ended {
        Ended::With(e) if e == -libc::EPERM => Ok(events),
        Ended::With(e) if e < 0 => Err(errors::of(e)),
        Ended::With(found) => Ok(found),
        Ended::TimedOut => Ok(0),
        Ended::Dropped => Err(errors::of_os(libc::EBADF)),
    }
}

/// Waits until the file can be read, at most timeout seconds. Returns whether it can.
#[pyfunction]
#[pyo3(signature = (fd, timeout=None))]
pub fn wait_read(py: Python<'_>, fd: i32, timeout: Option<f64>) -> PyResult<bool> {
    Ok(wait_events(py, fd, IN, Timeout::after(timeout)?)? != 0)
}

/// Waits until the file can be written, at most timeout seconds. Returns whether it can.
#[pyfunction]
#[pyo3(signature = (fd, timeout=None))]
pub fn wait_write(py: Python<'_>, fd: i32, timeout: Option<f64>) -> PyResult<bool> {
    Ok(wait_events(py, fd, OUT, Timeout::after(timeout)?)? != 0)
}

/// Wakes all goroutines that wait for a file, which is about to be closed: they get OSError(EBADF).
/// Returns whether there were any.
#[pyfunction]
pub fn cancel_fd(py: Python<'_>, fd: i32) -> bool {
    let Ok(fd) = usize::try_from(fd) else { return false };
    let mut found = false;
    loop {
        // One at a time: the list may change meanwhile.
        let who = WAITING.with(py, |all| {
            let mut at = all.get(fd).copied().unwrap_or(ptr::null());
            // SAFETY: waiters in the list are still waiting.
            while let Some(waiting) = unsafe { at.as_ref() } {
                if !waiting.is_dropped.swap(true, Ordering::Relaxed) {
                    // SAFETY: a waiting goroutine keeps its object alive.
                    return Some(unsafe { &*waiting.who }.handle(py));
                }
                at = waiting.next.get();
            }
            None
        });
        found |= who.is_some();
        match who {
            Some(handle) => thrown::cancel(py, handle),
            None => return found,
        }
    }
}

/// Registers with the library a socket that doesn't block, and that close() will close: each wait
/// for it then takes a system call less.
#[pyfunction]
pub fn adopt(py: Python<'_>, fd: i32) {
    // SAFETY: called without the GIL. A socket that can't be adopted is waited for as before.
    current::call(py, || unsafe { gs_adopt(fd) });
}

/// Closes a file. All goroutines that wait for it get OSError(EBADF).
#[pyfunction]
pub fn close(py: Python<'_>, fd: i32) -> PyResult<()> {
    cancel_fd(py, fd);
    // SAFETY: called without the GIL.
    match current::call(py, || unsafe { gs_close(fd) }) {
        0 => Ok(()),
        e => Err(errors::of_os(-e)),
    }
}

/// poll(2) for pairs of a file and events. Waits at most timeout seconds, and returns the pairs of
/// a file and the events that have come.
#[pyfunction]
#[pyo3(signature = (list, timeout=None))]
pub fn wait_fds<'py>(
    py: Python<'py>,
    list: Vec<(i32, i32)>,
    timeout: Option<f64>,
) -> PyResult<Bound<'py, PyList>> {
    let timeout = match Timeout::after(timeout)? {
        // As with the kernel the clock is past the end of the time afterwards: some callers, such as
        // socketserver's, go on as long as no less than nothing is left.
        Timeout::At(at) if bubble::is_inside() => Timeout::At(at + 1),
        timeout => timeout,
    };
    let mut fds: Vec<libc::pollfd> = list
        .iter()
        .map(|&(fd, events)| libc::pollfd { fd, events: events as i16, revents: 0 })
        .collect();
    let n = look_at(py, &mut fds)?;
    if n == 0 && timeout == Timeout::Never {
        park::checkpoint(py);
    } else if n == 0 {
        match fds[..] {
            [] => {
                let deadline_only = park::wait(py, timeout, |d| {
                    // SAFETY: called without the GIL.
                    match unsafe { gs_sleep_until(d) } {
                        0 => -libc::ETIMEDOUT,
                        e => e,
                    }
                });
                deadline_only?;
            }
            [ref mut one] => {
                one.revents = wait_events(py, one.fd, one.events.into(), timeout)? as i16
            }
            _ => wait_many(py, &mut fds, timeout)?,
        }
    }
    let found = fds.iter().filter(|f| f.revents != 0).map(|f| (f.fd, i32::from(f.revents)));
    PyList::new(py, found.collect::<Vec<_>>())
}

/// A file that is closed when this is dropped.
struct Owned(i32);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the file is ours; closing an epoll file takes no time.
        unsafe { libc::close(self.0) };
    }
}

/// poll(2) that doesn't wait: returns the number of files with events. A signal interrupts even
/// this call, and has its handler called.
fn look_at(py: Python<'_>, fds: &mut [libc::pollfd]) -> PyResult<i32> {
    loop {
        // SAFETY: the array has as many entries as the call says.
        let n = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, 0) };
        if n >= 0 {
            return Ok(if bubble::is_inside() { look_inside(py, fds) } else { n });
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Err(errors::last());
        }
        py.check_signals()?;
    }
}

/// As `look_at`, after poll(2): asks the library about descriptors of a bubble's network, which the kernel
/// doesn't know.
#[cold]
fn look_inside(py: Python<'_>, fds: &mut [libc::pollfd]) -> i32 {
    for f in fds.iter_mut().filter(|f| f.revents & libc::POLLNVAL != 0) {
        // SAFETY: without the GIL.
        match current::call(py, || unsafe { gs_poll_fd(f.fd, f.events.into(), GS_NOWAIT) }) {
            found if found > 0 => f.revents = found as i16,
            e if e == -libc::EAGAIN => f.revents = 0,
            _ => {}
        }
    }
    fds.iter().filter(|f| f.revents != 0).count() as i32
}

/// Waits for several files through one epoll file that stands for all of them.
fn wait_many(py: Python<'_>, fds: &mut [libc::pollfd], timeout: Timeout) -> PyResult<()> {
    if bubble::is_inside() {
        while lookers::wait(py, fds, timeout)? && look_at(py, fds)? == 0 {}
        return Ok(());
    }
    // SAFETY: plain system calls.
    let set = Owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) });
    if set.0 < 0 {
        return Err(errors::last());
    }
    for f in fds.iter().filter(|f| f.fd >= 0) {
        let all = fds.iter().filter(|g| g.fd == f.fd).fold(0, |all, g| all | g.events);
        let mut event = libc::epoll_event { events: all as u16 as u32, u64: f.fd as u64 };
        // SAFETY: as above. A file that is listed twice is already in the set; files that epoll
        // refuses are always ready, as poll has reported.
        unsafe { libc::epoll_ctl(set.0, libc::EPOLL_CTL_ADD, f.fd, &raw mut event) };
    }
    loop {
        let is_ready = wait_events(py, set.0, IN, timeout)? != 0;
        if look_at(py, fds)? != 0 || !is_ready {
            return Ok(());
        }
    }
}

/// The result of a system call: a number, or `None` if it would have blocked.
fn result_of(py: Python<'_>, n: isize) -> PyResult<Option<usize>> {
    if n >= 0 {
        park::checkpoint(py);
        return Ok(Some(n as usize));
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(e) if e == libc::EAGAIN || e == libc::EWOULDBLOCK => Ok(None),
        Some(libc::EINTR) => {
            py.check_signals()?;
            Ok(None)
        }
        _ => Err(errors::last()),
    }
}

/// Repeats a system call until it doesn't block.
fn retry(
    py: Python<'_>,
    fd: i32,
    events: i32,
    timeout: Option<f64>,
    mut f: impl FnMut() -> isize,
) -> PyResult<usize> {
    if let Some(n) = result_of(py, f())? {
        return Ok(n);
    }
    let timeout = Timeout::after(timeout)?;
    if timeout == Timeout::Never {
        return Err(errors::of_os(libc::EAGAIN));
    }
    loop {
        if wait_events(py, fd, events, timeout)? == 0 {
            return Err(errors::timed_out());
        }
        if let Some(n) = result_of(py, f())? {
            return Ok(n);
        }
    }
}

/// A bytes object whose size is not yet known.
pub struct Bytes(*mut py_ffi::PyObject);

impl Bytes {
    pub fn new(py: Python<'_>, n: isize) -> PyResult<Bytes> {
        if n < 0 {
            return Err(errors::value("negative buffersize in recv"));
        }
        // SAFETY: returns a new reference, or null with an error.
        let bytes = unsafe { py_ffi::PyBytes_FromStringAndSize(ptr::null(), n) };
        if bytes.is_null() { Err(PyErr::fetch(py)) } else { Ok(Bytes(bytes)) }
    }

    pub fn at(&self) -> *mut c_void {
        // SAFETY: the object is a bytes object.
        unsafe { py_ffi::PyBytes_AsString(self.0).cast() }
    }

    pub fn of_size(mut self, py: Python<'_>, size: usize) -> PyResult<Py<PyAny>> {
        // SAFETY: only this function knows the object; after an error it is gone.
        unsafe {
            let room = py_ffi::PyBytes_Size(self.0) as usize;
            if room != size && _PyBytes_Resize(&raw mut self.0, size as isize) != 0 {
                return Err(PyErr::fetch(py));
            }
            if size > room {
                // With MSG_TRUNC `size` is that of the datagram, of which only `room` bytes were
                // received.
                self.at().cast::<u8>().add(room).write_bytes(0, size - room);
            }
            Ok(Bound::from_owned_ptr(py, std::mem::replace(&mut self.0, ptr::null_mut())).unbind())
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: null or a reference; the GIL is held.
        unsafe { py_ffi::Py_XDECREF(self.0) };
    }
}

/// For each file, whether the last `recv` got less than it had room for. Then the next `recv` waits
/// at once, and leaves it to the library to know whether data has come since.
static SHORT: Shared<Vec<bool>> = Shared::new(Vec::new());

fn was_short(py: Python<'_>, fd: i32) -> bool {
    SHORT.with(py, |all| all.get(fd as usize).copied().unwrap_or(false))
}

fn note_short(py: Python<'_>, fd: i32, is_short: bool) {
    SHORT.with(py, |all| {
        if all.len() <= fd as usize {
            all.resize((fd as usize + 1).next_power_of_two(), false);
        }
        all[fd as usize] = is_short;
    });
}

/// recv(2) of up to `n` bytes to `at`.
fn recv_to(
    py: Python<'_>,
    fd: i32,
    at: *mut c_void,
    n: usize,
    flags: i32,
    timeout: Option<f64>,
) -> PyResult<usize> {
    if fd < 0 {
        return Err(errors::of_os(libc::EBADF));
    }
    if n == 0 {
        return Ok(0);
    }
    let timeout = Timeout::after(timeout)?;
    if flags != 0 || timeout == Timeout::Never || !was_short(py, fd) {
        // SAFETY: the buffer has room for as many bytes as the call says.
        let got = unsafe { libc::recv(fd, at, n, flags | libc::MSG_DONTWAIT) };
        if let Some(got) = result_of(py, got)? {
            note_short(py, fd, got > 0 && got < n);
            return Ok(got);
        }
        if timeout == Timeout::Never {
            return Err(errors::of_os(libc::EAGAIN));
        }
    }
    let at = at as usize;
    // SAFETY: the buffer has room for as many bytes as the call says; called without the GIL.
    let got = wait_for(py, fd, timeout, false, |d| unsafe {
        gs_recv(fd, at as *mut c_void, n, flags, d) as i32
    })?;
    match got {
        Ended::With(got) if got >= 0 => {
            note_short(py, fd, got > 0 && (got as usize) < n);
            Ok(got as usize)
        }
        Ended::With(e) => Err(errors::of_os(-e)),
        Ended::TimedOut => Err(errors::timed_out()),
        Ended::Dropped => Err(errors::of_os(libc::EBADF)),
    }
}

/// recv(2) of up to n bytes.
#[pyfunction]
#[pyo3(signature = (fd, n, flags=0, timeout=None))]
pub fn recv(
    py: Python<'_>,
    fd: i32,
    n: isize,
    flags: i32,
    timeout: Option<f64>,
) -> PyResult<Py<PyAny>> {
    // The result of a wait is an int.
    let n = n.min(i32::MAX as isize);
    let bytes = Bytes::new(py, n)?;
    let got = recv_to(py, fd, bytes.at(), n as usize, flags, timeout)?;
    bytes.of_size(py, got)
}

/// read(2) of up to n bytes from a file that doesn't block.
#[pyfunction]
#[pyo3(signature = (fd, n, timeout=None))]
pub fn read(py: Python<'_>, fd: i32, n: isize, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
    let bytes = Bytes::new(py, n)?;
    let at = bytes.at();
    // SAFETY: the buffer has room for as many bytes as the call says.
    let got = retry(py, fd, IN, timeout, || unsafe { libc::read(fd, at, n as usize) })?;
    bytes.of_size(py, got)
}

/// The address and number of an object's bytes. They stay as long as the buffer does.
pub fn bytes_of(buffer: &PyBuffer<u8>, writable: bool) -> PyResult<(usize, usize)> {
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the buffer must be contiguous"));
    }
    if writable && buffer.readonly() {
        return Err(PyBufferError::new_err("Object is not writable."));
    }
    Ok((buffer.buf_ptr() as usize, buffer.len_bytes()))
}

/// A buffer of an object's bytes, whatever its format.
pub fn buffer_of(object: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    match PyBuffer::get(object) {
        Ok(buffer) => Ok(buffer),
        // A buffer of another format, such as array.array's, is viewed as bytes.
        Err(e) => {
            let py = object.py();
            // SAFETY: returns a new reference or an error.
            let view = unsafe {
                let view = py_ffi::PyMemoryView_FromObject(object.as_ptr());
                if view.is_null() {
                    py_ffi::PyErr_Clear();
                    return Err(if object.hasattr("__buffer__")? {
                        e
                    } else {
                        let kind = object.get_type().name()?;
                        pyo3::exceptions::PyTypeError::new_err(format!(
                            "a bytes-like object is required, not '{kind}'"
                        ))
                    });
                }
                Bound::from_owned_ptr(py, view)
            };
            PyBuffer::get(&view.call_method1("cast", ("B",))?)
        }
    }
}

/// recv(2) into a writable buffer; returns the number of bytes.
#[pyfunction]
#[pyo3(signature = (fd, buffer, flags=0, timeout=None))]
pub fn recv_into(
    fd: i32,
    buffer: &Bound<'_, PyAny>,
    flags: i32,
    timeout: Option<f64>,
) -> PyResult<usize> {
    let py = buffer.py();
    let Ok(bytes) = buffer_of(buffer).and_then(|b| Ok((bytes_of(&b, true)?, b))) else {
        // The error of CPython's socket.
        return Err(PyTypeError::new_err(format!(
            "recv_into() argument 1 must be read-write bytes-like object, not {}",
            buffer.get_type().name()?
        )));
    };
    // The buffer stays during the call.
    let ((at, n), _buffer) = bytes;
    recv_to(py, fd, at as *mut c_void, n.min(i32::MAX as usize), flags, timeout)
}

/// send(2); returns the number of bytes sent.
#[pyfunction]
#[pyo3(signature = (fd, data, flags=0, timeout=None))]
pub fn send(fd: i32, data: &Bound<'_, PyAny>, flags: i32, timeout: Option<f64>) -> PyResult<usize> {
    let py = data.py();
    let buffer = buffer_of(data)?;
    let (at, n) = bytes_of(&buffer, false)?;
    // SAFETY: the buffer stays during the call.
    retry(py, fd, OUT, timeout, || unsafe {
        libc::send(fd, at as *const c_void, n, flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    })
}

/// Sends all of the data, within timeout seconds.
#[pyfunction]
#[pyo3(signature = (fd, data, flags=0, timeout=None))]
pub fn sendall(fd: i32, data: &Bound<'_, PyAny>, flags: i32, timeout: Option<f64>) -> PyResult<()> {
    let py = data.py();
    let buffer = buffer_of(data)?;
    let (at, n) = bytes_of(&buffer, false)?;
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let mut sent = 0;
    // SAFETY: no preconditions.
    let began = unsafe { gs_now() };
    loop {
        let left = timeout.map(|t| match t {
            t if t <= 0.0 => t,
            // SAFETY: no preconditions. The wait says that some time is left, so the rest is above
            // 0.
            t => (t - (unsafe { gs_now() } - began) as f64 / 1e9).max(1e-9),
        });
        // SAFETY: the rest of the buffer, which stays during the call.
        sent += retry(py, fd, OUT, left, || unsafe {
            libc::send(fd, (at + sent) as *const c_void, n - sent, flags)
        })?;
        if sent >= n {
            return Ok(());
        }
    }
}

/// write(2) to a file that doesn't block; returns the number of bytes written.
#[pyfunction]
#[pyo3(signature = (fd, data, timeout=None))]
pub fn write(fd: i32, data: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<usize> {
    let py = data.py();
    let buffer = buffer_of(data)?;
    let (at, n) = bytes_of(&buffer, false)?;
    // SAFETY: the buffer stays during the call.
    retry(py, fd, OUT, timeout, || unsafe { libc::write(fd, at as *const c_void, n) })
}

/// accept(2): returns a new socket, which doesn't block and is closed by exec.
#[pyfunction]
#[pyo3(signature = (fd, timeout=None))]
pub fn accept(py: Python<'_>, fd: i32, timeout: Option<f64>) -> PyResult<i32> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no address is asked for.
    let n = retry(py, fd, IN, timeout, || unsafe {
        libc::accept4(fd, ptr::null_mut(), ptr::null_mut(), flags) as isize
    })?;
    i32::try_from(n).map_err(|_| PyOSError::new_err(()))
}

unsafe extern "C" {
    fn _PyBytes_Resize(bytes: *mut *mut py_ffi::PyObject, size: isize) -> i32;
}
