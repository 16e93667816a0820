//! What an embedder wants to be called: `gs_hooks`. `core::hooks` says when.

use super::g::GRef;
use crate::os::log::HostArg;
use crate::sched::prim::headcount::Headcount;
use core::ffi::c_void;

/// How many threads are in `thread_start`, where they may wait for a lock that a goroutine has.
pub static STARTING: Headcount = Headcount::new();

/// How many threads are in `thread_start` or `thread_stop`, which may call the library, or about to be.
pub static IN_THREAD_HOOKS: Headcount = Headcount::new();

/// A hook of a thread.
pub type HookOfThread = Option<unsafe extern "C" fn(ctx: *mut c_void)>;

/// A hook of a goroutine.
pub type HookOfG = Option<unsafe extern "C" fn(ctx: *mut c_void, g: GRef)>;

/// The hook of a hand-over.
pub type HookOver = Option<unsafe extern "C" fn(ctx: *mut c_void, from: GRef, to: GRef) -> bool>;

/// What an embedder wants to be called, with `ctx`; `gs_hooks` says when.
#[derive(Clone, Copy)]
pub struct Hooks {
    pub ctx: HostArg,
    pub thread_start: HookOfThread,
    pub thread_stop: HookOfThread,
    pub switch_in: HookOfG,
    pub switch_out: HookOfG,
    pub switch_over: HookOver,
    pub idle: HookOfThread,
    pub goexit: HookOfG,
    pub dead: HookOfG,
    pub tick: HookOfThread,
    pub fork_child: HookOfThread,
    pub shutdown: HookOfThread,
    /// Switches of a thread between two calls of `tick`; not 0.
    pub tick_every: u32,
}

impl Hooks {
    /// Whether both call the same functions with the same argument.
    pub fn is_like(&self, other: &Hooks) -> bool {
        let words = |h: &Hooks| {
            let of_thread =
                [h.thread_start, h.thread_stop, h.idle, h.tick, h.fork_child, h.shutdown];
            let of_g = [h.switch_in, h.switch_out, h.goexit, h.dead];
            let over = h.switch_over.map_or(0, |f| f as usize);
            (
                of_thread.map(|f| f.map_or(0, |f| f as usize)),
                of_g.map(|f| f.map_or(0, |f| f as usize)),
                (over, h.ctx.0 as usize, h.tick_every),
            )
        };
        words(self) == words(other)
    }

    /// Calls a hook that concerns a thread, if it is set.
    pub fn call(&self, hook: HookOfThread) {
        // SAFETY: the embedder has given the function for this argument.
        hook.inspect(|f| unsafe { f(self.ctx.0) });
    }

    /// Calls a hook that concerns this goroutine, if it is set.
    pub fn call_for(&self, hook: HookOfG, g: GRef) {
        // SAFETY: the embedder has given the function for this argument.
        hook.inspect(|f| unsafe { f(self.ctx.0, g) });
    }
}
