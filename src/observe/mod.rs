//! What shows a running program to people and their tools. `README.md` lists the files.

mod json;
pub mod metrics;
mod observer;
mod schedtrace;
mod snapshot;
mod top;

use crate::os::thread::{self, Thread};
use crate::sched::lifecycle::init::{self, Attendants};
use crate::sched::types::runtime::rt;

/// Called when the library is loaded.
pub fn on_load() {
    init::attend(&Attendants { start, end });
    thread::at_fork(nothing, nothing, in_child);
}

/// Starts the threads that the environment asks for, when a runtime begins.
fn start() {
    schedtrace::start(rt());
    top::start(rt());
}

/// Ends them when it ends. Passes the threads on, for the caller to join.
fn end(join_later: &mut dyn FnMut(Thread)) {
    [schedtrace::end(), top::end()].into_iter().flatten().for_each(join_later);
}

extern "C" fn nothing() {}

extern "C" fn in_child() {
    schedtrace::forked();
    top::forked();
}
