//! The tasks that no P can run for now. `core::aside` has the protocol.

use super::task::Fifo;
use core::sync::atomic::AtomicI64;

/// See the module.
pub struct Aside {
    pub tasks: Fifo,
    /// When sysmon lets tasks try again, in ns.
    pub next_try: AtomicI64,
}

impl Aside {
    pub fn new() -> Aside {
        Aside { tasks: Fifo::new(), next_try: AtomicI64::new(0) }
    }
}
