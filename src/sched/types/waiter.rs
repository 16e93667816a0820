//! Waiters, which goroutines and threads that block put into the queue of an object, and the claim
//! that decides which waker wakes a waiter. `run::park` has the protocol.

use super::blocked::Counted;
use super::g::{G, GRef};
use crate::word;
use core::cell::Cell;
use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// States of a claim; the rest of the word is the number of the park.
pub mod claim {
    /// The goroutine is about to park. A waker that changes this state has only marked the claim:
    /// the commit finds the mark and makes the goroutine run.
    pub const ARMING: u64 = 1;
    /// The goroutine is at rest. The waker that changes this state owns the goroutine.
    pub const PARKED: u64 = 2;
    pub const WOKEN: u64 = 3;
    pub const TIMED_OUT: u64 = 4;
    pub const CANCELLED: u64 = 5;
    pub const NO_MEMORY: u64 = 6;
    pub const BITS: u32 = 3;
    pub const MASK: u64 = (1 << BITS) - 1;
    /// Set in the numbers of parks that a cancel doesn't end.
    pub const UNCANCELLABLE: u64 = 1 << (63 - BITS);
}

/// The reason why a park has ended.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    Woken,
    TimedOut,
    Cancelled,
    /// There was no memory for the deadline, so the goroutine has not waited.
    NoMemory,
}

impl Cause {
    /// Whether the heap still has the entry of the park's deadline, if the park had a deadline.
    pub fn leaves_deadline(self) -> bool {
        !matches!(self, Cause::TimedOut | Cause::NoMemory)
    }

    /// The value that a function of the C API returns for this cause.
    pub fn errno(self) -> i32 {
        match self {
            Cause::Woken => 0,
            Cause::TimedOut => -libc::ETIMEDOUT,
            Cause::Cancelled => -libc::ECANCELED,
            Cause::NoMemory => -libc::ENOMEM,
        }
    }
}

/// Where a goroutine that is made ready goes in the run queues.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Before everything else: the data that it waited for is warm in the cache.
    Next,
    /// `Next` if no other goroutine has that place, else `Soon`. seed: N8
    NextIfFree,
    Soon,
}

/// The reason of a wait, for reports. Go's `waitReason`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Why {
    Receive,
    Send,
    Select,
    SelectNothing,
    Mutex,
    ReadLock,
    WriteLock,
    Cond,
    WaitGroup,
    Semaphore,
    Once,
    Join,
    Sleep,
    File,
    Thread,
    Ready,
    Timer,
}

word!([] Why, std::sync::atomic::AtomicU8);

impl Why {
    /// All reasons, each at the place that its number says.
    pub const ALL: [Why; 17] = [
        Why::Receive,
        Why::Send,
        Why::Select,
        Why::SelectNothing,
        Why::Mutex,
        Why::ReadLock,
        Why::WriteLock,
        Why::Cond,
        Why::WaitGroup,
        Why::Semaphore,
        Why::Once,
        Why::Join,
        Why::Sleep,
        Why::File,
        Why::Thread,
        Why::Ready,
        Why::Timer,
    ];

    /// The reason in Go's words, if Go has such a wait. Go's `waitReasonStrings`.
    pub const fn reason(self) -> &'static CStr {
        match self {
            Why::Receive => c"chan receive",
            Why::Send => c"chan send",
            Why::Select => c"select",
            Why::SelectNothing => c"select (no cases)",
            Why::Mutex => c"sync.Mutex.Lock",
            Why::ReadLock => c"sync.RWMutex.RLock",
            Why::WriteLock => c"sync.RWMutex.Lock",
            Why::Cond => c"sync.Cond.Wait",
            Why::WaitGroup => c"sync.WaitGroup.Wait",
            Why::Semaphore => c"semacquire",
            Why::Once => c"sync.Once.Do",
            Why::Join => c"join",
            Why::Sleep => c"sleep",
            Why::File => c"IO wait",
            Why::Thread => c"thread to lock",
            Why::Ready => c"gs_park",
            Why::Timer => c"timer function",
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Why::Receive => "to receive from a channel",
            Why::Send => "to send to a channel",
            Why::Select => "in a select",
            Why::SelectNothing => "in a select without channels",
            Why::Mutex => "for a mutex",
            Why::ReadLock => "to read under a rwmutex",
            Why::WriteLock => "to write under a rwmutex",
            Why::Cond => "for a condition",
            Why::WaitGroup => "for a wait group",
            Why::Semaphore => "for a semaphore",
            Why::Once => "for a function that runs once",
            Why::Join => "for the end of a goroutine",
            Why::Sleep => "for a time",
            Why::File => "for a file",
            Why::Thread => "for a thread to lock",
            Why::Ready => "for gs_ready",
            Why::Timer => "for the function of a timer",
        }
    }
}

/// The part of a goroutine or plain thread that parking uses. It is the first field of a [`G`], or
/// on a thread's stack.
#[repr(C)]
pub struct Parker {
    /// The number of the park and the state of its claim.
    pub claim: AtomicU64,
    /// For a thread: 1 once the thread has been made ready.
    pub note: AtomicU32,
    /// Whether the parker is a thread's. Never changes.
    is_thread: bool,
    /// For a thread that waits without a deadline: how the deadlock detector counts it.
    pub counted: Cell<Counted>,
    /// The P whose heap has the deadline of the park under way. The commit sets it while the
    /// claim is ARMING; the goroutine reads it after the park.
    pub timer_home: Cell<u16>,
}

impl Parker {
    /// A parker for a blocking call of a plain thread.
    pub fn for_thread() -> Parker {
        Parker {
            claim: AtomicU64::new(0),
            note: AtomicU32::new(0),
            is_thread: true,
            counted: Cell::new(Counted::Not),
            timer_home: Cell::new(0),
        }
    }

    /// Begins a park that needs a claim; returns its number, which is not 0.
    pub fn arm(&self) -> u64 {
        let number = (self.claim.load(Ordering::Relaxed) >> claim::BITS) + 1;
        self.claim.store(number << claim::BITS | claim::ARMING, Ordering::Relaxed);
        number
    }

    /// Sets whether a cancel ends the parks of the parker's goroutine, which calls this. The
    /// numbers of parks include this bit. So a cancel that is on its way to an earlier park, or has
    /// seen the former bit, finds another number.
    pub fn let_cancel(&self, on: bool) {
        let number = (self.claim.load(Ordering::Relaxed) >> claim::BITS) + 1;
        let number = match on {
            true => number & !claim::UNCANCELLABLE,
            false => number | claim::UNCANCELLABLE,
        };
        // The goroutine is not parked. So only cancels read this word now, and a cancel changes
        // only a park.
        self.claim.store(number << claim::BITS | claim::WOKEN, Ordering::Relaxed);
    }

    pub fn change(&self, number: u64, from: u64, to: u64) -> bool {
        let word = |state| number << claim::BITS | state;
        // AcqRel: pairs with the other side's change of the claim. Each side sees after its change
        // what the other wrote before.
        self.claim
            .compare_exchange(word(from), word(to), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Ends the park with this number, for a waker without a lock.
    pub fn end(&self, number: u64, state: u64) -> Ended {
        // The commit may publish the goroutine between two attempts, but only once: the third
        // attempt succeeds, or the park is over.
        if self.change(number, claim::PARKED, state) {
            Ended::Claimed
        } else if self.change(number, claim::ARMING, state) {
            Ended::Marked
        } else if self.change(number, claim::PARKED, state) {
            Ended::Claimed
        } else {
            Ended::Before
        }
    }

    /// Whether the park with this number waits or is about to wait; a hint.
    pub fn waits(&self, number: u64) -> bool {
        let word = self.claim.load(Ordering::Relaxed);
        word == number << claim::BITS | claim::PARKED
            || word == number << claim::BITS | claim::ARMING
    }

    pub fn cause(&self) -> Cause {
        // Acquire: pairs with the Release of the claim.
        match self.claim.load(Ordering::Acquire) & claim::MASK {
            claim::TIMED_OUT => Cause::TimedOut,
            claim::CANCELLED => Cause::Cancelled,
            claim::NO_MEMORY => Cause::NoMemory,
            _ => Cause::Woken,
        }
    }

    /// Whether the parker is a plain thread's.
    #[inline(always)]
    pub fn is_thread(&self) -> bool {
        self.is_thread
    }

    /// The goroutine that the parker belongs to. Panics if the parker is a thread's.
    #[inline(always)]
    pub fn g(&self) -> GRef {
        assert!(!self.is_thread, "a plain thread has no goroutine");
        // SAFETY: only `for_thread` makes a parker that isn't the first field of a descriptor.
        unsafe { GRef::from_ptr(ptr::from_ref(self).cast::<G>()) }
    }
}

/// The result of [`Parker::end`].
#[must_use]
pub enum Ended {
    /// The goroutine was at rest. The waker owns it and makes it run.
    Claimed,
    /// The goroutine was about to park; its commit makes it run.
    Marked,
    /// Another waker came first.
    Before,
}

/// The function `f(arg)` by which a waiter that gives up leaves its object's queue: takes the
/// object's lock and the waiter out, and wakes the waiters behind it that can go on.
#[derive(Clone, Copy)]
pub struct Leave {
    pub f: unsafe fn(usize),
    pub arg: usize,
}

/// The request of a park with a claim to the context that runs next.
#[derive(Clone, Copy)]
pub struct ParkRequest {
    /// The park's number.
    pub number: u64,
    pub deadline: i64,
    pub unlock: unsafe fn(usize),
    pub arg: usize,
    pub leave: Option<Leave>,
}

/// The entry of a goroutine or thread in one queue. It lies on the stack of the goroutine or
/// thread.
#[repr(C)]
pub struct Waiter {
    pub next: Cell<*const Waiter>,
    pub prev: Cell<*const Waiter>,
    pub parker: *const Parker,
    /// The park's number; 0: the waiter needs no claim.
    pub number: u64,
    /// The address of the object or its lock: a channel, a mutex, or the goroutine that a join waits
    /// for. Null: an object of the library. For reports of leaks, which find waiters by their
    /// fields: `inspect::leaks`.
    pub object: *const (),
    /// For the object: where a value goes to or comes from, how much is wanted, which case of a
    /// select.
    pub elem: Cell<*mut u8>,
    pub tag: Cell<u64>,
    /// The waiter is in the queue.
    pub queued: Cell<bool>,
    /// The waker's message, which the goroutine reads after the wake-up.
    pub ok: Cell<bool>,
    /// A waker has taken the waiter out of its queue and claimed it.
    pub won: Cell<bool>,
}

impl Waiter {
    /// Claims the waiter for the caller. False: another waker has claimed it.
    #[inline(always)]
    #[must_use]
    pub fn claim(&self) -> bool {
        // SAFETY: a waiter in a queue has a parker, because its owner can't return before the
        // waiter has been taken out, which needs the object's lock.
        self.number == 0
            || unsafe { &*self.parker }.change(self.number, claim::PARKED, claim::WOKEN)
    }

    /// Whether no waker has claimed the waiter yet; a hint.
    pub fn is_claimable(&self) -> bool {
        // SAFETY: as in `claim`.
        self.number == 0 || unsafe { &*self.parker }.waits(self.number)
    }

    /// The goroutine that waits, for a waker that puts it into a run queue itself.
    ///
    /// # Safety
    /// As for [`Waiter::ready`], and the waiter is a goroutine's.
    pub unsafe fn goroutine(waiter: *const Waiter) -> GRef {
        // SAFETY: the waiter is claimed, so it stays; its parker is a goroutine's, as the caller
        // says.
        unsafe { (*(*waiter).parker).g() }
    }
}

/// Waiters in the order in which they came; guarded by the object's lock. All bytes zero: empty.
#[repr(C)]
pub struct WaitQueue {
    /// Atomic because `is_empty` may be called without the lock, as a hint.
    head: AtomicPtr<Waiter>,
    tail: Cell<*const Waiter>,
}

impl Default for WaitQueue {
    fn default() -> WaitQueue {
        WaitQueue::new()
    }
}

impl WaitQueue {
    pub const fn new() -> WaitQueue {
        WaitQueue { head: AtomicPtr::new(ptr::null_mut()), tail: Cell::new(ptr::null()) }
    }

    /// Empties the queue in the child of a fork: the waiters are the parent's.
    pub fn forget(&self) {
        self.set_head(ptr::null());
        self.tail.set(ptr::null());
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }

    #[inline(always)]
    pub fn set_head(&self, w: *const Waiter) {
        self.head.store(w.cast_mut(), Ordering::Relaxed);
    }

    /// Appends a waiter.
    ///
    /// # Safety
    /// The waiter is in no queue, and stays where it is until it has been taken out of this queue.
    /// The lock of the queue's object is held.
    #[inline(always)]
    pub unsafe fn push(&self, w: &Waiter) {
        let tail = self.tail.get();
        w.queued.set(true);
        w.next.set(ptr::null());
        w.prev.set(tail);
        // SAFETY: what is queued is alive.
        match unsafe { tail.as_ref() } {
            Some(last) => last.next.set(w),
            None => self.set_head(w),
        }
        self.tail.set(w);
    }

    /// Puts a waiter, which has waited before, in front.
    ///
    /// # Safety
    /// As for [`WaitQueue::push`].
    pub unsafe fn push_front(&self, w: &Waiter) {
        let head = self.head.load(Ordering::Relaxed).cast_const();
        w.queued.set(true);
        w.prev.set(ptr::null());
        w.next.set(head);
        // SAFETY: what is queued is alive.
        match unsafe { head.as_ref() } {
            Some(first) => first.prev.set(w),
            None => self.tail.set(w),
        }
        self.set_head(w);
    }

    /// The first waiter.
    pub fn first(&self) -> Option<&Waiter> {
        // SAFETY: what is queued is alive.
        unsafe { self.head.load(Ordering::Relaxed).as_ref() }
    }

    /// Takes the waiter out, if it is still in the queue.
    #[inline(always)]
    pub fn remove(&self, w: &Waiter) {
        if !w.queued.replace(false) {
            return;
        }
        let (next, prev) = (w.next.get(), w.prev.get());
        // SAFETY: null, or a waiter in this queue, which stays until it is taken out.
        match unsafe { prev.as_ref() } {
            Some(p) => p.next.set(next),
            None => self.set_head(next),
        }
        // SAFETY: as for `prev`.
        match unsafe { next.as_ref() } {
            Some(n) => n.prev.set(prev),
            None => self.tail.set(prev),
        }
    }

    /// Takes out the first waiter that no other waker has claimed, and claims it.
    #[inline(always)]
    #[must_use]
    pub fn pop(&self) -> Option<&Waiter> {
        loop {
            let w = self.first()?;
            if self.take(w) {
                return Some(w);
            }
        }
    }

    /// Takes the waiter out, and claims it. False: another waker had claimed it before.
    #[inline(always)]
    #[must_use]
    fn take(&self, w: &Waiter) -> bool {
        self.remove(w);
        let claimed = w.claim();
        if claimed {
            w.won.set(true);
        }
        claimed
    }

    /// The waiters in their order. The visited waiter may be taken out.
    fn iter(&self) -> impl Iterator<Item = &Waiter> {
        links(self.head.load(Ordering::Relaxed).cast_const())
    }

    /// Takes out the first waiter that `wanted` accepts and no other waker has claimed, and claims
    /// it.
    #[must_use]
    pub fn pop_that(&self, wanted: impl Fn(&Waiter) -> bool) -> Option<&Waiter> {
        self.iter().filter(|w| wanted(w)).find(|w| self.take(w))
    }

    /// Takes out and claims all waiters that no other waker has claimed.
    pub fn pop_all(&self) -> Claimed {
        self.pop_while(|_| true)
    }

    /// Takes out and claims the waiters that `wanted` accepts and no other waker has claimed, and
    /// gives each to `f`, which must not let the waiter run before the object's lock is free.
    pub fn pop_each(&self, wanted: impl Fn(&Waiter) -> bool, mut f: impl FnMut(&Waiter)) {
        self.iter().filter(|w| wanted(w) && self.take(w)).for_each(&mut f);
    }

    /// [`WaitQueue::pop`] as a [`Claimed`] of one waiter at most.
    pub fn pop_one(&self) -> Claimed {
        self.pop().map_or(Claimed::NONE, |w| {
            w.next.set(ptr::null());
            Claimed(w)
        })
    }

    /// Takes out and claims waiters from the front, as long as `wanted` accepts the first waiter.
    /// If another waker claims a waiter after `wanted` has accepted it, the waiter is left out of
    /// the result, and `wanted` is asked of the next.
    pub fn pop_while(&self, mut wanted: impl FnMut(&Waiter) -> bool) -> Claimed {
        let mut list: *const Waiter = ptr::null();
        let mut last: Option<&Waiter> = None;
        while let Some(w) = self.first() {
            if !w.is_claimable() {
                self.remove(w);
                continue;
            }
            if !wanted(w) {
                break;
            }
            if !self.take(w) {
                continue;
            }
            w.next.set(ptr::null());
            match last {
                Some(l) => l.next.set(w),
                None => list = w,
            }
            last = Some(w);
        }
        Claimed(list)
    }
}

/// Waiters that were taken out of their queue and claimed. The owner of this value must wake them,
/// by `park::ready_all`, once the lock of their object is free.
#[must_use]
pub struct Claimed(*const Waiter);

impl Claimed {
    pub const NONE: Claimed = Claimed(ptr::null());

    pub fn is_empty(&self) -> bool {
        self.0.is_null()
    }

    /// The waiters in the order in which they waited. The visited waiter may be made ready; then it
    /// is gone.
    pub fn iter(&self) -> impl Iterator<Item = &Waiter> {
        links(self.0)
    }
}

/// A waiter and the waiters behind it in the queue, by their links. Each link is read before its
/// waiter is visited.
fn links<'a>(first: *const Waiter) -> impl Iterator<Item = &'a Waiter> {
    let mut at = first;
    core::iter::from_fn(move || {
        // SAFETY: a waiter stays where it is as long as it is queued, or claimed and not yet ready.
        let w = unsafe { at.as_ref() }?;
        at = w.next.get();
        Some(w)
    })
}
