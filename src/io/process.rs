//! Waiting for children and for signals.

use super::error::EAGAIN;
use super::ops::{self, Pause};
use super::wait::is_past;
use crate::os::file::Buffer;
use crate::os::process::{self, SignalRecord, SignalSet};
use crate::sched::run::park::NOWAIT;
use crate::sched::types::runtime::Visit;

/// waitpid(2). For one child given by its number, waits for a file that reports the child's end.
/// Otherwise checks at intervals, because no file reports that one of several children has changed.
///
/// # Safety
/// `status` is null or writable.
pub unsafe fn wait(pid: i32, status: *mut i32, options: i32, deadline: i64) -> i32 {
    let mut file: Option<i32> = None;
    let mut pause = Pause::new();
    let result = loop {
        // SAFETY: `status` is null or writable.
        match unsafe { process::wait_now(pid, status, options) } {
            0 if options & libc::WNOHANG == 0 => {}
            e if e == -libc::EINTR => continue,
            result => break result,
        }
        if deadline == NOWAIT {
            break -libc::EAGAIN;
        }
        if is_past(deadline) {
            break -libc::ETIMEDOUT;
        }
        if file.is_none() && pid > 0 && options == 0 {
            match process::open(pid) {
                // Another thread has waited for it just now.
                e if e == -libc::ESRCH => continue,
                fd if fd >= 0 => file = Some(fd),
                _ => {}
            }
        }
        let waited = match file {
            Some(fd) => ops::poll(fd, libc::POLLIN, deadline) as i32,
            None => pause.sleep(deadline),
        };
        // A deadline that has passed is found above, after a last check.
        if waited < 0 && waited != -libc::ETIMEDOUT {
            break waited;
        }
    };
    if let Some(fd) = file {
        ops::close(fd);
    }
    result
}

/// sigtimedwait(2): takes one of the signals. Returns its record, or a negative errno value;
/// `-EINVAL`: the set is empty, or has the signal that preempts goroutines.
pub fn wait_for_signal(set: &SignalSet, deadline: i64) -> Result<SignalRecord, i32> {
    if process::is_empty(set) || process::has_signal(set, preempt_signal()) {
        return Err(-libc::EINVAL);
    }
    let fd = process::open_signals(set);
    if fd < 0 {
        return Err(fd);
    }
    let mut record = process::no_record();
    let buffer = Buffer { iov_base: (&raw mut record).cast(), iov_len: size_of::<SignalRecord>() };
    // The first read comes before any check of the deadline: a signal that is pending counts even
    // if the deadline has passed.
    // SAFETY: the buffer is writable.
    let read = |deadline| unsafe { ops::read(fd, &[buffer], deadline) };
    let result = match read(NOWAIT) {
        EAGAIN if deadline != NOWAIT => read(deadline),
        result => result,
    };
    ops::close(fd);
    if result > 0 { Ok(record) } else { Err(result as i32) }
}

/// The signal that preempts goroutines, or will preempt them in the next runtime; 0: none.
fn preempt_signal() -> i32 {
    Visit::begin().map_or(libc::SIGURG, |rt| rt.preempt_signal)
}
