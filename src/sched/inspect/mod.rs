//! What users ask of the runtime: the dump and the counters. `README.md` lists the files.

pub mod dump;
pub mod embed;
pub mod out;
pub mod stats;
