//! The inspector: a thread that reads under /proc what the kernel knows of other threads.
//! It has a table of file descriptors of its own, so the process never misses a number
//! while a file is open here. sysmon and whoever stops the world ask it; it is started
//! when it is first needed.

use crate::os::{
    file, futex,
    spin::SpinLock,
    thread::{self, Thread},
};
use crate::sched::who::runtime::{Runtime, rt};
use crate::sched::words::service::Service;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, Ordering};

/// Values of `Inspector::state`.
const ABSENT: u8 = 0;
const THERE: u8 = 1;
/// The system gave no thread.
const FAILED: u8 = 2;

/// Values of `Inspector::answer`.
const NONE_YET: u32 = 0;
const BLOCKED: u32 = 1;
const NOT_BLOCKED: u32 = 2;

/// A look takes less, in ns; the least that the kernel knows.
const TURN: u64 = 100_000;

pub struct Inspector {
    state: AtomicU8,
    /// Somebody has asked before the thread was there.
    needed: AtomicBool,
    /// Held by the asker until it has its answer.
    asking: SpinLock,
    /// The number of the thread that is asked about; 0: none.
    thread: AtomicI32,
    answer: AtomicU32,
    /// No thread asks any more.
    ends: AtomicBool,
    service: Service,
}

impl Inspector {
    pub fn new() -> Inspector {
        Inspector {
            state: AtomicU8::new(ABSENT),
            needed: AtomicBool::new(false),
            asking: SpinLock::new(),
            thread: AtomicI32::new(0),
            answer: AtomicU32::new(NONE_YET),
            ends: AtomicBool::new(false),
            service: Service::new(),
        }
    }

    /// Whether the thread runs.
    pub fn is_there(&self) -> bool {
        // Acquire: pairs with the Release in `start_if_needed`.
        self.state.load(Ordering::Acquire) == THERE
    }

    /// For sysmon: starts the thread if it is needed. Once somebody waits in the handler,
    /// which the template thread is needed for, it could not be started any more.
    pub fn start_if_needed(&self, rt: &Runtime) {
        let needed = self.needed.load(Ordering::Acquire) || rt.template.is_needed();
        if !needed || self.state.load(Ordering::Acquire) != ABSENT {
            return;
        }
        let Some(_alone) = rt.template.gate.make() else { return };
        let state = if self.service.start(main).is_ok() { THERE } else { FAILED };
        self.state.store(state, Ordering::Release);
    }

    /// See [`Service::end`]. Those who ask have ended: one that asks waits for its answer.
    pub fn end(&self) -> Option<Thread> {
        // Release: pairs with the Acquire in `main`.
        self.ends.store(true, Ordering::Release);
        self.service.end()
    }

    /// Whether the thread with this number is blocked in the kernel right now; false also if
    /// that can't be told at all. `None`: ask again soon.
    pub fn is_blocked(&self, rt: &Runtime, id: i32) -> Option<bool> {
        match self.state.load(Ordering::Acquire) {
            THERE => {}
            FAILED => return Some(false),
            _ => {
                if !self.needed.swap(true, Ordering::AcqRel) {
                    rt.sysmon.wake();
                }
                return None;
            }
        }
        if !self.asking.try_lock() {
            return None;
        }
        self.answer.store(NONE_YET, Ordering::Relaxed);
        // Release: pairs with the Acquire in `main`.
        self.thread.store(id, Ordering::Release);
        self.service.wake();
        let answer = loop {
            // Acquire: pairs with the Release in `main`.
            match self.answer.load(Ordering::Acquire) {
                NONE_YET => futex::wait(&self.answer, NONE_YET, -1),
                answer => break answer,
            };
        };
        self.asking.unlock();
        Some(answer == BLOCKED)
    }
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    thread::set_up_current(c"gosched-look");
    thread::ask_for_short_turns(TURN);
    let has_own_table = file::use_own_table();
    let rt = rt();
    let this = &rt.inspector;
    loop {
        let note = this.service.note();
        // Acquire: pairs with the Release in `end`.
        if this.ends.load(Ordering::Acquire) {
            this.service.leave();
            return ptr::null_mut();
        }
        // Acquire: pairs with the Release in `is_blocked`.
        let id = this.thread.swap(0, Ordering::Acquire);
        if id != 0 {
            let blocked = has_own_table && thread::is_blocked(id);
            let answer = if blocked { BLOCKED } else { NOT_BLOCKED };
            // Release: pairs with the Acquire in `is_blocked`.
            this.answer.store(answer, Ordering::Release);
            futex::wake(&this.answer, 1);
        }
        this.service.sleep(note, -1);
    }
}
