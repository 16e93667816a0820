//! Opening files, bringing them to the disk, and copying between files within the kernel.

use super::disk::{KeepsThread, off_p};
use super::ops::{self, Pause, without_sigpipe};
use super::wait::is_past;
use super::wait::until_uninterrupted;
use crate::os::file::{self, End, FileKind};
use crate::sched::core::blocking;
use crate::sched::core::park::NOWAIT;
use core::ffi::CStr;

const EAGAIN: isize = -libc::EAGAIN as isize;

/// After this number of copies in a row that find a file ready and move nothing, there are pauses.
const IN_VAIN: u32 = 16;

/// open(2). It may be long until the other end of a named pipe is opened, so this counts as a system call and not as
/// work for the disk.
pub fn open(path: &CStr, flags: i32, mode: u32, deadline: i64) -> i32 {
    if is_past(deadline) {
        return -libc::ETIMEDOUT;
    }
    let flags = if deadline == NOWAIT { flags | libc::O_NONBLOCK } else { flags };
    blocking::enter();
    let result = until_uninterrupted(|| file::open(path, flags, mode) as isize);
    blocking::exit();
    result as i32
}

/// fsync(2), fdatasync(2). The deadline ends only the wait for a turn.
pub fn sync(fd: i32, only_data: bool, deadline: i64) -> i32 {
    if is_past(deadline) {
        return -libc::ETIMEDOUT;
    }
    off_p(deadline, KeepsThread::ForLong, || until_uninterrupted(|| file::sync(fd, only_data)))
        as i32
}

/// sendfile(2).
///
/// # Safety
/// The offset is null or writable.
pub unsafe fn send_file(out: i32, from: i32, offset: *mut i64, n: usize, deadline: i64) -> isize {
    let nowhere = core::ptr::null_mut();
    copy(End { fd: from, offset: nowhere }, End { fd: out, offset: nowhere }, deadline, || {
        // SAFETY: the offset is null or writable.
        unsafe { file::send_file(out, from, offset, n) }
    })
}

/// splice(2).
///
/// # Safety
/// The offsets are null or writable.
pub unsafe fn splice(from: End, to: End, n: usize, flags: u32, deadline: i64) -> isize {
    let deadline = if flags & libc::SPLICE_F_NONBLOCK != 0 { NOWAIT } else { deadline };
    copy(from, to, deadline, || {
        // SAFETY: the offsets are null or writable.
        unsafe { file::splice(from, to, n, flags) }
    })
}

/// Calls `once` until it gives something else than `-EAGAIN`, and waits in between for the file that isn't ready. Both
/// files may be on disks, so `once` may keep its thread for a while.
fn copy(from: End, to: End, deadline: i64, mut once: impl FnMut() -> isize) -> isize {
    if is_past(deadline) {
        return -libc::ETIMEDOUT as isize;
    }
    for fd in [from.fd, to.fd] {
        let e = match file::kind(fd) {
            Ok(FileKind::Disk) => 0,
            Ok(_) => file::make_nonblocking(fd),
            Err(e) => e,
        };
        if e != 0 {
            return e as isize;
        }
    }
    let (mut in_vain, mut pause) = (0, Pause::new());
    loop {
        let result = off_p(deadline, KeepsThread::ForLong, || {
            until_uninterrupted(|| without_sigpipe(&mut once))
        });
        if result != EAGAIN || deadline == NOWAIT {
            return result;
        }
        in_vain += 1;
        let waited = match file::poll_now(from.fd, libc::POLLIN) {
            _ if in_vain > IN_VAIN => pause.sleep(deadline) as isize,
            0 => ops::poll(from.fd, libc::POLLIN, deadline),
            _ => ops::poll(to.fd, libc::POLLOUT, deadline),
        };
        // A file on a disk is always ready.
        if waited < 0 && waited != -libc::EPERM as isize {
            return waited;
        }
    }
}
