//! Go's trace format, version 1.26: event numbers and the encoding of numbers. Source:
//! `internal/trace/tracev2/events.go` of Go 1.27.

/// The first bytes of a file.
pub const HEADER: &[u8; 16] = b"go 1.26 trace\0\0\0";

/// "No thread" as the thread of a batch or a status.
pub const NO_THREAD: u64 = u64::MAX;

/// Event numbers, with Go's names.
pub mod event {
    pub const EVENT_BATCH: u8 = 1;
    pub const STACKS: u8 = 2;
    pub const STACK: u8 = 3;
    pub const STRINGS: u8 = 4;
    pub const STRING: u8 = 5;
    pub const FREQUENCY: u8 = 8;
    pub const PROCS_CHANGE: u8 = 9;
    pub const PROC_START: u8 = 10;
    pub const PROC_STOP: u8 = 11;
    pub const PROC_STATUS: u8 = 13;
    pub const GO_CREATE: u8 = 14;
    pub const GO_START: u8 = 16;
    pub const GO_DESTROY: u8 = 17;
    pub const GO_STOP: u8 = 19;
    pub const GO_BLOCK: u8 = 20;
    pub const GO_UNBLOCK: u8 = 21;
    pub const GO_SYSCALL_BEGIN: u8 = 22;
    pub const GO_SYSCALL_END: u8 = 23;
    pub const GO_SYSCALL_END_BLOCKED: u8 = 24;
    pub const STW_BEGIN: u8 = 26;
    pub const STW_END: u8 = 27;
    pub const GO_LABEL: u8 = 39;
    pub const USER_LOG: u8 = 44;
    pub const GO_STATUS_STACK: u8 = 48;
    pub const SYNC: u8 = 50;
    pub const CLOCK_SNAPSHOT: u8 = 51;
    pub const END_OF_GENERATION: u8 = 52;
}

/// The status of a P in [`event::PROC_STATUS`].
pub mod proc_status {
    pub const RUNNING: u64 = 1;
    pub const IDLE: u64 = 2;
    pub const SYSCALL: u64 = 3;
}

/// The most bytes of a batch's data, and of a string; the most frames of a stack.
pub const MOST_DATA: usize = 64 << 10;
pub const MOST_STRING: usize = 1024;
pub const MOST_FRAMES: usize = 128;

/// The most bytes of a number.
pub const MOST_NUMBER: usize = 10;

/// Writes `n` as unsigned LEB128; returns the address after the last byte.
///
/// # Safety
/// [`MOST_NUMBER`] bytes from `to` on are writable.
#[inline(always)]
pub unsafe fn put_number(mut to: *mut u8, mut n: u64) -> *mut u8 {
    // SAFETY: 64 bits take at most `MOST_NUMBER` times 7 bits.
    unsafe {
        while n >= 0x80 {
            to.write(n as u8 | 0x80);
            n >>= 7;
            to = to.add(1);
        }
        to.write(n as u8);
        to.add(1)
    }
}

/// [`put_number`] at the end of a vector.
pub fn push_number(to: &mut Vec<u8>, n: u64) {
    to.reserve(MOST_NUMBER);
    // SAFETY: there is room for a number, of which the bytes up to `end` are written.
    unsafe {
        let begin = to.as_mut_ptr().add(to.len());
        let end = put_number(begin, n);
        to.set_len(to.len() + end.offset_from_unsigned(begin));
    }
}

/// Appends the header of a batch of `size` bytes of data.
pub fn push_batch_header(to: &mut Vec<u8>, generation: u32, thread: u64, time: u64, size: usize) {
    to.push(event::EVENT_BATCH);
    for n in [u64::from(generation), thread, time, size as u64] {
        push_number(to, n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_leb128() {
        let encoded = |n| {
            let mut bytes = Vec::new();
            push_number(&mut bytes, n);
            bytes
        };
        assert_eq!(encoded(0), [0]);
        assert_eq!(encoded(127), [127]);
        assert_eq!(encoded(128), [0x80, 1]);
        assert_eq!(encoded(1_000_000_000), [0x80, 0x94, 0xeb, 0xdc, 3]);
        assert_eq!(encoded(NO_THREAD), [255, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
    }
}
