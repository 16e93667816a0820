//! Reads execution traces in Go's format, and prints them, sums them up, or converts them.
//!
//! A trace is a row of *generations*. A generation has batches of events, each written by one M, and
//! the tables of strings and stacks that these events use.
//!
//! | file | what it does |
//! | --- | --- |
//! | `wire` | the bytes: versions, kinds of events, numbers |
//! | `generation` | reads a generation: its batches and tables |
//! | `order` | the rules of the scheduler: which event may come next |
//! | `reader` | merges the batches of all M's into one order |
//! | `change` | what an event changes: the states of goroutines and P's |
//! | `names` | the functions that goroutines run |
//! | `print`, `summary`, `perfetto` | what the program can do with a trace |
//! | `proto` | writes protobuf |

pub mod change;
mod error;
mod generation;
pub mod names;
mod order;
pub mod perfetto;
pub mod print;
mod proto;
mod reader;
pub mod summary;
pub mod wire;

pub use error::{Cause, Error};
pub use generation::{Frame, Snapshot, Tables};
pub use reader::{Event, Item, Reader};
