//! The real context switch, and a thread-local word for each modelled thread:
//! goroutines run on stacks of their own and move from thread to thread.

#[path = "../../../../src/arch/common.rs"]
#[allow(dead_code, unused_macros, unused_imports)]
mod common;
#[path = "../../../../src/arch/sanitizer.rs"]
pub mod sanitizer;
#[path = "../../../../src/arch/tsan.rs"]
pub mod tsan;
#[path = "../../../../src/arch/x86_64.rs"]
#[allow(dead_code, unused_macros, unused_imports)]
mod x86_64;

pub use common::{
    Begin, TlsSlot, Words, prefetch_lines, set_body, tls_generation, tls_slot, valgrind_forget,
    valgrind_register,
};
pub use x86_64::{
    ADDRESSES, FpControl, Kept, Place, RED_ZONE, Registers, ReturnPlace,
    address_of_cxa_get_globals, all_registers, call_handler, context_here, kept_registers,
    lowest_in_use, prefetch, prefetch_to_write, prepare, prepare_call, restart, switch,
};

use crate::machine;
pub(crate) use common::usdt;
pub(crate) use x86_64::usdt_register;
use x86_64::{tls_vector, valgrind_request};

pub fn address_of_preempt_word() -> *const core::sync::atomic::AtomicU32 {
    &raw const crate::sched::run::requests::gs_preempt_word
}

/// Outside every stack: the whole stack of an interrupted goroutine is shown.
///
/// # Safety
/// None: the context is a stand-in.
pub unsafe fn interrupted(_context: *const core::ffi::c_void) -> Registers {
    Registers { pc: 0, sp: RED_ZONE, fp: 0 }
}

/// # Safety
/// None: no handler of a host runs here.
pub unsafe fn was_on_alternate_stack(_context: *const core::ffi::c_void) -> bool {
    false
}

pub fn tls_get() -> usize {
    machine::with_thread(|t| t.tls)
}

/// # Safety
/// As the real one.
pub unsafe fn tls_set(v: usize) {
    machine::with_thread(|t| t.tls = v);
}
