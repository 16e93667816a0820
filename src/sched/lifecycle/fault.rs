//! Tells overflows of goroutines' stacks from other faults.

use crate::sched::services::last_words::{self, Wanted};
use crate::sched::types::m;
use crate::sched::types::runtime::try_rt;
use crate::{arch, os, stack, trace};
use core::ffi::c_void;
use core::sync::atomic::Ordering;

/// Reports a fault that is a stack overflow, and ends the process; leaves other faults to the host.
/// `context`: the `ucontext_t` of the fault.
pub fn on_fault(address: usize, context: *const c_void) {
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
    stack::report_overflow(g.id.load(Ordering::Relaxed), name, &stack, address);
    if let Some(rt) = try_rt() {
        // SAFETY: the handler's context.
        let from = unsafe { arch::interrupted(context) };
        let (spawned_at, creator) = (g.pc.get(), g.creator.get());
        last_words::write(rt, Wanted { from, stack: stack.bounds(), spawned_at, creator });
    }
    os::abort();
}
