//! Whether a tool is attached to a USDT probe (`sched::run::probes`), so that the scheduler tells
//! what it does although no events are recorded.
//!
//! sysmon looks at the count of the tools. When the count becomes 0 or is 0 no longer, a thread of
//! its own stops the world, as at the begin of a trace, so that each M sees the change.

use super::{registry, session};
use crate::os::locked::Locked;
use crate::os::thread::{self, Thread};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};

/// The semaphore of all probes: how often tools are attached to any of them. The kernel changes it,
/// for tools that use uprobes, or a debugger.
// Tools want it in a file, not in memory that is zero without being in the file: not in .bss.
#[unsafe(link_section = ".probes")]
pub static ATTACHED: AtomicU16 = AtomicU16::new(0);

/// Whether the thread that follows `ATTACHED` is there, and the thread, for the join.
static FOLLOWS: AtomicBool = AtomicBool::new(false);
static THREAD: Locked<Option<Thread>> = Locked::new(None);

fn is_attached() -> bool {
    ATTACHED.load(Ordering::Relaxed) != 0
}

/// For sysmon, at each check: starts the thread that follows the count if it has to.
#[inline]
pub fn look() {
    if is_attached() != registry::has_probes() {
        start();
    }
}

#[cold]
fn start() {
    if FOLLOWS.swap(true, Ordering::AcqRel) {
        return;
    }
    // The former thread has nothing left to do.
    THREAD.with(Option::take).into_iter().for_each(Thread::join);
    match Thread::start(follow, ptr::null_mut()) {
        Ok(thread) => THREAD.with(|place| *place = Some(thread)),
        // sysmon tries again.
        Err(_) => FOLLOWS.store(false, Ordering::Release),
    }
}

extern "C" fn follow(_: *mut c_void) -> *mut c_void {
    thread::set_up_current(c"gosched-probes");
    session::with_world_stopped(&mut || registry::set_probes(is_attached()));
    FOLLOWS.store(false, Ordering::Release);
    ptr::null_mut()
}

/// In the child of a fork: sysmon of the child's runtime looks anew.
///
/// # Safety
/// The caller is the child's only thread.
pub unsafe fn forked() {
    FOLLOWS.store(false, Ordering::Relaxed);
    // SAFETY: as the caller says; the value is replaced without a look at it.
    unsafe { THREAD.reset() };
    THREAD.with(|place| *place = None);
}
