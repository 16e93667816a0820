//! For embedders: runtimes, interpreters, garbage collectors.

use super::{EINVAL, gs_deadline, gs_g, sized};
use crate::os::log;
use crate::sched::inspect::embed::{self, GSnapshot};
use crate::sched::inspect::{dump, json, leaks, pprof};
use crate::sched::lifecycle::stopping;
use crate::sched::run::ordered;
use crate::sched::run::requests;
use crate::sched::services::deadlock;
use crate::sched::take::boundary::Entered;
use crate::sched::take::preempt::SignalToSelf;
use crate::sched::types::g::{G, GRef, Status};
use core::ffi::{c_char, c_int, c_void};
use core::ptr;

/// Parks the goroutine until gs_ready wakes it. When the goroutine is at rest, the library calls
/// commit(g, arg) on another stack, unless commit is NULL. commit releases the lock of the data in
/// which callers of gs_ready find g; it must not block. If commit returns false, the goroutine goes
/// on at once. The goroutine stays at rest until commit has returned, even if it is woken or
/// cancelled meanwhile. g is valid until the goroutine ends; to keep it longer, call gs_retain.
/// With GS_NOWAIT, with a deadline that has passed, or if the goroutine was cancelled before,
/// commit is not called.
///
/// 0: woken; -EAGAIN, -ETIMEDOUT, -ECANCELED. A plain thread blocks until the deadline (commit gets
/// NULL). Go's gopark.
///
/// # Safety
/// Calling `commit` with `arg` is the caller's business.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_park(
    commit: Option<unsafe extern "C" fn(g: *mut gs_g, arg: *mut c_void) -> bool>,
    arg: *mut c_void,
    deadline: gs_deadline,
) -> c_int {
    let _entered = Entered::new();
    // SAFETY: a gs_g is a descriptor.
    let commit: Option<embed::EmbedderCommit> = unsafe { core::mem::transmute(commit) };
    // SAFETY: the caller says that `commit` may be called with `arg`.
    unsafe { embed::park(commit, arg, deadline) }
}

/// Wakes a goroutine that is in gs_park. 0; -EINVAL: the goroutine isn't in gs_park, or g is NULL.
/// If several callers wake it at once, only one of them gets 0. Goroutines and plain threads. Go's
/// goready.
///
/// # Safety
/// `g` is null or a reference.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_ready(g: *mut gs_g) -> c_int {
    let _entered = Entered::new();
    // SAFETY: null or a reference, says the caller; references are descriptors.
    match unsafe { GRef::from_nullable(g.cast::<G>()) } {
        Some(g) if embed::ready(g) => 0,
        _ => EINVAL,
    }
}

/// Stops all goroutines but the caller: when gs_stop_the_world returns, each goroutine is at rest
/// until gs_start_the_world. The signal stops goroutines that compute, and goroutines that wait for
/// a page of memory: these don't go on when the page is there. A goroutine in a system call counts
/// as at rest. When the call returns, the goroutine is stopped: within a few ms if the call was not
/// announced, in gs_exitsyscall if it was. Goroutines with GS_SPAWN_NOPREEMPT, or within
/// gs_preempt_disable, are waited for. The caller must not block meanwhile, nor end; gs_run,
/// gs_attach, gs_gomaxprocs and gs_shutdown give -EDEADLK. The caller keeps its P in
/// gs_entersyscall and gs_blocking.
///
/// Unlike functions that may switch, gs_stop_the_world returns on the caller's thread, and no other
/// goroutine runs there until the caller has started the world again. So a collector may call it in
/// the middle of an allocation from lists that belong to the thread.
///
/// 0; -EDEADLK: the caller has stopped the world already. Goroutines and plain threads; several
/// callers take turns. Go's stopTheWorld.
#[unsafe(no_mangle)]
pub extern "C" fn gs_stop_the_world() -> c_int {
    let _entered = Entered::without_giving_way();
    stopping::stop()
}

/// Lets the goroutines run again. Unlike functions that may switch, gs_start_the_world returns on
/// the caller's thread. If others wait for the caller's P, the caller is preempted there first.
///
/// 0; -EPERM: the caller has not stopped the world. Go's startTheWorld.
#[unsafe(no_mangle)]
pub extern "C" fn gs_start_the_world() -> c_int {
    let entered = Entered::without_giving_way();
    let result = stopping::start();
    let signal = SignalToSelf::if_asked();
    drop(entered);
    signal.send();
    result
}

/// gs_g_info.state: the goroutine has ended. gs_foreach_g shows no such goroutine.
pub const GS_G_ENDED: c_int = 0;
/// gs_g_info.state: the goroutine can run, and waits for a P.
pub const GS_G_RUNNABLE: c_int = 1;
/// gs_g_info.state: the goroutine runs; in gs_foreach_g only the caller does.
pub const GS_G_RUNNING: c_int = 2;
/// gs_g_info.state: the goroutine waits; gs_g_info.wait_reason says for what.
pub const GS_G_WAITING: c_int = 3;
/// gs_g_info.state: the goroutine is in a system call that it has announced.
pub const GS_G_SYSCALL: c_int = 4;

/// A goroutine, as gs_foreach_g and gs_g_info_read show it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct gs_g_info {
    /// The goroutine's id; 0: it has not run yet.
    pub id: u64,
    /// GS_G_RUNNABLE and so on.
    pub state: c_int,
    /// The NUMA node where the goroutine last ran.
    pub node: c_int,
    /// The goroutine's stack: the lowest address, and the address after the highest. NULL: the
    /// goroutine has no stack yet, only its argument.
    pub stack_lo: *mut c_void,
    pub stack_hi: *mut c_void,
    /// The goroutine's stack pointer: the stack is in use from here up.
    pub sp: *mut c_void,
    /// The registers (ucontext_t *) of a goroutine that a signal has stopped, at any instruction or
    /// in a system call. NULL: the goroutine is at rest, and its callee-saved registers are on its
    /// stack, above sp.
    pub regs: *const c_void,
    /// The argument of the goroutine's function.
    pub arg: *mut c_void,
    /// gs_spawn_opts.name; NULL: none.
    pub name: *const c_char,
    /// The return address of the call that spawned the goroutine, for dladdr(3) and its kin; NULL:
    /// the library spawned it, for instance for a timer.
    pub spawned_at: *const c_void,
    /// The id of the goroutine that spawned this one; 0: a plain thread or the library did.
    pub creator: u64,
    /// The reason of the wait, in the words of Go's tracebacks ("chan receive", "sleep", "IO
    /// wait"): a static string; NULL: the state isn't GS_G_WAITING.
    pub wait_reason: *const c_char,
    /// When the wait or the announced system call began: a time as of gs_now, which may be some ms
    /// too early. 0: the goroutine neither waits nor is in an announced call.
    pub since: i64,
}

/// sizeof(gs_g_info) in the first version that had gs_g_info_read.
const G_INFO_FIRST: usize = 96;

const _: () = assert!(size_of::<gs_g_info>() >= G_INFO_FIRST, "it only grows");

impl gs_g_info {
    fn of(g: &GSnapshot) -> gs_g_info {
        gs_g_info {
            id: g.id,
            state: match g.status {
                Status::Running => GS_G_RUNNING,
                Status::Waiting => GS_G_WAITING,
                Status::Syscall => GS_G_SYSCALL,
                Status::Runnable => GS_G_RUNNABLE,
                Status::Dead => GS_G_ENDED,
            },
            node: g.node as c_int,
            stack_lo: g.stack.0 as *mut c_void,
            stack_hi: (g.stack.0 + g.stack.1) as *mut c_void,
            sp: g.sp as *mut c_void,
            regs: g.context,
            arg: g.arg,
            name: g.name,
            spawned_at: g.pc as *const c_void,
            creator: g.creator,
            wait_reason: g.why.map_or(ptr::null(), |why| why.reason().as_ptr()),
            since: g.since,
        }
    }
}

/// Fills in *info for a goroutine that need not be stopped: all but its stack, sp and regs, which
/// are NULL. size: sizeof(gs_g_info); a library that knows fewer fields sets the rest to 0. The
/// information is a snapshot that may be out of date at once, so it serves for reports only.
/// info.name is valid as long as the caller's reference or, if g is the caller, as long as the
/// goroutine.
///
/// 0; -EINVAL: g or info is NULL, or size is below that of the first release. Goroutines and
/// plain threads.
///
/// # Safety
/// `g` is null, a reference or the running goroutine; `info` is null or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_g_info_read(
    g: *const gs_g,
    info: *mut gs_g_info,
    size: usize,
) -> c_int {
    // SAFETY: null, a reference or the running goroutine, which are descriptors.
    let Some(g) = (unsafe { GRef::from_nullable(g.cast::<G>()) }) else { return EINVAL };
    let seen = gs_g_info::of(&GSnapshot::at_any_time(g));
    // SAFETY: `info` is null or has room for `size` bytes.
    unsafe { sized::write_as::<_, G_INFO_FIRST>(info, size, &seen) }
}

/// Copies the goroutine's name (gs_spawn_opts.name), "" if it has none, into buf, which has room
/// for size bytes. The copy is cut if need be, and ends with a NUL. With size 0 buf may be NULL.
///
/// The length of the whole name; -EINVAL: g or buf is NULL. Goroutines and plain threads.
///
/// # Safety
/// `g` is null, a reference or the running goroutine; `buf` is null or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_name(g: *const gs_g, buf: *mut c_char, size: usize) -> c_int {
    // SAFETY: null, a reference or the running goroutine, which are descriptors.
    let Some(g) = (unsafe { GRef::from_nullable(g.cast::<G>()) }) else { return EINVAL };
    if buf.is_null() && size > 0 {
        return EINVAL;
    }
    let to: &mut [u8] = match size {
        0 => &mut [],
        // SAFETY: not null, so it has room for `size` bytes.
        _ => unsafe { core::slice::from_raw_parts_mut(buf.cast(), size) },
    };
    // SAFETY: the goroutine is there.
    unsafe { embed::name(g, to) as c_int }
}

/// Calls visit(info, ctx) for each goroutine, the caller and those that have not run yet included.
/// Every pointer that a goroutine holds is on its stack, from info.sp to info.stack_hi, or in
/// info.regs. The exception is a function that gs_blocking runs: its frames are on the thread's own
/// stack. To read the registers of a goroutine in a system call, the library stops its thread with
/// the preemption signal until gs_start_the_world: calls that Linux doesn't restart (poll,
/// nanosleep, ...) fail with EINTR. Without that signal (GOSCHED_PREEMPT_SIGNAL=0) these registers
/// can't be read. info is valid only during visit, which must not call this library. 0; -EPERM: the
/// caller has not stopped the world; -EINVAL: visit is NULL.
///
/// # Safety
/// Calling `visit` with `ctx` is the caller's business.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_foreach_g(
    visit: Option<unsafe extern "C" fn(info: *const gs_g_info, ctx: *mut c_void)>,
    ctx: *mut c_void,
) -> c_int {
    let _entered = Entered::new();
    let Some(visit) = visit else { return EINVAL };
    if !stopping::has_stopped() {
        return -libc::EPERM;
    }
    embed::for_each(|g| {
        let info = gs_g_info::of(g);
        // SAFETY: the caller says that `visit` may be called with `ctx`.
        unsafe { visit(&info, ctx) };
    });
    0
}

/// Writes the state and the backtrace of every goroutine to the file descriptor fd, in the shape of
/// Go's tracebacks: its id, its state or what it waits for and since when, its node, whether it has
/// locked its thread, its name; its functions, the innermost first, with file, line and offset in
/// the function; and the call that spawned it. Goroutines that have not begun have the id 0.
///
/// Functions that are not exported, lines and inlined functions need debug information (gcc -g), in
/// the object or under /usr/lib/debug. Of this library's own frames only the function that was
/// called is shown; GOSCHED_DEBUG=allframes=1 shows all. Code without unwind tables (.eh_frame, as
/// most compilers emit it) is followed by frame pointers, or ends the backtrace. The text is for
/// people, and its form may change.
///
/// The world is stopped while this information is copied, so gs_dump waits as gs_stop_the_world
/// does, and takes registers as gs_foreach_g does: goroutines that run, or block their thread
/// without having announced it, have backtraces too. The text is made and written after that, so
/// fd may be a pipe that a goroutine reads.
///
/// 0; a negative errno value of write(2), -ENOMEM. Goroutines and plain threads, with the world
/// stopped by the caller or not; may switch goroutines; not from a signal handler. Go's traceback.
#[unsafe(no_mangle)]
pub extern "C" fn gs_dump(fd: c_int) -> c_int {
    let _entered = Entered::new();
    dump::dump(fd)
}

/// Does what gs_dump does, for tools: writes one JSON object. Its field "goroutines" is an array of
/// objects with id, name, state ("waiting", "running", "runnable", "syscall"), wait_reason,
/// wait_ns, node, locked, creator (id, function, file, line, offset, module, pc; null: the library),
/// frames (function, file, line, offset, module, pc, inlined) and cut (there are more frames). What
/// is not known is null, or 0 for line and offset. Fields may be added.
///
/// As gs_dump.
#[unsafe(no_mangle)]
pub extern "C" fn gs_dump_json(fd: c_int) -> c_int {
    let _entered = Entered::new();
    json::dump(fd)
}

/// Does what gs_dump does, as a profile of pprof (profile.proto, not compressed): how many
/// goroutines have each backtrace, with the labels state, reason and name. go tool pprof shows it.
/// Go's goroutine profile.
///
/// As gs_dump.
#[unsafe(no_mangle)]
pub extern "C" fn gs_dump_pprof(fd: c_int) -> c_int {
    let _entered = Entered::new();
    pprof::dump(fd)
}

/// Writes a report of the leaked goroutines to fd. A goroutine is leaked if it waits, without a
/// deadline, for an object (a channel, a mutex, the end of a goroutine, ...) to which nothing refers
/// that may run again: no memory of the process, no register of a thread, and no stack but those of
/// other leaked goroutines. The report shows each goroutine's backtrace; goroutines that wait alike
/// are shown once.
///
/// Every word that could be a pointer counts as one: to the channel, or to anywhere in the block of
/// malloc that the object lies in. So what is reported is leaked, unless the program hides its
/// pointers (in a file, in the kernel, or encoded). What isn't reported may be leaked nevertheless:
/// docs/observability.md says when.
///
/// All threads stand still meanwhile, about 2 s for 1 GB of memory: goroutines as by gs_stop_the_world,
/// plain threads by the preemption signal, so calls that Linux doesn't restart (poll, nanosleep, ...)
/// fail with EINTR. GOSCHED_DEBUG=leaks=1 writes the report to standard error when the process
/// exits.
///
/// The number of leaked goroutines; -EBUSY: a thread blocks the preemption signal, or there is none
/// (GOSCHED_PREEMPT_SIGNAL=0), so its registers can't be read; -EDEADLK: the caller has stopped the
/// world; -EPERM: in a bubble (gs_test_run), where a deadlock tells; -EBADF; -ENOMEM; a negative
/// errno value of write(2), or of a file of /proc. Goroutines and plain threads; may switch
/// goroutines; not from a signal handler.
#[unsafe(no_mangle)]
pub extern "C" fn gs_leaks(fd: c_int) -> c_int {
    let _entered = Entered::new();
    if ordered::current_bubble().is_some() {
        return -libc::EPERM;
    }
    leaks::leaks(fd, false)
}

/// Sets a deadlock handler: when all goroutines wait and nothing can wake any of them, a thread of
/// the library calls f(ctx) instead of reporting the deadlock and aborting. NULL restores report
/// and abort. f must not block nor end the runtime. When f returns, the runtime goes on waiting,
/// and calls f again only after something has run. 0.
///
/// # Safety
/// Calling `f` with `ctx`, on another thread, is the caller's business.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_set_deadlock_handler(
    f: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
    ctx: *mut c_void,
) -> c_int {
    let _entered = Entered::new();
    deadlock::set_handler(f, ctx);
    0
}

/// Takes a hold: until gs_unhold the library reports no deadlock when all goroutines wait. For
/// wake-ups that the library can't foresee: from another process, a signal handler, or an event
/// loop that is not a thread of this process. Holds nest, and all threads share one count. The
/// child of a fork has none. 0. Goroutines, plain threads and signal handlers; never switches.
#[unsafe(no_mangle)]
pub extern "C" fn gs_hold() -> c_int {
    deadlock::hold();
    0
}

/// Gives a hold back. 0; -EPERM: there is none. Goroutines and plain threads; never switches.
#[unsafe(no_mangle)]
pub extern "C" fn gs_unhold() -> c_int {
    let _entered = Entered::without_giving_way();
    if deadlock::unhold() { 0 } else { -libc::EPERM }
}

/// Sets a log function: the library calls f(ctx, line) with each line that it would write to
/// standard error (warnings, the report of a deadlock), without the newline. line is valid only
/// during the call. NULL: standard error again. f is called on any thread, and by several threads
/// at once; it must neither block nor call this library. The report of a stack overflow goes to
/// standard error in any case: it is made in a signal handler. 0. Goroutines and plain threads;
/// never switches.
///
/// # Safety
/// Calling `f` with `ctx`, on any thread, is the caller's business.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_set_log(
    f: Option<unsafe extern "C" fn(ctx: *mut c_void, line: *const c_char)>,
    ctx: *mut c_void,
) -> c_int {
    let _entered = Entered::without_giving_way();
    log::set(f.map(|f| (f, ctx)));
    0
}

/// Gives way if the goroutine is asked to. Costs two loads and a branch: for the back-edges of
/// loops that call nothing else of the library.
#[unsafe(no_mangle)]
pub extern "C" fn gs_preempt_check() {
    let _entered = Entered::new();
}

/// Does what gs_preempt_check does, always by a call: before gs_preempt_check this header tests
/// inline whether a call is needed.
#[unsafe(no_mangle)]
pub extern "C" fn gs_preempt_now() {
    let _entered = Entered::new();
}

/// Returns the address of a word that is not 0 while some goroutine is asked to give way. For
/// programs that load the library with dlopen(3), and for compilers of other languages: look up
/// gs_preempt_flag and gs_preempt_check with dlsym(3), call gs_preempt_flag once, and then, in
/// loops, gs_preempt_check whenever the word isn't 0. The address stays valid until the process
/// ends. Only the library writes the word.
#[unsafe(no_mangle)]
pub extern "C" fn gs_preempt_flag() -> *const u32 {
    requests::preempt_word().as_ptr()
}

/// Disables preemption of the goroutine, by the signal and at calls that don't block, until
/// gs_preempt_enable. The goroutine keeps its P even if it blocks its thread. If its P has been
/// taken, the call first waits for a P, on this thread. The warning at GS_SPAWN_NOPREEMPT about
/// locks, malloc(3)'s included, applies meanwhile. Nests. Does nothing on a plain thread.
#[unsafe(no_mangle)]
pub extern "C" fn gs_preempt_disable() {
    stopping::disable_preemption();
}

/// Undoes one gs_preempt_disable. Does nothing if preemption isn't disabled.
#[unsafe(no_mangle)]
pub extern "C" fn gs_preempt_enable() {
    stopping::enable_preemption();
}
