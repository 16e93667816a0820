//! Files on disks. poll(2) says that they are always ready, but a call may block its thread. So the
//! pool's threads read data that is not in memory, and write data that must reach the disk. Calls
//! that only copy are made between `entersyscall` and `exitsyscall`.

use super::error::{EAGAIN, ECANCELED, ETIMEDOUT};
use super::file::File;
use super::known::Manner;
use super::ops::OTHER_KIND;
use super::wait::{is_past, until_uninterrupted};
use crate::os::file::{self, Buffer, FileKind};
use crate::os::heap;
use crate::sched::prim::clock;
use crate::sched::run::order;
use crate::sched::run::park::NOWAIT;
use crate::sched::services::workers;
use crate::sched::take::call;
use crate::sched::types::m;
use crate::sched::types::runtime::rt;
use crate::sync::Sem;

/// Calls that keep a thread at one time, at most. Further calls wait for their turn without a
/// thread.
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
    /// Usually not at all, because the call only copies.
    Briefly,
}

/// Calls `f`, which may keep the thread for a while. A negative errno value if the deadline passes
/// before the caller's turn comes.
pub(super) fn off_p(deadline: i64, kept: KeepsThread, f: impl FnOnce() -> isize) -> isize {
    // In a bubble only the bubble's own thread makes calls.
    let Some(m) = m::on_goroutine().filter(|m| m.bubble().is_none()) else { return f() };
    // A locked goroutine may rely on its thread, for instance on the thread's own table of files:
    // `f` runs there.
    let is_locked = m.is_locked();
    let e = USERS.acquire(1, deadline);
    if e != 0 {
        return e as isize;
    }
    let rt = rt();
    // A goroutine that is alone is quicker on its own thread: no other goroutine needs the P.
    let alone = || {
        m::on_goroutine().is_some_and(|m| order::nothing_else(m, m.p())) && rt.workers.is_unused()
    };
    let left = match kept {
        KeepsThread::ForLong if !is_locked && !alone() => rt.workers.call(rt, f),
        _ => Err(f),
    };
    let result = left.unwrap_or_else(|f| {
        call::enter();
        let result = f();
        call::exit();
        result
    });
    USERS.release(1);
    result
}

/// A call that took longer than this, in ns, has waited for the disk, although it should not.
const LONG: i64 = 100_000;

/// Calls `f`, which should not wait for the disk. If `f` seems to have waited, asks the kernel
/// again which calls on the file wait. The time is taken from the clock that sysmon keeps: reading
/// the real clock would take a tenth of the call.
fn not_to_wait(file: &File, f: impl FnOnce() -> isize) -> isize {
    let before = clock::rough();
    let result = f();
    if clock::rough() - before > LONG {
        file.known.forget_manner();
    }
    result
}

/// Whether the call is safe from waiting for ever: the number may be another file by now. Other
/// files than those on disks refuse a call at an offset; without an offset the kernel is asked.
fn is_on_disk(fd: i32, offset: Option<i64>) -> bool {
    offset.is_some() || file::has_position(fd) || file::kind(fd) == Ok(FileKind::Disk)
}

/// A call on a file on a disk.
struct Call<'a> {
    fd: i32,
    file: &'a File,
    /// The file's generation when the call began.
    generation: u32,
    deadline: i64,
}

/// Reads at the offset, or at the file's own position. [`OTHER_KIND`]: the file is on no disk.
///
/// # Safety
/// The buffers are writable.
pub unsafe fn read(
    fd: i32,
    file: &File,
    buffers: &[Buffer],
    offset: Option<i64>,
    deadline: i64,
) -> isize {
    match Call::begin(fd, file, deadline) {
        // SAFETY: the buffers are writable.
        Ok(call) => unsafe { call.read(buffers, offset) },
        Err(e) => e,
    }
}

/// Writes at the offset, or at the file's own position. [`OTHER_KIND`]: the file is on no disk.
///
/// # Safety
/// The buffers are readable.
pub unsafe fn write(
    fd: i32,
    file: &File,
    buffers: &[Buffer],
    offset: Option<i64>,
    deadline: i64,
) -> isize {
    match Call::begin(fd, file, deadline) {
        // SAFETY: the buffers are readable.
        Ok(call) => unsafe { call.write(buffers, offset) },
        Err(e) => e,
    }
}

/// Makes the system call `f` unless `gs_close` has closed the file since the call began: the number
/// may be another file by now.
pub(super) fn if_still(file: &File, generation: u32, f: impl FnMut() -> isize) -> isize {
    if file.is_still(generation) { until_uninterrupted(f) } else { ECANCELED }
}

impl Call<'_> {
    /// `Err`: the call can't begin, and returns this.
    fn begin(fd: i32, file: &File, deadline: i64) -> Result<Call<'_>, isize> {
        if is_past(deadline) {
            return Err(ETIMEDOUT);
        }
        let generation = file.generation().ok_or(ECANCELED)?;
        Ok(Call { fd, file, generation, deadline })
    }

    /// # Safety
    /// The buffers are writable.
    unsafe fn read(&self, buffers: &[Buffer], offset: Option<i64>) -> isize {
        let manner = self.manner_to_read();
        if manner.reads_wait() {
            // SAFETY: the buffers are writable.
            return unsafe { self.read_from_disk(buffers, offset) };
        }
        if manner.cant_tell() {
            // SAFETY: the buffers are writable.
            return unsafe { self.read_blindly(buffers, offset) };
        }
        // SAFETY: the buffers are writable.
        let first = not_to_wait(self.file, || unsafe { self.read_now(buffers, offset) });
        let is_short = first > 0 && (first as usize) < total(buffers);
        match first {
            // SAFETY: the buffers are writable.
            EAGAIN => unsafe { self.read_from_disk(buffers, offset) },
            e if file::cant_tell(e) => {
                self.file.known.note_cant_tell();
                // SAFETY: the buffers are writable.
                unsafe { self.read_blindly(buffers, offset) }
            }
            // A further read from a file that isn't on a disk might wait, or take the next
            // datagram.
            n if is_short && self.deadline != NOWAIT && is_on_disk(self.fd, offset) => {
                // SAFETY: the buffers are writable.
                unsafe { self.read_more(buffers, n as usize, offset) }
            }
            result => result,
        }
    }

    /// How a read behaves. The known manner is only a hint, so for a read that must not wait the
    /// kernel is asked again.
    fn manner_to_read(&self) -> Manner {
        let known = self.file.known.manner_of_disk(self.fd);
        if !known.reads_wait() || self.deadline != NOWAIT {
            return known;
        }
        self.file.known.forget_manner();
        self.file.known.manner_of_disk(self.fd)
    }

    /// Only `n` bytes of the buffers were in memory: reads up to the end of the buffers, or of the
    /// file.
    ///
    /// # Safety
    /// As `read`.
    unsafe fn read_more(&self, buffers: &[Buffer], mut n: usize, offset: Option<i64>) -> isize {
        while n < total(buffers) {
            // Without memory it is a short read.
            let Some(rest) = rest_of(buffers, n) else { break };
            let offset = offset.map(|o| o + n as i64);
            // SAFETY: what is left of the buffers.
            let more = match unsafe { self.read_now(&rest, offset) } {
                // SAFETY: what is left of the buffers.
                EAGAIN => unsafe { self.read_from_disk(&rest, offset) },
                more => more,
            };
            if more <= 0 {
                break;
            }
            n += more as usize;
        }
        n as isize
    }

    /// Reads data that is in memory. `-EAGAIN`: there is none.
    ///
    /// # Safety
    /// As `read`.
    unsafe fn read_now(&self, buffers: &[Buffer], offset: Option<i64>) -> isize {
        // SAFETY: the buffers are writable.
        self.if_still(|| unsafe { file::read_now(self.fd, buffers, offset) })
    }

    /// Reads data that must come from the disk.
    ///
    /// # Safety
    /// As `read`.
    unsafe fn read_from_disk(&self, buffers: &[Buffer], offset: Option<i64>) -> isize {
        if !is_on_disk(self.fd, offset) {
            return OTHER_KIND;
        }
        if self.deadline == NOWAIT {
            return EAGAIN;
        }
        // SAFETY: the buffers are writable.
        let read = || unsafe { file::read_at(self.fd, buffers, offset) };
        off_p(self.deadline, KeepsThread::ForLong, || self.if_still(read))
    }

    /// Reads from a file for which the kernel can't tell whether the data is in memory.
    ///
    /// # Safety
    /// As `read`.
    unsafe fn read_blindly(&self, buffers: &[Buffer], offset: Option<i64>) -> isize {
        if !is_on_disk(self.fd, offset) {
            return OTHER_KIND;
        }
        // SAFETY: the buffers are writable.
        let read = || unsafe { file::read_at(self.fd, buffers, offset) };
        self.briefly(|| self.if_still(read))
    }

    /// # Safety
    /// The buffers are readable.
    unsafe fn write(&self, buffers: &[Buffer], offset: Option<i64>) -> isize {
        if !is_on_disk(self.fd, offset) {
            return OTHER_KIND;
        }
        // SAFETY: the buffers are readable.
        let write = || unsafe { file::write_at(self.fd, buffers, offset) };
        match self.file.known.manner_of_disk(self.fd).writes_wait() {
            true => off_p(self.deadline, KeepsThread::ForLong, || self.if_still(write)),
            false => self.briefly(|| self.if_still(write)),
        }
    }

    /// [`off_p`] for a call that should not wait for the disk.
    fn briefly(&self, f: impl FnOnce() -> isize) -> isize {
        not_to_wait(self.file, || off_p(self.deadline, KeepsThread::Briefly, f))
    }

    fn if_still(&self, f: impl FnMut() -> isize) -> isize {
        if_still(self.file, self.generation, f)
    }
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
