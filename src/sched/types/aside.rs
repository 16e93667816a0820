//! The tasks that no P can run for now. `core::aside` has the protocol.

use super::task::Fifo;
use core::sync::atomic::AtomicI64;

/// See the module.
pub struct Aside {
    /// Tasks for which there was no stack of the default size, and of another size.
    pub default_stacks: Fifo,
    pub other_stacks: Fifo,
    /// Goroutines that must not run on a thread that `gs_run` has borrowed, when there was no other thread.
    pub threads: Fifo,
    /// When sysmon lets tasks try again, in ns.
    pub next_try: AtomicI64,
}

impl Aside {
    pub fn new() -> Aside {
        Aside {
            default_stacks: Fifo::new(),
            other_stacks: Fifo::new(),
            threads: Fifo::new(),
            next_try: AtomicI64::new(0),
        }
    }

    /// Whether no task waits.
    pub fn is_empty(&self) -> bool {
        !self.lacks_stacks() && !self.lacks_threads()
    }

    /// Whether tasks wait for a stack.
    #[inline(always)]
    pub fn lacks_stacks(&self) -> bool {
        !self.default_stacks.is_empty() || !self.other_stacks.is_empty()
    }

    /// Whether goroutines wait for a thread.
    #[inline(always)]
    pub fn lacks_threads(&self) -> bool {
        !self.threads.is_empty()
    }
}
