//! Memory that waits for its thread: the thread's side. See `settler`.

use super::{state, threads};
use crate::worker::ending;

/// One wait of the goroutine that keeps a thread for others: until objects wait for the thread,
/// which it frees.
///
/// # Safety
/// Called by that goroutine, outside of Python.
pub unsafe fn wait() {
    // SAFETY: as the caller says; the state is the calling thread's.
    unsafe {
        if threads::of_goroutine().wait_until_asked() {
            let state = threads::thread_state();
            ending::stop_if_finalizing();
            state::settle(state);
        }
    }
}
