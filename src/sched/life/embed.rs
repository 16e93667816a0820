//! For those who build a runtime of their own on this one: parking and waking by
//! hand, stopping the world and looking at everybody's stack.

use super::spawn;
use super::timer_calls;
use crate::arch;
use crate::os::time;
use crate::sched::core::boundary;
use crate::sched::core::park::{Block, sleep_until};
use crate::sched::core::preempt;
use crate::sched::core::world;
use crate::sched::who::g::{G, GRef, Status, flags};
use crate::sched::who::m::{self, MRef, claim};
use crate::sched::who::runtime::{Inside, rt, try_rt};
use crate::sched::who::task::Newborn;
use crate::sched::who::waiter::{Parker, Why};
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

/// What a goroutine that parks has others do once it is at rest: false if it is
/// to go on at once.
pub type Commit = unsafe extern "C" fn(g: *const G, arg: *mut c_void) -> bool;

/// What a goroutine that parks by hand has called once it is at rest.
struct Parked {
    g: GRef,
    commit: Option<Commit>,
    arg: *mut c_void,
}

/// Parks the caller until `ready`. gopark.
///
/// # Safety
/// `commit` may be called with `arg` and doesn't block.
pub unsafe fn park(commit: Option<Commit>, arg: *mut c_void, deadline: i64) -> i32 {
    let Some(m) = m::on_goroutine() else {
        // SAFETY: the caller says that it may be called.
        let stay = commit.is_none_or(|f| unsafe { f(ptr::null(), arg) });
        return match deadline {
            _ if !stay => 0,
            0 => -libc::EAGAIN,
            _ => sleep_until(deadline, Why::Ready).errno(),
        };
    };
    let g = m.g();
    if commit.is_some() {
        // It gets the goroutine's pointer, and others from it.
        spawn::share(g);
    }
    let thread = Parker::for_thread();
    let block = match Block::begin(&thread, deadline, true, Why::Ready) {
        Ok(block) => block,
        Err(e) => return e,
    };
    let parked = Parked { g, commit, arg };
    // SAFETY: the block is a goroutine's, and one for several wakers has a number; `parked`
    // stays until the park is over.
    unsafe { block.park_by_hand(committed, &raw const parked as usize) }.errno()
}

/// The goroutine is at rest. False: it goes on at once.
///
/// # Safety
/// `parked` is the address of a [`Parked`] whose goroutine is at rest.
unsafe fn committed(parked: usize) -> bool {
    // SAFETY: it is on the stack of a goroutine that is at rest until we are done.
    let p = unsafe { &*(parked as *const Parked) };
    // SAFETY: the caller of `park` has said that it may be called.
    p.commit.is_none_or(|f| unsafe { f(p.g.as_ptr(), p.arg) })
}

/// Wakes a goroutine that parks by hand; false: it doesn't. goready.
pub fn ready(g: GRef) -> bool {
    // Acquire: pairs with the Release in `park::commit_by_hand`.
    match g.hand_park.load(Ordering::Acquire) {
        0 => false,
        number => Parker::wake(g, number),
    }
}

/// Who has stopped the world, by `m::caller`; 0: the world runs.
static STOPPER: AtomicU64 = AtomicU64::new(0);

/// Whether the caller has stopped the world.
pub fn has_stopped() -> bool {
    STOPPER.load(Ordering::Relaxed) == m::caller()
}

/// Stops all goroutines but the caller. `-EDEADLK`: it has done so already. Fails as
/// [`Inside::enter`] too.
pub fn stop() -> i32 {
    if has_stopped() {
        return -libc::EDEADLK;
    }
    match Inside::enter_from_outside() {
        // Until `start`: a runtime whose world is stopped is not ended.
        Ok(inside) => core::mem::forget(inside),
        Err(e) => return e,
    }
    let _: world::Stopped = world::stop();
    // Those that have lost their P in a block may have come back from it.
    while preempt::interrupt_strays(rt(), 0, usize::MAX) > 0 {
        time::sleep(100_000);
    }
    disable_preemption();
    STOPPER.store(m::caller(), Ordering::Relaxed);
    0
}

/// Lets them go on. `-EPERM`: the caller has not stopped them.
pub fn start() -> i32 {
    if !has_stopped() {
        return -libc::EPERM;
    }
    STOPPER.store(0, Ordering::Relaxed);
    preempt::stop_showing(rt());
    // SAFETY: `stop` has forgotten one.
    world::start(unsafe { world::Stopped::again() });
    if let Some(g) = m::current_g() {
        change_preempt_off(g, -1);
    }
    if m::with_p().is_none() {
        // SAFETY: `stop` has forgotten one.
        drop(unsafe { Inside::again() });
    }
    0
}

/// In the child of a fork nothing is stopped.
pub fn forget_stop() {
    STOPPER.store(0, Ordering::Relaxed);
}

/// A goroutine as an embedder sees it.
#[derive(Clone, Copy)]
pub struct Seen {
    pub id: u64,
    pub status: Status,
    pub node: usize,
    /// What it can use of its stack: lowest address and size; (0, 0): it has none
    /// yet.
    pub stack: (usize, usize),
    /// What is below is not used; 0 without a stack.
    pub sp: usize,
    /// The registers (`ucontext_t`) of a goroutine that was interrupted, else null: the registers
    /// are on its stack.
    pub context: *const c_void,
    pub arg: *mut c_void,
    /// Null: it has none. Good as long as there is a reference to it.
    pub name: *const c_char,
    /// The return address of the call that spawned it; 0: the library has.
    pub pc: usize,
    /// The id of the goroutine that spawned it; 0: a plain thread, or the library.
    pub creator: u64,
    /// What it waits for.
    pub why: Option<Why>,
    /// Since when it waits or is in a call, in ns, a few ms early at most; 0: it doesn't wait.
    pub since: i64,
}

impl Seen {
    /// What any thread may know of a goroutine at any time, if that stays there: it has not ended, or
    /// the caller has a reference.
    pub fn at_any_time(g: GRef) -> Seen {
        // While this thread is inside, no other ends the runtime.
        let _inside = m::with_p().is_none().then(Inside::enter_if_there);
        Seen::with_status(g, g.status())
    }

    fn with_status(g: GRef, status: Status) -> Seen {
        let waits = matches!(status, Status::Waiting | Status::Syscall);
        Seen {
            id: g.id.load(Ordering::Relaxed),
            status,
            node: try_rt()
                .and_then(|rt| rt.p_if_made(g.last_p.seen() as usize))
                .map_or(0, |p| p.node as usize),
            stack: (0, 0),
            sp: 0,
            context: ptr::null(),
            // SAFETY: it has not ended, or the caller has a reference, and nothing is reset.
            arg: unsafe { timer_calls::argument(g.f.get(), g.arg.get()) },
            name: g.name.load(Ordering::Relaxed),
            pc: g.pc.seen(),
            creator: g.creator.seen(),
            why: (status == Status::Waiting).then(|| g.why.seen()),
            since: if waits { g.since.seen() } else { 0 },
        }
    }

    /// A goroutine that has not run yet.
    fn newborn(n: &Newborn, node: usize) -> Seen {
        Seen {
            id: 0,
            status: Status::Runnable,
            node,
            stack: (0, 0),
            sp: 0,
            context: ptr::null(),
            // SAFETY: the world is stopped, and a newborn has not ended.
            arg: unsafe { timer_calls::argument(n.f.seen(), n.arg.seen()) },
            name: ptr::null(),
            pc: n.pc.seen(),
            creator: n.creator.seen(),
            why: None,
            since: 0,
        }
    }
}

/// Copies the name of a goroutine into `to`, cut so that a NUL fits in too. Gives its whole length.
///
/// # Safety
/// The goroutine has not ended, or the caller has a reference.
pub unsafe fn name(g: GRef, to: &mut [u8]) -> usize {
    let name = g.name.load(Ordering::Relaxed);
    // SAFETY: null, or a C string that is freed with the last reference.
    let name = if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } };
    let bytes = name.to_bytes();
    if let Some(room) = to.len().checked_sub(1) {
        let n = bytes.len().min(room);
        to[..n].copy_from_slice(&bytes[..n]);
        to[n] = 0;
    }
    bytes.len()
}

/// Shows what is known of every goroutine but its stack, those that have not run yet included. The
/// world is stopped.
pub fn for_each_without_stack(mut f: impl FnMut(&Seen)) {
    rt().for_each_g(|g| {
        // SAFETY: a descriptor.
        let g = unsafe { GRef::from_ptr(g) };
        f(&Seen::with_status(g, g.status()));
    });
    for_each_newborn(f);
}

fn for_each_newborn(mut f: impl FnMut(&Seen)) {
    for node in &rt().nodes {
        node.newborns.for_each(|n| {
            if n.f.seen().is_some() {
                f(&Seen::newborn(n, node.id));
            }
        });
    }
}

/// Shows every goroutine, the caller and those that have not run yet included.
/// The world is stopped.
pub fn for_each(mut f: impl FnMut(&Seen)) {
    let rt = rt();
    let here = ptr::from_ref(&rt) as usize;
    let me = m::current_g();
    preempt::show_all_registers(rt);
    let running = rt.ms_that(|m| !m.curg.seen().is_null());
    rt.for_each_g(|g| {
        // SAFETY: a descriptor.
        let g = unsafe { GRef::from_ptr(g) };
        let on = running.iter().find(|m| m.curg.seen() == g.as_ptr().cast_const());
        let stack = bounds_of(g);
        let (sp, context) = match on {
            // In `gs_blocking` the caller is on its thread's own stack.
            _ if Some(g) == me && (stack.0..stack.0 + stack.1).contains(&here) => {
                (here, ptr::null())
            }
            _ if stack.1 == 0 => (0, ptr::null()),
            Some(m) => at_rest_on(*m, g, stack),
            None => (sp_at_rest(g, stack), ptr::null()),
        };
        // Its thread is blocked, though it hasn't said so.
        let blocked = on.is_some_and(|m| m.claim.load(Ordering::Acquire) == claim::TAKEN);
        let status = if blocked { Status::Syscall } else { g.status() };
        let since_is_old = blocked && g.status() != Status::Syscall;
        let seen = Seen::with_status(g, status);
        let since = if since_is_old { 0 } else { seen.since };
        f(&Seen { stack, sp, context, since, ..seen });
    });
    for_each_newborn(f);
}

/// The lowest address and the size of the stack on which the goroutine runs; (0, 0): it has none yet.
fn bounds_of(g: GRef) -> (usize, usize) {
    if g.has(flags::ATTACHED) {
        // SAFETY: the M of an attached goroutine, whose attachment stays until that has ended.
        return unsafe { (*(*g.bound_m.get()).attachment.seen()).bounds() };
    }
    g.stack.get().map_or((0, 0), |s| s.bounds())
}

/// The lowest address in use of a goroutine's stack, which keeps its registers too.
fn sp_at_rest(g: GRef, stack: (usize, usize)) -> usize {
    // Acquire: with a new context come the registers that are saved there.
    match g.context.load(Ordering::Acquire) {
        // It is on its way to rest.
        0 => stack.0,
        // SAFETY: the world is stopped, and its stack isn't run; but a goroutine that is just leaving
        // it has an old context there, of which nothing may be left.
        context => in_stack(unsafe { arch::lowest_in_use(context) }, stack),
    }
}

/// The address, or where it is not in the stack, the lowest of the stack: then all of it is shown.
fn in_stack(sp: usize, (lo, len): (usize, usize)) -> usize {
    if (lo..lo + len).contains(&sp) { sp } else { lo }
}

/// Stack pointer and registers of a goroutine that is still on a thread.
fn at_rest_on(m: MRef, g: GRef, stack: (usize, usize)) -> (usize, *const c_void) {
    if !m.blocking.seen().is_null() {
        return (sp_at_rest(g, stack), ptr::null());
    }
    match preempt::shown(m) {
        Some(context) => {
            // SAFETY: the handler that has put it there waits.
            let sp = unsafe { arch::interrupted_sp(context) } - arch::RED_ZONE;
            (in_stack(sp, stack), context)
        }
        // It waits in the library: all of its stack.
        None => (stack.0, ptr::null()),
    }
}

/// `gs_preempt_disable`.
pub fn disable_preemption() {
    if let Some(g) = m::current_g() {
        change_preempt_off(g, 1);
    }
}

/// `gs_preempt_enable`: gives way if that was asked for meanwhile.
pub fn enable_preemption() {
    let Some(g) = m::current_g() else { return };
    match g.preempt_off.load(Ordering::Relaxed) {
        0 => {}
        1 => {
            change_preempt_off(g, -1);
            drop(boundary::Entered::new());
        }
        _ => change_preempt_off(g, -1),
    }
}

/// Only the goroutine itself changes it.
fn change_preempt_off(g: GRef, by: i32) {
    let now = g.preempt_off.load(Ordering::Relaxed).wrapping_add_signed(by);
    g.preempt_off.store(now, Ordering::Relaxed);
}
