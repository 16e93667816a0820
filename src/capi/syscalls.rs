//! System calls and threads.

use super::EINVAL;
use crate::sched::boundary::Entered;
use crate::sched::runtime::{Inside, rt};
use crate::sched::{blocking, lock_thread, world};
use core::ffi::{c_int, c_void};

/// The goroutine is about to make a system call that may block: until
/// gs_exitsyscall its P may be used by others. In between the thread counts as a
/// plain one: a call of this library that blocks, blocks the thread. Nests. On a
/// plain thread it does nothing. 0. entersyscall.
#[unsafe(no_mangle)]
pub extern "C" fn gs_entersyscall() -> c_int {
    let _entered = Entered::new();
    blocking::enter()
}

/// The same when the call surely blocks for long: the P is given up at once.
/// Undone by gs_exitsyscall too. 0. entersyscallblock.
#[unsafe(no_mangle)]
pub extern "C" fn gs_entersyscallblock() -> c_int {
    let _entered = Entered::new();
    blocking::enter_block()
}

/// The system call is over; the goroutine goes on when it has a P again. errno
/// stays. 0; -EPERM: there was no gs_entersyscall (nothing has changed).
/// exitsyscall.
#[unsafe(no_mangle)]
pub extern "C" fn gs_exitsyscall() -> c_int {
    let _entered = Entered::new();
    blocking::exit()
}

/// Calls f(arg) on the thread's own stack (8 MiB as a rule) with the P given up:
/// the way to call a deep or blocking C function from a goroutine. In f the
/// thread counts as a plain one, but gs_self is the goroutine. Gives what f
/// returns, and its errno; NULL if f is NULL. On a plain thread it just calls f.
///
/// # Safety
/// Calling `f` with `arg` is the caller's business.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_blocking(
    f: Option<unsafe extern "C" fn(arg: *mut c_void) -> *mut c_void>,
    arg: *mut c_void,
) -> *mut c_void {
    let _entered = Entered::new();
    // SAFETY: the caller of `gs_blocking` gave `f` for `arg`.
    f.map_or(core::ptr::null_mut(), |f| unsafe { blocking::call(f, arg) })
}

/// From now on the goroutine stays on this thread, and no other runs on it; goroutines
/// that are pinned to the thread run there while this one is parked. If the goroutine
/// ends while locked the thread ends too (unless it is gs_run's caller's, or others
/// are pinned to it). Nests.
/// 0. LockOSThread.
#[unsafe(no_mangle)]
pub extern "C" fn gs_lock_os_thread() -> c_int {
    let _entered = Entered::new();
    lock_thread::lock();
    0
}

/// Undoes one gs_lock_os_thread. 0; -EPERM: there was none. UnlockOSThread.
#[unsafe(no_mangle)]
pub extern "C" fn gs_unlock_os_thread() -> c_int {
    let _entered = Entered::new();
    lock_thread::unlock()
}

/// Sets how many goroutines run at the same time, at most GS_MAX_PROCS, and gives
/// the former number; n <= 0 only asks. All goroutines stop for a moment. -EINVAL:
/// n is too large; -ENOMEM: the number is as before. Also -ENOMEM, -EAGAIN if the runtime
/// can't be started (see gs_init). Goroutines and plain threads. GOMAXPROCS.
#[unsafe(no_mangle)]
pub extern "C" fn gs_gomaxprocs(n: c_int) -> c_int {
    let _entered = Entered::new();
    if n > super::GS_MAX_PROCS {
        return EINVAL;
    }
    match Inside::enter_from_outside() {
        Ok(_inside) => world::gomaxprocs(n),
        Err(e) => e,
    }
}

/// Sets how many threads the library may start to run goroutines, and gives the former
/// number; n <= 0 only asks. Threads that call gs_run don't count. At the limit
/// goroutines wait for a thread; a warning says so once. With a limit of 1 there are two
/// while a goroutine has locked the first.
/// Threads that there are already stay. Each goroutine that is preempted by a signal,
/// or blocks its thread, keeps one. -ENOMEM, -EAGAIN: the runtime can't be started (see
/// gs_init). debug.SetMaxThreads.
#[unsafe(no_mangle)]
pub extern "C" fn gs_set_max_threads(n: c_int) -> c_int {
    let _entered = Entered::new();
    match Inside::enter_from_outside() {
        Ok(_inside) => rt().set_max_threads(n),
        Err(e) => e,
    }
}
