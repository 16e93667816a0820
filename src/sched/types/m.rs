//! M: an OS thread that runs goroutines.

use super::attachment::Attachment;
use super::course::{Bubble, Course};
use super::g::{G, GRef};
use super::gift::Gift;
use super::hold::{AtomicHold, Hold};
use super::p::{P, PRef};
use super::runtime::{Runtime, must_rt, rt};
use super::task::{Fifo, Task};
use crate::arch::tsan::Fiber;
use crate::arch::{self, FpControl, sanitizer};
use crate::atomic::RelaxedCell;
use crate::cxx::{self, Saved};
use crate::os::bell::{AtomicBell, Bell};
use crate::os::cpu::Affinity;
use crate::os::thread::{self, State, Thread, Turns};
use crate::os::{self, time};
use crate::sched::ext::hooks::OfM;
use crate::sched::run::group::Place;
use crate::trace;
use core::cell::Cell;
use core::ffi::c_void;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence,
};

/// A function that the context that runs next calls for the goroutine that was just left, whose
/// registers are saved by then. The argument is the address of the goroutine ([`GRef::at`]), or of
/// the object whose lock the function releases.
pub type Commit = unsafe fn(usize);

/// A function that runs on the thread's own stack.
pub type Blocking = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// An OS thread. Only that thread uses fields in a `Cell` and writes fields in a `RelaxedCell`,
/// which other threads read. Exception: the thread that is about to notify the M sets the fields
/// that come with a notification.
#[repr(C, align(128))]
pub struct M {
    /// The goroutine that the M runs; null on g0. Also read by threads that preempt the M or have
    /// stopped the world: `preempted::runs_preemptible`, `embed::for_each`.
    pub curg: RelaxedCell<*const G>,
    /// The P that the M holds; null in a system call and when idle. Another thread reads this in
    /// `preempt::take_locked`.
    pub p: RelaxedCell<*const P>,
    /// [`OUTSIDE`] while the user's code runs, with a P or in a system call; else [`INSIDE`]. See
    /// `boundary`.
    pub outside: AtomicU8,
    /// Whether the M has its P and, if not, why.
    pub hold: AtomicHold,
    /// g0's saved context, while a goroutine runs.
    pub g0_context: Cell<usize>,
    /// g0's stack; known only if a sanitizer is on.
    pub stack_bounds: Cell<sanitizer::Bounds>,
    /// g0 for ThreadSanitizer.
    pub fiber: Fiber,
    /// The thread's errno.
    pub errno: Cell<*mut i32>,
    /// The state of C++ exceptions on the thread.
    pub cxa: cxx::ThreadCopies,
    /// Whether the M spins, and is counted in `Idle::spinning`.
    pub spinning: RelaxedCell<bool>,
    /// The return address of the call that was last left by a switch on this thread, to which the
    /// processor expects the next call to return. A hint; 0: unknown.
    pub returns_to: Cell<usize>,
    /// A task that was taken from a queue and runs next.
    pub stash: Cell<Option<Task>>,
    /// The number of goroutines that are pinned to the M, and [`TRACES_CALLS`]. Only the M changes
    /// it.
    pinned_here: AtomicU32,
    /// Ready goroutines that are bound to this M, which only this M runs; and goroutines that are
    /// to begin in its worker group, which other members may take.
    pub pinned: Fifo,
    /// The P that the M held before the call, or before the P was taken.
    pub old_p: Cell<*const P>,
    /// Non-zero: goroutines switch to g0, not directly to each other. Bits [`HOOKED`],
    /// [`ATTACHED`], [`TRACED`] and [`ORDERED`]; below them the number of goroutines that have locked the thread
    /// (`gs_lock_os_thread`), plus 1 while an interrupted goroutine waits in the signal handler.
    /// While that number isn't 0 the M runs only goroutines that are bound to it.
    pub by_g0: Cell<usize>,
    /// The ordered run in which the M takes part, or null: see [`ORDERED`].
    pub course: Cell<*const Course>,
    /// The hooks of the embedder on this thread.
    pub hooks: OfM,
    /// The place in a worker group that the M took last; [`Place::next`] leads to its other places.
    /// Null: the M is in no group. Changed with the lock of all groups held.
    pub places: AtomicPtr<Place>,
    /// Whether the M is locked and sleeps in `bound::stop_locked`. The thread that clears this must
    /// give the M a P.
    pub sleeps_locked: AtomicBool,
    /// The `gs_blocking` under way on g0, or null. A thread that has stopped the world only reads
    /// whether this is null, because the call may return meanwhile.
    pub blocking: RelaxedCell<*mut BlockingCall>,
    rng: Cell<u64>,

    /// The futex word on which the thread sleeps. 1: notified.
    note: AtomicU32,
    /// The bell that ends the M's sleep. None: the M sleeps on `note`.
    bell: AtomicBell,
    /// What the M gets with the notification.
    pub gift: Gift,
    /// Whether the M is between: without a P, in no pool, and about to go to sleep or to take a P.
    /// Counted in `Runtime::between`. Changed by the M, and by the thread that takes the M out of
    /// its pool.
    is_between: Cell<bool>,
    /// The thread's CPU time at which its goroutine last went on without a P after a call, in ns.
    pub went_on_at: Cell<i64>,
    /// Whether the M had no P before its present call, or before it last needed a P: then the P
    /// wasn't lost in the call.
    pub has_lost_p_before: Cell<bool>,
    /// Counts the calls that the M's goroutines begin without a P, which shows sysmon that a
    /// goroutine doesn't compute.
    pub calls_without_p: AtomicU64,
    /// Whether the M's goroutine has stopped the world: it keeps the thread and the P until the
    /// world goes on.
    pub stops_world: Cell<bool>,
    /// Whether the M enters its pool as soon as its thread runs.
    pub is_spare: Cell<bool>,
    /// The kernel's number of the thread.
    pub tid: AtomicI32,
    /// Whether the thread has [`Turns::Short`]. Changed by the M, by a thread that borrows its P,
    /// and by sysmon. A hint: wrong until the next change if two threads change it at once.
    short_turns: AtomicBool,
    /// The CPU time of the thread, in ns, when the thread was last known to be blocked without a P. If it is another
    /// now, the thread has run since.
    pub ran: AtomicI64,
    /// Whether the thread was then blocked in a page fault, and not in a system call.
    pub in_fault: AtomicBool,
    /// Whether the goroutine lost its P in a block or a call, or was known to be blocked since, and
    /// so doesn't compute without a P yet. A hint, for sysmon.
    pub was_blocked: AtomicBool,
    /// The interrupted context (`ucontext_t`) of the goroutine that waits in the signal handler, or
    /// null. Also read by a thread that has stopped the world: `registers::shown`.
    pub context: RelaxedCell<*mut c_void>,
    /// A [`registers::state`](crate::sched::take::registers::state): whether a stopper of the world
    /// wants to see the registers of the M's goroutine.
    pub show: AtomicU32,
    /// Whether the M's goroutine leaves the signal handler without a P: `handler::let_go`.
    pub is_let_go: AtomicBool,
    /// Whether the M's goroutine waits inside without a P: in an announced call
    /// (`park::WaitsInside`), or until the world goes on, before it forks.
    pub waits_inside: AtomicBool,
    pub id: u32,
    /// The node to whose pool the M belongs. Only the M changes this. A thread that doesn't find
    /// the M in that pool tries again, or relies on the M to check for work once the M has entered
    /// a pool.
    pub node: RelaxedCell<usize>,
    /// What the thread is bound to (`Runtime::binding_of`); `usize::MAX`: to no node.
    bound_to: Cell<usize>,
    /// The affinity that a borrowed thread had before, and gets back. Null: the thread is not
    /// borrowed, or is not to be bound.
    own_affinity: Cell<*mut Affinity>,
    /// The goroutine for which the thread was borrowed: `gs_run`'s, or an attached thread's. Null:
    /// the thread is the library's own.
    pub root: RelaxedCell<*const G>,
    /// Whether the thread is to leave the runtime. A borrowed thread goes back to its owner,
    /// because `root` has ended. Any other thread ends, because the goroutine that had locked the
    /// thread has ended.
    pub leaves: AtomicBool,
    /// The record that `gs_attach` has made for the thread, or null. The thread's goroutine is
    /// `root`.
    pub attachment: RelaxedCell<*const Attachment>,
    /// For a borrowed thread: an address in its last frame that is its owner's. What is below on its
    /// stack is the library's. 0: the thread is not borrowed now. For halts (`os::halt`), from which
    /// the thread is exempt meanwhile.
    pub first_frame: RelaxedCell<usize>,
    /// Where the alternate signal stack starts that the library has given the thread
    /// (`signal::alt_stack_at`). 0: none.
    pub alt_stack: RelaxedCell<usize>,
    /// The thread, for the join.
    pub thread: Cell<Option<Thread>>,
    /// The number of switches, from g0 and direct, for statistics.
    pub switches: AtomicU64,
    /// The M's events, or null: none yet.
    pub trace: AtomicPtr<trace::Stream>,
    /// The goroutine that the probe `run` has shown last, if the goroutine has not left the M since.
    pub shown: Cell<*const G>,
}

/// A bit of [`M::by_g0`]: the M has hooks.
pub const HOOKED: usize = 1 << 63;
/// A bit of [`M::by_g0`]: the M's thread is attached, and runs only goroutines that are bound to
/// the M.
pub const ATTACHED: usize = 1 << 62;
/// A bit of [`M::by_g0`]: the M's events are traced. If no other bit is set, goroutines switch
/// directly nevertheless.
pub const TRACED: usize = 1 << 61;
/// A bit of [`M::by_g0`]: the M takes part in an ordered run, `M::course`.
pub const ORDERED: usize = 1 << 60;
/// The bit of [`M::pinned_here`] that goes with [`TRACED`].
const TRACES_CALLS: u32 = 1 << 31;

/// The next state of a xorshift* generator, and its number. `x` is not 0.
#[inline]
pub fn xorshift(mut x: u64) -> (u64, u32) {
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    (x, (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32)
}

/// The first state of the generator of the M with this number; not 0.
fn first_random(id: u32) -> u64 {
    0x9e37_79b9_7f4a_7c15 ^ (u64::from(id) + 1) << 17
}

impl M {
    pub fn new(id: u32, node: usize) -> M {
        M {
            curg: RelaxedCell::new(ptr::null()),
            p: RelaxedCell::new(ptr::null()),
            outside: AtomicU8::new(INSIDE),
            hold: AtomicHold::new(),
            g0_context: Cell::new(0),
            stack_bounds: Cell::new((0, 0)),
            fiber: Fiber::new(),
            errno: Cell::new(ptr::null_mut()),
            cxa: cxx::ThreadCopies::new(),
            spinning: RelaxedCell::new(false),
            returns_to: Cell::new(0),
            stash: Cell::new(None),
            pinned_here: AtomicU32::new(0),
            pinned: Fifo::new(),
            old_p: Cell::new(ptr::null()),
            by_g0: Cell::new(0),
            course: Cell::new(ptr::null()),
            hooks: OfM::new(),
            places: AtomicPtr::new(ptr::null_mut()),
            sleeps_locked: AtomicBool::new(false),
            blocking: RelaxedCell::new(ptr::null_mut()),
            rng: Cell::new(first_random(id)),
            note: AtomicU32::new(0),
            bell: AtomicBell::none(),
            gift: Gift::none(),
            is_between: Cell::new(false),
            went_on_at: Cell::new(0),
            has_lost_p_before: Cell::new(false),
            calls_without_p: AtomicU64::new(0),
            stops_world: Cell::new(false),
            is_spare: Cell::new(false),
            tid: AtomicI32::new(0),
            short_turns: AtomicBool::new(false),
            ran: AtomicI64::new(0),
            in_fault: AtomicBool::new(false),
            was_blocked: AtomicBool::new(false),
            context: RelaxedCell::new(ptr::null_mut()),
            show: AtomicU32::new(0),
            is_let_go: AtomicBool::new(false),
            waits_inside: AtomicBool::new(false),
            id,
            node: RelaxedCell::new(node),
            bound_to: Cell::new(usize::MAX),
            own_affinity: Cell::new(ptr::null_mut()),
            root: RelaxedCell::new(ptr::null()),
            leaves: AtomicBool::new(false),
            attachment: RelaxedCell::new(ptr::null()),
            first_frame: RelaxedCell::new(0),
            alt_stack: RelaxedCell::new(0),
            thread: Cell::new(None),
            switches: AtomicU64::new(0),
            trace: AtomicPtr::new(ptr::null_mut()),
            shown: Cell::new(ptr::null()),
        }
    }

    /// Prepares the M for another thread.
    pub fn reuse(&self, node: usize) {
        self.node.set(node);
        self.bound_to.set(usize::MAX);
        self.short_turns.store(false, Ordering::Relaxed);
        self.leaves.store(false, Ordering::Relaxed);
    }

    /// Fills in the fields that only the thread itself can tell, at its start.
    pub fn bind_to_thread(&self) {
        // A thread that has looked at this M after its former thread had left may have made a stream.
        self.stop_tracing();
        self.errno.set(os::errno_location());
        self.fiber.bind_to_thread();
        self.tid.store(thread::id(), Ordering::Relaxed);
        self.cxa.begin(&self.rt().copies, self.is_runner());
        if sanitizer::is_on() {
            self.stack_bounds.set(thread::stack_bounds());
        }
    }

    /// Binds the thread to the CPUs of a node, if threads are bound at all. A thread that a
    /// goroutine has locked stays as it is: its affinity belongs to that goroutine. seed: N1
    #[inline]
    pub fn bind_to(&self, node: usize) {
        if self.rt().binds && self.bound_to.get() != self.rt().binding_of(node) {
            self.bind_now(node);
        }
    }

    #[cold]
    fn bind_now(&self, node: usize) {
        // SAFETY: null, or on the stack of `run_root` on this thread, which sets it to null first.
        let own = unsafe { self.own_affinity.get().as_ref() };
        if self.is_locked() || self.is_runner() && own.is_none() {
            return;
        }
        let rt = rt();
        // Read before the CPUs: if they change now, the thread is bound anew next time.
        self.bound_to.set(rt.binding_of(node));
        // If the node has no CPU left, the thread may run anywhere: on the CPUs of its former node
        // it would be in the way of that node's threads, and CPUs of another node may be free.
        let is_bound = rt.nodes[node].cpus.with(|cpus| match own {
            Some(own) => own.bind_within(cpus),
            None => cpus.bind(),
        });
        match own {
            Some(own) if !is_bound => own.apply(),
            None if !is_bound => rt.unbind_thread(),
            _ => {}
        }
    }

    /// Gives the calling thread, which is the M's, its unbound CPUs: those that its owner gave a
    /// borrowed thread, else those of the process. For a thread that a goroutine has locked, or
    /// that goes back to its owner.
    pub fn unbind(&self) {
        if self.bound_to.replace(usize::MAX) == usize::MAX {
            return;
        }
        // SAFETY: as in `bind_now`.
        match unsafe { self.own_affinity.get().as_ref() } {
            Some(own) => own.apply(),
            None => rt().unbind_thread(),
        }
    }

    /// Calls `f` with the CPUs that [`M::unbind`] would give the calling thread, a bit for each.
    /// `None`: the thread isn't bound.
    pub fn with_unbound_cpus<R>(&self, f: impl FnOnce(&[u64]) -> R) -> Option<R> {
        if self.bound_to.get() == usize::MAX {
            return None;
        }
        // SAFETY: as in `bind_now`.
        let own = unsafe { self.own_affinity.get().as_ref() };
        Some(match own {
            Some(own) => f(own.words()),
            None => self.rt().host_cpus.with(|cpus| f(cpus.words())),
        })
    }

    /// Keeps the affinity that a goroutine has set for a borrowed thread as the owner's, when the
    /// goroutine no longer locks the thread.
    pub fn learn_own_affinity(&self) {
        // SAFETY: as in `bind_now`, and only this thread uses the affinity.
        let own = unsafe { self.own_affinity.get().as_mut() };
        if let (Some(own), Some(now)) = (own, Affinity::current()) {
            *own = now;
        }
    }

    /// Lets a borrowed thread be bound to nodes, until [`M::give_affinity_back`].
    ///
    /// # Safety
    /// `own` stays until [`M::give_affinity_back`].
    pub unsafe fn borrow_affinity(&self, own: Option<&mut Affinity>) {
        self.own_affinity.set(own.map_or(ptr::null_mut(), ptr::from_mut));
    }

    /// Undoes [`M::borrow_affinity`] when the thread goes back to its owner.
    pub fn give_affinity_back(&self) {
        self.unbind();
        self.own_affinity.set(ptr::null_mut());
    }

    /// Whether a task waits in the stash.
    pub fn has_stash(&self) -> bool {
        let task = self.stash.take();
        let is = task.is_some();
        self.stash.set(task);
        is
    }

    /// Whether the M runs only goroutines that are bound to it: see `by_g0`.
    #[inline(always)]
    pub fn is_locked(&self) -> bool {
        self.by_g0.get() & !(HOOKED | ATTACHED | TRACED | ORDERED) != 0
    }

    /// Whether the M runs any goroutine in any order: it is neither locked nor in an ordered run.
    #[inline(always)]
    pub fn is_free(&self) -> bool {
        self.by_g0.get() & !(HOOKED | ATTACHED | TRACED) == 0
    }

    /// Lets the M take part in an ordered run, or, with null, no longer. Only the M's thread may call
    /// this.
    ///
    /// # Safety
    /// The run stays until the M takes part no longer.
    pub unsafe fn set_course(&self, course: *const Course) {
        let by_g0 = self.by_g0.get() & !ORDERED;
        self.by_g0.set(if course.is_null() { by_g0 } else { by_g0 | ORDERED });
        self.course.set(course);
        // 0: selects try their cases in the plain order.
        self.rng.set(if course.is_null() { first_random(self.id) } else { 0 });
    }

    /// The ordered run in which the M takes part.
    #[inline(always)]
    pub fn course(&self) -> Option<&Course> {
        // SAFETY: null, or a run that stays, as `set_course` was told.
        unsafe { self.course.get().as_ref() }
    }

    /// Whether the M takes part in an ordered run: see `by_g0`.
    #[inline(always)]
    pub fn is_ordered(&self) -> bool {
        self.by_g0.get() & ORDERED != 0
    }

    /// The bubble that the M runs.
    #[inline]
    pub fn bubble(&self) -> Option<&Bubble> {
        self.course()?.bubble.as_ref()
    }

    /// Whether the M is in a worker group. Any thread may ask.
    #[inline(always)]
    pub fn is_member(&self) -> bool {
        !self.places.load(Ordering::Relaxed).is_null()
    }

    /// Whether the M's thread has called `gs_attach`. Any thread may ask.
    pub fn is_attached(&self) -> bool {
        !self.attachment.seen().is_null()
    }

    /// The number of goroutines that are pinned to the M. Any thread may ask.
    #[inline(always)]
    pub fn pinned(&self) -> u32 {
        self.pinned_here.load(Ordering::Relaxed) & !TRACES_CALLS
    }

    /// Whether a call that begins on the M needs a closer look: goroutines are pinned to the M, it
    /// is in a worker group, or its events are traced. A single branch, because each announced call
    /// checks this.
    #[inline(always)]
    pub fn calls_carefully(&self) -> bool {
        let pinned = self.pinned_here.load(Ordering::Relaxed) as usize;
        pinned | self.places.load(Ordering::Relaxed).addr() != 0
    }

    /// Sets whether the M's events are traced. Only the M's thread may call this.
    pub fn set_traced(&self, is: bool) {
        let (by_g0, pinned) = (self.by_g0.get() & !TRACED, self.pinned());
        self.by_g0.set(if is { by_g0 | TRACED } else { by_g0 });
        let pinned = if is { pinned | TRACES_CALLS } else { pinned };
        self.pinned_here.store(pinned, Ordering::Relaxed);
    }

    /// Whether the M has hooks: see `by_g0`.
    #[inline(always)]
    pub fn is_hooked(&self) -> bool {
        self.by_g0.get() & HOOKED != 0
    }

    /// Whether the M's events are traced: see `by_g0`.
    #[inline(always)]
    pub fn is_traced(&self) -> bool {
        self.by_g0.get() & TRACED != 0
    }

    /// The M's stream of events, which is made if there is none. `None`: there is no memory.
    #[inline(always)]
    pub fn stream(&self) -> Option<&'static trace::Stream> {
        // Acquire: pairs with the Release in `make_stream`, in another thread.
        // SAFETY: null or a stream, and streams stay.
        let known = unsafe { self.trace.load(Ordering::Acquire).as_ref() };
        if known.is_some() { known } else { self.make_stream() }
    }

    #[cold]
    #[inline(never)]
    fn make_stream(&self) -> Option<&'static trace::Stream> {
        let new = trace::stream_for(self.tid.load(Ordering::Relaxed) as u64)?;
        // Release: pairs with the Acquire in `stream`.
        self.trace.store(ptr::from_ref(new).cast_mut(), Ordering::Release);
        Some(new)
    }

    /// The M's thread leaves: gives the stream of events back.
    pub fn stop_tracing(&self) {
        self.set_traced(false);
        let stream = self.trace.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: null or a stream, and streams stay.
        if let Some(stream) = unsafe { stream.as_ref() } {
            trace::retire(stream);
        }
    }

    /// Whether the thread is borrowed: it is in `gs_run`, or attached. Any thread may ask.
    #[inline(always)]
    pub fn is_runner(&self) -> bool {
        !self.root.seen().is_null()
    }

    /// Lets the kernel run the M's thread as soon as it wakes, ahead of goroutines that compute.
    /// For an M that sleeps, or is about to, and gets the P of such a goroutine. A borrowed thread
    /// keeps the turns that its owner has given it.
    pub fn ask_for_short_turns(&self) {
        let id = self.tid.load(Ordering::Relaxed);
        let may = id != 0 && !self.is_runner();
        if may && !self.short_turns.load(Ordering::Relaxed) {
            self.short_turns.store(true, Ordering::Relaxed);
            thread::ask_for_turns(id, Turns::Short);
        }
    }

    /// Undoes [`M::ask_for_short_turns`] for a thread whose goroutine computes, or has blocked the
    /// thread.
    pub fn ask_for_usual_turns(&self) {
        if self.short_turns.load(Ordering::Relaxed)
            && self.short_turns.swap(false, Ordering::Relaxed)
        {
            thread::ask_for_turns(self.tid.load(Ordering::Relaxed), Turns::Usual);
        }
    }

    /// Whether goroutines are bound to the M. A borrowed thread has bound goroutines only if the
    /// system gave no other thread, and goes back when they have ended.
    pub fn has_bound(&self) -> bool {
        self.is_locked() || self.pinned() > 0
    }

    /// The runtime, without a check.
    #[inline(always)]
    fn rt(&self) -> &'static Runtime {
        // SAFETY: M's are a runtime's, and stay mapped as long as it does.
        unsafe { must_rt() }
    }

    /// Whether the thread is to leave: at shutdown, at the end of `gs_run`'s function, or because
    /// its locked goroutine has ended.
    pub fn must_leave(&self) -> bool {
        if self.is_runner() {
            // Pairs with the fence in `root_ended`: either this M sees `leaves`, or `root_ended`
            // sees the M's P.
            fence(Ordering::SeqCst);
        }
        let leaves = self.leaves.load(Ordering::Acquire) && !self.has_bound();
        leaves || self.rt().exiting.load(Ordering::Acquire)
    }

    /// Whether the M must go to g0, because its thread is to leave.
    pub fn is_wanted_back(&self) -> bool {
        // SeqCst: pairs with the fence in `root_ended`. Either an M that has just taken a P sees
        // `leaves`, or `root_ended` sees that the M runs that P.
        self.leaves.load(Ordering::SeqCst)
    }

    /// Notes that the thread is blocked, if `state` says so. `ran`: the CPU time that it had used
    /// before it was found in that state, in ns.
    pub fn was_seen(&self, state: State, ran: i64) {
        if state == State::Runs {
            return;
        }
        self.in_fault.store(state == State::InFault, Ordering::Relaxed);
        self.was_blocked.store(true, Ordering::Relaxed);
        // Release: pairs with the Acquire in `preempt::has_run`, after which `in_fault` is read.
        self.ran.store(ran, Ordering::Release);
    }

    /// Whether the M's thread may be blocked in the user's code, in an announced call or without a
    /// P: goroutines that are bound to the M don't run then. May be out of date.
    pub fn is_blocked(&self) -> bool {
        let hold = self.hold.get();
        hold == Hold::InCall || hold.is_lost()
    }

    /// A random number.
    #[inline]
    pub fn random(&self) -> u32 {
        let (state, number) = xorshift(self.rng.get());
        self.rng.set(state);
        number
    }

    /// Decides the random numbers to come, for an ordered run; 0: they are all 0.
    pub fn seed_random(&self, seed: u32) {
        self.rng.set(u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }

    /// The P. Panics if the M holds none.
    ///
    /// Code on a goroutine has a P from [`crate::sched::take::boundary::Entered::new`] on, which
    /// waits for a P if need be; code on g0 has a P from `owner::acquire_p` to `release_p`. Only
    /// code beside a system call (`blocking`), code that is about to sleep (`stop::go_idle`) and
    /// other threads have no P, and read the field instead.
    #[inline(always)]
    pub fn p(&self) -> PRef {
        let p = self.p.get();
        if p.is_null() {
            lacks("a P");
        }
        // SAFETY: not null; P's stay mapped until shutdown.
        unsafe { PRef::from_ptr(p) }
    }

    /// [`M::p`] without a check, for the hot paths.
    ///
    /// # Safety
    /// The M holds a P.
    #[inline(always)]
    pub unsafe fn must_p(&self) -> PRef {
        debug_assert!(!self.p.get().is_null());
        // SAFETY: not null, as the caller says; P's stay mapped until shutdown.
        unsafe { PRef::from_ptr(self.p.get()) }
    }

    /// The goroutine. Panics if there is none: the field is set before a goroutine is switched to,
    /// and null only on g0.
    #[inline(always)]
    pub fn g(&self) -> GRef {
        let g = self.curg.get();
        if g.is_null() {
            lacks("a goroutine");
        }
        // SAFETY: not null; descriptors stay mapped.
        unsafe { GRef::from_ptr(g) }
    }

    /// [`M::g`] without a check, for the hot paths.
    ///
    /// # Safety
    /// The M runs a goroutine.
    #[inline(always)]
    pub unsafe fn must_g(&self) -> GRef {
        debug_assert!(!self.curg.get().is_null());
        // SAFETY: not null, as the caller says; descriptors stay mapped.
        unsafe { GRef::from_ptr(self.curg.get()) }
    }

    /// Sleeps until notified or the deadline (ns; negative: none) has passed.
    /// True: notified.
    pub fn sleep(&self, deadline: i64) -> bool {
        loop {
            if self.take_note() {
                return true;
            }
            if !os::futex::wait(&self.note, 0, deadline) {
                return self.take_note();
            }
        }
    }

    /// Sets whether the M is between: without a P, in no pool.
    #[inline(always)]
    pub fn set_between(&self, is: bool) {
        if self.is_between.get() != is {
            self.change_between(is);
        }
    }

    #[cold]
    fn change_between(&self, is: bool) {
        self.is_between.set(is);
        let between = &rt().between;
        match is {
            true => between.fetch_add(1, Ordering::Relaxed),
            // Release: pairs with the Acquire in `is_any_m_between`: a thread that sees this finds
            // the M in its pool, if the M went there.
            false => between.fetch_sub(1, Ordering::Release),
        };
    }

    /// Takes the notification. False: there is no notification.
    pub fn take_note(&self) -> bool {
        // Acquire: pairs with the Release in `notify`.
        self.note.swap(0, Ordering::Acquire) == 1
    }

    /// Sets the bell whose ring ends the M's sleep; `None`: `note` does. The M calls `take_note`
    /// after this.
    pub fn sleeps_in(&self, bell: Option<Bell>) {
        self.bell.store(bell);
        // Pairs with the fence in `notify`: either the notifying thread sees the bell, or this M
        // sees the note.
        fence(Ordering::SeqCst);
    }

    /// Ends the sleep of the M, or its next one.
    pub fn notify(&self) {
        // Release: pairs with the Acquire in `take_note`, after which the M reads `gift`.
        self.note.store(1, Ordering::Release);
        // Pairs with the fence in `sleeps_in`.
        fence(Ordering::SeqCst);
        match self.bell.load() {
            None => os::futex::wake(&self.note, 1),
            Some(bell) => bell.ring(),
        }
    }
}

/// Panics because the M has no P or runs no goroutine.
#[cold]
#[inline(never)]
fn lacks(what: &str) -> ! {
    panic!("gosched: an M without {what}");
}

/// A pointer to an M, which stays mapped until shutdown.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct MRef(ptr::NonNull<M>);

// SAFETY: an M stays mapped until shutdown. Each field says which threads may use it, and the
// pointer gives access to nothing else.
unsafe impl Send for MRef {}

impl MRef {
    /// # Safety
    /// `m` points to an M.
    #[inline(always)]
    pub unsafe fn from_ptr(m: *const M) -> MRef {
        // SAFETY: `m` points to an M, so it isn't null.
        MRef(unsafe { ptr::NonNull::new_unchecked(m.cast_mut()) })
    }

    #[inline(always)]
    pub fn as_ptr(self) -> *mut M {
        self.0.as_ptr()
    }
}

impl Deref for MRef {
    type Target = M;
    #[inline(always)]
    fn deref(&self) -> &M {
        // SAFETY: M's stay mapped until shutdown, when no code of the runtime runs.
        unsafe { self.0.as_ref() }
    }
}

/// The M of this thread; `None` on a plain thread. Don't keep the M across a switch.
#[inline(always)]
pub fn current() -> Option<MRef> {
    ptr::NonNull::new(arch::tls_get() as *mut M).map(MRef)
}

/// The M of this thread, without a check.
///
/// # Safety
/// The caller runs on an M's thread: on a goroutine, or on g0.
#[inline(always)]
pub unsafe fn must_current() -> MRef {
    // SAFETY: the word of an M's thread is the address of the M.
    unsafe { MRef::from_ptr(arch::tls_get() as *const M) }
}

/// Makes this thread an M's, or a plain one again.
///
/// # Safety
/// The thread is bound to that M ([`M::bind_to_thread`]), which runs on no other thread. `None`:
/// the thread runs no goroutine, or is in the child of a fork, which has no runtime.
pub unsafe fn set_current(m: Option<MRef>) {
    // SAFETY: the word is 0 or this thread's M, as the caller says.
    unsafe { arch::tls_set(m.map_or(0, |m| m.as_ptr() as usize)) };
}

/// Changes the number of goroutines that are pinned to the M.
pub fn count_pinned(m: MRef, change: i32) {
    let now = m.pinned_here.load(Ordering::Relaxed).wrapping_add_signed(change);
    m.pinned_here.store(now, Ordering::Relaxed);
}

/// The M of this thread, if it runs a goroutine that may park: not on g0 and not in a system call,
/// where the thread counts as a plain thread.
#[inline(always)]
pub fn on_goroutine() -> Option<MRef> {
    current().filter(|&m| is_on_goroutine(m))
}

#[inline(always)]
pub fn is_on_goroutine(m: MRef) -> bool {
    !m.curg.get().is_null() && !m.p.get().is_null()
}

/// The goroutine of this thread, even in a system call.
pub fn current_g() -> Option<GRef> {
    let g = current()?.curg.get();
    // SAFETY: null or a descriptor.
    unsafe { GRef::from_nullable(g) }
}

/// A number that no other goroutine or thread has; not 0.
pub fn caller() -> u64 {
    match current_g() {
        Some(g) => g.id.load(Ordering::Relaxed) << 1 | 1,
        None => (crate::os::thread::id() as u64) << 1,
    }
}

/// The M of this thread, if it holds a P.
#[inline(always)]
pub fn with_p() -> Option<MRef> {
    current().filter(|m| !m.p.get().is_null())
}

/// Whether the calling thread, which is inside, holds a P that no other thread can take.
pub fn holds_p() -> bool {
    with_p().is_some_and(|m| !m.hold.has_lost_p())
}

/// A random number. 0 in an ordered run, until [`M::seed_random`].
pub fn random() -> u32 {
    current().map_or_else(random_of_thread, |m| m.random())
}

#[cold]
pub fn random_of_thread() -> u32 {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    let state = match STATE.get() {
        0 => time::now() as u64 | 1,
        state => state,
    };
    let (state, number) = xorshift(state);
    STATE.set(state);
    number
}

/// Values of [`crate::sched::types::m::M::outside`].
pub const INSIDE: u8 = 0;

pub const OUTSIDE: u8 = 1;

/// A call that g0 makes on the thread's own stack. This record lives on the goroutine's stack.
pub struct BlockingCall {
    pub f: Blocking,
    pub arg: *mut c_void,
    /// Whether the caller returns to the user's code next.
    pub to_user: bool,
    pub result: *mut c_void,
    /// The goroutine's rounding modes, and the errno that `f` has left.
    pub fp: FpControl,
    pub errno: i32,
    /// The goroutine's exceptions, while it has left the thread.
    pub exceptions: Saved,
}
