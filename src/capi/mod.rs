//! The C API, a file for each section of `gosched.h`. A function here checks its
//! arguments, calls a room, and turns the answer into an errno value.

#![allow(non_camel_case_types)]

mod channels;
mod embed;
mod gangs;
mod goroutines;
mod io;
mod numa;
mod start;
mod stats;
mod sync;
mod syscalls;
mod timers;

pub use channels::*;
pub use embed::*;
pub use gangs::*;
pub use goroutines::*;
pub use io::*;
pub use numa::*;
pub use start::*;
pub use stats::*;
pub use sync::*;
pub use syscalls::*;
pub use timers::*;

use core::ffi::c_int;

const EINVAL: c_int = -libc::EINVAL;

/// Copies a struct that begins with its size. `-EINVAL`: it is smaller than the
/// one of the first version, or has something set that this version doesn't know.
///
/// # Safety
/// `p` is null or points to as many bytes as its first word says.
unsafe fn versioned<T: Copy>(p: *const T) -> Result<Option<T>, c_int> {
    if p.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so it has as many bytes as its first word says.
    unsafe {
        let size = p.cast::<usize>().read_unaligned();
        if size < size_of::<T>() || size > 4096 {
            return Err(EINVAL);
        }
        let rest = p.cast::<u8>().add(size_of::<T>());
        if (0..size - size_of::<T>()).any(|i| rest.add(i).read() != 0) {
            return Err(EINVAL);
        }
        Ok(Some(p.read_unaligned()))
    }
}
