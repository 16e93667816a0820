//! Threads for calls that keep a thread for a while and do nothing else: reads and writes of disks. The goroutine that
//! wants such a call parks, so the call costs its P nothing, and no P changes hands. `WORKERS.md` states the protocol.

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

/// The pool. Its threads are started when they are first needed, and end with the
/// runtime.
pub struct Workers {
    pub lock: SpinLock,
    /// How many threads sleep for want of a job. Changes with the lock held.
    pub asleep: AtomicUsize,
    /// How many threads are being started, or have been started and not left. Changes with the lock held.
    pub count: AtomicUsize,
    /// How many sleepers may wake.
    pub permits: AtomicU32,

    // The rest is used with the lock held.
    /// Jobs that wait for a thread, the oldest first.
    pub first: Cell<*const Job>,
    pub last: Cell<*const Job>,
    /// How many jobs wait or are under way.
    pub jobs: Cell<usize>,
    /// How many of the sleeping threads must leave.
    pub surplus: Cell<usize>,
    pub stopping: Cell<bool>,
    /// Threads that have left and must be joined. Has room for all threads that there are.
    left: UnsafeCell<Vec<Thread>>,
}

// SAFETY: the cells are used only with `lock` held, or in `release` by the context to which the lock was handed.
unsafe impl Sync for Workers {}

/// A call, on the stack of the goroutine that waits for it.
pub struct Job {
    pub next: Cell<*const Job>,
    pub waiter: Cell<*const Waiter>,
    /// Makes the call.
    pub run: unsafe fn(*const Job),
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

    /// How many threads there are, those included that are being started.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Threads that sleep, and have no permit.
    pub fn asleep(&self) -> usize {
        self.asleep.load(Ordering::SeqCst)
    }

    /// Whether no job is waiting or under way; a hint.
    pub fn is_unused(&self) -> bool {
        self.lock.with(|| self.jobs.get()) == 0
    }

    /// A thread is wanted for goroutines, and the limit is reached: one of the sleeping threads ends, if there is one.
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

    /// With the lock held: runs `f` with the threads that have left.
    pub fn with_left<R>(&self, f: impl FnOnce(&mut Vec<Thread>) -> R) -> R {
        // SAFETY: the lock is held, so no other thread uses the list, and `f` doesn't ask for it again.
        f(unsafe { &mut *self.left.get() })
    }

    /// Whether threads have left that are not joined yet.
    pub fn has_left_threads(&self) -> bool {
        self.lock.with(|| self.with_left(|left| !left.is_empty()))
    }

    /// Joins the threads that have left and ended. A thread that has left may take long to end: it runs destructors of
    /// thread-specific values, such as those of a resolver's plugin.
    pub fn reap(&self) {
        // Each thread once: threads that still run go to the end of the list.
        for _ in 0..self.lock.with(|| self.with_left(|left| left.len())) {
            let first = |left: &mut Vec<Thread>| (!left.is_empty()).then(|| left.remove(0));
            let Some(thread) = self.lock.with(|| self.with_left(first)) else { return };
            // Not with the lock held: joining a thread may wait for locks of the C library.
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

/// The largest number of threads in the pool.
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
    /// Lets a thread of the pool call `f`; the calling goroutine parks meanwhile. Gives `f` back if no thread can be
    /// had.
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
            // Starting a thread may wait for locks of the C library, whose owner may wait for a P. The first thread
            // starts the others.
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
        let waiter = block.waiter();
        call.job.waiter.set(&waiter);
        self.push((&raw const call).cast());
        // SAFETY: the lock is held, and `release` releases it.
        let _ = unsafe { block.park(Workers::release, ptr::from_ref(self) as usize) };
        // `Err`: the thread that the job waited for could not be started.
        call.f.take().map_or(Ok(call.result.get()), Err)
    }

    /// Whether there is no thread, nor a thread that is being started. With the lock held.
    fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Gives back the jobs that no thread will do.
    fn give_back(&self) {
        loop {
            let job = self.lock.with(|| {
                let job = if self.is_empty() { self.pop() } else { ptr::null() };
                self.jobs.set(self.jobs.get() - usize::from(!job.is_null()));
                job
            });
            // SAFETY: the goroutine or thread that pushed the job is parked until it is made ready, and the job is on its stack.
            let Some(job) = (unsafe { job.as_ref() }) else { return };
            // SAFETY: the caller alone has it, as it is out of the queue.
            unsafe { Waiter::ready(job.waiter.get(), When::Soon) };
        }
    }

    /// Starts one more thread, if the limits allow it.
    fn start_one(&self, rt: &Runtime) {
        let allowed = self.lock.with(|| {
            let threads = self.count();
            let allowed = threads < LIMIT
                && rt.has_room_for_worker(threads)
                // For each thread, this thread included, and for the thread that `reap` is joining.
                && self.with_left(|left| heap::reserve(left, threads + 2));
            self.count.fetch_add(usize::from(allowed), Ordering::SeqCst);
            allowed
        });
        if !allowed {
            return;
        }
        // The thread notes itself when it leaves, for the thread that joins it.
        let this = ptr::from_ref(self).cast_mut().cast();
        if Thread::start(main, this).is_err() {
            self.lock.with(|| self.count.fetch_sub(1, Ordering::SeqCst));
            self.give_back();
        }
    }

    /// With the lock held.
    fn push(&self, job: *const Job) {
        self.jobs.set(self.jobs.get() + 1);
        let last = self.last.replace(job);
        // SAFETY: the owner of a queued job is parked until the job is done.
        match unsafe { last.as_ref() } {
            Some(last) => last.next.set(job),
            None => self.first.set(job),
        }
    }

    /// With the lock held.
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

    /// The goroutine that has pushed a job is parked: unlocks, and wakes a thread.
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
        // SAFETY: the caller holds it.
        unsafe { this.lock.unlock() };
        if wakes {
            this.permit(1);
        }
    }

    /// Makes the threads leave, and waits until none of them uses the pool; there are no goroutines any more.
    pub fn stop(&self) {
        self.lock.with(|| self.stopping.set(true));
        self.permit(LIMIT as u32);
        let mut round = 0;
        // With the lock, which is the last thing that a thread uses when it leaves.
        while !self.lock.with(|| self.is_empty()) {
            backoff(round);
            round += 1;
        }
    }

    /// Waits for a job. Null: the thread has left, and must not use the pool once it has released the lock. True: more
    /// jobs wait, and no other thread is there for them. With the lock held, before and after.
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
            // SAFETY: the caller holds it, and in later rounds this has locked it again.
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
        // SAFETY: locked above, or at the end of the former round.
        let (job, more) = unsafe {
            let next = this.next();
            this.lock.unlock();
            next
        };
        // SAFETY: the goroutine or thread that pushed the job is parked until it is made ready, and the job is on its stack.
        let Some(j) = (unsafe { job.as_ref() }) else { return ptr::null_mut() };
        if more {
            this.start_one(rt());
        }
        // SAFETY: `run` belongs to this job.
        unsafe { (j.run)(job) };
        let waiter = j.waiter.get();
        // Counted before the owner goes on and pushes its next job.
        this.lock.with(|| this.jobs.set(this.jobs.get() - 1));
        // SAFETY: this thread alone has the waiter. The job is gone after this.
        unsafe { Waiter::ready(waiter, When::Soon) };
        this.lock.lock();
    }
}
