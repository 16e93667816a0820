"""Calls of C modules that wait: each is made in another thread, while its goroutine is parked and others run.

A call that another call makes, by way of a function of the program's that the C module has called, is made in the same
thread at once: it counts as its caller's.
"""

import _thread
import sys
from collections import deque
from os import path
from types import FunctionType

from . import _gosched
from . import _originals

_ident_of_thread = _originals.get_ident

#: a thread that makes such a call -> the goroutine or thread that waits for the call, by the identities of `threading`
_callers = {}


def caller():
    """The identity of the goroutine or thread that calls this. A function that SQLite or another C module calls, on
    behalf of a call, counts as the goroutine or thread that waits for that call."""
    return _callers.get(_ident_of_thread()) or _thread.get_ident()


_HERE = path.dirname(path.abspath(__file__))


def _call(function, args=(), kwargs={}):
    return function(*args, **kwargs)


def call_as_program():
    """A `_call` that looks as if it stood where the program calls this package: warnings of C modules name that place."""
    if sys.version_info < (3, 12):
        return _call  # they give none
    frame = sys._getframe(1)
    while frame is not None and path.dirname(frame.f_code.co_filename) == _HERE:
        frame = frame.f_back
    if frame is None:
        return _call
    code = _call.__code__.replace(co_filename=frame.f_code.co_filename, co_firstlineno=frame.f_lineno - 1)
    return FunctionType(code, frame.f_globals, None, _call.__defaults__)


class Calls:
    """The calls on a connection: one at a time, whoever makes them.

    If a goroutine is cancelled, or its Timeout has passed, its call goes on, and what comes out of it is dropped. Later
    calls on the connection wait for its end.
    """

    __slots__ = ("_lock", "_orphans", "_to_close", "_to_end")

    #: seconds between two interrupts of a call that is to end
    _PAUSE = 0.02

    def __init__(self):
        self._lock = _gosched.Lock()
        #: calls under way whose goroutines have gone on without them: one, or none, but for a moment
        self._orphans = set()
        #: what is to be closed when no call is under way, each with the function for that
        self._to_close = []
        #: what the next call closes first, likewise
        self._to_end = []

    def has_orphan(self):
        """Whether such a call is under way."""
        return bool(self._orphans)

    def end_orphan(self, interrupt):
        """Ends such a call, with interrupt(): again and again, as it may not have begun yet."""
        while self.has_orphan():
            interrupt()
            if self._lock.acquire(True, self._PAUSE):
                self._unlock()

    def end(self, close, what):
        """Calls close(what), which doesn't wait, when no call is under way; doesn't wait for that. For destructors: an
        object of C that is dropped beside a call may disturb it, or wait for its end."""
        self._to_close.append((close, what))
        if self._lock.acquire(False):
            self._unlock()

    def end_before_next(self, close, what):
        """Has the next wait() call close(what) first, which may wait. For destructors."""
        self._to_end.append((close, what))

    @staticmethod
    def _close_all(all_things):
        while all_things:
            close, what = all_things.pop()
            try:
                close(what)
            except Exception:
                pass  # it's closed, or its connection is
            del close, what

    def _unlock(self):
        while True:
            self._close_all(self._to_close)
            self._lock.release()
            # More may have come in between.
            if not self._to_close or not self._lock.acquire(False):
                return

    def wait(self, function, /, *args, **kwargs):
        """Calls function(*args, **kwargs), which may wait."""
        return _make(_Call((self,), function, args, kwargs))

    def wait_with(self, other, function, /, *args, **kwargs):
        """As wait(), for a call that uses another connection too."""
        both = sorted({self, other}, key=id)  # in an order that is everywhere the same
        return _make(_Call(both, function, args, kwargs))

    def at_once(self, function, /, *args, **kwargs):
        """Calls function(*args, **kwargs), which doesn't wait."""
        if _ident_of_thread() in _callers:
            return function(*args, **kwargs)
        call = call_as_program()
        self._lock.acquire()
        try:
            return call(function, args, kwargs)
        finally:
            self._unlock()


def _make(call):
    if _ident_of_thread() in _callers:
        return call.function(*call.args, **call.kwargs)
    try:
        call.acquire()
        if _gosched.current() is None:
            return call()
        return _gosched.blocking(call)
    except BaseException:
        call.give_up()
        raise


class _Call:
    __slots__ = ("function", "args", "kwargs", "_call", "_on", "_caller", "_turn", "_held", "_has_ended")

    def __init__(self, on, function, args, kwargs):
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self._call = call_as_program()
        self._on = on
        self._caller = caller()
        # Taken by the thread that makes the call, or by the goroutine that gives up before.
        self._turn = [True]
        self._held = []
        self._has_ended = False

    def _take_turn(self):
        try:
            return self._turn.pop()
        except IndexError:
            return False

    def acquire(self):
        for calls in self._on:
            calls._lock.acquire()
            self._held.append(calls)

    def _release(self):
        self._has_ended = True
        for calls in self._held:
            calls._orphans.discard(self)
            calls._unlock()

    def give_up(self):
        """The goroutine goes on: the call has ended with an exception, or goes on without the goroutine."""
        if self._take_turn():
            self._release()
        if self._has_ended:
            return
        for calls in self._held:
            calls._orphans.add(self)
            # It may have ended in between.
            if self._has_ended:
                calls._orphans.discard(self)

    def __call__(self):
        if not self._take_turn():
            return None
        me = _ident_of_thread()
        _callers[me] = self._caller
        try:
            for calls in self._held:
                calls._close_all(calls._to_end)
            return self._call(self.function, self.args, self.kwargs)
        finally:
            del _callers[me]
            self._release()


class Rows:
    """Rows that calls have fetched and no reader has had yet. One call fetches several, because a call for each row would
    cost a switch to another thread and back: first one, then 2, 4, 8 and so on, as long as they come quickly.
    """

    __slots__ = ("_rows", "_error", "_count", "has_ended")

    #: how many rows a call fetches ahead at most, and for how many seconds it goes on
    _MOST, _LONGEST = 256, 0.001

    def __init__(self):
        self._rows = deque()
        #: the exception that has come after these rows
        self._error = None
        self._count = 1
        #: no more will come
        self.has_ended = False

    def __len__(self):
        return len(self._rows)

    def pop(self):
        """The next row; StopIteration if there is none."""
        try:
            return self._rows.popleft()
        except IndexError:
            raise StopIteration from None

    def take(self, count=None):
        """A list of the next rows, of all if no count is given."""
        rows = self._rows
        return [rows.popleft() for _ in range(len(rows) if count is None else min(count, len(rows)))]

    def raise_error(self):
        """If an exception has come after the rows: raises it, once."""
        error, self._error = self._error, None
        if error is not None:
            self._rows.clear()
            try:
                raise error
            finally:
                del error

    # For calls.

    def add(self, rows, wanted=None):
        """More rows have come: all that there are, or at most as many as were wanted."""
        self._rows.extend(rows)
        self.has_ended = wanted is None or len(rows) < wanted

    def fetch(self, fetch_one):
        """Fetches the next row and some more, each with fetch_one(), which raises StopIteration at the end."""
        until = _originals.monotonic() + self._LONGEST
        try:
            for n in range(self._count):
                self._rows.append(fetch_one())
                if _originals.monotonic() > until:
                    self._count = 1
                    return
        except StopIteration:
            self.has_ended = True
        except BaseException as error:
            self._error = error
        self._count = min(2 * self._count, self._MOST)
