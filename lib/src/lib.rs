//! The functions of `gosched.h` and all that they need, as one archive, `libgosched_c.a`. The
//! Makefile links `libgosched.so` and `libgosched.a` from it (`lib/README.md`).
//!
//! It is a crate of its own for two reasons. rustc optimises across crates only if all crate
//! types that it makes at once can be, and the rlib can't. And the library's allocator is the
//! process's Rust allocator here, which it must not be for Rust programs that use the rlib.

pub use gosched::capi::*;
