//! Text that is written in large pieces, without memory from a heap.

use core::fmt::{self, Write};

/// A buffer in front of a function that writes all of its bytes, or returns a negative errno value.
pub struct Out<W> {
    write: W,
    text: [u8; ROOM],
    len: usize,
    /// The error of the first write that failed; nothing is written after that. 0: none.
    error: i32,
}

/// The longest piece in bytes: as much as a pipe that is writable takes without waiting.
const ROOM: usize = libc::PIPE_BUF;

impl<W: FnMut(&[u8]) -> i32> Out<W> {
    pub fn new(write: W) -> Out<W> {
        Out { write, text: [0; ROOM], len: 0, error: 0 }
    }

    pub fn has_failed(&self) -> bool {
        self.error != 0
    }

    /// Writes what is in the buffer. Returns 0, or the error of the first write that failed.
    pub fn end(&mut self) -> i32 {
        if self.error == 0 && self.len > 0 {
            self.error = (self.write)(&self.text[..self.len]);
        }
        self.len = 0;
        self.error
    }
}

impl<W: FnMut(&[u8]) -> i32> Write for Out<W> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let mut rest = s.as_bytes();
        while !rest.is_empty() {
            if self.len == ROOM {
                self.end();
            }
            let n = rest.len().min(ROOM - self.len);
            self.text[self.len..self.len + n].copy_from_slice(&rest[..n]);
            self.len += n;
            rest = &rest[n..];
        }
        Ok(())
    }
}
