//! Tells overflows of goroutines' stacks from other faults.

use crate::sched::types::m;
use crate::{arch, stack, trace};
use core::sync::atomic::Ordering;

/// Reports a fault that is a stack overflow; leaves other faults to the host.
pub fn on_fault(address: usize) {
    if arch::tls_get() == 0 {
        return;
    }
    let Some(g) = m::current_g() else { return };
    let Some(stack) = g.stack.get() else { return };
    if !stack.guards(address) {
        return;
    }
    trace::flight_write_at_end();
    // SAFETY: the goroutine runs on this thread, so it has not ended.
    let name = unsafe { g.name() }.unwrap_or(c"").to_bytes();
    stack::report_overflow(g.id.load(Ordering::Relaxed), name, &stack, g.pc.get(), address);
}
