//! The door that keeps goroutines out of Python at its end: needless with a GIL, which does so.

/// For a goroutine, not the main one, that is about to enter Python. It waits for the GIL, not
/// here.
#[inline(always)]
pub fn wait_until_open() {}
