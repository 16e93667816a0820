//! The report of a stack overflow.

use super::Stack;
use crate::os;

/// Says which goroutine had a stack overflow and what to change, then ends the process.
/// Async-signal-safe: it runs in the fault handler, on another stack.
pub fn report(id: u64, name: &[u8], stack: &Stack, spawned_at: usize, fault: usize) -> ! {
    let mut line = Line::new();
    line.text(b"gosched: stack overflow: goroutine ").decimal(id);
    if !name.is_empty() {
        line.text(b" \"").text(name).text(b"\"");
    }
    line.text(b" needs more than its stack of ").decimal((stack.hi() - stack.lo()) as u64);
    line.text(b" bytes (fault at 0x").hex(fault).text(b", stack 0x").hex(stack.lo());
    line.text(b" to 0x").hex(stack.hi()).text(b", spawned at 0x").hex(spawned_at);
    line.text(b").\nSpawn it with a larger gs_spawn_opts.stack_size, raise gs_config.stack_size");
    line.text(b" (or GOSCHED_STACK_SIZE), or call the deep function by gs_blocking().\n");
    os::write_all(2, line.bytes());
    os::abort()
}

/// A message built without allocating.
struct Line {
    buffer: [u8; 768],
    len: usize,
}

impl Line {
    fn new() -> Line {
        Line { buffer: [0; 768], len: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    fn text(&mut self, s: &[u8]) -> &mut Line {
        let n = s.len().min(self.buffer.len() - self.len);
        self.buffer[self.len..self.len + n].copy_from_slice(&s[..n]);
        self.len += n;
        self
    }

    fn decimal(&mut self, n: u64) -> &mut Line {
        self.digits(n, 10)
    }

    fn hex(&mut self, n: usize) -> &mut Line {
        self.digits(n as u64, 16)
    }

    fn digits(&mut self, mut n: u64, base: u64) -> &mut Line {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b"0123456789abcdef"[(n % base) as usize];
            n /= base;
            if n == 0 {
                break;
            }
        }
        self.text(&digits[at..])
    }
}
