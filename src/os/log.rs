//! The library's own messages: warnings and the report of a deadlock. Lines go to standard error,
//! or to the function that the host has set in its place.

use super::locked::Locked;
use core::ffi::{c_char, c_void};
use core::fmt::{self, Write};

/// Called with a line: a C string without a newline, valid during the call.
pub type Log = unsafe extern "C" fn(ctx: *mut c_void, line: *const c_char);

/// The longest line in bytes; longer lines are cut.
const LONGEST: usize = 1023;

/// The argument of the host's functions, on any thread. The library never follows the pointer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HostArg(pub *mut c_void);

// SAFETY: only functions of the host use the pointer, and the host has said that these may be
// called on any thread.
unsafe impl Send for HostArg {}

/// A function of the host, with its argument.
#[derive(Clone, Copy)]
pub struct Callback<F>(pub F, pub HostArg);

static TARGET: Locked<Option<Callback<Log>>> = Locked::new(None);

/// Sets the function. `None`: standard error.
pub fn set(log: Option<(Log, *mut c_void)>) {
    TARGET.with(|target| *target = log.map(|(f, ctx)| Callback(f, HostArg(ctx))));
}

/// Locks the function around a fork: the child must not find it locked.
pub fn lock() {
    TARGET.lock();
}

/// See [`lock`].
///
/// # Safety
/// The calling thread holds the lock.
pub unsafe fn unlock() {
    // SAFETY: as the caller says.
    unsafe { TARGET.unlock() };
}

/// Writes a message of one or more lines, without memory from a heap.
pub fn say(text: fmt::Arguments) {
    let mut lines = Lines { line: [0; LONGEST + 1], len: 0 };
    let _ = lines.write_fmt(text);
    lines.end();
}

/// A line under construction; each whole line is passed on.
struct Lines {
    line: [u8; LONGEST + 1],
    len: usize,
}

impl Lines {
    /// Passes on the line, if there is one.
    fn end(&mut self) {
        if self.len == 0 {
            return;
        }
        match TARGET.with(|target| *target) {
            Some(Callback(log, HostArg(ctx))) => {
                self.line[self.len] = 0;
                // SAFETY: the host has given the function for this argument; the line ends
                // with a NUL.
                unsafe { log(ctx, self.line.as_ptr().cast()) };
            }
            None => {
                self.line[self.len] = b'\n';
                super::write_all(2, &self.line[..=self.len]);
            }
        }
        self.len = 0;
    }
}

impl Write for Lines {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for &byte in s.as_bytes() {
            match byte {
                b'\n' => self.end(),
                // A name may have a NUL in it, at which the line would end.
                0 => {}
                _ if self.len < LONGEST => {
                    self.line[self.len] = byte;
                    self.len += 1;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
