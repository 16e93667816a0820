//! M:N, stealing, with the queues of crossbeam-deque: the functions of `fibers.h`.
//!
//! As in `stealing_queue.c` the owner takes what it has put last and a thief what was put first. But the owner of a
//! `Worker` has only the new end. So a fiber that has yielded goes to an `Injector` that all threads share, from which a
//! thread takes a batch when its own queue is empty, and one fiber with each 61st turn.

use crossbeam_deque::{Injector, Steal, Stealer, Worker};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};

/// One decision in this number takes from the fibers that have yielded first.
const TURN: u32 = 61;
/// How often a thread looks for work before it goes to sleep.
const LOOKS: usize = 100;

/// A `struct task` of fibers.h.
#[derive(Clone, Copy)]
struct Task(*mut c_void);

// SAFETY: the thread that takes a task out of a queue is the only one that uses it.
unsafe impl Send for Task {}

/// A thread's own.
struct Own {
    queue: Worker<Task>,
    taken: Cell<u32>,
}

struct Queues {
    /// Each used by the thread of its number alone.
    own: Vec<Own>,
    stealers: Vec<Stealer<Task>>,
    yielded: Injector<Task>,
}

static QUEUES: AtomicPtr<Queues> = AtomicPtr::new(ptr::null_mut());

/// Threads that sleep and were not woken yet.
static SLEEPING: AtomicUsize = AtomicUsize::new(0);
static IDLE: Mutex<Idle> = Mutex::new(Idle { woken: 0, ended: false });
static FILLED: Condvar = Condvar::new();

struct Idle {
    woken: usize,
    ended: bool,
}

fn queues() -> &'static Queues {
    // SAFETY: the program calls the functions between `queue_open` and `queue_close`.
    unsafe { &*QUEUES.load(Ordering::Relaxed) }
}

fn idle() -> std::sync::MutexGuard<'static, Idle> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
extern "C" fn queue_open(workers: c_int) {
    let new = |_| Own { queue: Worker::new_lifo(), taken: Cell::new(0) };
    let own: Vec<_> = (0..workers).map(new).collect();
    let stealers = own.iter().map(|own| own.queue.stealer()).collect();
    let queues = Box::new(Queues { own, stealers, yielded: Injector::new() });
    QUEUES.store(Box::into_raw(queues), Ordering::Release);
    idle().ended = false;
}

#[unsafe(no_mangle)]
extern "C" fn queue_close(_workers: c_int) {
    // SAFETY: `queue_open` has made it, and the threads have ended.
    let queues = unsafe { Box::from_raw(QUEUES.swap(ptr::null_mut(), Ordering::Acquire)) };
    assert!(queues.own.iter().all(|own| own.queue.is_empty()) && queues.yielded.is_empty());
}

/// Wakes a thread for a task that was put into a queue, if one sleeps.
fn wake_one() {
    // Pairs with the fence in `queue_take`: either this thread sees the sleeper, or the sleeper sees the task.
    fence(Ordering::SeqCst);
    if SLEEPING.load(Ordering::Relaxed) > 0 {
        let mut idle = idle();
        if SLEEPING.load(Ordering::Relaxed) > 0 {
            SLEEPING.fetch_sub(1, Ordering::Relaxed);
            idle.woken += 1;
            FILLED.notify_one();
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn queue_put(worker: c_int, task: *mut c_void) {
    queues().own[worker as usize].queue.push(Task(task));
    wake_one();
}

#[unsafe(no_mangle)]
extern "C" fn queue_put_last(_worker: c_int, task: *mut c_void) {
    queues().yielded.push(Task(task));
    wake_one();
}

/// Steals until the answer is not to try again.
fn settled(steal: impl Fn() -> Steal<Task>) -> Option<Task> {
    loop {
        match steal() {
            Steal::Success(task) => return Some(task),
            Steal::Empty => return None,
            Steal::Retry => {}
        }
    }
}

fn take_or_steal(worker: usize) -> Option<Task> {
    let queues = queues();
    let own = &queues.own[worker];
    own.taken.set(own.taken.get().wrapping_add(1));
    let in_turn = own.taken.get().is_multiple_of(TURN);
    let first = if in_turn { settled(|| queues.yielded.steal()) } else { None };
    let n = queues.stealers.len();
    let others = || (1..n).map(|i| &queues.stealers[(worker + i) % n]);
    first
        .or_else(|| own.queue.pop())
        .or_else(|| settled(|| queues.yielded.steal_batch_and_pop(&own.queue)))
        .or_else(|| others().find_map(|victim| settled(|| victim.steal_batch_and_pop(&own.queue))))
}

#[unsafe(no_mangle)]
extern "C" fn queue_take(worker: c_int) -> *mut c_void {
    let worker = worker as usize;
    loop {
        if let Some(task) = (0..LOOKS).find_map(|_| take_or_steal(worker)) {
            return task.0;
        }
        let mut idle = idle();
        SLEEPING.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `wake_one`.
        fence(Ordering::SeqCst);
        let task = take_or_steal(worker);
        if task.is_none() {
            while idle.woken == 0 && !idle.ended {
                idle = FILLED.wait(idle).unwrap_or_else(PoisonError::into_inner);
            }
        }
        if task.is_none() && idle.woken > 0 {
            idle.woken -= 1;
        } else {
            SLEEPING.fetch_sub(1, Ordering::Relaxed);
        }
        if task.is_some() || idle.ended {
            return task.map_or(ptr::null_mut(), |task| task.0);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn queue_end() {
    idle().ended = true;
    FILLED.notify_all();
}
