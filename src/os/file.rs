//! System calls on file descriptors. Each function returns what the system call returns, or a
//! negative errno value.

use super::stand_in;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;

/// Turns a system call's result into a count or a negative errno value.
fn answer(r: isize) -> isize {
    if r < 0 { -(super::errno() as isize) } else { r }
}

/// The kind of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    Socket,
    /// A file or a block device: always ready, but a call may take a while.
    Disk,
    /// Pipes, terminals, and all other files that can be waited for.
    Other,
}

/// The kind of the open file. `-EBADF`: the number is not open.
pub fn kind(fd: i32) -> Result<FileKind, i32> {
    if stand_in::knows(fd) {
        return Ok(FileKind::Socket);
    }
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the struct is writable, and read only if the call has filled it in.
    let mode = unsafe {
        if libc::fstat(fd, stat.as_mut_ptr()) < 0 {
            return Err(-super::errno());
        }
        stat.assume_init().st_mode
    };
    Ok(match mode & libc::S_IFMT {
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFREG | libc::S_IFBLK | libc::S_IFDIR => FileKind::Disk,
        _ => FileKind::Other,
    })
}

/// Whether the number is open.
pub fn is_open(fd: i32) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// A descriptor on which no call of a file can be made: it only keeps its number. Or a negative errno
/// value.
pub fn open_path() -> i32 {
    open(c"/", libc::O_PATH, 0)
}

/// Whether the descriptor is one like [`open_path`]'s.
pub fn is_only_path(fd: i32) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_PATH != 0
}

/// Gives the calling thread a table of descriptors of its own, with nothing open in it.
/// False: the system refuses.
pub fn use_own_table() -> bool {
    // SAFETY: the thread uses none of the process's files from here on.
    unsafe {
        let all = (0u32, u32::MAX, libc::CLOSE_RANGE_UNSHARE);
        if libc::syscall(libc::SYS_close_range, all.0, all.1, all.2) == 0 {
            return true;
        }
        // Linux before 5.9: a copy of the table, in which everything is closed.
        let status = "/proc/thread-self/status";
        if std::fs::metadata(status).is_err() || libc::unshare(libc::CLONE_FILES) != 0 {
            return false;
        }
        let text = std::fs::read_to_string(status).unwrap_or_default();
        let size = text.lines().find_map(|l| l.strip_prefix("FDSize:"));
        let size: i32 = size.and_then(|n| n.trim().parse().ok()).unwrap_or(1 << 20);
        (0..size).for_each(|fd| {
            libc::close(fd);
        });
        true
    }
}

/// [`use_own_table`] for a thread that goes on using two files; `keep`: their numbers, the lower one
/// first.
pub fn use_own_table_with(keep: [i32; 2]) -> bool {
    let [first, second] = keep.map(|fd| fd as u32);
    // SAFETY: the thread uses none of the process's other files from here on.
    unsafe {
        if libc::unshare(libc::CLONE_FILES) != 0 {
            return false;
        }
        let ranges = [(0, first), (first + 1, second), (second + 1, 1 << 31)];
        for (from, to) in ranges.into_iter().filter(|(from, to)| from < to) {
            if libc::syscall(libc::SYS_close_range, from, to - 1, 0) == 0 {
                continue;
            }
            // Linux before 5.9.
            let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr());
            let most = limit.assume_init().rlim_cur.min(1 << 20) as u32;
            (from..to.min(most)).for_each(|fd| {
                libc::close(fd as i32);
            });
        }
        true
    }
}

/// Whether calls on the file don't block.
pub fn is_nonblocking(fd: i32) -> Result<bool, i32> {
    if stand_in::knows(fd) {
        return Ok(true);
    }
    // SAFETY: no pointers.
    match unsafe { libc::fcntl(fd, libc::F_GETFL) } {
        -1 => Err(-super::errno()),
        flags => Ok(flags & libc::O_NONBLOCK != 0),
    }
}

/// Makes the file non-blocking, if it isn't. 0 or a negative errno value.
pub fn make_nonblocking(fd: i32) -> i32 {
    // SAFETY: no pointers.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0
            || (flags & libc::O_NONBLOCK == 0
                && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0)
        {
            let known = |other: &stand_in::StandIn| (other.knows)(fd).then_some(0);
            return stand_in::or(-1, known) as i32;
        }
    }
    0
}

/// close(2). The number is free afterwards, even after an error, except `-EBADF`.
pub fn close(fd: i32) -> i32 {
    // SAFETY: no pointers; the caller wants the number closed.
    let result = unsafe { libc::close(fd) };
    if let Some(other) = stand_in::get() {
        (other.closed)(fd);
    }
    match result {
        0 => 0,
        _ => match super::errno() {
            libc::EINTR => 0,
            e => -e,
        },
    }
}

/// open(2), close-on-exec.
pub fn open(path: &CStr, flags: i32, mode: u32) -> i32 {
    // SAFETY: a C string.
    answer(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode) } as isize) as i32
}

/// Lowest number for the library's own descriptors. Lower numbers belong to the program, which may
/// count on getting the lowest free number, or use a number that it has just closed.
const LOWEST_OWN: i32 = 512;

/// Gives an open file of the library's own, close-on-exec, a number that the program is not likely
/// to use: `fd`, or a number from [`LOWEST_OWN`] on instead, if the limit of open files
/// (`RLIMIT_NOFILE`) allows that.
pub fn keep_for_library(fd: i32) -> i32 {
    let _errno = super::KeepErrno::new();
    // SAFETY: no pointers; `fd` is the caller's, and the caller uses the result instead.
    unsafe {
        match libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, LOWEST_OWN) {
            -1 => fd,
            own => {
                // libc's close is a cancellation point: pthread_cancel would lose the number.
                libc::syscall(libc::SYS_close, fd);
                own
            }
        }
    }
}

/// Makes room for the library's descriptors in the kernel's table. In a process with threads the
/// kernel waits for some ms until it has made the table larger, so this comes before the first
/// thread.
pub fn make_room_for_library() {
    if let Ok(fd) = super::epoll::create() {
        super::epoll::close(fd);
    }
}

/// fsync(2), or fdatasync(2).
pub fn sync(fd: i32, only_data: bool) -> isize {
    // SAFETY: no pointers.
    answer(unsafe { if only_data { libc::fdatasync(fd) } else { libc::fsync(fd) } } as isize)
}

/// sendfile(2).
///
/// # Safety
/// The offset is null or writable.
pub unsafe fn send_file(out: i32, from: i32, offset: *mut i64, n: usize) -> isize {
    // SAFETY: the offset is null or writable.
    answer(unsafe { libc::sendfile(out, from, offset, n) })
}

/// splice(2), which doesn't wait for pipes.
///
/// # Safety
/// The offsets are null or writable.
pub unsafe fn splice(from: End, to: End, n: usize, flags: u32) -> isize {
    let flags = flags | libc::SPLICE_F_NONBLOCK;
    // SAFETY: the offsets are null or writable.
    answer(unsafe { libc::splice(from.fd, from.offset, to.fd, to.offset, n, flags) })
}

/// One of the two files of a splice. A null offset: the file has no position, or its own position
/// is used.
#[derive(Clone, Copy)]
pub struct End {
    pub fd: i32,
    pub offset: *mut i64,
}

/// A buffer of readv(2) and writev(2).
pub type Buffer = libc::iovec;

/// The buffer, if there is exactly one and it isn't empty. With empty buffers readv(2) and
/// writev(2) do nothing; read(2) and write(2) may fail or, on an inotify instance, wait.
fn only(buffers: &[Buffer]) -> Option<&Buffer> {
    match buffers {
        [one] if one.iov_len > 0 => Some(one),
        _ => None,
    }
}

/// readv(2). For one buffer read(2), which takes less time.
///
/// # Safety
/// The buffers are writable.
pub unsafe fn read(fd: i32, buffers: &[Buffer]) -> isize {
    // SAFETY: the buffers are writable.
    answer(unsafe {
        match only(buffers) {
            Some(one) => libc::read(fd, one.iov_base, one.iov_len),
            None => libc::readv(fd, buffers.as_ptr(), buffers.len() as i32),
        }
    })
}

/// writev(2). For one buffer write(2), which takes less time.
///
/// # Safety
/// The buffers are readable.
pub unsafe fn write(fd: i32, buffers: &[Buffer]) -> isize {
    // SAFETY: the buffers are readable.
    answer(unsafe {
        match only(buffers) {
            Some(one) => libc::write(fd, one.iov_base, one.iov_len),
            None => libc::writev(fd, buffers.as_ptr(), buffers.len() as i32),
        }
    })
}

/// preadv(2); without an offset, [`read`].
///
/// # Safety
/// The buffers are writable.
pub unsafe fn read_at(fd: i32, buffers: &[Buffer], offset: Option<i64>) -> isize {
    let Some(offset) = offset else {
        // SAFETY: the buffers are writable.
        return unsafe { read(fd, buffers) };
    };
    // SAFETY: the buffers are writable.
    answer(unsafe {
        match only(buffers) {
            Some(one) => libc::pread(fd, one.iov_base, one.iov_len, offset),
            None => libc::preadv(fd, buffers.as_ptr(), buffers.len() as i32, offset),
        }
    })
}

/// pwritev(2); without an offset, [`write`].
///
/// # Safety
/// The buffers are readable.
pub unsafe fn write_at(fd: i32, buffers: &[Buffer], offset: Option<i64>) -> isize {
    let Some(offset) = offset else {
        // SAFETY: the buffers are readable.
        return unsafe { write(fd, buffers) };
    };
    // SAFETY: the buffers are readable.
    answer(unsafe {
        match only(buffers) {
            Some(one) => libc::pwrite(fd, one.iov_base, one.iov_len, offset),
            None => libc::pwritev(fd, buffers.as_ptr(), buffers.len() as i32, offset),
        }
    })
}

/// preadv2(2) with RWF_NOWAIT: reads without waiting, from a file of any kind, at the offset or at
/// the file's own position. A file on a disk gives the data that is in memory; with O_DIRECT the
/// call waits for the disk nevertheless. `-EAGAIN`: no data; see [`cant_tell`] for other errors.
///
/// # Safety
/// The buffers are writable.
pub unsafe fn read_now(fd: i32, buffers: &[Buffer], offset: Option<i64>) -> isize {
    let args = (libc::c_long::from(fd), buffers.as_ptr(), buffers.len());
    let (at, flags) = (offset.unwrap_or(-1), libc::c_long::from(libc::RWF_NOWAIT));
    // SAFETY: the buffers are writable. An offset is two words, of which 64-bit CPUs use the first.
    // musl has a function of this name only since 1.2.5.
    let r = unsafe { libc::syscall(libc::SYS_preadv2, args.0, args.1, args.2, at, 0i64, flags) };
    answer(r as isize)
}

/// A flag of [`write_now`]: the call raises no SIGPIPE. Linux has it since 6.18.
pub const RWF_NOSIGNAL: i32 = 0x100;

/// pwritev2(2) with RWF_NOWAIT and these flags: writes as much as fits, without waiting. `-EAGAIN`:
/// no room; see [`cant_tell`] for other errors.
///
/// # Safety
/// The buffers are readable.
pub unsafe fn write_now(fd: i32, buffers: &[Buffer], flags: i32) -> isize {
    let args = (libc::c_long::from(fd), buffers.as_ptr(), buffers.len());
    let flags = libc::c_long::from(libc::RWF_NOWAIT | flags);
    // SAFETY: the buffers are readable; the rest is as in `read_now`.
    let r =
        unsafe { libc::syscall(libc::SYS_pwritev2, args.0, args.1, args.2, -1i64, 0i64, flags) };
    answer(r as isize)
}

/// Whether this answer of [`read_now`] or [`write_now`] means that the call is not available: not
/// for this file, not in this kernel, or not past a filter. (A file that allows no writes gives
/// such an error too; the plain write that follows gets it again.)
pub fn cant_tell(answer: isize) -> bool {
    let error = answer.wrapping_neg() as i32;
    answer < 0 && (error == libc::EOPNOTSUPP || super::is_refused(error))
}

/// Whether the file certainly has a position that can be set: only such a file refuses a negative
/// position with EINVAL. Pipes and sockets give another error; on other files without a position
/// lseek(2) does nothing. fstat(2) would take twice as long.
pub fn has_position(fd: i32) -> bool {
    // SAFETY: no pointers.
    answer(unsafe { libc::lseek(fd, -1, libc::SEEK_SET) } as isize) == -libc::EINVAL as isize
}

/// For a file on a disk: whether reads always wait for the disk, and whether writes do.
pub fn waits_for_disk(fd: i32) -> (bool, bool) {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    let has = |wanted| flags >= 0 && flags & wanted != 0;
    (has(libc::O_DIRECT), has(libc::O_DIRECT | libc::O_DSYNC))
}

/// poll(2) without waiting: the events, 0, or a negative errno value.
pub fn poll_now(fd: i32, events: i16) -> isize {
    let mut one = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry.
    let n = answer(unsafe { libc::poll(&mut one, 1, 0) } as isize);
    // The kernel says of a file on which nothing can be done that it can't be polled.
    if n > 0
        && one.revents & libc::POLLNVAL != 0
        && let Some(r) = stand_in::get().and_then(|other| (other.poll)(fd, events))
    {
        return r;
    }
    if n > 0 { one.revents as u16 as isize } else { n }
}

/// Waits for at most `ms` until a write to the file would not block, or would fail.
pub fn is_writable(fd: i32, ms: i32) -> bool {
    let mut one = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&mut one, 1, ms) > 0 }
}

/// Blocks the thread until the first file has an event, or the second has a byte to read. False:
/// the deadline (ns; negative: none) has passed. Signals end the wait too.
pub fn poll_two(fd: i32, events: i16, other: i32, deadline: i64) -> bool {
    let mut both = [
        libc::pollfd { fd, events, revents: 0 },
        libc::pollfd { fd: other, events: libc::POLLIN, revents: 0 },
    ];
    let left = super::time::timespec((deadline - super::time::now()).max(0));
    let timeout = if deadline < 0 { ptr::null() } else { &raw const left };
    // SAFETY: two entries; the timeout is null or readable; no mask is given.
    unsafe { libc::ppoll(both.as_mut_ptr(), 2, timeout, ptr::null()) != 0 }
}

/// A file that is waited for, with the events (`POLLIN` and so on): poll(2).
pub type Polled = libc::pollfd;

/// Blocks the thread until one of the files has an event. Files below 0 have none.
pub fn poll_all(files: &mut [Polled]) {
    // SAFETY: the entries are writable.
    unsafe { libc::poll(files.as_mut_ptr(), files.len() as libc::nfds_t, -1) };
}

/// Removes a name from the file system. 0 or a negative errno value.
pub fn unlink(path: &CStr) -> i32 {
    // SAFETY: a C string.
    answer(unsafe { libc::unlink(path.as_ptr()) } as isize) as i32
}

/// Whether the name is that of a socket.
pub fn is_socket(path: &CStr) -> bool {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a C string; the struct is writable, and read only if the call has filled it in.
    unsafe {
        libc::lstat(path.as_ptr(), stat.as_mut_ptr()) == 0
            && stat.assume_init().st_mode & libc::S_IFMT == libc::S_IFSOCK
    }
}

/// Blocks SIGPIPE on the calling thread while the thread writes to a file that is no socket.
/// [`NoSigpipe::consume`] takes a SIGPIPE that the write has raised; dropping this restores the
/// signal mask.
pub struct NoSigpipe {
    before: Option<libc::sigset_t>,
}

impl NoSigpipe {
    /// `masked`: the thread has SIGPIPE blocked all the time.
    pub fn new(masked: bool) -> NoSigpipe {
        if masked {
            return NoSigpipe { before: None };
        }
        let pipe = NoSigpipe::set();
        let mut before = MaybeUninit::uninit();
        // SAFETY: one set is read, the other written.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, before.as_mut_ptr());
            NoSigpipe { before: Some(before.assume_init()) }
        }
    }

    fn set() -> libc::sigset_t {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the set is filled in before it is used.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
            set.assume_init()
        }
    }

    /// Whether a SIGPIPE that the write has not raised is pending for this thread.
    pub fn pending() -> bool {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the set is filled in before it is read.
        unsafe {
            libc::sigpending(set.as_mut_ptr());
            libc::sigismember(set.as_ptr(), libc::SIGPIPE) == 1
        }
    }

    /// The write has failed with EPIPE: takes the signal that came with it.
    pub fn consume(&self) {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the timeout are readable; the signal's record is not asked for.
        unsafe { libc::sigtimedwait(&NoSigpipe::set(), ptr::null_mut(), &none) };
    }
}

impl Drop for NoSigpipe {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // SAFETY: the mask that the thread had.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
        }
    }
}

/// Writes all of `bytes`, without SIGPIPE, and waits if a write would have to wait. 0, or a
/// negative errno value.
pub fn write_whole(fd: i32, mut bytes: &[u8]) -> i32 {
    let quiet = NoSigpipe::new(false);
    while !bytes.is_empty() {
        // SAFETY: the pointer and length are those of a slice.
        let n = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match (usize::try_from(n), super::errno()) {
            (Ok(n), _) => bytes = &bytes[n..],
            (_, libc::EINTR) => {}
            (_, libc::EAGAIN) => {
                let mut writable = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
                // SAFETY: one entry.
                unsafe { libc::poll(&raw mut writable, 1, -1) };
            }
            (_, libc::EPIPE) => {
                quiet.consume();
                return -libc::EPIPE;
            }
            (_, e) => return -e,
        }
    }
    0
}

/// Lets writes to this descriptor go nowhere until [`undivert`]. Returns what that needs.
pub fn divert(fd: i32) -> i32 {
    // SAFETY: calls of the system with valid arguments.
    unsafe {
        let kept = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3);
        let nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if kept >= 0 && nowhere >= 0 {
            libc::dup2(nowhere, fd);
        }
        libc::close(nowhere);
        kept
    }
}

/// Undoes [`divert`], which has returned `kept`.
pub fn undivert(fd: i32, kept: i32) {
    if kept >= 0 {
        // SAFETY: `divert` has made this descriptor.
        unsafe {
            libc::dup2(kept, fd);
            libc::close(kept);
        }
    }
}
