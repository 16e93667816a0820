//! Files on disks. They are always "ready", and then the thread sleeps in the kernel. So the pool's threads read what
//! is not in memory, and write what must reach the disk. Calls that only copy are made between `entersyscall` and
//! `exitsyscall`.

use super::wait::{is_past, until_uninterrupted};
use crate::os::file::{self, Buffer};
use crate::os::heap;
use crate::sched::core::blocking;
use crate::sched::core::order;
use crate::sched::core::park::NOWAIT;
use crate::sched::watch::workers;
use crate::sched::who::m;
use crate::sched::who::runtime::rt;
use crate::sync::Sem;

/// How many such calls are under way at a time. Others wait for their turn without a thread.
const AT_ONCE: i64 = workers::LIMIT as i64;

static USERS: Sem = Sem::with(AT_ONCE);

/// In the child of a fork the calls under way are gone.
pub fn forget_users() {
    // SAFETY: the child has none of the threads and goroutines that used it.
    unsafe { USERS.reset(AT_ONCE) };
}

/// How long a call keeps its thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepsThread {
    /// Until the disk has answered.
    ForLong,
    /// Mostly not at all, because the call only copies.
    Briefly,
}

/// Calls `f`, which may keep the thread for a while. A negative errno value if the deadline passes before the caller's
/// turn comes.
pub(super) fn off_p(deadline: i64, kept: KeepsThread, f: impl FnOnce() -> isize) -> isize {
    let Some(m) = m::on_goroutine() else { return f() };
    // A locked goroutine may rely on its thread, which may have its own table of files, so `f` runs there.
    let is_locked = m.is_locked();
    let e = USERS.acquire(1, deadline);
    if e != 0 {
        return e as isize;
    }
    let rt = rt();
    // A goroutine that is alone is quicker on its own thread: no other needs the P.
    let alone = || {
        m::on_goroutine().is_some_and(|m| order::nothing_else(m, m.p())) && rt.workers.is_unused()
    };
    let left = match kept {
        KeepsThread::ForLong if !is_locked && !alone() => rt.workers.call(rt, f),
        _ => Err(f),
    };
    let result = left.unwrap_or_else(|f| {
        blocking::enter();
        let result = f();
        blocking::exit();
        result
    });
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
    let cached = match file::waits_for_disk(fd).0 {
        true => EAGAIN,
        // SAFETY: the buffers are writable.
        false => unsafe { file::read_cached(fd, buffers, offset) },
    };
    match cached {
        EAGAIN if deadline == NOWAIT => return EAGAIN,
        EAGAIN => {}
        e if UNKNOWN.contains(&e) => {}
        n if n > 0 && deadline != NOWAIT && (n as usize) < total(buffers) => {
            // Without memory it is a short read.
            let Some(rest) = rest_of(buffers, n as usize) else { return n };
            // SAFETY: what is left of the buffers.
            let more = unsafe { read_all(fd, &rest, offset.map(|o| o + n as i64), deadline) };
            return n + more.max(0);
        }
        result => return result,
    }
    // SAFETY: the buffers are writable.
    unsafe { read_all(fd, buffers, offset, deadline) }
}

/// # Safety
/// As `read`.
unsafe fn read_all(fd: i32, buffers: &[Buffer], offset: Option<i64>, deadline: i64) -> isize {
    // SAFETY: the buffers are writable.
    off_p(deadline, KeepsThread::ForLong, || unsafe {
        until_uninterrupted(|| file::read_at(fd, buffers, offset))
    })
}

/// Writes at the offset, or at the file's own position.
///
/// # Safety
/// The buffers are readable.
pub unsafe fn write(fd: i32, buffers: &[Buffer], offset: Option<i64>, deadline: i64) -> isize {
    if is_past(deadline) {
        return -libc::ETIMEDOUT as isize;
    }
    let kept = if file::waits_for_disk(fd).1 { KeepsThread::ForLong } else { KeepsThread::Briefly };
    // SAFETY: the buffers are readable.
    off_p(deadline, kept, || unsafe { until_uninterrupted(|| file::write_at(fd, buffers, offset)) })
}

pub fn total(buffers: &[Buffer]) -> usize {
    buffers.iter().map(|b| b.iov_len).sum()
}

/// The buffers without their first `n` bytes. `None`: there is no memory.
fn rest_of(buffers: &[Buffer], mut n: usize) -> Option<Vec<Buffer>> {
    let mut rest = Vec::new();
    if !heap::reserve(&mut rest, buffers.len()) {
        return None;
    }
    for b in buffers {
        let skip = n.min(b.iov_len);
        n -= skip;
        if skip < b.iov_len {
            let at = b.iov_base.cast::<u8>().wrapping_add(skip).cast();
            rest.push(Buffer { iov_base: at, iov_len: b.iov_len - skip });
        }
    }
    Some(rest)
}
