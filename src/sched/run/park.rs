//! Parking and waking: the base of every object that goroutines block on.
//!
//! A goroutine that blocks puts a [`Waiter`] into the object's queue, under the object's lock, and
//! parks. The context that runs next releases the lock, after the goroutine's registers are saved;
//! on a P that is alone the goroutine itself releases the lock, before the switch. The waker takes
//! the waiter out of the queue, under the lock, claims it and makes its goroutine ready.
//!
//! A claim decides between several wakers: a partner, the deadline, a cancel, the other cases of a
//! select. Where only one waker is possible (no deadline, no select, no pointer to the goroutine
//! elsewhere) there is no claim.

use super::{ready, switch};
use crate::arch::{self, prefetch_lines};
use crate::os::spin::SpinLock;
use crate::os::{futex, halt, time};
use crate::sched::prim::clock;
use crate::sched::types::blocked;
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::m::{self, M, MRef};
use crate::sched::types::node::priority;
use crate::sched::types::waiter::{
    Cause, Claimed, Ended, Leave, ParkRequest, Parker, Waiter, When, Why, claim,
};
use crate::sched::wait::timers;
use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering, fence};

/// A deadline that never comes.
pub const FOREVER: i64 = -1;
/// A deadline that has always passed: the operation never waits.
pub const NOWAIT: i64 = 0;

impl Parker {
    /// Wakes the goroutine from the park by hand with this number. Returns false if another waker
    /// was first.
    pub fn wake(g: GRef, number: u64) -> bool {
        match g.parker.end(number, claim::WOKEN) {
            Ended::Claimed => ready::ready(g, When::Soon),
            Ended::Marked => {}
            Ended::Before => return false,
        }
        true
    }

    /// Makes the parked goroutine or thread run again. The caller has claimed the park, or is its
    /// only possible waker. Afterwards the waiter, and everything else on the parked stack, may be
    /// gone.
    ///
    /// # Safety
    /// `parker` is parked, or is about to park and the caller holds the object's lock.
    #[inline(always)]
    unsafe fn ready(parker: *const Parker, when: When) {
        // SAFETY: the goroutine is parked, so its parker stays until it is made ready, which only
        // the caller may do.
        let this = unsafe { &*parker };
        if this.is_thread() {
            blocked::thread_wakes(this.counted.get());
            let note: *const AtomicU32 = &raw const this.note;
            // Release: pairs with the Acquire in `park_thread`.
            this.note.store(1, Ordering::Release);
            futex::wake(note, 1);
        } else {
            ready::ready(this.g(), when);
        }
    }

    /// Wakes the goroutine from the park with this number, whose deadline has passed. Returns false
    /// if that park was already over.
    ///
    /// # Safety
    /// `parker` is a goroutine's, and the caller holds no lock.
    pub unsafe fn time_out(parker: *const Parker, number: u64) -> bool {
        // SAFETY: descriptors stay mapped.
        let this = unsafe { &*parker };
        match this.end(number, claim::TIMED_OUT) {
            Ended::Claimed => {
                // Many deadlines may pass at once, and the waiters have been out of the caches for
                // long.
                this.g().fetch_stack();
                // SAFETY: the goroutine was just claimed; and the caller holds no lock.
                unsafe { leave_and_run(this.g()) };
            }
            Ended::Marked => {}
            Ended::Before => return false,
        }
        true
    }

    /// Ends the goroutine's park, if there is one, with `Cancelled`, unless cancelling is disabled.
    /// The caller has set `G::cancelled`.
    pub fn cancel(g: GRef) {
        // Pairs with the fence in `Block::arm`: either the goroutine sees the flag, or this thread
        // sees that the goroutine is about to park.
        fence(Ordering::SeqCst);
        let number = g.parker.claim.load(Ordering::Acquire) >> claim::BITS;
        // The goroutine finds the flag when it next waits after `Parker::let_cancel`.
        if number & claim::UNCANCELLABLE != 0 {
            return;
        }
        if let Ended::Claimed = g.parker.end(number, claim::CANCELLED) {
            // SAFETY: the goroutine was just claimed; and no caller of `gs_cancel` holds a lock of
            // the library.
            unsafe { leave_and_run(g) };
        }
    }
}

/// Takes the goroutine, whose park a deadline or a cancel has ended, out of its object's queue, and
/// then makes it run. So the goroutines behind it in the queue don't wait until this goroutine
/// runs, which may take long: its priority may be low, or its thread blocked.
///
/// # Safety
/// The caller has claimed the goroutine, and holds no lock.
unsafe fn leave_and_run(g: GRef) {
    if let Some(Leave { f, arg }) = g.request.get().leave {
        // SAFETY: the goroutine is claimed and not made ready yet, so its stack, where `arg`
        // points, stays as it is.
        unsafe { f(arg) };
    }
    ready::ready(g, When::Soon);
}

/// How soon a waiter runs once woken: a constant below, or the address of the M to which its
/// goroutine is bound. Fixed while the waiter waits, but that M may block or unblock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Haste(usize);

impl Haste {
    /// The waiter runs within about a time slice.
    pub const PROMPT: Haste = Haste(0);
    /// The waiter runs seldom: its priority is low.
    const LOW: Haste = Haste(1);
    /// The waiter runs only when nothing else can run.
    const IDLE: Haste = Haste(2);

    /// The haste of the caller.
    pub fn of_caller() -> Haste {
        let Some(m) = m::on_goroutine() else { return Haste::PROMPT };
        let g = m.g();
        match g.priority.get() {
            priority::LOW => Haste::LOW,
            priority::IDLE => Haste::IDLE,
            // Only the thread that the goroutine is bound to can run it.
            _ if g.has(flags::BOUND) => Haste(g.bound_m.get() as usize),
            _ => Haste::PROMPT,
        }
    }

    /// Encodes the haste as a word for [`Waiter::elem`]; `from_word` decodes it.
    pub fn into_word(self) -> *mut u8 {
        self.0 as *mut u8
    }

    pub fn from_word(word: *mut u8) -> Haste {
        Haste(word as usize)
    }

    pub fn is_prompt(self) -> bool {
        match self {
            Haste::PROMPT => true,
            Haste::LOW | Haste::IDLE => false,
            // SAFETY: `m` is the address of an M, which stays mapped as long as a goroutine is
            // bound to it.
            Haste(m) => !unsafe { MRef::from_ptr(m as *const M) }.is_blocked(),
        }
    }

    pub fn is_idle(self) -> bool {
        self == Haste::IDLE
    }
}

impl Waiter {
    /// Makes the waiter's goroutine or thread run. The waiter may be gone afterwards.
    ///
    /// # Safety
    /// The caller has taken the waiter out of its queue and claimed it.
    #[inline(always)]
    pub unsafe fn ready(waiter: *const Waiter, when: When) {
        // The data that the goroutine needs first is next to the waiter on its stack.
        prefetch_lines(waiter as usize, 2..4);
        // SAFETY: the waiter is claimed, so it stays until its goroutine is made ready, which only
        // the caller may do.
        unsafe { Parker::ready((*waiter).parker, when) };
    }
}

/// Makes all these waiters run.
pub fn ready_all(waiters: Claimed) {
    for w in waiters.iter() {
        // SAFETY: the waiter was taken out of its queue and claimed, as `Claimed` says; it is not
        // used after this.
        unsafe { Waiter::ready(w, When::Soon) };
    }
}

/// Releases the [`SpinLock`] at this address: an `unlock` for [`Block::park`].
///
/// # Safety
/// `lock` is the address of a lock that the caller holds.
pub unsafe fn unlock(lock: usize) {
    // SAFETY: `lock` is the address of a lock that is held, as the caller says.
    unsafe { (*(lock as *const SpinLock)).unlock() };
}

/// A blocking operation of the calling goroutine or thread.
pub struct Block {
    parker: *const Parker,
    /// The park's number; 0 if the park needs no claim.
    number: u64,
    /// The deadline in ns on CLOCK_MONOTONIC, or [`FOREVER`].
    deadline: i64,
}

impl Block {
    /// Begins to block. Errors: `-EAGAIN` for [`NOWAIT`], `-ETIMEDOUT`, `-ECANCELED`. `several`:
    /// the caller will wait in more than one queue. `thread` is used if the caller is a plain
    /// thread, and must not move until the park is over.
    #[inline(always)]
    pub fn begin(thread: &Parker, deadline: i64, several: bool, why: Why) -> Result<Block, i32> {
        if deadline == NOWAIT {
            return Err(-libc::EAGAIN);
        }
        if deadline != FOREVER && deadline <= time::now() {
            return Err(-libc::ETIMEDOUT);
        }
        Block::arm(thread, deadline, several, true, why)
    }

    /// Begins to block without a deadline; no cancel ends the park.
    pub fn begin_uncancellable(thread: &Parker, why: Why) -> Block {
        match Block::arm(thread, FOREVER, false, false, why) {
            Ok(block) => block,
            Err(_) => unreachable!("only a cancel is refused"),
        }
    }

    #[inline(always)]
    fn arm(
        thread: &Parker,
        deadline: i64,
        several: bool,
        cancellable: bool,
        why: Why,
    ) -> Result<Block, i32> {
        let timed = deadline != FOREVER;
        let Some(m) = m::on_goroutine() else {
            let number = if timed || several { thread.arm() } else { 0 };
            if number != 0 {
                // A thread has no registers to save first.
                let armed = thread.change(number, claim::ARMING, claim::PARKED);
                debug_assert!(armed);
            }
            return Ok(Block { parker: thread, number, deadline });
        };
        let g = m.g();
        g.why.set(why);
        g.since.set(clock::rough());
        let mut number = 0;
        if timed || several || (cancellable && g.shared.get()) {
            number = g.parker.arm();
            // Pairs with the fence in `Parker::cancel`.
            fence(Ordering::SeqCst);
            if g.cancelled.load(Ordering::Relaxed) && number & claim::UNCANCELLABLE == 0 {
                return Err(-libc::ECANCELED);
            }
        }
        Ok(Block { parker: &raw const g.parker, number, deadline })
    }

    /// Makes the caller's waiter, to be put into a queue. `object`: [`Waiter::object`].
    #[inline(always)]
    pub fn waiter<T>(&self, object: *const T) -> Waiter {
        let mut place = MaybeUninit::uninit();
        self.make_waiter(object, &mut place);
        // SAFETY: `make_waiter` has written the waiter.
        unsafe { place.assume_init() }
    }

    /// [`Block::waiter`] in place. A waiter that is copied costs time: the wide loads of the copy
    /// wait for the narrow stores before them.
    #[inline(always)]
    pub fn make_waiter<'a, T>(
        &self,
        object: *const T,
        place: &'a mut MaybeUninit<Waiter>,
    ) -> &'a mut Waiter {
        let at = place.as_mut_ptr();
        // SAFETY: each field is written, and none is read before.
        unsafe {
            (&raw mut (*at).next).write(Cell::new(ptr::null()));
            (&raw mut (*at).prev).write(Cell::new(ptr::null()));
            (&raw mut (*at).parker).write(self.parker);
            (&raw mut (*at).number).write(self.number);
            (&raw mut (*at).object).write(object.cast());
            (&raw mut (*at).queued).write(Cell::new(false));
            (&raw mut (*at).elem).write(Cell::new(ptr::null_mut()));
            (&raw mut (*at).tag).write(Cell::new(0));
            (&raw mut (*at).ok).write(Cell::new(false));
            (&raw mut (*at).won).write(Cell::new(false));
            place.assume_init_mut()
        }
    }

    /// Parks the caller. `unlock(arg)` releases the locks of the queues that the caller is in, once
    /// the caller can be woken. If no waker ended the park, the caller must take its waiters out of
    /// the queues.
    ///
    /// # Safety
    /// The caller holds what `unlock` releases; `unlock` doesn't block.
    #[inline(never)]
    pub unsafe fn park(self, unlock: unsafe fn(usize), arg: usize) -> Cause {
        // SAFETY: the caller keeps the same promises.
        unsafe { self.park_inline(unlock, arg) }
    }

    /// [`Block::park`], inlined, for the objects that are used most.
    ///
    /// # Safety
    /// As `park`.
    #[inline(always)]
    pub unsafe fn park_inline(self, unlock: unsafe fn(usize), arg: usize) -> Cause {
        // SAFETY: the caller keeps the same promises.
        unsafe { self.park_leaving(unlock, arg, None) }
    }

    /// [`Block::park`] for a queue where others may wait behind the caller. If a deadline or a
    /// cancel ends the park, `leave` is called before this returns.
    ///
    /// # Safety
    /// As `park`; `leave` may be called, without a lock, until this returns.
    #[inline(always)]
    pub unsafe fn park_leaving(
        self,
        unlock: unsafe fn(usize),
        arg: usize,
        leave: Option<Leave>,
    ) -> Cause {
        // SAFETY: the parker is the caller's own.
        let parker = unsafe { &*self.parker };
        if parker.is_thread() {
            // SAFETY: the caller keeps the same promises.
            let cause = unsafe { self.park_thread(parker, unlock, arg) };
            if let (Some(Leave { f, arg }), true) = (leave, cause != Cause::Woken) {
                // SAFETY: the lock was released when the thread went to sleep.
                unsafe { f(arg) };
            }
            return cause;
        }
        let g = parker.g();
        g.set_status(Status::Waiting);
        // SAFETY: the parker is a goroutine's, so a goroutine runs this code and its thread has an
        // M.
        let m = unsafe { m::must_current() };
        if self.number == 0 {
            // SAFETY: a goroutine that parks has a P.
            if unsafe { m.must_p() }.alone.get() {
                // SAFETY: the caller holds the locks that `unlock(arg)` releases.
                switch::switch_away_alone(m, || unsafe { unlock(arg) });
            } else {
                // SAFETY: the caller holds the locks that `unlock(arg)` releases.
                unsafe { switch::switch_away(m, unlock, arg) };
            }
            return Cause::Woken;
        }
        g.request.set(ParkRequest {
            number: self.number,
            deadline: self.deadline,
            unlock,
            arg,
            leave,
        });
        // SAFETY: the request has been made for this goroutine.
        unsafe { switch::switch_away(m, commit_claim, g.address()) };
        let cause = parker.cause();
        if self.deadline != FOREVER && cause.leaves_deadline() {
            timers::left_early(parker.timer_home.get());
        }
        cause
    }

    /// Parks a goroutine that others wake by [`Parker::wake`]. Calls `commit(arg)` when the
    /// goroutine is at rest. If `commit` returns false the goroutine goes on at once; else its
    /// deadline applies from then on.
    ///
    /// # Safety
    /// The block is a goroutine's and has a number; `commit` doesn't block.
    pub unsafe fn park_by_hand(self, commit: unsafe fn(usize) -> bool, arg: usize) -> Cause {
        // SAFETY: the parker is the caller's own.
        let g = unsafe { &*self.parker }.g();
        g.set_status(Status::Waiting);
        let hand = ByHand { g, block: self, commit, arg, timed: Cell::new(false) };
        g.request.set(ParkRequest {
            number: hand.block.number,
            // For reports: `commit_by_hand` uses the block's.
            deadline: hand.block.deadline,
            unlock: no_unlock,
            arg: 0,
            leave: None,
        });
        // SAFETY: the parker is a goroutine's, so a goroutine runs this code and its thread has an
        // M.
        let m = unsafe { m::must_current() };
        // SAFETY: the frame with `hand` stays until the commit has published the park.
        unsafe { switch::switch_away(m, commit_by_hand, &raw const hand as usize) };
        g.hand_park.store(0, Ordering::Relaxed);
        let cause = g.parker.cause();
        if hand.timed.get() && cause.leaves_deadline() {
            timers::left_early(g.parker.timer_home.get());
        }
        cause
    }

    /// # Safety
    /// As `park`.
    #[cold]
    unsafe fn park_thread(self, parker: &Parker, unlock: unsafe fn(usize), arg: usize) -> Cause {
        if self.deadline == FOREVER {
            parker.counted.set(blocked::thread_blocks());
        }
        let _waits = WaitsInside::begin();
        // SAFETY: the caller holds the locks that `unlock(arg)` releases.
        unsafe { unlock(arg) };
        let mut deadline = self.deadline;
        // Acquire: pairs with the Release in `Parker::ready`.
        while parker.note.load(Ordering::Acquire) == 0 {
            if !futex::wait(&parker.note, 0, deadline) {
                if parker.change(self.number, claim::PARKED, claim::TIMED_OUT) {
                    return Cause::TimedOut;
                }
                // A waker has claimed the park, and is about to write the note. The waker may have
                // lost its CPU to this thread.
                deadline = FOREVER;
            }
        }
        Cause::Woken
    }
}

/// Marks an M whose goroutine has announced a call and waits in the library on its thread.
/// Meanwhile the registers of the user's code are on the stack, where `embed::for_each` shows them.
struct WaitsInside {
    m: Option<MRef>,
    registers: arch::Kept,
}

impl WaitsInside {
    fn begin() -> WaitsInside {
        let this = WaitsInside { m: m::current(), registers: arch::kept_registers() };
        core::hint::black_box(&this.registers);
        if let Some(m) = this.m {
            // Release: pairs with the Acquire in `registers::show_all`.
            m.waits_inside.store(true, Ordering::Release);
        }
        this
    }
}

impl Drop for WaitsInside {
    fn drop(&mut self) {
        core::hint::black_box(&self.registers);
        if let Some(m) = self.m {
            m.waits_inside.store(false, Ordering::Relaxed);
            halt::wait_in_call();
        }
    }
}

/// Publishes a goroutine that has just been left and that wakers must claim. From here on they may
/// wake the goroutine.
///
/// # Safety
/// `g` is the address of a goroutine that has made a [`ParkRequest`].
unsafe fn commit_claim(g: usize) {
    // SAFETY: the address of a descriptor, as the caller says.
    let g = unsafe { GRef::at(g) };
    let ParkRequest { number, deadline, unlock, arg, .. } = g.request.get();
    // Before the goroutine is published, so that its waker finds the entry.
    if deadline != FOREVER && !timers::add_park(g, number, deadline) {
        // If a cancel has marked the claim already, the mark stays.
        g.parker.change(number, claim::ARMING, claim::NO_MEMORY);
    }
    let published = g.parker.change(number, claim::ARMING, claim::PARKED);
    // SAFETY: the locks that `park` was given are still held.
    unsafe { unlock(arg) };
    if !published {
        // A deadline or a cancel has marked the claim meanwhile, so this thread still owns the
        // goroutine.
        // SAFETY: the locks have just been released.
        unsafe { leave_and_run(g) };
    }
}

/// A park by hand, on the stack of the goroutine that parks.
struct ByHand {
    g: GRef,
    block: Block,
    commit: unsafe fn(usize) -> bool,
    arg: usize,
    /// Whether the deadline has a timer entry.
    timed: Cell<bool>,
}

/// The commit of a park by hand. The claim is `ARMING` until the end: a waker only marks the claim,
/// so the goroutine stays at rest, and its stack as it is.
///
/// # Safety
/// `hand` is the address of a [`ByHand`] whose goroutine has just been left.
unsafe fn commit_by_hand(hand: usize) {
    // SAFETY: the goroutine is at rest until the claim is published below.
    let hand = unsafe { &*(hand as *const ByHand) };
    let (g, number, deadline) = (hand.g, hand.block.number, hand.block.deadline);
    // Release: pairs with the Acquire in `embed::ready`.
    g.hand_park.store(number, Ordering::Release);
    // SAFETY: `park_by_hand` was given `commit` and `arg` for this moment.
    if !unsafe { (hand.commit)(hand.arg) } {
        // If a waker has marked the claim already, the mark stays.
        g.parker.change(number, claim::ARMING, claim::WOKEN);
    } else if deadline != FOREVER {
        hand.timed.set(timers::add_park(g, number, deadline));
        if !hand.timed.get() {
            g.parker.change(number, claim::ARMING, claim::NO_MEMORY);
        }
    }
    if !g.parker.change(number, claim::ARMING, claim::PARKED) {
        ready::ready(g, When::Soon);
    }
}

/// The `unlock` of parks that hold no lock.
unsafe fn no_unlock(_: usize) {}

/// Blocks the caller until the deadline or a cancel, whichever is first.
pub fn sleep_until(deadline: i64, why: Why) -> Cause {
    let thread = Parker::for_thread();
    sleep(Block::begin(&thread, deadline, false, why))
}

/// [`sleep_until`] without checking whether the deadline has already passed.
pub fn sleep_to(deadline: i64, why: Why) -> Cause {
    let thread = Parker::for_thread();
    sleep(Block::arm(&thread, deadline, false, true, why))
}

fn sleep(begun: Result<Block, i32>) -> Cause {
    match begun {
        // SAFETY: nothing is locked.
        Ok(block) => unsafe { block.park(no_unlock, 0) },
        Err(e) if e == -libc::ECANCELED => Cause::Cancelled,
        Err(_) => Cause::TimedOut,
    }
}
