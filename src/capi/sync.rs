//! Mutexes and other synchronisation objects.
//!
//! The objects are the user's memory, valid when all bytes are zero. A thread may free an object as
//! soon as its own last call on the object has returned. An object may not be copied or moved while
//! a goroutine or thread waits in it.

use super::{EINVAL, gs_deadline, gs_fn};
use crate::arch::resumable;
use crate::sched::run::requests::any_p_is_asked;
use crate::sched::take::boundary::{Entered, Returning};
use crate::sync::{Cond, Mutex, Once, RwMutex, Sem, WaitGroup};
use core::ffi::{c_int, c_void};

/// Ties a public type to the library's own type.
macro_rules! object {
    ($name:ident, $inner:ident) => {
        const _: () = assert!(size_of::<$inner>() <= size_of::<$name>());

        impl $name {
            /// # Safety
            /// `p` is null or an object that was initialised with zeros.
            unsafe fn given<'a>(p: *mut $name) -> Option<&'a $inner> {
                // SAFETY: null or one of these; ours fits in, as asserted above, and zeros are a
                // valid one.
                unsafe { p.cast::<$inner>().as_ref() }
            }
        }
    };
}

/// A mutex, with the normal and the starvation mode of Go's. No goroutine owns it: any may unlock
/// it. All bytes zero: unlocked. Go's sync.Mutex.
#[repr(C)]
pub struct gs_mutex {
    pub(super) opaque: [u64; 4],
}

/// A lock for many readers or one writer; new readers wait while a writer waits.
/// All bytes zero: unlocked. Go's sync.RWMutex.
#[repr(C)]
pub struct gs_rwmutex {
    pub(super) opaque: [u64; 8],
}

/// A condition variable. All bytes zero: a condition variable without waiters. Go's sync.Cond.
#[repr(C)]
pub struct gs_cond {
    pub(super) opaque: [u64; 4],
}

/// A counter to wait for. All bytes zero: 0. Go's sync.WaitGroup.
#[repr(C)]
pub struct gs_waitgroup {
    pub(super) opaque: [u64; 6],
}

/// A weighted semaphore, first come first served. All bytes zero: no units.
#[repr(C)]
pub struct gs_sem {
    pub(super) opaque: [u64; 6],
}

/// Does something once. All bytes zero: not done yet. Go's sync.Once.
#[repr(C)]
pub struct gs_once {
    pub(super) opaque: [u64; 6],
}

object!(gs_mutex, Mutex);
object!(gs_rwmutex, RwMutex);
object!(gs_cond, Cond);
object!(gs_waitgroup, WaitGroup);
object!(gs_sem, Sem);
object!(gs_once, Once);

/// Locks the mutex. 0; -EAGAIN, -ETIMEDOUT, -ECANCELED: not locked; -EINVAL: NULL. Goroutines and
/// plain threads.
///
/// # Safety
/// `m` is null or a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_mutex_lock(m: *mut gs_mutex, deadline: gs_deadline) -> c_int {
    // SAFETY: `m` is null or a mutex.
    let Some(m) = (unsafe { gs_mutex::given(m) }) else { return EINVAL };
    // One compare-and-swap needs no P.
    if !any_p_is_asked() && m.try_once() { 0 } else { inside(|| m.lock(deadline)) }
}

/// Calls `f` in the library. Out of line, so that the fast path needs no stack frame.
#[cold]
#[inline(never)]
fn inside(f: impl FnOnce() -> c_int) -> c_int {
    let _entered = Entered::new();
    f()
}

/// Locks the mutex if it is free. 0; -EBUSY: not free; -EINVAL: NULL.
///
/// # Safety
/// `m` is null or a mutex.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_mutex_trylock(m: *mut gs_mutex) -> c_int {
    // SAFETY: `m` is null or a mutex.
    let m = unsafe { gs_mutex::given(m) };
    m.map_or(EINVAL, |m| if m.try_lock() { 0 } else { -libc::EBUSY })
}

/// Unlocks the mutex. 0; -EPERM: not locked; -EINVAL: NULL.
///
/// # Safety
/// `m` is null or a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_mutex_unlock(m: *mut gs_mutex) -> c_int {
    // SAFETY: `m` is null or a mutex.
    let Some(m) = (unsafe { gs_mutex::given(m) }) else { return EINVAL };
    if m.unlock_once() { 0 } else { inside(|| m.unlock()) }
}

/// Locks the rwmutex for reading, together with other readers. 0; -EAGAIN, -ETIMEDOUT, -ECANCELED:
/// not locked; -EINVAL: NULL. Goroutines and plain threads.
///
/// # Safety
/// `rw` is null or a gs_rwmutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_rwmutex_rlock(rw: *mut gs_rwmutex, deadline: gs_deadline) -> c_int {
    // SAFETY: `rw` is null or a gs_rwmutex.
    let Some(rw) = (unsafe { gs_rwmutex::given(rw) }) else { return EINVAL };
    // As in `gs_mutex_lock`, and so in the next three functions.
    if !any_p_is_asked() && rw.read_once() { 0 } else { inside(|| rw.read_lock(deadline)) }
}

/// Undoes one gs_rwmutex_rlock. 0; -EPERM: there is no reader; -EINVAL: NULL.
///
/// # Safety
/// `rw` is null or a gs_rwmutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_rwmutex_runlock(rw: *mut gs_rwmutex) -> c_int {
    // SAFETY: `rw` is null or a gs_rwmutex.
    let Some(rw) = (unsafe { gs_rwmutex::given(rw) }) else { return EINVAL };
    if rw.read_unlock_once() { 0 } else { inside(|| rw.read_unlock()) }
}

/// Locks the rwmutex for writing, alone. 0; -EAGAIN, -ETIMEDOUT, -ECANCELED: not locked, and
/// readers that waited behind this writer go on; -EINVAL: NULL. Goroutines and plain threads.
///
/// # Safety
/// `rw` is null or a gs_rwmutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_rwmutex_lock(rw: *mut gs_rwmutex, deadline: gs_deadline) -> c_int {
    // SAFETY: `rw` is null or a gs_rwmutex.
    let Some(rw) = (unsafe { gs_rwmutex::given(rw) }) else { return EINVAL };
    if !any_p_is_asked() && rw.write_once() { 0 } else { inside(|| rw.write_lock(deadline)) }
}

/// Undoes gs_rwmutex_lock. Readers that wait go before writers that wait. 0;
/// -EPERM: there is no writer; -EINVAL: NULL.
///
/// # Safety
/// `rw` is null or a gs_rwmutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_rwmutex_unlock(rw: *mut gs_rwmutex) -> c_int {
    // SAFETY: `rw` is null or a gs_rwmutex.
    let Some(rw) = (unsafe { gs_rwmutex::given(rw) }) else { return EINVAL };
    if rw.write_unlock_once() { 0 } else { inside(|| rw.write_unlock()) }
}

/// Unlocks the mutex, waits to be woken, and locks the mutex again, whatever the result. There are
/// no spurious wake-ups, but the condition may be false again: check it in a loop.
///
/// 0; -EAGAIN, -ETIMEDOUT, -ECANCELED: not woken; -EPERM: the mutex isn't locked;
/// -EINVAL: NULL. Goroutines and plain threads.
///
/// # Safety
/// `c` is null or a gs_cond, `m` null or a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_cond_wait(
    c: *mut gs_cond,
    m: *mut gs_mutex,
    deadline: gs_deadline,
) -> c_int {
    let _entered = Entered::new();
    // SAFETY: `c` is null or a gs_cond, `m` null or a mutex.
    match unsafe { (gs_cond::given(c), gs_mutex::given(m)) } {
        (Some(c), Some(m)) => c.wait(m, deadline),
        _ => EINVAL,
    }
}

/// Wakes the waiter that has waited longest, if any. 0; -EINVAL: NULL.
///
/// # Safety
/// `c` is null or a gs_cond.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_cond_signal(c: *mut gs_cond) -> c_int {
    let _entered = Entered::new();
    // SAFETY: `c` is null or a gs_cond.
    let c = unsafe { gs_cond::given(c) };
    c.map_or(EINVAL, |c| {
        c.signal();
        0
    })
}

/// Wakes all waiters. 0; -EINVAL: NULL.
///
/// # Safety
/// `c` is null or a gs_cond.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_cond_broadcast(c: *mut gs_cond) -> c_int {
    let _entered = Entered::new();
    // SAFETY: `c` is null or a gs_cond.
    let c = unsafe { gs_cond::given(c) };
    c.map_or(EINVAL, |c| {
        c.broadcast();
        0
    })
}

/// Adds delta, which may be negative, to the counter; when the counter becomes 0, wakes all
/// waiters. 0; -EINVAL: NULL, or the counter would be negative or more than INT64_MAX (nothing has
/// changed).
///
/// # Safety
/// `wg` is null or a waitgroup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_waitgroup_add(wg: *mut gs_waitgroup, delta: i64) -> c_int {
    let _entered = Entered::new();
    // SAFETY: `wg` is null or a waitgroup.
    unsafe { gs_waitgroup::given(wg) }.map_or(EINVAL, |wg| wg.add(delta))
}

/// gs_waitgroup_add(wg, -1).
///
/// # Safety
/// `wg` is null or a waitgroup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_waitgroup_done(wg: *mut gs_waitgroup) -> c_int {
    let _entered = Entered::new();
    // SAFETY: `wg` is null or a waitgroup.
    unsafe { gs_waitgroup::given(wg) }.map_or(EINVAL, |wg| wg.add(-1))
}

/// Waits until the counter is 0. 0; -EAGAIN, -ETIMEDOUT, -ECANCELED: the counter may not be 0 yet;
/// -EINVAL: NULL. Goroutines and plain threads.
///
/// # Safety
/// `wg` is null or a waitgroup.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn gs_waitgroup_wait(wg: *mut gs_waitgroup, deadline: gs_deadline) -> c_int {
    resumable!(2, waitgroup_wait_at)
}

unsafe extern "C" fn waitgroup_wait_at(
    wg: *mut gs_waitgroup,
    deadline: gs_deadline,
    to: usize,
) -> Returning {
    let entered = Entered::new();
    // SAFETY: `wg` is null or a waitgroup.
    let wg = unsafe { gs_waitgroup::given(wg) };
    Returning::to(to, entered, || wg.map_or(EINVAL, |wg| wg.wait(deadline)))
}

/// Gives a semaphore its first n units, before its first use. 0; -EINVAL: NULL, or n is negative.
///
/// # Safety
/// `s` is null or a semaphore.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_sem_init(s: *mut gs_sem, n: i64) -> c_int {
    let _entered = Entered::new();
    // SAFETY: not null, so it is a semaphore's memory; its content is overwritten.
    unsafe {
        if !s.is_null() && n >= 0 {
            s.write(gs_sem { opaque: [0; 6] });
        }
        gs_sem::given(s).map_or(EINVAL, |s| s.init(n))
    }
}

/// Takes n units. Callers are served first come, first served. 0; -EAGAIN, -ETIMEDOUT, -ECANCELED:
/// none taken; -EINVAL: NULL, or n is negative. Goroutines and plain threads.
///
/// # Safety
/// `s` is null or a semaphore.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_sem_acquire(s: *mut gs_sem, n: i64, deadline: gs_deadline) -> c_int {
    let _entered = Entered::new();
    // SAFETY: `s` is null or a semaphore.
    unsafe { gs_sem::given(s) }.map_or(EINVAL, |s| s.acquire(n, deadline))
}

/// Adds n units. 0; -EINVAL: NULL, or n is negative, or there would be more than INT64_MAX (nothing
/// has changed).
///
/// # Safety
/// `s` is null or a semaphore.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_sem_release(s: *mut gs_sem, n: i64) -> c_int {
    let _entered = Entered::new();
    // SAFETY: `s` is null or a semaphore.
    unsafe { gs_sem::given(s) }.map_or(EINVAL, |s| s.release(n))
}

/// Runs f(arg) in the first call with this object. When gs_once_do returns, in any call, f has
/// returned. f must not end its goroutine. 0; -ECANCELED: cancelled while another caller runs f;
/// -EDEADLK: called by f itself; -EINVAL: NULL. Goroutines and plain threads.
///
/// # Safety
/// `o` is null or a gs_once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_once_do(o: *mut gs_once, f: gs_fn, arg: *mut c_void) -> c_int {
    // SAFETY: `o` is null or a gs_once.
    match (unsafe { gs_once::given(o) }, f) {
        (Some(o), Some(_)) if o.is_done() => 0,
        (Some(o), Some(f)) => {
            let _entered = Entered::new();
            // SAFETY: the user gave this function for this argument.
            o.run(|| unsafe { f(arg) })
        }
        _ => EINVAL,
    }
}
