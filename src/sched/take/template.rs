//! The template thread makes threads while a goroutine waits in the signal handler. That goroutine
//! may have a lock of the C library that `pthread_create` takes. No M waits for the template
//! thread. `PREEMPTION.md` has the protocol. Go's `startTemplateThread`.

use crate::os::thread::{self, Thread};
use crate::os::time;
use crate::sched::prim::gate::{Gate, Through};
use crate::sched::prim::service::{Service, ServiceState};
use crate::sched::run::start;
use crate::sched::types::runtime::{Runtime, rt};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// Making a thread takes less than this, in ns, unless the maker waits for a lock whose owner waits
/// for a P.
pub const STUCK: i64 = 1_000_000;

/// The template thread, and the gate that excludes waiting in the handler while a thread is made.
pub struct Template {
    pub gate: Gate,
    /// Whether sysmon must start the thread: a goroutine is to wait in the handler, and can't
    /// before.
    needed: AtomicBool,
    /// When the spare M that is not in its pool yet was asked for, in ns; 0: none is wanted.
    since: AtomicI64,
    /// The node for which the template thread must make that M; [`NONE`]: the thread has nothing to
    /// make, or has begun.
    node: AtomicUsize,
    service: Service,
}

/// `Template::node`: the template thread has no M to make.
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

    /// Whether the template thread runs.
    pub fn is_there(&self) -> bool {
        self.service.is_there()
    }

    /// Excludes the making of threads while the calling goroutine waits in the handler. `None`: it
    /// must go on for now.
    pub fn may_wait(&self) -> Option<Through<'_>> {
        if self.service.was_started() { self.gate.begin_waiting() } else { None }
    }

    /// Whether sysmon is asked to start the template thread.
    pub fn is_needed(&self) -> bool {
        self.needed.load(Ordering::Acquire)
    }

    /// Whether a spare M is wanted that is not in its pool yet.
    pub fn is_asked(&self) -> bool {
        self.since.load(Ordering::Relaxed) != 0
    }

    /// Whether that spare M takes so long that its maker may wait for a lock whose owner waits for
    /// a P.
    pub fn is_stuck(&self) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        since != 0 && time::now() - since >= STUCK
    }

    /// See [`Service::end`].
    pub fn end(&self) -> Option<Thread> {
        self.service.end()
    }
}

impl Template {
    /// Whether goroutines may be made to wait in the handler. If not, asks sysmon to start the
    /// template thread.
    pub fn is_ready(&self, rt: &Runtime) -> bool {
        let state = self.service.state();
        if state != ServiceState::Runs && !self.needed.swap(true, Ordering::AcqRel) {
            rt.sysmon.wake();
        }
        state != ServiceState::NotStarted
    }

    /// For sysmon: starts the template thread if it is needed.
    pub fn start_if_needed(&self, rt: &Runtime) {
        // The inspector comes first: no goroutine may wait in the handler while the inspector is
        // started. If the template thread was asked for after sysmon's check for the inspector,
        // `is_ready` has woken sysmon for another check.
        let is_its_turn = self.needed.load(Ordering::Acquire) && rt.inspector.was_started();
        if !is_its_turn || self.is_there() {
            return;
        }
        // If a goroutine waits already, the system has given no template thread before.
        let Some(_alone) = self.gate.begin_making() else { return };
        self.needed.store(false, Ordering::Release);
        if let Err(e) = self.service.start(main) {
            rt.lacks_threads.store(true, Ordering::Relaxed);
            rt.warn_no_thread(e);
        }
    }

    /// Makes an idle M for the node, or has the template thread make it. The M's own thread enters
    /// the M into its pool: before that, the thread may have to wait for locks of the C library.
    pub fn want_spare(&self, rt: &Runtime, node: usize) {
        let (order, now) = (Ordering::AcqRel, time::now());
        if self.since.compare_exchange(0, now, order, Ordering::Relaxed).is_err() {
            return;
        }
        let alone = if start::is_locked() { None } else { self.gate.begin_making() };
        if alone.is_some() {
            self.make(rt, node);
        } else if self.is_there() {
            self.node.store(node, Ordering::Release);
            self.service.wake();
        } else {
            // No thread can make the M: as if the system had no threads.
            let is_refused = self.service.state() == ServiceState::Refused;
            rt.lacks_threads.fetch_or(is_refused, Ordering::Relaxed);
            self.spare_came(rt);
        }
    }

    /// Notes that the spare M is in its pool, or can't be made: another may be asked for.
    pub fn spare_came(&self, rt: &Runtime) {
        self.since.store(0, Ordering::Release);
        if rt.ms_wanted.load(Ordering::Relaxed) {
            rt.sysmon.wake();
        }
    }

    /// For sysmon: joins the threads that have left, or has the template thread join them: a thread
    /// that ends also takes the lock of the C library's heap.
    pub fn reap(&self, rt: &Runtime) {
        if !rt.has_left_threads() {
            return;
        }
        match self.gate.begin_making() {
            Some(_alone) => rt.reap(),
            None => self.service.wake(),
        }
    }

    fn make(&self, rt: &Runtime, node: usize) {
        if !start::make_spare(rt, node) {
            self.spare_came(rt);
        }
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
