//! Code that depends on the CPU: one file for each CPU, all with the items below; and `common.rs`,
//! which stands on them and is the same for all.
//!
//! [`sanitizer`] and [`tsan`] don't depend on the CPU. They are here because each switch between
//! stacks calls them.
//!
//! # What a CPU's file provides
//!
//! A *context* is a flow of control with a stack of its own: a goroutine, or g0. A context *at
//! rest* has switched away, and is named by one non-zero word. Only the CPU's file knows what lies
//! behind the word. Rooms above use nothing else of the CPU: no other file has `asm!` or names a
//! register.
//!
//! The switch:
//!
//! - `Place`: Memory for a context at rest, in the frame of the function that switches.
//! - `Place::note_modes`, `modes`: Notes the floating-point modes before the switch, and gives
//!   them back.
//! - `switch`: Saves the context, stores its word in `*save`, resumes `to` with `words`.
//!   Returns with the words of the context that switches back. The words travel in the registers
//!   of a function's first three arguments. Preserves what a call preserves.
//!   `*save` is stored before the other stack is in use. Always inlined, and without a call.
//! - `FpControl`: Modes that calls preserve (rounding, exceptions), without status flags; `==`,
//!   `current`, `load`.
//! - `lowest_in_use`: Lowest address that a context at rest uses on its stack, saved registers
//!   included. A collector scans from there.
//!
//! Beginning and end of a goroutine:
//!
//! - `prepare`: Makes a context on an empty stack. Resumed, it calls `begin(words)` of `BODY`, then the
//!   function with its argument, then `end()`; if `end` returns, the next function with its
//!   argument, and so on.
//! - `restart`: Empties the running stack and goes on with a function and its argument, as
//!   after `begin`.
//! - `prepare_call`: Makes a context on an empty stack. Resumed with `[arg, f, 0]`, it calls
//!   `f(arg)`, which never returns.
//!
//! The outermost frame says in its CFI that it has no caller (`.cfi_undefined` of the return
//! address), and ends the chain of frame pointers. No Rust frame is between it and the user's
//! function.
//!
//! Entries from the user's code, all macros for the body of a naked function:
//!
//! - `with_return_address!(n, f)`: Calls `f` with the function's `n` (1 to 5) arguments and the
//!   return address.
//! - `resumable!(n, f)`: As `with_return_address!`, for the functions that switch most. On x86-64 it
//!   goes through `call_resumable`, which returns by an indirect jump where a return would be
//!   mispredicted (`src/sched/run/PARKING.md`, "Returns"). A plain call is correct too.
//! - `with_seventh_argument!(f)`: Calls `f` with the first seven words of the arguments of a C
//!   function with `...`.
//!
//! What an unwinder begins with:
//!
//! - `Registers`: `pc`, `sp` and `fp`, of the running function or of a context at rest;
//!   `for_unwinder` gives them to framehop.
//! - `frame_pointer!(regs)`: The frame pointer among framehop's registers.
//! - `code_address`: A return address without its signature, if it has one.
//! - `ReturnPlace`: Finds out where on the stack a return address was.
//! - `called_from`: The function that the call before a return address has called.
//! - `own_code`: Where the library's code begins and ends.
//! - `FUNCTION_RELOCATIONS`: The relocations that stand for a function of another object.
//!
//! Memory:
//!
//! - `LARGEST_PAGE`: A multiple of the size of a page in bytes, whatever the kernel is built for.
//! - `ADDRESSES`: A bound of the addresses of a process.
//!
//! Signals:
//!
//! - `RED_ZONE`: Bytes below the stack pointer that a function may use; 0 if the ABI has none.
//! - `kept_registers`, `Kept`: The registers that calls preserve, for a collector.
//! - `all_registers`: All integer registers in a handler's `ucontext_t`.
//! - `context_here`: A `ucontext_t` of the running function, for those who read a handler's.
//! - `interrupted`: The `Registers` in a handler's `ucontext_t`.
//! - `signal_handler!(entry, handler)`: Defines `entry`, which calls `handler` with a fourth
//!   argument: whether the kernel has called `entry`.
//! - `call_handler`: Calls a handler on another stack. Its CFI leads back to the stack of the
//!   caller.
//!
//! Thread-local storage, and symbols of other objects:
//!
//! - `tls_get`, `tls_set`: One word for each thread. Neither address nor value is kept over a
//!   switch, because a goroutine may resume on another thread.
//! - `tls_vector`: The thread's vector of blocks, where the C library has it on this CPU.
//! - `address_of_preempt_word`, `address_of_cxa_get_globals`: Addresses from the global offset
//!   table; the second is null if no object has the symbol.
//!
//! Debuggers and tools:
//!
//! - `SAVED`, `START`: The registers in a context at rest, and where a context of `prepare` begins.
//! - `usdt_register!`: How the note of a `usdt!` names a register.
//!
//! Others: `ticks` (a counter that all processors share); `prefetch`, `prefetch_to_write` (hints);
//! `system_call` (leaves errno alone); `valgrind_request` (does nothing without Valgrind).
//!
//! `docs/porting.md` says what else a new CPU needs, and how it is tested.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod common;
pub mod sanitizer;
pub mod tsan;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
pub use common::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "libgosched has no context switch for this CPU yet: src/arch/mod.rs lists what it needs"
);
