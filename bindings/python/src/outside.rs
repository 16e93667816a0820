//! Leaving and entering Python around waits.
//!
//! A goroutine leaves Python before each call of the library that may switch, and enters again
//! afterwards, on the same thread. So another goroutine always finds the thread outside of Python
//! (and the GIL, if there is one, free). pyo3 is told nothing of this: its count of attached frames
//! is the thread's. A goroutine that leaves later enters again on that thread, so the count stays
//! right. For the same reason no wait happens inside `Python::detach`, which sets that count back
//! by force.
//!
//! - With a GIL each goroutine has a `PyThreadState`, and gives the GIL back with it.
//! - Without one each thread has a `PyThreadState`. A goroutine that leaves takes along what of the
//!   state is its own (`Frames`).

use crate::sys::attach::{enter, leave};
use pyo3::prelude::*;

/// Calls `f`, which may switch, outside of Python.
#[inline(always)]
pub fn outside<R>(_py: Python<'_>, f: impl FnOnce() -> R) -> R {
    // SAFETY: `_py` says that the caller is attached; `f` gets nothing of Python's.
    unsafe {
        let away = leave();
        let result = f();
        enter(away);
        result
    }
}
