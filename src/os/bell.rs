//! Bells, which end a sleep in poll(2) or epoll. A bell is an eventfd, or a pipe where the system
//! refuses eventfds.

use super::file;
use super::spin::assert_none_held;
use core::sync::atomic::{AtomicU64, Ordering};

/// The descriptors of a bell, both non-blocking and close-on-exec. A copy doesn't own them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bell {
    /// Readable after a ring.
    poll: i32,
    /// A ring is a write to this descriptor. For an eventfd both are the same number.
    ring: i32,
}

impl Bell {
    /// A new bell; a negative errno value if the system gives none.
    pub fn new() -> Result<Bell, i32> {
        let _errno = super::KeepErrno::new();
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        match fd {
            0.. => {
                let fd = file::keep_for_library(fd);
                Ok(Bell { poll: fd, ring: fd })
            }
            // An old filter of system calls doesn't know eventfd2.
            _ if super::is_refused(super::errno()) => Bell::of_pipe(),
            _ => Err(-super::errno()),
        }
    }

    fn of_pipe() -> Result<Bell, i32> {
        let mut ends = [0; 2];
        // SAFETY: room for two numbers.
        match unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } {
            0 => {
                let [poll, ring] = ends.map(file::keep_for_library);
                Ok(Bell { poll, ring })
            }
            _ => Err(-super::errno()),
        }
    }

    fn is_pipe(self) -> bool {
        self.poll != self.ring
    }

    /// The descriptor to poll for input.
    pub fn to_poll(self) -> i32 {
        self.poll
    }

    /// Ends the sleep of the thread that polls the bell, or its next sleep.
    pub fn ring(self) {
        assert_none_held();
        let _errno = super::KeepErrno::new();
        let one = 1u64;
        // Not write(3), a cancellation point: if pthread_cancel(3) ended a plain thread there, the
        // thread that is to wake would sleep on.
        // SAFETY: eight readable bytes. The write fails only while the bell is full of rings, and
        // these end the sleep.
        unsafe { libc::syscall(libc::SYS_write, self.ring, &raw const one, 8) };
    }

    /// Takes back all rings.
    pub fn silence(self) {
        let _errno = super::KeepErrno::new();
        let mut rings = [0u64; 32];
        let (at, n) = (rings.as_mut_ptr(), size_of_val(&rings));
        // Not read(3), a cancellation point, as in `ring`.
        // SAFETY: writable bytes. A short or failed read means that nothing is left.
        while unsafe { libc::syscall(libc::SYS_read, self.poll, at, n) } == n as i64 {}
    }

    /// For a thread that polls the bell edge-triggered and has seen a ring. epoll reports each ring
    /// of an eventfd. Of a pipe some kernels (5.5 to 5.13) report only the first ring after the
    /// pipe was empty, so this empties the pipe. That may take a ring for another thread: the
    /// caller must check afterwards whether such a thread sleeps.
    pub fn heard(self) {
        if self.is_pipe() {
            self.silence();
        }
    }

    /// Closes the bell. One copy closes it; no copy may be used afterwards.
    pub fn close(self) {
        super::epoll::close(self.poll);
        if self.is_pipe() {
            super::epoll::close(self.ring);
        }
    }

    /// The bell as a word that is not 0, and whose highest bit is not set.
    pub fn to_bits(self) -> u64 {
        (self.ring as u64 + 1) << 32 | (self.poll as u64 + 1)
    }

    /// The reverse of [`Bell::to_bits`]; `None` for 0.
    pub fn from_bits(bits: u64) -> Option<Bell> {
        let number = |half: u64| half as u32 as i32 - 1;
        (bits != 0).then(|| Bell { poll: number(bits), ring: number(bits >> 32) })
    }
}

/// A bell or none, which several threads may read. Orders no other memory accesses.
pub struct AtomicBell(AtomicU64);

impl AtomicBell {
    pub const fn none() -> AtomicBell {
        AtomicBell(AtomicU64::new(0))
    }

    pub fn load(&self) -> Option<Bell> {
        Bell::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub fn store(&self, bell: Option<Bell>) {
        self.0.store(bell.map_or(0, Bell::to_bits), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::{epoll, file};

    fn tells_each_ring(bell: Bell) {
        let instance = epoll::create().unwrap();
        let mut events = [epoll::NONE; 2];
        epoll::add(instance, bell.to_poll(), epoll::IN | epoll::EDGE, 7).unwrap();
        assert_eq!(epoll::wait(instance, &mut events, 0), 0);
        for _ in 0..20_000 {
            bell.ring();
            assert_eq!(epoll::wait(instance, &mut events, 0), 1);
            bell.heard();
            assert_eq!(epoll::wait(instance, &mut events, 0), 0);
        }
        // More rings than fit into a pipe that is not read.
        (0..20_000).for_each(|_| bell.ring());
        assert_eq!(epoll::wait(instance, &mut events, 0), 1);
        bell.silence();
        assert_eq!(file::poll_now(bell.to_poll(), libc::POLLIN), 0);
        bell.ring();
        assert_eq!(file::poll_now(bell.to_poll(), libc::POLLIN), libc::POLLIN as isize);
        assert_eq!(epoll::wait(instance, &mut events, 0), 1);
        assert_eq!(Bell::from_bits(bell.to_bits()), Some(bell));
        epoll::close(instance);
        bell.close();
    }

    #[test]
    fn an_eventfd_and_a_pipe_tell_each_ring() {
        tells_each_ring(Bell::new().unwrap());
        tells_each_ring(Bell::of_pipe().unwrap());
    }
}
