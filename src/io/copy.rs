//! Opening files, bringing them to the disk, and copying between files within the kernel.

use super::disk::{KeepsThread, if_still, off_p};
use super::error::{EAGAIN, ECANCELED, EPERM, ETIMEDOUT};
use super::file::{File, Use};
use super::ops::{self, Pause, without_sigpipe};
use super::table;
use super::wait::{is_past, until_uninterrupted};
use crate::os::file::{self, End, FileKind};
use crate::sched::run::park::NOWAIT;
use crate::sched::take::call;
use core::ffi::CStr;

/// After this number of attempts in a row that find a file ready and move nothing, the copy pauses
/// between attempts.
const IN_VAIN: u32 = 16;

/// open(2). Counts as a system call and not as work for the disk, because the other end of a named
/// pipe may be opened much later.
pub fn open(path: &CStr, flags: i32, mode: u32, deadline: i64) -> i32 {
    if is_past(deadline) {
        return -libc::ETIMEDOUT;
    }
    let flags = if deadline == NOWAIT { flags | libc::O_NONBLOCK } else { flags };
    call::enter();
    let result = until_uninterrupted(|| file::open(path, flags, mode) as isize);
    call::exit();
    result as i32
}

/// fsync(2), fdatasync(2). The deadline ends only the wait for a turn.
pub fn sync(fd: i32, only_data: bool, deadline: i64) -> i32 {
    if is_past(deadline) {
        return -libc::ETIMEDOUT;
    }
    let file = match table::get(fd) {
        Ok(file) => file,
        Err(e) => return e,
    };
    let Some(generation) = file.generation() else { return ECANCELED as i32 };
    let sync = || if_still(file, generation, || file::sync(fd, only_data));
    off_p(deadline, KeepsThread::ForLong, sync) as i32
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

/// One of the two files of a copy, as it was when the copy began.
struct Held {
    fd: i32,
    file: &'static File,
    generation: u32,
    on_disk: bool,
}

impl Held {
    /// Makes the file non-blocking unless it is on a disk. `Err`: a negative errno value; the copy
    /// can't begin.
    fn begin(fd: i32) -> Result<Held, i32> {
        let file = table::get(fd)?;
        let Some(used) = file.enter() else { return Err(-libc::ECANCELED) };
        let on_disk = file::kind(fd)? == FileKind::Disk;
        if !on_disk {
            match file::make_nonblocking(fd) {
                0 => {}
                e => return Err(e),
            }
        }
        Ok(Held { fd, file, generation: used.generation, on_disk })
    }

    /// Enters the file for one system call. `Ok(None)`: a file on a disk, whose calls are not
    /// counted (as in `disk.rs`). `Err`: the file has been closed meanwhile, and the number may be
    /// another file.
    fn use_again(&self) -> Result<Option<Use<'static>>, ()> {
        if self.on_disk {
            return if self.file.is_still(self.generation) { Ok(None) } else { Err(()) };
        }
        self.file.enter_again(self.generation).map(Some).ok_or(())
    }

    /// Waits until the file has one of the events.
    fn poll(&self, events: i16, deadline: i64) -> isize {
        ops::poll_again(self.fd, self.file, self.generation, events, deadline)
    }
}

/// Calls `once` until it returns something other than `-EAGAIN`, and waits in between for the file
/// that isn't ready. Both files may be on disks, so `once` may keep its thread for a while. A file
/// that `gs_close` has closed ends the copy before anything more is moved: at once if the copy
/// waits for that file, else when the other one is ready.
fn copy(from: End, to: End, deadline: i64, mut once: impl FnMut() -> isize) -> isize {
    if is_past(deadline) {
        return ETIMEDOUT;
    }
    let both = Held::begin(from.fd).and_then(|from| Ok((from, Held::begin(to.fd)?)));
    let (from, to) = match both {
        Ok(both) => both,
        Err(e) => return e as isize,
    };
    // Enters the files on the thread that makes the call, because the call may first wait for its
    // turn.
    let mut attempt = || {
        let (Ok(_from), Ok(_to)) = (from.use_again(), to.use_again()) else { return ECANCELED };
        until_uninterrupted(|| without_sigpipe(&mut once))
    };
    let (mut in_vain, mut pause) = (0, Pause::new());
    loop {
        let result = off_p(deadline, KeepsThread::ForLong, &mut attempt);
        if result != EAGAIN || deadline == NOWAIT {
            return result;
        }
        in_vain += 1;
        let waited = match file::poll_now(from.fd, libc::POLLIN) {
            _ if in_vain > IN_VAIN => pause.sleep(deadline) as isize,
            0 => from.poll(libc::POLLIN, deadline),
            _ => to.poll(libc::POLLOUT, deadline),
        };
        // A file on a disk is always ready.
        if waited < 0 && waited != EPERM {
            return waited;
        }
    }
}
