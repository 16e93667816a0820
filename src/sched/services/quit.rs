//! The dump on SIGQUIT, which `GOSCHED_DEBUG=sigquit=1` asks for. The signal handler only wakes a
//! thread, which stops the world and writes the dump; then the program goes on.

use crate::os::locked::Locked;
use crate::os::thread::{self, Thread};
use crate::os::{futex, log, signal};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Writes a dump to a file descriptor: `gs_dump`. Given by the room above.
static DUMP: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Counts the signals. The thread sleeps on it.
static SIGNALS: AtomicU32 = AtomicU32::new(0);

/// Sets the function that writes the dump. Called when the library is loaded.
pub fn set_dump(dump: fn(fd: i32) -> i32) {
    DUMP.store(dump as *mut (), Ordering::Release);
}

/// The thread. The values of [`state`].
static STATE: AtomicU32 = AtomicU32::new(state::NONE);
static THREAD: Locked<Option<Thread>> = Locked::new(None);

mod state {
    /// There is no thread.
    pub const NONE: u32 = 0;
    pub const RUNS: u32 = 1;
    /// The thread is to end.
    pub const ENDS: u32 = 2;
    /// The thread no longer uses the runtime.
    pub const LEFT: u32 = 3;
}

/// Whether the thread is there.
pub fn is_there() -> bool {
    STATE.load(Ordering::Acquire) != state::NONE
}

/// Starts the thread, and takes the signal from the host. Called by the thread that starts the
/// runtime.
pub fn start() {
    STATE.store(state::RUNS, Ordering::Release);
    // Signals that come before the thread runs count.
    let seen = SIGNALS.load(Ordering::Relaxed);
    match Thread::start(main, ptr::without_provenance_mut(seen as usize)) {
        Ok(started) => {
            THREAD.with(|thread| *thread = Some(started));
            signal::on_quit(note_signal);
        }
        Err(e) => {
            STATE.store(state::NONE, Ordering::Release);
            log::say(format_args!("gosched: no thread for dumps on SIGQUIT: error {}", -e));
        }
    }
}

/// Gives the signal back, and ends the thread, if there is one. Called by the thread that ends the
/// runtime.
pub fn end() -> Option<Thread> {
    if !is_there() {
        return None;
    }
    signal::end_quit();
    STATE.store(state::ENDS, Ordering::Release);
    // Acquire: pairs with the Release in `main`.
    while STATE.load(Ordering::Acquire) != state::LEFT {
        note_signal();
        thread::yield_now();
    }
    STATE.store(state::NONE, Ordering::Release);
    THREAD.with(Option::take)
}

/// In the child of a fork, which lacks the thread.
pub fn forked() {
    if is_there() {
        STATE.store(state::NONE, Ordering::Relaxed);
        // SAFETY: the child has one thread, and `start` and `end` exclude a fork.
        unsafe { THREAD.reset() };
        THREAD.with(|thread| *thread = None);
        signal::end_quit();
    }
}

/// In the signal handler.
fn note_signal() {
    // Release: pairs with the Acquire in `main`.
    SIGNALS.fetch_add(1, Ordering::Release);
    futex::wake_in_handler(&SIGNALS, 1);
}

/// `seen`: how many signals had come before the thread was started.
extern "C" fn main(seen: *mut c_void) -> *mut c_void {
    thread::set_up_current(c"gosched-quit");
    let mut seen = seen.addr() as u32;
    loop {
        futex::wait(&SIGNALS, seen, -1);
        let now = SIGNALS.load(Ordering::Acquire);
        // Acquire: pairs with the Release in `end`.
        if STATE.load(Ordering::Acquire) == state::ENDS {
            STATE.store(state::LEFT, Ordering::Release);
            return ptr::null_mut();
        }
        if now != seen {
            let dump = DUMP.load(Ordering::Acquire);
            // SAFETY: only `set_dump` stores, and such a function.
            let dump: fn(i32) -> i32 = unsafe { core::mem::transmute(dump) };
            dump(2);
            seen = now;
        }
    }
}
