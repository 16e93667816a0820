//! What shows a running program to people and their tools. `README.md` lists the files.

pub mod metrics;
