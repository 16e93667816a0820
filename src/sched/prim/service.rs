//! A thread of the runtime that sleeps until it has something to do, as sysmon, the template thread
//! and the inspector do.

use crate::os::futex;
use crate::os::locked::Locked;
use crate::os::thread::{self, Thread};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// The state of a service's thread.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ServiceState {
    NotStarted = 0,
    /// The thread runs.
    Runs = 1,
    /// The system gave no thread when it was last asked.
    Refused = 2,
}

/// The thread, and the word on which it sleeps.
pub struct Service {
    /// A [`ServiceState`] as a number.
    state: AtomicU8,
    /// Changed to wake the thread.
    note: AtomicU32,
    thread: Locked<Option<Thread>>,
    /// Whether the thread no longer uses the runtime.
    has_left: AtomicBool,
}

impl Service {
    pub fn new() -> Service {
        Service {
            state: AtomicU8::new(ServiceState::NotStarted as u8),
            note: AtomicU32::new(0),
            thread: Locked::new(None),
            has_left: AtomicBool::new(false),
        }
    }

    /// Starts the thread; fails with a negative errno value.
    pub fn start(&self, main: extern "C" fn(*mut c_void) -> *mut c_void) -> Result<(), i32> {
        let started = Thread::start(main, ptr::null_mut());
        let state = if started.is_ok() { ServiceState::Runs } else { ServiceState::Refused };
        let result = started.map(|started| self.thread.with(|thread| *thread = Some(started)));
        // Release: pairs with the Acquire in `state`.
        self.state.store(state as u8, Ordering::Release);
        result
    }

    pub fn state(&self) -> ServiceState {
        // Acquire: pairs with the Release in `start`.
        match self.state.load(Ordering::Acquire) {
            0 => ServiceState::NotStarted,
            1 => ServiceState::Runs,
            _ => ServiceState::Refused,
        }
    }

    /// Whether the thread runs.
    pub fn is_there(&self) -> bool {
        self.state() == ServiceState::Runs
    }

    /// Whether the thread runs, or the system has refused one.
    pub fn was_started(&self) -> bool {
        self.state() != ServiceState::NotStarted
    }

    /// Waits until the thread has stopped using the runtime, which `Runtime::exiting` makes it do.
    /// Returns the thread, if there is one.
    pub fn end(&self) -> Option<Thread> {
        let thread = self.thread.with(Option::take)?;
        // Acquire: pairs with the Release in `leave`.
        while !self.has_left.load(Ordering::Acquire) {
            self.wake();
            thread::yield_now();
        }
        Some(thread)
    }

    /// Notes that the thread uses the runtime no more: the last thing that the thread does with it.
    pub fn leave(&self) {
        // Release: pairs with the Acquire in `end`.
        self.has_left.store(true, Ordering::Release);
    }

    /// Wakes the thread, or makes its next sleep end at once.
    pub fn wake(&self) {
        self.note.fetch_add(1, Ordering::Release);
        futex::wake(&self.note, 1);
    }

    /// The note at this moment. The thread reads it before it looks for something to do: whoever
    /// changes the note publishes the work first.
    pub fn note(&self) -> u32 {
        // Acquire: pairs with the Release in `wake`.
        self.note.load(Ordering::Acquire)
    }

    /// Sleeps until the deadline (ns; negative: none), or until a wake since `note` was read.
    pub fn sleep(&self, note: u32, deadline: i64) {
        futex::wait(&self.note, note, deadline);
    }
}
