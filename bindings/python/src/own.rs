//! Which threads of the process are the package's own: `os.fork` needn't warn of them.
//!
//! These are the threads of libgosched, the thread that reads signals, the watchdogs', and those
//! that run goroutines of Python. A thread counts as the program's while it runs the program's
//! code: a call of `blocking`, a goroutine beside the one that forks, the function that a watchdog
//! reports to. Such code may hold a lock that the child of a fork would wait for.

use crate::ffi::gs_own_threads;
use crate::shared::Shared;
use crate::worker::current;
use crate::{blocking, errors};
use pyo3::prelude::*;
use std::fs;

/// Threads that the package has started without libgosched, as of gettid(2). Some may have ended.
static OTHERS: Shared<Vec<i32>> = Shared::new(Vec::new());

/// What CPython says of a fork beside other threads, from 3.12 on.
const WARNING: &str = "is multi-threaded, use of ";

/// Bit of the flags of a thread that ends: `PF_EXITING` of the kernel's. It holds no lock of the
/// process any more.
const EXITING: u32 = 4;

fn this() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

/// A thread with this number is the package's.
pub fn add(py: Python<'_>, id: i32) {
    OTHERS.with(py, |others| {
        // What has ended makes room.
        others.retain(|&other| other != id && stat(other).is_some());
        others.push(id);
    });
}

/// For a thread of the package's: whether it runs the package's code from here on, or the program's.
#[pyfunction]
pub fn _own_thread(py: Python<'_>, is_own: bool) {
    if is_own {
        add(py, this());
    } else {
        OTHERS.with(py, |others| others.retain(|&other| other != this()));
    }
}

/// In the child of a fork.
pub fn forked(py: Python<'_>) {
    OTHERS.with(py, Vec::clear);
}

/// A thread's line in /proc. None: there is no such thread any more.
fn stat(id: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/self/task/{id}/stat")).ok()
}

/// Whether a thread has ended, though the kernel may still list it.
fn has_ended(id: i32) -> bool {
    let Some(stat) = stat(id) else { return true };
    // The name is in brackets, and may contain anything. Seven fields on are the flags.
    let flags = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(6));
    flags.and_then(|flags| flags.parse().ok()).is_some_and(|flags: u32| flags & EXITING != 0)
}

/// The numbers of all threads of the process.
fn all() -> std::io::Result<Vec<i32>> {
    let entries = fs::read_dir("/proc/self/task")?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().parse().unwrap_or(0)));
    names.collect()
}

/// The numbers of libgosched's threads.
fn of_library() -> PyResult<Vec<i32>> {
    let mut ids = Vec::new();
    loop {
        // SAFETY: room for that many. Never switches.
        let count = unsafe { gs_own_threads(ids.as_mut_ptr(), ids.len()) };
        errors::check(count)?;
        let count = count as usize;
        let has_all = count <= ids.len();
        ids.resize(count, 0);
        if has_all {
            return Ok(ids);
        }
    }
}

/// Whether there are threads, beside the caller's, that are not the package's own or run the
/// program's code.
fn has_program_others(py: Python<'_>) -> PyResult<bool> {
    if blocking::beside_this() {
        return Ok(true);
    }
    // Before the package's are listed: each that is here is there too, or has ended.
    let all = all()?;
    let mut own = of_library()?;
    OTHERS.with(py, |others| own.extend_from_slice(others));
    own.extend(current::idle_threads());
    let is_own = |id| id == this() || own.contains(&id) || has_ended(id);
    Ok(!all.into_iter().all(is_own))
}

/// For the filter of warnings, in the place of a regular expression's `match`: whether this is the warning that a fork
/// beside other threads gives, and all others are the package's own.
#[pyfunction]
pub fn _warns_of_own_threads(py: Python<'_>, text: &str) -> PyResult<bool> {
    Ok(text.contains(WARNING) && !has_program_others(py)?)
}
