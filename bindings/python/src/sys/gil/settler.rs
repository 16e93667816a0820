//! What looks for memory that waits for its thread: with a GIL there is no such memory.

use pyo3::prelude::*;

/// Starts the goroutine that looks.
pub fn start(_py: Python<'_>) -> PyResult<()> {
    Ok(())
}

/// In the child of a fork.
pub fn forked() {}
