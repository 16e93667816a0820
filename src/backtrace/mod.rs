//! Backtraces: the return addresses on a stack, and the functions that they belong to.
//!
//! The room knows stacks and code, but no goroutines. Its two halves are used at different times:
//!
//! ```text
//!   before     unwind::refresh_modules    takes the loader's lock, allocates
//!   at rest    unwind::walk               reads memory, nothing else: the world may be stopped,
//!     |                                   and a signal may have interrupted anything
//!     v        program counters
//!   later      symbols::Symbols           reads files, allocates, needs much stack
//! ```
//!
//! - [`unwind`] walks a stack by the call frame information (CFI) that compilers emit for C++
//!   exceptions, and C compilers emit too. Programs without frame pointers have it. The crate
//!   `framehop` reads it: made for profilers, it allocates nothing during a walk and remembers the
//!   rules of the addresses that it has seen.
//! - [`symbols`] turns an address into functions, files and lines, by the crate `addr2line`.

pub mod symbols;
pub mod unwind;

/// In the child of a fork: forgets what threads that the child lacks were doing.
pub fn forget_threads() {
    unwind::forget_threads();
}
