"""Limits: of time for a block, of how often something is done."""

from time import monotonic as _monotonic

from . import _originals
from ._gosched import sleep
from ._runtime import Timeout


class timeout:
    """A limit of time for a block of code, which raises TimeoutError, as asyncio.timeout() does:

        with gosched.timeout(2):
            answer = connection.recv(100)

    None seconds: no limit. gosched.Timeout, beside this, is an exception of its own, as eventlet's and gevent's.

    >>> import gosched
    >>> try:
    ...     with gosched.timeout(0.01):
    ...         gosched.sleep(10)
    ... except TimeoutError:
    ...     print("too late")
    too late
    """

    def __init__(self, seconds):
        self.seconds = seconds
        self._timeout = Timeout(seconds)
        self._expired = False

    def expired(self):
        """Whether the block was ended by this limit."""
        return self._expired

    def __enter__(self):
        self._timeout.start()
        return self

    def __exit__(self, kind, error, traceback):
        self._timeout.cancel()
        if error is self._timeout:
            self._expired = True
            raise TimeoutError("%s seconds have passed" % self.seconds) from error


class RateLimiter:
    """Lets something be done `rate` times in `per` seconds, in the long run; up to `burst` times (None: `rate`, but
    at least once) at once after a pause.

        limiter = gosched.RateLimiter(100)
        ...
        with limiter:
            call_the_api()

    Who comes first goes first. Goroutines and threads may share one.

    >>> import gosched
    >>> limiter = gosched.RateLimiter(1, per=60)
    >>> limiter.acquire(), limiter.acquire(timeout=0)
    (True, False)
    """

    def __init__(self, rate, per=1.0, burst=None):
        if rate <= 0 or per <= 0:
            raise ValueError("rate and per must be more than 0")
        if burst is None:
            burst = max(rate, 1)
        if burst < 1:
            raise ValueError("burst must be at least 1")
        self.rate, self.per, self.burst = rate, per, burst
        self._interval = per / rate
        self._lock = _originals.RLockType()
        #: when all that was let through is paid for: the generic cell rate algorithm's theoretical arrival time
        self._paid = 0.0

    def acquire(self, amount=1, timeout=None):
        """Waits until it may be done. amount: how often it counts. False: that would take more than `timeout`
        seconds; it counts nothing then."""
        if not 0 < amount <= self.burst:
            raise ValueError("the amount must be more than 0, and no more than the burst")
        cost = amount * self._interval
        with self._lock:
            now = _monotonic()
            paid = max(self._paid, now) + cost
            pause = paid - now - self.burst * self._interval
            if timeout is not None and pause > timeout:
                return False
            self._paid = paid
        if pause > 0:
            try:
                sleep(pause)
            except BaseException:
                # It isn't done, so the next may go earlier.
                with self._lock:
                    self._paid -= cost
                raise
        return True

    def __enter__(self):
        self.acquire()
        return self

    def __exit__(self, *args):
        pass
