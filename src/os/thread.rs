//! OS threads.

use super::heap;
use super::locked::Locked;
use super::spin::assert_none_held;
use super::time;
use core::ffi::{c_ulong, c_void};
use core::hint::black_box;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::io::Write;
use std::os::unix::fs::MetadataExt;

/// The signals that a fault in a thread's own code raises.
pub const FAULTS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// The threads that this library has started and not joined yet.
struct Own {
    /// Number of threads that are being started: the kernel may count them, but `list` doesn't have
    /// them yet.
    starting: usize,
    /// All other threads of the library.
    list: Vec<OwnThread>,
}

/// A thread of the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OwnThread {
    /// pthread_self(3).
    handle: libc::pthread_t,
    /// The kernel's number.
    id: i32,
    /// An address in the thread's first frame. What is below on its stack is the library's; above
    /// are the thread's variables.
    first_frame: usize,
}

// SAFETY: what names a thread is valid on every thread. musl's names are addresses, which are not Send.
unsafe impl Send for OwnThread {}

static OWN: Locked<Own> = Locked::new(Own { starting: 0, list: Vec::new() });

impl Own {
    /// A thread is about to be started. False: no memory.
    fn begin(&mut self) -> bool {
        let has_room = heap::reserve(&mut self.list, self.starting + 1);
        self.starting += usize::from(has_room);
        has_room
    }

    /// The calling thread has been started.
    fn has_come(&mut self, first_frame: usize) {
        self.starting -= 1;
        // SAFETY: takes nothing.
        let handle = unsafe { libc::pthread_self() };
        self.list.push(OwnThread { handle, id: id(), first_frame });
    }

    /// The thread has been joined. A thread that was started since may have the same
    /// pthread_self(3); it comes later in the list, whose order never changes.
    fn has_gone(&mut self, thread: libc::pthread_t) {
        if let Some(at) = self.list.iter().position(|t| t.handle == thread) {
            self.list.remove(at);
        }
        if self.list.is_empty() && self.starting == 0 {
            self.list = Vec::new(); // the runtime has ended
        }
    }
}

/// Copies the kernel's numbers of the library's own threads, as many as there is room for, and
/// returns how many threads there are. `None`: a thread is being started, which may have no number
/// yet.
pub fn own_ids(room: &mut [MaybeUninit<i32>]) -> Option<usize> {
    OWN.with(|own| {
        for (place, own) in room.iter_mut().zip(&own.list) {
            place.write(own.id);
        }
        (own.starting == 0).then_some(own.list.len())
    })
}

/// Calls `f` with the kernel's number of each of the library's own threads, and with an address in
/// its first frame. `None`: the lock is taken, perhaps by a thread that is halted.
pub fn each_own(mut f: impl FnMut(i32, usize)) -> Option<()> {
    OWN.try_with(|own| own.list.iter().for_each(|own| f(own.id, own.first_frame)))
}

/// Around a fork: see [`Locked::lock`].
pub fn lock_own() {
    OWN.lock();
}

/// Undoes [`lock_own`].
///
/// # Safety
/// The calling thread has called `lock_own`, in the parent of a fork or here.
pub unsafe fn unlock_own() {
    // SAFETY: `lock_own` has locked it, as the caller says.
    unsafe { OWN.unlock() };
}

/// Forgets all threads in the child of a fork: they are the parent's.
pub fn forget_own() {
    OWN.with(|own| {
        own.starting = 0;
        own.list.clear();
    });
}

/// Bytes of a thread's stack with musl, whose own default is 128 KiB. `gs_blocking` promises them.
const STACK: usize = 8 << 20;

/// The attributes of this library's threads; null: the C library's default ones.
fn attributes(room: &mut MaybeUninit<libc::pthread_attr_t>) -> *const libc::pthread_attr_t {
    if cfg!(not(target_env = "musl")) {
        return ptr::null();
    }
    let at = room.as_mut_ptr();
    // SAFETY: the first call fills `room` in. musl allocates nothing for it.
    let is_set = unsafe {
        libc::pthread_attr_init(at) == 0 && libc::pthread_attr_setstacksize(at, STACK) == 0
    };
    if is_set { at } else { ptr::null() }
}

/// The function of a new thread, and its argument.
struct Start {
    f: extern "C" fn(*mut c_void) -> *mut c_void,
    arg: *mut c_void,
}

/// The argument of a thread's first function, and back. The C library keeps it for as long as the
/// thread lives, when the box is long gone: a pointer would hide a leak whose object has the box's
/// memory by now.
fn hidden(start: *mut Start) -> *mut Start {
    start.map_addr(|address| !address)
}

/// A thread that this library has started and will join.
pub struct Thread(libc::pthread_t);

// SAFETY: as for `OwnThread`.
unsafe impl Send for Thread {}

impl Thread {
    /// The first function of a thread.
    extern "C" fn begin(start: *mut c_void) -> *mut c_void {
        // SAFETY: `start` has made the box for this thread.
        let Start { f, arg } = *unsafe { Box::from_raw(hidden(start.cast::<Start>())) };
        let here = 0u8;
        let first_frame = black_box(&raw const here) as usize;
        OWN.with(|own| own.has_come(first_frame));
        let result = f(arg);
        // The frame stays until here.
        black_box(&here);
        result
    }

    /// Starts a thread, which the caller must join or forget, with the stack of [`attributes`]. All
    /// signals are blocked on it but those that faults raise. The first call of `f` must be
    /// [`set_up_current`]. Fails with a negative errno value.
    pub fn start(
        f: extern "C" fn(*mut c_void) -> *mut c_void,
        arg: *mut c_void,
    ) -> Result<Thread, i32> {
        assert_none_held();
        if !OWN.with(Own::begin) {
            return Err(-libc::ENOMEM);
        }
        let Some(start) = heap::boxed_to_keep(Start { f, arg }) else {
            OWN.with(|own| own.starting -= 1);
            return Err(-libc::ENOMEM);
        };
        let start = Box::into_raw(start);
        let (mut id, mut room) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let attr = attributes(&mut room);
        let blocked = block_signals();
        // SAFETY: `id` is writable, `attr` is null or points to attributes.
        let r = unsafe {
            let arg = hidden(start).cast();
            libc::pthread_create(id.as_mut_ptr(), attr, Thread::begin, arg)
        };
        blocked.restore();
        if r != 0 {
            // SAFETY: no thread has got the box.
            drop(unsafe { Box::from_raw(start) });
            OWN.with(|own| own.starting -= 1);
            return Err(-r);
        }
        // SAFETY: the call has succeeded and filled `id` in.
        Ok(Thread(unsafe { id.assume_init() }))
    }

    /// The calling thread, which this library has started.
    pub fn current() -> Thread {
        // SAFETY: takes nothing.
        Thread(unsafe { libc::pthread_self() })
    }

    /// Waits until the thread has ended, unless it is the calling thread.
    pub fn join(self) {
        // SAFETY: joined or detached once, because `self` is taken.
        unsafe {
            if libc::pthread_join(self.0, ptr::null_mut()) != 0 {
                libc::pthread_detach(self.0);
            }
        }
        OWN.with(|own| own.has_gone(self.0));
    }

    /// Joins the thread if it has ended.
    pub fn try_join(self) -> Result<(), Thread> {
        // SAFETY: as in `join`; a thread that still runs stays joinable.
        match unsafe { libc::pthread_tryjoin_np(self.0, ptr::null_mut()) } {
            0 => {
                OWN.with(|own| own.has_gone(self.0));
                Ok(())
            }
            _ => Err(self),
        }
    }
}

/// A signal mask.
#[derive(Clone, Copy)]
pub struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// The calling thread's mask.
    pub fn current() -> SignalMask {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `set` is written.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), set.as_mut_ptr());
            SignalMask(set.assume_init())
        }
    }

    /// Sets the calling thread's mask.
    pub fn restore(&self) {
        // SAFETY: the set is initialised.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

/// Lets one signal reach the calling thread; returns the former mask.
pub fn unblock(signal: i32) -> SignalMask {
    let before = SignalMask::current();
    // SAFETY: the set is filled before it is changed and used.
    unsafe {
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut());
    }
    before
}

/// Blocks every signal of the calling thread except those that a fault raises; returns the former
/// mask.
fn block_signals() -> SignalMask {
    let before = SignalMask::current();
    // SAFETY: the set is filled before it is changed and used.
    unsafe {
        let mut set = MaybeUninit::uninit();
        libc::sigfillset(set.as_mut_ptr());
        let mut set = set.assume_init();
        for s in FAULTS {
            libc::sigdelset(&mut set, s);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &set, ptr::null_mut());
    }
    before
}

/// For a thread that [`Thread::start`] has started, once: names the thread (15 characters at most),
/// turns pthread_cancel(3) off on it for good, and asks the kernel for exact timeouts on it.
pub fn set_up_current(name: &core::ffi::CStr) {
    // pthread_cancel(3) is off for good: only the library ends the thread.
    core::mem::forget(NoCancel::new());
    // SAFETY: the name is a C string, which concerns this thread only.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    set_slack(1);
    keep_turns_to_itself();
}

/// While this lives pthread_cancel(3) doesn't end the calling thread. For threads that run
/// goroutines, or hold a lock of the library.
pub struct NoCancel(i32);

impl NoCancel {
    pub fn new() -> NoCancel {
        const DISABLE: i32 = 1;
        NoCancel(NoCancel::set(DISABLE))
    }

    /// Returns the former state.
    fn set(state: i32) -> i32 {
        let mut before = 0;
        // SAFETY: `before` is writable; the call concerns only the calling thread.
        unsafe { pthread_setcancelstate(state, &mut before) };
        before
    }
}

impl Drop for NoCancel {
    fn drop(&mut self) {
        NoCancel::set(self.0);
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: i32, before: *mut i32) -> i32;
}

/// While this lives a borrowed thread has exact timeouts. The kernel lets the timeouts of other
/// threads be 50 us late.
pub struct ExactTimeouts {
    /// The thread's former timer slack, in ns.
    slack: c_ulong,
}

impl ExactTimeouts {
    /// Sets exact timeouts for the calling thread.
    pub fn ask_for() -> ExactTimeouts {
        // SAFETY: takes no pointer.
        let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
        set_slack(1);
        ExactTimeouts { slack: slack.max(0) as c_ulong }
    }
}

impl Drop for ExactTimeouts {
    fn drop(&mut self) {
        set_slack(self.slack);
    }
}

/// Sets how late timeouts of the calling thread may be, in ns; 0: as when the thread began.
fn set_slack(ns: c_ulong) {
    // SAFETY: concerns this thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns) };
}

/// Lengths of a thread's turns on the CPU.
#[derive(Clone, Copy)]
pub enum Turns {
    /// 100 us, the shortest that the kernel gives. The kernel (EEVDF) runs such a thread as soon as
    /// the thread wakes, before threads with longer turns.
    Short,
    /// The kernel's default.
    Usual,
}

/// Sets the length of turns of a thread that the library has started. `id`: as of [`id`]; 0: the
/// calling thread. Kernels before 6.12 ignore this: there a thread that wakes may wait for 4 ms
/// behind a thread that computes. A policy that the user has set, or sets meanwhile, stays.
pub fn ask_for_turns(id: i32, turns: Turns) {
    change_attributes(id, |attributes| set_turns(attributes, turns));
}

fn set_turns(attributes: &mut libc::sched_attr, turns: Turns) {
    // The user may have set another policy since the attributes were read.
    attributes.sched_flags |= libc::SCHED_FLAG_KEEP_POLICY as u64;
    attributes.sched_runtime = match turns {
        Turns::Short => 100_000,
        Turns::Usual => 0,
    };
}

/// Called at the start of a thread: threads that this thread starts won't inherit its turns.
fn keep_turns_to_itself() {
    change_attributes(0, |a| a.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64);
}

/// Changes scheduling attributes of a thread, if its policy is the usual one. Not with a negative
/// nice value, which `SCHED_RESET_ON_FORK` would take from the threads that this thread starts.
fn change_attributes(id: i32, change: impl FnOnce(&mut libc::sched_attr)) {
    let _errno = super::KeepErrno::new();
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: all bytes zero are valid; it has only numbers.
    let mut attributes = unsafe { core::mem::zeroed::<libc::sched_attr>() };
    attributes.size = size;
    // SAFETY: the kernel fills in and reads `size` bytes.
    unsafe {
        if libc::syscall(libc::SYS_sched_getattr, id, &raw mut attributes, size, 0) == 0
            && attributes.sched_policy == libc::SCHED_OTHER as u32
            && attributes.sched_nice >= 0
        {
            attributes.size = size;
            change(&mut attributes);
            libc::syscall(libc::SYS_sched_setattr, id, &raw const attributes, 0);
        }
    }
}

/// What a thread has used until now. Times are in ns.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    /// The time of the system's clock.
    pub real: i64,
    pub cpu: i64,
    /// How often the thread has waited in the kernel.
    pub waits: i64,
}

impl Usage {
    /// For which time the thread did not run since `before`, if it has waited in the kernel; in ns.
    pub fn waited_since(&self, before: Usage) -> i64 {
        if self.waits == before.waits {
            return 0;
        }
        (self.real - before.real) - (self.cpu - before.cpu)
    }
}

/// What the calling thread has used.
pub fn usage() -> Usage {
    let mut cpu = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both are writable, and all bytes zero are a valid rusage.
    let waits = unsafe {
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut cpu);
        libc::getrusage(libc::RUSAGE_THREAD, used.as_mut_ptr());
        used.assume_init().ru_nvcsw
    };
    Usage { real: time::real(), cpu: cpu.tv_sec * 1_000_000_000 + cpu.tv_nsec, waits }
}

/// The kernel's number of the calling thread.
pub fn id() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Whether a thread of this process is on a CPU right now: whether its CPU clock advances.
pub fn is_on_cpu(id: i32) -> bool {
    let before = cpu_time(id);
    before.is_some() && cpu_time(id) > before
}

/// The CPU time that a thread of this process has used, in ns. `None`: the thread has ended.
pub fn cpu_time(id: i32) -> Option<i64> {
    // The thread's CPU clock by its number, as pthread_getcpuclockid(3) makes it.
    let clock = !id << 3 | 6;
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let _errno = super::KeepErrno::new();
    // SAFETY: `t` is writable.
    let read = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut t) } == 0;
    read.then_some(t.tv_sec * 1_000_000_000 + t.tv_nsec)
}

/// The CPU time that the calling thread has used, in ns.
pub fn own_cpu_time() -> i64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// A thread's state, as far as the kernel tells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// On a CPU, waiting for a CPU, or unknown.
    Runs,
    /// Blocked in a system call, which a signal may end with `EINTR`.
    InCall,
    /// Blocked in a page fault: a signal ends no call. If the wait is uninterruptible, a signal is
    /// delivered once the page is there, before the thread's next instruction.
    InFault,
}

/// The state of the thread with this number right now. Opens a descriptor for a moment, so only a
/// thread with its own descriptor table calls this. proc(5), `/proc/pid/syscall` and
/// `/proc/pid/stat`.
pub fn state(id: i32) -> State {
    let mut text = [0; 512];
    // "running", "-1 ..." for a thread that is blocked in no call, or the number of the call.
    match read_of_thread(id, "syscall", &mut text) {
        Some(b"running\n") => return State::Runs,
        Some(&[b'-', ..]) => return State::InFault,
        Some(&[b'0'..=b'9', ..]) => return State::InCall,
        // The kernel has no such file, or a security module hides it.
        _ => {}
    }
    let stat = read_of_thread(id, "stat", &mut text).unwrap_or_default();
    // The state follows the name, which is in brackets and may contain anything.
    let name_end = stat.iter().rposition(|&c| c == b')');
    match name_end.and_then(|end| stat.get(end + 2)) {
        Some(b'S' | b'D') => State::InCall,
        _ => State::Runs,
    }
}

/// The beginning of a thread's file under /proc. `None`: the file can't be read.
fn read_of_thread<'a>(id: i32, name: &str, text: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0; 48];
    let mut rest = &mut path[..];
    // The path fits, and the last byte stays 0.
    let _ = write!(rest, "/proc/self/task/{id}/{name}");
    // SAFETY: a C string, and a buffer of that size.
    let n = unsafe {
        let fd = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return None;
        }
        let n = libc::read(fd, text.as_mut_ptr().cast(), text.len());
        libc::close(fd);
        n
    };
    text.get(..usize::try_from(n).ok()?)
}

/// Whether the thread with this number has ended, and is only listed still.
pub fn is_zombie(id: i32) -> bool {
    let mut text = [0; 512];
    let stat = read_of_thread(id, "stat", &mut text).unwrap_or_default();
    let name_end = stat.iter().rposition(|&c| c == b')');
    matches!(name_end.and_then(|end| stat.get(end + 2)), Some(b'Z' | b'X'))
}

/// Sends a signal to one thread of this process, if it is still there.
pub fn send_signal(id: i32, signal: i32) {
    // SAFETY: a zeroed siginfo_t is valid; the kernel reads it.
    unsafe {
        let mut info: libc::siginfo_t = core::mem::zeroed();
        let raw = (&raw mut info).cast::<SignalInfo>();
        (*raw).signo = signal;
        (*raw).code = libc::SI_QUEUE;
        (*raw).pid = libc::getpid();
        (*raw).uid = libc::getuid();
        (*raw).value = mark();
        let _errno = super::KeepErrno::new();
        let (call, pid) = (libc::SYS_rt_tgsigqueueinfo, libc::getpid());
        if libc::syscall(call, pid, id, signal, &raw mut info) == 0 || super::errno() == libc::ESRCH
        {
            return;
        }
        // A filter refuses the call: sends the signal by a call that takes no value.
        WITHOUT_VALUE.store(true, Ordering::Relaxed);
        libc::syscall(libc::SYS_tgkill, pid, id, signal);
    }
}

/// [`send_signal`] has sent a signal without the value that marks the library's signals.
static WITHOUT_VALUE: AtomicBool = AtomicBool::new(false);

/// The beginning of `siginfo_t` for a signal with a value.
#[repr(C)]
struct SignalInfo {
    signo: i32,
    errno: i32,
    code: i32,
    pad: i32,
    pid: i32,
    uid: u32,
    value: usize,
}

/// The value that marks the library's signals.
fn mark() -> usize {
    static MARK: u8 = 0;
    &raw const MARK as usize
}

/// Whether [`send_signal`] has sent the signal, or may have. Unclear cases count as sent: where a
/// filter refuses signals with a value, each signal from a thread of this process to one of its
/// threads; and a signal whose value the kernel has dropped, because too many signals are pending
/// (RLIMIT_SIGPENDING).
///
/// # Safety
/// `info` is what a handler was given.
pub unsafe fn is_ours(info: *const libc::siginfo_t) -> bool {
    // SAFETY: a handler's `siginfo_t`, as the caller says.
    unsafe {
        let raw = info.cast::<SignalInfo>();
        match (*raw).code {
            libc::SI_QUEUE => (*raw).value == mark() && (*raw).pid == libc::getpid(),
            libc::SI_TKILL => WITHOUT_VALUE.load(Ordering::Relaxed) && (*raw).pid == libc::getpid(),
            libc::SI_USER => (*raw).pid == 0,
            _ => false,
        }
    }
}

/// In the child of a goroutine that has forked: the lowest address and the size of that goroutine's
/// stack.
static FORKED_ON: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// In the child of a goroutine that has forked: the child's only thread uses that goroutine's stack
/// (the lowest address, the size) from now on. The stack stays mapped.
pub fn forked_on((lo, size): (usize, usize)) {
    FORKED_ON[0].store(lo, Ordering::Relaxed);
    FORKED_ON[1].store(size, Ordering::Relaxed);
}

/// The lowest address and the size of the stack on which the calling thread runs; (0, 0): unknown.
pub fn stack_bounds() -> (usize, usize) {
    let mut attr = core::mem::MaybeUninit::uninit();
    let (mut lo, mut size) = (ptr::null_mut(), 0);
    let forked_on = (FORKED_ON[0].load(Ordering::Relaxed), FORKED_ON[1].load(Ordering::Relaxed));
    if (attr.as_ptr() as usize).wrapping_sub(forked_on.0) < forked_on.1 {
        return forked_on;
    }
    // SAFETY: `attr` is filled in by the first call if that succeeds.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attr.as_mut_ptr()) == 0 {
            libc::pthread_attr_getstack(attr.as_ptr(), &mut lo, &mut size);
            libc::pthread_attr_destroy(attr.as_mut_ptr());
        }
    }
    (lo as usize, size)
}

/// How many threads this process has that still run.
pub fn count() -> usize {
    // The directory has two links of its own and one for each thread. Reading it would use a
    // descriptor, and so change the number that another thread's open gets meanwhile.
    let all = std::fs::metadata("/proc/self/task").map_or(0, |d| d.nlink().saturating_sub(2));
    (all as usize).saturating_sub(usize::from(has_main_thread_ended()))
}

/// Whether the main thread has ended by pthread_exit(3). The kernel lists it until the process
/// ends, but without a link to a program. Reading a link uses no descriptor.
fn has_main_thread_ended() -> bool {
    let _errno = super::KeepErrno::new();
    let has_program = |path: &core::ffi::CStr| {
        let mut first = 0u8;
        // SAFETY: a C string, and one writable byte: the rest is cut off.
        unsafe { libc::readlink(path.as_ptr(), (&raw mut first).cast(), 1) > 0 }
    };
    !has_program(c"/proc/self/exe") && has_program(c"/proc/thread-self/exe")
}

/// Gives the CPU to another thread.
pub fn yield_now() {
    // SAFETY: no preconditions.
    unsafe { libc::sched_yield() };
}

/// Calls the three functions around every fork of this process.
pub fn at_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: the functions stay where they are: the library is never unmapped.
    unsafe { pthread_atfork(Some(before), Some(parent), Some(child)) };
}

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> i32;
}

/// Ends the process as if `main` had returned.
pub fn exit_process() -> ! {
    // SAFETY: no preconditions.
    unsafe { libc::exit(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_is_set_while_turns_are_asked_for_stays() {
        let thread = std::thread::spawn(|| {
            let set_batch = || {
                let param = libc::sched_param { sched_priority: 0 };
                // SAFETY: concerns the calling thread only.
                unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &param) }
            };
            change_attributes(0, |attributes| {
                assert_eq!(set_batch(), 0);
                set_turns(attributes, Turns::Short);
            });
            // SAFETY: concerns the calling thread only.
            assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_BATCH);
        });
        thread.join().expect("the policy stays");
    }

    #[test]
    fn a_thread_that_has_gone_is_not_taken_for_its_successor() {
        let thread = |(handle, id)| OwnThread { handle, id, first_frame: 0 };
        let mut own =
            Own { starting: 0, list: [(1, 100), (2, 101), (2, 102)].map(thread).to_vec() };
        own.has_gone(1);
        own.has_gone(2);
        assert_eq!(own.list, [thread((2, 102))]);
    }
}
