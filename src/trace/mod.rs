//! Event traces in the format of Go's execution tracer. README.md has the protocol.
//!
//! This room knows M's, P's and goroutines only as streams, numbers and words. The scheduler calls
//! it where their states change (`sched::run::traced`).

mod batch;
mod clock;
pub mod format;
mod model;
pub mod probes;
mod registry;
mod session;
mod shapes;
pub mod stacks;
mod strings;
mod tables;

pub use model::{
    By, GoRef, GoState, GoWord, Leaves, Names, PROCS, Stream, proc_was_taken, procs_are,
};
pub use registry::{is_on, outside, records, retire, stream_for};
pub use session::{
    List, Listed, Points, flight_file, flight_start, flight_stop, flight_write,
    flight_write_at_end, forked, on_load, threads, trace_for, trace_start, trace_stop,
};
pub use strings::{fixed as string, id_of as string_id};

use core::sync::atomic::{AtomicBool, Ordering};

/// Whether an event was lost, so that the trace must end.
static LOST: AtomicBool = AtomicBool::new(false);

/// There was no memory for an event: the trace ends without its last generation.
#[cold]
fn lost() {
    LOST.store(true, Ordering::Relaxed);
}
