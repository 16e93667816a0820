//! Sockets of the network in memory of a bubble, for `gosched._network`. The kernel knows only their
//! numbers, so every call on them is the library's. Addresses are bytes, as the kernel has them.

use crate::bubble;
use crate::errors;
use crate::ffi::*;
use crate::io::{Bytes, buffer_of, bytes_of, wait_for};
use crate::park::{Ended, Timeout};
use crate::worker::current;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::{c_int, c_void};
use std::ptr;

/// The longest address of any kind, in bytes.
const ADDRESS: usize = size_of::<libc::sockaddr_storage>();
/// The most bytes that an option's value may have, as in CPython.
const OPTION: usize = 1024;

/// The number of the run that the caller is in, which no other run of the process has; 0: it is in
/// none.
#[pyfunction]
pub fn _net_run() -> u64 {
    bubble::mine().map_or(0, |bubble| bubble.run.get())
}

/// Calls `f`, which doesn't wait, without the GIL. The result is a number, or an error.
fn call(py: Python<'_>, f: impl FnOnce() -> c_int) -> PyResult<i32> {
    match current::call(py, f) {
        e if e < 0 => Err(errors::of_os(-e)),
        n => Ok(n),
    }
}

/// As `call`, with `f` that may wait until its deadline.
fn wait(py: Python<'_>, fd: i32, timeout: Option<f64>, f: impl FnMut(i64) -> i32) -> PyResult<i32> {
    let timeout = Timeout::after(timeout)?;
    match wait_for(py, fd, timeout, false, f)? {
        Ended::With(n) if n >= 0 => Ok(n),
        Ended::With(e) => Err(errors::of_os(-e)),
        Ended::TimedOut if timeout == Timeout::Never => Err(errors::of_os(libc::EAGAIN)),
        Ended::TimedOut => Err(errors::timed_out()),
        Ended::Dropped => Err(errors::of_os(libc::EBADF)),
    }
}

/// Room for an address.
struct Address {
    bytes: [u8; ADDRESS],
    len: u32,
}

impl Address {
    fn new() -> Address {
        Address { bytes: [0; ADDRESS], len: ADDRESS as u32 }
    }

    fn at(&mut self) -> (*mut c_void, *mut u32) {
        (self.bytes.as_mut_ptr().cast(), &raw mut self.len)
    }

    fn into_bytes(self, py: Python<'_>) -> Py<PyBytes> {
        PyBytes::new(py, &self.bytes[..(self.len as usize).min(ADDRESS)]).unbind()
    }
}

/// socket(2), in a bubble.
#[pyfunction]
pub fn _net_socket(py: Python<'_>, family: i32, kind: i32, protocol: i32) -> PyResult<i32> {
    // SAFETY: without the GIL.
    call(py, || unsafe { gs_socket(family, kind, protocol) })
}

/// Two Unix sockets that are connected to each other.
#[pyfunction]
pub fn _net_pair(py: Python<'_>) -> PyResult<[i32; 2]> {
    let mut fds = [0; 2];
    let at = fds.as_mut_ptr();
    // SAFETY: room for two numbers; without the GIL.
    call(py, || unsafe { gs_unix_pair(at) })?;
    Ok(fds)
}

/// Whether the descriptor is one of the network's, and none of the kernel's.
#[pyfunction]
pub fn _net_knows(py: Python<'_>, fd: i32) -> bool {
    let (mut value, mut len) = (0i32, 4u32);
    let (at, len) = ((&raw mut value).cast::<c_void>(), &raw mut len);
    let (level, name) = (libc::SOL_SOCKET, libc::SO_TYPE);
    // SAFETY: four writable bytes; the library's function is called without the GIL.
    unsafe {
        bubble::is_inside()
            && libc::getsockopt(fd, level, name, at, len) != 0
            && current::call(py, || gs_getsockopt(fd, level, name, at, len)) == 0
    }
}

/// bind(2).
#[pyfunction]
pub fn _net_bind(py: Python<'_>, fd: i32, address: &[u8]) -> PyResult<()> {
    let (at, len) = (address.as_ptr().cast(), address.len() as u32);
    // SAFETY: readable for its length; without the GIL.
    call(py, || unsafe { gs_bind(fd, at, len) }).map(drop)
}

/// listen(2).
#[pyfunction]
pub fn _net_listen(py: Python<'_>, fd: i32, backlog: i32) -> PyResult<()> {
    // SAFETY: without the GIL. 0 means as long as the system allows, which isn't CPython's.
    call(py, || unsafe { gs_listen(fd, backlog.max(1)) }).map(drop)
}

/// connect(2).
#[pyfunction]
#[pyo3(signature = (fd, address, timeout))]
pub fn _net_connect(py: Python<'_>, fd: i32, address: &[u8], timeout: Option<f64>) -> PyResult<()> {
    let (at, len) = (address.as_ptr().cast(), address.len() as u32);
    // SAFETY: readable for its length; without the GIL.
    wait(py, fd, timeout, |d| unsafe { gs_connect(fd, at, len, d) }).map(drop)
}

/// accept(2): the new socket and its address.
#[pyfunction]
#[pyo3(signature = (fd, timeout))]
pub fn _net_accept(py: Python<'_>, fd: i32, timeout: Option<f64>) -> PyResult<(i32, Py<PyBytes>)> {
    let mut from = Address::new();
    let (at, len) = from.at();
    // SAFETY: writable for its length; without the GIL.
    let new = wait(py, fd, timeout, |d| unsafe { gs_accept(fd, at, len, d) })?;
    Ok((new, from.into_bytes(py)))
}

/// getsockname(2), or getpeername(2).
#[pyfunction]
pub fn _net_name(py: Python<'_>, fd: i32, is_peer: bool) -> PyResult<Py<PyBytes>> {
    let mut name = Address::new();
    let (at, len) = name.at();
    // SAFETY: writable for its length; without the GIL.
    call(py, || unsafe {
        if is_peer { gs_getpeername(fd, at, len) } else { gs_getsockname(fd, at, len) }
    })?;
    Ok(name.into_bytes(py))
}

/// shutdown(2).
#[pyfunction]
pub fn _net_shutdown(py: Python<'_>, fd: i32, how: i32) -> PyResult<()> {
    // SAFETY: without the GIL.
    call(py, || unsafe { gs_shutdown_fd(fd, how) }).map(drop)
}

/// getsockopt(2): up to `size` bytes.
#[pyfunction]
pub fn _net_getsockopt(
    py: Python<'_>,
    fd: i32,
    level: i32,
    name: i32,
    size: usize,
) -> PyResult<Py<PyBytes>> {
    let (mut value, mut len) = ([0u8; OPTION], size.min(OPTION) as u32);
    let (at, len_at) = (value.as_mut_ptr().cast(), &raw mut len);
    // SAFETY: writable for its length; without the GIL.
    call(py, || unsafe { gs_getsockopt(fd, level, name, at, len_at) })?;
    Ok(PyBytes::new(py, &value[..len as usize]).unbind())
}

/// setsockopt(2).
#[pyfunction]
pub fn _net_setsockopt(
    py: Python<'_>,
    fd: i32,
    level: i32,
    name: i32,
    value: &[u8],
) -> PyResult<()> {
    let (at, len) = (value.as_ptr().cast(), value.len() as u32);
    // SAFETY: readable for its length; without the GIL.
    call(py, || unsafe { gs_setsockopt(fd, level, name, at, len) }).map(drop)
}

/// recvfrom(2) of up to n bytes.
#[pyfunction]
#[pyo3(signature = (fd, n, flags, timeout))]
pub fn _net_recv(
    py: Python<'_>,
    fd: i32,
    n: isize,
    flags: i32,
    timeout: Option<f64>,
) -> PyResult<(Py<PyAny>, Py<PyBytes>)> {
    // The result of a wait is an int.
    let n = n.min(i32::MAX as isize);
    let bytes = Bytes::new(py, n)?;
    let (got, from) = receive(py, fd, bytes.at(), n as usize, flags, timeout)?;
    Ok((bytes.of_size(py, got)?, from))
}

/// recvfrom(2) into a writable buffer: the number of bytes, and the sender. `n` 0: as many as fit.
#[pyfunction]
#[pyo3(signature = (fd, buffer, n, flags, timeout))]
pub fn _net_recv_into(
    fd: i32,
    buffer: &Bound<'_, PyAny>,
    n: usize,
    flags: i32,
    timeout: Option<f64>,
) -> PyResult<(usize, Py<PyBytes>)> {
    let py = buffer.py();
    let buffer = buffer_of(buffer)?;
    let (at, room) = bytes_of(&buffer, true)?;
    if n > room {
        return Err(errors::value("buffer too small for requested bytes"));
    }
    let n = if n == 0 { room } else { n };
    receive(py, fd, at as *mut c_void, n.min(i32::MAX as usize), flags, timeout)
}

/// The room must stay until the call returns.
fn receive(
    py: Python<'_>,
    fd: i32,
    at: *mut c_void,
    n: usize,
    flags: i32,
    timeout: Option<f64>,
) -> PyResult<(usize, Py<PyBytes>)> {
    let mut from = Address::new();
    let (to, len) = from.at();
    // SAFETY: room for as many bytes as the call says; without the GIL.
    let got = wait(py, fd, timeout, |d| unsafe {
        *len = ADDRESS as u32;
        gs_recvfrom(fd, at, n, flags, to, len, d) as i32
    })?;
    Ok((got as usize, from.into_bytes(py)))
}

/// sendto(2): the number of bytes. An empty address: to where the socket is connected.
#[pyfunction]
#[pyo3(signature = (fd, data, flags, address, timeout))]
pub fn _net_send(
    fd: i32,
    data: &Bound<'_, PyAny>,
    flags: i32,
    address: &[u8],
    timeout: Option<f64>,
) -> PyResult<usize> {
    let py = data.py();
    let buffer = buffer_of(data)?;
    let (at, n) = bytes_of(&buffer, false)?;
    let (to, len) = match address {
        [] => (ptr::null(), 0),
        _ => (address.as_ptr().cast(), address.len() as u32),
    };
    let n = n.min(i32::MAX as usize);
    // SAFETY: the buffer and the address stay during the call; without the GIL.
    let sent = wait(py, fd, timeout, |d| unsafe {
        gs_sendto(fd, at as *const c_void, n, flags, to, len, d) as i32
    })?;
    Ok(sent as usize)
}
