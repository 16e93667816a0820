//! Requests to P's, and whether the world is being stopped. The M that runs a P answers at its
//! goroutine's next call into the library, or on g0.

use crate::arch;
use crate::os::futex;
use crate::os::spin::LongLock;
use crate::sched::prim::histogram::Histogram;
use crate::sched::types::attention::GANG;
use crate::sched::types::m::M;
use crate::sched::types::p::PRef;
use crate::sched::types::runtime::{Runtime, rt};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering, fence};

/// The state of stopping the world, one for each runtime.
pub struct World {
    /// Held from stop to start.
    pub lock: LongLock,
    pub stopping: AtomicBool,
    /// A futex word, which changes when a P has stopped.
    pub note: AtomicU32,
    /// How long it took until all P's had stopped, and until the world went on, from the moment at
    /// which a stopper had the lock. Written with `lock` held.
    pub stops: Histogram,
    pub pauses: Histogram,
    /// That moment for the present or latest stop, in ns. Used with `lock` held.
    pub asked_at: AtomicI64,
}

impl World {
    pub fn new() -> World {
        World {
            lock: LongLock::new(),
            stopping: AtomicBool::new(false),
            note: AtomicU32::new(0),
            stops: Histogram::default(),
            pauses: Histogram::default(),
            asked_at: AtomicI64::new(0),
        }
    }

    /// Keeps other threads from stopping the world until [`World::unlock`]. Returns false if a
    /// stopper has the lock.
    #[must_use]
    pub fn try_lock(&self) -> bool {
        self.lock.try_lock()
    }

    /// # Safety
    /// The caller holds the lock, by [`World::try_lock`].
    pub unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.lock.unlock() };
    }
}

/// [`ASKED`]: the `attention` of some P may be set. And [`ORDERED`] for each ordered run, in which
/// every call of the library is a step. One word that a thread reads before it finds its P.
static WANTED: OnItsOwnLine = OnItsOwnLine(AtomicU32::new(0));

#[repr(align(128))]
struct OnItsOwnLine(AtomicU32);

/// A bit of `WANTED` and of `gs_preempt_word`. M's that answer, and sysmon, clear it.
const ASKED: u32 = 1;
/// What an ordered run adds to both words while it lasts: so no other thread makes them 0 meanwhile,
/// not even for a moment, in which a call of the run would be no step.
const ORDERED: u32 = 2;

/// An ordered run begins.
pub fn ordered_run_begins() {
    for word in [&WANTED.0, preempt_word()] {
        word.fetch_add(ORDERED, Ordering::Relaxed);
    }
}

/// An ordered run ends.
pub fn ordered_run_ends() {
    for word in [&WANTED.0, preempt_word()] {
        word.fetch_sub(ORDERED, Ordering::Relaxed);
    }
}

/// In the child of a fork, where there is none.
pub fn forget_ordered_runs() {
    for word in [&WANTED.0, preempt_word()] {
        word.fetch_and(ASKED, Ordering::Relaxed);
    }
}

/// Asks the M that runs the P to act on these bits when its goroutine next enters the library, or
/// when the M is next on g0.
pub fn ask(p: PRef, bits: u32) {
    p.attention.fetch_or(bits, Ordering::SeqCst);
    // SeqCst: pairs with `forget_answered`.
    WANTED.0.fetch_or(ASKED, Ordering::SeqCst);
    show_wanted(true);
}

/// The word that `gs_preempt_check` reads. A program that was compiled with the header of the first
/// release refers to the word by its name and may have a copy of its own (a copy relocation), so
/// the word's address must be looked up.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a name of the C ABI")]
pub static gs_preempt_word: AtomicU32 = AtomicU32::new(0);

/// `gs_preempt_word`, wherever the linker has put it.
pub fn preempt_word() -> &'static AtomicU32 {
    // SAFETY: the linker has resolved the word's name to this address.
    unsafe { &*arch::address_of_preempt_word() }
}

fn show_wanted(yes: bool) {
    match yes {
        true => preempt_word().fetch_or(ASKED, Ordering::Relaxed),
        false => preempt_word().fetch_and(!ASKED, Ordering::Relaxed),
    };
}

/// Whether some P may be asked for something, or there is an ordered run.
#[inline(always)]
pub fn any_p_is_asked() -> bool {
    // As wide as `M::hold`, so that one instruction ORs the two (`boundary::must_answer`).
    WANTED.0.load(Ordering::Relaxed) != 0
}

/// Makes `gs_preempt_check` a call: a member of a worker group has lost its P, and notices that
/// only at a call.
pub fn ask_member_without_p() {
    // SeqCst: pairs with `clear_answered`.
    fence(Ordering::SeqCst);
    show_wanted(true);
}

/// Clears [`ASKED`] if all P's have answered, so that no function of the library checks any more.
/// Returns true if some P has not answered yet.
///
/// Any number of threads may call this. The last of them to clear `ASKED` checks all P's after
/// that, and so sees the bits of every `ask` that set `ASKED` before.
pub fn forget_answered(rt: &Runtime) -> bool {
    // SeqCst: pairs with `ask`: either this thread sees the bits of `ask`, or `ask` sets the word
    // after this.
    WANTED.0.fetch_and(!ASKED, Ordering::SeqCst);
    let is_asked = rt.ps().any(|p| p.attention.load(Ordering::SeqCst) & !GANG != 0);
    if is_asked {
        WANTED.0.fetch_or(ASKED, Ordering::SeqCst);
    }
    is_asked
}

/// Whether the world is being stopped, or is stopped.
pub fn is_stopping() -> bool {
    rt().world.stopping.load(Ordering::Acquire)
}

/// Tells the stopper that one more P has stopped.
pub fn arrived() {
    let note = &rt().world.note;
    note.fetch_add(1, Ordering::Release);
    futex::wake(note, 1);
}

/// Makes `gs_preempt_check` no call any more once all P's have answered and all members of worker
/// groups have P's again. For sysmon.
pub fn clear_answered(rt: &Runtime) {
    if any_p_is_asked() || preempt_word().load(Ordering::Relaxed) != 0 {
        show_wanted(false);
        // SeqCst: pairs with `ask_member_without_p`.
        fence(Ordering::SeqCst);
        if forget_answered(rt) || a_member_has_no_p(rt) {
            show_wanted(true);
        }
    }
}

/// Whether a member of a worker group has lost its P and not noticed yet.
pub fn a_member_has_no_p(rt: &Runtime) -> bool {
    let lost = |m: &M| m.is_member() && m.hold.get().is_lost();
    !rt.ms_that(lost).is_empty()
}
