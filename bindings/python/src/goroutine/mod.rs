//! Goroutines.
//!
//! - `object`: the Python object, and what it holds.
//! - `list`: all goroutines.
//! - `frames`: how the library gets the frames of goroutines.
//! - `thrown`: exceptions that are thrown at a goroutine, and the `Timeout`s within which it is.
//! - `report`: errors that no caller asks for.
//! - `body`: what runs on a goroutine's stack.
//! - `spawn`: makes goroutines.
//! - `go`: Python's functions that start goroutines.
//! - `methods`: Python's methods of a goroutine.

pub mod body;
pub mod frames;
pub mod go;
pub mod list;
mod methods;
pub mod object;
pub mod report;
pub mod spawn;
pub mod thrown;
