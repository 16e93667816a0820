//! epoll.

use super::file;
use super::time;
use core::sync::atomic::{AtomicBool, Ordering};

pub const IN: u32 = libc::EPOLLIN as u32;
pub const PRI: u32 = libc::EPOLLPRI as u32;
pub const OUT: u32 = libc::EPOLLOUT as u32;
pub const ERR: u32 = libc::EPOLLERR as u32;
pub const HUP: u32 = libc::EPOLLHUP as u32;
pub const RDHUP: u32 = libc::EPOLLRDHUP as u32;
/// Only changes are reported.
pub const EDGE: u32 = libc::EPOLLET as u32;
/// Reported once, until the registration is changed.
pub const ONCE: u32 = libc::EPOLLONESHOT as u32;

/// What epoll reports of one file.
pub type Event = libc::epoll_event;

/// No event.
pub const NONE: Event = Event { events: 0, u64: 0 };

/// A new instance, close-on-exec; a negative errno value if the system gives none.
pub fn create() -> Result<i32, i32> {
    let _errno = super::KeepErrno::new();
    // SAFETY: no pointers.
    checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(file::keep_for_library)
}

fn checked(r: i32) -> Result<i32, i32> {
    if r < 0 { Err(-super::errno()) } else { Ok(r) }
}

/// Adds a file.
pub fn add(epoll: i32, fd: i32, events: u32, data: u64) -> Result<(), i32> {
    control(epoll, libc::EPOLL_CTL_ADD, fd, events, data)
}

/// Registers for the file's events again: epoll reports again what the file is ready for.
pub fn change(epoll: i32, fd: i32, events: u32, data: u64) -> Result<(), i32> {
    control(epoll, libc::EPOLL_CTL_MOD, fd, events, data)
}

/// Takes a file out.
pub fn remove(epoll: i32, fd: i32) {
    let _ = control(epoll, libc::EPOLL_CTL_DEL, fd, 0, 0);
}

fn control(epoll: i32, op: i32, fd: i32, events: u32, data: u64) -> Result<(), i32> {
    let _errno = super::KeepErrno::new();
    let mut event = Event { events, u64: data };
    // SAFETY: the event is readable.
    checked(unsafe { libc::epoll_ctl(epoll, op, fd, &mut event) }).map(drop)
}

/// Waits for events until the deadline (ns; negative: none; 0: it doesn't wait). Returns how many there are; 0 also
/// after a signal.
pub fn wait(epoll: i32, events: &mut [Event], deadline: i64) -> usize {
    /// The kernel is older than epoll_pwait2 (5.11), or a filter refuses it.
    static MISSING: AtomicBool = AtomicBool::new(false);
    let _errno = super::KeepErrno::new();
    let left = if deadline > 0 { (deadline - time::now()).max(0) } else { deadline };
    let (at, room) = (events.as_mut_ptr(), events.len() as i32);
    if left > 0 && !MISSING.load(Ordering::Relaxed) {
        let timeout = time::timespec(left);
        let mask: *const libc::sigset_t = core::ptr::null();
        // SAFETY: the events are writable for their number, the timeout is readable,
        // no mask is given.
        let n = unsafe {
            libc::syscall(libc::SYS_epoll_pwait2, epoll, at, room, &raw const timeout, mask, 8)
        };
        if n >= 0 {
            return n as usize;
        }
        if !matches!(super::errno(), libc::ENOSYS | libc::EPERM) {
            return 0;
        }
        MISSING.store(true, Ordering::Relaxed);
    }
    let ms = if left < 0 { -1 } else { (left as u64).div_ceil(1_000_000).min(1 << 30) as i32 };
    // SAFETY: as above.
    let n = unsafe { libc::epoll_wait(epoll, at, room, ms) };
    n.max(0) as usize
}

/// Closes an instance.
pub fn close(fd: i32) {
    let _errno = super::KeepErrno::new();
    // SAFETY: the caller owns it.
    unsafe { libc::close(fd) };
}
