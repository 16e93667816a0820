"""The locks that classes of the standard library make for themselves.

``threading`` is written for threads, at which nothing is thrown while they wait. What is here leaves an object of its
classes as it should be when a goroutine is cancelled.
"""

import types as _types

from . import _gosched
from . import _runtime


def _wait(self, timeout=None):
    if not self._is_owned():
        raise RuntimeError("cannot wait on un-acquired lock")
    waiter = self._gosched_waiter()
    waiter.acquire()
    self._waiters.append(waiter)
    saved_state = self._release_save()
    gotit = thrown = False
    try:
        if timeout is None:
            waiter.acquire()
            gotit = True
        elif timeout <= 0:
            gotit = waiter.acquire(False)
        else:
            gotit = waiter.acquire(True, timeout)  # which refuses a NaN
        return gotit
    except BaseException:
        thrown = True
        raise
    finally:
        try:
            self._acquire_restore(saved_state)
        except BaseException:
            thrown = True
            raise
        finally:
            is_notified = gotit
            if not gotit:
                try:
                    self._waiters.remove(waiter)
                except ValueError:
                    is_notified = True  # while it waited for the lock
            if is_notified and thrown and self._is_owned():
                # The caller doesn't go on: another waiter gets the notification.
                self.notify()


def _acquire_restore_by_acquire(self, state):
    # Of a Condition whose lock has no _acquire_restore(), such as a class of a program's own around another lock.
    thrown = None
    while True:
        try:
            self._lock.acquire()
        except (_gosched.Cancelled, _runtime.Timeout) as error:
            thrown = error
        else:
            break
    if thrown is not None:
        try:
            raise thrown
        finally:
            del thrown


def _acquire_restore(self, state):
    # Of the RLock that is written in Python.
    restore = getattr(self._block, "_acquire_restore", None)
    if restore is None:
        self._block.acquire()  # the interpreter's, made before threading was patched
        self._count, self._owner = state
        return
    try:
        restore(None)
    finally:
        self._count, self._owner = state


def adapt_threading(threading):
    """For the classes of a module threading whose locks are cooperative."""

    def _inner_condition():
        return threading.Condition(_gosched._inner_rlock())

    def _inner_event():
        event = threading.Event()
        event._cond._gosched_waiter = _gosched._inner_lock
        return event

    # Their methods that say that they don't wait take the lock, too.
    threading._inner_lock = _gosched._inner_lock
    threading._inner_condition = _inner_condition
    for cls in (threading.Semaphore, threading.Event, threading.Barrier):
        _rename(cls.__init__, "Lock", "_inner_lock")
    # start() of a thread waits until the thread has begun.
    threading._inner_event = _inner_event
    _rename(threading.Thread.__init__, "Event", "_inner_event")
    threading.Condition._gosched_waiter = staticmethod(_gosched._waiter_lock)
    _put(threading.Condition, "wait", _wait)
    _put(threading.Condition, "_acquire_restore", _acquire_restore_by_acquire)
    _put(threading._RLock, "_acquire_restore", _acquire_restore)


def adapt_queue(queue):
    """For the classes of a module queue over such a module threading."""
    _rename(queue.Queue.__init__, "Lock", "_inner_lock")


def adapt_futures(base):
    """For concurrent.futures._base, likewise."""
    _rename(base.Future.__init__, "Condition", "_inner_condition")
    for cls in (base._AsCompletedWaiter, base._AllCompletedWaiter):
        _rename(cls.__init__, "Lock", "_inner_lock")


def _rename(function, name, other):
    # In place, so that the classes stay what they are for subclasses, pickles and those who look at them.
    code = function.__code__
    function.__code__ = code.replace(co_names=tuple(other if n == name else n for n in code.co_names))


def _put(cls, name, function):
    before = vars(cls)[name]
    function = _types.FunctionType(function.__code__, globals(), name, function.__defaults__)
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(function, attribute, getattr(before, attribute))
    setattr(cls, name, function)
