//! Calls that need more stack than a goroutine may have left.

use crate::arch;
use crate::os::{PAGE, mem};
use core::ffi::c_void;

/// Size in bytes of the stack of [`on_large`]: names of C++ templates, and the expressions of debug
/// information, are read by recursion.
const LARGE: usize = 2 << 20;

/// Calls `f` on a stack of 2 MiB that is mapped for this call. `None`: there is no address space,
/// and `f` was not called. `f` must not switch to another goroutine.
pub fn on_large<R>(f: impl FnOnce() -> R) -> Option<R> {
    struct Call<F, R> {
        f: Option<F>,
        result: Option<R>,
    }
    unsafe extern "C" fn call<F: FnOnce() -> R, R>(_: i32, call: *mut c_void, _: *mut c_void) {
        // SAFETY: `on_large` passes the address of its `Call`, and waits.
        let call = unsafe { &mut *call.cast::<Call<F, R>>() };
        call.result = call.f.take().map(|f| f());
    }
    fn start<F: FnOnce() -> R, R>(_: &F) -> usize {
        call::<F, R> as *const () as usize
    }
    let lo = mem::reserve(LARGE, PAGE)?;
    let hi = lo + LARGE;
    // SAFETY: the lowest pages of a new mapping. Without a guard there, `f` has room enough still.
    unsafe { mem::protect_none(lo, super::GUARD) };
    let id = arch::valgrind_register(lo, hi);
    let entry = start(&f);
    let mut call = Call { f: Some(f), result: None };
    // SAFETY: `entry` takes the three arguments of a handler, and nothing else is on the stack.
    unsafe { arch::call_handler(entry, 0, (&raw mut call).cast(), core::ptr::null_mut(), hi) };
    if id != 0 {
        arch::valgrind_forget(id);
    }
    // SAFETY: `reserve` gave the range, and the call on it is over.
    unsafe { mem::release(lo, LARGE) };
    call.result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_runs_on_a_stack_of_its_own_and_returns_its_result() {
        let mark = 0u8;
        let here = &raw const mark as usize;
        let (far, sum) = on_large(|| {
            let mark = [1u8; 1 << 19];
            let mark = core::hint::black_box(&mark);
            (here.abs_diff(mark.as_ptr() as usize), mark.iter().map(|&b| b as usize).sum::<usize>())
        })
        .unwrap();
        assert!(far > 1 << 19);
        assert_eq!(sum, 1 << 19);
    }
}
