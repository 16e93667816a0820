//! The template thread as other threads see it. `core::template` is what it does.

use crate::os::thread::Thread;
use crate::os::time;
use crate::sched::prim::gate::{Gate, Through};
use crate::sched::prim::service::Service;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// Making a thread takes less than this, in ns, unless the maker waits for a lock whose owner waits for a P.
pub const STUCK: i64 = 1_000_000;

/// The template thread, and the gate that excludes waiting in the handler while a thread is made.
pub struct Template {
    pub gate: Gate,
    /// A goroutine must wait in the handler, and can't before sysmon has started the thread.
    pub needed: AtomicBool,
    /// Since when an idle M is wanted that is not in its pool yet, in ns; 0: none is wanted.
    pub since: AtomicI64,
    /// The node for which the template thread must make that M; `NONE`: it need not, or has begun.
    pub node: AtomicUsize,
    pub service: Service,
}

/// A value of `Template::node`.
pub const NONE: usize = usize::MAX;

impl Template {
    pub fn new() -> Template {
        Template {
            gate: Gate::new(),
            needed: AtomicBool::new(false),
            since: AtomicI64::new(0),
            node: AtomicUsize::new(NONE),
            service: Service::new(),
        }
    }

    /// Whether the thread runs.
    pub fn is_there(&self) -> bool {
        self.service.is_there()
    }

    /// The calling goroutine is about to wait in the handler. `None`: it must go on for now.
    pub fn may_wait(&self) -> Option<Through<'_>> {
        if self.service.was_started() { self.gate.begin_waiting() } else { None }
    }

    /// Whether sysmon is asked to start the thread.
    pub fn is_needed(&self) -> bool {
        self.needed.load(Ordering::Acquire)
    }

    /// Whether an M is wanted and not there yet.
    pub fn is_asked(&self) -> bool {
        self.since.load(Ordering::Relaxed) != 0
    }

    /// Whether that takes so long that the maker may wait for a lock whose owner waits for a P.
    pub fn is_stuck(&self) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        since != 0 && time::now() - since >= STUCK
    }

    /// See [`Service::end`].
    pub fn end(&self) -> Option<Thread> {
        self.service.end()
    }
}
