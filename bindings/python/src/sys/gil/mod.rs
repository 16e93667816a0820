//! For a Python with a GIL: one thread runs goroutines of Python, and each goroutine has a thread
//! state.

pub mod attach;
pub mod closing;
pub mod door;
pub mod give;
pub mod group;
pub mod guard;
pub mod inspect;
pub mod settle;
pub mod settler;
pub mod starting;
pub mod state;
pub mod threads;

use pyo3::prelude::*;

/// Adds the functions of the module that only this build has: none.
pub fn add_functions(_m: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
