//! epoll.

use super::file;
use super::stand_in;
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

/// One file's entry in the report of epoll.
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

/// Renews the file's registration: epoll reports anew what the file is ready for.
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
    let r = unsafe { libc::epoll_ctl(epoll, op, fd, &mut event) };
    let wanted = (op != libc::EPOLL_CTL_DEL).then_some(data);
    match stand_in::or(r as isize, |other| (other.watch)(fd, wanted)) {
        e @ ..0 => Err(e as i32),
        _ => Ok(()),
    }
}

/// Waits for events until the deadline (ns; negative: none; 0: it doesn't wait). Returns how many
/// there are; 0 also after a signal.
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
        if !super::is_refused(super::errno()) {
            return 0;
        }
        MISSING.store(true, Ordering::Relaxed);
    }
    let ms = if left < 0 { -1 } else { (left as u64).div_ceil(1_000_000).min(1 << 30) as i32 };
    // SAFETY: the events are writable for their number.
    let n = unsafe { libc::epoll_wait(epoll, at, room, ms) };
    n.max(0) as usize
}

/// Closes an instance.
pub fn close(fd: i32) {
    let _errno = super::KeepErrno::new();
    // SAFETY: the caller owns it.
    unsafe { libc::close(fd) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From here on the system refuses this call to the calling thread.
    fn refuse(call: libc::c_long, errno: i32) {
        const LOAD_NUMBER: u16 = 0x20;
        const JUMP_IF_EQUAL: u16 = 0x15;
        const RETURN: u16 = 0x06;
        const ALLOW: u32 = 0x7fff_0000;
        const FAIL: u32 = 0x0005_0000;
        let step = |code, k, jf| libc::sock_filter { code, jt: 0, jf, k };
        let mut steps = [
            step(LOAD_NUMBER, 0, 0),
            step(JUMP_IF_EQUAL, call as u32, 1),
            step(RETURN, FAIL | errno as u32, 0),
            step(RETURN, ALLOW, 0),
        ];
        let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        // SAFETY: a filter for this thread, read at once.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter), 0);
        }
    }

    #[test]
    fn a_wait_lasts_until_its_deadline_though_a_filter_refuses_epoll_pwait2() {
        let waits = || {
            refuse(libc::SYS_epoll_pwait2, libc::EACCES);
            let instance = create().unwrap();
            let deadline = time::now() + 20_000_000;
            assert_eq!(wait(instance, &mut [NONE], deadline), 0);
            assert!(time::now() >= deadline);
            close(instance);
        };
        std::thread::spawn(waits).join().unwrap();
    }
}
