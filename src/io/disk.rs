//! Files on disks. They are always "ready", and then the thread sleeps in the
//! kernel: so what is not in memory already is read and written between
//! entersyscall and exitsyscall, by a limited number of threads.

use super::wait::is_past;
use crate::os::file::{self, Buffer};
use crate::sched::park::NOWAIT;
use crate::sched::{blocking, schedule};
use crate::sync::Sem;

/// Threads that goroutines keep in such calls at most. The others wait for their
/// turn without one.
const THREADS: i64 = 64;

static USERS: Sem = Sem::with(THREADS);

/// In the child of a fork they are gone.
pub fn forget_users() {
    USERS.reset(THREADS);
}

/// Calls `f`, which may keep the thread for a while. A negative errno value if the
/// deadline passes before its turn comes.
pub fn off_p(deadline: i64, f: impl FnOnce() -> isize) -> isize {
    if schedule::on_goroutine().is_none() {
        return f();
    }
    let e = USERS.acquire(1, deadline);
    if e != 0 {
        return e as isize;
    }
    blocking::enter();
    let result = f();
    blocking::exit();
    USERS.release(1);
    result
}

/// Reads at the offset, or at the file's own position.
///
/// # Safety
/// The buffers are writable.
pub unsafe fn read(fd: i32, buffers: &[Buffer], offset: Option<i64>, deadline: i64) -> isize {
    if is_past(deadline) {
        return -libc::ETIMEDOUT as isize;
    }
    const EAGAIN: isize = -libc::EAGAIN as isize;
    const UNKNOWN: [isize; 2] = [-libc::EOPNOTSUPP as isize, -libc::ENOSYS as isize];
    // SAFETY: by contract.
    match unsafe { file::read_cached(fd, buffers, offset) } {
        EAGAIN if deadline == NOWAIT => return EAGAIN,
        EAGAIN => {}
        e if UNKNOWN.contains(&e) => {}
        n if n > 0 && deadline != NOWAIT && (n as usize) < total(buffers) => {
            let rest = rest_of(buffers, n as usize);
            // SAFETY: what is left of the buffers.
            let more = unsafe { read_all(fd, &rest, offset.map(|o| o + n as i64), deadline) };
            return n + more.max(0);
        }
        result => return result,
    }
    // SAFETY: by contract.
    unsafe { read_all(fd, buffers, offset, deadline) }
}

/// # Safety
/// As `read`.
unsafe fn read_all(fd: i32, buffers: &[Buffer], offset: Option<i64>, deadline: i64) -> isize {
    // SAFETY: by contract.
    off_p(deadline, || unsafe { until_uninterrupted(|| file::read_at(fd, buffers, offset)) })
}

/// Writes at the offset, or at the file's own position.
///
/// # Safety
/// The buffers are readable.
pub unsafe fn write(fd: i32, buffers: &[Buffer], offset: Option<i64>, deadline: i64) -> isize {
    if is_past(deadline) {
        return -libc::ETIMEDOUT as isize;
    }
    // SAFETY: by contract.
    off_p(deadline, || unsafe { until_uninterrupted(|| file::write_at(fd, buffers, offset)) })
}

fn until_uninterrupted(mut f: impl FnMut() -> isize) -> isize {
    loop {
        let r = f();
        if r != -libc::EINTR as isize {
            return r;
        }
    }
}

pub fn total(buffers: &[Buffer]) -> usize {
    buffers.iter().map(|b| b.iov_len).sum()
}

/// The buffers without their first `n` bytes.
fn rest_of(buffers: &[Buffer], mut n: usize) -> Vec<Buffer> {
    let mut rest = Vec::new();
    for b in buffers {
        let skip = n.min(b.iov_len);
        n -= skip;
        if skip < b.iov_len {
            let at = b.iov_base.cast::<u8>().wrapping_add(skip).cast();
            rest.push(Buffer { iov_base: at, iov_len: b.iov_len - skip });
        }
    }
    rest
}
