//! One file descriptor: how many calls use it, which waiters wait for it, and in which epoll
//! instance it is. `README.md` states the protocol.

use super::known::Known;
use super::want::{EventCounts, SIDES, Side, Want, class_of, epoll_events_of};
use crate::atomic::RelaxedCell;
use crate::os::bell::Bell;
use crate::os::epoll::{self, EDGE, ERR, HUP, IN, OUT, PRI, RDHUP};
use crate::os::file::FileKind;
use crate::os::socket;
use crate::os::spin::{LongLock, backoff};
use crate::os::stand_in;
use crate::sched::prim::limits;
use crate::sched::run::park;
use crate::sched::take::call;
use crate::sched::types::p::{PRef, PStatus};
use crate::sched::types::runtime::Runtime;
use crate::sched::types::waiter::{Claimed, WaitQueue, Waiter};
use crate::sched::wait::netpoll::{self, Events};
use crate::word;
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// The events for which a file is registered with epoll.
const EVENTS: u32 = IN | PRI | OUT | RDHUP | EDGE;
/// The events after which a reader, or a writer, tries again.
const READABLE: u32 = IN | PRI | RDHUP | ERR | HUP;
const WRITABLE: u32 = OUT | ERR | HUP;
/// After one of these events a read that takes everything may be followed by no event: the end of
/// the stream, or the data behind urgent data, is there already.
const ENDS: u32 = PRI | RDHUP | ERR | HUP;

/// A bit of [`File::state`]: `gs_close` has begun, and the kernel has not freed the number yet. The
/// bits below it count the calls that are inside a system call on the file; the bits above it are
/// the number's generation.
const CLOSING: u64 = 1 << 31;
/// Position of the generation in [`File::state`], in bits.
const GENERATION: u32 = 32;

/// Number of waits on other P's after which the file moves to the P of the next waiter.
const ASTRAY: u8 = 8;

/// A bit of [`File::drained`].
const DRAINED: u64 = 1 << 32;

/// The meaning of a short read.
mod shortness {
    pub const UNKNOWN: u8 = 0;
    /// Nothing is left, and an event will follow when more comes.
    pub const EMPTY: u8 = 1;
    /// A short read means nothing: there may be more.
    pub const NOTHING: u8 = 2;
    /// As `NOTHING`, and the file may be shut down for reading: epoll has said so.
    pub const SHUT: u8 = 3;
}

/// Where a file comes from.
mod origin {
    pub const UNKNOWN: u8 = 0;
    /// This library has made the file, so it doesn't block.
    pub const MADE: u8 = 1;
    /// The user has made the file and adopted it (`gs_adopt`). After a close(2) without `gs_close`
    /// the number may be another file, so polls ask the kernel.
    pub const ADOPTED: u8 = 2;
}

/// A goroutine has begun to wait for a file whose registration must be verified.
static TO_VERIFY: AtomicBool = AtomicBool::new(false);

/// Called by sysmon before it verifies all files. False: there is none to verify.
pub fn begin_verifying() -> bool {
    let wanted = TO_VERIFY.swap(false, Ordering::Relaxed);
    // Pairs with the fence in `netpoll::wait_begins`: either the waiter sees that `TO_VERIFY` has
    // been cleared, or sysmon finds the waiter in the queue.
    fence(Ordering::SeqCst);
    wanted
}

/// Whether sysmon has to begin verifying.
pub fn is_any_to_be_verified() -> bool {
    TO_VERIFY.load(Ordering::Relaxed)
}

/// Asks sysmon to verify again: a file was not verified yet.
pub fn verify_again() {
    TO_VERIFY.store(true, Ordering::Relaxed);
}

/// The library's knowledge of a descriptor's number. All bytes zero: none.
#[repr(C, align(128))]
pub struct File {
    state: AtomicU64,
    /// Held in calls of epoll_ctl(2), and while bells of plain threads ring. A plain thread takes
    /// its waiter out of the list, and may close its bell, only with the lock.
    lock: LongLock,
    /// The number's kind, and how calls on it behave.
    pub(super) known: Known,
    /// Where the file comes from: one of [`origin`].
    origin: AtomicU8,
    /// One of [`shortness`].
    short: AtomicU8,
    happened: [AtomicU32; 2],
    /// `DRAINED`, and the count of read events before a read that took everything.
    drained: AtomicU64,

    // The rest is used with the lock held.
    /// The runtime and the P in whose instance the file is; 0: in none.
    runtime: Cell<u32>,
    home: Cell<u16>,
    /// How many waits in a row have begun on another P of the home's node.
    astray: Cell<u8>,
    /// Read by sysmon without the lock.
    verified: RelaxedCell<Verified>,
    /// Counts how often the file was added to an instance: the upper half of its events' data.
    registration: Cell<u32>,
    /// The takers, by their sides: an event wakes the first.
    takers: [WaitQueue; 2],
    /// The watchers: an event wakes each watcher that asked for it.
    watchers: WaitQueue,
    /// Plain threads that wait, on their stacks.
    threads: Cell<*const PlainWaiter>,
}

/// Whether sysmon has verified a registration that waits rely on.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Verified {
    /// Verified: no goroutine has waited since.
    Yes = 0,
    /// Not verified: a goroutine has begun to wait.
    No = 1,
    /// The wait is not verified, and went on at sysmon's last check.
    Overdue = 2,
}

word!([] Verified, std::sync::atomic::AtomicU8);

const _: () = assert!(size_of::<File>() == 128);

/// Number of checks after which `gs_close` gives its P up while calls are still inside the file:
/// such a call may be a copy, which may wait for a disk.
const PATIENCE: u32 = 60;

/// A plain thread that waits.
pub struct PlainWaiter {
    next: Cell<*const PlainWaiter>,
    /// The bell whose ring ends the wait; none: the thread polls again soon.
    bell: Option<Bell>,
    closed: Cell<bool>,
}

impl PlainWaiter {
    pub fn new(bell: Option<Bell>) -> PlainWaiter {
        PlainWaiter { next: Cell::new(ptr::null()), bell, closed: Cell::new(false) }
    }
}

/// While this lives `gs_close` doesn't close the number: a call is inside a system call that
/// doesn't wait.
pub struct Use<'a> {
    file: &'a File,
    pub generation: u32,
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `close`.
        self.file.state.fetch_sub(1, Ordering::Release);
    }
}

/// Why all waiters of a file are woken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// The file is closed.
    Closed,
    /// The waiters try again.
    TryAgain,
}

impl File {
    /// Begins to use the file. `None`: the file is being closed.
    #[must_use]
    pub fn enter(&self) -> Option<Use<'_>> {
        // Acquire: pairs with the Release in `close`, after which nothing is left of the descriptor's
        // former file.
        let state = self.state.fetch_add(1, Ordering::Acquire);
        let used = Use { file: self, generation: (state >> GENERATION) as u32 };
        // The number is still the file that is being closed: the caller called at the same time as
        // `gs_close`, and leaves as waiters do.
        Some(used).filter(|_| state & CLOSING == 0)
    }

    /// Goes on after a wait. `None`: the file has been closed meanwhile.
    #[must_use]
    pub fn enter_again(&self, generation: u32) -> Option<Use<'_>> {
        if !self.is_still(generation) {
            return None;
        }
        self.enter().filter(|used| used.generation == generation)
    }

    /// The number's generation. `None`: the file is being closed.
    pub fn generation(&self) -> Option<u32> {
        // Acquire: as in `enter`.
        let state = self.state.load(Ordering::Acquire);
        (state & CLOSING == 0).then_some((state >> GENERATION) as u32)
    }

    /// Whether the number is the file that it was in this generation.
    pub fn is_still(&self, generation: u32) -> bool {
        self.generation() == Some(generation)
    }

    /// Whether the file was made by the library or adopted, so that a wait relies on what is known
    /// of the number, without asking the kernel.
    pub fn is_ours(&self) -> bool {
        self.origin.load(Ordering::Relaxed) != origin::UNKNOWN
    }

    /// Notes that the number no longer stands for a file that the library has made or adopted: the
    /// user has closed that file with close(2).
    pub fn disown(&self) {
        self.origin.store(origin::UNKNOWN, Ordering::Relaxed);
        self.short.store(shortness::NOTHING, Ordering::Relaxed);
    }

    /// The counts of events so far. Read before a system call that may return `-EAGAIN`.
    pub fn seen(&self) -> EventCounts {
        // Acquire: the system call comes after this load.
        SIDES.map(|side| self.happened[side as usize].load(Ordering::Acquire))
    }

    /// The counts at the last read, if that read took everything and no event has come since: then
    /// a further read would give nothing.
    pub fn drained(&self) -> Option<EventCounts> {
        let seen = self.seen();
        // Relaxed: a waiter compares the counts once more with the lock held.
        let drained = self.drained.load(Ordering::Relaxed);
        let holds = drained == DRAINED | u64::from(seen[Side::Read as usize])
            && self.short.load(Ordering::Relaxed) == shortness::EMPTY;
        holds.then_some(seen)
    }

    /// Whether an event has said that the file is shut down for reading; maybe an event of a former
    /// file.
    pub fn may_be_shut(&self) -> bool {
        self.short.load(Ordering::Relaxed) == shortness::SHUT
    }

    /// Notes a short read. `seen`: the counts before the read.
    pub fn was_short(&self, fd: i32, seen: EventCounts) {
        if self.short.load(Ordering::Relaxed) == shortness::UNKNOWN {
            let known = match socket::is_tcp(fd) {
                true => shortness::EMPTY,
                false => shortness::NOTHING,
            };
            let (unknown, relaxed) = (shortness::UNKNOWN, Ordering::Relaxed);
            // Fails if an event has changed the value meanwhile.
            let _ = self.short.compare_exchange(unknown, known, relaxed, relaxed);
        }
        if self.short.load(Ordering::Relaxed) == shortness::EMPTY {
            let drained = DRAINED | u64::from(seen[Side::Read as usize]);
            self.drained.store(drained, Ordering::Relaxed);
        }
    }

    /// The queue for waiters that want this.
    fn queue(&self, want: &Want) -> &WaitQueue {
        if want.is_taker() { &self.takers[want.side as usize] } else { &self.watchers }
    }

    fn queues(&self) -> [&WaitQueue; 3] {
        [&self.takers[0], &self.takers[1], &self.watchers]
    }

    /// Whether a goroutine waits; a hint if the caller doesn't hold the lock.
    fn is_waited_for(&self) -> bool {
        self.queues().iter().any(|q| !q.is_empty())
    }

    // Waiting

    /// Locks the file for a caller that is about to wait. If an event that concerns the caller has
    /// come since `seen`, or the file has been closed, the caller must not wait, and the file is
    /// not locked.
    pub fn lock_to_wait(&self, generation: u32, want: &Want, seen: EventCounts) -> WaitLock<'_> {
        self.lock.lock();
        let now = self.seen();
        let side = want.side as usize;
        let happened = if want.is_taker() { now[side] != seen[side] } else { now != seen };
        let answer = if !self.is_still(generation) {
            WaitLock::Closed
        } else if happened {
            WaitLock::Happened
        } else {
            return WaitLock::Yes(Waiting { file: self });
        };
        // SAFETY: locked above.
        unsafe { self.lock.unlock() };
        answer
    }

    /// Unlocks the file, for a park.
    ///
    /// # Safety
    /// `file` is the address of a file whose lock the caller holds.
    pub unsafe fn unlock(file: usize) {
        // SAFETY: the address of a file, which stays mapped; the caller holds its lock.
        unsafe { (*(file as *const File)).lock.unlock() };
    }

    /// Takes the waiter, which is still in its queue, out of it.
    pub fn leave(&self, want: &Want, waiter: &Waiter) {
        self.lock.with(|| self.queue(want).remove(waiter));
    }

    /// Called by a taker that an event woke and that has taken its part: wakes the next taker,
    /// because there may be more.
    pub fn pass_on(&self, side: Side) {
        let queue = &self.takers[side as usize];
        if queue.is_empty() {
            return;
        }
        let next = self.lock.with(|| queue.pop());
        if let Some(waiter) = next {
            // SAFETY: `pop` has taken the waiter out of its queue and claimed it, so only this
            // thread wakes it.
            unsafe { Waiter::ready(waiter, crate::sched::types::waiter::When::Soon) };
        }
    }

    /// A plain thread is about to wait. False: the file has been closed.
    pub fn add_thread(&self, generation: u32, waiter: &PlainWaiter) -> bool {
        self.lock.with(|| {
            let open = self.is_still(generation);
            if open {
                waiter.next.set(self.threads.replace(waiter));
            }
            open
        })
    }

    /// A plain thread waits no more. True: the file was closed.
    pub fn remove_thread(&self, waiter: &PlainWaiter) -> bool {
        self.lock.with(|| {
            let mut at = &self.threads;
            // SAFETY: a thread in the list waits until it has taken its waiter out, so the waiter
            // on its stack is there.
            while let Some(w) = unsafe { at.get().as_ref() } {
                if ptr::eq(w, waiter) {
                    at.set(w.next.get());
                    break;
                }
                at = &w.next;
            }
            waiter.closed.get()
        })
    }

    // Events

    /// An event of the file with this registration: wakes the first taker of each side, and every
    /// watcher that it concerns.
    pub fn event(&self, registration: u32, events: u32, found: &mut Events) {
        // SAFETY: popped, so this thread has claimed it; plain threads are in no queue.
        let mut add = |w: &Waiter| found.add(unsafe { Waiter::goroutine(w) }, class_of(w));
        self.lock.with(|| {
            if registration != self.registration.get() {
                return;
            }
            if events & ENDS != 0 {
                let shut = events & RDHUP != 0;
                let known = if shut { shortness::SHUT } else { shortness::NOTHING };
                self.short.store(known, Ordering::Relaxed);
            }
            for (side, mask) in [(Side::Read, READABLE), (Side::Write, WRITABLE)] {
                if events & mask == 0 {
                    continue;
                }
                self.note_event(side);
                self.takers[side as usize].pop().into_iter().for_each(&mut add);
            }
            self.watchers.pop_each(|w| epoll_events_of(w) & events != 0, &mut add);
        });
    }

    /// Counts an event, so that a caller that has tried before it tries again before it waits. The
    /// caller holds the lock.
    fn note_event(&self, side: Side) {
        // Release: pairs with the Acquire in `seen`.
        self.happened[side as usize].fetch_add(1, Ordering::Release);
    }

    /// For sysmon, without the lock: whether [`File::verify`] may have something to do.
    pub fn is_to_be_verified(&self) -> bool {
        self.verified.seen() != Verified::Yes && self.is_waited_for()
    }

    /// sysmon calls this, about every `VERIFY_EVERY` (50 ms) while the poller is in use. Verifies
    /// the registration for a wait that relies on it and lasts, also if the number has turned out
    /// not to be the library's file since the wait began. True: the file must be verified next
    /// time, if the wait still lasts.
    pub fn verify(&self, fd: i32, rt: &Runtime) -> bool {
        let mut misled = None;
        let left = self.lock.with(|| {
            match self.verified.get() {
                Verified::Yes => {}
                _ if !self.is_waited_for() => self.verified.set(Verified::Yes),
                // Only the bubble's own thread may wake its goroutines; and the kernel doesn't know
                // the files of its network.
                _ if self.is_of_bubble(rt) => self.verified.set(Verified::Yes),
                Verified::No => self.verified.set(Verified::Overdue),
                Verified::Overdue => {
                    self.verified.set(Verified::Yes);
                    // The number no longer stands for the file that the library made: the user has
                    // closed that file with close(2).
                    if self.registered_with(rt).is_some_and(|home| !self.renew(fd, home)) {
                        self.disown();
                        let home = rt.p(self.home.get() as usize);
                        // The waiters try again, to find out what file the number is now. epoll may
                        // refuse the file, because it is on a disk, or report no event although
                        // calls fail, as a read of a pipe's writing end does.
                        let _ = self.add_to(fd, rt, home);
                        misled = Some(self.take_all());
                    }
                }
            }
            self.verified.get() == Verified::Overdue
        });
        if let Some(lists) = misled {
            lists.wake(Reason::TryAgain);
        }
        left
    }

    /// Whether a bubble's P has the file in its instance.
    fn is_of_bubble(&self, rt: &Runtime) -> bool {
        self.registered_with(rt).is_some_and(|home| home.id as usize >= limits::PROCS)
    }

    /// A goroutine waits. If it relies on what is known of the number, sysmon verifies that. The
    /// caller holds the lock, and has fenced since it queued.
    pub fn note_unverified(&self) {
        if self.verified.get() != Verified::Yes && !TO_VERIFY.load(Ordering::Relaxed) {
            TO_VERIFY.store(true, Ordering::Relaxed);
        }
    }

    // Registration, with the lock held

    /// The P in whose instance the file is.
    fn registered_with(&self, rt: &Runtime) -> Option<PRef> {
        (self.runtime.get() == rt.number).then(|| rt.p(self.home.get() as usize))
    }

    /// Renews the file's registration: epoll reports anew what the file is ready for. False: the
    /// number is another file now.
    fn renew(&self, fd: i32, home: PRef) -> bool {
        epoll::change(home.poll.epoll(), fd, EVENTS, self.data(fd)).is_ok()
    }

    fn data(&self, fd: i32) -> u64 {
        u64::from(self.registration.get()) << 32 | fd as u64
    }

    fn add_to(&self, fd: i32, rt: &Runtime, home: PRef) -> Result<(), i32> {
        self.registration.set(self.registration.get().wrapping_add(1));
        self.runtime.set(0);
        let instance = home.poll.epoll();
        let data = self.data(fd);
        match epoll::add(instance, fd, EVENTS, data) {
            // The instance still has the file from a time when this number was another copy of the
            // same file.
            Err(e) if e == -libc::EEXIST => epoll::change(instance, fd, EVENTS, data)?,
            result => result?,
        }
        self.home.set(home.id);
        self.runtime.set(rt.number);
        if home.id as usize >= limits::PROCS && !stand_in::knows(fd) {
            home.poll.has_real_files.set(true);
        }
        Ok(())
    }

    // Closing

    /// Takes all waiters out, for the caller to wake. The caller holds the lock.
    fn take_all(&self) -> Lists {
        Lists(self.queues().map(|queue| queue.pop_all()))
    }

    /// Ends the waits of plain threads, by their bells. The caller holds the lock.
    fn wake_threads(&self, reason: Reason) {
        let mut t = self.threads.get();
        // SAFETY: a thread in the list waits until it has taken its waiter out, so the waiter on
        // its stack is there.
        while let Some(w) = unsafe { t.as_ref() } {
            w.closed.set(w.closed.get() | (reason == Reason::Closed));
            if let Some(bell) = w.bell {
                bell.ring();
            }
            t = w.next.get();
        }
    }

    /// Notes that the library has just made the file with this number.
    pub fn made(&self, kind: FileKind) {
        let lists = self.lock.with(|| {
            // Wakes waiters for a former file of this number.
            self.wake_threads(Reason::Closed);
            self.begin(kind, origin::MADE);
            self.take_all()
        });
        lists.wake(Reason::Closed);
    }

    /// Notes that the user has made the file with this number, and will close it with `gs_close`.
    /// False: calls wait for the number, and nothing has changed.
    pub fn adopt(&self, kind: FileKind) -> bool {
        self.lock.with(|| {
            let is_free = !self.is_waited_for() && self.threads.get().is_null();
            if is_free {
                self.begin(kind, origin::ADOPTED);
            }
            is_free
        })
    }

    /// From here on the number is a new file, which doesn't block. The caller holds the lock.
    fn begin(&self, kind: FileKind, origin: u8) {
        // A call that is about to wait for a former file of this number sees the new generation.
        // Release: pairs with the Acquire in `enter`.
        self.state.fetch_add(1 << GENERATION, Ordering::Release);
        self.forget();
        self.known.set(kind);
        self.origin.store(origin, Ordering::Relaxed);
    }

    fn forget(&self) {
        self.runtime.set(0);
        self.verified.set(Verified::Yes);
        self.registration.set(self.registration.get().wrapping_add(1));
        self.known.forget();
        self.origin.store(origin::UNKNOWN, Ordering::Relaxed);
        self.short.store(shortness::UNKNOWN, Ordering::Relaxed);
        self.drained.store(0, Ordering::Relaxed);
    }

    /// The first part of `gs_close`, up to close(2). Waiters leave with `-ECANCELED`. When this
    /// returns no thread is inside a system call on the file, and the next generation has begun.
    /// `-EBADF`: another call closes the file.
    pub fn begin_closing(&self, fd: i32, rt: Option<&Runtime>) -> i32 {
        // AcqRel: pairs with `enter`: calls that enter later see that the file is being closed, and
        // leave.
        if self.state.fetch_or(CLOSING, Ordering::AcqRel) & CLOSING != 0 {
            return -libc::EBADF;
        }
        let lists = self.lock.with(|| {
            self.wake_threads(Reason::Closed);
            self.take_all()
        });
        lists.wake(Reason::Closed);
        let mut round = 0;
        // Acquire: pairs with the Release of calls that leave.
        while self.state.load(Ordering::Acquire) & (CLOSING - 1) != 0 {
            round += 1;
            if round == PATIENCE {
                call::enter();
            }
            backoff(round);
        }
        if round >= PATIENCE {
            call::exit();
        }
        self.lock.with(|| {
            // Another copy of the file would keep it in the instance.
            if let Some(home) = rt.and_then(|rt| self.registered_with(rt)) {
                epoll::remove(home.poll.epoll(), fd);
            }
            self.forget();
            // Before close(2): the kernel frees the number when close(2) begins, and a thread that
            // gets the number then must find nothing of this file. Release: pairs with the Acquire
            // in `enter`.
            self.state.fetch_add((1 << GENERATION) - CLOSING, Ordering::Release);
        });
        0
    }

    /// The last part of `gs_close`, after close(2). A call that entered between the two parts has
    /// met the old file or the next file. No event would come for the old file, so all such calls
    /// try again.
    pub fn end_closing(&self) {
        let lists = self.lock.with(|| {
            SIDES.into_iter().for_each(|side| self.note_event(side));
            self.wake_threads(Reason::TryAgain);
            self.take_all()
        });
        lists.wake(Reason::TryAgain);
    }
}

/// All waiters of a file, claimed and taken out of its queues.
#[must_use]
pub struct Lists([Claimed; 3]);

impl Lists {
    fn wake(self, reason: Reason) {
        for list in self.0 {
            list.iter().for_each(|waiter| waiter.ok.set(reason == Reason::Closed));
            park::ready_all(list);
        }
    }

    /// The waiters try again.
    pub fn wake_to_try_again(self) {
        self.wake(Reason::TryAgain);
    }
}

/// The answer of [`File::lock_to_wait`].
#[must_use]
pub enum WaitLock<'a> {
    Yes(Waiting<'a>),
    Closed,
    Happened,
}

/// The caller holds the file's lock and is about to wait. [`Waiting::unlock`] or the park must
/// release the lock.
pub struct Waiting<'a> {
    file: &'a File,
}

impl Waiting<'_> {
    /// If the home of the file, the P in whose instance it is, has died: takes the file out of the
    /// instance, and returns all its waiters, for the caller to wake. They must begin anew, because
    /// a waiter is counted in the P where its wait began.
    #[must_use]
    pub fn leave_dead_home(&self, fd: i32, rt: &Runtime) -> Option<Lists> {
        let home = self.file.registered_with(rt)?;
        if home.status() != PStatus::Dead {
            return None;
        }
        epoll::remove(home.poll.epoll(), fd);
        self.file.runtime.set(0);
        Some(self.file.take_all())
    }

    /// Makes sure that an event will come, in the instance of the returned P: the caller's P, if
    /// the file is in no instance yet. `None`: the caller must try before it waits, because the
    /// read that took everything may have been of another file. (epoll reports no event of some
    /// files although a read fails: of a pipe's writing end.)
    pub fn register(
        &self,
        fd: i32,
        want: &Want,
        rt: &Runtime,
        p: PRef,
    ) -> Result<Option<PRef>, i32> {
        let file = self.file;
        self.move_if_astray(fd, rt, p);
        if let Some(home) = file.registered_with(rt) {
            let is_adopted = file.origin.load(Ordering::Relaxed) == origin::ADOPTED;
            if file.is_ours() && (want.is_taker() || !is_adopted) {
                // Not even an event of this registration would prove that it is right: the event
                // may have been on its way when the file was closed.
                file.verified.set(Verified::No);
                return Ok(Some(home));
            } else if file.renew(fd, home) {
                return Ok(Some(home));
            } else if is_adopted {
                file.disown();
            }
        }
        let home = netpoll::home_for(rt, p)?;
        file.add_to(fd, rt, home)?;
        Ok((file.drained.swap(0, Ordering::Relaxed) == 0).then_some(home))
    }

    /// Takes the file out of its instance if goroutines have lately waited for it on other P's of
    /// the node: they and the goroutines that write to it run there. The file moves only while it
    /// has no waiter, because a waiter is counted in the P where its wait began.
    fn move_if_astray(&self, fd: i32, rt: &Runtime, p: PRef) {
        let file = self.file;
        let Some(home) = file.registered_with(rt) else { return };
        if home == p || home.node != p.node {
            file.astray.set(0);
            return;
        }
        file.astray.set(file.astray.get().saturating_add(1));
        if file.astray.get() >= ASTRAY && !file.is_waited_for() {
            file.astray.set(0);
            epoll::remove(home.poll.epoll(), fd);
            file.runtime.set(0);
        }
    }

    /// Puts a waiter into its queue, in front if it has been woken in vain.
    ///
    /// # Safety
    /// The waiter is in no queue, and stays where it is until it has been taken out of this one.
    pub unsafe fn push(&self, want: &Want, waiter: &Waiter, in_front: bool) {
        let queue = self.file.queue(want);
        // SAFETY: the caller answers for the waiter; a `Waiting` holds the file's lock.
        unsafe { if in_front { queue.push_front(waiter) } else { queue.push(waiter) } };
    }

    pub fn unlock(self) {
        // SAFETY: a `Waiting` holds the file's lock.
        unsafe { self.file.lock.unlock() };
    }
}
