//! What can be wrong with a trace.

use std::fmt;
use std::io;

/// What is wrong, and where.
#[derive(Debug)]
pub struct Error {
    /// How many bytes of the file come before what is wrong.
    pub offset: u64,
    pub cause: Cause,
}

#[derive(Debug)]
pub enum Cause {
    /// The file can't be read.
    Io(io::Error),
    /// The file ends within a generation. What came before has been read in full.
    Truncated(String),
    /// These bytes can't be part of a trace.
    Format(String),
    /// These events can't have happened in any order.
    Order(String),
}

impl Error {
    pub fn format(offset: u64, what: impl Into<String>) -> Error {
        Error { offset, cause: Cause::Format(what.into()) }
    }

    pub fn is_truncated(&self) -> bool {
        matches!(self.cause, Cause::Truncated(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Io(error) => write!(f, "byte {}: {error}", self.offset),
            Cause::Truncated(what) | Cause::Format(what) | Cause::Order(what) => {
                write!(f, "byte {}: {what}", self.offset)
            }
        }
    }
}

impl std::error::Error for Error {}
