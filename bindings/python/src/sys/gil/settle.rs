//! Memory that waits for its thread: with a GIL any thread frees it.

use crate::ffi::*;

/// One wait of the goroutine that keeps a thread for others.
///
/// # Safety
/// Called by that goroutine, outside of Python.
pub unsafe fn wait() {
    // SAFETY: as the caller says.
    unsafe { gs_sleep_until(GS_FOREVER) };
}
