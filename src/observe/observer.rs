//! A thread of the library that shows the runtime to people. It runs no goroutine and has no P, so
//! nothing waits for it but the runtime's end.

use crate::os::bell::{AtomicBell, Bell};
use crate::os::thread::{self, Thread};
use crate::os::{file, heap};
use crate::sched::types::runtime::rt;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// One such thread: there is at most one for each runtime, and there is one runtime at a time.
pub struct Observer {
    /// Rings when the thread is to end.
    bell: AtomicBell,
    /// The thread, in a box of its own; null: there is none.
    thread: AtomicPtr<Thread>,
    /// Whether the thread is to end.
    ends: AtomicBool,
    /// Whether the thread uses the runtime no more.
    has_left: AtomicBool,
}

impl Observer {
    pub const fn new() -> Observer {
        Observer {
            bell: AtomicBell::none(),
            thread: AtomicPtr::new(ptr::null_mut()),
            ends: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        }
    }

    /// Starts the thread, when a runtime has begun. Fails with a negative errno value.
    pub fn start(&self, main: extern "C" fn(*mut c_void) -> *mut c_void) -> Result<(), i32> {
        if !heap::has_room(size_of::<Thread>()) {
            return Err(-libc::ENOMEM);
        }
        let bell = Bell::new()?;
        self.bell.store(Some(bell));
        self.ends.store(false, Ordering::Relaxed);
        self.has_left.store(false, Ordering::Relaxed);
        // Release: pairs with the Acquire in `threads_that_cannot_wake`.
        rt().observers.fetch_add(1, Ordering::Release);
        // The thread sees these stores: pthread_create(3) orders them.
        match Thread::start(main, ptr::null_mut()) {
            Ok(thread) => {
                self.thread.store(Box::into_raw(Box::new(thread)), Ordering::Relaxed);
                Ok(())
            }
            Err(e) => {
                rt().observers.fetch_sub(1, Ordering::Release);
                self.bell.store(None);
                bell.close();
                Err(e)
            }
        }
    }

    /// Ends the thread, if there is one, and waits until it uses the runtime no more. Returns the
    /// thread, which the caller joins.
    pub fn end(&self) -> Option<Thread> {
        let thread = self.thread.swap(ptr::null_mut(), Ordering::Relaxed);
        let bell = self.bell.load()?;
        if thread.is_null() {
            return None;
        }
        // Release: pairs with the Acquire in `must_end`.
        self.ends.store(true, Ordering::Release);
        bell.ring();
        // Acquire: pairs with the Release in `leave`.
        while !self.has_left.load(Ordering::Acquire) {
            thread::yield_now();
        }
        self.bell.store(None);
        bell.close();
        // SAFETY: `start` has made the box, and the exchange gives it to one caller.
        Some(*unsafe { Box::from_raw(thread) })
    }

    /// In the child of a fork, which has no such thread.
    pub fn forked(&self) {
        if let Some(bell) = self.bell.load() {
            self.bell.store(None);
            bell.close();
        }
        // The thread is the parent's. Its box is lost, because the parent may have been about to
        // free it.
        self.thread.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// For the thread: whether it must end.
    pub fn must_end(&self) -> bool {
        // Acquire: pairs with the Release in `end`.
        self.ends.load(Ordering::Acquire)
    }

    /// For the thread: notes that it uses the runtime no more.
    pub fn leave(&self) {
        // Release: pairs with the Acquire in `end`.
        self.has_left.store(true, Ordering::Release);
    }

    /// The descriptor that is readable when the thread must end.
    pub fn to_poll(&self) -> i32 {
        self.bell.load().map_or(-1, Bell::to_poll)
    }

    /// For the thread: sleeps until the deadline (ns), or until it must end.
    pub fn sleep(&self, deadline: i64) {
        file::poll_two(NO_FILE, 0, self.to_poll(), deadline);
    }

    /// For the thread: writes `text`, at most `PIPE_BUF` bytes, when the file takes it. 0, or a
    /// negative errno value; `-ECANCELED`: the thread must end.
    pub fn write(&self, fd: i32, text: &[u8]) -> i32 {
        file::poll_two(fd, libc::POLLOUT, self.to_poll(), FOREVER);
        if self.must_end() { -libc::ECANCELED } else { file::write_whole(fd, text) }
    }
}

/// A number that poll(2) ignores.
const NO_FILE: i32 = -1;
/// A deadline that never passes.
const FOREVER: i64 = -1;
