//! The operations on a file descriptor. Each makes its system call first, and waits only after
//! `-EAGAIN`. Each returns a count or a negative errno value.

use super::error::{
    EAGAIN, EALREADY, EBADF, ECANCELED, ECONNABORTED, EINPROGRESS, EINTR, EISCONN, ENOTSOCK, EPERM,
    EPIPE, EPROTO, ETIMEDOUT,
};
use super::file::File;
use super::wait::{is_past, until_done, until_done_in};
use super::want::Want;
use super::{disk, table};
use crate::os::file::{self, Buffer, FileKind, NoSigpipe};
use crate::os::socket::{self, Address, Message};
use crate::os::time;
use crate::sched::run::park::{FOREVER, NOWAIT, sleep_until};
use crate::sched::take::call;
use crate::sched::types::g::flags;
use crate::sched::types::m;
use crate::sched::types::runtime::Visit;
use crate::sched::types::waiter::{Cause, Why};

/// The entry of the descriptor. If it has none, makes the calling function return the error.
macro_rules! file {
    ($fd:expr) => {
        match table::get($fd) {
            Ok(file) => file,
            Err(e) => return e as isize,
        }
    };
}

/// Result of an operation that finds that the file is of another kind.
pub(super) const OTHER_KIND: isize = isize::MIN;

/// Calls `f` with the kind of the file; once more if the known kind is no longer true.
fn with_kind(file: &File, fd: i32, f: impl Fn(FileKind) -> isize) -> isize {
    let known = match file.known.kind(fd) {
        Ok(kind) => kind,
        Err(e) => return e as isize,
    };
    let (r, failed) = match (f(known), known) {
        (OTHER_KIND, _) => (EBADF, true),
        (r, FileKind::Socket) => (r, r == ENOTSOCK),
        // epoll takes no file on a disk.
        (r, FileKind::Other) => (r, r == EPERM),
        (r, FileKind::Disk) => (r, false),
    };
    if !failed {
        return r;
    }
    match file.known.ask_kind(fd) {
        Ok(kind) if kind != known => {
            file.disown();
            // The kind now. If it differs each time, the program replaces files while its calls use
            // them.
            Some(f(kind)).filter(|&r| r != OTHER_KIND).unwrap_or(EBADF)
        }
        Ok(_) => r,
        Err(e) => e as isize,
    }
}

/// Makes a system call on a file that isn't a socket, without a wait: `now`, or, if the kernel
/// refuses `now` for this file, `f`, once the file is non-blocking.
fn without_wait(
    fd: i32,
    file: &File,
    now: impl FnOnce() -> isize,
    f: impl FnOnce() -> isize,
) -> isize {
    if !file.known.manner().cant_tell() {
        let result = now();
        if !file::cant_tell(result) {
            return result;
        }
        file.known.note_cant_tell();
    }
    nonblocking(fd, f)
}

/// Calls `f`, which makes a system call on a file that isn't a socket, if the call won't block.
/// Otherwise returns a negative errno value or [`OTHER_KIND`], without calling `f`. The number may
/// have become another file, so the kernel is asked each time.
fn nonblocking(fd: i32, f: impl FnOnce() -> isize) -> isize {
    match file::is_nonblocking(fd) {
        Ok(true) => f(),
        // The library sees the number for the first time, so the file may be of another kind.
        Ok(false) => match file::kind(fd) {
            Ok(FileKind::Other) => match file::make_nonblocking(fd) {
                0 => f(),
                e => e as isize,
            },
            Ok(_) => OTHER_KIND,
            Err(e) => e as isize,
        },
        Err(e) => e as isize,
    }
}

/// The deadline of a call on a socket, whose flags may say that it must not wait.
fn deadline_of(flags: i32, deadline: i64) -> i64 {
    if flags & libc::MSG_DONTWAIT != 0 { NOWAIT } else { deadline }
}

/// read(2), readv(2).
///
/// # Safety
/// The buffers are writable.
pub unsafe fn read(fd: i32, buffers: &[Buffer], deadline: i64) -> isize {
    let file = file!(fd);
    with_kind(file, fd, |kind| match kind {
        // SAFETY: the buffers are writable.
        FileKind::Disk => unsafe { disk::read(fd, file, buffers, None, deadline) },
        // Only for a read of at least one byte: a read of nothing must not wait, nor take a
        // datagram.
        FileKind::Socket if disk::total(buffers) > 0 => {
            let want = Want::to_read(disk::total(buffers));
            // SAFETY: the buffers are writable.
            until_done(fd, file, want, deadline, || unsafe { socket::recv(fd, buffers, 0) })
        }
        // A read of nothing gives 0 and never waits.
        FileKind::Socket => until_done(fd, file, Want::READ, deadline, || unsafe {
            // SAFETY: the buffers are writable, as the caller says.
            file::read(fd, buffers)
        }),
        FileKind::Other => until_done(fd, file, Want::READ, deadline, || {
            // SAFETY: the buffers are writable, as the caller says.
            let now = || unsafe { file::read_now(fd, buffers, None) };
            // SAFETY: the buffers are writable, as the caller says.
            without_wait(fd, file, now, || unsafe { file::read(fd, buffers) })
        }),
    })
}

/// write(2), writev(2), without SIGPIPE.
///
/// # Safety
/// The buffers are readable.
pub unsafe fn write(fd: i32, buffers: &[Buffer], deadline: i64) -> isize {
    let file = file!(fd);
    with_kind(file, fd, |kind| match kind {
        // Asks for the kind, because nothing else would tell that the number is a socket by now: on
        // all other files a write without bytes succeeds.
        FileKind::Disk | FileKind::Other if matches!(buffers, [one] if one.iov_len == 0) => {
            until_done(fd, file, Want::WRITE, deadline, || match file::kind(fd) {
                Ok(FileKind::Socket) => OTHER_KIND,
                // SAFETY: the buffer is empty.
                Ok(_) => unsafe { file::write(fd, buffers) },
                Err(e) => e as isize,
            })
        }
        // SAFETY: the buffers are readable.
        FileKind::Disk => unsafe { disk::write(fd, file, buffers, None, deadline) },
        // writev(2) of nothing sends nothing, while write(2) of nothing sends a datagram without
        // bytes.
        FileKind::Socket if buffers.is_empty() => {
            // SAFETY: no buffers.
            until_done(fd, file, Want::WRITE, deadline, || unsafe { file::write(fd, buffers) })
        }
        FileKind::Socket => {
            // SAFETY: the buffers are readable.
            note_written(until_done(fd, file, Want::WRITE, deadline, || unsafe {
                once_connected(0, socket::send(fd, buffers, 0))
            }))
        }
        FileKind::Other => note_written(until_done(fd, file, Want::WRITE, deadline, || {
            // SAFETY: the buffers are readable, as the caller says.
            let now = || unsafe { write_now(fd, buffers) };
            // SAFETY: the buffers are readable, as the caller says.
            let write = || without_sigpipe(|| unsafe { file::write(fd, buffers) });
            without_wait(fd, file, now, write)
        })),
    })
}

/// Notes that the caller has written: see `netpoll::poll_after_writes`.
fn note_written(result: isize) -> isize {
    if result > 0
        && let Some(m) = m::on_goroutine()
    {
        m.p().poll.wrote.set(true);
    }
    result
}

/// [`file::write_now`] without SIGPIPE.
///
/// # Safety
/// The buffers are readable.
unsafe fn write_now(fd: i32, buffers: &[Buffer]) -> isize {
    if !has_signals_blocked() {
        // SAFETY: the buffers are readable.
        let result = unsafe { file::write_now(fd, buffers, file::RWF_NOSIGNAL) };
        if !file::cant_tell(result) {
            return result;
        }
    }
    // SAFETY: the buffers are readable.
    without_sigpipe(|| unsafe { file::write_now(fd, buffers, 0) })
}

/// Whether this is a thread of the library's own, which has all signals blocked.
fn has_signals_blocked() -> bool {
    m::current().is_some_and(|m| !m.is_runner())
}

/// Calls a function that writes, and suppresses the signal that comes with EPIPE.
pub(super) fn without_sigpipe(write: impl FnOnce() -> isize) -> isize {
    let masked = has_signals_blocked();
    // With the signal blocked, the signal is pending for this thread, and taken before the
    // process's.
    if !masked && NoSigpipe::pending() {
        return write();
    }
    let quiet = NoSigpipe::new(masked);
    let result = write();
    if result == EPIPE {
        quiet.consume();
    }
    result
}

/// recv(2).
///
/// # Safety
/// The buffer is writable.
pub unsafe fn recv(fd: i32, buffer: Buffer, flags: i32, deadline: i64) -> isize {
    let file = file!(fd);
    let deadline = deadline_of(flags, deadline);
    let want = Want::to_receive(flags, buffer.iov_len);
    // SAFETY: the buffer is writable.
    until_done(fd, file, want, deadline, || unsafe { socket::recv(fd, &[buffer], flags) })
}

/// send(2).
///
/// # Safety
/// The buffer is readable.
pub unsafe fn send(fd: i32, buffer: Buffer, flags: i32, deadline: i64) -> isize {
    let file = file!(fd);
    let deadline = deadline_of(flags, deadline);
    // SAFETY: the buffer is readable.
    note_written(until_done(fd, file, Want::WRITE, deadline, || unsafe {
        once_connected(flags, socket::send(fd, &[buffer], flags))
    }))
}

/// The result of a system call that sends with these flags. If the call has begun to connect the
/// socket (`MSG_FASTOPEN`, `TCP_FASTOPEN_CONNECT`) without sending data, the data must wait for the
/// end of that attempt, as on a blocking socket. A further call then sends the data, or tells how
/// the attempt has failed.
fn once_connected(flags: i32, result: isize) -> isize {
    match result {
        EINPROGRESS | EALREADY if flags & libc::MSG_DONTWAIT == 0 => EAGAIN,
        _ => result,
    }
}

/// recvfrom(2).
///
/// # Safety
/// The buffer is writable; the address is null, or writable for `*len`.
pub unsafe fn recv_from(
    fd: i32,
    buffer: Buffer,
    flags: i32,
    from: *mut Address,
    len: *mut u32,
    deadline: i64,
) -> isize {
    let file = file!(fd);
    let deadline = deadline_of(flags, deadline);
    let mut last = EAGAIN;
    let result = until_done(fd, file, Want::to_receive(flags, 0), deadline, || {
        // SAFETY: the buffer is writable, and so is the address unless it is null.
        last = unsafe { socket::recv_from(fd, buffer, flags, from, len) };
        last
    });
    if is_end_by_shutdown(result, last) && !from.is_null() {
        // SAFETY: writable if there is room for an address, as the caller says.
        unsafe { *len = 0 };
    }
    result
}

/// Whether a call that receives has ended because the socket is shut down (see
/// [`Want::when_shut`]). Then the kernel has not filled in the call's other results: no address, no
/// control data. `last`: the last system call's result.
fn is_end_by_shutdown(result: isize, last: isize) -> bool {
    result == 0 && last == EAGAIN
}

/// sendto(2).
///
/// # Safety
/// The buffer is readable; the address is null, or readable for `len`.
pub unsafe fn send_to(
    fd: i32,
    buffer: Buffer,
    flags: i32,
    to: *const Address,
    len: u32,
    deadline: i64,
) -> isize {
    let file = file!(fd);
    let deadline = deadline_of(flags, deadline);
    let want = if to.is_null() { Want::WRITE } else { Want::SEND_TO };
    // SAFETY: the buffer is readable, and so is the address unless it is null.
    until_done(fd, file, want, deadline, || unsafe {
        once_connected(flags, socket::send_to(fd, buffer, flags, to, len))
    })
}

/// recvmsg(2).
///
/// # Safety
/// The message is one to receive into.
pub unsafe fn recv_message(fd: i32, message: *mut Message, flags: i32, deadline: i64) -> isize {
    let file = file!(fd);
    let deadline = deadline_of(flags, deadline);
    let mut last = EAGAIN;
    let result = until_done(fd, file, Want::to_receive(flags, 0), deadline, || {
        // SAFETY: a message to receive into, as the caller says.
        last = unsafe { socket::recv_message(fd, message, flags) };
        last
    });
    if is_end_by_shutdown(result, last) {
        // SAFETY: a message to receive into, as the caller says.
        let message = unsafe { &mut *message };
        if !message.msg_name.is_null() {
            message.msg_namelen = 0;
        }
        message.msg_controllen = 0;
        message.msg_flags = flags & libc::MSG_CMSG_CLOEXEC;
    }
    result
}

/// sendmsg(2).
///
/// # Safety
/// The message is one to send.
pub unsafe fn send_message(fd: i32, message: *const Message, flags: i32, deadline: i64) -> isize {
    let file = file!(fd);
    let deadline = deadline_of(flags, deadline);
    // SAFETY: a message, as the caller says.
    let to = unsafe { (*message).msg_name };
    let want = if to.is_null() { Want::WRITE } else { Want::SEND_TO };
    // SAFETY: a message to send, as the caller says.
    until_done(fd, file, want, deadline, || unsafe {
        once_connected(flags, socket::send_message(fd, message, flags))
    })
}

/// accept4(2). Goroutines that the caller spawns from now on are root goroutines, which are spread
/// over the P's. seed: N7
///
/// # Safety
/// The address is null, or writable for `*len`.
pub unsafe fn accept(fd: i32, from: *mut Address, len: *mut u32, deadline: i64) -> isize {
    let file = file!(fd);
    let new = until_done(fd, file, Want::ACCEPT, deadline, || match file::make_nonblocking(fd) {
        // SAFETY: the address is null, or writable for `*len`.
        0 => unsafe { accept_once(fd, from, len) },
        e => e as isize,
    });
    if new >= 0 {
        made(new as i32, FileKind::Socket);
        if let Some(m) = m::on_goroutine() {
            m.g().set_flag(flags::ACCEPTS, true);
        }
    }
    new
}

/// # Safety
/// As `accept`.
unsafe fn accept_once(fd: i32, from: *mut Address, len: *mut u32) -> isize {
    // SAFETY: the address is null, or writable for `*len`.
    match unsafe { socket::accept(fd, from, len) } {
        // The client that wanted to connect has gone: tries the next.
        ECONNABORTED | EPROTO => EINTR,
        r => r,
    }
}

/// connect(2). An address that can't be read gives `-EFAULT`, as in connect(2).
///
/// # Safety
/// The address stays as it is until the call returns.
pub unsafe fn connect(fd: i32, to: *const Address, len: u32, deadline: i64) -> isize {
    const ALREADY: [isize; 3] = [EINPROGRESS, EALREADY, EINTR];
    let file = file!(fd);
    if is_past(deadline) {
        return ETIMEDOUT;
    }
    let Some(generation) = file.generation() else { return ECANCELED };
    // SAFETY: called only after connect(2) has given EAGAIN or EINPROGRESS, which it does for an
    // address that it has read.
    let family = || unsafe { i32::from((*to).sa_family) };
    let mut begun = false;
    let mut attempt = || {
        // During a pause the socket may be closed, and the number become another file.
        let used = file.enter_again(generation);
        until_done_in(fd, file, used, Want::CONNECT, deadline, || {
            // After an attempt that has failed a second connect(2) would begin another one, and not
            // tell the error.
            if begun
                && family() == libc::AF_VSOCK
                && let e @ ..0 = socket::take_error(fd)
            {
                return e as isize;
            }
            let result = match file::make_nonblocking(fd) {
                // A second connect(2) tells how the attempt has ended, and ends it in the kernel
                // too. After SO_ERROR the socket would still count as connecting, and the next
                // connect(2) would report this attempt once more.
                // SAFETY: the address is readable, as the caller says.
                0 => unsafe { socket::connect(fd, to, len) },
                e => e as isize,
            };
            match result {
                // Another call on the socket has seen the end of the attempt first.
                EISCONN if begun => 0,
                // The attempt has ended, by shutdown(2) or by an error that another call has taken,
                // and this connect(2) has begun another attempt.
                EINPROGRESS if begun => {
                    socket::disconnect(fd);
                    ECONNABORTED
                }
                // The other side's backlog is full, and no event says when it has room.
                EAGAIN if family() == libc::AF_UNIX => NO_ROOM,
                _ if ALREADY.contains(&result) => {
                    begun = true;
                    EAGAIN
                }
                _ => result,
            }
        })
    };
    let mut pause = Pause::new();
    loop {
        match attempt() {
            NO_ROOM => match pause.sleep(deadline) {
                0 => {}
                e => return e as isize,
            },
            result => return result,
        }
    }
}

/// Result of an attempt to connect that must be made again later.
const NO_ROOM: isize = isize::MIN;

/// Pauses of growing length, where no event says when to try again.
pub(super) struct Pause {
    ns: i64,
}

impl Pause {
    /// The first and the longest pause, in ns.
    const FIRST: i64 = 100_000;
    const LONGEST: i64 = 10_000_000;

    pub fn new() -> Pause {
        Pause { ns: Pause::FIRST }
    }

    /// 0; `-EAGAIN`, `-ETIMEDOUT`, `-ECANCELED`, `-ENOMEM`.
    pub fn sleep(&mut self, deadline: i64) -> i32 {
        let now = time::now();
        let until = match deadline {
            NOWAIT => return -libc::EAGAIN,
            FOREVER => now + self.ns,
            _ if deadline <= now => return -libc::ETIMEDOUT,
            _ => deadline.min(now + self.ns),
        };
        self.ns = (self.ns * 2).min(Pause::LONGEST);
        match sleep_until(until, Why::File) {
            Cause::Woken | Cause::TimedOut => 0,
            cause => cause.errno(),
        }
    }
}

/// poll(2) for one file: returns the file's events.
pub fn poll(fd: i32, events: i16, deadline: i64) -> isize {
    let file = file!(fd);
    until_done(fd, file, Want::events(events), deadline, || poll_once(fd, events))
}

/// `poll` for the file that the number was in this generation.
pub(super) fn poll_again(
    fd: i32,
    file: &File,
    generation: u32,
    events: i16,
    deadline: i64,
) -> isize {
    let used = file.enter_again(generation);
    until_done_in(fd, file, used, Want::events(events), deadline, || poll_once(fd, events))
}

fn poll_once(fd: i32, events: i16) -> isize {
    match file::poll_now(fd, events) {
        0 => EAGAIN,
        r if r > 0 && r as i16 & libc::POLLNVAL != 0 => EBADF,
        r => r,
    }
}

/// pread(2).
///
/// # Safety
/// The buffer is writable.
pub unsafe fn read_at(fd: i32, buffer: Buffer, offset: i64, deadline: i64) -> isize {
    let file = file!(fd);
    // SAFETY: the buffer is writable.
    unsafe { disk::read(fd, file, &[buffer], Some(offset), deadline) }
}

/// pwrite(2).
///
/// # Safety
/// The buffer is readable.
pub unsafe fn write_at(fd: i32, buffer: Buffer, offset: i64, deadline: i64) -> isize {
    let file = file!(fd);
    // SAFETY: the buffer is readable.
    unsafe { disk::write(fd, file, &[buffer], Some(offset), deadline) }
}

/// close(2). Calls that wait for the file leave with `-ECANCELED`.
pub fn close(fd: i32) -> i32 {
    if let Some(file) = table::known(fd) {
        // Without a runtime the file is in no epoll instance.
        let runtime = Visit::try_begin();
        let e = file.begin_closing(fd, runtime.as_deref());
        if e != 0 {
            return e;
        }
    }
    // close(2) may take long: a file on a disk is written first, and a socket lingers.
    call::enter();
    let result = file::close(fd);
    call::exit();
    // Looked up again, because the number may have got its entry meanwhile.
    if let Some(file) = table::known(fd) {
        file.end_closing();
    }
    result
}

/// Takes over a file that the user has made, and will close with `gs_close`. Waits for it then cost
/// no more than waits for a file that the library has [`made`].
pub fn adopt(fd: i32) -> Result<(), i32> {
    let kind = file::kind(fd)?;
    if kind == FileKind::Disk {
        return Err(-libc::EPERM);
    }
    if !file::is_nonblocking(fd)? {
        return Err(-libc::EINVAL);
    }
    if table::get(fd)?.adopt(kind) { Ok(()) } else { Err(-libc::EBUSY) }
}

/// Notes that the library has made a file, which doesn't block.
pub fn made(fd: i32, kind: FileKind) {
    if let Ok(file) = table::get(fd) {
        file.made(kind);
    }
}
