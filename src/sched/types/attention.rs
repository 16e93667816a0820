//! What an M that runs a P is asked to look at: bits of [`P::attention`](super::p::P::attention).

/// The world is being stopped: the M must give its P to the stopper.
pub const STOP: u32 = 1;

/// The M must go to g0: its hooks have changed, or its thread's owner wants the thread back.
pub const TO_G0: u32 = 2;

/// The running goroutine's time slice is over: other goroutines have their turn.
pub const SLICE: u32 = 4;

/// No request: it may be a gang's turn on this P, so the M that picks the next task checks that first.
pub const GANG: u32 = 8;
