//! Timers: a heap a P, which its owner looks at between goroutines and others
//! when the owner can't. seed: N6
//!
//! An entry is never taken out before its time: it carries a number, and is
//! dead when its target has moved on. When half of a heap is dead it is swept.
//!
//! Locks: a timer's first, then a heap's. Nothing is woken and no thread is made with
//! either of them held.

use super::boundary::Entered;
use super::park::{Block, Cause, Parker, WaitQueue, Waiter, When, Why, ready_all};
use super::switch;
use crate::arch;
use crate::os::{heap, spin::SpinLock};
use crate::sched::life::spawn;
use crate::sched::who::g::{GRef, flags};
use crate::sched::who::p::{PRef, status};
use crate::sched::who::runtime::{self, Inside, rt};
use crate::sched::who::task::GoFn;
use core::cell::{Cell, UnsafeCell};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

/// A timer of the rooms above: calls a function when it fires.
pub struct Timer {
    lock: SpinLock,
    /// The number of the start under way; odd while it is to fire.
    number: AtomicU64,
    /// The user's reference and one for each entry in a heap.
    refs: AtomicU32,
    /// The P whose heap has the entry of the start under way. Used with the lock held, as
    /// `period` is.
    home: Cell<u16>,
    /// In ns; 0: fires once.
    period: Cell<i64>,
    /// Calls of its function that have been decided and have not returned, each with a reference,
    /// and the number of the runtime that makes them: the child of a fork doesn't. Used
    /// with the lock held, as `waiters` is.
    runs: Cell<u32>,
    runs_in: Cell<u32>,
    /// Those who wait until there are no such calls.
    waiters: UnsafeCell<WaitQueue>,
    fire: Fire,
    /// For the use of `fire`.
    pub data: [usize; 2],
}

/// What a timer does when it fires, with the time in ns. It runs with the timer's lock
/// held, so it only decides what is to be done afterwards.
pub type Fire = fn(&Timer, i64) -> After;

/// There is no memory for another entry.
pub struct NoMemory;

/// What is done for a timer that has fired once its lock is released: it may wake a thread,
/// or make one.
#[must_use]
pub enum After {
    Nothing,
    /// A waiter to be made ready, taken out of its queue and claimed.
    Ready(*const Waiter),
    /// The timer's function is to be called, in a goroutine: see [`Timer::of_function`].
    Call,
}

impl After {
    /// For this timer. False: there is no memory for the goroutine.
    fn run(self, timer: &Timer) -> bool {
        match self {
            After::Nothing => true,
            After::Ready(waiter) => {
                // SAFETY: claimed, so it waits for us.
                unsafe { Waiter::ready(waiter, When::Next) };
                true
            }
            After::Call => {
                let timer = ptr::from_ref(timer).cast_mut().cast();
                let spawned = spawn::spawn(call, timer, 0) == 0;
                if !spawned {
                    // SAFETY: the call that was counted is not made.
                    unsafe { Timer::call_ended(timer.cast()) };
                }
                spawned
            }
        }
    }
}

impl Timer {
    /// A timer that isn't started, as a pointer that [`Timer::free`] takes back. `None`:
    /// there is no memory.
    pub fn new(fire: Fire, data: [usize; 2]) -> Option<*const Timer> {
        let timer = heap::boxed(Timer {
            lock: SpinLock::new(),
            number: AtomicU64::new(0),
            refs: AtomicU32::new(1),
            home: Cell::new(0),
            period: Cell::new(0),
            runs: Cell::new(0),
            runs_in: Cell::new(0),
            waiters: UnsafeCell::new(WaitQueue::new()),
            fire,
            data,
        });
        timer.map(|timer| Box::into_raw(timer).cast_const())
    }

    /// A timer that isn't started, and calls `f(arg)` in a goroutine each time it fires. As `new`.
    pub fn of_function(f: GoFn, arg: *mut c_void) -> Option<*const Timer> {
        Timer::new(|_, _| After::Call, [f as usize, arg as usize])
    }

    /// Its function and argument, if it has been made with one.
    fn function(&self) -> (GoFn, *mut c_void) {
        // SAFETY: only those of `of_function` are asked, which has put a GoFn there.
        (unsafe { core::mem::transmute::<usize, GoFn>(self.data[0]) }, self.data[1] as *mut c_void)
    }

    /// Lets it fire at `when` and then each `period` ns (0: once), instead of
    /// what it was to do before. True: it was still to fire. Without memory nothing has
    /// changed.
    pub fn start(&self, when: i64, period: i64) -> Result<bool, NoMemory> {
        let mut was_active = false;
        let added = self.lock.with(|| {
            // Called when there is room for the entry, before it can fire.
            let added = add(|| {
                was_active = self.deactivate();
                let number = self.number.load(Ordering::Relaxed) + 1;
                self.number.store(number, Ordering::Relaxed);
                self.period.set(period);
                self.entry(when, number)
            })?;
            self.home.set(added.home);
            Ok(added)
        })?;
        added.announce();
        Ok(was_active)
    }

    /// An entry, with a reference of its own.
    fn entry(&self, when: i64, number: u64) -> Entry {
        self.refs.fetch_add(1, Ordering::Relaxed);
        Entry { when, number, target: Target::timer(self) }
    }

    /// Fires again at `when`: an entry in the heap of the caller's P or, if there is no
    /// memory, at the place in `from` that the last one has left. The lock is held.
    fn go_on(&self, when: i64, number: u64, from: &Timers) -> Added {
        let mut entry = Some(self.entry(when, number));
        let added = match add(|| entry.take().expect("called once")) {
            Ok(added) => added,
            Err(NoMemory) => from.put_back(entry.take().expect("not called")),
        };
        self.home.set(added.home);
        added
    }

    /// True: it was still to fire, and won't now.
    pub fn stop(&self) -> bool {
        self.lock.with(|| self.deactivate())
    }

    /// The lock is held.
    fn deactivate(&self) -> bool {
        let number = self.number.load(Ordering::Relaxed);
        if number & 1 == 0 {
            return false;
        }
        self.number.store(number + 1, Ordering::Relaxed);
        left_early(self.home.get());
        true
    }

    /// The lock is held.
    fn count_call(&self) {
        let number = rt().number;
        if self.runs_in.replace(number) != number {
            self.forget_calls();
        }
        self.runs.set(self.runs.get() + 1);
        self.refs.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether its function runs or is about to. The lock is held.
    fn is_running(&self) -> bool {
        if self.runs.get() > 0 && !runtime::is_number(self.runs_in.get()) {
            self.forget_calls();
        }
        self.runs.get() > 0
    }

    /// Those goroutines, and those who wait for them, are the parent's of this process. The lock is
    /// held.
    fn forget_calls(&self) {
        self.runs.set(0);
        // SAFETY: the lock is held.
        unsafe { (*self.waiters.get()).forget() };
    }

    /// A call of the function is over, or is not made after all.
    ///
    /// # Safety
    /// It was counted by `count_call` and is ended once; the timer is used no more.
    unsafe fn call_ended(timer: *const Timer) {
        // SAFETY: the call's reference.
        let this = unsafe { &*timer };
        let waiters = this.lock.with(|| {
            this.runs.set(this.runs.get() - 1);
            match this.runs.get() {
                // SAFETY: the lock is held.
                0 => unsafe { (*this.waiters.get()).pop_all() },
                _ => ptr::null(),
            }
        });
        // SAFETY: the list is ours.
        unsafe { ready_all(waiters) };
        // SAFETY: the call's reference.
        unsafe { Timer::release(timer) };
    }

    /// Stops it, and waits until its function doesn't run. True: it was still to fire, before or
    /// meanwhile, because its function or another thread has started it again. Fails with
    /// `-EDEADLK` if its function asks, and then nothing has changed; else as a wait does, and
    /// then it is stopped.
    pub fn stop_and_wait(&self, deadline: i64) -> Result<bool, i32> {
        let caller = switch::current_g();
        let me = ptr::from_ref(self);
        if caller.is_some_and(|g| g.has(flags::TIMER) && g.arg.get().cast_const() == me.cast()) {
            return Err(-libc::EDEADLK);
        }
        // Another who waits may free it as soon as the function has ended.
        self.refs.fetch_add(1, Ordering::Relaxed);
        let result = self.wait_for_calls(deadline);
        // SAFETY: the reference is ours.
        unsafe { Timer::release(me) };
        result
    }

    fn wait_for_calls(&self, deadline: i64) -> Result<bool, i32> {
        let mut was_active = false;
        loop {
            self.lock.lock();
            was_active |= self.deactivate();
            if !self.is_running() {
                self.lock.unlock();
                return Ok(was_active);
            }
            let thread = Parker::for_thread();
            let block = match Block::begin(&thread, deadline, false, Why::Timer) {
                Ok(block) => block,
                Err(e) => {
                    self.lock.unlock();
                    return Err(e);
                }
            };
            let waiter = block.waiter();
            // SAFETY: `waiters` is used with the lock held; the waiter stays until it is out of the
            // queue; `unlock_timer` releases the lock.
            let cause = unsafe {
                (*self.waiters.get()).push(&waiter);
                block.park(unlock_timer, ptr::from_ref(self) as usize)
            };
            if cause != Cause::Woken {
                // SAFETY: likewise.
                self.lock.with(|| unsafe { (*self.waiters.get()).remove(&waiter) });
                return Err(cause.errno());
            }
        }
    }

    /// Gives the user's reference back; it doesn't fire any more.
    ///
    /// # Safety
    /// `timer` is from [`Timer::new`] and the caller uses it no more.
    pub unsafe fn free(timer: *const Timer) {
        // SAFETY: the user's reference keeps it alive.
        unsafe { &*timer }.stop();
        // SAFETY: the user's reference ends here.
        unsafe { Timer::release(timer) };
    }

    /// # Safety
    /// The caller has a reference and uses it no more.
    unsafe fn release(timer: *const Timer) {
        // AcqRel: whoever frees it comes after all others' uses.
        // SAFETY: the caller's reference keeps it alive.
        if unsafe { &*timer }.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: the last reference; it was made by `Box::into_raw`.
            drop(unsafe { Box::from_raw(timer.cast_mut()) });
        }
    }

    fn waits(&self, number: u64) -> bool {
        self.number.load(Ordering::Relaxed) == number
    }

    /// An entry of it is due. False: it was dead. With a period there is a new entry then,
    /// and [`Timer::home`] says where.
    ///
    /// # Safety
    /// The entry is out of its heap, `from`, which keeps its place; its reference is the
    /// caller's, and gone afterwards.
    unsafe fn due(timer: *const Timer, entry: Entry, now: i64, from: &Timers) -> bool {
        // SAFETY: the entry's reference.
        let this = unsafe { &*timer };
        let fired = this.lock.with(|| {
            if !this.waits(entry.number) {
                return None;
            }
            let period = this.period.get();
            let again = (period > 0).then(|| {
                // Late ticks are dropped, and the rhythm is kept.
                let missed = (now - entry.when) / period;
                let when = entry.when.saturating_add(period.saturating_mul(missed + 1));
                this.go_on(when, entry.number, from)
            });
            if again.is_none() {
                this.number.store(entry.number + 1, Ordering::Relaxed);
            }
            let after = (this.fire)(this, now);
            if let After::Call = after {
                this.count_call();
            }
            Some((after, again))
        });
        let was_alive = fired.is_some();
        if let Some((after, again)) = fired {
            if let Some(added) = again {
                added.announce();
            }
            if !after.run(this) {
                this.fire_later(entry.number, now, from);
            }
        }
        // SAFETY: the entry's reference, used no more.
        unsafe { Timer::release(timer) };
        was_alive
    }

    /// The start with this number has fired, and there was no memory for its goroutine: it
    /// fires again soon, unless it was started or stopped since.
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
    // SAFETY: there is a reference to it, that of who waits.
    unsafe { (*(timer as *const Timer)).lock.unlock() };
}

/// What the goroutine of a timer runs.
unsafe extern "C" fn call(timer: *mut c_void) {
    // SAFETY: `count_call` has counted a reference for this call, which `call_ends` gives back.
    let (f, arg) = unsafe { (*timer.cast::<Timer>()).function() };
    {
        // It is the library's code: it is not preempted here.
        let _entered = Entered::new();
        let g = switch::current_g().expect("a goroutine calls this");
        g.set_flag(flags::TIMER, true);
    }
    // SAFETY: the user gave the function for this argument.
    unsafe { f(arg) };
}

/// A goroutine with the flag `TIMER` ends, in whatever way.
pub fn call_ends(g: GRef) {
    // SAFETY: its argument is the timer, with the reference of the call, which ends now.
    unsafe { Timer::call_ended(g.arg.get().cast_const().cast()) };
}

/// The argument that a goroutine's function has for the user.
///
/// # Safety
/// The goroutine with this function and argument has not ended.
pub unsafe fn argument(f: Option<GoFn>, arg: *mut c_void) -> *mut c_void {
    if f.map(|f| f as usize) != Some(call as *const () as usize) {
        return arg;
    }
    // SAFETY: the timer of a call that has not ended is there.
    unsafe { (*arg.cast::<Timer>()).function().1 }
}

/// Whom an entry is for: the parker of a goroutine, or a [`Timer`] (lowest bit
/// set).
#[derive(Clone, Copy)]
struct Target(usize);

impl Target {
    fn parker(p: &Parker) -> Target {
        Target(core::ptr::from_ref(p) as usize)
    }

    fn timer(t: &Timer) -> Target {
        Target(core::ptr::from_ref(t) as usize | 1)
    }

    fn as_timer(self) -> Option<*const Timer> {
        (self.0 & 1 == 1).then_some((self.0 & !1) as *const Timer)
    }

    fn as_parker(self) -> *const Parker {
        self.0 as *const Parker
    }

    /// Lets the processor get it.
    fn fetch(self) {
        arch::prefetch(self.0);
    }
}

#[derive(Clone, Copy)]
struct Entry {
    when: i64,
    number: u64,
    target: Target,
}

impl Entry {
    fn alive(&self) -> bool {
        match self.target.as_timer() {
            // SAFETY: the entry has a reference.
            Some(t) => unsafe { &*t }.waits(self.number),
            // SAFETY: descriptors stay mapped.
            None => unsafe { &*self.target.as_parker() }.waits(self.number),
        }
    }

    /// Ends what the entry holds.
    fn forget(self) {
        if let Some(t) = self.target.as_timer() {
            // SAFETY: the entry's reference.
            unsafe { Timer::release(t) };
        }
    }

    /// Its time has come, and it is out of its heap. False: its target had moved on.
    fn due(self, now: i64, from: &Timers) -> bool {
        match self.target.as_timer() {
            // SAFETY: the entry has a reference, which ends here.
            Some(t) => unsafe { Timer::due(t, self, now, from) },
            // SAFETY: only goroutines' parkers get into heaps, and no lock is held.
            None => unsafe { Parker::time_out(self.target.as_parker(), self.number) },
        }
    }
}

/// The timers of one P.
pub struct Timers {
    lock: SpinLock,
    heap: UnsafeCell<Vec<Entry>>,
    /// When the first is due, in ns; `i64::MAX`: never.
    next: AtomicI64,
    /// Entries whose target has moved on. Below 0 for a moment where one is taken out before
    /// it is counted.
    dead: AtomicI32,
    /// Places that are kept for entries that may come back: those that are out to fire. Grows
    /// with `lock` held.
    kept: AtomicUsize,
    /// The P is gone, and its entries are another's. Changed with `lock` held.
    closed: AtomicBool,
    id: u16,
}

// SAFETY: `heap` is only used with `lock` held.
unsafe impl Sync for Timers {}

/// Children of a heap's node: four have better locality than two.
const FANOUT: usize = 4;
/// Heaps smaller than this aren't swept.
const SWEEP_FROM: usize = 64;
/// ns until a timer fires again that found no memory for its goroutine.
const RETRY: i64 = 1_000_000;

impl Timers {
    pub fn new(id: u16) -> Timers {
        Timers {
            lock: SpinLock::new(),
            heap: UnsafeCell::default(),
            next: AtomicI64::new(i64::MAX),
            dead: AtomicI32::new(0),
            kept: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            id,
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Vec<Entry>) -> R) -> R {
        self.lock.with(|| {
            // SAFETY: the lock is held.
            let heap = unsafe { &mut *self.heap.get() };
            let r = f(heap);
            let next = heap.first().map_or(i64::MAX, |e| e.when);
            self.next.store(next, Ordering::Release);
            r
        })
    }

    /// When the first is due, in ns; `i64::MAX`: never.
    #[inline(always)]
    pub fn next(&self) -> i64 {
        self.next.load(Ordering::Acquire)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.with(|heap| heap.len())
    }

    /// Keeps places for `n` entries that [`Timers::put_back`] brings. False: there is no
    /// memory.
    pub fn keep_places(&self, n: usize) -> bool {
        self.with(|heap| {
            let kept = self.kept.load(Ordering::Relaxed) + n;
            let has_room = heap::reserve(heap, kept);
            if has_room {
                self.kept.store(kept, Ordering::Relaxed);
            }
            has_room
        })
    }

    /// The places aren't needed any more.
    pub fn give_places_back(&self, n: usize) {
        self.kept.fetch_sub(n, Ordering::Relaxed);
    }

    /// Adds an entry for which a place is kept.
    fn put_back(&self, entry: Entry) -> Added {
        self.with(|heap| {
            heap.push(entry);
            let last = heap.len() - 1;
            sift_up(heap, last);
        });
        switch::look_at_the_clock(rt().p(self.id as usize));
        Added { home: self.id, news: Some(entry.when) }
    }

    /// Adds the entry that `make` gives, which is called when there is room. False: the P is
    /// gone.
    fn add<F: FnOnce() -> Entry>(&self, make: &mut Option<F>) -> Result<bool, NoMemory> {
        self.with(|heap| {
            if self.closed.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let dead = self.dead.load(Ordering::Relaxed).max(0) as usize;
            if heap.len() >= SWEEP_FROM && dead * 2 > heap.len() {
                self.sweep(heap);
            }
            let kept = self.kept.load(Ordering::Relaxed);
            if !heap::reserve(heap, 1 + kept) {
                self.sweep(heap);
                if heap.capacity() - heap.len() <= kept {
                    return Err(NoMemory);
                }
            }
            heap.extend(make.take().map(|make| make()));
            let last = heap.len() - 1;
            sift_up(heap, last);
            Ok(true)
        })
    }

    /// Drops the dead entries. Counts anew: deaths that were counted here by mistake (of an
    /// entry that has moved with GOMAXPROCS) cause one sweep and no more.
    fn sweep(&self, heap: &mut Vec<Entry>) {
        heap.retain(|e| {
            let keep = e.alive();
            if !keep {
                e.forget();
            }
            keep
        });
        for i in (0..heap.len() / FANOUT + 1).rev() {
            sift_down(heap, i);
        }
        self.dead.store(0, Ordering::Relaxed);
    }

    /// How many entries are counted as dead, and how many are.
    #[cfg(test)]
    pub fn census(&self) -> (i32, i32) {
        let dead = self.with(|heap| heap.iter().filter(|e| !e.alive()).count());
        (self.dead.load(Ordering::Relaxed), dead as i32)
    }

    /// Lets everything fire that is due. Gives how many there were.
    pub fn run(&self, now: i64) -> usize {
        let mut fired = 0;
        while self.next() <= now {
            let mut batch = [const { None::<Entry> }; 16];
            let taken = self.with(|heap| {
                for slot in &mut batch {
                    match heap.first() {
                        Some(e) if e.when <= now => {
                            e.target.fetch();
                            *slot = Some(pop(heap));
                        }
                        _ => break,
                    }
                }
                let taken = batch.iter().flatten().count();
                self.kept.fetch_add(taken, Ordering::Relaxed);
                taken
            });
            for entry in batch.into_iter().flatten() {
                if entry.due(now, self) {
                    fired += 1;
                } else {
                    self.dead.fetch_sub(1, Ordering::Relaxed);
                }
            }
            self.give_places_back(taken);
        }
        fired
    }

    /// Opens or closes it; gives what is in it to `into`, which keeps places for that.
    pub fn close(&self, closed: bool, into: Option<PRef>) {
        let entries = self.with(|heap| {
            self.closed.store(closed, Ordering::Relaxed);
            self.dead.store(0, Ordering::Relaxed);
            core::mem::take(heap)
        });
        for entry in entries {
            match into {
                // Who stops the world announces them when it starts again.
                Some(p) if entry.alive() => drop(p.timers.put_back(entry)),
                _ => entry.forget(),
            }
        }
    }
}

fn sift_up(heap: &mut [Entry], mut i: usize) {
    let entry = heap[i];
    while i > 0 {
        let parent = (i - 1) / FANOUT;
        if heap[parent].when <= entry.when {
            break;
        }
        heap[i] = heap[parent];
        i = parent;
    }
    heap[i] = entry;
}

fn sift_down(heap: &mut [Entry], mut i: usize) {
    let Some(&entry) = heap.get(i) else { return };
    while let Some(least) = least_child(heap, i) {
        if entry.when <= heap[least].when {
            break;
        }
        heap[i] = heap[least];
        i = least;
    }
    heap[i] = entry;
}

/// The child that is due first. Without branches where there are all four: which one it
/// is can't be predicted.
#[inline(always)]
fn least_child(heap: &[Entry], i: usize) -> Option<usize> {
    let first = i * FANOUT + 1;
    let least = |a: usize, b: usize| if heap[b].when < heap[a].when { b } else { a };
    match heap.get(first..)?.len() {
        0 => None,
        n if n < FANOUT => (first..first + n).reduce(least),
        _ => Some(least(least(first, first + 1), least(first + 2, first + 3))),
    }
}

/// Takes the first entry; there is one.
fn pop(heap: &mut Vec<Entry>) -> Entry {
    let first = heap.swap_remove(0);
    sift_down(heap, 0);
    first
}

/// An entry is in a heap.
#[must_use]
struct Added {
    /// The P whose heap it is.
    home: u16,
    /// When it is due, if that is to be told to whoever waits for the timers of idle P's.
    news: Option<i64>,
}

impl Added {
    /// May wake a thread or make one: without any lock.
    fn announce(self) {
        if let Some(when) = self.news {
            rt().timer_added(when);
        }
    }
}

/// Adds the entry that `make` gives to the caller's P, or to any if it has none. `make` is
/// called with the heap's lock held, when there is room.
fn add(make: impl FnOnce() -> Entry) -> Result<Added, NoMemory> {
    let rt = rt();
    let mut when = 0;
    let mut make = Some(|| {
        let entry = make();
        when = entry.when;
        entry
    });
    if let Some(m) = switch::with_p() {
        let timers = &m.p().timers;
        if timers.next() == i64::MAX {
            switch::look_at_the_clock(m.p());
        }
        if timers.add(&mut make)? {
            return Ok(Added { home: timers.id, news: None });
        }
    }
    loop {
        let n = rt.procs();
        let p = rt.p(switch::random() as usize % n);
        if p.timers.add(&mut make)? {
            drop(make);
            switch::look_at_the_clock(p);
            return Ok(Added { home: p.id, news: Some(when) });
        }
    }
}

/// Wakes the park with this number of the goroutine at the deadline. The goroutine is the
/// caller's, and at rest: its claim is ARMING. False: there is no memory for that.
pub fn add_park(g: GRef, number: u64, deadline: i64) -> bool {
    let parker = &g.parker;
    let entry = Entry { when: deadline, number, target: Target::parker(parker) };
    let Ok(added) = add(|| entry) else { return false };
    parker.timer_home.set(added.home);
    added.announce();
    true
}

/// A target in the heap of that P has moved on before its time.
pub fn left_early(home: u16) {
    // A hint only, so without waiting for a shutdown that is under way.
    let inside = if switch::with_p().is_none() { Inside::try_enter() } else { None };
    if inside.is_none() && switch::with_p().is_none() {
        return;
    }
    let rt = rt();
    if let Some(p) = rt.p_if_made(home as usize) {
        let moved = p.timers.closed.load(Ordering::Relaxed);
        let timers = if moved { &rt.p(0).timers } else { &p.timers };
        timers.dead.fetch_add(1, Ordering::Relaxed);
    }
}

/// When the first timer of an idle P is due; `i64::MAX`: never.
pub fn next_of_idle_ps() -> i64 {
    next_of(|status| status == status::IDLE)
}

/// When the first timer is due of P's that are neither idle nor run: their M's are in system
/// calls, or the world is stopped.
pub fn next_of_left_ps() -> i64 {
    next_of(|status| !matches!(status, status::IDLE | status::RUNNING))
}

fn next_of(which: impl Fn(u32) -> bool) -> i64 {
    let ps = rt().ps().filter(|p| which(p.status()));
    ps.map(|p| p.timers.next()).min().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_gives_its_entries_in_the_order_of_their_times() {
        let mut heap = Vec::new();
        for i in 0..1000u64 {
            let when = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as i64;
            heap.push(Entry { when, number: i, target: Target(1) });
            let last = heap.len() - 1;
            sift_up(&mut heap, last);
        }
        let mut before = i64::MIN;
        while !heap.is_empty() {
            let e = pop(&mut heap);
            assert!(before <= e.when);
            before = e.when;
        }
    }
}
