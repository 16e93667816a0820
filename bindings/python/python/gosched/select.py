"""Cooperative ``select``: :func:`select`, :class:`poll` and :class:`epoll` park the goroutine.

Called itself, this module is the select over channels: ``gosched.select(ch.recv_case(), ...)``.
"""

import errno as _errno
import select as _std
import sys as _sys
import types as _types

from . import _gosched
from . import _originals
from ._gosched import monotonic as _monotonic
from ._originals import take_names as _take_names

_take_names(_std, globals())

_select = _originals.select_select
_wait_fds = _gosched.wait_fds
_wait_read = _gosched.wait_read
# A call that needn't wait lets others run from time to time, for programs that poll in a loop.
_checkpoint = _gosched.checkpoint

_READ = _std.POLLIN | _std.POLLHUP | _std.POLLERR
_WRITE = _std.POLLOUT | _std.POLLERR
_EXCEPT = _std.POLLPRI


def _fileno(fd):
    if isinstance(fd, int):
        return fd
    return fd.fileno()


def _sequence(fds):
    """What can be read several times: the list itself, as a `fileno` method may shorten the list meanwhile."""
    return fds if isinstance(fds, (list, tuple)) else list(fds)


def select(rlist, wlist, xlist, timeout=None, /):
    """Wait until one or more file descriptors are ready, as select.select() does."""
    if timeout is not None:
        if not isinstance(timeout, (int, float)) and not hasattr(type(timeout), "__index__"):
            raise TypeError("timeout must be a float or None")
        if timeout < 0:
            raise ValueError("timeout must be non-negative")
    try:
        rlist, wlist, xlist = _sequence(rlist), _sequence(wlist), _sequence(xlist)
    except TypeError:
        raise TypeError("arguments 1-3 must be sequences") from None
    found = _select_now(rlist, wlist, xlist)
    if timeout == 0 or any(found):
        _checkpoint()
        return found
    deadline = None if timeout is None else _monotonic() + timeout
    while True:
        events = {}
        for fds, event in ((rlist, _std.POLLIN), (wlist, _std.POLLOUT), (xlist, _std.POLLPRI)):
            for fd in fds:
                number = _fileno(fd)
                events[number] = events.get(number, 0) | event
        if deadline is not None:
            timeout = max(deadline - _monotonic(), 0)
        ready = _wait_fds(list(events.items()), timeout)
        found = _select_now(rlist, wlist, xlist)
        if not ready or any(found):
            return found


def _select_now(rlist, wlist, xlist):
    try:
        return _select(rlist, wlist, xlist, 0)
    except ValueError:
        # A descriptor over FD_SETSIZE (or a bad one: POLLNVAL then says so).
        every = [fd for fds in (rlist, wlist, xlist) for fd in fds]
        if not any(_fileno(fd) >= 1024 for fd in every) or any(_fileno(fd) < 0 for fd in every):
            raise
    poller = _originals.select_poll()
    events = {}
    for fds, event in ((rlist, _std.POLLIN), (wlist, _std.POLLOUT), (xlist, _std.POLLPRI)):
        for fd in fds:
            events[_fileno(fd)] = events.get(_fileno(fd), 0) | event
    for fd, event in events.items():
        poller.register(fd, event)
    ready = dict(poller.poll(0))
    if any(event & _std.POLLNVAL for event in ready.values()):
        raise OSError(9, "Bad file descriptor")
    return (
        [fd for fd in rlist if ready.get(_fileno(fd), 0) & _READ],
        [fd for fd in wlist if ready.get(_fileno(fd), 0) & _WRITE],
        [fd for fd in xlist if ready.get(_fileno(fd), 0) & _EXCEPT],
    )


class _Poll:
    """A polling object, as select.poll() makes them."""

    __slots__ = ("_poll", "_fds", "_polling", "__weakref__")

    def __new__(cls, *args, **kwargs):
        raise TypeError("cannot create 'select.poll' instances")

    def register(self, fd, eventmask=_std.POLLIN | _std.POLLPRI | _std.POLLOUT, /):
        """Register a file descriptor with the polling object."""
        self._poll.register(fd, eventmask)
        self._fds[_fileno(fd)] = eventmask

    def modify(self, fd, eventmask, /):
        """Change the events of a registered file descriptor."""
        self._poll.modify(fd, eventmask)
        self._fds[_fileno(fd)] = eventmask

    def unregister(self, fd, /):
        """Remove a file descriptor from the polling object."""
        self._poll.unregister(fd)
        self._fds.pop(_fileno(fd), None)

    def poll(self, timeout=None, /):
        """The (fd, event) pairs of the descriptors that are ready; timeout in milliseconds."""
        if self._polling:
            raise RuntimeError("concurrent poll() invocation")
        if timeout is None or (isinstance(timeout, (int, float)) and -(2**31) <= timeout < 2**31):
            ready = self._poll.poll(0)
        else:
            self._poll.poll(_bounded(timeout))
            ready = self._poll.poll(0)
        if ready or timeout == 0:
            _checkpoint()
            return ready
        deadline = None if timeout is None or timeout < 0 else _monotonic() + timeout / 1000
        left = None
        self._polling = True
        try:
            while True:
                if deadline is not None:
                    left = max(deadline - _monotonic(), 0)
                try:
                    woken = _wait_fds(list(self._fds.items()), left)
                except OSError as error:
                    # Another goroutine has closed a file: the kernel's poll doesn't fail, but has POLLNVAL for it.
                    ready = self._poll.poll(0)
                    if error.errno != _errno.EBADF or not ready:
                        raise
                    return ready
                ready = self._poll.poll(0)
                if ready or not woken:
                    return ready
        finally:
            self._polling = False


_Poll.__name__ = _Poll.__qualname__ = "poll"
_Poll.__module__ = "select"


def poll():
    """A polling object, which supports registering and unregistering file descriptors."""
    self = object.__new__(_Poll)
    self._poll = _originals.select_poll()
    self._fds = {}
    self._polling = False
    return self


def _bounded(timeout):
    """Raises what the original would of a timeout that can't be one, and waits for nothing."""
    if hasattr(type(timeout), "__index__") and -(2**31) <= timeout.__index__() < 2**31:
        return 0
    if isinstance(timeout, int):
        raise OverflowError("timeout is too large")
    raise TypeError("timeout must be an integer or None")


class epoll:
    """An epoll object, as select.epoll() makes them."""

    __slots__ = ("_epoll", "__weakref__")

    def __init__(self, sizehint=-1, flags=0):
        self._epoll = _originals.select_epoll(sizehint, flags)

    @classmethod
    def fromfd(cls, fd, /):
        """Create an epoll object from a file descriptor."""
        self = cls.__new__(cls)
        self._epoll = _originals.select_epoll.fromfd(fd)
        return self

    @classmethod
    def _of(cls, epoll):
        """What waits for an epoll object of the interpreter's as a goroutine."""
        self = cls.__new__(cls)
        self._epoll = epoll
        return self

    def __enter__(self):
        self._epoll.__enter__()
        return self

    def __exit__(self, *exc):
        self.close()

    @property
    def closed(self):
        """Whether the epoll object is closed."""
        return self._epoll.closed

    def close(self):
        """Close the epoll descriptor. Goroutines that wait for it get an error."""
        if not self._epoll.closed:
            _gosched.cancel_fd(self._epoll.fileno())
        self._epoll.close()

    def fileno(self):
        """The epoll descriptor."""
        return self._epoll.fileno()

    def register(self, fd, eventmask=_std.EPOLLIN | _std.EPOLLPRI | _std.EPOLLOUT):
        """Register a file descriptor."""
        self._epoll.register(fd, eventmask)

    def modify(self, fd, eventmask):
        """Change the events of a registered file descriptor."""
        self._epoll.modify(fd, eventmask)

    def unregister(self, fd):
        """Remove a file descriptor."""
        self._epoll.unregister(fd)

    def poll(self, timeout=None, maxevents=-1):
        """The (fd, events) pairs of the descriptors that are ready; timeout in seconds."""
        if timeout is not None and not isinstance(timeout, (int, float)):
            timeout = timeout.__index__() if hasattr(type(timeout), "__index__") else timeout
            if not isinstance(timeout, int):
                raise TypeError("timeout must be a number or None")
        ready = self._epoll.poll(0, maxevents)
        if ready or timeout == 0:
            _checkpoint()
            return ready
        deadline = None if timeout is None or timeout < 0 else _monotonic() + timeout
        left = None
        while True:
            if deadline is not None:
                left = max(deadline - _monotonic(), 0)
            woken = _wait_read(self._epoll.fileno(), left)
            ready = self._epoll.poll(0, maxevents)
            if ready or not woken:
                return ready


class _Module(_types.ModuleType):
    def __call__(self, *cases, **kwargs):
        return _gosched.select(*cases, **kwargs)


_sys.modules[__name__].__class__ = _Module
