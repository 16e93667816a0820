//! One file descriptor: who uses it, who waits for it, and in which epoll instance
//! it is. `README.md` states the protocol.

use crate::os::epoll::{self, EDGE, ERR, HUP, IN, OUT, PRI, RDHUP};
use crate::os::file::{self, Kind};
use crate::os::socket;
use crate::os::spin::{SpinLock, backoff};
use crate::sched::netpoll::{self, Class, Found};
use crate::sched::p::{PRef, status};
use crate::sched::park::{WaitQueue, Waiter};
use crate::sched::runtime::Runtime;
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// What is asked of epoll for each file, once.
const EVENTS: u32 = IN | PRI | OUT | RDHUP | EDGE;
/// What lets one that reads, or writes, try again.
const READABLE: u32 = IN | PRI | RDHUP | ERR | HUP;
const WRITABLE: u32 = OUT | ERR | HUP;
/// After these a read that takes all there is isn't followed by an event: the end
/// of the stream, or what is behind urgent data, is there already.
const ENDS: u32 = PRI | RDHUP | ERR | HUP;

/// Of [`File::state`]: it is being closed; below are those inside a system call on
/// it, above is its generation.
const CLOSING: u64 = 1 << 31;
const GENERATION: u32 = 32;

/// Of [`File::drained`].
const DRAINED: u64 = 1 << 32;

/// What a read means that gives less than there is room for.
mod shortness {
    pub const UNKNOWN: u8 = 0;
    /// Nothing is left, and what comes will be told.
    pub const EMPTY: u8 = 1;
    /// Nothing.
    pub const NOTHING: u8 = 2;
}

/// Somebody has begun to wait for a file that must be made sure of.
static TO_VERIFY: AtomicBool = AtomicBool::new(false);

/// For sysmon, before it looks at all files. False: there is no need to.
pub fn begin_verifying() -> bool {
    let wanted = TO_VERIFY.swap(false, Ordering::Relaxed);
    // Pairs with the fence in `netpoll::wait_begins`: either whoever waits sees that
    // it has been cleared, or we find him in the queue.
    fence(Ordering::SeqCst);
    wanted
}

/// There are some that were not looked at yet.
pub fn verify_again() {
    TO_VERIFY.store(true, Ordering::Relaxed);
}

/// The two queues of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Read = 0,
    Write = 1,
}

pub const SIDES: [Side; 2] = [Side::Read, Side::Write];

/// How often something has happened on each side.
pub type Seen = [u32; 2];

/// What is known of a number. All bytes zero: nothing.
#[repr(C, align(128))]
pub struct File {
    state: AtomicU64,
    lock: SpinLock,
    /// What it was when somebody last looked; 0: nobody has.
    kind: AtomicU8,
    /// This library has made it, and so knows that it doesn't block.
    ours: AtomicBool,
    /// One of [`shortness`].
    short: AtomicU8,
    happened: [AtomicU32; 2],
    /// `DRAINED` and how often something had happened to read before a read that
    /// took all there was.
    drained: AtomicU64,

    // The rest is used with the lock held.
    /// The runtime and the P in whose instance it is; 0: in none.
    runtime: Cell<u32>,
    home: Cell<u16>,
    verified: Cell<Verified>,
    /// Counts how often it was added to one: the upper half of its events' data.
    registration: Cell<u32>,
    waiters: [WaitQueue; 2],
    /// Plain threads that wait, on their stacks.
    threads: Cell<*const PlainWaiter>,
}

/// What sysmon knows of a registration that is taken for granted.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Verified {
    /// Nobody has waited since.
    Yes = 0,
    /// Somebody has begun to wait.
    No = 1,
    /// And still did when sysmon came by.
    Overdue = 2,
}

// SAFETY: the cells and queues are only used with `lock` held.
unsafe impl Sync for File {}

/// A plain thread that waits.
pub struct PlainWaiter {
    next: Cell<*const PlainWaiter>,
    /// Something written to it ends the wait; -1: it looks again soon.
    pub bell: i32,
    pub closed: Cell<bool>,
}

impl PlainWaiter {
    pub fn new(bell: i32) -> PlainWaiter {
        PlainWaiter { next: Cell::new(ptr::null()), bell, closed: Cell::new(false) }
    }
}

/// While one has it the number is not closed by `gs_close`: it is inside a system
/// call that doesn't wait.
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

impl File {
    /// Begins to use it.
    pub fn enter(&self) -> Use<'_> {
        let mut round = 0;
        loop {
            // Acquire: what was known of the former file is forgotten.
            let state = self.state.fetch_add(1, Ordering::Acquire);
            let used = Use { file: self, generation: (state >> GENERATION) as u32 };
            if state & CLOSING == 0 {
                return used;
            }
            // The number is about to be free, or somebody else's.
            drop(used);
            round += 1;
            backoff(round);
        }
    }

    /// Goes on after a wait; `None`: it has been closed meanwhile.
    pub fn enter_again(&self, generation: u32) -> Option<Use<'_>> {
        if !self.is_still(generation) {
            return None;
        }
        Some(self.enter()).filter(|used| used.generation == generation)
    }

    fn is_still(&self, generation: u32) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        (state >> GENERATION) as u32 == generation && state & CLOSING == 0
    }

    /// What it is; `-EBADF`: nothing.
    pub fn kind(&self, fd: i32) -> Result<Kind, i32> {
        match self.kind.load(Ordering::Relaxed) {
            1 => Ok(Kind::Socket),
            3 => Ok(Kind::Other),
            // For files on disks the look is nothing beside the work.
            _ => self.look_at_kind(fd),
        }
    }

    /// The same, whatever it has been.
    pub fn look_at_kind(&self, fd: i32) -> Result<Kind, i32> {
        let kind = file::kind(fd)?;
        let code = match kind {
            Kind::Socket => 1,
            Kind::Disk => 2,
            Kind::Other => 3,
        };
        self.kind.store(code, Ordering::Relaxed);
        Ok(kind)
    }

    /// Makes sure that a system call on it doesn't block. The number may have come
    /// back as another file, so all but our own are asked each time.
    pub fn make_nonblocking(&self, fd: i32) -> i32 {
        if self.ours.load(Ordering::Relaxed) { 0 } else { file::make_nonblocking(fd) }
    }

    /// How often something has happened; asked before a system call that may say
    /// that it would have to wait.
    pub fn seen(&self) -> Seen {
        // Acquire: the system call comes after it.
        SIDES.map(|side| self.happened[side as usize].load(Ordering::Acquire))
    }

    /// Whether a read would give nothing, because the last one took all there was
    /// and nothing has happened since: what had been seen then.
    pub fn drained(&self) -> Option<Seen> {
        let seen = self.seen();
        // Relaxed: whoever waits compares `seen` once more with the lock held.
        let drained = self.drained.load(Ordering::Relaxed);
        let holds = drained == DRAINED | u64::from(seen[Side::Read as usize])
            && self.short.load(Ordering::Relaxed) == shortness::EMPTY;
        holds.then_some(seen)
    }

    /// A read has given less than there was room for; before it, `seen` was seen.
    pub fn was_short(&self, fd: i32, seen: Seen) {
        if self.short.load(Ordering::Relaxed) == shortness::UNKNOWN {
            let known = match self.ours.load(Ordering::Relaxed) && socket::is_tcp(fd) {
                true => shortness::EMPTY,
                false => shortness::NOTHING,
            };
            let (unknown, relaxed) = (shortness::UNKNOWN, Ordering::Relaxed);
            // An event may have said otherwise meanwhile.
            let _ = self.short.compare_exchange(unknown, known, relaxed, relaxed);
        }
        if self.short.load(Ordering::Relaxed) == shortness::EMPTY {
            let drained = DRAINED | u64::from(seen[Side::Read as usize]);
            self.drained.store(drained, Ordering::Relaxed);
        }
    }

    fn queue(&self, side: Side) -> &WaitQueue {
        &self.waiters[side as usize]
    }

    // Waiting

    /// Locks it to wait, unless something has happened since `seen` on a side that
    /// is wanted, or it has been closed: then it is not locked.
    pub fn lock_to_wait(&self, generation: u32, sides: &[Side], seen: Seen) -> Locked<'_> {
        self.lock.lock();
        let answer = if !self.is_still(generation) {
            Locked::Closed
        } else if sides.iter().any(|&s| self.seen()[s as usize] != seen[s as usize]) {
            Locked::Happened
        } else {
            return Locked::Yes(Waiting { file: self });
        };
        self.lock.unlock();
        answer
    }

    /// Unlocks it, for a park.
    ///
    /// # Safety
    /// `file` is the address of a file whose lock the caller holds.
    pub unsafe fn unlock(file: usize) {
        // SAFETY: by contract.
        unsafe { (*(file as *const File)).lock.unlock() };
    }

    /// A waiter that nobody has taken out goes.
    pub fn leave(&self, side: Side, waiter: &Waiter) {
        self.lock.with(|| self.queue(side).remove(waiter));
    }

    /// Whoever was woken has done its part: there may be more for the next one.
    pub fn pass_on(&self, side: Side) {
        if self.queue(side).is_empty() {
            return;
        }
        let next = self.lock.with(|| self.queue(side).pop());
        if let Some(waiter) = next {
            // SAFETY: popped, so ours.
            unsafe { Waiter::ready(waiter, crate::sched::park::When::Soon) };
        }
    }

    /// A plain thread is about to wait. False: it has been closed.
    pub fn add_thread(&self, generation: u32, waiter: &PlainWaiter) -> bool {
        self.lock.with(|| {
            let open = self.is_still(generation);
            if open {
                waiter.next.set(self.threads.replace(waiter));
            }
            open
        })
    }

    /// It waits no more. True: because it was closed.
    pub fn remove_thread(&self, waiter: &PlainWaiter) -> bool {
        self.lock.with(|| {
            let mut at = &self.threads;
            // SAFETY: who is in the list waits until it has taken itself out.
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

    /// Something has happened with the file of this registration: the first one of
    /// each side is to try again.
    pub fn event(&self, registration: u32, events: u32, found: &mut Found) {
        self.lock.with(|| {
            if registration != self.registration.get() {
                return;
            }
            if events & ENDS != 0 {
                self.short.store(shortness::NOTHING, Ordering::Relaxed);
            }
            for (side, mask) in [(Side::Read, READABLE), (Side::Write, WRITABLE)] {
                if events & mask == 0 {
                    continue;
                }
                let happened = &self.happened[side as usize];
                // Release: pairs with the Acquire in `seen`.
                happened.fetch_add(1, Ordering::Release);
                if let Some(waiter) = self.queue(side).pop() {
                    let class = class_of(waiter.tag.get());
                    // SAFETY: popped, so ours; plain threads are in no queue.
                    found.add(unsafe { Waiter::goroutine(waiter) }, class);
                }
            }
        });
    }

    /// Called each few ms: a wait that relies on a registration that was not looked
    /// at, and that lasts, is made sure of. True: next time, if it still lasts.
    pub fn verify(&self, fd: i32, rt: &Runtime) -> bool {
        self.lock.with(|| {
            let waited_for = self.waiters.iter().any(|q| !q.is_empty());
            match self.verified.get() {
                Verified::Yes => {}
                _ if !waited_for => self.verified.set(Verified::Yes),
                Verified::No => self.verified.set(Verified::Overdue),
                Verified::Overdue => {
                    self.verified.set(Verified::Yes);
                    // Not the file that we made: a user has closed that behind our back.
                    if self.registered_with(rt).is_some_and(|home| !self.renew(fd, home)) {
                        self.ours.store(false, Ordering::Relaxed);
                        self.short.store(shortness::NOTHING, Ordering::Relaxed);
                        let home = rt.p(self.home.get() as usize);
                        let _ = self.add_to(fd, rt, home);
                    }
                }
            }
            self.verified.get() == Verified::Overdue
        })
    }

    /// Whoever waits for it now relies on what is known; fenced since it queued.
    pub fn note_unverified(&self) {
        if self.ours.load(Ordering::Relaxed) && !TO_VERIFY.load(Ordering::Relaxed) {
            TO_VERIFY.store(true, Ordering::Relaxed);
        }
    }

    /// Whether [`File::verify`] could have something to do; a hint.
    pub fn is_to_be_verified(&self) -> bool {
        self.ours.load(Ordering::Relaxed) && self.waiters.iter().any(|q| !q.is_empty())
    }

    // Registration, with the lock held

    /// The P in whose instance it is.
    fn registered_with(&self, rt: &Runtime) -> Option<PRef> {
        (self.runtime.get() == rt.number).then(|| rt.p(self.home.get() as usize))
    }

    /// Asks anew for its events: what it is ready for now is told again. False: the
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
            // There from a time when this number was another copy of the same file.
            Err(e) if e == -libc::EEXIST => epoll::change(instance, fd, EVENTS, data)?,
            result => result?,
        }
        self.home.set(home.id);
        self.runtime.set(rt.number);
        Ok(())
    }

    /// Whoever waits for it, or is about to, learns that it was closed.
    fn wake_all_closed(&self) {
        let lists = self.lock.with(|| {
            let mut t = self.threads.get();
            // SAFETY: who is in the list waits until it has taken itself out.
            while let Some(w) = unsafe { t.as_ref() } {
                w.closed.set(true);
                if w.bell >= 0 {
                    epoll::raise(w.bell);
                }
                t = w.next.get();
            }
            [0, 1].map(|side| self.waiters[side].pop_all())
        });
        for list in lists {
            let mut w = list;
            // SAFETY: the list is ours.
            while let Some(waiter) = unsafe { w.as_ref() } {
                waiter.ok.set(true);
                w = waiter.next_in_list();
            }
            // SAFETY: the list is ours.
            unsafe { crate::sched::park::ready_all(list) };
        }
    }

    /// The library has just made what this number is now.
    pub fn made(&self, kind: Kind) {
        self.wake_all_closed();
        self.lock.with(|| self.forget());
        let code = if kind == Kind::Socket { 1 } else { 3 };
        self.kind.store(code, Ordering::Relaxed);
        self.ours.store(true, Ordering::Relaxed);
        self.state.fetch_add(1 << GENERATION, Ordering::Release);
    }

    fn forget(&self) {
        self.runtime.set(0);
        self.verified.set(Verified::Yes);
        self.registration.set(self.registration.get().wrapping_add(1));
        self.kind.store(0, Ordering::Relaxed);
        self.ours.store(false, Ordering::Relaxed);
        self.short.store(shortness::UNKNOWN, Ordering::Relaxed);
        self.drained.store(0, Ordering::Relaxed);
    }

    /// Closes it: those who wait leave with `-ECANCELED`, and `close` runs when
    /// nobody is inside a system call on it. `-EBADF`: somebody else closes it.
    pub fn close(&self, fd: i32, rt: Option<&Runtime>, close: impl FnOnce() -> i32) -> i32 {
        // AcqRel: those who come later see that, and wait until the number is free.
        if self.state.fetch_or(CLOSING, Ordering::AcqRel) & CLOSING != 0 {
            return -libc::EBADF;
        }
        self.wake_all_closed();
        let mut round = 0;
        // Acquire: pairs with the Release of those who leave.
        while self.state.load(Ordering::Acquire) & (CLOSING - 1) != 0 {
            round += 1;
            backoff(round);
        }
        self.lock.with(|| {
            // Another copy of the file would keep it in the instance.
            if let Some(home) = rt.and_then(|rt| self.registered_with(rt)) {
                epoll::remove(home.poll.epoll(), fd);
            }
            self.forget();
        });
        let result = close();
        // The next generation, and no longer closing.
        // Release: whoever enters from now on sees that all is forgotten.
        self.state.fetch_add((1 << GENERATION) - CLOSING, Ordering::Release);
        result
    }
}

fn class_of(tag: u64) -> Class {
    match tag {
        0 => Class::Read,
        1 => Class::Write,
        _ => Class::Accept,
    }
}

/// The other way round: what a waiter's tag is.
pub fn tag_of(class: Class) -> u64 {
    match class {
        Class::Read => 0,
        Class::Write => 1,
        Class::Accept => 2,
    }
}

/// The answer of [`File::lock_to_wait`].
#[must_use]
pub enum Locked<'a> {
    Yes(Waiting<'a>),
    Closed,
    Happened,
}

/// The file's lock is held by the one that is about to wait. It must be unlocked,
/// by [`Waiting::unlock`] or by the park.
pub struct Waiting<'a> {
    file: &'a File,
}

impl Waiting<'_> {
    /// If its P is not there any more the file leaves that, and all who wait for it are
    /// the caller's, to be woken: who waits is counted in the P where it began, so they
    /// must begin anew.
    pub fn leave_dead_home(&self, fd: i32, rt: &Runtime) -> Option<[*const Waiter; 2]> {
        let home = self.file.registered_with(rt)?;
        if home.status() != status::DEAD {
            return None;
        }
        epoll::remove(home.poll.epoll(), fd);
        self.file.runtime.set(0);
        Some([0, 1].map(|side| self.file.waiters[side].pop_all()))
    }

    /// Makes sure that an event will come, in the instance of the P in the answer:
    /// the caller's, if the file is in none yet.
    pub fn register(&self, fd: i32, rt: &Runtime, p: PRef) -> Result<PRef, i32> {
        let file = self.file;
        if let Some(home) = file.registered_with(rt) {
            if file.ours.load(Ordering::Relaxed) {
                // Not even an event of this registration would be a proof: it may have
                // been on its way when the file was closed.
                file.verified.set(Verified::No);
                return Ok(home);
            } else if file.renew(fd, home) {
                return Ok(home);
            }
        }
        let home = netpoll::home_for(rt, p)?;
        file.add_to(fd, rt, home)?;
        Ok(home)
    }

    /// Puts a waiter into a queue; in front if it has been woken in vain.
    pub fn push(&self, side: Side, waiter: &Waiter, in_front: bool) {
        if in_front {
            self.file.queue(side).push_front(waiter);
        } else {
            self.file.queue(side).push(waiter);
        }
    }

    pub fn unlock(self) {
        self.file.lock.unlock();
    }
}
