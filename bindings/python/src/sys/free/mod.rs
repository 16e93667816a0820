//! For a free-threaded Python: goroutines run on several threads. Each thread has a thread state,
//! of which goroutines exchange a part (`state::Frames`).

pub mod attach;
pub mod closing;
pub mod door;
pub mod give;
pub mod group;
pub mod guard;
pub mod inspect;
mod left;
mod look;
pub mod settle;
pub mod settler;
mod slow;
pub mod starting;
pub mod state;
pub mod threads;

use pyo3::prelude::*;

/// Adds the functions of the module that only this build has.
pub fn add_functions(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(look::_settle, m)?)
}
