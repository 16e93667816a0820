//! Waking those that wait in queues.

use super::queues::Queues;
use crate::bubble;
use crate::ffi::*;
use crate::worker::current;
use pyo3::prelude::*;

impl<S, const N: usize> Queues<S, N> {
    /// Calls `f` as `with`, and wakes as many of each queue as it says: at most as many as wait
    /// there.
    pub fn wake(&self, py: Python<'_>, f: impl FnOnce(&mut S, [u32; N]) -> [u32; N]) {
        bubble::step(py);
        let woken = self.note_woken(py, f);
        if woken.iter().any(|(n, _)| *n > 0) {
            current::call(py, || {
                for (n, sem) in woken.into_iter().filter(|(n, _)| *n > 0) {
                    // SAFETY: the object that has the queue is kept by the frame of the caller.
                    unsafe { gs_sem_release(sem as *mut gs_sem, i64::from(n)) };
                }
            });
        }
    }
}
