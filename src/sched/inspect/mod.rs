//! What users ask of the runtime: the dumps and the counters. `README.md` lists the files.

pub mod dump;
pub mod embed;
pub mod json;
pub mod leaks;
pub mod out;
pub mod pprof;
mod snapshot;
pub mod stats;

use crate::sched::lifecycle::init::{self, Above};
use crate::sched::services::quit;

static ABOVE: Above = Above { has_made: leaks::report_at_exit, gives_up: leaks::report };

/// Gives rooms below what they call here. Called when the library is loaded.
pub fn on_load() {
    quit::set_dump(dump::dump);
    init::set_above(&ABOVE);
}
