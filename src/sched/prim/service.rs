//! A thread of the runtime that sleeps until it has something to do: what sysmon, the template thread and the inspector
//! have in common.

use crate::os::futex;
use crate::os::locked::Locked;
use crate::os::thread::{self, Thread};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// What has become of a service's thread.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ServiceState {
    NotStarted = 0,
    /// The thread runs.
    Runs = 1,
    /// The system gave no thread when it was last asked.
    Refused = 2,
}

/// The thread, and the word that it sleeps on.
pub struct Service {
    /// A [`ServiceState`].
    state: AtomicU8,
    /// Changes to wake the thread.
    note: AtomicU32,
    thread: Locked<Option<Thread>>,
    /// The thread doesn't use the runtime any more.
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

    /// Whether the thread runs, or the system has refused a thread.
    pub fn was_started(&self) -> bool {
        self.state() != ServiceState::NotStarted
    }

    /// Waits until the thread has stopped using the runtime, which `Runtime::exiting` makes it do. Returns the thread, if
    /// there is one.
    pub fn end(&self) -> Option<Thread> {
        let thread = self.thread.with(Option::take)?;
        // Acquire: pairs with the Release in `leave`.
        while !self.has_left.load(Ordering::Acquire) {
            self.wake();
            thread::yield_now();
        }
        Some(thread)
    }

    /// The last thing that the thread does with the runtime.
    pub fn leave(&self) {
        // Release: pairs with the Acquire in `end`.
        self.has_left.store(true, Ordering::Release);
    }

    /// Wakes the thread, or keeps it from its next sleep.
    pub fn wake(&self) {
        self.note.fetch_add(1, Ordering::Release);
        futex::wake(&self.note, 1);
    }

    /// The note at this moment. The thread reads it before it looks for something to do: a thread that changes the note
    /// has published before what there is to do.
    pub fn note(&self) -> u32 {
        // Acquire: pairs with the Release in `wake`.
        self.note.load(Ordering::Acquire)
    }

    /// Sleeps until the deadline (ns; negative: none), unless it has been woken since `note`.
    pub fn sleep(&self, note: u32, deadline: i64) {
        futex::wait(&self.note, note, deadline);
    }
}
