//! Goroutines and goroutine-local values.

use super::sized::{self, Given, Grows};
use super::{EINVAL, gs_deadline, gs_duration, gs_fn};
use crate::arch::with_return_address;
use crate::os::thread;
use crate::sched::ext::gang::state::Gang;
use crate::sched::lifecycle::spawn::{self, Options};
use crate::sched::lifecycle::{bubble, cancel, goroutine, keys};
use crate::sched::run::group::{self, Group, LARGEST};
use crate::sched::run::yielding::{self, Found};
use crate::sched::take::boundary::Entered;
use crate::sched::types::g::{G, GRef, flags};
use crate::sched::types::m::{self, MRef};
use crate::sched::types::node::priority;
use crate::sched::types::runtime::Visit;
use crate::stack::SizeClass;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::Ordering;

/// A reference to a goroutine.
pub struct gs_g {
    _private: [u8; 0],
}

/// After its first run the goroutine stays on one OS thread, so that thread-local variables of the
/// code it runs are safe. Other goroutines run on the thread too, and the pinned goroutine waits
/// while one of them computes without calling the library (gs_lock_os_thread keeps the others
/// away). A goroutine that isn't pinned leaves the thread before an announced call
/// (gs_entersyscall, gs_blocking). So a pinned goroutine waits for announced calls of pinned
/// goroutines, and for all blocking calls that aren't announced.
pub const GS_SPAWN_PINNED: u32 = 1;
/// The goroutine is never preempted by a signal, and keeps its P even if it blocks its thread
/// without gs_entersyscall. So it must not block its thread to wait for something that another
/// goroutine holds: if such goroutines block all P's, no goroutine can run that would end their
/// wait. malloc(3) is a case of this: a goroutine that the signal has preempted may hold malloc's
/// lock. A program with n such goroutines therefore needs at least n + 1 P's, or no preemption
/// (GS_CONFIG_COOPERATIVE).
pub const GS_SPAWN_NOPREEMPT: u32 = 2;
/// The preemption signal never stops the goroutine: it gives way only in calls of the library.
/// Unlike with GS_SPAWN_NOPREEMPT, other goroutines get its P when it blocks its thread. For code
/// that must not be stopped at an arbitrary instruction because it may hold a lock that threads
/// wait for outside of the library, as interpreters do. gs_stop_the_world waits for the goroutine's
/// next call. If the goroutine belongs to a worker group (gs_workers_create) and computes for
/// longer than a time slice while others wait, it loses its P and computes on without a P until its
/// next call.
pub const GS_SPAWN_NOSIGNAL: u32 = 4;

/// Runs before all goroutines except a goroutine that the running goroutine has just made ready.
pub const GS_PRIO_HIGH: c_int = 1;
/// The priority of a goroutine that gs_spawn starts.
pub const GS_PRIO_NORMAL: c_int = 0;
/// Runs when no goroutine of normal priority waits on its node; otherwise in a small share of the
/// scheduling decisions, so as not to starve.
pub const GS_PRIO_LOW: c_int = -1;
/// Runs only when no other goroutine can run. seed: S10
pub const GS_PRIO_IDLE: c_int = -2;

const _: () = assert!(GS_SPAWN_PINNED == flags::PINNED && GS_SPAWN_NOPREEMPT == flags::NOPREEMPT);
const _: () = assert!(GS_SPAWN_NOSIGNAL == flags::NOSIGNAL);
const _: () =
    assert!(GS_PRIO_HIGH == priority::HIGH as c_int && GS_PRIO_IDLE == priority::IDLE as c_int);
const _: () =
    assert!(GS_PRIO_NORMAL == priority::NORMAL as c_int && GS_PRIO_LOW == priority::LOW as c_int);

/// A group of threads: see gs_workers_create.
pub struct gs_workers {
    _private: [u8; 0],
}

/// A flag of gs_workers_create: one of the group's threads is a thread that calls gs_run. A thread
/// that calls gs_run joins the first group that lacks such a thread (a group whose goroutines wait
/// for it comes before the others), and other groups too when their goroutines would otherwise wait
/// for such a thread. The thread leaves its groups when gs_run returns, which is not before the
/// goroutines that have begun on it have ended.
pub const GS_WORKERS_RUNNER: u32 = 1;

/// A flag of gs_workers_create: all of the group's threads are threads that call gs_run or
/// gs_attach, each as with GS_WORKERS_RUNNER. The library starts no thread for the group: its
/// goroutines wait until the first such thread calls.
pub const GS_WORKERS_RUNNERS: u32 = 2;

/// Makes a group of n threads, for runtimes whose code must stay on a few threads (an interpreter
/// with one lock: n is 1). A goroutine that is spawned with GS_SPAWN_PINNED and
/// gs_spawn_opts.workers begins on whichever of the threads takes it first, and stays there. The
/// threads are started as they are needed, and run other goroutines too.
///
/// flags: 0, GS_WORKERS_RUNNER or GS_WORKERS_RUNNERS.
///
/// NULL: n is not in 1 to GS_MAX_PROCS, the flags are unknown, or there is no memory. Free the
/// group with gs_workers_free. The call starts no runtime; one runtime after the other may use the
/// group. Goroutines and plain threads; may switch.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn gs_workers_create(n: c_int, flags: u32) -> *mut gs_workers {
    let _entered = Entered::new();
    let is_known = (1..=LARGEST as c_int).contains(&n);
    let runners = match flags {
        0 => Some(0),
        GS_WORKERS_RUNNER => Some(1),
        GS_WORKERS_RUNNERS => Some(n as usize),
        _ => None,
    };
    let group = runners.filter(|_| is_known).and_then(|r| group::create(n as usize, r));
    group.map_or(ptr::null_mut(), |g| ptr::from_ref(g).cast_mut().cast())
}

/// Frees a group. 0, also for NULL; -EBUSY: a goroutine of the group has not ended; -EINVAL: the
/// group was freed before. Goroutines and plain threads; may switch.
///
/// # Safety
/// `workers` is null or from gs_workers_create, and is not used any more after 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_workers_free(workers: *mut gs_workers) -> c_int {
    let _entered = Entered::new();
    if workers.is_null() {
        return 0;
    }
    // SAFETY: as the caller says.
    unsafe { group::free(workers.cast::<Group>()) }
}

/// Options of gs_spawn_with. Start from GS_SPAWN_OPTS_INIT, not from zeros: node 0 is a node.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct gs_spawn_opts {
    /// sizeof(gs_spawn_opts).
    pub size: usize,
    /// A name for reports, copied; or NULL.
    pub name: *const c_char,
    /// Bytes of stack that the goroutine can use, at most 1 GiB; 0: gs_config.stack_size. A size
    /// that is too small to work is raised to the least that works.
    pub stack_size: usize,
    /// GS_PRIO_...
    pub priority: c_int,
    /// The NUMA node that the goroutine starts on, by this process's numbering; -1: any.
    pub node: c_int,
    /// GS_SPAWN_... or'ed.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
    /// The first value of gs_data(g).
    pub data: *mut c_void,
    /// The group whose threads run the goroutine, with GS_SPAWN_PINNED, GS_PRIO_NORMAL and node -1;
    /// or NULL.
    pub workers: *mut gs_workers,
}

// SAFETY: `repr(C)`, begins with its size and has no padding.
unsafe impl Grows for gs_spawn_opts {
    const FIRST: usize = 40;
}

impl Given for gs_spawn_opts {
    const DEFAULT: gs_spawn_opts = gs_spawn_opts {
        size: 0,
        name: ptr::null(),
        stack_size: 0,
        priority: GS_PRIO_NORMAL,
        node: -1,
        flags: 0,
        reserved: 0,
        data: ptr::null_mut(),
        workers: ptr::null_mut(),
    };

    fn fields(size: usize) -> usize {
        // In the first release `reserved` was padding, which a program may leave uninitialised.
        if size == Self::FIRST { offset_of!(gs_spawn_opts, reserved) } else { size }
    }
}

/// Starts f(arg) as a goroutine: go f(arg). The goroutine takes no stack until it first runs. The
/// goroutine that was spawned last runs first, unless another P takes it.
///
/// 0; -EINVAL: f is NULL; -ENOMEM. Goroutines and plain threads.
///
/// # Safety
/// Calling `f` with `arg`, on any thread, is the caller's business.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn gs_spawn(f: gs_fn, arg: *mut c_void) -> c_int {
    with_return_address!(2, spawn_at)
}

unsafe extern "C" fn spawn_at(f: gs_fn, arg: *mut c_void, pc: usize) -> c_int {
    let entered = Entered::new();
    let result = f.map_or(EINVAL, |f| spawn::spawn_on(entered.m(), f, arg, pc));
    // Spawning never switches.
    let m = entered.m();
    entered.back_on(m);
    result
}

/// gs_spawn with options. opts may be NULL. If out is not NULL, *out is a
/// reference that the caller must give back with gs_release; after an error it is
/// NULL.
///
/// 0; -EINVAL: f is NULL, or an option is unknown or out of its range; -ENOMEM.
/// Goroutines and plain threads.
///
/// # Safety
/// `opts` is null or a gs_spawn_opts of the size that it says; `out` is null or
/// writable.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn gs_spawn_with(
    f: gs_fn,
    arg: *mut c_void,
    opts: *const gs_spawn_opts,
    out: *mut *mut gs_g,
) -> c_int {
    with_return_address!(4, spawn_with_at)
}

unsafe extern "C" fn spawn_with_at(
    f: gs_fn,
    arg: *mut c_void,
    opts: *const gs_spawn_opts,
    out: *mut *mut gs_g,
    pc: usize,
) -> c_int {
    // SAFETY: `opts` and `out` are those of `gs_spawn_with`.
    unsafe { spawn_in(None, f, arg, opts, out, pc) }
}

/// [`gs_spawn_with`], as a member of a gang.
///
/// # Safety
/// As [`gs_spawn_with`].
pub(super) unsafe fn spawn_in(
    gang: Option<&'static Gang>,
    f: gs_fn,
    arg: *mut c_void,
    opts: *const gs_spawn_opts,
    out: *mut *mut gs_g,
    pc: usize,
) -> c_int {
    let _entered = Entered::new();
    // SAFETY: `opts` is null or of the size that it says, `out` null or writable.
    let (result, out) = unsafe { (sized::read(opts).and_then(|o| options(o, out)), out.as_mut()) };
    let spawned = result.and_then(|o| {
        if gang.is_some()
            && (o.priority != priority::NORMAL || o.node.is_some() || o.workers.is_some())
        {
            return Err(EINVAL);
        }
        spawn::spawn_with(f.ok_or(EINVAL)?, arg, pc, &Options { gang, ..o })
    });
    if let Some(out) = out {
        *out = spawned.as_ref().map_or(ptr::null_mut(), |g| g.as_ptr().cast());
    }
    spawned.err().unwrap_or(0)
}

/// # Safety
/// The name is null or a C string, which outlives the answer.
unsafe fn options(
    opts: Option<gs_spawn_opts>,
    out: *mut *mut gs_g,
) -> Result<Options<'static>, c_int> {
    let referenced = !out.is_null();
    let Some(o) = opts else {
        return Ok(Options { referenced, ..Options::DEFAULT });
    };
    let known = (GS_PRIO_IDLE..=GS_PRIO_HIGH).contains(&o.priority) && o.node >= -1;
    if !known || o.flags & !flags::PUBLIC != 0 || o.reserved != 0 {
        return Err(EINVAL);
    }
    let workers = o.workers.cast::<Group>().cast_const();
    let is_pinned = o.flags & GS_SPAWN_PINNED != 0 && o.node < 0 && o.priority == GS_PRIO_NORMAL;
    if !(workers.is_null() || is_pinned && group::is_live(workers)) {
        return Err(EINVAL);
    }
    // SAFETY: null, or a group, which the caller keeps as long as there are goroutines of it.
    let workers = unsafe { workers.as_ref() };
    Ok(Options {
        // SAFETY: not null, so it is a C string.
        name: (!o.name.is_null()).then(|| unsafe { CStr::from_ptr(o.name) }),
        stack: if o.stack_size == 0 {
            None
        } else {
            Some(SizeClass::for_usable(o.stack_size).ok_or(EINVAL)?)
        },
        priority: o.priority as i8,
        gang: None,
        workers,
        node: usize::try_from(o.node).ok(),
        flags: o.flags,
        data: o.data,
        referenced,
    })
}

/// # Safety
/// `g` is null or a reference.
unsafe fn given(g: *const gs_g) -> Option<GRef> {
    // SAFETY: references are descriptors, which stay mapped.
    unsafe { GRef::from_nullable(g.cast::<G>()) }
}

/// Waits until the goroutine has ended. Then everything that it wrote is visible to the caller. The
/// caller keeps its reference.
///
/// 0; -EAGAIN, -ETIMEDOUT, -ECANCELED; -EDEADLK: g is the caller; -EINVAL: NULL.
///
/// # Safety
/// `g` is null or a reference.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_join(g: *mut gs_g, deadline: gs_deadline) -> c_int {
    let _entered = Entered::new();
    // SAFETY: `g` is null or a reference.
    unsafe { given(g) }.map_or(EINVAL, |g| goroutine::join(g, deadline))
}

/// Cancels the goroutine: each of its calls that would block, now or later, gives -ECANCELED. The
/// goroutine runs until its function returns, even if it had not begun to run before. A wait within
/// gs_blocking, or between gs_entersyscall and gs_exitsyscall, goes on: there the goroutine's
/// thread counts as a plain thread. gs_mutex_lock returns -ECANCELED, too: put clean-up that must
/// be done in any case between gs_cancel_disable and gs_cancel_enable.
///
/// 0, also if the goroutine has ended; -EINVAL: NULL.
///
/// # Safety
/// `g` is null or a reference.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_cancel(g: *mut gs_g) -> c_int {
    let _entered = Entered::new();
    // SAFETY: `g` is null or a reference.
    let Some(g) = (unsafe { given(g) }) else { return EINVAL };
    if !goroutine::has_ended(g) {
        cancel::cancel(g);
    }
    0
}

/// Disables cancelling of the running goroutine: no call returns -ECANCELED because of gs_cancel,
/// so clean-up can take a contended lock, or write a last message. (A call that waits for a file
/// still returns -ECANCELED if gs_close closes the file.) A cancel that comes meanwhile, or has
/// come before, takes effect at the first call that would block after gs_cancel_enable. Nests; ends
/// with the goroutine. Does nothing on a plain thread, which can't be cancelled.
///
/// 0. Goroutines and plain threads. The counterpart of pthread_setcancelstate.
#[unsafe(no_mangle)]
pub extern "C" fn gs_cancel_disable() -> c_int {
    // The signal handler changes the goroutine's flags too.
    let _call = Entered::without_giving_way();
    cancel::disable();
    0
}

/// Undoes one gs_cancel_disable. If the goroutine was cancelled, the next call that would block
/// says so, not this one.
///
/// 0, on a plain thread always; -EPERM: there was no gs_cancel_disable (nothing has changed).
/// Goroutines and plain threads.
#[unsafe(no_mangle)]
pub extern "C" fn gs_cancel_enable() -> c_int {
    let _call = Entered::without_giving_way();
    cancel::enable()
}

/// Returns 1 if gs_cancel was called for the running goroutine, even while cancelling is disabled;
/// else, and on a plain thread, 0. For loops that compute, and call nothing that would block.
/// Goroutines and plain threads.
#[unsafe(no_mangle)]
pub extern "C" fn gs_cancelled() -> c_int {
    c_int::from(cancel::is_cancelled())
}

/// Undoes gs_cancel for the running goroutine: its later waits are as if gs_cancel had not been
/// called. For runtimes that raise an exception once in a cancelled goroutine. A gs_cancel that has
/// not returned yet may still end one wait.
///
/// 1: the goroutine was cancelled; 0: it was not, or the caller is a plain thread. Goroutines and
/// plain threads.
#[unsafe(no_mangle)]
pub extern "C" fn gs_uncancel() -> c_int {
    c_int::from(cancel::take_back())
}

/// Returns the running goroutine; NULL on a plain thread. The result is not a new reference: it is
/// valid until the goroutine ends. To keep it longer, call gs_retain.
#[unsafe(no_mangle)]
pub extern "C" fn gs_self() -> *mut gs_g {
    m::current_g().map_or(ptr::null_mut(), |g| {
        spawn::share(g);
        g.as_ptr().cast()
    })
}

/// Takes one more reference, which the caller must give back with gs_release. Returns g; NULL for
/// NULL.
///
/// # Safety
/// `g` is null or a reference, or the running goroutine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_retain(g: *mut gs_g) -> *mut gs_g {
    // SAFETY: `g` is null, a reference or the running goroutine.
    if let Some(g) = unsafe { given(g) } {
        g.refs.fetch_add(1, Ordering::Relaxed);
    }
    g
}

/// Gives a reference back. Does nothing for NULL.
///
/// # Safety
/// `g` is null or a reference that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_release(g: *mut gs_g) {
    let _entered = Entered::new();
    // SAFETY: `g` is null or a reference.
    if let Some(g) = unsafe { given(g) } {
        goroutine::release(g);
    }
}

/// Returns the goroutine's id, unique while the runtime lives. 0 for NULL.
///
/// # Safety
/// `g` is null or a reference.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_id(g: *const gs_g) -> u64 {
    // SAFETY: `g` is null or a reference.
    unsafe { given(g) }.map_or(0, |g| g.id.load(Ordering::Relaxed))
}

/// Lets others run: the goroutine goes behind all goroutines that can run on its P. About one
/// scheduling decision in 30 begins with another queue, as in Go, so that no queue starves; then
/// the caller may run before the others. On a plain thread: sched_yield. Go's Gosched.
#[unsafe(no_mangle)]
pub extern "C" fn gs_yield() {
    let Some((entered, m)) = Entered::unasked() else { return look_and_yield() };
    match yielding::quick_look(m) {
        Found::Nothing => entered.back_on(Some(m)),
        Found::Others => go_on_yielding(entered.continued(), m),
        Found::Unclear => {
            entered.back_on(Some(m));
            look_and_yield();
        }
    }
}

/// In a function of its own, so that [`gs_yield`] saves no registers when nothing else can run.
#[inline(never)]
extern "C" fn go_on_yielding(from: u8, m: MRef) {
    let entered = Entered::again(from, Some(m));
    let m = yielding::yield_now(m);
    entered.back_on(Some(m));
}

#[cold]
#[inline(never)]
extern "C" fn look_and_yield() {
    let entered = Entered::new();
    match entered.m() {
        Some(m) if m::is_on_goroutine(m) => match yielding::look(m) {
            true => go_on_yielding(entered.continued(), m),
            false => entered.back_on(Some(m)),
        },
        _ => thread::yield_now(),
    }
}

/// Ends the running goroutine, however deep its calls are. The destructors of its goroutine-local
/// values run; those of C++ objects on its stack do not, and an exception that it is handling is
/// lost. In gs_run's function gs_exit makes gs_run return 0. Does nothing on a plain thread, and
/// between gs_entersyscall and gs_exitsyscall. Go's Goexit.
#[unsafe(no_mangle)]
pub extern "C" fn gs_exit() {
    let _entered = Entered::new();
    if let Some(m) = m::on_goroutine() {
        goroutine::exit_current(m);
    }
}

/// Blocks for ns nanoseconds; returns at once if ns <= 0. 0; -ECANCELED; -ENOMEM: not slept (see
/// GS_FOREVER). Goroutines and plain threads. Go's time.Sleep.
#[unsafe(no_mangle)]
pub extern "C" fn gs_sleep(ns: gs_duration) -> c_int {
    let _entered = Entered::new();
    crate::time::sleep(ns)
}

/// Blocks until the deadline; returns at once if it has passed, as GS_NOWAIT always has. With
/// GS_FOREVER only gs_cancel ends the sleep. 0; -ECANCELED; -ENOMEM: not slept (see GS_FOREVER).
#[unsafe(no_mangle)]
pub extern "C" fn gs_sleep_until(deadline: gs_deadline) -> c_int {
    let _entered = Entered::new();
    crate::time::sleep_until(deadline)
}

/// Returns the number of goroutines, including those that have not run yet and those of gs_run; in a
/// bubble (gs_test_run) the number of its own. Go's NumGoroutine.
#[unsafe(no_mangle)]
pub extern "C" fn gs_num_goroutines() -> usize {
    let _entered = Entered::new();
    match bubble::goroutines() {
        Some(n) => n,
        None => Visit::begin().map_or(0, |rt| rt.goroutines()),
    }
}

/// A key of goroutine-local values; never 0.
pub type gs_key = u32;

/// Makes a key. At the end of a goroutine dtor (NULL: none) is called with each
/// value that is not NULL, on the goroutine and before a gs_join of it returns;
/// it may block and may set values again, for at most 4 rounds. On a plain thread
/// values belong to the thread.
///
/// 0; -EINVAL: key is NULL; -EAGAIN: there are 65,536 keys.
///
/// # Safety
/// `key` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_key_create(
    key: *mut gs_key,
    dtor: Option<unsafe extern "C" fn(value: *mut c_void)>,
) -> c_int {
    let _entered = Entered::new();
    // SAFETY: `key` is null or writable.
    let Some(out) = (unsafe { key.as_mut() }) else { return EINVAL };
    match keys::create(dtor) {
        Ok(key) => {
            *out = key;
            0
        }
        Err(e) => e,
    }
}

/// Deletes a key. Its values are dropped without a call of the destructor. 0; -EINVAL: there is no
/// such key.
#[unsafe(no_mangle)]
pub extern "C" fn gs_key_delete(key: gs_key) -> c_int {
    let _entered = Entered::new();
    keys::delete(key)
}

/// Sets the running goroutine's value of a key. 0; -EINVAL: there is no such key;
/// -EAGAIN: a plain thread that is ending; -ENOMEM.
#[unsafe(no_mangle)]
pub extern "C" fn gs_setspecific(key: gs_key, value: *const c_void) -> c_int {
    let _entered = Entered::new();
    keys::set(key, value.cast_mut())
}

/// Returns the running goroutine's value of a key; NULL: no value, or no such key.
#[unsafe(no_mangle)]
pub extern "C" fn gs_getspecific(key: gs_key) -> *mut c_void {
    keys::get(key)
}
