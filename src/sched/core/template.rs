//! The template thread: makes threads while somebody waits in the signal handler, who
//! may have a lock of the C library that `pthread_create` takes. Nobody waits for it.
//! `README.md` of this room has the protocol. startTemplateThread.

use super::start;
use crate::os::thread::{self, Thread};
use crate::os::time;
use crate::sched::who::runtime::{Runtime, rt};
use crate::sched::words::gate::{Gate, Through};
use crate::sched::words::service::Service;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicUsize, Ordering};

/// Making a thread takes less, in ns, unless it waits for one who waits for a P.
const STUCK: i64 = 1_000_000;

/// Values of `Template::state`.
const ABSENT: u8 = 0;
const THERE: u8 = 1;
/// The system gave no thread.
const FAILED: u8 = 2;

/// The thread, and whom it excludes.
pub struct Template {
    pub gate: Gate,
    state: AtomicU8,
    /// Somebody is to wait in the handler and can't before sysmon has started the thread.
    needed: AtomicBool,
    /// Since when an idle M is wanted that is not in its pool yet, in ns; 0: none is.
    since: AtomicI64,
    /// The node for which the thread is to make it; `NONE`: it isn't, or has begun.
    node: AtomicUsize,
    service: Service,
}

/// A value of `Template::node`.
const NONE: usize = usize::MAX;

impl Template {
    pub fn new() -> Template {
        Template {
            gate: Gate::new(),
            state: AtomicU8::new(ABSENT),
            needed: AtomicBool::new(false),
            since: AtomicI64::new(0),
            node: AtomicUsize::new(NONE),
            service: Service::new(),
        }
    }

    /// Whether the thread runs.
    pub fn is_there(&self) -> bool {
        self.state.load(Ordering::Acquire) == THERE
    }

    /// Whether goroutines may be made to wait in the handler. If not, sysmon starts the
    /// thread.
    pub fn is_ready(&self, rt: &Runtime) -> bool {
        let state = self.state.load(Ordering::Acquire);
        if state != THERE && !self.needed.swap(true, Ordering::AcqRel) {
            rt.sysmon.wake();
        }
        state != ABSENT
    }

    /// The calling goroutine is about to wait in the handler. `None`: it must go on for now.
    pub fn may_wait(&self) -> Option<Through<'_>> {
        (self.state.load(Ordering::Acquire) != ABSENT).then(|| self.gate.wait()).flatten()
    }

    /// Whether somebody waits for the thread to be started.
    pub fn is_needed(&self) -> bool {
        self.needed.load(Ordering::Acquire)
    }

    /// For sysmon: starts the thread if it is needed.
    pub fn start_if_needed(&self, rt: &Runtime) {
        if !self.needed.load(Ordering::Acquire) || self.is_there() {
            return;
        }
        // Only without any thread to be had somebody waits already.
        let Some(_alone) = self.gate.make() else { return };
        self.needed.store(false, Ordering::Release);
        let state = match self.service.start(main) {
            Ok(()) => THERE,
            Err(e) => {
                rt.lacks_threads.store(true, Ordering::Relaxed);
                rt.warn_no_thread(e);
                FAILED
            }
        };
        self.state.store(state, Ordering::Release);
    }

    /// Sees to it that an idle M comes for the node: makes it, or has it made. Its thread
    /// puts it into its pool: until it runs it may wait for locks of the C library.
    pub fn want_spare(&self, rt: &Runtime, node: usize) {
        let (order, now) = (Ordering::AcqRel, time::now());
        if self.since.compare_exchange(0, now, order, Ordering::Relaxed).is_err() {
            return;
        }
        let alone = if start::is_locked() { None } else { self.gate.make() };
        if alone.is_some() {
            self.make(rt, node);
        } else if self.is_there() {
            self.node.store(node, Ordering::Release);
            self.service.wake();
        } else {
            // It is as if there were none to be had.
            let failed = self.state.load(Ordering::Relaxed) == FAILED;
            rt.lacks_threads.fetch_or(failed, Ordering::Relaxed);
            self.has_come(rt);
        }
    }

    /// The M that was asked for is in its pool, or can't be had.
    pub fn has_come(&self, rt: &Runtime) {
        self.since.store(0, Ordering::Release);
        if rt.ms_wanted.load(Ordering::Relaxed) {
            rt.sysmon.wake();
        }
    }

    /// Whether one is wanted and not there yet.
    pub fn is_asked(&self) -> bool {
        self.since.load(Ordering::Relaxed) != 0
    }

    /// Whether that takes so long that somebody may wait for a lock whose owner waits for a P.
    pub fn is_stuck(&self) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        since != 0 && time::now() - since >= STUCK
    }

    /// For sysmon: joins the threads that have left, or has them joined. At its end a thread
    /// takes the C library's heap too.
    pub fn reap(&self, rt: &Runtime) {
        if !rt.has_left_threads() {
            return;
        }
        match self.gate.make() {
            Some(_alone) => rt.reap(),
            None => self.service.wake(),
        }
    }

    fn make(&self, rt: &Runtime, node: usize) {
        if !start::make_spare(rt, node) {
            self.has_come(rt);
        }
    }

    /// See [`Service::end`].
    pub fn end(&self) -> Option<Thread> {
        self.service.end()
    }
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    thread::set_up_current(c"gosched-threads");
    let rt = rt();
    let this = &rt.template;
    rt.unbind_thread();
    loop {
        let note = this.service.note();
        if rt.exiting.load(Ordering::Acquire) {
            this.service.leave();
            return ptr::null_mut();
        }
        let node = this.node.swap(NONE, Ordering::Acquire);
        if node != NONE {
            this.make(rt, node);
        }
        rt.reap();
        this.service.sleep(note, -1);
    }
}
