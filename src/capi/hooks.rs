//! Hooks for runtimes that keep state for each thread and each goroutine.

use super::sized::{self, Given, Grows};
use super::{EINVAL, gs_g};
use crate::os::log::HostArg;
use crate::sched::ext::hooks::{self, HookOfFrames, HookOfG, HookOver, Hooks, ScriptFrame};
use crate::sched::take::boundary::Entered;
use crate::sched::types::g::{G, GRef};
use crate::sched::types::scripts;
use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::Ordering;

/// A hook for a thread.
pub type gs_thread_hook = Option<unsafe extern "C" fn(ctx: *mut c_void)>;
/// A hook for a goroutine.
pub type gs_g_hook = Option<unsafe extern "C" fn(ctx: *mut c_void, g: *mut gs_g)>;
/// A hook for a switch from one goroutine to the next.
pub type gs_switch_hook =
    Option<unsafe extern "C" fn(ctx: *mut c_void, from: *mut gs_g, to: *mut gs_g) -> bool>;

/// A frame of an interpreter: a function of its language that has called another, or waits.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct gs_frame {
    /// The function's name. NULL: not known.
    pub function: *const c_char,
    /// The source file. NULL: not known.
    pub file: *const c_char,
    /// The line in the file; 0: not known.
    pub line: i64,
}

/// A hook for the frames of a goroutine.
pub type gs_frames_hook = Option<
    unsafe extern "C" fn(
        ctx: *mut c_void,
        g: *mut gs_g,
        frames: *mut gs_frame,
        room: usize,
    ) -> usize,
>;

/// Functions that the library calls, each with ctx, for a runtime on top of it (an interpreter).
/// NULL: no call. Zero all bytes and set size.
///
/// All hooks but goexit and frames run on the thread's own stack, where gs_self() is NULL, with no lock of the
/// scheduler held. Hooks may change errno and the rounding modes: no goroutine sees that. Hooks
/// must not end the thread, throw, or leave by longjmp. g is valid until its dead hook has
/// returned; gs_data(g) is the embedder's word for g. Hooks are called for all goroutines in the
/// process, also for those of other users of the library.
///
/// On a thread the order is: thread_start; then switch_in and switch_out in turn (switch_over is a
/// switch_out and a switch_in), with idle in between; then thread_stop. Between its switch_in and
/// its switch_out a goroutine runs on that thread only. gs_blocking, a system call and the
/// preemption signal cause no switch_out.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct gs_hooks {
    /// sizeof(gs_hooks).
    pub size: usize,
    /// The argument of all hooks.
    pub ctx: *mut c_void,
    /// The thread, one of the library's or one in gs_run, begins to run goroutines. The hook may
    /// block, and call what plain threads may call: other threads get the P meanwhile. The hook may
    /// fork: when it returns in the child, the process ends. Not called after the hook shutdown,
    /// while gs_shutdown ends the threads.
    pub thread_start: gs_thread_hook,
    /// The thread stops running goroutines: it ends, gs_run returns, or the hooks have been
    /// replaced. The hook may block, as thread_start may. After the hook shutdown, while
    /// gs_shutdown ends the threads, it must not call this library.
    pub thread_stop: gs_thread_hook,
    /// g is about to run on this thread. The hook may block, for instance for an interpreter's
    /// lock, as thread_start may.
    pub switch_in: gs_g_hook,
    /// g has left its stack: its registers are saved, and no thread can run it yet. The hook must
    /// not block, nor call functions that can wait.
    pub switch_out: gs_g_hook,
    /// Called in place of switch_out(from) and switch_in(to) if the thread's next goroutine is
    /// known before other threads can run from. The hook must not block. If it returns false it
    /// must have done nothing: the library then calls switch_out(from) and switch_in(to).
    pub switch_over: gs_switch_hook,
    /// The thread is about to steal work from others, to sleep or to give its P up, and runs no
    /// goroutine: the time to release an interpreter's lock. The hook must not block.
    pub idle: gs_thread_hook,
    /// The last call on the stack of a goroutine that ends, after the destructors of its values:
    /// gs_self() is the goroutine. The hook may do all that a goroutine may.
    pub goexit: gs_g_hook,
    /// The goroutine has ended and left its stack, after its switch_out (or switch_over). gs_join
    /// returns after this. The hook must not block.
    pub dead: gs_g_hook,
    /// Called each time the thread has switched to tick_every goroutines. The hook must not block.
    pub tick: gs_thread_hook,
    /// Called in the child of a fork, on its only thread, which has left its goroutine and the
    /// runtime: neither switch_out nor thread_stop follows.
    pub fork_child: gs_thread_hook,
    /// All goroutines have ended, and gs_shutdown ends the threads next. Called on the thread that
    /// has called gs_shutdown. The hook must not call this library.
    pub shutdown: gs_thread_hook,
    /// Switches from one tick to the next; 0: 61.
    pub tick_every: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Writes the interpreter's frames of g, the innermost first, to frames, which has room for
    /// room of them, and returns how many it has written. For gs_dump and its kin and for traces,
    /// which show these frames before those of C.
    ///
    /// Either g has called the library and the hook runs on its stack, of which it may need 2 KiB;
    /// or g is stopped, and the hook runs on another thread or goroutine. Then g may have been
    /// stopped at any instruction, in the middle of the interpreter, of malloc, or with any lock
    /// held. So the hook only reads memory, and what it reads may be half changed: it must not take
    /// locks, allocate, block, or call this library, except gs_data(g). The strings must stay as
    /// they are until g goes on, or until the hook is called again: the library copies them before.
    pub frames: gs_frames_hook,
}

/// Default of `tick_every`.
const TICK_EVERY: u32 = 61;

// SAFETY: `repr(C)`, begins with its size and has no padding.
unsafe impl Grows for gs_hooks {
    const FIRST: usize = 112;
}

impl Given for gs_hooks {
    const DEFAULT: gs_hooks = gs_hooks {
        size: 0,
        ctx: ptr::null_mut(),
        thread_start: None,
        thread_stop: None,
        switch_in: None,
        switch_out: None,
        switch_over: None,
        idle: None,
        goexit: None,
        dead: None,
        tick: None,
        fork_child: None,
        shutdown: None,
        tick_every: 0,
        reserved: 0,
        frames: None,
    };
}

const _: () = assert!(offset_of!(gs_hooks, reserved) == 108);
const _: () = assert!(size_of::<gs_frame>() == size_of::<ScriptFrame>());

/// Sets the hooks of this process, which are copied, in place of the former hooks; NULL removes
/// them. Call it before the runtime starts if possible: a thread that runs already changes to the
/// new hooks, with thread_stop and thread_start, when it next chooses a goroutine, and at the
/// latest when it ends. So ctx and the functions of hooks that were replaced must stay valid until
/// gs_shutdown has returned.
///
/// Hooks add about 30 ns to a switch, and switch_in about as much as a system call.
///
/// 0; -EINVAL: size is wrong, or a field is set that this version doesn't know; -ENOMEM.
/// Goroutines and plain threads; not from a hook, nor from a signal handler. May switch.
///
/// # Safety
/// `hooks` is null or a gs_hooks of the size that it says, whose functions may be called with its
/// ctx.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_set_hooks(hooks: *const gs_hooks) -> c_int {
    let _entered = Entered::new();
    // SAFETY: null or of the size that it says.
    match unsafe { sized::read(hooks) } {
        Ok(None) => hooks::set(None),
        Ok(Some(h)) if h.reserved == 0 => hooks::set(Some(inner(&h))),
        Ok(Some(_)) => EINVAL,
        Err(e) => e,
    }
}

/// Adds a function that gives the frames of an interpreter, as gs_hooks.frames does, for the
/// goroutines that are spawned with the function entry; entry NULL: for goroutines of threads that
/// have called gs_attach. It is asked before gs_hooks.frames. For modules of interpreters: several
/// may be in one process, beside an embedder with hooks, and unlike hooks this makes no switch
/// slower. It cannot be undone, so frames must stay.
///
/// frames is also called for a goroutine that the caller is about to spawn with entry: if it gives
/// the function that the goroutine will call as the only frame, traces name the goroutine by that.
///
/// 0, also if it was added before; -EINVAL: frames is NULL; -ENOMEM: there are 16 already.
/// Goroutines and plain threads. Never switches.
#[unsafe(no_mangle)]
pub extern "C" fn gs_add_frames(
    entry: Option<unsafe extern "C" fn(*mut c_void)>,
    frames: gs_frames_hook,
    ctx: *mut c_void,
) -> c_int {
    // SAFETY: a `gs_frame` is a `ScriptFrame`, and a `GRef` is the address of a descriptor.
    let frames = unsafe { core::mem::transmute::<gs_frames_hook, HookOfFrames>(frames) };
    let Some(frames) = frames else { return EINVAL };
    if scripts::add(entry, frames, ctx) { 0 } else { -libc::ENOMEM }
}

fn inner(h: &gs_hooks) -> Hooks {
    // SAFETY: a gs_g is a descriptor, and a `GRef` a pointer to one.
    let of_g = |f| unsafe { core::mem::transmute::<gs_g_hook, HookOfG>(f) };
    Hooks {
        ctx: HostArg(h.ctx),
        thread_start: h.thread_start,
        thread_stop: h.thread_stop,
        switch_in: of_g(h.switch_in),
        switch_out: of_g(h.switch_out),
        // SAFETY: as for `of_g`: only the types of the pointers to descriptors differ.
        switch_over: unsafe { core::mem::transmute::<gs_switch_hook, HookOver>(h.switch_over) },
        idle: h.idle,
        goexit: of_g(h.goexit),
        dead: of_g(h.dead),
        tick: h.tick,
        fork_child: h.fork_child,
        shutdown: h.shutdown,
        // SAFETY: as for `of_g`; and a `gs_frame` is a `ScriptFrame`.
        frames: unsafe { core::mem::transmute::<gs_frames_hook, HookOfFrames>(h.frames) },
        tick_every: if h.tick_every == 0 { TICK_EVERY } else { h.tick_every },
    }
}

/// Returns the embedder's word of a goroutine: the value of gs_set_data, else gs_spawn_opts.data,
/// else NULL. g: a hook's argument, a reference, or gs_self(). NULL for NULL. Goroutines, plain
/// threads, hooks and signal handlers; never switches.
///
/// # Safety
/// `g` is null or points to a goroutine that is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_data(g: *const gs_g) -> *mut c_void {
    // SAFETY: null or a descriptor, which stays mapped.
    let g = unsafe { GRef::from_nullable(g.cast::<G>()) };
    g.map_or(ptr::null_mut(), |g| g.data.load(Ordering::Acquire))
}

/// Sets the embedder's word of a goroutine. The library never follows it. 0; -EINVAL: g is NULL.
/// Callers: as for gs_data.
///
/// # Safety
/// As `gs_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_set_data(g: *mut gs_g, data: *mut c_void) -> c_int {
    // SAFETY: null or a descriptor, which stays mapped.
    let Some(g) = (unsafe { GRef::from_nullable(g.cast::<G>()) }) else { return EINVAL };
    // Release: pairs with the Acquire in `gs_data`.
    g.data.store(data, Ordering::Release);
    0
}
