//! How a thread asks the inspector. `watch::inspector` is what the inspector does.

use super::runtime::Runtime;
use crate::os::{futex, spin::SpinLock, thread::Thread};
use crate::sched::words::service::Service;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, Ordering};

/// Values of `Inspector::state`.
pub const ABSENT: u8 = 0;

pub const THERE: u8 = 1;

/// The system gave no thread.
pub const FAILED: u8 = 2;

/// Values of `Inspector::answer`.
pub const NONE_YET: u32 = 0;

pub const BLOCKED: u32 = 1;

pub const NOT_BLOCKED: u32 = 2;

pub struct Inspector {
    pub state: AtomicU8,
    /// A thread has asked before the inspector was there.
    pub needed: AtomicBool,
    /// Held by the asker until it has its answer.
    pub asking: SpinLock,
    /// The kernel's number of the thread in question; 0: none.
    pub thread: AtomicI32,
    pub answer: AtomicU32,
    /// No thread asks any more.
    pub ends: AtomicBool,
    pub service: Service,
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

    /// See [`Service::end`]. No asker is left: an asker waits for its answer.
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
