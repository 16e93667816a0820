//! What users ask the runtime: the dump, and figures. `README.md` lists the files.

pub mod dump;
pub mod stats;
