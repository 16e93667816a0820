//! Start and stop.

use super::{EINVAL, GS_SPAWN_NOPREEMPT, GS_SPAWN_NOSIGNAL, sized};
use crate::arch::with_return_address;
use crate::os::time;
use crate::sched::lifecycle::{attach, init};
use crate::sched::prim::config::ConfigRequest;
use crate::sched::take::boundary::Entered;
use crate::time::after;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

/// The function of a goroutine.
pub type gs_fn = Option<unsafe extern "C" fn(arg: *mut c_void)>;

/// The time at which a call stops waiting: ns on CLOCK_MONOTONIC, as gs_now() returns, or
/// GS_FOREVER or GS_NOWAIT.
pub type gs_deadline = i64;
/// A length of time in ns.
pub type gs_duration = i64;

/// A deadline: wait without end. With any other deadline a wait needs memory for a timer. If there
/// is no memory, the function doesn't wait and returns -ENOMEM, with the effect of -ETIMEDOUT.
pub const GS_FOREVER: i64 = -1;
/// A deadline: never wait. If the call can't be done at once it fails with -EAGAIN.
pub const GS_NOWAIT: i64 = 0;
/// The largest GOMAXPROCS.
pub const GS_MAX_PROCS: i32 = 1024;

const _: () = assert!(GS_MAX_PROCS as usize == crate::sched::prim::limits::PROCS);

/// Settings for gs_init. A field that is 0 or NULL is taken from its environment variable, or else
/// has its default. Use GS_CONFIG_INIT, or zero all bytes and set size.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct gs_config {
    /// sizeof(gs_config).
    pub size: usize,
    /// How many goroutines run at the same time, at most GS_MAX_PROCS.
    /// Environment: GOSCHED_PROCS, GOMAXPROCS. Default: the CPUs of the affinity
    /// mask, lowered to the cgroup's CPU quota rounded up (at least 2), as Go. The default follows
    /// both while the program runs: see GS_CONFIG_FIXED_PROCS.
    pub gomaxprocs: u32,
    /// The most OS threads that the library starts to run goroutines; threads that call gs_run
    /// don't count. At the limit, work waits for a thread. Environment: GOSCHED_MAX_THREADS.
    /// Default: 10,000.
    pub max_threads: u32,
    /// Bytes of stack that a goroutine can use, at most 1 GiB; they take memory only as they are
    /// touched. Environment: GOSCHED_STACK_SIZE. Default: 240 KiB.
    pub stack_size: usize,
    /// The machine: "" for the real one, "flat" for one NUMA node, or hwloc's notation for a
    /// synthetic one, such as "node:2 core:4 pu:1". Environment: GOSCHED_TOPOLOGY. Default: "".
    pub topology: *const c_char,
    /// The time slice in ns, 100 us to 1 h: a goroutine that runs for that long while others wait
    /// gives way at its next call of the library; if none comes, its thread gets a signal. 0: 10
    /// ms.
    pub time_slice_ns: u64,
    /// GS_CONFIG_COOPERATIVE, GS_CONFIG_UNBOUND, GS_CONFIG_KEEP_AFFINITY, GS_CONFIG_FIXED_PROCS,
    /// or'ed; or 0.
    pub flags: u32,
    /// The signal that preempts. 0: SIGURG, which programs ignore by default; -1: none. If another
    /// process or thread sends the signal, the library calls the host's handler for it, if that was
    /// installed before the start. System calls are then restarted even if the handler was
    /// installed without SA_RESTART. The signal may interrupt a goroutine's system call that the
    /// kernel doesn't restart (nanosleep, poll), which then fails with EINTR, as with any signal.
    /// Environment: GOSCHED_PREEMPT_SIGNAL, where 0 means none.
    pub preempt_signal: i32,
}

// SAFETY: `repr(C)`, begins with its size and has no padding.
unsafe impl sized::Grows for gs_config {
    const FIRST: usize = 48;
}

impl sized::Given for gs_config {
    const DEFAULT: gs_config = gs_config {
        size: 0,
        gomaxprocs: 0,
        max_threads: 0,
        stack_size: 0,
        topology: ptr::null(),
        time_slice_ns: 0,
        flags: 0,
        preempt_signal: 0,
    };
}

/// gs_config.flags: goroutines switch only in calls of this library. No signal preempts them, and a
/// goroutine that blocks its thread without announcing it keeps its P. With one P exactly one
/// goroutine runs at a time. Environment: GOSCHED_COOPERATIVE=1.
pub const GS_CONFIG_COOPERATIVE: u32 = 1;
/// gs_config.flags: threads are not bound to NUMA nodes, and memory comes from the node that first
/// touches it. Without this flag, on a machine with several nodes, each thread that runs goroutines
/// is bound to the CPUs of one node: threads that the library has started, and threads that call
/// gs_run, which get their affinity back when gs_run returns. (A thread in gs_run is bound to those
/// CPUs of the node that its own affinity allows; if there are none, it is not bound.) Other
/// threads of the program are never bound, nor are threads in gs_attach. While a goroutine locks a
/// thread (gs_lock_os_thread) the thread is not bound: it has the affinity that it came to gs_run
/// with, or the process's. A child of fork(2) has that affinity, too. A thread that a goroutine
/// starts by pthread_create(3), and a program that it starts by posix_spawn(3), system(3), vfork(2)
/// or exec(3), inherits the binding: start these while the goroutine locks its thread, or give them
/// the CPUs of gs_numa_unbound_cpus. With libgosched-preload.so they have that affinity without
/// more ado. Environment: GOSCHED_BIND=0.
pub const GS_CONFIG_UNBOUND: u32 = 2;
/// gs_config.flags: threads that call gs_run are never bound, because they start threads or
/// programs that must be able to use all CPUs (gs_numa_unbound_cpus and libgosched-preload.so serve
/// that too, also on the library's threads). On a thread that is not bound goroutines may run on
/// another node than their own. Concerns machines with several nodes.
pub const GS_CONFIG_KEEP_AFFINITY: u32 = 4;
/// gs_config.flags: the default of gomaxprocs is that of the start. Without this flag, if no number
/// was asked for, the library looks at the affinity mask and the cgroup's quota again while
/// goroutines run, at most once a second, and sets GOMAXPROCS when they have changed (as Go since
/// 1.25); gs_gomaxprocs with a number ends that, gs_set_default_gomaxprocs begins it anew. The mask
/// is that of the library's own threads, which begin with the mask of the thread that starts the
/// runtime: `taskset -a -p` changes it, and so does a cpuset. Environment:
/// GOSCHED_DEBUG=updatemaxprocs=0.
pub const GS_CONFIG_FIXED_PROCS: u32 = 8;

/// Starts the runtime. The calling thread reads files meanwhile: /proc/self/cgroup and the limits
/// of CPU time under /sys/fs/cgroup, /proc/sys/vm/max_map_count, and the topology under /proc and
/// /sys unless cfg gives one. For a file that can't be read the runtime uses a default. After the
/// start the library opens no temporary descriptors, except in calls that say so (gs_waitpid,
/// gs_signal_wait). The library keeps these descriptors: an epoll instance and an eventfd for each
/// P, opened when the P first waits for a file, and for each NUMA node with such a P; and eventfds
/// for plain threads that wait. Their numbers are 512 and above if RLIMIT_NOFILE allows that. The
/// threads of the library inherit the CPU mask, the nice value and so on from the thread that
/// starts the runtime, not from plain threads that call the library later. Calling gs_init is
/// optional: the first call of a function that needs the runtime starts it with the defaults, and
/// returns -ENOMEM or -EAGAIN (NULL from a function that returns a pointer) if that fails. cfg may
/// be NULL.
///
/// 0; -EBUSY: the runtime is started already; -EINVAL: a field or the topology is invalid; -ENOMEM,
/// -EAGAIN: the system gives no memory or thread. After an error nothing has changed. Any thread.
///
/// # Safety
/// `cfg` is null or a gs_config of the size that it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_init(cfg: *const gs_config) -> c_int {
    let _entered = Entered::new();
    core::hint::black_box(&crate::ON_LOAD);
    // SAFETY: `cfg` is null or of the size that it says.
    let request = unsafe {
        sized::read(cfg).and_then(|c| c.map_or(Ok(ConfigRequest::default()), |c| request(&c)))
    };
    match request.and_then(|r| init::init(&r)) {
        Ok(()) => 0,
        Err(e) => e,
    }
}

/// gs_init with the version (GS_VERSION) of the gosched.h that the program was compiled with; in C
/// and C++ gs_init(cfg) is a macro for this. -ELIBACC also: the header is newer than the library,
/// apart from the patch; a line on standard error says so.
///
/// # Safety
/// As `gs_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_init_for(version: c_int, cfg: *const gs_config) -> c_int {
    // SAFETY: `cfg` is that of `gs_init`.
    require(version).map_or_else(|e| e, |()| unsafe { gs_init(cfg) })
}

/// This library's GS_VERSION.
const VERSION: c_int = {
    const fn number(s: &str) -> c_int {
        match c_int::from_str_radix(s, 10) {
            Ok(n) => n,
            Err(_) => panic!("the version is three numbers"),
        }
    }
    number(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
        + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
        + number(env!("CARGO_PKG_VERSION_PATCH"))
};

/// Checks that the library knows everything in a header of this version.
fn require(header: c_int) -> Result<(), c_int> {
    if header / 100 <= VERSION / 100 {
        return Ok(());
    }
    crate::os::log::say(format_args!(
        "gosched: the program was compiled with gosched.h {}.{}.{}, but this is version {}: \
         install the newer library\n",
        header / 10_000,
        header / 100 % 100,
        header % 100,
        env!("CARGO_PKG_VERSION"),
    ));
    Err(-libc::ELIBACC)
}

/// # Safety
/// The topology is null or a C string, which outlives the answer.
unsafe fn request(c: &gs_config) -> Result<ConfigRequest<'static>, c_int> {
    let known =
        GS_CONFIG_COOPERATIVE | GS_CONFIG_UNBOUND | GS_CONFIG_KEEP_AFFINITY | GS_CONFIG_FIXED_PROCS;
    if c.flags & !known != 0 {
        return Err(EINVAL);
    }
    let slice = i64::try_from(c.time_slice_ns).map_err(|_| EINVAL)?;
    let preempt_signal = match c.preempt_signal {
        0 => None,
        -1 => Some(0),
        n if n > 0 => Some(n),
        _ => return Err(EINVAL),
    };
    let topology = match c.topology.is_null() {
        true => None,
        // SAFETY: not null, so it is a C string that outlives the answer.
        false => Some(unsafe { CStr::from_ptr(c.topology) }.to_str().map_err(|_| EINVAL)?),
    };
    let given = |n: usize| (n != 0).then_some(n);
    Ok(ConfigRequest {
        procs: given(c.gomaxprocs as usize),
        max_threads: given(c.max_threads as usize),
        stack_size: given(c.stack_size),
        topology,
        slice: (slice != 0).then_some(slice),
        preempt_signal,
        cooperative: c.flags & GS_CONFIG_COOPERATIVE != 0,
        unbound: c.flags & GS_CONFIG_UNBOUND != 0,
        keep_affinity: c.flags & GS_CONFIG_KEEP_AFFINITY != 0,
        fixed_procs: c.flags & GS_CONFIG_FIXED_PROCS != 0,
    })
}

/// Runs f(arg) as a goroutine and makes the calling thread run goroutines until f's goroutine has
/// ended; other goroutines may then still be there. Several threads may call gs_run at once. The
/// thread's signal mask stays as it is. During the call the thread's timer slack
/// (PR_SET_TIMERSLACK) is 1 ns; and if its alternate signal stack is smaller than 64 KiB plus what
/// the kernel saves, the thread has a larger one. Both are restored afterwards.
///
/// gs_run returns as soon as f has ended and the goroutine that the thread is running at that
/// moment, if any, has called the library or ended. So a goroutine that computes or blocks without
/// calling the library delays the return.
///
/// pthread_cancel(3) doesn't end a thread of the library, nor a thread that is in gs_run before
/// that returns. No function of the library is a cancellation point of a plain thread: a thread
/// that is cancelled while it waits in one goes on waiting. A thread with
/// PTHREAD_CANCEL_ASYNCHRONOUS must not be cancelled inside the library. Nor must a thread be
/// cancelled in a function that it has passed to gs_once_do: the other callers would wait for ever.
///
/// 0; -EINVAL: f is NULL; -EBUSY: called by a goroutine; -EDEADLK: the thread has stopped the
/// world; -ENOMEM, -EAGAIN: the system gives no memory or thread (see gs_init). If the result is
/// not 0, f has not run.
///
/// # Safety
/// Calling `f` with `arg`, on any thread, is the caller's business.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn gs_run(f: gs_fn, arg: *mut c_void) -> c_int {
    with_return_address!(2, run_at)
}

/// gs_run with the version (GS_VERSION) of the gosched.h that the program was compiled with; in C
/// and C++ gs_run(f, arg) is a macro for this. -ELIBACC also: see gs_init_for.
///
/// # Safety
/// As `gs_run`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn gs_run_for(version: c_int, f: gs_fn, arg: *mut c_void) -> c_int {
    with_return_address!(3, run_for_at)
}

unsafe extern "C" fn run_for_at(version: c_int, f: gs_fn, arg: *mut c_void, pc: usize) -> c_int {
    match require(version) {
        // SAFETY: `f` and `arg` are those of `gs_run`.
        Ok(()) => unsafe { run_at(f, arg, pc) },
        Err(e) => e,
    }
}

unsafe extern "C" fn run_at(f: gs_fn, arg: *mut c_void, pc: usize) -> c_int {
    match f {
        Some(f) => crate::sched::lifecycle::run::run(f, arg, pc),
        None => EINVAL,
    }
}

/// Makes the calling thread run goroutines, as gs_run does, and makes the calling code a goroutine:
/// from here on gs_self() isn't NULL, and waits let others run on the thread. For a program, or an
/// interpreter, whose main function is to be a goroutine itself. The goroutine keeps the thread's
/// stack and stays on this thread, which counts as a thread in gs_run (GS_WORKERS_RUNNER). The
/// goroutine ends with gs_detach; it must not end by gs_exit or by the end of the thread. The
/// program may exit at any point. In the child of a fork the thread is not attached.
///
/// flags: 0, GS_SPAWN_NOPREEMPT, GS_SPAWN_NOSIGNAL. Must not be called while a C++ exception is
/// being handled.
///
/// 0; -EBUSY: the caller is a goroutine already; -EINVAL: unknown flags; -EDEADLK: the caller has
/// stopped the world; -ENOMEM, -EAGAIN: the system gives no memory or thread (see gs_init);
/// -ENOSYS: under AddressSanitizer or ThreadSanitizer.
#[unsafe(no_mangle)]
pub extern "C" fn gs_attach(flags: u32) -> c_int {
    match flags & !(GS_SPAWN_NOPREEMPT | GS_SPAWN_NOSIGNAL) {
        0 => attach::attach(flags),
        _ => EINVAL,
    }
}

/// Undoes gs_attach: the thread is a plain thread again. Calls the destructors of the caller's
/// goroutine-local values, and waits for all goroutines that are bound to this thread.
///
/// 0; -EPERM: the caller is not a goroutine that gs_attach has made, or is in gs_blocking.
#[unsafe(no_mangle)]
pub extern "C" fn gs_detach() -> c_int {
    let _entered = Entered::new();
    attach::detach()
}

/// Waits until every goroutine has ended, then ends the library's threads and frees its memory.
/// gs_init may follow. Timers that have not fired are dropped. Channels, timers, keys, and
/// goroutines that the caller has references to, stay until they are freed. gs_shutdown also waits
/// for the destructors that run when a thread of the library ends: those of pthread_setspecific's
/// values and of C++'s thread_local. They may call the library, and start another runtime.
///
/// 0, also when there is no runtime; -ETIMEDOUT, -EAGAIN: goroutines are left, or a thread is in a
/// call, has stopped the world or is in the hook thread_start or thread_stop, and nothing has
/// changed; -EDEADLK: called by a goroutine, or by the thread that has stopped the world.
#[unsafe(no_mangle)]
pub extern "C" fn gs_shutdown(deadline: gs_deadline) -> c_int {
    let _entered = Entered::new();
    init::shutdown(deadline)
}

/// Returns the time now, on the clock of all deadlines: CLOCK_MONOTONIC in ns.
#[unsafe(no_mangle)]
pub extern "C" fn gs_now() -> gs_deadline {
    time::now()
}

/// Returns the deadline ns nanoseconds from now: at least 1, at most INT64_MAX.
#[unsafe(no_mangle)]
pub extern "C" fn gs_after_ns(ns: gs_duration) -> gs_deadline {
    after(ns, 1)
}

/// Returns the deadline us microseconds from now: see gs_after_ns.
#[unsafe(no_mangle)]
pub extern "C" fn gs_after_us(us: i64) -> gs_deadline {
    after(us, 1_000)
}

/// Returns the deadline ms milliseconds from now: see gs_after_ns.
#[unsafe(no_mangle)]
pub extern "C" fn gs_after_ms(ms: i64) -> gs_deadline {
    after(ms, 1_000_000)
}

/// Returns the library's version, such as "1.1.0": a static string.
#[unsafe(no_mangle)]
pub extern "C" fn gs_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the version of the ABI: the number in the soname.
#[unsafe(no_mangle)]
pub extern "C" fn gs_abi_version() -> c_int {
    VERSION / 10_000
}

/// Returns a sentence that explains an error of this library, and what to do about it: a static
/// string, for any number, negative or not.
#[unsafe(no_mangle)]
pub extern "C" fn gs_strerror(err: c_int) -> *const c_char {
    let text = match crate::io::eai(err) {
        0 => text_of(err.saturating_abs()),
        libc::EAI_NONAME | EAI_NODATA => c"No such host or service: check the spelling of its name.",
        libc::EAI_AGAIN => c"The name server doesn't answer: try again later.",
        libc::EAI_FAIL => c"The name server failed: check its configuration.",
        libc::EAI_SERVICE => c"No such service for this kind of socket: give a port's number, or another kind.",
        libc::EAI_FAMILY | libc::EAI_SOCKTYPE | libc::EAI_BADFLAGS | EAI_ADDRFAMILY => {
            c"The hints contradict each other, or don't suit this host: ask for another family, kind or flags."
        }
        _ => c"A name could not be looked up: gai_strerror(gs_eai(err)) says why.",
    };
    text.as_ptr()
}

/// glibc's codes that the crate `libc` doesn't name.
const EAI_NODATA: i32 = -5;
const EAI_ADDRFAMILY: i32 = -9;

/// The text for an errno value, or for 0.
fn text_of(err: i32) -> &'static CStr {
    match err {
        0 => c"Success.",
        libc::EPERM => c"Not held, or not for a file of this kind: undo each call as often as it was made, and see the function's comment.",
        libc::EINTR => c"Interrupted by a signal: call again.",
        libc::EAGAIN => c"It would have to wait, or a resource is used up for now: try again later or give a deadline.",
        libc::ENOMEM => c"No memory or address space: free some, or use smaller stacks.",
        libc::EBUSY => c"In use: wait until the others are done, or undo what is done already.",
        libc::EINVAL => c"An argument makes no sense: see the function's comment in gosched.h.",
        libc::EPIPE => c"The channel is closed, or the reader has closed the file: stop using it.",
        libc::EDEADLK => c"It would wait for itself: make this call elsewhere.",
        libc::ETIMEDOUT => c"The deadline has passed: give a later one (a time such as gs_after_ms(20), not a length), or go on without.",
        libc::ECANCELED => c"This goroutine was cancelled, or the file was closed with gs_close: clean up and return.",
        libc::EBADF => c"No open file has this number, or it is not open for this operation: find out who closed it.",
        libc::EMFILE | libc::ENFILE => c"Too many files are open: close some, or raise the limit (ulimit -n).",
        libc::ECONNREFUSED => c"No server listens at this address: start the server, or check the host and the port.",
        libc::ECONNRESET => c"The other side has ended the connection: close the socket.",
        libc::EADDRINUSE => c"Another socket listens on this port, or the path exists: choose another one, port 0, or unlink(2) the path.",
        libc::ENOENT => c"No such file: check the spelling of its name.",
        libc::EEXIST => c"A file with this name exists already: choose another name, or remove the file.",
        libc::ENOTDIR => c"A part of the path is not a directory: check the spelling of the path.",
        libc::EISDIR => c"It is a directory: name a file.",
        libc::EACCES => c"Not permitted: see who may use the file, or choose a port above 1023.",
        libc::ENOSPC => c"No space is left: free some.",
        libc::ENOBUFS => c"The reader of the trace was too slow: write it to a file, or trace for a shorter time.",
        libc::ENAMETOOLONG => c"The name is too long: a Unix socket's path has at most 107 bytes, a file's name 255.",
        libc::EADDRNOTAVAIL => c"No interface of this machine has this address: choose one that ip(8) lists.",
        libc::ENETUNREACH | libc::EHOSTUNREACH => c"There is no route to this host: check that the network is up and the address is right.",
        libc::ENOTCONN => c"The socket is not connected: connect it first.",
        libc::EMSGSIZE => c"The datagram is too long: send less at once.",
        libc::ECHILD => c"No such child of this process: see whether another caller has waited for it.",
        libc::ECONNABORTED => c"The attempt to connect has failed: close the socket, and try again with a new one.",
        libc::EFAULT => c"A pointer that was passed points to no memory: see where it comes from.",
        libc::ESPIPE => c"This file has no positions: use gs_read or gs_write.",
        libc::ENOTSOCK => c"It is not a socket: use gs_read or gs_write.",
        libc::ELIBACC => c"The program was compiled with a newer gosched.h than this library's: install that version of the library.",
        libc::EOWNERDEAD => c"The goroutine has ended by gs_exit, without a result: let its function return one.",
        libc::ENOSYS => c"This system can't do it: see the function's comment for what it needs.",
        _ => c"An error of the operating system: strerror(-err) names it.",
    }
}
