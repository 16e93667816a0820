"""Structured concurrency: a Group leaves no goroutine behind."""

import sys as _sys

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
        self._alive.add(goroutine)
        self._empty.clear()
        goroutine.add_done_callback(self._ended)
        return goroutine

    def cancel(self):
        """Cancels all goroutines of the group; the block goes on."""
        self._cancelled = True
        for goroutine in list(self._alive):
            goroutine.cancel()

    def _ended(self, goroutine):
        self._alive.discard(goroutine)
        error = goroutine.exception()
        if error is not None and not goroutine.cancelled() and not isinstance(error, SystemExit):
            self._errors.append(error)
            if not self._cancelled:
                self.cancel()
                # The block may wait for something else than the group.
                if not self._over and self._owner is not None and self._owner is not current():
                    self._interrupted = Cancelled("a goroutine of the group has failed")
                    self._owner.throw(self._interrupted)
        if not self._alive:
            self._empty.set()

    _interrupted = None

    def __enter__(self):
        if self._owner is not None:
            raise RuntimeError("the group was entered before")
        self._owner = current() or _NoGoroutine()
        return self

    def __exit__(self, kind, error, traceback):
        self._over = True
        thrown = None
        if error is not None and error is not self._interrupted:
            thrown = error
            self.cancel()
        while self._alive:
            try:
                self._empty.wait()
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


class _NoGoroutine:
    """The owner of a group on a thread that runs no goroutines: nothing can be thrown there."""

    def throw(self, error):
        return False

    _take_back = throw
