//! What a host that is written in Rust links besides: a static library with a standard library and
//! an allocator of its own, which unwinds.

use std::panic;

/// Catches a panic; 1: it has.
#[unsafe(no_mangle)]
pub extern "C" fn rust_host_catches() -> i32 {
    panic::set_hook(Box::new(|_| ()));
    let numbers: Vec<i32> = (0..1000).collect();
    let result = panic::catch_unwind(|| {
        let index = numbers.len() + std::env::args().count();
        numbers[index]
    });
    i32::from(result.is_err())
}
