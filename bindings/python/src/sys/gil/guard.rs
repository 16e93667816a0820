//! The GIL guards `Shared` values.

/// Guards a value. The GIL does it: there is nothing to hold.
pub struct Guard;

/// The value is the caller's until this is dropped.
pub struct Held;

impl Guard {
    pub const fn new() -> Guard {
        Guard
    }

    #[inline(always)]
    pub fn hold(&self) -> Held {
        Held
    }
}
