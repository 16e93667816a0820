//! Child processes, and signals that are read from a file. Each function returns the system call's
//! result, or a negative errno value.

use core::mem::MaybeUninit;
use std::ffi::CString;

fn answer(r: isize) -> i32 {
    if r < 0 { -super::errno() } else { r as i32 }
}

/// waitpid(2) without waiting: 0 if no child has changed.
///
/// # Safety
/// `status` is null or writable.
pub unsafe fn wait_now(pid: i32, status: *mut i32, options: i32) -> i32 {
    // SAFETY: `status` is null or writable.
    answer(unsafe { libc::waitpid(pid, status, options | libc::WNOHANG) } as isize)
}

/// A file that poll(2) reports as readable when process `pid` has ended: pidfd_open(2),
/// close-on-exec.
pub fn open(pid: i32) -> i32 {
    // SAFETY: no pointers.
    answer(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as isize)
}

/// The number of this process.
pub fn id() -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::getpid() }
}

/// A name from the environment, in which `%p` stands for the number of this process. `None`: the name
/// has a byte 0.
pub fn expand_name(name: &[u8]) -> Option<CString> {
    let number = id().to_string();
    let mut expanded = Vec::new();
    let mut rest = name;
    while let Some((&first, after)) = rest.split_first() {
        match rest.strip_prefix(b"%p") {
            Some(after) => {
                expanded.extend_from_slice(number.as_bytes());
                rest = after;
            }
            None => {
                expanded.push(first);
                rest = after;
            }
        }
    }
    CString::new(expanded).ok()
}

/// Whether this user may look into the process: the process's own user, or root.
pub fn may_look(user: u32) -> bool {
    // SAFETY: no pointers.
    user == 0 || user == unsafe { libc::geteuid() }
}

/// Whether the process has more rights than the user who started it, who chose its environment.
pub fn is_privileged() -> bool {
    // SAFETY: no pointers.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Calls `f` when the process ends by exit(3).
pub fn at_exit(f: extern "C" fn()) {
    // SAFETY: the function stays where it is: the library is never unmapped.
    unsafe { libc::atexit(f) };
}

/// Copies memory of this process, which may be unmapped meanwhile. Returns how many bytes it has
/// copied.
pub fn peek(from: usize, to: &mut [u8]) -> usize {
    let page = super::page_size();
    // Each page is a part of its own: the kernel copies all parts before a page that is missing.
    let first = to.len().min(page - from % page);
    let part = |at: usize, len: usize| libc::iovec { iov_base: at as *mut _, iov_len: len };
    let theirs = [part(from, first), part(from + first, to.len() - first)];
    let ours = part(to.as_mut_ptr() as usize, to.len());
    // SAFETY: `to` is writable; the kernel checks the other addresses.
    let n = unsafe { libc::process_vm_readv(id(), &raw const ours, 1, theirs.as_ptr(), 2, 0) };
    usize::try_from(n).unwrap_or(0)
}

pub type SignalSet = libc::sigset_t;

/// Whether the signal is in the set.
pub fn has_signal(set: &SignalSet, signal: i32) -> bool {
    // SAFETY: a set.
    unsafe { libc::sigismember(set, signal) == 1 }
}

/// A file from which these signals are read: signalfd(2), non-blocking and close-on-exec.
pub fn open_signals(set: &SignalSet) -> i32 {
    // SAFETY: a set.
    answer(unsafe { libc::signalfd(-1, set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) } as isize)
}

/// The record of a signal that is read from a file of [`open_signals`].
pub type SignalRecord = libc::signalfd_siginfo;

/// An empty record.
pub fn no_record() -> SignalRecord {
    // SAFETY: all bytes zero are a record.
    unsafe { core::mem::zeroed() }
}

/// The signal's `siginfo_t`, as a handler gets it.
pub fn signal_info(r: &SignalRecord) -> libc::siginfo_t {
    /// si_code of a timer of timer_create(2).
    const SI_TIMER: i32 = -2;
    /// Bytes from the beginning of a siginfo_t to the fields that depend on the signal.
    const REST: usize = 16;
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let signal = r.ssi_signo as i32;
    // SAFETY: all bytes zero are a siginfo_t; the writes are within it, where the kernel has these
    // fields.
    unsafe {
        let head = info.as_mut_ptr().cast::<i32>();
        head.write(signal);
        head.add(1).write(r.ssi_errno);
        head.add(2).write(r.ssi_code);
        let at = info.as_mut_ptr().cast::<u8>().add(REST);
        let sender = |n: u64| {
            at.cast::<u32>().write(r.ssi_pid);
            at.cast::<u32>().add(1).write(r.ssi_uid);
            at.add(8).cast::<u64>().write(n);
        };
        match (signal, r.ssi_code) {
            (_, SI_TIMER) => {
                at.cast::<u32>().write(r.ssi_tid);
                at.cast::<u32>().add(1).write(r.ssi_overrun);
                at.add(8).cast::<u64>().write(r.ssi_ptr);
            }
            (libc::SIGCHLD, 1..) => {
                sender(r.ssi_status as u32 as u64);
                at.add(16).cast::<u64>().write(r.ssi_utime);
                at.add(24).cast::<u64>().write(r.ssi_stime);
            }
            (libc::SIGPOLL, 1..) => {
                at.cast::<u64>().write(u64::from(r.ssi_band));
                at.add(8).cast::<i32>().write(r.ssi_fd);
            }
            (libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP, 1..) => {
                at.cast::<u64>().write(r.ssi_addr);
            }
            _ => sender(r.ssi_ptr),
        }
        info.assume_init()
    }
}

/// Whether nothing is in the set.
pub fn is_empty(set: &SignalSet) -> bool {
    (1..=libc::SIGRTMAX()).all(|signal| !has_signal(set, signal))
}
