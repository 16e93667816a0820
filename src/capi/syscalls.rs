//! System calls and threads.

use super::io::Call;
use super::{EINVAL, gs_deadline};
use crate::arch::{self, with_seventh_argument};
use crate::io;
use crate::os::{process, thread, time};
use crate::sched::lifecycle::{lock_thread, stopping};
use crate::sched::services::follower;
use crate::sched::take::boundary::Entered;
use crate::sched::take::{blocking, call, world};
use crate::sched::types::runtime::{Guest, rt};
use core::ffi::{c_int, c_long, c_void};
use core::mem::MaybeUninit;
use libc::{pid_t, siginfo_t, sigset_t};

/// Announces a system call that may block: until gs_exitsyscall other goroutines may use the
/// caller's P. In between the thread counts as a plain thread: a function of this library that
/// blocks then blocks the thread. Nests. Does nothing on a plain thread. 0. Go's entersyscall.
#[unsafe(no_mangle)]
pub extern "C" fn gs_entersyscall() -> c_int {
    Entered::for_call().map_or(0, |_entered| call::enter())
}

/// gs_entersyscall for a call that is sure to block for long: the goroutine gives its P up at once.
/// Ended by gs_exitsyscall, too. 0. Go's entersyscallblock.
#[unsafe(no_mangle)]
pub extern "C" fn gs_entersyscallblock() -> c_int {
    Entered::for_call().map_or(0, |_entered| call::enter_block())
}

/// Ends gs_entersyscall: the goroutine goes on when it has a P again. If all P's are busy, a
/// goroutine that computes little between its calls, and doesn't use the library there, goes on
/// without a P, as a thread does. So for some us more than GOMAXPROCS goroutines run; never in
/// cooperative mode, nor while the world is stopped. errno stays as it is. 0, on a plain thread
/// always; -EPERM: there was no gs_entersyscall (nothing has changed). Go's exitsyscall.
#[unsafe(no_mangle)]
pub extern "C" fn gs_exitsyscall() -> c_int {
    call::exit_from(&Entered::without_giving_way())
}

/// Makes system call number nr, announced as by gs_entersyscall, with up to six arguments, each a
/// long or a pointer. errno stays as it is. Not for calls that make or end a thread or process
/// (clone, vfork, exit), or that concern the thread: the goroutine may be on another thread
/// afterwards.
///
/// The result of the system call: a negative errno value if it fails, -EINTR included.
/// Goroutines and plain threads. Go's syscall.Syscall6.
///
/// # Safety
/// What the system call does is the caller's business.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn gs_syscall(nr: c_long) -> c_long {
    with_seventh_argument!(system_call)
}

unsafe extern "C" fn system_call(
    nr: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let entered = Entered::for_call().inspect(|_| {
        call::enter();
    });
    // SAFETY: the caller of `gs_syscall` answers for what the system call does.
    let result = unsafe { arch::system_call(nr as usize, [a, b, c, d, e, f]) };
    call::exit_from(entered.as_ref().unwrap_or_else(|begun| begun));
    result as c_long
}

/// waitpid(2), while other goroutines run. pid, status (or NULL) and options (WNOHANG, WUNTRACED,
/// WCONTINUED) are those of waitpid(2). If pid is the number of one child, and Linux has pidfd_open
/// (5.3), the network poller waits for the child: the call has a file descriptor of its own while
/// it waits. Otherwise (-1, a group, options) gs_waitpid polls, at intervals that grow to 10 ms.
///
/// The child's pid; 0: WNOHANG is set and no child has changed; -EAGAIN, -ETIMEDOUT, -ECANCELED: no
/// child has changed so far; -ECHILD: there is no such child, or another caller has waited for it;
/// -EINVAL: an unknown option. Goroutines and plain threads. Go's os.Process.Wait.
///
/// # Safety
/// `status` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_waitpid(
    pid: pid_t,
    status: *mut c_int,
    options: c_int,
    deadline: gs_deadline,
) -> pid_t {
    const KNOWN: c_int = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
    let _call = Call::new();
    if options & !KNOWN != 0 {
        return EINVAL;
    }
    // SAFETY: `status` is null or writable.
    unsafe { io::wait(pid, status, options, deadline) }
}

/// Takes a signal of a set (a const sigset_t *) that was sent to the process, and fills in *info (a
/// siginfo_t *) unless info is NULL: sigtimedwait(2), by a signalfd(2), which is a file descriptor
/// of the call's own while it waits. As for sigtimedwait, the signals must be blocked in every
/// thread: block them (pthread_sigmask) at the beginning of main, before any other thread starts
/// and before the first call of this library. The library's own threads block all signals. A signal
/// that was sent to one thread (raise, pthread_kill) is seen on that thread only, so use
/// kill(getpid(), ...) and the like. Several callers may wait: each signal goes to one of them.
///
/// The signal's number; -EAGAIN, -ETIMEDOUT, -ECANCELED: no signal has come; -EINVAL: the set is
/// NULL or empty, or has the signal that preempts goroutines (SIGURG, or GOSCHED_PREEMPT_SIGNAL);
/// -EMFILE, -ENFILE, -ENOMEM. Goroutines and plain threads. Go's signal.Notify.
///
/// # Safety
/// `set` is null or a set; `info` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_signal_wait(
    set: *const sigset_t,
    info: *mut siginfo_t,
    deadline: gs_deadline,
) -> c_int {
    let _call = Call::new();
    // SAFETY: `set` is null or a set, `info` null or writable.
    let (set, info) = unsafe { (set.as_ref(), info.as_mut()) };
    let Some(set) = set else { return EINVAL };
    match io::wait_for_signal(set, deadline) {
        Ok(record) => {
            if let Some(info) = info {
                *info = process::signal_info(&record);
            }
            record.ssi_signo as c_int
        }
        Err(e) => e,
    }
}

/// Calls f(arg) on the thread's own stack (8 MiB as a rule) with the P given up: the way to call a
/// deep or blocking C function from a goroutine. In f the thread counts as a plain thread, but
/// gs_self is the goroutine. Returns f's result, with errno as f left it; NULL if f is NULL. On a
/// plain thread gs_blocking just calls f. If all P's are busy afterwards, the goroutine may go on
/// without a P, as after gs_exitsyscall.
///
/// # Safety
/// Calling `f` with `arg` is the caller's business.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_blocking(
    f: Option<unsafe extern "C" fn(arg: *mut c_void) -> *mut c_void>,
    arg: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller of `gs_blocking` gave `f` for `arg`.
    f.map_or(core::ptr::null_mut(), |f| unsafe { blocking::call_from_user(f, arg) })
}

/// Locks the goroutine to this thread: it stays here, and no other goroutine runs here, except that
/// goroutines pinned to the thread run while this goroutine is parked. If the goroutine ends while
/// locked, the thread ends too (unless it is the thread that called gs_run, or other goroutines are
/// pinned to it). Nests. 0. Go's LockOSThread.
#[unsafe(no_mangle)]
pub extern "C" fn gs_lock_os_thread() -> c_int {
    let _entered = Entered::new();
    lock_thread::lock();
    0
}

/// Undoes one gs_lock_os_thread. 0; -EPERM: the thread isn't locked. Go's UnlockOSThread.
#[unsafe(no_mangle)]
pub extern "C" fn gs_unlock_os_thread() -> c_int {
    let _entered = Entered::new();
    lock_thread::unlock()
}

/// Sets how many goroutines run at the same time, at most GS_MAX_PROCS, and returns the former
/// number; n <= 0 only asks. All goroutines stop for a moment. The number stays, whatever becomes of
/// the affinity mask and the cgroup's quota. -EINVAL: n is too large; -EDEADLK: the caller has
/// stopped the world; -ENOMEM: the number is as before. Also -ENOMEM, -EAGAIN if the runtime can't
/// be started (see gs_init). Goroutines and plain threads. Go's GOMAXPROCS.
#[unsafe(no_mangle)]
pub extern "C" fn gs_gomaxprocs(n: c_int) -> c_int {
    let _entered = Entered::new();
    if n > super::GS_MAX_PROCS {
        return EINVAL;
    }
    if n > 0 && stopping::has_stopped() {
        return -libc::EDEADLK;
    }
    match Guest::enter_or_start() {
        Ok(_inside) => world::gomaxprocs(n),
        Err(e) => e,
    }
}

/// Sets GOMAXPROCS to its default, from the affinity mask and the cgroup's quota as they are now,
/// and returns the former number. From then on GOMAXPROCS follows both again, unless
/// GS_CONFIG_FIXED_PROCS or GOSCHED_DEBUG=updatemaxprocs=0 forbids that. The calling thread reads
/// files. Errors as for gs_gomaxprocs. Goroutines and plain threads. Go's SetDefaultGOMAXPROCS.
#[unsafe(no_mangle)]
pub extern "C" fn gs_set_default_gomaxprocs() -> c_int {
    let _entered = Entered::new();
    if stopping::has_stopped() {
        return -libc::EDEADLK;
    }
    match Guest::enter_or_start() {
        Ok(_inside) => follower::set_default(),
        Err(e) => e,
    }
}

/// Sets how many threads the library may start to run goroutines, and returns the former number; n
/// <= 0 only asks. Threads that call gs_run don't count. At the limit goroutines wait for a thread;
/// a warning says so once. With a limit of 1 there are two threads while a goroutine has locked the
/// first. Threads above a lowered limit stay. Each goroutine that is preempted by a signal, or
/// blocks its thread, keeps one thread. -ENOMEM, -EAGAIN: the runtime can't be started (see
/// gs_init). Go's debug.SetMaxThreads.
#[unsafe(no_mangle)]
pub extern "C" fn gs_set_max_threads(n: c_int) -> c_int {
    let _entered = Entered::new();
    match Guest::enter_or_start() {
        Ok(_inside) => {
            let before = rt().set_max_threads(n);
            lock_thread::limit_changed();
            before
        }
        Err(e) => e,
    }
}

/// Pause of [`gs_own_threads`] before it checks again for a thread that is being started, in ns.
const PAUSE: i64 = 100_000;

/// Writes the thread ids (gettid(2)) of the threads that the library has started and not joined yet
/// to ids, which has room for n. Returns the number of threads, maybe more than n. Threads that
/// call gs_run or gs_attach are not among them. Waits for threads that are being started. So a
/// program can tell its own threads in /proc/self/task from those of the library: before it forks,
/// for instance. -EINVAL: ids is NULL, and n isn't 0. Goroutines and plain threads; never switches.
///
/// # Safety
/// `ids` is writable for `n` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_own_threads(ids: *mut i32, n: usize) -> c_int {
    if ids.is_null() && n > 0 {
        return EINVAL;
    }
    let room = match n {
        0 => &mut [],
        // SAFETY: not null; writable for `n` numbers, says the caller.
        _ => unsafe { core::slice::from_raw_parts_mut(ids.cast::<MaybeUninit<i32>>(), n) },
    };
    loop {
        let entered = Entered::without_giving_way();
        let count = thread::own_ids(room);
        drop(entered);
        if let Some(count) = count {
            return count.min(c_int::MAX as usize) as c_int;
        }
        // Outside, so that others may take the P: the thread that starts the new thread may wait
        // for a lock of the C library that a preempted goroutine holds.
        time::sleep(PAUSE);
    }
}
