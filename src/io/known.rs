//! The kind of file that a number stands for, and how calls on the file behave.

use crate::os::file::{self, FileKind};
use core::sync::atomic::{AtomicU8, Ordering};

/// The kernel's latest answer about a number: one of [`kind`], and [`Manner`]'s bits. 0: not asked
/// yet.
pub struct Known(AtomicU8);

impl Known {
    /// The file's kind; `-EBADF`: there is no file.
    pub fn kind(&self, fd: i32) -> Result<FileKind, i32> {
        match self.0.load(Ordering::Relaxed) & kind::BITS {
            kind::SOCKET => Ok(FileKind::Socket),
            kind::DISK => Ok(FileKind::Disk),
            kind::OTHER => Ok(FileKind::Other),
            _ => self.ask_kind(fd),
        }
    }

    /// Asks the kernel for the file's kind, whatever it was before. A file that is neither a socket
    /// nor on a disk is made non-blocking.
    pub fn ask_kind(&self, fd: i32) -> Result<FileKind, i32> {
        let kind = file::kind(fd)?;
        if kind == FileKind::Other
            && let e @ ..0 = file::make_nonblocking(fd)
        {
            return Err(e);
        }
        self.set(kind);
        Ok(kind)
    }

    /// How calls on the file behave.
    pub fn manner(&self) -> Manner {
        Manner(self.0.load(Ordering::Relaxed))
    }

    /// [`Self::manner`] of a file on a disk. Asks the kernel the first time.
    pub fn manner_of_disk(&self, fd: i32) -> Manner {
        let known = self.0.load(Ordering::Relaxed);
        if known & Manner::ASKED != 0 {
            return Manner(known);
        }
        let (reads, writes) = file::waits_for_disk(fd);
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let bits =
            Manner::ASKED | bit(reads, Manner::READS_WAIT) | bit(writes, Manner::WRITES_WAIT);
        Manner(self.0.fetch_or(bits, Ordering::Relaxed) | bits)
    }

    /// Forgets the manner: a call that should not wait took long, so the number may be another file
    /// by now.
    pub fn forget_manner(&self) {
        self.0.fetch_and(kind::BITS, Ordering::Relaxed);
    }

    /// Notes that the kernel can't tell whether a call would wait.
    pub fn note_cant_tell(&self) {
        self.0.fetch_or(Manner::CANT_TELL, Ordering::Relaxed);
    }

    /// Notes that the number is a file of this kind; nothing else is known.
    pub fn set(&self, kind: FileKind) {
        self.0.store(code_of(kind), Ordering::Relaxed);
    }

    /// Forgets all: the number may be any file.
    pub fn forget(&self) {
        self.0.store(kind::UNKNOWN, Ordering::Relaxed);
    }
}

/// How calls on a file that isn't a socket behave. Only a hint for speed, because the number may be
/// another file by now.
#[derive(Clone, Copy)]
pub struct Manner(u8);

impl Manner {
    /// The kernel was asked for `READS_WAIT` and `WRITES_WAIT`.
    const ASKED: u8 = 4;
    const READS_WAIT: u8 = 8;
    const WRITES_WAIT: u8 = 16;
    const CANT_TELL: u8 = 32;

    /// Reads wait for the disk in any case.
    pub fn reads_wait(self) -> bool {
        self.0 & Manner::READS_WAIT != 0
    }

    /// Writes wait for the disk in any case.
    pub fn writes_wait(self) -> bool {
        self.0 & Manner::WRITES_WAIT != 0
    }

    /// The kernel can't tell whether a call would wait ([`file::cant_tell`]).
    pub fn cant_tell(self) -> bool {
        self.0 & Manner::CANT_TELL != 0
    }
}

/// The lower bits of [`Known`].
mod kind {
    pub const UNKNOWN: u8 = 0;
    pub const SOCKET: u8 = 1;
    pub const DISK: u8 = 2;
    pub const OTHER: u8 = 3;
    /// Mask of all kinds.
    pub const BITS: u8 = 3;
}

/// The code of a kind of file.
fn code_of(kind: FileKind) -> u8 {
    match kind {
        FileKind::Socket => kind::SOCKET,
        FileKind::Disk => kind::DISK,
        FileKind::Other => kind::OTHER,
    }
}
