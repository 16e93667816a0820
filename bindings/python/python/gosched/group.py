"""Structured concurrency: a Group leaves no goroutine behind."""

import sys as _sys

from . import _originals
from ._gosched import Cancelled, Event, current, go

if _sys.version_info >= (3, 11):
    _Errors = BaseExceptionGroup
else:
    _Errors = None


class Group:
    """Goroutines that end before the block does:

        with gosched.Group() as group:
            group.go(fetch, first)
            group.go(fetch, second)

    The end of the block waits for them. The first that fails, and an exception of the block itself, cancels
    the others. The exceptions of the goroutines are raised together as an ExceptionGroup, where Python has it
    (3.11 and later); before that the first is raised. A goroutine that was cancelled is no failure.
    """

    def __init__(self):
        # Guards the attributes against goroutines of other threads. On one thread a signal handler or a finalizer may
        # use the group in the middle of a section that holds the lock, so the lock is the thread's and nests.
        self._lock = _originals.RLockType()
        self._alive = set()
        self._errors = []
        self._empty = Event()
        self._cancelled = False
        self._owner = None
        self._over = False

    def go(self, fn, /, *args, **kwargs):
        """Starts fn(*args, **kwargs) as a goroutine of the group, and gives it. Goroutines of the group may do so
        as long as the block waits for them."""
        if self._owner is None or self._over and not self._alive:
            raise RuntimeError("the group is not entered, or is over")
        if self._cancelled:
            raise RuntimeError("the group is cancelled")
        goroutine = go(fn, *args, **kwargs)
        with self._lock:
            self._alive.add(goroutine)
            is_late = self._cancelled
        goroutine.add_done_callback(self._ended)
        if is_late:
            goroutine.cancel()
        return goroutine

    #: asyncio's name of go(). What it takes is a function with its arguments, not a coroutine.
    create_task = go

    def cancel(self):
        """Cancels all goroutines of the group; the block goes on."""
        with self._lock:
            self._cancelled = True
            alive = list(self._alive)
        for goroutine in alive:
            goroutine.cancel()

    def _ended(self, goroutine):
        error = goroutine.exception()
        if error is not None and not goroutine.cancelled() and not isinstance(error, SystemExit):
            interrupted = None
            with self._lock:
                self._errors.append(error)
                is_first = not self._cancelled
                self._cancelled = True
                # The block may wait for something else than the group.
                if is_first and not self._over and self._owner is not None and self._owner is not current():
                    interrupted = self._interrupted = Cancelled("a goroutine of the group has failed")
            if is_first:
                self.cancel()
            if interrupted is not None:
                self._owner.throw(interrupted)
        with self._lock:
            self._alive.discard(goroutine)
            is_last = not self._alive
        # The end of the block looks whether there are new ones.
        if is_last:
            self._empty.set()

    _interrupted = None

    def __enter__(self):
        if self._owner is not None:
            raise RuntimeError("the group was entered before")
        self._owner = current() or _NoGoroutine()
        return self

    def __exit__(self, kind, error, traceback):
        with self._lock:
            self._over = True
        thrown = None
        if error is not None and error is not self._interrupted:
            thrown = error
            self.cancel()
        while self._alive:
            try:
                self._empty.wait()
                self._empty.clear()
            except BaseException as e:
                if e is not self._interrupted:
                    thrown = thrown or e
                self.cancel()
        if self._interrupted is not None:
            self._owner._take_back(self._interrupted)
        errors, self._errors = self._errors, []
        if thrown is not None and not errors:
            if thrown is error:
                return False
            raise thrown
        if not errors:
            return error is self._interrupted and error is not None
        if thrown is not None and not isinstance(thrown, (Exception, Cancelled)):
            # A Timeout, a KeyboardInterrupt: for whom it is looks for it by itself.
            cause = errors[0] if _Errors is None else _Errors("goroutines of a group have failed", errors)
            if thrown is error:
                error.__cause__ = error.__cause__ or cause
                return False
            raise thrown from cause
        if _Errors is None:
            raise errors[0]
        if thrown is not None and not isinstance(thrown, Cancelled):
            errors.insert(0, thrown)
        raise _Errors("goroutines of a group have failed", errors) from None


#: asyncio's name of a group
TaskGroup = Group


class _NoGoroutine:
    """The owner of a group on a thread that runs no goroutines: nothing can be thrown there."""

    def throw(self, error):
        return False

    _take_back = throw
