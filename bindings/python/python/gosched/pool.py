"""A pool: a limited number of goroutines at a time."""

from ._gosched import Channel, Closed, Semaphore, go
from ._gosched import monotonic as _monotonic

#: what imap_unordered's goroutines send: a result, an exception, or how many results there are in all
_VALUE, _ERROR, _COUNT = "value", "error", "count"


def _send(results, outcome):
    try:
        results.send(outcome)
    except Closed:
        pass  # it isn't wanted any more


class Pool:
    """Runs functions in goroutines, at most `size` at the same time.

    >>> import gosched
    >>> gosched.Pool(2).map(abs, [-1, 2, -3])
    [1, 2, 3]
    """

    def __init__(self, size):
        if size < 1:
            raise ValueError("the size of a pool must be at least 1")
        self.size = size
        self._free = Semaphore(size)
        self._alive = set()

    def go(self, fn, /, *args, **kwargs):
        """Starts fn(*args, **kwargs) as a goroutine, once one of the pool is free, and gives it."""
        self._free.acquire()
        try:
            goroutine = go(fn, *args, **kwargs)
        except BaseException:
            self._free.release()
            raise
        self._alive.add(goroutine)
        goroutine._on_end(self._ended)
        return goroutine

    def _ended(self, goroutine):
        self._alive.discard(goroutine)
        self._free.release()

    def map(self, fn, *iterables):
        """The list of fn(...) for all items, in their order. The first exception is raised at once, and cancels the
        rest."""
        started, failed = [], []
        ended = Semaphore(0)

        def look(goroutine):
            error = goroutine.exception()
            if error is not None:
                failed.append(error)
            ended.release()

        try:
            for args in zip(*iterables):
                goroutine = self.go(fn, *args)
                started.append(goroutine)
                goroutine.add_done_callback(look)
                if failed:
                    break
            for _ in started:
                if failed:
                    raise failed[0]
                ended.acquire()
            return [goroutine.result() for goroutine in started]
        except BaseException:
            for goroutine in started:
                goroutine.cancel()
            raise

    def imap_unordered(self, fn, *iterables):
        """Gives fn(...) for all items, each as soon as it is there. The first exception cancels the rest and is
        raised. As many items as the pool has goroutines are taken in advance."""
        results = Channel(self.size)
        started = set()

        def one(args):
            try:
                outcome = (_VALUE, fn(*args))
            except BaseException as error:
                outcome = (_ERROR, error)
            _send(results, outcome)

        def look(goroutine):
            started.discard(goroutine)
            if goroutine.cancelled():
                # Before it began, or while it waited for room.
                _send(results, (_ERROR, goroutine.exception()))

        def feed():
            count = 0
            try:
                for args in zip(*iterables):
                    goroutine = self.go(one, args)
                    count += 1
                    started.add(goroutine)
                    goroutine.add_done_callback(look)
            except BaseException as error:
                _send(results, (_ERROR, error))
            _send(results, (_COUNT, count))

        feeder = go(feed)
        received, count = 0, None
        try:
            while received != count:
                kind, value = results.recv()
                if kind is _COUNT:
                    count = value
                    continue
                if kind is _ERROR:
                    raise value
                received += 1
                yield value
        finally:
            feeder.cancel()
            results.close()
            for goroutine in list(started):
                goroutine.cancel()

    def join(self, timeout=None):
        """Waits until no goroutine of the pool runs. False: the timeout, in seconds, has passed."""
        end = None if timeout is None else _monotonic() + timeout
        for goroutine in list(self._alive):
            if not goroutine.join(None if end is None else max(end - _monotonic(), 0)):
                return False
        return True

    def cancel(self):
        """Cancels all its goroutines."""
        for goroutine in list(self._alive):
            goroutine.cancel()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if error is not None:
            self.cancel()
        self.join()
