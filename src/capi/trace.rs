//! Traces of events.

use crate::sched::lifecycle::tracing;
use crate::sched::take::boundary::Entered;
use crate::trace;
use core::ffi::c_int;

/// Begins to write an event trace to the file descriptor fd, in the format of Go's execution
/// tracer ("go 1.26 trace"), which `go tool trace` and gosched-trace read. The trace shows all
/// goroutines, when each ran on which P, what it waited for and who woke it, system calls and
/// stacks. fd stays open until gs_trace_stop has returned; it may be a file, a pipe or a socket,
/// which a thread of the library writes. There need be no runtime yet: a trace lasts over
/// gs_shutdown and gs_init. The world is stopped for a moment.
///
/// 0; -EBUSY: a trace is being written already, whatever fd is; -EBADF; -EAGAIN, -ENOMEM: the system
/// gives no thread; -EDEADLK: the caller has stopped the world. Call it with -1 before you empty a
/// file for a trace: if a trace goes on, it may be in that file. Goroutines and plain threads;
/// may switch goroutines. Go's trace.Start.
#[unsafe(no_mangle)]
pub extern "C" fn gs_trace_start(fd: c_int) -> c_int {
    let _entered = Entered::new();
    tracing::ask(|| trace::trace_start(fd))
}

/// Ends the trace, and returns when all of it is written. 0; -EINVAL: there is no trace; -EBUSY:
/// another thread starts or ends one; -ENOBUFS: the trace has ended before, because its reader was
/// so slow that 256 MiB waited to be written; -ENOMEM: the trace has ended before for lack of
/// memory; a negative errno value of write(2), after which the trace has ended; -EDEADLK: the
/// caller has stopped the world. Goroutines and plain threads; may switch goroutines. Go's
/// trace.Stop.
#[unsafe(no_mangle)]
pub extern "C" fn gs_trace_stop() -> c_int {
    let _entered = Entered::new();
    tracing::ask(trace::trace_stop)
}

/// Begins to keep the events of at least the last ns nanoseconds in memory, in parts of about a
/// second, at most 64 MiB. 0; -EBUSY: events are kept already; -EINVAL: ns is not positive; else as
/// gs_trace_start. Goroutines and plain threads; may switch goroutines. Go's
/// trace.FlightRecorder.
#[unsafe(no_mangle)]
pub extern "C" fn gs_flight_start(ns: i64) -> c_int {
    let _entered = Entered::new();
    tracing::ask(|| trace::flight_start(ns))
}

/// Keeps events no longer, and forgets those that were kept. 0; -EINVAL: no events are kept;
/// -EBUSY; -EDEADLK as gs_trace_stop. Goroutines and plain threads; may switch goroutines.
#[unsafe(no_mangle)]
pub extern "C" fn gs_flight_stop() -> c_int {
    let _entered = Entered::new();
    tracing::ask(trace::flight_stop)
}

/// Writes the events that are kept to fd as a trace, and goes on keeping events. 0; -EINVAL: no
/// events are kept; -EBUSY: another thread writes them, or starts or ends a trace; -EBADF; a
/// negative errno value of write(2); -EDEADLK as gs_trace_stop. Goroutines and plain threads; may
/// switch goroutines.
#[unsafe(no_mangle)]
pub extern "C" fn gs_flight_write(fd: c_int) -> c_int {
    let _entered = Entered::new();
    tracing::ask(|| trace::flight_write(fd))
}
