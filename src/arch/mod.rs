//! Code that depends on the CPU: one file for each CPU, all with the same items.

pub mod sanitizer;
pub mod tsan;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("libgosched has no context switch for this CPU yet: see src/arch/x86_64.rs");
