"""What of the package's own is written in Python."""

import atexit as _atexit
import os as _os
import sys as _sys
import traceback as _traceback

from . import _gosched
from . import _imports  # noqa: F401
from . import _signals
from ._gosched import Lock, current, go


def run(fn, /, *args, **kwargs):
    """Runs fn(*args, **kwargs) as a goroutine, waits for its end and gives what it returns, or raises what it
    raises.

    >>> import gosched
    >>> gosched.run(sum, [1, 2, 3])
    6
    """
    return go(fn, *args, **kwargs).result()


def excepthook(goroutine, error, /):
    """Prints the traceback of an exception that has ended a goroutine and for which no other waits. Assign another
    function to gosched.excepthook to have it called instead."""
    stderr = _sys.stderr
    if stderr is None:
        return
    name = str(goroutine.name)
    lines = _traceback.format_exception(type(error), error, error.__traceback__)
    stderr.write("Exception in goroutine %s:\n%s" % (name, "".join(lines)))
    stderr.flush()


class Timeout(BaseException):
    """A limit of time for a block of code:

        with gosched.Timeout(2):
            answer = connection.recv(100)

    When the seconds have passed it raises itself at the wait at which the goroutine then is, or at its next
    one. With an exception as the second argument that is raised instead; with False the block just ends.
    None seconds: no limit.

    >>> import gosched
    >>> with gosched.Timeout(0.01, False):
    ...     gosched.sleep(10)
    """

    def __init__(self, seconds=None, exception=None):
        super().__init__(seconds, exception)
        self.seconds = seconds
        self.exception = exception
        self._key = None

    @property
    def pending(self):
        """Whether the block is under way."""
        return self._key is not None

    def start(self):
        """What entering the block does."""
        if self._key is not None:
            raise RuntimeError("this Timeout is started already")
        if self.seconds is None:
            return
        key = self.exception
        if key is None or isinstance(key, bool):
            key = self
        elif isinstance(key, type):
            key = key()
        if not isinstance(key, BaseException):
            raise TypeError("exceptions must derive from BaseException, not %s" % type(key).__name__)
        _gosched._push_timeout(key, self.seconds)
        self._key = key

    def cancel(self):
        """What leaving the block does."""
        key, self._key = self._key, None
        if key is not None:
            _gosched._pop_timeout(key)

    close = cancel

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, error, traceback):
        self.cancel()
        return error is self and self.exception is False

    def __str__(self):
        return "%s seconds" % (self.seconds,)


def with_timeout(seconds, fn, /, *args, **kwargs):
    """Calls fn(*args, **kwargs) within `seconds`; Timeout: they have passed."""
    with Timeout(seconds):
        return fn(*args, **kwargs)


class Ticker:
    """A channel on which the time (as time.monotonic()) is sent every `seconds`; ticks that no goroutine
    receives in time are dropped. Iterate over it, or use `channel` in a select()."""

    def __init__(self, seconds):
        #: the channel
        self.channel = _gosched._ticker(seconds)

    def recv(self, timeout=None):
        """Waits for the next tick, at most timeout seconds."""
        return self.channel.recv(timeout)

    def recv_case(self):
        """A case for select()."""
        return self.channel.recv_case()

    def stop(self):
        """Sends no more ticks. A goroutine that waits for a tick goes on waiting."""
        _gosched._ticker_stop(self.channel)

    def __iter__(self):
        return self.channel

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.stop()


def ticker(seconds):
    """A Ticker with a period in seconds."""
    return Ticker(seconds)


class Once:
    """Does something once, as sync.Once: do() returns when it has been done, by this caller or another."""

    def __init__(self):
        self._lock = Lock()
        self._done = False

    def do(self, fn, /, *args, **kwargs):
        """Calls fn(*args, **kwargs) if no do() of this object has called its function before. A function that
        raises counts as called."""
        if self._done:
            return
        with self._lock:
            if not self._done:
                try:
                    fn(*args, **kwargs)
                finally:
                    self._done = True


class RWMutex(_gosched.RWMutex):
    """A lock that many readers or one writer have, as sync.RWMutex. In a `with` block the mutex itself is for
    writing, and rlocker() for reading:

    >>> import gosched
    >>> rw = gosched.RWMutex()
    >>> with rw.rlocker(), rw.rlocker():
    ...     print("two readers")
    two readers
    >>> with rw:
    ...     print("one writer")
    one writer
    """

    def __enter__(self):
        return self.lock()

    def __exit__(self, *args):
        self.unlock()

    def rlocker(self):
        """The mutex as a lock for reading: lock() and unlock() are its rlock() and runlock()."""
        return RLocker(self)


class RLocker:
    """What rlocker() of a RWMutex gives."""

    def __init__(self, rwmutex):
        self._rwmutex = rwmutex

    def lock(self, timeout=None):
        """Takes the mutex for reading; waits at most timeout seconds. Whether it is held."""
        return self._rwmutex.rlock(timeout)

    def unlock(self):
        """Gives it back. RuntimeError: no reader has it."""
        self._rwmutex.runlock()

    def __enter__(self):
        return self.lock()

    def __exit__(self, *args):
        self.unlock()


class WaitGroup(_gosched.WaitGroup):
    """Waits for a number of goroutines, as sync.WaitGroup.

    >>> import gosched
    >>> wg = gosched.WaitGroup()
    >>> for n in range(3):
    ...     _ = wg.go(gosched.sleep, 0.001)
    >>> wg.wait()
    True
    """

    def go(self, fn, /, *args, **kwargs):
        """Starts fn(*args, **kwargs) as a goroutine that this WaitGroup waits for."""
        self.add()
        try:
            goroutine = go(fn, *args, **kwargs)
        except BaseException:
            self.done()
            raise
        goroutine._on_end(self._ended)
        return goroutine

    def _ended(self, goroutine):
        self.done()


class _Frame:
    """What traceback uses of a frame: that of a goroutine on a free-threaded Python, which goes on meanwhile."""

    f_globals = {}
    f_locals = {}

    def __init__(self, code, lasti, back):
        self.f_code, self.f_lasti, self.f_back = code, lasti, back
        self.f_lineno = None
        for start, end, line in code.co_lines():
            if start <= lasti < end:
                self.f_lineno = line

    def __repr__(self):
        code = self.f_code
        return "<frame, file %r, line %s, code %s>" % (code.co_filename, self.f_lineno, code.co_name)


def _frame_of(stack):
    """The innermost frame of a stack, as _gosched has it, or None."""
    frame = None
    for code, lasti in reversed(stack or ()):
        frame = _Frame(code, lasti, frame)
    return frame


def _end_of_child(error):
    """A function of a goroutine, or one in blocking(), has forked, and has ended in the child: ends the process as the end
    of a program does. (Py_Finalize itself would go back to the thread state of the parent's main goroutine.)"""
    status = 0
    if isinstance(error, SystemExit):
        status = error.code
        if status is None:
            status = 0
        elif not isinstance(status, int):
            _sys.stderr.write("%s\n" % (status,))
            status = 1
    elif error is not None:
        status = 1
        _sys.excepthook(type(error), error, error.__traceback__)
    try:
        threading = _sys.modules.get("threading")
        if threading is not None:
            threading._shutdown()
        _atexit._run_exitfuncs()
    finally:
        for stream in (_sys.stdout, _sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        _os._exit(status & 0xFF)


def _after_fork():
    _gosched._forked()
    _signals.forked()


# Before other modules' functions are registered: the one for before is called last then, and the thread forks at
# once.
_os.register_at_fork(
    before=_gosched._before_fork, after_in_parent=_gosched._after_fork, after_in_child=_after_fork
)
from . import _fork  # noqa: E402, F401

_atexit.register(_gosched._finalize)
