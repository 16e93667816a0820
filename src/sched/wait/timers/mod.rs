//! Timers: a heap for each P. The P's owner fires due entries between goroutines; other threads do
//! so when the owner can't. seed: N6
//!
//! Stopping a timer leaves its entry in the heap. An entry carries a number, and is dead once its
//! target has another number. When more than half of a heap's entries are dead, a sweep takes them
//! out.
//!
//! Locks: a timer's first, then a heap's. With either of them held no goroutine is woken and no
//! thread is made.

use crate::sched::run::preempted;

pub mod queue;

use super::timers::queue::{
    Added, After, Entry, Fire, LATEST, NoMemory, Target, Timer, Timers, pop,
};
use crate::os::forking;
use crate::os::spin::{SpinLock, backoff};
use crate::os::{heap, thread, time};
use crate::sched::run::park::{Block, ready_all};
use crate::sched::run::start;
use crate::sched::take::events;
use crate::sched::types::g::{GRef, flags};
use crate::sched::types::m::{self, MRef};
use crate::sched::types::p::{self, PRef, PStatus};
use crate::sched::types::runtime::{self, Runtime, Visit, rt};
use crate::sched::types::waiter::{Cause, Claimed, Parker, WaitQueue, Waiter, When, Why};
use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

impl After {
    /// Makes the timer's effect, after its lock is released. False: there is no memory for the
    /// goroutine.
    fn run(self, timer: &Timer) -> bool {
        match self {
            After::Nothing => true,
            After::Ready(waiter) => {
                // SAFETY: the waiter is claimed, so only this thread wakes it.
                unsafe { Waiter::ready(waiter, When::Next) };
                true
            }
            After::Call(spawn) => {
                let spawned = spawn(timer);
                if !spawned {
                    timer.call_ended();
                    // SAFETY: the reference is that of the counted call, which is not made.
                    unsafe { Timer::release(timer) };
                }
                spawned
            }
        }
    }
}

impl Timer {
    /// Makes a timer that isn't started. [`Timer::free`] takes the pointer back. `None`: there is
    /// no memory.
    pub fn new(fire: Fire, data: [usize; 2]) -> Option<*const Timer> {
        let timer = heap::boxed(Timer {
            lock: SpinLock::new(),
            number: AtomicU64::new(0),
            refs: AtomicU32::new(1),
            home: Cell::new(0),
            period: Cell::new(0),
            when: Cell::new(0),
            entry_when: Cell::new(0),
            entered_in: Cell::new(0),
            runs: Cell::new(0),
            runs_in: Cell::new(0),
            waiters: UnsafeCell::new(WaitQueue::new()),
            fire,
            data,
        });
        timer.map(|timer| Box::into_raw(timer).cast_const())
    }

    /// Starts the timer, in place of its former start: it fires at `when` (ns), and then each
    /// `period` ns (0: only once). True: the former start had not fired yet. Fails without memory,
    /// and changes nothing then.
    pub fn start(&self, when: i64, period: i64) -> Result<bool, NoMemory> {
        let mut was_active = false;
        let added = self.lock.with(|| {
            if period == 0 && self.postpone(when) {
                was_active = true;
                return Ok(None);
            }
            // `add` calls this once there is room for the entry, before the entry can fire.
            let added = add(|| {
                was_active = self.deactivate();
                let number = self.number.load(Ordering::Relaxed) + 1;
                self.number.store(number, Ordering::Relaxed);
                self.period.set(period);
                self.entry(when, number)
            })?;
            self.home.set(added.home);
            Ok(Some(added))
        })?;
        if let Some(added) = added {
            added.announce();
        }
        Ok(was_active)
    }

    /// Postpones a start to `when` (ns) without changing the heap, because most timers that are
    /// started again are deadlines that move on. False: the timer isn't started, or is periodic, or
    /// its entry would come out of the heap too late or is gone with a former runtime. The caller
    /// holds the lock. As Go's `timer.modify`, which leaves the heap to the P.
    fn postpone(&self, when: i64) -> bool {
        let is_active = self.number.load(Ordering::Relaxed) & 1 != 0;
        let later = is_active
            && self.period.get() == 0
            && self.entered_in.get() == rt().number
            && when >= self.entry_when.get();
        if later {
            self.when.set(when);
        }
        later
    }

    /// Makes an entry for this timer, with a reference of its own. The caller holds the lock.
    fn entry(&self, when: i64, number: u64) -> Entry {
        let when = when.min(LATEST);
        self.when.set(when);
        self.entry_when.set(when);
        self.entered_in.set(rt().number);
        self.refs.fetch_add(1, Ordering::Relaxed);
        Entry { when, number, target: Target::timer(self) }
    }

    /// Lets the timer fire again at `when` (ns). Its entry goes into the heap of the caller's P or,
    /// if there is no memory, into the place that the former entry has left in `from`. The caller
    /// holds the lock.
    fn go_on(&self, when: i64, number: u64, from: &Timers) -> Added {
        let entry = self.entry(when, number);
        let added = add(|| entry).unwrap_or_else(|NoMemory| from.put_back(entry));
        self.home.set(added.home);
        added
    }

    /// Stops the timer. True: it was started, and had not fired yet.
    pub fn stop(&self) -> bool {
        self.lock.with(|| self.deactivate())
    }

    /// The caller holds the timer's lock.
    fn deactivate(&self) -> bool {
        let number = self.number.load(Ordering::Relaxed);
        if number & 1 == 0 {
            return false;
        }
        self.number.store(number + 1, Ordering::Relaxed);
        left_early(self.home.get());
        true
    }

    /// The caller holds the timer's lock.
    fn count_call(&self) {
        let number = rt().number;
        if self.runs_in.replace(number) != number {
            self.forget_calls();
        }
        self.runs.set(self.runs.get() + 1);
        self.refs.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the timer's function runs or is about to. The caller holds the lock.
    fn is_running(&self) -> bool {
        if self.runs.get() > 0 && !runtime::is_number(self.runs_in.get()) {
            self.forget_calls();
        }
        self.runs.get() > 0
    }

    /// Forgets the calls and the goroutines that wait for them, in the child of a fork: they are
    /// the parent's. The caller holds the lock.
    fn forget_calls(&self) {
        self.runs.set(0);
        // SAFETY: the lock is held.
        unsafe { (*self.waiters.get()).forget() };
    }

    /// Counts the end of a counted call, or that the call is not made after all. The caller has the
    /// call's reference, and gives it back later.
    pub fn call_ended(&self) {
        let waiters = self.lock.with(|| {
            self.runs.set(self.runs.get() - 1);
            match self.runs.get() {
                // SAFETY: the lock is held.
                0 => unsafe { (*self.waiters.get()).pop_all() },
                _ => Claimed::NONE,
            }
        });
        ready_all(waiters);
    }

    /// Stops the timer, and waits until its function isn't running. True: the timer was still to
    /// fire, before the call or meanwhile (its function or another thread had started it again).
    /// Fails with `-EDEADLK` if the timer's own function calls this; nothing has changed then.
    /// Otherwise fails as a wait does; the timer is stopped then.
    pub fn stop_and_wait(&self, deadline: i64) -> Result<bool, i32> {
        let caller = m::current_g();
        let me = ptr::from_ref(self);
        if caller.is_some_and(|g| g.has(flags::TIMER) && g.arg.get().cast_const() == me.cast()) {
            return Err(-libc::EDEADLK);
        }
        // A reference, because another goroutine that waits may free the timer as soon as the
        // function has ended.
        self.refs.fetch_add(1, Ordering::Relaxed);
        let result = self.wait_for_calls(deadline);
        // SAFETY: this reference was taken above.
        unsafe { Timer::release(me) };
        result
    }

    fn wait_for_calls(&self, deadline: i64) -> Result<bool, i32> {
        let mut was_active = false;
        loop {
            self.lock.lock();
            was_active |= self.deactivate();
            if !self.is_running() {
                // SAFETY: locked above.
                unsafe { self.lock.unlock() };
                return Ok(was_active);
            }
            let thread = Parker::for_thread();
            let block = match Block::begin(&thread, deadline, false, Why::Timer) {
                Ok(block) => block,
                Err(e) => {
                    // SAFETY: locked above.
                    unsafe { self.lock.unlock() };
                    return Err(e);
                }
            };
            let waiter = block.waiter(ptr::null::<()>());
            // SAFETY: `waiters` is used with the lock held; the waiter stays until it is out of the
            // queue; `unlock_timer` releases the lock.
            let cause = unsafe {
                (*self.waiters.get()).push(&waiter);
                block.park(unlock_timer, ptr::from_ref(self) as usize)
            };
            if cause != Cause::Woken {
                // SAFETY: the lock is held, and `waiter` stays until this returns.
                self.lock.with(|| unsafe { (*self.waiters.get()).remove(&waiter) });
                return Err(cause.errno());
            }
        }
    }

    /// Stops the timer, and gives the user's reference back.
    ///
    /// # Safety
    /// `timer` is from [`Timer::new`] and the caller uses it no more.
    pub unsafe fn free(timer: *const Timer) {
        // SAFETY: the user's reference keeps the timer alive.
        unsafe { &*timer }.stop();
        // SAFETY: the user's reference ends here.
        unsafe { Timer::release(timer) };
    }

    /// Fires the timer for an entry that is due, unless the entry is dead or the start was
    /// postponed. A timer that is to fire later or again has a new entry then, in the heap of
    /// [`Timer::home`].
    ///
    /// # Safety
    /// The entry is out of its heap, `from`, which keeps the entry's place. The caller has the
    /// entry's reference, and uses it no more.
    unsafe fn due(timer: *const Timer, entry: Entry, now: i64, from: &Timers) -> Due {
        // SAFETY: the entry's reference keeps the timer alive.
        let this = unsafe { &*timer };
        let (due, after, again) = this.lock.with(|| {
            if !this.waits(entry.number) {
                return (Due::Dead, After::Nothing, None);
            }
            if this.when.get() > now {
                let again = this.go_on(this.when.get(), entry.number, from);
                return (Due::Postponed, After::Nothing, Some(again));
            }
            let period = this.period.get();
            let again = (period > 0).then(|| {
                // Drops ticks that are late, and keeps the rhythm.
                let missed = (now - entry.when) / period;
                let when = entry.when.saturating_add(period.saturating_mul(missed + 1));
                this.go_on(when, entry.number, from)
            });
            if again.is_none() {
                this.number.store(entry.number + 1, Ordering::Relaxed);
            }
            let after = (this.fire)(this, now);
            if let After::Call(_) = after {
                this.count_call();
            }
            (Due::Fired, after, again)
        });
        if let Some(added) = again {
            added.announce();
        }
        if !after.run(this) {
            this.fire_later(entry.number, now, from);
        }
        // SAFETY: the entry's reference, used no more.
        unsafe { Timer::release(timer) };
        due
    }

    /// Lets the timer fire again soon, unless it was started or stopped since: the start with this
    /// number has fired, without memory for its goroutine.
    #[cold]
    fn fire_later(&self, number: u64, now: i64, from: &Timers) {
        let added = self.lock.with(|| {
            if !self.waits(number + 1) {
                return None;
            }
            self.number.store(number + 2, Ordering::Relaxed);
            Some(self.go_on(now + RETRY, number + 2, from))
        });
        if let Some(added) = added {
            added.announce();
        }
    }
}

/// # Safety
/// `timer` is the address of a timer whose lock the caller holds.
unsafe fn unlock_timer(timer: usize) {
    // SAFETY: the goroutine that waits has a reference.
    unsafe { (*(timer as *const Timer)).lock.unlock() };
}

impl Entry {
    /// Fires this entry, which is due and out of its heap.
    fn due(self, now: i64, from: &Timers) -> Due {
        match self.target.as_timer() {
            // SAFETY: the entry has a reference, which ends here.
            Some(t) => unsafe { Timer::due(t, self, now, from) },
            // SAFETY: only goroutines' parkers get into heaps, and no lock is held.
            None => match unsafe { Parker::time_out(self.target.as_parker(), self.number) } {
                true => Due::Fired,
                false => Due::Dead,
            },
        }
    }
}

/// The result for an entry that was due.
enum Due {
    Fired,
    /// The entry's timer is to fire later, and has another entry.
    Postponed,
    /// The entry's target had moved on.
    Dead,
}

/// One in this number of the entries that fire together is measured.
const MEASURED: usize = 16;

/// The time after which a timer that found no memory for its goroutine fires again, in ns.
const RETRY: i64 = 1_000_000;

/// While this value exists, the M with this P fires timers, and no thread forks. Firing takes the
/// locks of timers, and of the user's objects in which goroutines wait with a deadline or for a
/// tick. The child could never take a lock held by a thread that it doesn't have.
struct Firing(Option<PRef>);

impl Firing {
    /// `None`: a thread forks, and the timers fire at the M's next look. The M must not wait for
    /// the end of the fork, which may wait for a goroutine that needs the P.
    fn begin() -> Option<Firing> {
        let Some(p) = m::with_p().map(|m| m.p()) else { return Some(Firing(None)) };
        let firing = Firing(Some(p));
        // SeqCst: pairs with `wait_until_none_fires`. Either the forking thread sees `fires`, or
        // this thread sees the fork.
        p.fires.store(true, Ordering::SeqCst);
        if forking::forks() {
            drop(firing);
            // The forking thread may need this CPU.
            thread::yield_now();
            return None;
        }
        Some(firing)
    }
}

impl Drop for Firing {
    fn drop(&mut self) {
        if let Some(p) = self.0 {
            // Release: pairs with the load in `wait_until_none_fires`.
            p.fires.store(false, Ordering::Release);
        }
    }
}

/// Clears `fires` of the caller's P, for a thread inside that is about to fork. A handler of the
/// host's may fork on a thread that fires timers, and then another thread that forks must not wait
/// for this thread. If the caller has lost its P, another M may fire timers with it: nothing is
/// cleared.
pub fn no_longer_keeps_from_forking() {
    if m::holds_p()
        && let Some(m) = m::with_p()
    {
        m.p().fires.store(false, Ordering::SeqCst);
    }
}

/// Waits until no other thread fires timers, for a thread that has announced its fork.
pub fn wait_until_none_fires(rt: &Runtime) {
    for p in rt.all_made_ps() {
        let mut round = 0;
        // SeqCst: pairs with `Firing::begin`.
        while p.fires.load(Ordering::SeqCst) {
            round += 1;
            backoff(round);
        }
    }
}

impl Timers {
    /// Fires all due entries, unless a thread forks. Returns the number that were alive.
    pub fn run(&self, now: i64) -> usize {
        if self.next() > now {
            return 0;
        }
        let Some(_firing) = Firing::begin() else { return 0 };
        let mut fired = 0;
        while self.next() <= now {
            let mut batch = [const { MaybeUninit::<Entry>::uninit() }; 16];
            let taken = self.with(|heap| {
                let mut taken = 0;
                while taken < batch.len()
                    && let Some(e) = heap.first()
                    && e.when <= now
                {
                    e.target.fetch();
                    batch[taken].write(pop(heap));
                    taken += 1;
                }
                self.kept.fetch_add(taken, Ordering::Relaxed);
                taken
            });
            for entry in &batch[..taken] {
                // SAFETY: the loop above has written the first `taken` entries.
                let entry = unsafe { entry.assume_init() };
                // The first entry is measured, and one in `MEASURED`. A timer that calls a function
                // has no waiting goroutine to measure.
                let measured = match fired % MEASURED {
                    0 => m::with_p(),
                    _ => None,
                };
                if let Some(m) = measured {
                    m.p().measure_next(entry.when);
                }
                let due = entry.due(now, self);
                if let Some(m) = measured {
                    m.p().stop_measuring();
                }
                match due {
                    Due::Fired => fired += 1,
                    Due::Postponed => {}
                    Due::Dead => {
                        self.dead.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            }
            self.give_places_back(taken);
        }
        fired
    }
}

impl Added {
    /// Tells the timer watcher of a new entry. May wake or make a thread, so the caller holds no
    /// lock.
    fn announce(self) {
        if let Some(when) = self.news {
            rt().timer_added(when);
        }
    }
}

/// Adds an entry to the heap of the caller's P, or of any P if the caller has none. Calls `make`
/// for the entry once, with the heap's lock held, when there is room.
#[inline(always)]
fn add(mut make: impl FnMut() -> Entry) -> Result<Added, NoMemory> {
    if let Some(m) = m::with_p() {
        let timers = &m.p().timers;
        if timers.next() == i64::MAX {
            p::read_clock_next(m.p());
        }
        if timers.add(&mut make)? {
            return Ok(Added { home: timers.id, news: None });
        }
    }
    add_to_any(make)
}

#[cold]
#[inline(never)]
fn add_to_any(mut make: impl FnMut() -> Entry) -> Result<Added, NoMemory> {
    let rt = rt();
    let mut when = 0;
    let mut make = || {
        let entry = make();
        when = entry.when;
        entry
    };
    loop {
        let n = rt.procs();
        let p = rt.p(m::random() as usize % n);
        if p.timers.add(&mut make)? {
            p::read_clock_next(p);
            return Ok(Added { home: p.id, news: Some(when) });
        }
    }
}

/// Lets a deadline (ns) end the goroutine's park with this number. The caller owns the goroutine,
/// which is at rest, with its claim `ARMING`. False: there is no memory for the entry.
pub fn add_park(g: GRef, number: u64, deadline: i64) -> bool {
    let parker = &g.parker;
    let entry = Entry { when: deadline.min(LATEST), number, target: Target::parker(parker) };
    let Ok(added) = add(|| entry) else { return false };
    parker.timer_home.set(added.home);
    added.announce();
    true
}

/// Counts an entry in the heap of P `home` as dead: its target has moved on before its time.
pub fn left_early(home: u16) {
    // The count is a hint, so this doesn't wait for a shutdown that is under way.
    let Some(rt) = Visit::try_begin() else { return };
    if let Some(p) = rt.p_if_made(home as usize) {
        let moved = p.timers.closed.load(Ordering::Relaxed);
        let timers = if moved { &rt.p(0).timers } else { &p.timers };
        timers.dead.fetch_add(1, Ordering::Relaxed);
    }
}

/// When the first timer of an idle P is due, in ns; `i64::MAX`: never. A P that was given to an M
/// that doesn't run yet is not idle.
pub fn next_of_idle_ps() -> i64 {
    next_of(|p| p.of_node().is_idle_p(p))
}

/// When the first timer of a left P is due, in ns: a P that is neither idle nor running, because
/// its M is in a system call or the world is stopped.
pub fn next_of_left_ps() -> i64 {
    next_of(|p| !matches!(p.status(), PStatus::Idle | PStatus::Running))
}

fn next_of(which: impl Fn(PRef) -> bool) -> i64 {
    rt().ps().filter(|&p| which(p)).map(|p| p.timers.next()).min().unwrap_or(i64::MAX)
}

/// The time after which an M that could not take a P for an event tries again, in ns.
const TRY_AGAIN: i64 = 250_000;

/// When an M must wake for events of P's whose goroutines compute, in ns: once an event is due and
/// its P may be taken. `i64::MAX`: never.
fn next_of_computing_ps(rt: &Runtime) -> i64 {
    if !events::may_take_ps(rt) {
        return i64::MAX;
    }
    let when = |p: PRef| match (p.next_event(), p.stands_since()) {
        (i64::MAX, _) | (_, i64::MAX) => i64::MAX,
        (next, since) => next.max(since + preempted::WAKE_UP),
    };
    match rt.ps().filter(|&p| preempted::may_lose_p(p)).map(when).min() {
        None | Some(i64::MAX) => i64::MAX,
        Some(when) => {
            let now = time::now();
            if when > now { when } else { now + TRY_AGAIN }
        }
    }
}

impl Runtime {
    /// For an M that is about to sleep: returns when it must wake for timers, in ns, and makes it
    /// the timer watcher; -1 if there is no such timer, or another M wakes in time. The timers are
    /// those of idle P's, and of P's whose goroutines compute. sysmon looks after the latter, too,
    /// but may wait some ms for a CPU when all CPUs compute.
    pub fn watch(&self, m: MRef) -> i64 {
        self.watch.with(|| {
            let next = next_of_idle_ps().min(next_of_computing_ps(self));
            if next == i64::MAX || next >= self.watching_until.load(Ordering::Relaxed) {
                return -1;
            }
            self.watcher.store(m.as_ptr(), Ordering::Relaxed);
            self.watching_until.store(next, Ordering::Relaxed);
            next
        })
    }

    /// Ends the M's post as the timer watcher, if it has that post: the M is awake.
    pub fn unwatch(&self, m: MRef) {
        if self.watcher.load(Ordering::Relaxed) != m.as_ptr() {
            return;
        }
        self.watch.with(|| {
            if self.watcher.load(Ordering::Relaxed) == m.as_ptr() {
                self.watcher.store(ptr::null_mut(), Ordering::Relaxed);
                self.watching_until.store(i64::MAX, Ordering::Relaxed);
            }
        });
    }

    /// Whether the timer watcher wakes at this time (ns) or earlier.
    pub fn is_watched_until(&self, when: i64) -> bool {
        when >= self.watching_until.load(Ordering::Relaxed)
    }

    /// Whether an idle P has a timer and no M wakes when it is due.
    pub fn lacks_timer_watcher(&self) -> bool {
        next_of_idle_ps() != i64::MAX && self.watcher.load(Ordering::Relaxed).is_null()
    }

    /// Wakes an M, if no M wakes early enough for a timer that is due at `when` (ns), which was
    /// added to a P that the caller doesn't hold.
    pub fn timer_added(&self, when: i64) {
        if when == i64::MAX {
            return;
        }
        let watcher = self.watch.with(|| {
            (when < self.watching_until.load(Ordering::Relaxed))
                .then(|| self.watcher.load(Ordering::Relaxed))
        });
        match watcher {
            None => {}
            // SAFETY: M's stay mapped.
            Some(m) if !m.is_null() => start::nudge(unsafe { MRef::from_ptr(m) }),
            Some(_) => {
                if let Some(one) = self.idle.work_added() {
                    start::start_one(one, None, self.any_node());
                }
            }
        }
    }
}
