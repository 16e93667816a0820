//! Requests to the M that runs a P: bits of [`P::attention`](super::p::P::attention).

/// The world is being stopped: the M must give its P to the stopper.
pub const STOP: u32 = 1;

/// The M must go to g0: its hooks have changed, or its thread's owner wants the thread back.
pub const TO_G0: u32 = 2;

/// The running goroutine's time slice is over: other goroutines have their turn.
pub const SLICE: u32 = 4;

/// No request, but a note: a gang may have its turn on this P, so the M checks that before it picks
/// the next task.
pub const GANG: u32 = 8;
