//! The clock of events: the processor's counter of ticks, which costs less than a call of the
//! system's clock.

use crate::arch;
use crate::os::time;
use core::sync::atomic::{AtomicU64, Ordering};

/// Log2 of the processor's ticks in a tick of the trace: most times between two events of a thread
/// take one byte then. Go's `traceTimeDiv`.
const COARSE: u32 = 6;

/// The processor's tick from which times are counted.
static BASE: AtomicU64 = AtomicU64::new(0);

/// Now, in ticks since [`begin`]. Threads' counters may disagree a little: the order of events
/// doesn't depend on them.
#[inline(always)]
pub fn now() -> u64 {
    arch::ticks().wrapping_sub(BASE.load(Ordering::Relaxed)) >> COARSE
}

/// One moment on three clocks.
#[derive(Clone, Copy)]
pub struct Moment {
    /// As [`now`].
    pub ticks: u64,
    /// CLOCK_MONOTONIC, in ns.
    pub monotonic: i64,
    /// CLOCK_REALTIME, in ns.
    pub wall: i64,
}

impl Moment {
    pub fn now() -> Moment {
        Moment { ticks: now(), monotonic: time::now(), wall: time::wall() }
    }

    /// The ticks of a second, from the ticks between two moments. The longer the time between
    /// them, the more exact is the result.
    pub fn ticks_per_second(&self, later: &Moment) -> u64 {
        let ns = (later.monotonic - self.monotonic).max(1) as u128;
        let ticks = u128::from(later.ticks.saturating_sub(self.ticks));
        ((ticks * 1_000_000_000 / ns) as u64).max(1)
    }
}

/// Begins to count. Times before this moment don't exist.
pub fn begin() {
    // No event has the time 0, which readers take for none.
    BASE.store(arch::ticks().wrapping_sub(1 << COARSE), Ordering::Relaxed);
}
