//! The operating system: the only room that calls libc. Thin functions with Rust types, no policy.

pub mod bell;
pub mod biased;
pub mod cgroup;
pub mod cpu;
pub mod epoll;
pub mod failing;
pub mod file;
pub mod forking;
pub mod futex;
pub mod halt;
pub mod heap;
pub mod interpose;
pub mod locked;
pub mod log;
pub mod mapped;
pub mod maps;
pub mod mem;
pub mod membarrier;
pub mod objects;
pub mod oversleep;
pub mod process;
pub mod signal;
pub mod socket;
pub mod spin;
pub mod stand_in;
pub mod thread;
pub mod time;

/// Writes `bytes` to a file descriptor, and gives up at an error. For reports: their failure can't
/// be reported. Async-signal-safe.
pub fn write_all(fd: i32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: the pointer and length are those of a slice.
        let n = unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
        match usize::try_from(n) {
            Ok(n) if n > 0 => bytes = &bytes[n..],
            _ if n < 0 && errno() == libc::EINTR => {}
            _ => return,
        }
    }
}

/// The calling thread's errno, right after a failed call of this room.
pub fn errno() -> i32 {
    // SAFETY: the pointer is this thread's and used at once.
    unsafe { *errno_location() }
}

/// Whether the error says that the kernel doesn't have the system call, or that a filter refuses
/// it.
pub fn is_refused(errno: i32) -> bool {
    matches!(errno, libc::ENOSYS | libc::EPERM | libc::EACCES)
}

/// The address of the calling thread's errno, to be kept only in data of that thread.
///
/// LLVM may take two calls of the C library's function for one, with a switch to another thread in
/// between: it did so in the checked build. So this is a call of its own that does more than LLVM
/// can know.
#[inline(never)]
pub fn errno_location() -> *mut i32 {
    // SAFETY: no preconditions.
    core::hint::black_box(unsafe { libc::__errno_location() })
}

/// Puts the calling thread's errno back when dropped: this library doesn't set
/// the errno of threads that call it.
pub struct KeepErrno(i32);

impl KeepErrno {
    pub fn new() -> KeepErrno {
        KeepErrno(errno())
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: the pointer is this thread's and used at once.
        unsafe { *errno_location() = self.0 };
    }
}

/// Ends the process with SIGABRT.
pub fn abort() -> ! {
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

/// Ends the process as if this signal had.
pub fn end_by_signal(sig: i32) -> ! {
    // SAFETY: the default action, and a signal to this thread.
    unsafe {
        libc::signal(sig, libc::SIG_DFL);
        libc::raise(sig);
    }
    abort()
}

/// The name of a signal of a crash.
pub fn signal_name(sig: i32) -> &'static str {
    match sig {
        libc::SIGABRT => "SIGABRT",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGBUS => "SIGBUS",
        libc::SIGILL => "SIGILL",
        libc::SIGFPE => "SIGFPE",
        _ => "a signal",
    }
}

/// Whether the preemption signal may come at any moment in the user's code. False in models: there
/// it comes only where the model says so.
pub const HAS_SIGNALS: bool = true;

/// A multiple of the size of the system's pages, in bytes: what is mapped for a purpose of its own is
/// in units of this size.
pub const PAGE: usize = crate::arch::LARGEST_PAGE;

/// The size of the system's pages in bytes, where the kernel counts in pages.
#[inline(always)]
pub fn page_size() -> usize {
    // Linux has no smaller pages.
    if PAGE == 4096 {
        return PAGE;
    }
    // SAFETY: no pointers; every kernel tells this.
    unsafe { libc::getauxval(libc::AT_PAGESZ) as usize }
}

/// The address of a symbol in the whole process, or null.
pub fn symbol(name: &core::ffi::CStr) -> *mut core::ffi::c_void {
    // SAFETY: the name is a C string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}
