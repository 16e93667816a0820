//! Threads for calls that only occupy a thread: reads and writes of disks. The goroutine that wants
//! such a call parks, so the call costs its P nothing, and no P changes hands. `WORKERS.md` states
//! the protocol.

use crate::os::spin::{SpinLock, backoff};
use crate::os::thread::{self, Thread};
use crate::os::{futex, heap};
use crate::sched::run::park::Block;
use crate::sched::take::call;
use crate::sched::types::runtime::{Runtime, rt};
use crate::sched::types::waiter::{Parker, Waiter, When, Why};
use core::cell::{Cell, UnsafeCell};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The pool. Its threads are started when first needed, and end with the runtime.
pub struct Workers {
    pub lock: SpinLock,
    /// The threads that sleep for want of a job. Changed with the lock held.
    asleep: AtomicUsize,
    /// The threads that are being started, or have been started and not left. Changed with the lock
    /// held.
    count: AtomicUsize,
    /// The number of sleepers that may wake.
    permits: AtomicU32,

    // The fields below are used with the lock held.
    /// Jobs that wait for a thread, the oldest first.
    first: Cell<*const Job>,
    last: Cell<*const Job>,
    /// The number of jobs that wait or are under way.
    jobs: Cell<usize>,
    /// The number of sleeping threads that must leave.
    surplus: Cell<usize>,
    stopping: Cell<bool>,
    /// Threads that have left and must be joined. Has room for all threads.
    left: UnsafeCell<Vec<Thread>>,
}

// SAFETY: the cells are used only with `lock` held, or in `release` by the context to which the
// lock was handed.
unsafe impl Sync for Workers {}

/// A call, on the stack of the goroutine that waits for it.
pub struct Job {
    next: Cell<*const Job>,
    waiter: Cell<*const Waiter>,
    /// Makes the call.
    run: unsafe fn(*const Job),
}

impl Workers {
    pub fn new() -> Workers {
        Workers {
            lock: SpinLock::new(),
            asleep: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            permits: AtomicU32::new(0),
            first: Cell::new(ptr::null()),
            last: Cell::new(ptr::null()),
            jobs: Cell::new(0),
            surplus: Cell::new(0),
            stopping: Cell::new(false),
            left: UnsafeCell::new(Vec::new()),
        }
    }

    /// The number of threads, including those that are being started.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The number of threads that sleep and have no permit.
    pub fn asleep(&self) -> usize {
        self.asleep.load(Ordering::SeqCst)
    }

    /// Whether no job is waiting or under way; a hint.
    pub fn is_unused(&self) -> bool {
        self.lock.with(|| self.jobs.get()) == 0
    }

    /// Ends one of the sleeping threads, if any, for a goroutine's thread that the limit of threads
    /// forbids.
    pub fn give_one_up(&self) {
        let wakes = self.lock.with(|| {
            let wakes = self.asleep.load(Ordering::Relaxed) > 0;
            if wakes {
                self.asleep.fetch_sub(1, Ordering::SeqCst);
                self.surplus.set(self.surplus.get() + 1);
            }
            wakes
        });
        if wakes {
            self.permit(1);
        }
    }

    /// Runs `f` with the threads that have left. Called with the lock held.
    pub fn with_left<R>(&self, f: impl FnOnce(&mut Vec<Thread>) -> R) -> R {
        // SAFETY: the lock is held, so no other thread uses the list, and `f` doesn't ask for it
        // again.
        f(unsafe { &mut *self.left.get() })
    }

    /// Whether threads that have left are still to be joined.
    pub fn has_left_threads(&self) -> bool {
        self.lock.with(|| self.with_left(|left| !left.is_empty()))
    }

    /// Joins the threads that have left, if they have ended. Their end may take long: it runs
    /// destructors of thread-specific values, such as those of a resolver's plugin.
    pub fn reap(&self) {
        // Tries each thread once: those that still run go to the end of the list.
        for _ in 0..self.lock.with(|| self.with_left(|left| left.len())) {
            let first = |left: &mut Vec<Thread>| (!left.is_empty()).then(|| left.remove(0));
            let Some(thread) = self.lock.with(|| self.with_left(first)) else { return };
            // Not with the lock held: joining may wait for locks of the C library.
            if let Err(running) = thread.try_join() {
                self.lock.with(|| self.with_left(|left| left.push(running)));
            }
        }
    }

    pub fn permit(&self, n: u32) {
        self.permits.fetch_add(n, Ordering::Release);
        futex::wake(&self.permits, n as i32);
    }
}

/// The most threads in the pool.
pub const LIMIT: usize = 64;

#[repr(C)]
struct JobOf<F> {
    job: Job,
    f: Cell<Option<F>>,
    result: Cell<isize>,
}

impl<F: FnOnce() -> isize> JobOf<F> {
    /// # Safety
    /// `job` is the first field of a `JobOf<F>` whose owner is parked.
    unsafe fn run(job: *const Job) {
        // SAFETY: `job` is the first field of a `JobOf<F>`, which stays while its owner is parked.
        let this = unsafe { &*job.cast::<JobOf<F>>() };
        if let Some(f) = this.f.take() {
            this.result.set(f());
        }
    }
}

impl Workers {
    /// Lets a thread of the pool call `f`; the calling goroutine parks meanwhile. Returns `f` if no
    /// thread can be had.
    pub fn call<F: FnOnce() -> isize>(&self, rt: &Runtime, f: F) -> Result<isize, F> {
        let call = JobOf {
            job: Job {
                next: Cell::new(ptr::null()),
                waiter: Cell::new(ptr::null()),
                run: JobOf::<F>::run,
            },
            f: Cell::new(Some(f)),
            result: Cell::new(0),
        };
        self.lock.lock();
        if self.is_empty() {
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
            // Starting a thread may wait for locks of the C library, and their owner may wait for a
            // P. Only the first thread is started here: it starts the others.
            call::enter();
            self.start_one(rt);
            call::exit();
            self.lock.lock();
        }
        // The last thread ends only when it finds no job, with the lock held.
        if self.is_empty() {
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
            return Err(call.f.take().expect("no thread has taken it"));
        }
        let unused = Parker::for_thread();
        let block = Block::begin_uncancellable(&unused, Why::File);
        let waiter = block.waiter(ptr::null::<()>());
        call.job.waiter.set(&waiter);
        self.push((&raw const call).cast());
        // SAFETY: the lock is held, and `release` releases it.
        let _ = unsafe { block.park(Workers::release, ptr::from_ref(self) as usize) };
        // `Err`: the thread for the job could not be started.
        call.f.take().map_or(Ok(call.result.get()), Err)
    }

    /// Whether no thread is there or being started. Called with the lock held.
    fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns jobs to their goroutines when no thread is left to do them.
    fn give_back(&self) {
        loop {
            let job = self.lock.with(|| {
                let job = if self.is_empty() { self.pop() } else { ptr::null() };
                self.jobs.set(self.jobs.get() - usize::from(!job.is_null()));
                job
            });
            // SAFETY: the goroutine or thread that pushed the job is parked until it is made ready,
            // and the job is on its stack.
            let Some(job) = (unsafe { job.as_ref() }) else { return };
            // SAFETY: the job is out of the queue, so this thread alone has it.
            unsafe { Waiter::ready(job.waiter.get(), When::Soon) };
        }
    }

    /// Starts one more thread, if the limits allow it.
    fn start_one(&self, rt: &Runtime) {
        let allowed = self.lock.with(|| {
            let threads = self.count();
            let allowed = threads < LIMIT
                && rt.has_room_for_worker(threads)
                // Room for each thread, this one included, and for the thread that `reap` is
                // joining.
                && self.with_left(|left| heap::reserve(left, threads + 2));
            self.count.fetch_add(usize::from(allowed), Ordering::SeqCst);
            allowed
        });
        if !allowed {
            return;
        }
        // The thread puts itself on the list when it leaves, so that it gets joined.
        let this = ptr::from_ref(self).cast_mut().cast();
        if Thread::start(main, this).is_err() {
            self.lock.with(|| self.count.fetch_sub(1, Ordering::SeqCst));
            self.give_back();
        }
    }

    /// Appends a job. Called with the lock held.
    fn push(&self, job: *const Job) {
        self.jobs.set(self.jobs.get() + 1);
        let last = self.last.replace(job);
        // SAFETY: the owner of a queued job is parked until the job is done.
        match unsafe { last.as_ref() } {
            Some(last) => last.next.set(job),
            None => self.first.set(job),
        }
    }

    /// Takes the oldest job; null: there is none. Called with the lock held.
    fn pop(&self) -> *const Job {
        let job = self.first.get();
        // SAFETY: as in `push`.
        if let Some(j) = unsafe { job.as_ref() } {
            self.first.set(j.next.get());
            if j.next.get().is_null() {
                self.last.set(ptr::null());
            }
        }
        job
    }

    /// Unlocks the pool and wakes a thread, once the goroutine that has pushed a job is parked.
    ///
    /// # Safety
    /// `this` is the address of a pool whose lock the caller holds.
    unsafe fn release(this: usize) {
        // SAFETY: the address of a pool, which lives as long as the runtime.
        let this = unsafe { &*(this as *const Workers) };
        let wakes = this.asleep.load(Ordering::Relaxed) > 0;
        if wakes {
            this.asleep.fetch_sub(1, Ordering::SeqCst);
        }
        // SAFETY: the caller holds the lock.
        unsafe { this.lock.unlock() };
        if wakes {
            this.permit(1);
        }
    }

    /// Makes the threads leave, and waits until none uses the pool. No goroutine is left.
    pub fn stop(&self) {
        self.lock.with(|| self.stopping.set(true));
        self.permit(LIMIT as u32);
        let mut round = 0;
        // With the lock: a leaving thread uses no part of the pool after it.
        while !self.lock.with(|| self.is_empty()) {
            backoff(round);
            round += 1;
        }
    }

    /// Waits for a job, and returns it. Null: the thread has left, and must not use the pool once
    /// it has released the lock. True: more jobs wait, and no other thread is there for them. The
    /// lock is held before and after.
    ///
    /// # Safety
    /// The caller holds the lock.
    unsafe fn next(&self) -> (*const Job, bool) {
        loop {
            let job = self.pop();
            let is_surplus = job.is_null() && self.surplus.get() > 0;
            if is_surplus {
                self.surplus.set(self.surplus.get() - 1);
            }
            let leaves = is_surplus || job.is_null() && self.stopping.get();
            if leaves {
                self.count.fetch_sub(1, Ordering::SeqCst);
                self.with_left(|left| left.push(Thread::current()));
            }
            if !job.is_null() || leaves {
                let more = !self.first.get().is_null();
                return (job, more && self.asleep.load(Ordering::Relaxed) == 0);
            }
            self.asleep.fetch_add(1, Ordering::SeqCst);
            // SAFETY: the caller holds the lock, and each round locks it again.
            unsafe { self.lock.unlock() };
            self.take_permit();
            self.lock.lock();
        }
    }

    fn take_permit(&self) {
        let less = |n: u32| n.checked_sub(1);
        // Acquire: pairs with the Release in `permit`.
        while self.permits.fetch_update(Ordering::Acquire, Ordering::Relaxed, less).is_err() {
            futex::wait(&self.permits, 0, -1);
        }
    }
}

extern "C" fn main(workers: *mut c_void) -> *mut c_void {
    thread::set_up_current(c"gosched-disk");
    // SAFETY: the pool is the runtime's, which joins its threads before it goes.
    let this = unsafe { &*workers.cast::<Workers>().cast_const() };
    rt().unbind_thread();
    this.lock.lock();
    loop {
        // SAFETY: locked above, or at the end of the last round.
        let (job, more) = unsafe {
            let next = this.next();
            this.lock.unlock();
            next
        };
        // SAFETY: the goroutine or thread that pushed the job is parked until it is made ready, and
        // the job is on its stack.
        let Some(j) = (unsafe { job.as_ref() }) else { return ptr::null_mut() };
        if more {
            this.start_one(rt());
        }
        // SAFETY: `run` belongs to this job.
        unsafe { (j.run)(job) };
        let waiter = j.waiter.get();
        // Counted down before the owner goes on and pushes its next job.
        this.lock.with(|| this.jobs.set(this.jobs.get() - 1));
        // SAFETY: this thread alone has the waiter. The job is not used after this.
        unsafe { Waiter::ready(waiter, When::Soon) };
        this.lock.lock();
    }
}
