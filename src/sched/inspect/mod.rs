//! What users ask of the runtime: the dumps and the counters. `README.md` lists the files.

pub mod dump;
pub mod embed;
pub mod json;
pub mod out;
pub mod pprof;
mod snapshot;
pub mod stats;

use crate::sched::services::quit;

/// Gives rooms below what they call here. Called when the library is loaded.
pub fn on_load() {
    quit::set_dump(dump::dump);
}
