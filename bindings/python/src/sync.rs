//! Locks and other meeting points. What they count the GIL guards; waiters sleep on a semaphore of the
//! library.

use crate::errors;
use crate::ffi::*;
use crate::park::{self, Ended, Timeout};
use crate::shared::Shared;
use crate::worker;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks this process descends from: waiters of a parent are none of its child's.
static FORKS: AtomicU32 = AtomicU32::new(0);

#[inline(always)]
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// In the child of a fork.
pub fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

struct Waiters {
    /// How many wait, or have been woken and have not entered Python yet.
    count: u32,
    /// How many of them have been woken.
    woken: u32,
    /// The `FORKS` for which that is true.
    forks: u32,
    sem: gs_sem,
}

/// Goroutines and threads that wait, in the order in which they came.
pub struct Queue(Shared<Waiters>);

impl Queue {
    pub const fn new() -> Queue {
        Queue(Shared::new(Waiters { count: 0, woken: 0, forks: 0, sem: gs_sem::new() }))
    }

    #[inline(always)]
    fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&mut Waiters) -> R) -> R {
        self.0.with(py, |w| {
            let forks = forks();
            if w.forks != forks {
                *w = Waiters { count: 0, woken: 0, forks, sem: gs_sem::new() };
            }
            f(w)
        })
    }

    /// Waits until it is woken. False: the time is up. With an exception: whether it has been woken all the
    /// same, and has to pass on what it was woken for.
    pub fn wait(&self, py: Python<'_>, timeout: Timeout) -> Result<bool, (PyErr, bool)> {
        if let Err(e) = worker::ensure(py) {
            return Err((e, false));
        }
        if timeout == Timeout::Never {
            // For those who try again and again.
            park::checkpoint(py);
            return Ok(false);
        }
        let sem = self.with(py, |w| {
            w.count += 1;
            &raw mut w.sem as usize
        });
        // SAFETY: the object that has the queue is kept by the caller's frame.
        let acquire = |d| unsafe { gs_sem_acquire(sem as *mut gs_sem, 1, d) };
        let ended = park::wait(py, timeout, acquire);
        let is_woken = matches!(ended, Ok(Ended::With(0)));
        let take = self.with(py, |w| {
            w.count -= 1;
            if is_woken {
                w.woken -= 1;
                return false;
            }
            // Woken between the end of the wait and now, when those that are woken outnumber the rest.
            let is_late = w.woken > w.count;
            if is_late {
                w.woken -= 1;
            }
            is_late
        });
        if take {
            park::call(py, || acquire(GS_FOREVER));
        }
        match ended {
            Err(e) => Err((e, take)),
            Ok(_) => Ok(is_woken || take),
        }
    }

    /// Wakes up to `n` that wait; gives how many.
    pub fn wake(&self, py: Python<'_>, n: u32) -> u32 {
        let (n, sem) = self.with(py, |w| {
            let n = n.min(w.count - w.woken);
            w.woken += n;
            (n, &raw mut w.sem as usize)
        });
        if n > 0 {
            // SAFETY: as in `wait`.
            park::call(py, || unsafe { gs_sem_release(sem as *mut gs_sem, n as i64) });
        }
        n
    }

    /// How many wait and have not been woken.
    pub fn len(&self, py: Python<'_>) -> u32 {
        self.with(py, |w| w.count - w.woken)
    }

    /// Forgets all waiters: see `_at_fork_reinit` of locks.
    fn reset(&self, py: Python<'_>) {
        self.with(py, |w| {
            // Waiters of this process are on the semaphore's list, and stay there.
            if w.count == 0 {
                (w.woken, w.sem) = (0, gs_sem::new());
            }
        });
    }
}

/// The timeout of an `acquire` as that of `threading`'s locks.
fn lock_timeout(blocking: bool, timeout: f64) -> PyResult<Timeout> {
    if !blocking {
        if timeout != -1.0 {
            return Err(errors::value("can't specify a timeout for a non-blocking call"));
        }
        return Ok(Timeout::Never);
    }
    if timeout < 0.0 && timeout != -1.0 {
        return Err(errors::value("timeout value must be a non-negative number"));
    }
    if timeout > TIMEOUT_MAX {
        return Err(pyo3::exceptions::PyOverflowError::new_err("timeout value is too large"));
    }
    Timeout::after((timeout != -1.0).then_some(timeout))
}

/// The longest timeout that `threading` takes, in seconds: `threading.TIMEOUT_MAX`.
const TIMEOUT_MAX: f64 = 9223372036.0;

/// A lock, as threading.Lock: any goroutine or thread may release it.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct Lock {
    is_locked: Shared<bool>,
    queue: Queue,
}

impl Lock {
    fn take(&self, py: Python<'_>, timeout: Timeout) -> PyResult<bool> {
        if self.take_now(py) {
            return Ok(true);
        }
        self.queue.wait(py, timeout).map_err(|(e, was_given)| {
            if was_given {
                self.give(py);
            }
            e
        })
    }

    /// Hands the lock over to the first that waits, or unlocks it.
    fn give(&self, py: Python<'_>) {
        // Before: whoever comes while others are woken must wait.
        if self.queue.len(py) == 0 {
            self.is_locked.with(py, |l| *l = false);
        } else {
            self.queue.wake(py, 1);
        }
    }

    /// Takes it if it is free. Whether it has.
    #[inline(always)]
    pub fn take_now(&self, py: Python<'_>) -> bool {
        !self.is_locked.with(py, |l| std::mem::replace(l, true))
    }

    /// Unlocks it if it is locked and nothing waits for it. Whether it has.
    #[inline(always)]
    pub fn give_now(&self, py: Python<'_>) -> bool {
        self.queue.len(py) == 0 && self.is_locked.with(py, |l| std::mem::replace(l, false))
    }

    fn release_it(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_locked.with(py, |l| *l) {
            return Err(errors::runtime("release unlocked lock"));
        }
        self.give(py);
        Ok(())
    }
}

#[pymethods]
impl Lock {
    #[new]
    fn new() -> Lock {
        Lock { is_locked: Shared::new(false), queue: Queue::new() }
    }

    /// Takes the lock; waits for it if blocking, at most timeout seconds (-1: for ever). Whether it is held.
    #[pyo3(signature = (blocking=true, timeout=-1.0))]
    fn acquire(&self, py: Python<'_>, blocking: bool, timeout: f64) -> PyResult<bool> {
        self.take(py, lock_timeout(blocking, timeout)?)
    }

    #[pyo3(signature = (blocking=true, timeout=-1.0))]
    fn acquire_lock(&self, py: Python<'_>, blocking: bool, timeout: f64) -> PyResult<bool> {
        self.acquire(py, blocking, timeout)
    }

    /// Gives the lock to the goroutine that has waited longest. RuntimeError: it isn't locked.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.release_it(py)
    }

    fn release_lock(&self, py: Python<'_>) -> PyResult<()> {
        self.release_it(py)
    }

    /// Takes the lock, for ever if need be.
    fn lock(&self, py: Python<'_>) -> PyResult<()> {
        self.take(py, Timeout::Forever).map(|_| ())
    }

    /// release().
    fn unlock(&self, py: Python<'_>) -> PyResult<()> {
        self.release_it(py)
    }

    /// Takes the lock if it is free. Whether the caller holds it now.
    fn try_lock(&self, py: Python<'_>) -> PyResult<bool> {
        self.take(py, Timeout::Never)
    }

    /// Whether it is held.
    fn locked(&self, py: Python<'_>) -> bool {
        self.is_locked.with(py, |l| *l)
    }

    fn locked_lock(&self, py: Python<'_>) -> bool {
        self.locked(py)
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<bool> {
        self.take(py, Timeout::Forever)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.release_it(py)
    }

    fn _at_fork_reinit(&self, py: Python<'_>) {
        self.queue.reset(py);
        self.is_locked.with(py, |l| *l = false);
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let kind = slf.get_type().fully_qualified_name()?;
        let state = if slf.get().locked(slf.py()) { "locked" } else { "unlocked" };
        Ok(format!("<{state} {kind} object at {:#x}>", slf.as_ptr() as usize))
    }
}

/// A lock that its owner, a goroutine or thread, may take again, as threading.RLock.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct RLock {
    /// The owner, 0 for none, and how often it has taken the lock.
    held: Shared<(u64, u64)>,
    lock: Lock,
}

impl RLock {
    /// Takes it if it is free or the caller's. Whether it has.
    #[inline(always)]
    pub fn take_now(&self, py: Python<'_>) -> bool {
        let me = crate::goroutine::get_ident(py);
        self.held.with(py, |h| {
            if h.0 == me && h.1 > 0 {
                h.1 += 1;
                return true;
            }
            let taken = self.lock.take_now(py);
            if taken {
                *h = (me, 1);
            }
            taken
        })
    }

    /// Gives it back once if it is the caller's and nothing waits for it. Whether it has.
    #[inline(always)]
    pub fn give_now(&self, py: Python<'_>) -> bool {
        let me = crate::goroutine::get_ident(py);
        self.held.with(py, |h| {
            if h.0 != me || h.1 == 0 || self.lock.queue.len(py) > 0 {
                return false;
            }
            h.1 -= 1;
            if h.1 == 0 {
                h.0 = 0;
                self.lock.give_now(py);
            }
            true
        })
    }

    fn take(&self, py: Python<'_>, timeout: Timeout) -> PyResult<bool> {
        if self.take_now(py) {
            return Ok(true);
        }
        let me = crate::goroutine::get_ident(py);
        let taken = self.lock.take(py, timeout)?;
        if taken {
            self.held.with(py, |h| *h = (me, 1));
        }
        Ok(taken)
    }

    fn give(&self, py: Python<'_>) -> PyResult<()> {
        let me = crate::goroutine::get_ident(py);
        let left = self.held.with(py, |h| {
            if h.0 != me || h.1 == 0 {
                return None;
            }
            h.1 -= 1;
            if h.1 == 0 {
                h.0 = 0;
            }
            Some(h.1)
        });
        match left {
            None => Err(errors::runtime("cannot release un-acquired lock")),
            Some(0) => self.lock.release_it(py),
            Some(_) => Ok(()),
        }
    }
}

#[pymethods]
impl RLock {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> RLock {
        RLock { held: Shared::new((0, 0)), lock: Lock::new() }
    }

    /// Takes the lock; waits for it if blocking, at most timeout seconds (-1: for ever). Whether it is held.
    #[pyo3(signature = (blocking=true, timeout=-1.0))]
    fn acquire(&self, py: Python<'_>, blocking: bool, timeout: f64) -> PyResult<bool> {
        self.take(py, lock_timeout(blocking, timeout)?)
    }

    /// Gives it back once. RuntimeError: the caller isn't the owner.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.give(py)
    }

    /// Whether it is held.
    fn locked(&self, py: Python<'_>) -> bool {
        self.held.with(py, |h| h.1 > 0)
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<bool> {
        self.take(py, Timeout::Forever)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.give(py)
    }

    fn _is_owned(&self, py: Python<'_>) -> bool {
        let me = crate::goroutine::get_ident(py);
        self.held.with(py, |h| h.0 == me && h.1 > 0)
    }

    fn _recursion_count(&self, py: Python<'_>) -> u64 {
        let me = crate::goroutine::get_ident(py);
        self.held.with(py, |h| if h.0 == me { h.1 } else { 0 })
    }

    fn _release_save(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let held = self.held.with(py, std::mem::take);
        if held.1 == 0 {
            return Err(errors::runtime("cannot release un-acquired lock"));
        }
        self.lock.release_it(py)?;
        Ok((held.1, held.0))
    }

    fn _acquire_restore(&self, py: Python<'_>, state: (u64, u64)) -> PyResult<()> {
        // A condition's caller holds the lock again, whatever was thrown at it meanwhile.
        let mut thrown = Ok(());
        while let Err(e) = self.lock.take(py, Timeout::Forever) {
            thrown = Err(e);
        }
        self.held.with(py, |h| *h = (state.1, state.0));
        thrown
    }

    fn _at_fork_reinit(&self, py: Python<'_>) {
        self.held.with(py, |h| *h = (0, 0));
        self.lock._at_fork_reinit(py);
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let kind = slf.get_type().fully_qualified_name()?;
        let (owner, count) = slf.get().held.with(slf.py(), |h| *h);
        let state = if count > 0 { "locked" } else { "unlocked" };
        let at = slf.as_ptr() as usize;
        Ok(format!("<{state} {kind} object owner={owner} count={count} at {at:#x}>"))
    }
}

/// A semaphore: a limited number of holders at a time.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct Semaphore {
    value: Shared<i64>,
    queue: Queue,
}

impl Semaphore {
    /// Takes a unit if there is one. Whether it has.
    #[inline(always)]
    pub fn take_now(&self, py: Python<'_>) -> bool {
        self.value.with(py, |v| {
            let free = *v > 0;
            *v -= i64::from(free);
            free
        })
    }

    /// Gives a unit back if nothing waits for it. Whether it has.
    #[inline(always)]
    pub fn give_now(&self, py: Python<'_>) -> bool {
        let unwanted = self.queue.len(py) == 0;
        self.value.with(py, |v| *v += i64::from(unwanted));
        unwanted
    }

    fn take(&self, py: Python<'_>, timeout: Timeout) -> PyResult<bool> {
        if self.take_now(py) {
            return Ok(true);
        }
        self.queue.wait(py, timeout).map_err(|(e, was_given)| {
            if was_given {
                self.give(py, 1);
            }
            e
        })
    }

    fn give(&self, py: Python<'_>, n: u32) {
        // What is left goes first: those that are woken run others when the GIL is away.
        let woken = self.queue.len(py).min(n);
        self.value.with(py, |v| *v += i64::from(n - woken));
        self.queue.wake(py, woken);
    }
}

#[pymethods]
impl Semaphore {
    #[new]
    #[pyo3(signature = (value=1))]
    fn new(value: i64) -> PyResult<Semaphore> {
        if value < 0 {
            return Err(errors::value("semaphore initial value must be >= 0"));
        }
        Ok(Semaphore { value: Shared::new(value), queue: Queue::new() })
    }

    /// Takes one unit; waits for it if blocking, at most timeout seconds. Whether it has one.
    #[pyo3(signature = (blocking=true, timeout=None))]
    fn acquire(&self, py: Python<'_>, blocking: bool, timeout: Option<f64>) -> PyResult<bool> {
        if !blocking && timeout.is_some() {
            return Err(errors::value("can't specify timeout for non-blocking acquire"));
        }
        let timeout = if blocking { Timeout::after(timeout)? } else { Timeout::Never };
        self.take(py, timeout)
    }

    /// Gives n units back.
    #[pyo3(signature = (n=1))]
    fn release(&self, py: Python<'_>, n: u32) -> PyResult<()> {
        if n < 1 {
            return Err(errors::value("n must be one or more"));
        }
        self.give(py, n);
        Ok(())
    }

    /// How many units are free.
    #[getter]
    fn value(&self, py: Python<'_>) -> i64 {
        self.value.with(py, |v| *v)
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<bool> {
        self.take(py, Timeout::Forever)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) {
        self.give(py, 1);
    }
}

/// A flag that goroutines wait for.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct Event {
    flag: Shared<bool>,
    queue: Queue,
}

#[pymethods]
impl Event {
    #[new]
    fn new() -> Event {
        Event { flag: Shared::new(false), queue: Queue::new() }
    }

    /// Whether it is set.
    fn is_set(&self, py: Python<'_>) -> bool {
        self.flag.with(py, |f| *f)
    }

    /// Sets it: all that wait go on.
    fn set(&self, py: Python<'_>) {
        self.flag.with(py, |f| *f = true);
        self.queue.wake(py, u32::MAX);
    }

    /// Resets it.
    fn clear(&self, py: Python<'_>) {
        self.flag.with(py, |f| *f = false);
    }

    /// Waits until it is set, at most timeout seconds. Whether it was.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        if self.is_set(py) {
            return Ok(true);
        }
        self.queue.wait(py, Timeout::after(timeout)?).map_err(|(e, _)| e)
    }
}

/// Waits for a number of goroutines, as sync.WaitGroup.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct WaitGroup {
    count: Shared<i64>,
    queue: Queue,
}

#[pymethods]
impl WaitGroup {
    #[new]
    fn new() -> WaitGroup {
        WaitGroup { count: Shared::new(0), queue: Queue::new() }
    }

    /// Adds n, which may be negative, to the counter. ValueError: it would be below 0.
    #[pyo3(signature = (n=1))]
    fn add(&self, py: Python<'_>, n: i64) -> PyResult<()> {
        let now = self.count.with(py, |c| {
            let now = c.checked_add(n).filter(|now| *now >= 0)?;
            *c = now;
            Some(now)
        });
        match now {
            None => Err(errors::value("the counter of a WaitGroup can't be negative")),
            Some(0) => {
                self.queue.wake(py, u32::MAX);
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }

    /// Takes one from the counter.
    fn done(&self, py: Python<'_>) -> PyResult<()> {
        self.add(py, -1)
    }

    /// Waits until the counter is 0, at most timeout seconds. Whether it was.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        if self.count.with(py, |c| *c) == 0 {
            return Ok(true);
        }
        self.queue.wait(py, Timeout::after(timeout)?).map_err(|(e, _)| e)
    }

    /// The counter.
    #[getter]
    fn count(&self, py: Python<'_>) -> i64 {
        self.count.with(py, |c| *c)
    }
}

/// A lock for many readers or one writer. New readers wait while a writer waits.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct RWMutex {
    /// Readers that have it; -1: a writer has it.
    held: Shared<i64>,
    readers: Queue,
    writers: Queue,
}

impl RWMutex {
    /// Lets those go on that may: after a writer the readers first, so that neither waits for ever.
    fn pass_on(&self, py: Python<'_>, after_writer: bool) {
        let (readers, writers) = (self.readers.len(py), self.writers.len(py));
        let held = self.held.with(py, |h| *h);
        if held == 0 && writers > 0 && !(after_writer && readers > 0) {
            self.held.with(py, |h| *h = -1);
            self.writers.wake(py, 1);
        } else if held >= 0 && readers > 0 && (after_writer || writers == 0) {
            self.held.with(py, |h| *h += i64::from(readers));
            self.readers.wake(py, readers);
        }
    }
}

#[pymethods]
impl RWMutex {
    #[new]
    fn new() -> RWMutex {
        RWMutex { held: Shared::new(0), readers: Queue::new(), writers: Queue::new() }
    }

    /// Takes it for writing; waits at most timeout seconds. Whether it is held.
    #[pyo3(signature = (timeout=None))]
    fn lock(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = Timeout::after(timeout)?;
        let free = self.held.with(py, |h| {
            let free = *h == 0;
            if free {
                *h = -1;
            }
            free
        });
        if free {
            return Ok(true);
        }
        let result = self.writers.wait(py, timeout);
        match result {
            Ok(true) => Ok(true),
            Ok(false) => {
                // Readers that waited for this writer need not any more.
                self.pass_on(py, false);
                Ok(false)
            }
            Err((e, true)) => {
                self.unlock(py)?;
                Err(e)
            }
            Err((e, false)) => {
                self.pass_on(py, false);
                Err(e)
            }
        }
    }

    /// Gives it back. RuntimeError: no writer has it.
    fn unlock(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.held.with(py, |h| {
            let held = *h == -1;
            if held {
                *h = 0;
            }
            held
        });
        if !held {
            return Err(errors::runtime("unlock of an RWMutex that no writer has"));
        }
        self.pass_on(py, true);
        Ok(())
    }

    /// Takes it for reading; waits at most timeout seconds. Whether it is held.
    #[pyo3(signature = (timeout=None))]
    fn rlock(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = Timeout::after(timeout)?;
        let waits = self.writers.len(py) > 0;
        let free = self.held.with(py, |h| {
            let free = *h >= 0 && !waits;
            *h += i64::from(free);
            free
        });
        if free {
            return Ok(true);
        }
        self.readers.wait(py, timeout).map_err(|(e, was_given)| {
            if was_given {
                let _ = self.runlock(py);
            }
            e
        })
    }

    /// Gives it back. RuntimeError: no reader has it.
    fn runlock(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.held.with(py, |h| {
            let held = *h > 0;
            *h -= i64::from(held);
            held
        });
        if !held {
            return Err(errors::runtime("runlock of an RWMutex that no reader has"));
        }
        self.pass_on(py, false);
        Ok(())
    }
}
