//! For runtimes built on this library: parking and waking by hand, stopping the world, and the
//! stacks of all goroutines.

use crate::arch;
use crate::backtrace::unwind::Registers;
use crate::sched::lifecycle::{spawn, timer_calls};
use crate::sched::run::park::{Block, sleep_until};
use crate::sched::take::registers;
use crate::sched::types::g::{G, GRef, Status};
use crate::sched::types::m::{self, MRef};
use crate::sched::types::runtime::{Visit, rt, try_rt};
use crate::sched::types::task::Newborn;
use crate::sched::types::waiter::{Parker, Why};
use core::ffi::{c_char, c_void};
use core::ptr;
use core::sync::atomic::{Ordering, fence};

/// The embedder's function, called once the parking goroutine is at rest. False: the goroutine goes
/// on at once.
pub type EmbedderCommit = unsafe extern "C" fn(g: *const G, arg: *mut c_void) -> bool;

/// A goroutine that parks by hand, with the embedder's function and argument.
struct Parked {
    g: GRef,
    commit: Option<EmbedderCommit>,
    arg: *mut c_void,
}

/// Parks the caller until `ready`. Go's `gopark`.
///
/// # Safety
/// `commit` may be called with `arg` and doesn't block.
pub unsafe fn park(commit: Option<EmbedderCommit>, arg: *mut c_void, deadline: i64) -> i32 {
    let thread = Parker::for_thread();
    let Some(m) = m::on_goroutine() else {
        // `begin` comes before `commit`, as for a goroutine.
        if let Err(e) = Block::begin(&thread, deadline, true, Why::Ready) {
            return e;
        }
        // SAFETY: the caller says that `commit` may be called.
        let stay = commit.is_none_or(|f| unsafe { f(ptr::null(), arg) });
        return if stay { sleep_until(deadline, Why::Ready).errno() } else { 0 };
    };
    let g = m.g();
    if commit.is_some() {
        // `commit` gets the goroutine's pointer, and may give it to others.
        spawn::share(g);
    }
    let block = match Block::begin(&thread, deadline, true, Why::Ready) {
        Ok(block) => block,
        Err(e) => return e,
    };
    let parked = Parked { g, commit, arg };
    // SAFETY: a goroutine calls this; a block for several wakers has a number; `parked` stays until
    // the park is over.
    unsafe { block.park_by_hand(committed, &raw const parked as usize) }.errno()
}

/// Calls the embedder's function for a goroutine at rest. False: the goroutine goes on at once.
///
/// # Safety
/// `parked` is the address of a [`Parked`] whose goroutine is at rest.
unsafe fn committed(parked: usize) -> bool {
    // SAFETY: `parked` is on the stack of a goroutine that is at rest until this returns.
    let p = unsafe { &*(parked as *const Parked) };
    // SAFETY: the caller of `park` has said that `commit` may be called.
    p.commit.is_none_or(|f| unsafe { f(p.g.as_ptr(), p.arg) })
}

/// Wakes a goroutine that is parked by hand. False: the goroutine isn't. Go's `goready`.
pub fn ready(g: GRef) -> bool {
    // Acquire: pairs with the Release in `park::commit_by_hand`.
    match g.hand_park.load(Ordering::Acquire) {
        0 => false,
        number => Parker::wake(g, number),
    }
}

/// A goroutine as an embedder sees it.
#[derive(Clone, Copy)]
pub struct GSnapshot {
    pub id: u64,
    pub status: Status,
    pub node: usize,
    /// The usable part of the stack: lowest address and size; (0, 0): no stack yet.
    pub stack: (usize, usize),
    /// The stack pointer, below which nothing is used; 0: no stack.
    pub sp: usize,
    /// The registers (`ucontext_t`) of a goroutine that was interrupted, else null: the registers
    /// are on its stack.
    pub context: *const c_void,
    pub arg: *mut c_void,
    /// Null: no name. Valid while there is a reference to the goroutine.
    pub name: *const c_char,
    /// The return address of the call that spawned the goroutine; 0: spawned by the library.
    pub pc: usize,
    /// The id of the spawning goroutine; 0: a plain thread, or the library.
    pub creator: u64,
    /// What the goroutine waits for.
    pub why: Option<Why>,
    /// When the goroutine's wait or call began, in ns, a few ms early at most; 0: it doesn't wait.
    pub since: i64,
    /// Whether the goroutine has locked its thread.
    pub is_locked: bool,
    /// The address of the goroutine's function.
    pub function: usize,
    /// Where a walk over the stack begins; `None`: no stack, or its registers can't be had.
    pub from: Option<Registers>,
    /// `None`: no descriptor yet.
    pub g: Option<GRef>,
}

impl GSnapshot {
    /// A snapshot of what any thread may read at any time, if the descriptor stays: the goroutine
    /// has not ended, or the caller has a reference.
    pub fn at_any_time(g: GRef) -> GSnapshot {
        // While this value exists no thread ends the runtime.
        let _runtime = Visit::begin();
        GSnapshot::with_status(g, g.status())
    }

    fn with_status(g: GRef, status: Status) -> GSnapshot {
        let waits = matches!(status, Status::Waiting | Status::Syscall);
        GSnapshot {
            id: g.id.load(Ordering::Relaxed),
            status,
            node: node_of(g),
            stack: (0, 0),
            sp: 0,
            context: ptr::null(),
            // SAFETY: the goroutine has not ended, or the caller has a reference, so the descriptor
            // is not recycled.
            arg: unsafe { timer_calls::argument(g.f.get(), g.arg.get()) },
            name: g.name.load(Ordering::Relaxed),
            pc: g.pc.seen(),
            creator: g.creator.seen(),
            why: (status == Status::Waiting).then(|| g.why.seen()),
            since: if waits { g.since.seen() } else { 0 },
            is_locked: g.lock_depth.seen() > 0,
            function: g.f.get().map_or(0, |f| f as usize),
            from: None,
            g: Some(g),
        }
    }

    /// The snapshot of a goroutine that has no descriptor yet.
    fn newborn(n: &Newborn, node: usize) -> GSnapshot {
        GSnapshot {
            id: 0,
            status: Status::Runnable,
            node,
            stack: (0, 0),
            sp: 0,
            context: ptr::null(),
            // SAFETY: the world is stopped, and a newborn has no descriptor yet.
            arg: unsafe { timer_calls::argument(n.f.seen(), n.arg.seen()) },
            name: ptr::null(),
            pc: n.pc.seen(),
            creator: n.creator.seen(),
            why: None,
            since: 0,
            is_locked: false,
            function: n.f.seen().map_or(0, |f| f as usize),
            from: None,
            g: None,
        }
    }
}

/// Copies the name of a goroutine into `to`, cut to leave room for a NUL. Returns the name's whole
/// length.
///
/// # Safety
/// The goroutine has not ended, or the caller has a reference.
pub unsafe fn name(g: GRef, to: &mut [u8]) -> usize {
    // SAFETY: the goroutine has not ended, or the caller has a reference.
    let bytes = unsafe { g.name() }.unwrap_or(c"").to_bytes();
    if let Some(room) = to.len().checked_sub(1) {
        let n = bytes.len().min(room);
        to[..n].copy_from_slice(&bytes[..n]);
        to[n] = 0;
    }
    bytes.len()
}

fn for_each_newborn(mut f: impl FnMut(&GSnapshot)) {
    for node in &rt().nodes {
        node.newborns.for_each(|n| {
            let is_there = n.f.seen().is_some();
            // Pairs with the fence in `spawn::fill`.
            fence(Ordering::Acquire);
            if is_there {
                f(&GSnapshot::newborn(n, node.id));
            }
        });
    }
}

/// Calls `f` for every goroutine, the caller and newborns too. The world must be stopped.
pub fn for_each(mut f: impl FnMut(&GSnapshot)) {
    let rt = rt();
    let here = Registers::here();
    let me = m::current_g();
    registers::show_all(rt, registers::SHOWS_WITHIN);
    let running = rt.ms_that(|m| !m.curg.seen().is_null());
    rt.for_each_g(|g| {
        // SAFETY: `g` is a descriptor.
        let g = unsafe { GRef::from_ptr(g) };
        let on = running.iter().find(|m| m.curg.seen() == g.as_ptr().cast_const());
        let stack = g.stack_bounds();
        let (sp, context, from) = match on {
            // In `gs_blocking` the caller is on its thread's own stack.
            _ if Some(g) == me && is_in(stack, here.sp) => (here.sp, ptr::null(), Some(here)),
            _ if stack.1 == 0 => (0, ptr::null(), None),
            Some(m) => at_rest_on(*m, g, stack),
            None => at_rest(g, stack),
        };
        // The goroutine blocks its thread in a call that was not announced.
        let blocked = on.is_some_and(|m| m.hold.get().is_lost());
        let status = if blocked { Status::Syscall } else { g.status() };
        let since_is_old = blocked && g.status() != Status::Syscall;
        let seen = GSnapshot::with_status(g, status);
        let since = if since_is_old { 0 } else { seen.since };
        f(&GSnapshot { stack, sp, context, from, since, ..seen });
    });
    for_each_newborn(f);
}

/// The node on which the goroutine ran last.
pub fn node_of(g: GRef) -> usize {
    let p = try_rt().and_then(|rt| rt.p_if_made(g.last_p.seen().into()));
    p.map_or(0, |p| p.node.into())
}

/// What is known of a goroutine on its stack: the stack pointer, the registers of an interrupted
/// goroutine (else null), and where a walk begins.
type Seen = (usize, *const c_void, Option<Registers>);

/// What is known of a goroutine at rest.
fn at_rest(g: GRef, stack: (usize, usize)) -> Seen {
    match registers::at_rest(g) {
        // The goroutine is being left now: no context yet.
        None => (stack.0, ptr::null(), None),
        Some((lowest, from)) => (in_stack(lowest, stack), ptr::null(), Some(from)),
    }
}

/// `sp` if it is in the stack, else the stack's lowest address, which shows the whole stack.
fn in_stack(sp: usize, stack: (usize, usize)) -> usize {
    if is_in(stack, sp) { sp } else { stack.0 }
}

fn is_in((lo, len): (usize, usize), sp: usize) -> bool {
    (lo..lo + len).contains(&sp)
}

/// What is known of a goroutine that is still on a thread.
fn at_rest_on(m: MRef, g: GRef, stack: (usize, usize)) -> Seen {
    if !m.blocking.seen().is_null() {
        return at_rest(g, stack);
    }
    match registers::shown(m) {
        Some(context) => {
            // SAFETY: the handler that has put the context there is still waiting.
            let from = unsafe { arch::interrupted(context) };
            (in_stack(from.sp - arch::RED_ZONE, stack), context, Some(from))
        }
        // The goroutine waits in the library: its whole stack is shown.
        None => (stack.0, ptr::null(), None),
    }
}
