//! The inspector: a thread that reads under /proc what the kernel knows of other threads. Its table
//! of file descriptors is its own, so its open files take no number of the process. It answers
//! sysmon and the stopper of the world, and stops strays that are not blocked. The thread is
//! started when it is first needed.

use crate::os::spin::LongLock;
use crate::os::thread::{self, State, Thread, Turns};
use crate::os::{file, futex, time};
use crate::sched::prim::service::{Service, ServiceState};
use crate::sched::run::requests;
use crate::sched::take::preempt;
use crate::sched::types::m::{M, MRef};
use crate::sched::types::runtime::{Runtime, rt};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, Ordering};

/// A value of `Inspector::answer`: the inspector has not answered yet.
pub const NONE_YET: u32 = 0;
/// Other values of `Inspector::answer`, one for each [`State`].
const RUNS: u32 = 1;
const IN_CALL: u32 = 2;
const IN_FAULT: u32 = 3;

/// The value of `Inspector::answer` for this state.
pub fn answer_of(state: State) -> u32 {
    match state {
        State::Runs => RUNS,
        State::InCall => IN_CALL,
        State::InFault => IN_FAULT,
    }
}

fn state_of(answer: u32) -> State {
    match answer {
        IN_CALL => State::InCall,
        IN_FAULT => State::InFault,
        _ => State::Runs,
    }
}

/// The longest time that an asking thread waits, in ns. On an idle CPU the inspector needs 30 to
/// 100 us.
const PATIENCE: i64 = 200_000;

/// The largest age, in ns, that an answer may have when the caller asks. An older one is used only
/// if the thread was blocked and has not run since.
const OLD: i64 = 100_000;

/// The most strays that may wait for the inspector. sysmon finds others.
const STRAYS: usize = 4;

pub struct Inspector {
    /// A thread has asked before the inspector's thread was there.
    needed: AtomicBool,
    /// Held by a thread that asks, for `PATIENCE` at most.
    asking: LongLock,
    /// The question: the kernel's number of a thread; 0: none. The inspector takes it.
    thread: AtomicI32,
    /// The thread of the last question until its answer is used; then 0. Changed with `asking`
    /// held.
    asked: AtomicI32,
    /// The answer to the last question. Written before it: `answered_at`, the time of the answer in
    /// ns, and `ran`, the thread's CPU time in ns just before the inspector looked.
    answer: AtomicU32,
    answered_at: AtomicI64,
    ran: AtomicI64,
    /// A thread has stopped waiting for the answer: the inspector wakes sysmon, which asks again.
    is_late: AtomicBool,
    /// M's whose threads are to get the preemption signal unless they are blocked.
    strays: [AtomicPtr<M>; STRAYS],
    /// Set when no thread asks any more.
    ends: AtomicBool,
    service: Service,
}

impl Inspector {
    pub fn new() -> Inspector {
        Inspector {
            needed: AtomicBool::new(false),
            asking: LongLock::new(),
            thread: AtomicI32::new(0),
            asked: AtomicI32::new(0),
            answer: AtomicU32::new(NONE_YET),
            answered_at: AtomicI64::new(0),
            ran: AtomicI64::new(0),
            is_late: AtomicBool::new(false),
            strays: [const { AtomicPtr::new(ptr::null_mut()) }; STRAYS],
            ends: AtomicBool::new(false),
            service: Service::new(),
        }
    }

    /// Whether the thread runs.
    pub fn is_there(&self) -> bool {
        self.service.is_there()
    }

    /// Whether the thread runs, or the system has refused a thread.
    pub fn was_started(&self) -> bool {
        self.service.was_started()
    }

    /// Ends the thread, when no thread asks any more: see [`Service::end`].
    pub fn end(&self) -> Option<Thread> {
        // Release: pairs with the Acquire in `main`.
        self.ends.store(true, Ordering::Release);
        self.service.end()
    }

    /// What the thread of this M does right now; `Runs` also if the inspector can't be had. `None`:
    /// ask again soon. Notes in the M that the thread is blocked.
    pub fn state(&self, rt: &Runtime, m: MRef) -> Option<State> {
        match self.service.state() {
            ServiceState::Runs => {}
            ServiceState::Refused => return Some(State::Runs),
            ServiceState::NotStarted => {
                self.need(rt);
                return None;
            }
        }
        if !self.asking.try_lock() {
            return None;
        }
        let state = self.ask(m.tid.load(Ordering::Relaxed));
        if let Some(state) = state {
            m.was_seen(state, self.ran.load(Ordering::Relaxed));
        }
        // SAFETY: `try_lock` has locked it.
        unsafe { self.asking.unlock() };
        state
    }

    /// Lets sysmon start the thread, unless that was tried before.
    fn need(&self, rt: &Runtime) {
        if !self.needed.swap(true, Ordering::AcqRel) {
            rt.sysmon.wake();
        }
    }

    /// Has the inspector send the preemption signal to a thread that lost its P while on no CPU, if
    /// the thread is not blocked. If the inspector isn't there yet, or has too many M's to check,
    /// sysmon finds the stray later.
    pub fn stop_stray(&self, rt: &Runtime, m: MRef) {
        if !self.is_there() {
            return self.need(rt);
        }
        let put = |slot: &AtomicPtr<M>| {
            // Release: pairs with the Acquire in `take_strays`.
            slot.compare_exchange(ptr::null_mut(), m.as_ptr(), Ordering::Release, Ordering::Relaxed)
                .is_ok()
        };
        if self.strays.iter().any(put) {
            self.service.wake();
        }
    }

    /// Takes out the M's that `stop_stray` has put in. For the inspector.
    pub fn take_strays(&self) -> impl Iterator<Item = MRef> {
        // Acquire: pairs with the Release in `stop_stray`.
        let taken = self.strays.iter().map(|slot| slot.swap(ptr::null_mut(), Ordering::Acquire));
        // SAFETY: M's stay mapped until shutdown, which ends the inspector first.
        taken.filter(|m| !m.is_null()).map(|m| unsafe { MRef::from_ptr(m) })
    }

    /// Asks the inspector, and waits for `PATIENCE` at most: the inspector may get no CPU for some
    /// ms, and sysmon has other P's to look after. A late answer goes to a later call, if it is
    /// still new enough. Called with `asking` held.
    fn ask(&self, id: i32) -> Option<State> {
        let began = time::now();
        let deadline = began + PATIENCE;
        loop {
            let asked = self.asked.load(Ordering::Relaxed);
            if asked == 0 {
                self.asked.store(id, Ordering::Relaxed);
                self.answer.store(NONE_YET, Ordering::Relaxed);
                // Release: pairs with the Acquire in `main`.
                self.thread.store(id, Ordering::Release);
                self.service.wake();
            }
            let state = state_of(self.wait_for_answer(deadline)?);
            self.asked.store(0, Ordering::Relaxed);
            let is_new = self.answered_at.load(Ordering::Relaxed) >= began - OLD
                || state != State::Runs
                    && thread::cpu_time(id) == Some(self.ran.load(Ordering::Relaxed));
            if asked == 0 || asked == id && is_new {
                return Some(state);
            }
            // That was the answer to an earlier question.
        }
    }

    /// Waits for the answer. `None`: the deadline has passed.
    fn wait_for_answer(&self, deadline: i64) -> Option<u32> {
        let answered = || {
            // Acquire: pairs with the store in `main`. SeqCst: see below.
            Some(self.answer.load(Ordering::SeqCst)).filter(|&answer| answer != NONE_YET)
        };
        loop {
            if let Some(answer) = answered() {
                return Some(answer);
            }
            if !futex::wait(&self.answer, NONE_YET, deadline) {
                // SeqCst: pairs with `main`: this thread sees the answer, or the inspector sees
                // that it is late.
                self.is_late.store(true, Ordering::SeqCst);
                return answered();
            }
        }
    }
}

impl Inspector {
    /// Starts the thread if it is needed. For sysmon. Must come before a goroutine waits in the
    /// handler, because then only the template thread may make threads.
    pub fn start_if_needed(&self, rt: &Runtime) {
        let needed = self.needed.load(Ordering::Acquire) || rt.template.is_needed();
        if !needed || self.was_started() {
            return;
        }
        let Some(_alone) = rt.template.gate.begin_making() else { return };
        // If the system refuses the thread, it is not asked again: `state` returns `Runs` from then
        // on.
        let _ = self.service.start(main);
    }
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    thread::set_up_current(c"gosched-look");
    thread::ask_for_turns(0, Turns::Short);
    let has_own_table = file::use_own_table();
    // The CPU time is read before the state: if the thread is blocked and runs later, its CPU time
    // changes.
    let look_at = |id| {
        let ran = thread::cpu_time(id).unwrap_or(0);
        (ran, if has_own_table { thread::state(id) } else { State::Runs })
    };
    let rt = rt();
    let this = &rt.inspector;
    loop {
        let note = this.service.note();
        // Acquire: pairs with the Release in `end`.
        if this.ends.load(Ordering::Acquire) {
            this.service.leave();
            return ptr::null_mut();
        }
        // Acquire: pairs with the Release in `Inspector::ask`.
        let id = this.thread.swap(0, Ordering::Acquire);
        if id != 0 {
            let (ran, state) = look_at(id);
            this.ran.store(ran, Ordering::Relaxed);
            this.answered_at.store(time::now(), Ordering::Relaxed);
            // SeqCst: pairs with `wait_for_answer`, which sees the answer or has already noted that
            // it is late.
            this.answer.store(answer_of(state), Ordering::SeqCst);
            futex::wake(&this.answer, 1);
            if this.is_late.swap(false, Ordering::SeqCst) {
                rt.sysmon.wake();
            }
        }
        for m in this.take_strays() {
            let (ran, state) = look_at(m.tid.load(Ordering::Relaxed));
            if state == State::Runs || state == State::InFault && requests::is_stopping() {
                preempt::interrupt_stray(rt, m);
            }
            m.was_seen(state, ran);
        }
        this.service.sleep(note, -1);
    }
}
