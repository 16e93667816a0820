//! Locks and other meeting points. Each is a state with queues of waiters, which sleep on a semaphore of the
//! library.

use crate::errors;
use crate::ffi::*;
use crate::park::{self, Ended, Timeout};
use crate::shared::Shared;
use crate::worker;
use pyo3::exceptions::PyOverflowError;
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
    sem: gs_sem,
}

impl Waiters {
    const fn new() -> Waiters {
        Waiters { count: 0, woken: 0, sem: gs_sem::new() }
    }

    /// How many wait and have not been woken.
    fn waiting(&self) -> u32 {
        self.count - self.woken
    }
}

struct Queued<S, const N: usize> {
    state: S,
    queues: [Waiters; N],
    /// The `FORKS` for which that is true.
    forks: u32,
}

/// A state, and `N` queues of goroutines and threads that wait for it to change. Each queue is first come,
/// first served.
pub struct Queues<S, const N: usize>(Shared<Queued<S, N>>);

/// One queue.
pub type Queue<S> = Queues<S, 1>;

impl<S, const N: usize> Queues<S, N> {
    pub const fn new(state: S) -> Queues<S, N> {
        Queues(Shared::new(Queued { state, queues: [const { Waiters::new() }; N], forks: 0 }))
    }

    #[inline(always)]
    fn queued<R>(&self, py: Python<'_>, f: impl FnOnce(&mut Queued<S, N>) -> R) -> R {
        self.0.with(py, |q| {
            let forks = forks();
            if q.forks != forks {
                (q.queues, q.forks) = ([const { Waiters::new() }; N], forks);
            }
            f(q)
        })
    }

    /// Calls `f` with the state and how many wait in each queue.
    #[inline(always)]
    pub fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&mut S, [u32; N]) -> R) -> R {
        self.queued(py, |q| f(&mut q.state, q.queues.each_ref().map(Waiters::waiting)))
    }

    /// Calls `f` with the state, for the collector: see `Shared::with_thread`.
    pub fn with_thread<R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        self.0.with_thread(|q| f(&mut q.state))
    }

    /// Returns at once if `ready`, called as by `with`, gives true. Otherwise the caller waits in queue
    /// number `at` until it is woken. `Ok(false)`: the time is up. `Err((e, woken))`: an exception ended the
    /// wait; `woken` says that the caller was also woken, and has to pass the wake-up on.
    #[inline(always)]
    pub fn wait(
        &self,
        py: Python<'_>,
        at: usize,
        timeout: Timeout,
        ready: impl Fn(&mut S, [u32; N]) -> bool,
    ) -> Result<bool, (PyErr, bool)> {
        if self.with(py, &ready) { Ok(true) } else { self.wait_in(py, at, timeout, ready) }
    }

    fn wait_in(
        &self,
        py: Python<'_>,
        at: usize,
        timeout: Timeout,
        ready: impl Fn(&mut S, [u32; N]) -> bool,
    ) -> Result<bool, (PyErr, bool)> {
        if let Err(e) = worker::ensure(py) {
            return Err((e, false));
        }
        if timeout == Timeout::Never {
            // A caller that polls in a loop must give way now and then.
            park::checkpoint(py);
            return Ok(false);
        }
        self.wait_by(py, at, ready, |sem| park::wait(py, timeout, |d| acquire(sem, d)))
    }

    /// As `wait` without a limit, by `park::wait_through`.
    fn wait_through(
        &self,
        py: Python<'_>,
        at: usize,
        may_end: bool,
        ready: impl Fn(&mut S, [u32; N]) -> bool,
    ) -> Result<bool, (PyErr, bool)> {
        if self.with(py, &ready) {
            return Ok(true);
        }
        self.wait_by(py, at, ready, |sem| park::wait_through(py, may_end, |d| acquire(sem, d)))
    }

    /// `park` waits for a unit of the semaphore with that address.
    #[inline(always)]
    fn wait_by(
        &self,
        py: Python<'_>,
        at: usize,
        ready: impl Fn(&mut S, [u32; N]) -> bool,
        park: impl FnOnce(usize) -> PyResult<Ended>,
    ) -> Result<bool, (PyErr, bool)> {
        // Checks once more: the state may be ready by now. From here on a thread that makes it ready sees
        // this waiter.
        let sem = self.queued(py, |q| {
            if ready(&mut q.state, q.queues.each_ref().map(Waiters::waiting)) {
                return None;
            }
            q.queues[at].count += 1;
            Some(&raw mut q.queues[at].sem as usize)
        });
        let Some(sem) = sem else { return Ok(true) };
        let ended = park(sem);
        let is_woken = matches!(ended, Ok(Ended::With(0)));
        let take = self.queued(py, |q| {
            let w = &mut q.queues[at];
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
            // The waker may not have released the semaphore yet.
            // SAFETY: on this goroutine, around the call.
            park::call(py, || unsafe {
                gs_cancel_disable();
                acquire(sem, GS_FOREVER);
                gs_cancel_enable();
            });
        }
        match ended {
            Err(e) => Err((e, take)),
            Ok(_) => Ok(is_woken || take),
        }
    }

    /// Calls `f` as `with`, and wakes as many of each queue as it says: at most as many as wait there.
    pub fn wake(&self, py: Python<'_>, f: impl FnOnce(&mut S, [u32; N]) -> [u32; N]) {
        let woken = self.queued(py, |q| {
            let n = f(&mut q.state, q.queues.each_ref().map(Waiters::waiting));
            let mut woken = [(0, 0); N];
            for (i, w) in q.queues.iter_mut().enumerate() {
                w.woken += n[i];
                woken[i] = (n[i], &raw mut w.sem as usize);
            }
            woken
        });
        if woken.iter().any(|(n, _)| *n > 0) {
            park::call(py, || {
                for (n, sem) in woken.into_iter().filter(|(n, _)| *n > 0) {
                    // SAFETY: as in `acquire`.
                    unsafe { gs_sem_release(sem as *mut gs_sem, i64::from(n)) };
                }
            });
        }
    }

    /// Sets the state and forgets all waiters: see `_at_fork_reinit` of locks.
    fn reset(&self, py: Python<'_>, state: S) {
        self.queued(py, |q| {
            q.state = state;
            for w in &mut q.queues {
                // Waiters of this process are on the semaphore's list, and stay there.
                if w.count == 0 {
                    *w = Waiters::new();
                }
            }
        });
    }
}

/// Waits for a unit of a queue's semaphore until that time.
#[inline(always)]
fn acquire(sem: usize, deadline: i64) -> i32 {
    // SAFETY: the object that has the queue is kept by the frame of the caller that waits.
    unsafe { gs_sem_acquire(sem as *mut gs_sem, 1, deadline) }
}

/// Python's own locks take any number, and older programs say `acquire(0)`.
pub fn truth(blocking: &Bound<'_, PyAny>) -> PyResult<bool> {
    blocking.is_truthy()
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
        return Err(PyOverflowError::new_err("timeout value is too large"));
    }
    Timeout::after((timeout != -1.0).then_some(timeout))
}

/// The longest timeout that `threading` takes, in seconds: `threading.TIMEOUT_MAX`.
const TIMEOUT_MAX: f64 = 9223372036.0;

// The classes here take any arguments in `__new__`, and check them in `__init__`: that of a subclass may have others.

/// A lock, as threading.Lock: any goroutine or thread may release it.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct Lock {
    /// Whether a goroutine or thread has it.
    queue: Queue<bool>,
    kind: Kind,
}

/// What happens if an exception is thrown at a goroutine that waits for a lock.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// It ends the wait.
    Usual,
    /// It ends the wait, unless the lock was handed to the goroutine at the same time: then the goroutine has the
    /// lock, and the exception is for its next wait. See `_waiter_lock`.
    Waiter,
    /// It is for the next wait, but for what ends the program. See `_inner_lock`.
    Inner,
}

/// Locks it if it is unlocked. Whether it has.
#[inline(always)]
fn take_lock(is_locked: &mut bool, _waiting: [u32; 1]) -> bool {
    !std::mem::replace(is_locked, true)
}

impl Lock {
    fn unlocked(kind: Kind) -> Lock {
        Lock { queue: Queue::new(false), kind }
    }

    fn take(&self, py: Python<'_>, timeout: Timeout) -> PyResult<bool> {
        if self.kind == Kind::Inner && timeout == Timeout::Forever {
            return self.take_through(py, true).map(|()| true);
        }
        self.queue.wait(py, 0, timeout, take_lock).or_else(|(e, was_given)| {
            if was_given {
                if self.kind == Kind::Waiter
                    && let Some(me) = worker::current(py)
                {
                    me.put_back(py, e);
                    return Ok(true);
                }
                self.give(py);
            }
            Err(e)
        })
    }

    /// Takes it, whatever is thrown at the goroutine meanwhile, by `park::wait_through`.
    fn take_through(&self, py: Python<'_>, may_end: bool) -> PyResult<()> {
        self.queue.wait_through(py, 0, may_end, take_lock).map(|_| ()).map_err(|(e, was_given)| {
            if was_given {
                self.give(py);
            }
            e
        })
    }

    /// Hands the lock over to the first that waits, or unlocks it.
    fn give(&self, py: Python<'_>) {
        self.queue.wake(py, |is_locked, [waiting]| {
            *is_locked = waiting > 0;
            [waiting.min(1)]
        });
    }

    /// Takes it if it is free. Whether it has.
    #[inline(always)]
    pub fn take_now(&self, py: Python<'_>) -> bool {
        self.queue.with(py, take_lock)
    }

    /// Unlocks it if it is locked and nothing waits for it. Whether it has.
    #[inline(always)]
    pub fn give_now(&self, py: Python<'_>) -> bool {
        self.queue
            .with(py, |is_locked, [waiting]| waiting == 0 && std::mem::replace(is_locked, false))
    }

    fn release_it(&self, py: Python<'_>) -> PyResult<()> {
        if !self.queue.with(py, |is_locked, _| *is_locked) {
            return Err(errors::runtime("release unlocked lock"));
        }
        self.give(py);
        Ok(())
    }
}

#[pymethods]
impl Lock {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Lock {
        Lock::unlocked(Kind::Usual)
    }

    fn __init__(&self) {}

    /// Takes the lock; waits for it if blocking, at most timeout seconds (-1: for ever). Whether it is held.
    #[pyo3(signature = (blocking=true, timeout=-1.0))]
    fn acquire(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = truth)] blocking: bool,
        timeout: f64,
    ) -> PyResult<bool> {
        self.take(py, lock_timeout(blocking, timeout)?)
    }

    #[pyo3(signature = (blocking=true, timeout=-1.0))]
    fn acquire_lock(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = truth)] blocking: bool,
        timeout: f64,
    ) -> PyResult<bool> {
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
        self.queue.with(py, |is_locked, _| *is_locked)
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

    // What a Condition asks for. Its caller holds the lock again when a wait ends, even if that raises an exception.
    // There is no `_is_owned`: the try to acquire the lock, in its place, gives way now and then. Code that polls a queue
    // relies on it.

    fn _release_save(&self, py: Python<'_>) -> PyResult<()> {
        self.release_it(py)
    }

    fn _acquire_restore(&self, py: Python<'_>, _state: &Bound<'_, PyAny>) -> PyResult<()> {
        self.take_through(py, false)?;
        park::raise_end(py)
    }

    fn _at_fork_reinit(&self, py: Python<'_>) {
        self.queue.reset(py, false);
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let kind = slf.get_type().fully_qualified_name()?;
        let state = if slf.get().locked(slf.py()) { "locked" } else { "unlocked" };
        Ok(format!("<{state} {kind} object at {:#x}>", slf.as_ptr() as usize))
    }
}

/// For Condition, of threading: what a wait takes a second time until a notification releases it. The wait has that
/// notification even if the goroutine is cancelled at the same time, as no other waiter gets it.
#[pyfunction]
pub fn _waiter_lock() -> Lock {
    Lock::unlocked(Kind::Waiter)
}

/// A lock within an object, for calls that wait for nothing but that: no cancel and no Timeout ends the wait for it. What
/// ends the program does in the main goroutine, as in a main thread.
#[pyfunction]
pub fn _inner_lock() -> Lock {
    Lock::unlocked(Kind::Inner)
}

/// As `_inner_lock`, an RLock.
#[pyfunction]
pub fn _inner_rlock() -> RLock {
    RLock::free(Kind::Inner)
}

/// A lock that its owner, a goroutine or thread, may take again, as threading.RLock.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct RLock {
    /// The owner, 0 for none, and how often it has taken the lock.
    held: Shared<(u64, u64)>,
    lock: Lock,
}

impl RLock {
    fn free(kind: Kind) -> RLock {
        RLock { held: Shared::new((0, 0)), lock: Lock::unlocked(kind) }
    }

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
            if h.0 != me || h.1 == 0 {
                return false;
            }
            if h.1 > 1 {
                h.1 -= 1;
                return true;
            }
            // The next owner writes its name here when `held` is free again.
            let is_given = self.lock.give_now(py);
            if is_given {
                *h = (0, 0);
            }
            is_given
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
        RLock::free(Kind::Usual)
    }

    /// Takes the lock; waits for it if blocking, at most timeout seconds (-1: for ever). Whether it is held.
    #[pyo3(signature = (blocking=true, timeout=-1.0))]
    fn acquire(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = truth)] blocking: bool,
        timeout: f64,
    ) -> PyResult<bool> {
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
        self.lock.take_through(py, false)?;
        self.held.with(py, |h| *h = (state.1, state.0));
        park::raise_end(py)
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
    /// How many units are free.
    queue: Queue<i64>,
}

/// Takes a unit if there is one. Whether it has.
#[inline(always)]
fn take_unit(units: &mut i64, _waiting: [u32; 1]) -> bool {
    let is_free = *units > 0;
    *units -= i64::from(is_free);
    is_free
}

impl Semaphore {
    /// Takes a unit if there is one. Whether it has.
    #[inline(always)]
    pub fn take_now(&self, py: Python<'_>) -> bool {
        self.queue.with(py, take_unit)
    }

    /// Gives a unit back if nothing waits for it. Whether it has.
    #[inline(always)]
    pub fn give_now(&self, py: Python<'_>) -> bool {
        self.queue.with(py, |units, [waiting]| {
            let unwanted = waiting == 0 && *units < i64::MAX;
            *units += i64::from(unwanted);
            unwanted
        })
    }

    fn take(&self, py: Python<'_>, timeout: Timeout) -> PyResult<bool> {
        self.queue.wait(py, 0, timeout, take_unit).map_err(|(e, was_given)| {
            match was_given.then(|| self.give(py, 1)) {
                Some(Err(too_many)) => too_many,
                _ => e,
            }
        })
    }

    fn give(&self, py: Python<'_>, n: u32) -> PyResult<()> {
        let mut is_too_many = false;
        self.queue.wake(py, |units, [waiting]| {
            let woken = waiting.min(n);
            let now = units.checked_add(i64::from(n - woken));
            is_too_many = now.is_none();
            *units = now.unwrap_or(*units);
            [if is_too_many { 0 } else { woken }]
        });
        if is_too_many {
            return Err(PyOverflowError::new_err("the semaphore has too many units"));
        }
        Ok(())
    }
}

#[pymethods]
impl Semaphore {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Semaphore {
        Semaphore { queue: Queue::new(1) }
    }

    #[pyo3(signature = (value=1))]
    fn __init__(&self, py: Python<'_>, value: i64) -> PyResult<()> {
        if value < 0 {
            return Err(errors::value("semaphore initial value must be >= 0"));
        }
        self.queue.with(py, |units, _| *units = value);
        Ok(())
    }

    /// Takes one unit; waits for it if blocking, at most timeout seconds. Whether it has one.
    #[pyo3(signature = (blocking=true, timeout=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = truth)] blocking: bool,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        if !blocking && timeout.is_some() {
            return Err(errors::value("can't specify timeout for non-blocking acquire"));
        }
        let timeout = if blocking { Timeout::after(timeout)? } else { Timeout::Never };
        self.take(py, timeout)
    }

    /// Gives n units back. OverflowError: the semaphore would have 2**63 units or more.
    #[pyo3(signature = (n=1))]
    fn release(&self, py: Python<'_>, n: i64) -> PyResult<()> {
        let n = match u32::try_from(n) {
            Ok(n) if n > 0 => n,
            Err(_) if n > 0 => return Err(errors::value("n is too large")),
            _ => return Err(errors::value("n must be one or more")),
        };
        self.give(py, n)
    }

    /// How many units are free.
    #[getter]
    fn value(&self, py: Python<'_>) -> i64 {
        self.queue.with(py, |units, _| *units)
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<bool> {
        self.take(py, Timeout::Forever)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.give(py, 1)
    }
}

/// A flag that goroutines wait for.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct Event {
    queue: Queue<bool>,
}

#[pymethods]
impl Event {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Event {
        Event { queue: Queue::new(false) }
    }

    fn __init__(&self) {}

    /// Whether it is set.
    fn is_set(&self, py: Python<'_>) -> bool {
        self.queue.with(py, |is_set, _| *is_set)
    }

    /// Sets it: all that wait go on.
    fn set(&self, py: Python<'_>) {
        self.queue.wake(py, |is_set, waiting| {
            *is_set = true;
            waiting
        });
    }

    /// Resets it.
    fn clear(&self, py: Python<'_>) {
        self.queue.with(py, |is_set, _| *is_set = false);
    }

    /// Waits until it is set, at most timeout seconds. Whether it was.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        if self.is_set(py) {
            return Ok(true);
        }
        let ended = self.queue.wait(py, 0, Timeout::after(timeout)?, |is_set, _| *is_set);
        ended.map_err(|(e, _)| e)
    }
}

/// Waits for a number of goroutines, as sync.WaitGroup.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct WaitGroup {
    queue: Queue<i64>,
}

#[pymethods]
impl WaitGroup {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> WaitGroup {
        WaitGroup { queue: Queue::new(0) }
    }

    fn __init__(&self) {}

    /// Adds n, which may be negative, to the counter. ValueError: it would be below 0.
    #[pyo3(signature = (n=1))]
    fn add(&self, py: Python<'_>, n: i64) -> PyResult<()> {
        let mut is_wrong = false;
        self.queue.wake(py, |count, [waiting]| {
            let now = count.checked_add(n).filter(|now| *now >= 0);
            is_wrong = now.is_none();
            *count = now.unwrap_or(*count);
            [if now == Some(0) { waiting } else { 0 }]
        });
        if is_wrong {
            return Err(errors::value("the counter of a WaitGroup can't be negative"));
        }
        Ok(())
    }

    /// Takes one from the counter.
    fn done(&self, py: Python<'_>) -> PyResult<()> {
        self.add(py, -1)
    }

    /// Waits until the counter is 0, at most timeout seconds. Whether it was.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        if self.count(py) == 0 {
            return Ok(true);
        }
        let ended = self.queue.wait(py, 0, Timeout::after(timeout)?, |count, _| *count == 0);
        ended.map_err(|(e, _)| e)
    }

    /// The counter.
    #[getter]
    fn count(&self, py: Python<'_>) -> i64 {
        self.queue.with(py, |count, _| *count)
    }
}

/// A lock for many readers or one writer. New readers wait while a writer waits.
#[pyclass(frozen, weakref, subclass, module = "gosched")]
pub struct RWMutex {
    /// How many readers have it, -1: a writer has it. The queues are `READERS` and `WRITERS`.
    queues: Queues<i64, 2>,
}

const READERS: usize = 0;
const WRITERS: usize = 1;

/// How many readers and writers may go on; they have it from here on. After a writer the readers first, so that
/// neither waits for ever.
fn pass_on(held: &mut i64, [readers, writers]: [u32; 2], after_writer: bool) -> [u32; 2] {
    if *held == 0 && writers > 0 && !(after_writer && readers > 0) {
        *held = -1;
        [0, 1]
    } else if *held >= 0 && readers > 0 && (after_writer || writers == 0) {
        *held += i64::from(readers);
        [readers, 0]
    } else {
        [0, 0]
    }
}

#[pymethods]
impl RWMutex {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> RWMutex {
        RWMutex { queues: Queues::new(0) }
    }

    fn __init__(&self) {}

    /// Takes it for writing; waits at most timeout seconds. Whether it is held.
    #[pyo3(signature = (timeout=None))]
    fn lock(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = Timeout::after(timeout)?;
        let free = |held: &mut i64, _| {
            let free = *held == 0;
            if free {
                *held = -1;
            }
            free
        };
        let result = self.queues.wait(py, WRITERS, timeout, free);
        // Readers that waited for this writer need not any more.
        let give_up = || self.queues.wake(py, |held, waiting| pass_on(held, waiting, false));
        match result {
            Ok(true) => Ok(true),
            Ok(false) => {
                give_up();
                Ok(false)
            }
            Err((e, true)) => {
                self.unlock(py)?;
                Err(e)
            }
            Err((e, false)) => {
                give_up();
                Err(e)
            }
        }
    }

    /// Gives it back. RuntimeError: no writer has it.
    fn unlock(&self, py: Python<'_>) -> PyResult<()> {
        let mut was_held = false;
        self.queues.wake(py, |held, waiting| {
            was_held = *held == -1;
            if !was_held {
                return [0, 0];
            }
            *held = 0;
            pass_on(held, waiting, true)
        });
        if !was_held {
            return Err(errors::runtime("unlock of an RWMutex that no writer has"));
        }
        Ok(())
    }

    /// Takes it for reading; waits at most timeout seconds. Whether it is held.
    #[pyo3(signature = (timeout=None))]
    fn rlock(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = Timeout::after(timeout)?;
        let free = |held: &mut i64, waiting: [u32; 2]| {
            let free = *held >= 0 && waiting[WRITERS] == 0;
            *held += i64::from(free);
            free
        };
        self.queues.wait(py, READERS, timeout, free).map_err(|(e, was_given)| {
            if was_given {
                let _ = self.runlock(py);
            }
            e
        })
    }

    /// Gives it back. RuntimeError: no reader has it.
    fn runlock(&self, py: Python<'_>) -> PyResult<()> {
        let mut was_held = false;
        self.queues.wake(py, |held, waiting| {
            was_held = *held > 0;
            if !was_held {
                return [0, 0];
            }
            *held -= 1;
            pass_on(held, waiting, false)
        });
        if !was_held {
            return Err(errors::runtime("runlock of an RWMutex that no reader has"));
        }
        Ok(())
    }
}
