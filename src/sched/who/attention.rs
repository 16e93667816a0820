//! What an M that runs a P is asked to look at: bits of [`P::attention`](super::p::P::attention).

/// Bits of [`crate::sched::who::p::P::attention`]: the world is being stopped.
pub const STOP: u32 = 1;

/// Something has changed that g0 should look at.
pub const LOOK: u32 = 2;

/// The running goroutine's time slice is over: others have their turn.
pub const SLICE: u32 = 4;

/// No request: it may be a gang's turn on this P, so the M that picks the next
/// task looks there first.
pub const GANG: u32 = 8;
