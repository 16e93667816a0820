//! G: a goroutine.

use super::m::{self, M};
use super::task::GoFn;
use super::values::Values;
use super::waiter::{ParkRequest, Parker, WaitQueue, Why};
use crate::arch::tsan::Fiber;
use crate::atomic::RelaxedCell;
use crate::os::spin::SpinLock;
use crate::sched::ext::gang::state::Gang;
use crate::sched::prim::pool::Pooled;
use crate::sched::run::group::Group;
use crate::stack::{SizeClass, Stack};
use crate::{arch, os, trace};
use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_char, c_void};
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

/// Bits of [`G::flags`] and of a newborn's.
pub mod flags {
    /// Stays on one thread after its first run.
    pub const PINNED: u32 = 1;
    /// Never preempted: neither by the signal nor at the end of a time slice. Keeps its P even if
    /// it blocks its thread.
    pub const NOPREEMPT: u32 = 2;
    /// Never stopped by the preemption signal. Its P is taken nevertheless if its thread blocks.
    pub const NOSIGNAL: u32 = 4;
    /// The flags that a caller of `gs_spawn_with` may set.
    pub const PUBLIC: u32 = PINNED | NOPREEMPT | NOSIGNAL;
    /// Runs only on its own thread: pinned and begun, or locked.
    pub const BOUND: u32 = 1 << 8;
    /// `gs_run`'s goroutine.
    pub const ROOT: u32 = 1 << 9;
    /// Must not run next on a thread that `gs_run` has borrowed.
    pub const AVOID_RUNNER: u32 = 1 << 10;
    /// Has not run yet, and so has no stack.
    pub const UNBORN: u32 = 1 << 11;
    /// Must not run next on a thread to which other goroutines are pinned.
    pub const AVOID_PINNED: u32 = 1 << 12;
    /// Has accepted a connection: goroutines that it spawns are root goroutines. seed: N7
    pub const ACCEPTS: u32 = 1 << 13;
    /// The stack's memory is on another node than the node that ran the goroutine last.
    pub const REMOTE: u32 = 1 << 14;
    /// The descriptor belongs to another node than the stack.
    pub const FOREIGN: u32 = 1 << 15;
    /// Waits in the signal handler of its M, interrupted in the user's code.
    pub const INTERRUPTED: u32 = 1 << 16;
    /// Has disabled cancelling.
    pub const CANCEL_OFF: u32 = 1 << 17;
    /// The goroutine is bound to its M until the goroutine has run: the M has lost its P in a hook.
    pub const HELD: u32 = 1 << 18;
    /// The goroutine's function has returned, on an M with hooks.
    pub const ENDS: u32 = 1 << 19;
    /// Has not begun yet, and will begin on a thread of its group.
    pub const GROUP: u32 = 1 << 20;
    /// Runs the function of a timer, which is its argument.
    pub const TIMER: u32 = 1 << 21;
    /// Runs on the stack of a thread that has called `gs_attach`; has no stack of its own.
    pub const ATTACHED: u32 = 1 << 22;
    /// The wait to run is measured, from `ready_at` on.
    pub const TIMED: u32 = 1 << 23;
    /// `last_error` isn't 0: the goroutine's last look-up of a host has failed.
    pub const FOUND_NO_HOST: u32 = 1 << 24;
    /// Is in a bubble, whose M is `bound_m`.
    pub const BUBBLE: u32 = 1 << 25;
    /// Was in a bubble that is over, and never runs again.
    pub const GIVEN_UP: u32 = 1 << 26;
    /// Flags with which a goroutine that becomes ready may belong in no queue of the waker's P.
    pub const ELSEWHERE: u32 = BOUND | BUBBLE | GIVEN_UP;
    /// Flags with which a direct switch to the goroutine needs more than the switch.
    pub const SPECIAL: u32 = BOUND | AVOID_RUNNER | AVOID_PINNED | UNBORN | REMOTE | TIMED;
    /// Flags with which the end of the goroutine needs more than usual.
    pub const ENDS_SPECIALLY: u32 = ROOT | BOUND | FOREIGN | CANCEL_OFF | TIMER | FOUND_NO_HOST;
}

/// The state of a goroutine, and so the owner of its descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// The descriptor belongs to a cache or a pool; or, after the goroutine's end, to the holders
    /// of references.
    Dead = 0,
    /// The goroutine belongs to a run queue.
    Runnable = 1,
    /// The goroutine belongs to the M that runs it.
    Running = 2,
    /// The goroutine belongs to the object that it waits for, or to the waker that wins the claim.
    Waiting = 3,
    /// The goroutine belongs to its M, which has left its P to a call or has no P.
    Syscall = 4,
}

/// How many cache lines of its stack a goroutine needs as soon as it goes on.
const STACK_LINES: usize = 3;

/// Bits of [`G::end`].
pub mod end {
    /// The function has returned.
    pub const DONE: u32 = 1;
}

/// A goroutine's descriptor. A descriptor never moves, and stays mapped until shutdown, or longer
/// while there is a reference. So a timer or waker with a stale pointer finds a park number that is
/// not its own.
///
/// Only the owner of the goroutine (see [`Status`]) uses fields in a `Cell` and writes fields in a
/// `RelaxedCell`. Any thread may use the other fields, under the rules that they state.
#[repr(C, align(64))]
pub struct G {
    /// The parker, by which wakers claim the goroutine.
    pub parker: Parker,
    /// The saved context. For the owner; for other threads a hint.
    pub context: AtomicUsize,
    /// The link of the queue that the goroutine is in.
    pub(super) run_link: Cell<usize>,
    /// Bits of [`flags`]. Also read by threads that want to preempt the goroutine or have stopped
    /// the world: `preempted::runs_preemptible`, `registers::shown`.
    pub flags: RelaxedCell<u32>,
    pub(crate) status: AtomicU8,
    pub priority: Cell<i8>,
    /// The reason of the present or latest wait.
    pub why: RelaxedCell<Why>,
    /// The P on which the goroutine last ran.
    pub last_p: RelaxedCell<u16>,
    /// The node whose pool the descriptor comes from.
    pub home: Cell<u16>,
    /// The number of runs in a row on a node where the stack isn't.
    pub remote_runs: Cell<u16>,
    /// Others may have a pointer to the goroutine: each wait must be claimed, and `refs` counts the
    /// references. Set by the goroutine itself, or before it first runs.
    pub shared: Cell<bool>,
    /// `gs_cancel` was called; stays set.
    pub cancelled: AtomicBool,

    pub f: Cell<Option<GoFn>>,
    pub arg: Cell<*mut c_void>,
    pub stack: Cell<Option<Stack>>,
    /// The size class that the stack of an unborn goroutine will have.
    pub stack_class: Cell<Option<SizeClass>>,
    /// The request of the park under way, for the context that runs next.
    pub request: Cell<ParkRequest>,
    pub id: AtomicU64,
    /// When the latest wait or call began, by [`clock::rough`](crate::sched::prim::clock::rough).
    pub since: RelaxedCell<i64>,
    /// The return address of the call that spawned the goroutine, for reports.
    pub pc: RelaxedCell<usize>,
    /// The id of the goroutine that spawned this goroutine; 0: a plain thread did.
    pub creator: RelaxedCell<u64>,
    /// The embedder's word: see `gs_data`.
    pub data: AtomicPtr<c_void>,

    /// For the goroutine of `gs_run`: the M of `gs_run`'s thread.
    pub runner: Cell<*const M>,
    /// For a bound goroutine, or one in a bubble: the only M that may run it.
    pub bound_m: RelaxedCell<*const M>,
    /// Calls of `gs_lock_os_thread` not yet undone. Also read by threads that make a dump.
    pub lock_depth: RelaxedCell<u32>,
    /// Calls of `gs_entersyscall` not yet undone.
    pub syscall_depth: Cell<u32>,
    /// How many of the latest system calls have lasted so long that their P was taken, at most
    /// [`SURE`](crate::sched::take::back_from_call::SURE).
    pub long_calls: Cell<u8>,
    /// The CPU time used without a P between calls, in ns, less an allowance for each call
    /// ([`back_from_call`](crate::sched::take::back_from_call)).
    pub used_without_p: Cell<i32>,
    /// The number of the runtime whose pool the descriptor comes from; known if the goroutine is
    /// `shared`.
    pub runtime: Cell<u32>,
    /// When the system call under way began (if `long_calls` is `SURE`), or when the goroutine was
    /// preempted, in ns.
    pub left_at: Cell<i64>,
    /// If [`flags::TIMED`]: when the goroutine became ready, in ns.
    pub ready_at: Cell<i64>,
    /// Calls of `gs_cancel_disable` not yet undone.
    pub cancel_off: Cell<u32>,
    /// Calls of `gs_preempt_disable` not yet undone.
    pub preempt_off: AtomicU32,
    /// The number of the park in `gs_park`; 0: the goroutine isn't in `gs_park`.
    pub hand_park: AtomicU64,
    /// The error of the last failed look-up of a host: see `gs_last_error`.
    pub last_error: Cell<i32>,
    /// The stack for ThreadSanitizer.
    pub fiber: Fiber,
    /// References: the goroutine's own until it ends, and the user's.
    pub refs: AtomicU32,
    /// Held to change `end` and `joiners` together.
    pub lock: SpinLock,
    pub end: AtomicU32,
    pub joiners: UnsafeCell<WaitQueue>,
    /// Values of `gs_setspecific`.
    pub values: Cell<*mut Values>,
    /// The gang of which the goroutine is a member, or null.
    pub gang: Cell<*const Gang>,
    /// The worker group on whose threads the goroutine begins, or null.
    pub group: Cell<*const Group>,
    /// The name: a C string that the goroutine owns, or null.
    pub name: AtomicPtr<c_char>,
    /// What the reader of a trace knows of the goroutine.
    pub trace: trace::GoWord,
}

// SAFETY: all bytes zero are null, `None`, false and the first variants. Threads that visit all
// descriptors use only the atomic fields and `RelaxedCell::seen`.
unsafe impl Pooled for G {}

const _: () =
    assert!(size_of::<Fiber>() != 0 || size_of::<G>() <= 320, "a million goroutines have one each");

impl G {
    #[inline(always)]
    pub fn status(&self) -> Status {
        match self.status.load(Ordering::Relaxed) {
            1 => Status::Runnable,
            2 => Status::Running,
            3 => Status::Waiting,
            4 => Status::Syscall,
            _ => Status::Dead,
        }
    }

    /// Relaxed: only reports read the status of another thread's goroutine. Ownership passes
    /// through queues and claims.
    #[inline(always)]
    pub fn set_status(&self, status: Status) {
        self.status.store(status as u8, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn has(&self, flag: u32) -> bool {
        self.flags.get() & flag != 0
    }

    /// Only the owner may call this, inside the library: in the user's code the preemption signal
    /// may come between the read and the write, and its handler changes flags too.
    #[inline]
    pub fn set_flag(&self, flag: u32, on: bool) {
        debug_assert!(
            !os::HAS_SIGNALS
                || !m::current().is_some_and(|m| m.outside.load(Ordering::Relaxed) == m::OUTSIDE
                    && m.curg.get() == &raw const *self),
            "flags change inside the library"
        );
        let flags = self.flags.get();
        self.flags.set(if on { flags | flag } else { flags & !flag });
    }

    /// The goroutine's name; `None`: it has none.
    ///
    /// # Safety
    /// While the result is used, the goroutine has not ended, or the caller has a reference to it.
    pub unsafe fn name(&self) -> Option<&CStr> {
        let name = self.name.load(Ordering::Relaxed);
        // SAFETY: not null, so it is a C string, which is freed with the last reference.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
    }

    /// The stack of a goroutine that has begun. Panics if there is none.
    #[inline(always)]
    pub fn stack_of_running(&self) -> Stack {
        self.stack.get().expect("a goroutine that has begun has a stack")
    }
}

/// For reports: the goroutine or thread that `creator` ([`G::creator`]) names.
pub fn describe_creator(creator: u64) -> String {
    match creator {
        0 => "a thread".to_owned(),
        id => format!("goroutine {id}"),
    }
}

/// A pointer to a descriptor that stays mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct GRef(NonNull<G>);

impl GRef {
    /// # Safety
    /// `g` points to a descriptor.
    #[inline(always)]
    pub unsafe fn from_ptr(g: *const G) -> GRef {
        // SAFETY: `g` points to a descriptor, so it isn't null.
        GRef(unsafe { NonNull::new_unchecked(g.cast_mut()) })
    }

    /// `None` for null.
    ///
    /// # Safety
    /// `g` is null or points to a descriptor.
    pub unsafe fn from_nullable(g: *const G) -> Option<GRef> {
        NonNull::new(g.cast_mut()).map(GRef)
    }

    /// # Safety
    /// `g` points to a descriptor.
    #[inline(always)]
    pub unsafe fn from_non_null(g: NonNull<G>) -> GRef {
        GRef(g)
    }

    #[inline(always)]
    pub fn as_ptr(self) -> *mut G {
        self.0.as_ptr()
    }

    /// Prefetches the part of its stack that the goroutine needs first.
    #[inline(always)]
    pub fn fetch_stack(self) {
        let context = self.context.load(Ordering::Relaxed);
        arch::prefetch_lines(context, 0..STACK_LINES);
    }

    /// The address, for [`GRef::at`].
    pub fn address(self) -> usize {
        self.as_ptr() as usize
    }

    /// # Safety
    /// The address is from [`GRef::address`].
    #[inline(always)]
    pub unsafe fn at(address: usize) -> GRef {
        // SAFETY: the address is that of a descriptor.
        unsafe { GRef::from_ptr(address as *const G) }
    }

    pub fn as_non_null(self) -> NonNull<G> {
        self.0
    }

    /// The lowest address and the size of the goroutine's stack; (0, 0): no stack yet. The goroutine
    /// stays as it is meanwhile.
    pub fn stack_bounds(self) -> (usize, usize) {
        if self.has(flags::ATTACHED) {
            // SAFETY: the M of an attached goroutine, whose attachment stays until the goroutine has
            // ended.
            return unsafe { (*(*self.bound_m.get()).attachment.seen()).bounds() };
        }
        self.stack.get().map_or((0, 0), |s| s.bounds())
    }
}

impl Deref for GRef {
    type Target = G;
    #[inline(always)]
    fn deref(&self) -> &G {
        // SAFETY: descriptors stay mapped until shutdown, and longer while there
        // are references; all fields have interior mutability.
        unsafe { self.0.as_ref() }
    }
}
