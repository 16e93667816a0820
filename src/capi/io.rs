//! I/O.

use super::{EINVAL, gs_deadline};
use crate::io;
use crate::os::KeepErrno;
use crate::os::file::End;
use crate::os::socket;
use crate::os::thread::NoCancel;
use crate::sched::take::boundary::Entered;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use libc::{addrinfo, iovec, mode_t, msghdr, off_t, sockaddr, socklen_t, ssize_t};

/// `EINVAL` as the result of a call that returns a count.
const BAD: ssize_t = EINVAL as ssize_t;

/// While this value lives the library runs on behalf of the caller, whose errno is restored at the
/// end. Meanwhile pthread_cancel(3) is disabled on a plain thread, because the thread is counted in
/// the file that it uses, and may hold locks.
pub(super) struct Call {
    _errno: KeepErrno,
    _entered: Entered,
    /// `None` on a thread with an M, which is never cancelled. The last field, so that it is
    /// dropped last.
    _no_cancel: Option<NoCancel>,
}

impl Call {
    pub(super) fn new() -> Call {
        let entered = Entered::new();
        let no_cancel = entered.m().is_none().then(NoCancel::new);
        Call { _errno: KeepErrno::new(), _entered: entered, _no_cancel: no_cancel }
    }
}

/// Number of buffers that the kernel takes in one call, at most.
const IOV_MAX: c_int = 1024;

/// One buffer; `None`: `at` is null, or `n` is too large.
fn buffer(at: *const c_void, n: usize) -> Option<iovec> {
    let fits = n <= isize::MAX as usize && (n == 0 || !at.is_null());
    fits.then_some(iovec { iov_base: at.cast_mut(), iov_len: n })
}

/// The buffers of a call; an empty slice if their total length is 0. `None`: too many buffers, an
/// invalid buffer, or an invalid total length.
///
/// # Safety
/// `iov` is null or points to `n` buffers.
unsafe fn buffers<'a>(iov: *const iovec, n: c_int) -> Option<&'a [iovec]> {
    if !(0..=IOV_MAX).contains(&n) || (iov.is_null() && n > 0) {
        return None;
    }
    if n == 0 {
        return Some(&[]);
    }
    // SAFETY: not null, so it points to `n` buffers.
    let all = unsafe { core::slice::from_raw_parts(iov, n as usize) };
    let mut total = 0usize;
    for b in all {
        buffer(b.iov_base, b.iov_len)?;
        total = total.checked_add(b.iov_len).filter(|&t| t <= isize::MAX as usize)?;
    }
    Some(if total == 0 { &[] } else { all })
}

/// Reads up to n bytes from a file: a socket, a pipe, a terminal, or anything else that poll(2) can
/// wait for; also from a file on a disk, which counts as a system call that may block. The first
/// use makes the file non-blocking, unless it is a socket. Available data is read at once; else the
/// goroutine parks until data comes. Several callers may wait for one file: first come, first
/// served. Only the deadline limits the wait: SO_RCVTIMEO and SO_SNDTIMEO have no effect.
///
/// close(2) is allowed while no call waits for the file. gs_close is allowed at any time, and ends
/// the calls that are under way. A goroutine that is between two calls doesn't notice the gs_close,
/// and its next call may meet another file that has got the number: let such goroutines end first
/// (shutdown(2) or gs_cancel, then gs_join).
///
/// The number of bytes, 0 at the end of the file; -EAGAIN, -ETIMEDOUT (also if the deadline has
/// passed before the call, even if there is data), -ECANCELED (gs_close or gs_cancel was called):
/// nothing read; -EINVAL: buf is NULL; -EBADF: fd is not open; else the error of read(2), but never
/// -EINTR. At most 64 calls read or write files on disks at a time, and further calls wait for
/// their turn; the deadline ends only that wait. Goroutines and plain threads. Go's
/// internal/poll.FD.Read. seed: B2.
///
/// # Safety
/// `buf` is null or has room for `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_read(
    fd: c_int,
    buf: *mut c_void,
    n: usize,
    deadline: gs_deadline,
) -> ssize_t {
    let _call = Call::new();
    // SAFETY: `buf` has room for `n` bytes.
    buffer(buf, n).map_or(BAD, |b| unsafe { io::read(fd, &[b], deadline) })
}

/// Writes up to n bytes; may write fewer, as write(2). Never raises SIGPIPE.
///
/// A write that waits on a Unix socket ends when the socket, or its peer, is shut down in both
/// directions (SHUT_RDWR), but not when it is shut down for writing alone (SHUT_WR, or SHUT_RD by
/// the peer), because Linux reports no event then. The next write gets -EPIPE.
///
/// The number of bytes; -EPIPE: there is no reader any more; else as gs_read. Go's
/// internal/poll.FD.Write, which however writes all bytes.
///
/// # Safety
/// `buf` is null or has `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_write(
    fd: c_int,
    buf: *const c_void,
    n: usize,
    deadline: gs_deadline,
) -> ssize_t {
    let _call = Call::new();
    // SAFETY: `buf` has `n` bytes.
    buffer(buf, n).map_or(BAD, |b| unsafe { io::write(fd, &[b], deadline) })
}

/// gs_read into several buffers, at most 1,024, as readv(2). -EINVAL also: iov is
/// NULL, iovcnt is negative or too large.
///
/// # Safety
/// `iov` is null or has `iovcnt` buffers, each null or with room for its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_readv(
    fd: c_int,
    iov: *const iovec,
    iovcnt: c_int,
    deadline: gs_deadline,
) -> ssize_t {
    let _call = Call::new();
    // SAFETY: `iov` is null or points to `iovcnt` buffers.
    unsafe { buffers(iov, iovcnt).map_or(BAD, |b| io::read(fd, b, deadline)) }
}

/// gs_write from several buffers, as writev(2). -EINVAL as for gs_readv.
///
/// # Safety
/// `iov` is null or has `iovcnt` buffers, each null or with its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_writev(
    fd: c_int,
    iov: *const iovec,
    iovcnt: c_int,
    deadline: gs_deadline,
) -> ssize_t {
    let _call = Call::new();
    // SAFETY: `iov` is null or points to `iovcnt` buffers.
    unsafe { buffers(iov, iovcnt).map_or(BAD, |b| io::write(fd, b, deadline)) }
}

/// recv(2) on a socket: gs_read with flags. MSG_DONTWAIT: doesn't wait. MSG_WAITALL has no effect:
/// the result may be short. -ENOTSOCK: fd is not a socket.
///
/// # Safety
/// `buf` is null or has room for `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_recv(
    fd: c_int,
    buf: *mut c_void,
    n: usize,
    flags: c_int,
    deadline: gs_deadline,
) -> ssize_t {
    let _call = Call::new();
    // SAFETY: `buf` has room for `n` bytes.
    buffer(buf, n).map_or(BAD, |b| unsafe { io::recv(fd, b, flags, deadline) })
}

/// send(2) on a socket: gs_write with flags. -ENOTSOCK: fd is not a socket.
///
/// # Safety
/// `buf` is null or has `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_send(
    fd: c_int,
    buf: *const c_void,
    n: usize,
    flags: c_int,
    deadline: gs_deadline,
) -> ssize_t {
    let _call = Call::new();
    // SAFETY: `buf` has `n` bytes.
    buffer(buf, n).map_or(BAD, |b| unsafe { io::send(fd, b, flags, deadline) })
}

/// recvfrom(2): gs_recv that also returns the sender's address. addr may be NULL; else *addrlen is
/// the room there before the call, and the address's length after it. -EINVAL also: addr without
/// addrlen.
///
/// # Safety
/// `buf` is null or has room for `n` bytes, `addr` null or room for `*addrlen`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_recvfrom(
    fd: c_int,
    buf: *mut c_void,
    n: usize,
    flags: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
    deadline: gs_deadline,
) -> ssize_t {
    let _call = Call::new();
    match buffer(buf, n) {
        Some(b) if addr.is_null() || !addrlen.is_null() => {
            let len = if addr.is_null() { core::ptr::null_mut() } else { addrlen };
            // SAFETY: `buf` has room for `n` bytes; the address is null or has room for `*addrlen`.
            unsafe { io::recv_from(fd, b, flags, addr, len, deadline) }
        }
        _ => BAD,
    }
}

/// sendto(2): gs_send to an address; addr may be NULL on a connected socket. With MSG_FASTOPEN
/// gs_sendto waits for the connection as gs_connect does, unless the first packet can carry the
/// data. -EINVAL also: an addrlen without addr.
///
/// # Safety
/// `buf` is null or has `n` bytes, `addr` null or `addrlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_sendto(
    fd: c_int,
    buf: *const c_void,
    n: usize,
    flags: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
    deadline: gs_deadline,
) -> ssize_t {
    let _call = Call::new();
    match buffer(buf, n) {
        Some(b) if !addr.is_null() || addrlen == 0 => {
            // SAFETY: `buf` has `n` bytes; the address is null or has `addrlen`.
            unsafe { io::send_to(fd, b, flags, addr, addrlen, deadline) }
        }
        _ => BAD,
    }
}

/// recvmsg(2): as gs_recv. msg must stay until the call returns. -EINVAL also: msg
/// is NULL.
///
/// # Safety
/// `msg` is null or a message to receive into.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_recvmsg(
    fd: c_int,
    msg: *mut msghdr,
    flags: c_int,
    deadline: gs_deadline,
) -> ssize_t {
    let _call = Call::new();
    if msg.is_null() {
        return BAD;
    }
    // SAFETY: not null, so it is a message to receive into.
    unsafe { io::recv_message(fd, msg, flags, deadline) }
}

/// sendmsg(2): as gs_send. -EINVAL also: msg is NULL.
///
/// # Safety
/// `msg` is null or a message to send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_sendmsg(
    fd: c_int,
    msg: *const msghdr,
    flags: c_int,
    deadline: gs_deadline,
) -> ssize_t {
    let _call = Call::new();
    if msg.is_null() {
        return BAD;
    }
    // SAFETY: not null, so it is a message to send.
    unsafe { io::send_message(fd, msg, flags, deadline) }
}

/// socket(2): non-blocking and close-on-exec. The socket is the caller's. In a bubble (gs_test_run)
/// sockets for streams and datagrams of AF_INET, AF_INET6 and AF_UNIX are of its network; on these
/// the calls below work, and the system's fail with EBADF.
///
/// The socket; -EMFILE, -ENFILE; else the error of socket(2). Goroutines and plain threads.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn gs_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let _call = Call::new();
    io::new_socket(domain, kind, protocol).unwrap_or_else(|e| e)
}

/// bind(2), also for sockets of a bubble's network.
///
/// 0; -EINVAL also: addr is NULL; else the error of bind(2). Goroutines and plain threads.
///
/// # Safety
/// `addr` is null or has `addrlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_bind(fd: c_int, addr: *const sockaddr, addrlen: socklen_t) -> c_int {
    let _call = Call::new();
    if addr.is_null() {
        return EINVAL;
    }
    // SAFETY: not null, so it has `addrlen` bytes.
    unsafe { socket::bind_to(fd, addr, addrlen) }
}

/// listen(2), also for sockets of a bubble's network. A backlog of 0 or less: as long as the system
/// allows.
///
/// 0; else the error of listen(2). Goroutines and plain threads.
#[unsafe(no_mangle)]
pub extern "C" fn gs_listen(fd: c_int, backlog: c_int) -> c_int {
    let _call = Call::new();
    socket::listen(fd, if backlog > 0 { backlog } else { libc::SOMAXCONN })
}

/// shutdown(2), also for sockets of a bubble's network: how is SHUT_RD, SHUT_WR or SHUT_RDWR. Calls
/// that wait for the socket end as they do after shutdown(2).
///
/// 0; else the error of shutdown(2). Goroutines and plain threads.
#[unsafe(no_mangle)]
pub extern "C" fn gs_shutdown_fd(fd: c_int, how: c_int) -> c_int {
    let _call = Call::new();
    socket::shut_down(fd, how)
}

/// getsockname(2), also for sockets of a bubble's network. *addrlen is the room at addr before the
/// call, and the address's length after it.
///
/// 0; -EINVAL also: a pointer is NULL; else the error of getsockname(2). Goroutines and plain
/// threads.
///
/// # Safety
/// `addr` is null or has room for `*addrlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_getsockname(
    fd: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { name_of(fd, false, addr, addrlen) }
}

/// getpeername(2), as gs_getsockname.
///
/// # Safety
/// `addr` is null or has room for `*addrlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_getpeername(
    fd: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { name_of(fd, true, addr, addrlen) }
}

/// # Safety
/// As [`gs_getsockname`].
unsafe fn name_of(fd: c_int, is_peer: bool, addr: *mut sockaddr, addrlen: *mut socklen_t) -> c_int {
    let _call = Call::new();
    if addr.is_null() || addrlen.is_null() {
        return EINVAL;
    }
    // SAFETY: not null, so it has room for `*addrlen` bytes.
    unsafe { socket::name(fd, is_peer, addr, addrlen) }
}

/// getsockopt(2), also for sockets of a bubble's network: SO_ERROR gives and clears the socket's
/// error; any other option has the value that was set, or a usual one.
///
/// 0; -EINVAL also: a pointer is NULL; else the error of getsockopt(2). Goroutines and plain threads.
///
/// # Safety
/// `value` is null or has room for `*len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let _call = Call::new();
    if value.is_null() || len.is_null() {
        return EINVAL;
    }
    // SAFETY: not null, so it has room for `*len` bytes.
    unsafe { socket::option(fd, level, name, value, len) }
}

/// setsockopt(2), also for sockets of a bubble's network, where IPV6_V6ONLY has its effect,
/// SO_LINGER with a time of 0 resets the connection when the socket is closed, and other options
/// have none.
///
/// 0; -EINVAL also: value is NULL; else the error of setsockopt(2). Goroutines and plain threads.
///
/// # Safety
/// `value` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let _call = Call::new();
    if value.is_null() {
        return EINVAL;
    }
    // SAFETY: not null, so it has `len` bytes.
    unsafe { socket::set_option_to(fd, level, name, value, len) }
}

/// Takes the next connection of a listening socket, which is made non-blocking. Returns a new
/// socket, non-blocking and close-on-exec, which the caller must close with gs_close. addr may be
/// NULL; else *addrlen is the room there before the call, and the address's length after it.
/// Goroutines that the accepting goroutine spawns from then on are spread over P's and nodes.
///
/// The socket; -EMFILE, -ENFILE: too many files are open, and the connection waits until there is
/// room; -EAGAIN, -ETIMEDOUT, -ECANCELED, -EBADF, -EINVAL as for gs_read; else the error of
/// accept(2), but never -ECONNABORTED. Goroutines and plain threads. Go's internal/poll.FD.Accept.
/// seed: N7.
///
/// # Safety
/// `addr` is null or has room for `*addrlen` bytes.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_accept(
    fd: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
    deadline: gs_deadline,
) -> c_int {
    let _call = Call::new();
    if !addr.is_null() && addrlen.is_null() {
        return EINVAL;
    }
    let len = if addr.is_null() { core::ptr::null_mut() } else { addrlen };
    // SAFETY: the address is null or has room for `*addrlen`.
    unsafe { io::accept(fd, addr, len, deadline) as c_int }
}

/// Connects a socket, which is made non-blocking, to an address.
///
/// 0; -ECONNREFUSED and other errors of connect(2), but never -EINPROGRESS nor -EINTR;
/// -ECONNABORTED: shutdown(2) has ended the attempt, or the attempt has failed, and another call on
/// the socket has taken the error; -EAGAIN, -ETIMEDOUT (the deadline, or the network gave up),
/// -ECANCELED: the socket goes on connecting, and a further gs_connect waits for the end of the
/// attempt; -EBADF; -EINVAL: addr is NULL; -EFAULT: addr can't be read. Goroutines and plain
/// threads. Go's internal/poll.FD.Connect.
///
/// # Safety
/// `addr` is null or has `addrlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_connect(
    fd: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
    deadline: gs_deadline,
) -> c_int {
    let _call = Call::new();
    if addr.is_null() {
        return EINVAL;
    }
    // SAFETY: not null, so the address has `addrlen` bytes.
    unsafe { io::connect(fd, addr, addrlen, deadline) as c_int }
}

/// Waits until a file has one of the given events of poll(2) (POLLIN, POLLOUT, POLLPRI, POLLRDHUP
/// and their kin), or POLLERR or POLLHUP. For libraries that read and write themselves. A blocking
/// file stays blocking.
///
/// The file's events, above 0; -EAGAIN, -ETIMEDOUT, -ECANCELED, -EBADF as for gs_read; -EINVAL:
/// unknown events; -EPERM: the file has none of the events, and no call can wait for it, because it
/// is on a disk. Goroutines and plain threads.
#[unsafe(no_mangle)]
pub extern "C" fn gs_poll_fd(fd: c_int, events: c_int, deadline: gs_deadline) -> c_int {
    /// All events of poll(2).
    const KNOWN: c_int = 0x27ff & !(libc::POLLNVAL as c_int);
    let _call = Call::new();
    if events & !KNOWN != 0 {
        return EINVAL;
    }
    io::poll(fd, events as i16, deadline) as c_int
}

/// Gives the library a file that the caller has opened: a socket, a pipe or anything else that
/// poll(2) can wait for, already non-blocking. From then on only gs_close may close the file.
/// gs_adopt saves one system call for each wait, as for files that the library has opened (but not
/// in gs_poll_fd). The library forgets a former file with this number.
///
/// 0; -EBADF: fd is not open; -EINVAL: the file is blocking; -EPERM: the file is on a disk, so no
/// call can wait for it; -EBUSY: a call waits for the file now; -ENOMEM. After an error nothing has
/// changed. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn gs_adopt(fd: c_int) -> c_int {
    let _call = Call::new();
    io::adopt(fd).err().unwrap_or(0)
}

/// Closes a file. All calls that wait for it return -ECANCELED, and never use the next file with
/// this number. Other goroutines run while close(2) waits for a disk or for SO_LINGER; the number
/// is free by then.
///
/// 0; -EBADF: fd is not open, or is being closed; else the error of close(2), and the file is
/// closed nevertheless. Any thread. Go's internal/poll.FD.Close.
#[unsafe(no_mangle)]
pub extern "C" fn gs_close(fd: c_int) -> c_int {
    let _call = Call::new();
    io::close(fd)
}

/// The name of a host or a path; `None`: null.
///
/// # Safety
/// `s` is null or a C string, which stays as long as the result is used.
unsafe fn given<'a>(s: *const c_char) -> Option<&'a CStr> {
    // SAFETY: not null, so it is a C string.
    (!s.is_null()).then(|| unsafe { CStr::from_ptr(s) })
}

/// Makes a TCP socket that listens on a port (0: the system chooses one). host: a name or an
/// address; NULL or "": all addresses of the machine, IPv6 and IPv4. backlog: connections that may
/// wait to be accepted (0 or less: as many as the system allows). The socket has SO_REUSEADDR and
/// TCP_NODELAY, is non-blocking and close-on-exec, and is the caller's. Looking up a name may take
/// a while.
///
/// The socket; -EADDRINUSE and other errors of bind(2); if the host is not known an error of
/// gs_getaddrinfo's, whose code gs_eai gives; -ECANCELED: during the look-up; -EMFILE, -ENFILE.
/// Goroutines and plain threads. Go's net.Listen.
///
/// # Safety
/// `host` is null or a C string.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_tcp_listen(host: *const c_char, port: u16, backlog: c_int) -> c_int {
    let _call = Call::new();
    // SAFETY: `host` is null or a C string.
    io::tcp_listen(unsafe { given(host) }, port, backlog)
}

/// Connects a TCP socket to a port of a host, given by a name or an address. The addresses of a
/// name are tried in turn until one answers; each has its share of the time until the deadline, and
/// 2 s at least. The socket has TCP_NODELAY, is non-blocking and close-on-exec, and is the
/// caller's.
///
/// The socket; -ECONNREFUSED and other errors of connect(2); if the host is not known an error of
/// gs_getaddrinfo's, whose code gs_eai gives; -EAGAIN, -ETIMEDOUT, -ECANCELED: no socket;
/// -EINVAL: host is NULL. Goroutines and plain threads. Go's net.Dial.
///
/// # Safety
/// `host` is null or a C string.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_tcp_connect(
    host: *const c_char,
    port: u16,
    deadline: gs_deadline,
) -> c_int {
    let _call = Call::new();
    // SAFETY: `host` is null or a C string.
    unsafe { given(host) }.map_or(EINVAL, |host| io::tcp_connect(host, port, deadline))
}

/// Makes a UDP socket that receives at a port (0: the system chooses one), for gs_recvfrom and
/// gs_sendto. host: a name or an address; NULL or "": all addresses of the machine, IPv6 and IPv4.
/// The socket is non-blocking and close-on-exec, and is the caller's. Looking up a name may take a
/// while.
///
/// The socket; -EADDRINUSE and other errors of bind(2); if the host is not known an error of
/// gs_getaddrinfo's, whose code gs_eai gives; -ECANCELED: during the look-up; -EMFILE, -ENFILE.
/// Goroutines and plain threads. Go's net.ListenPacket.
///
/// # Safety
/// `host` is null or a C string.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_udp_bind(host: *const c_char, port: u16) -> c_int {
    let _call = Call::new();
    // SAFETY: `host` is null or a C string.
    io::udp_bind(unsafe { given(host) }, port)
}

/// Makes a UDP socket that sends to a port of a host (a name or an address) with gs_send or
/// gs_write, and receives only from there. If no socket has that port, a later call, usually the
/// next, returns -ECONNREFUSED. Otherwise as gs_udp_bind. The deadline limits the look-up.
///
/// The socket; errors of connect(2); if the host is not known an error of gs_getaddrinfo's, whose
/// code gs_eai gives; -EAGAIN, -ETIMEDOUT, -ECANCELED: no socket; -EINVAL: host is NULL.
/// Goroutines and plain threads. Go's net.Dial.
///
/// # Safety
/// `host` is null or a C string.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_udp_connect(
    host: *const c_char,
    port: u16,
    deadline: gs_deadline,
) -> c_int {
    let _call = Call::new();
    // SAFETY: `host` is null or a C string.
    unsafe { given(host) }.map_or(EINVAL, |host| io::udp_connect(host, port, deadline))
}

/// Makes a Unix stream socket that listens at a path in the file system or, given "@name", at one
/// of Linux's abstract names, which disappear with the socket. backlog as for gs_tcp_listen. The
/// socket is non-blocking and close-on-exec, and is the caller's. A path stays when the socket is
/// closed: unlink(2) it then, and also before the call if a process that has died may have left it.
///
/// The socket; -EADDRINUSE: the path exists, whether a socket listens there or not, or the name is
/// taken; -ENAMETOOLONG: over 107 bytes, not counting the "@"; other errors of bind(2); -EINVAL:
/// path is NULL, "" or "@"; -EMFILE, -ENFILE. Goroutines and plain threads. Go's net.Listen.
///
/// # Safety
/// `path` is null or a C string.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_unix_listen(path: *const c_char, backlog: c_int) -> c_int {
    let _call = Call::new();
    // SAFETY: `path` is null or a C string.
    unsafe { given(path) }.map_or(EINVAL, |path| io::unix_listen(path, backlog))
}

/// Connects a Unix stream socket to the socket that listens at a path, or at "@name" (see
/// gs_unix_listen). Waits while the listener's backlog is full. The socket is non-blocking and
/// close-on-exec, and is the caller's.
///
/// The socket; -ECONNREFUSED: the path exists, but no socket listens there; -ENOENT: the path
/// doesn't exist; other errors of connect(2); -EAGAIN, -ETIMEDOUT, -ECANCELED: no socket;
/// -ENAMETOOLONG, -EINVAL as for gs_unix_listen. Goroutines and plain threads. Go's net.Dial.
///
/// # Safety
/// `path` is null or a C string.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_unix_connect(path: *const c_char, deadline: gs_deadline) -> c_int {
    let _call = Call::new();
    // SAFETY: `path` is null or a C string.
    unsafe { given(path) }.map_or(EINVAL, |path| io::unix_connect(path, deadline))
}

/// Makes two Unix stream sockets that are connected to each other, fds[0] and fds[1]:
/// socketpair(2). Both are non-blocking and close-on-exec, and are the caller's.
///
/// 0; -EMFILE, -ENFILE, -ENOMEM: fds is as before; -EINVAL: NULL. Goroutines and plain threads.
///
/// # Safety
/// `fds` is null or has room for two numbers.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_unix_pair(fds: *mut c_int) -> c_int {
    let _call = Call::new();
    if fds.is_null() {
        return EINVAL;
    }
    match io::unix_pair() {
        Ok(both) => {
            // SAFETY: not null, so it has room for two.
            unsafe { fds.cast::<[c_int; 2]>().write_unaligned(both) };
            0
        }
        Err(e) => e,
    }
}

/// open(2), while other goroutines run. The file is close-on-exec. Opening a named pipe may wait
/// for the pipe's other end for ever: neither the deadline nor gs_cancel ends the open once it has
/// begun. With GS_NOWAIT the file is opened with O_NONBLOCK, so the open doesn't wait. mode is used
/// only with O_CREAT and O_TMPFILE.
///
/// The file, which is the caller's; -ETIMEDOUT: the deadline had passed before; -EINVAL: path is
/// NULL; else the error of open(2), but never -EINTR. Goroutines and plain threads. Go's
/// os.OpenFile.
///
/// # Safety
/// `path` is null or a C string.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_open(
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    deadline: gs_deadline,
) -> c_int {
    let _call = Call::new();
    if path.is_null() {
        return EINVAL;
    }
    // SAFETY: not null, so it is a C string.
    io::open(unsafe { CStr::from_ptr(path) }, flags, mode, deadline)
}

/// Writes a file's data to the disk, while other goroutines run: fsync(2). The deadline ends only
/// the wait for a turn, as for gs_pread.
///
/// 0; -EAGAIN, -ETIMEDOUT, -ECANCELED: not begun; -EBADF; else the error of fsync(2). Go's
/// os.File.Sync.
#[unsafe(no_mangle)]
pub extern "C" fn gs_fsync(fd: c_int, deadline: gs_deadline) -> c_int {
    let _call = Call::new();
    io::sync(fd, false, deadline)
}

/// gs_fsync without metadata that reading the data doesn't need: fdatasync(2).
#[unsafe(no_mangle)]
pub extern "C" fn gs_fdatasync(fd: c_int, deadline: gs_deadline) -> c_int {
    let _call = Call::new();
    io::sync(fd, true, deadline)
}

/// Copies up to n bytes from a file on a disk to another file, mostly a socket, within the kernel:
/// sendfile(2). May copy fewer; never raises SIGPIPE. *offset: where the copy begins, and after the
/// call where it ended; NULL: the file's own position. out_fd is made non-blocking. If gs_close
/// closes in_fd, the copy ends with -ECANCELED when its wait for out_fd is over.
///
/// The number of bytes, 0 at the end of in_fd; -EAGAIN, -ETIMEDOUT, -ECANCELED: nothing copied;
/// -EPIPE: the reading end is closed; -EINVAL: the system can't copy between these, or n is too
/// large; -EBADF; else the error of sendfile(2). Goroutines and plain threads. Go's io.Copy uses
/// it.
///
/// # Safety
/// `offset` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_sendfile(
    out_fd: c_int,
    in_fd: c_int,
    offset: *mut off_t,
    n: usize,
    deadline: gs_deadline,
) -> ssize_t {
    let _call = Call::new();
    if n > isize::MAX as usize {
        return BAD;
    }
    // SAFETY: `offset` is null or writable.
    unsafe { io::send_file(out_fd, in_fd, offset, n, deadline) }
}

/// Moves up to n bytes between two files, of which one is a pipe, within the kernel: splice(2),
/// with its flags. May move fewer; never raises SIGPIPE. The offsets: as for gs_sendfile; NULL for
/// a pipe. Both files are made non-blocking. With SPLICE_F_NONBLOCK the call doesn't wait. The call
/// waits for one file at a time: if gs_close closes the other file, the call ends with -ECANCELED
/// when that wait is over.
///
/// The number of bytes, 0 at the end of fd_in; -EAGAIN, -ETIMEDOUT, -ECANCELED: nothing moved;
/// -EPIPE, -EBADF; -EINVAL: neither is a pipe, or n is too large; else the error of splice(2).
/// Goroutines and plain threads.
///
/// # Safety
/// The offsets are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_splice(
    fd_in: c_int,
    off_in: *mut off_t,
    fd_out: c_int,
    off_out: *mut off_t,
    n: usize,
    flags: c_uint,
    deadline: gs_deadline,
) -> ssize_t {
    let _call = Call::new();
    if n > isize::MAX as usize {
        return BAD;
    }
    let (from, to) = (End { fd: fd_in, offset: off_in }, End { fd: fd_out, offset: off_out });
    // SAFETY: the offsets are null or writable.
    unsafe { io::splice(from, to, n, flags, deadline) }
}

/// Reads from a file on a disk at an offset, as pread(2). Data in memory is read at once. For other
/// data, and always with O_DIRECT, other goroutines run meanwhile. At most 64 calls read or write
/// files on disks at a time: the deadline ends only the wait for a turn.
///
/// The number of bytes, short only at the end of the file, with GS_NOWAIT, or where a cancel, the
/// deadline or an error ends the call after a part; -EAGAIN, -ETIMEDOUT, -ECANCELED: nothing read;
/// -EINVAL: buf is NULL, or the offset is negative; -EBADF; else the error of pread(2).
/// Goroutines and plain threads. Go's os.File.ReadAt.
///
/// # Safety
/// `buf` is null or has room for `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_pread(
    fd: c_int,
    buf: *mut c_void,
    n: usize,
    offset: off_t,
    deadline: gs_deadline,
) -> ssize_t {
    let _call = Call::new();
    match buffer(buf, n) {
        // SAFETY: `buf` has room for `n` bytes.
        Some(b) if offset >= 0 => unsafe { io::read_at(fd, b, offset, deadline) },
        _ => BAD,
    }
}

/// Writes to a file on a disk at an offset, as pwrite(2), while other goroutines run.
///
/// The number of bytes; errors as gs_pread and pwrite(2). Goroutines and plain
/// threads. Go's os.File.WriteAt.
///
/// # Safety
/// `buf` is null or has `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_pwrite(
    fd: c_int,
    buf: *const c_void,
    n: usize,
    offset: off_t,
    deadline: gs_deadline,
) -> ssize_t {
    let _call = Call::new();
    match buffer(buf, n) {
        // SAFETY: `buf` has `n` bytes.
        Some(b) if offset >= 0 => unsafe { io::write_at(fd, b, offset, deadline) },
        _ => BAD,
    }
}

/// getaddrinfo(3), while other goroutines run. *res is the caller's, to be freed with
/// freeaddrinfo(3). node or service may be NULL, but not both; hints may be NULL. With GS_NOWAIT
/// node may be an address, but not a name.
///
/// 0; else *res is NULL, and the result is a negative errno value: -ETIMEDOUT, -EAGAIN, -ECANCELED,
/// -ENOMEM (also for EAI_MEMORY), -EINVAL if res is NULL, errno's value for EAI_SYSTEM; or the
/// result stands for one of getaddrinfo's own codes, which gs_eai(r) gives: EAI_NONAME, EAI_AGAIN
/// and so on. gs_strerror explains all of them. Goroutines and plain threads. Go's
/// net.Resolver.LookupHost.
///
/// # Safety
/// `node` and `service` are null or C strings, `hints` null or hints, `res` null or
/// writable.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    res: *mut *mut addrinfo,
    deadline: gs_deadline,
) -> c_int {
    let _call = Call::new();
    // SAFETY: `node` and `service` are null or C strings, `hints` null or readable, and `res` is
    // null or writable.
    let result = unsafe {
        match res.as_mut() {
            Some(res) => {
                let mut answer = io::resolve(node, service, hints, deadline);
                *res = answer.take_list();
                answer.result()
            }
            None => EINVAL,
        }
    };
    io::set_last_error(result);
    result
}

/// The EAI_ code (of netdb.h, for gai_strerror(3)) that a result of gs_getaddrinfo stands for; 0 if
/// the result is 0 or a negative errno value.
#[unsafe(no_mangle)]
pub extern "C" fn gs_eai(r: c_int) -> c_int {
    io::eai(r)
}

/// Returns the caller's latest result of gs_getaddrinfo. The caller is a goroutine or a plain
/// thread. Kept for programs that were written when gs_getaddrinfo did not yet return all of its
/// errors.
#[unsafe(no_mangle)]
pub extern "C" fn gs_last_error() -> c_int {
    io::last_error()
}
