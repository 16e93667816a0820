"""An executor whose workers are goroutines, and waits for the first of several goroutines or futures.

What ``concurrent.futures`` has, for goroutines and threads, patched or not.
"""

import atexit
import concurrent.futures as _futures
from collections import deque, namedtuple
from time import monotonic as _monotonic
from weakref import WeakSet

from . import _originals
from ._gosched import Channel, Event, Goroutine, go
from .threading import Condition as _Condition

FIRST_COMPLETED = _futures.FIRST_COMPLETED
FIRST_EXCEPTION = _futures.FIRST_EXCEPTION
ALL_COMPLETED = _futures.ALL_COMPLETED


class BrokenExecutor(_futures.BrokenExecutor):
    """The initializer of an executor's worker has failed."""


class Future(_futures.Future):
    """What Executor.submit() gives: a goroutine waits for its result like a thread."""

    def __init__(self):
        super().__init__()
        self._condition = _Condition()


class Executor(_futures.Executor):
    """A ``concurrent.futures.ThreadPoolExecutor`` of goroutines.

    max_workers: how many calls run at the same time; None: as many as are submitted. A worker ends when it has no
    more to do. Each worker calls initializer(*initargs) first. The program waits at its end for what has been
    submitted, as it does for threads.

    >>> import gosched
    >>> with gosched.Executor() as executor:
    ...     list(executor.map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """

    def __init__(self, max_workers=None, thread_name_prefix="", initializer=None, initargs=()):
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be callable")
        self._max_workers = max_workers
        self._prefix = thread_name_prefix
        self._initializer = initializer
        self._initargs = initargs
        # The thread's, and nests: a signal handler or a finalizer may submit in the middle of a section.
        self._lock = _originals.RLockType()
        self._calls = deque()
        self._workers = set()
        self._begun = 0
        self._is_shut = False
        self._broken = None
        self._idle = Event()
        self._idle.set()
        _executors.add(self)

    def submit(self, fn, /, *args, **kwargs):
        """Has a worker call fn(*args, **kwargs); gives the future of its result."""
        future = Future()
        with self._lock:
            self._check()
            self._calls.append((future, fn, args, kwargs))
            if self._max_workers is None or len(self._workers) < self._max_workers:
                try:
                    self._begin()
                except BaseException:
                    # Without a worker the call would never be made.
                    if not self._workers:
                        self._calls.pop()
                        raise
        return future

    def _check(self):
        if self._broken is not None:
            raise BrokenExecutor("the initializer of a worker has failed") from self._broken
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _begin(self):
        worker = go(self._work)
        self._idle.clear()
        self._begun += 1
        if self._prefix:
            worker.name = "%s_%d" % (self._prefix, self._begun - 1)
        self._workers.add(worker)
        worker._on_end(self._ended)

    def _ended(self, worker):
        with self._lock:
            self._workers.discard(worker)
            # It may have been cancelled before it began.
            if self._calls and self._broken is None:
                self._begin()
            elif not self._workers:
                self._idle.set()

    def _work(self):
        if self._initializer is not None:
            try:
                self._initializer(*self._initargs)
            except BaseException as error:
                return self._break(error)
        while True:
            with self._lock:
                if not self._calls:
                    return
                future, fn, args, kwargs = self._calls.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    result = fn(*args, **kwargs)
                except BaseException as error:
                    future.set_exception(error)
                    # The traceback refers to this frame.
                    del error
                else:
                    future.set_result(result)
                    del result
            del future, fn, args, kwargs

    def _break(self, error):
        with self._lock:
            self._broken = error
            calls, self._calls = self._calls, deque()
        for future, _, _, _ in calls:
            failed = BrokenExecutor("the initializer of a worker has failed")
            failed.__cause__ = error
            future.set_exception(failed)

    def shutdown(self, wait=True, *, cancel_futures=False):
        """Takes no more calls. wait: until those that were submitted are done. cancel_futures: those that have not
        begun are cancelled."""
        calls = ()
        with self._lock:
            self._is_shut = True
            if cancel_futures:
                calls, self._calls = self._calls, deque()
        for future, _, _, _ in calls:
            if future.cancel():
                future.set_running_or_notify_cancel()
        if wait:
            self._idle.wait()


#: for the end of the program
_executors = WeakSet()


@atexit.register
def _at_exit():
    for executor in list(_executors):
        executor.shutdown()


def _watch(items):
    """The items, each once, and a channel to which each is sent when it has ended."""
    items = list(dict.fromkeys(items))
    for item in items:
        if not isinstance(item, (Goroutine, _futures.Future)):
            raise TypeError("goroutines and futures of concurrent.futures can be waited for, not %r" % (item,))
    ended = Channel(len(items))
    for item in items:
        item.add_done_callback(ended.send)
    return items, ended


def as_completed(items, timeout=None):
    """Gives goroutines and futures, each as soon as it has ended.

    TimeoutError: some have not ended `timeout` seconds after the first of them was asked for.

    >>> import gosched
    >>> def sleep_and_tell(seconds):
    ...     gosched.sleep(seconds)
    ...     return seconds
    >>> [g.result() for g in gosched.as_completed([gosched.go(sleep_and_tell, s) for s in (0.02, 0.01)])]
    [0.01, 0.02]
    """
    items, ended = _watch(items)
    end = None if timeout is None else _monotonic() + timeout
    for n in range(len(items)):
        try:
            item = ended.recv(None if end is None else max(end - _monotonic(), 0))
        except TimeoutError:
            raise TimeoutError("%d (of %d) unfinished" % (len(items) - n, len(items))) from None
        yield item


def wait(items, timeout=None, return_when=ALL_COMPLETED):
    """Waits for goroutines and futures, `timeout` seconds at most; gives the sets (done, not_done).

    return_when: ALL_COMPLETED; FIRST_COMPLETED, the first has ended; FIRST_EXCEPTION, the first has failed.
    """
    if return_when not in (FIRST_COMPLETED, FIRST_EXCEPTION, ALL_COMPLETED):
        raise ValueError("invalid return condition: %r" % (return_when,))
    items = list(dict.fromkeys(items))
    done = {item for item in items if item.done()}
    if not (done and return_when == FIRST_COMPLETED or any(map(_has_failed, done)) and return_when == FIRST_EXCEPTION):
        try:
            for item in as_completed([item for item in items if item not in done], timeout):
                done.add(item)
                if return_when == FIRST_COMPLETED or return_when == FIRST_EXCEPTION and _has_failed(item):
                    break
        except TimeoutError:
            pass
    return DoneAndNotDone(done, set(items) - done)


#: the sets that wait() gives
DoneAndNotDone = namedtuple("DoneAndNotDone", "done not_done")


def _has_failed(item):
    return not item.cancelled() and item.exception() is not None
