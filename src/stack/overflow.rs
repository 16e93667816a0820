//! The report of a stack overflow.

use super::Stack;
use crate::os;
use std::io::Write;

/// The longest report in bytes; longer reports are cut. A goroutine's name has no limit.
const LONGEST: usize = 768;

/// Reports which goroutine had a stack overflow and what to change. Async-signal-safe: it runs in
/// the fault handler, on another stack, and formats into an array.
pub fn report(id: u64, name: &[u8], stack: &Stack, fault: usize) {
    let mut buffer = [0; LONGEST];
    let mut rest = &mut buffer[..];
    // Fails only if the report is too long, and then the buffer is full.
    let _ = write(&mut rest, id, name, stack, fault);
    let len = LONGEST - rest.len();
    os::write_all(2, &buffer[..len]);
}

fn write(
    to: &mut &mut [u8],
    id: u64,
    name: &[u8],
    stack: &Stack,
    fault: usize,
) -> std::io::Result<()> {
    let (lo, hi) = (stack.lo(), stack.hi());
    write!(to, "gosched: stack overflow: goroutine {id}")?;
    if !name.is_empty() {
        // Bytes, unchanged: a name need not be UTF-8.
        to.write_all(b" \"")?;
        to.write_all(name)?;
        to.write_all(b"\"")?;
    }
    write!(
        to,
        " needs more than its stack of {} bytes (fault at {fault:#x}, stack {lo:#x} to {hi:#x}).\nSpawn it with a larger gs_spawn_opts.stack_size, raise gs_config.stack_size (or \
         GOSCHED_STACK_SIZE), or call the deep function by gs_blocking().\n\n\
         goroutine {id} [running]:\n",
        hi - lo
    )
}
