"""``_thread`` made of goroutines: what :mod:`gosched.threading` and the patched ``threading`` use."""

import _thread as _std
import os as _os
import sys as _sys
from _contextvars import Context as _Context

from . import _gosched
from . import _originals
from ._originals import take_names as _take_names

_take_names(_std, globals())

_current = _gosched.current
get_ident = _gosched.get_ident
LockType = Lock = lock = _gosched.Lock
RLock = _gosched.RLock


# The class itself: as an attribute of a class it's no method, as CPython's function isn't.
allocate_lock = allocate = _gosched.Lock


#: the goroutines that start_new_thread() made and that haven't ended: identity -> its sentinel
#: (a lock to release at its end), or None. Threads of the system that start_new_thread() made are there too.
_running = {}
#: the identities of these threads of the system
_in_system = set()


#: the names that are CPython's, and say so
_PUBLIC = "get_native_id start_new_thread start_joinable_thread set_name _set_sentinel _count _shutdown".split()


def get_native_id():
    """An integer that identifies the thread; a goroutine's is its identity."""
    ident = get_ident()
    if ident in _running and ident not in _in_system:
        return ident
    return _originals.get_native_id()


def set_name(name):
    """Set the name that the system has of the thread. Does nothing in a goroutine, of which the system has none."""
    if _current() is None:
        _std_set_name(name)
    elif not isinstance(name, str):
        raise TypeError("set_name() argument 'name' must be str, not %s" % type(name).__name__)


# From 3.14 on.
_std_set_name = getattr(_originals, "set_name", None)


#: identities of goroutines are numbers from 1 on, those of threads are addresses in the upper part of the memory
_FIRST_ADDRESS = 1 << 32


def _ident_of_thread(ident):
    """The identity of the thread that a goroutine runs in: the C library would crash with a goroutine's own."""
    main = _gosched.main()
    if main is None or not isinstance(ident, int) or not 0 < ident < _FIRST_ADDRESS:
        return ident
    return _originals.get_ident() if _gosched.current() is not None else main.id


def _ident_of(goroutine):
    return goroutine.id


class _Sentinel:
    """The lock that says whether a thread runs: a join of the thread acquires it.

    A lock is handed to the goroutine that has waited for it the longest, and would look held to
    the others. This one is free for all, once it was released.
    """

    __slots__ = ("_ended", "_held", "__weakref__")

    def __init__(self):
        self._ended = _gosched.Event()
        self._held = False

    def acquire(self, blocking=True, timeout=-1):
        if self._held:
            if not blocking:
                _gosched.checkpoint()
                return False
            return self._ended.wait(None if timeout < 0 else timeout)
        if not self._ended.is_set():
            self._held = True
        return True

    def release(self):
        if self._held:
            self._held = False
            self._ended.set()

    def locked(self):
        return self._held

    def _at_fork_reinit(self):
        self.__init__()

    __enter__ = acquire

    def __exit__(self, *exc):
        self.release()


def _set_sentinel():
    """_set_sentinel() -> lock: it's released at the end of the calling thread."""
    sentinel = _Sentinel()
    ident = get_ident()
    if ident in _running:
        _running[ident] = sentinel
    return sentinel


def _count():
    """The number of threads that are running, except the main one."""
    return _originals.thread_count() + len(_running) - len(_in_system)


def _unraisable(function):
    from sys import exc_info, unraisablehook

    args_type = _unraisable_args_type()
    kind, value, traceback = exc_info()
    # Without the frames of this module.
    if traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    message = "Exception ignored in thread started by"
    if _sys.version_info >= (3, 13):
        message, function = "%s %r" % (message, function), None
    args = (kind, value, traceback, message, function)
    try:
        unraisablehook(args_type(args))
    except Exception:
        _sys.__unraisablehook__(args_type(args))


def _unraisable_args_type():
    global _args_type
    if _args_type is None:
        found = []

        class Raises:
            def __del__(self):
                raise RuntimeError

        hook = _sys.unraisablehook
        _sys.unraisablehook = found.append
        try:
            Raises().__class__
        finally:
            _sys.unraisablehook = hook
        _args_type = type(found[0])
        del found
    return _args_type


_args_type = None


def _run(function, args, kwargs, handle):
    ident = get_ident()
    _running.setdefault(ident)
    if handle is not None:
        handle._start(ident)
    del handle
    try:
        function(*args, **kwargs)
    except SystemExit:
        pass
    except BaseException:
        _unraisable(function)
    del function, args, kwargs


def _ended(goroutine):
    # A done callback: the thread-local data of the goroutine is gone by now.
    _tell(_ident_of(goroutine))


def _tell(ident):
    """Tells those who join the thread that it has ended."""
    sentinel = _running.pop(ident, None)
    handle = _handles.pop(ident, None)
    if sentinel is not None and sentinel.locked():
        sentinel.release()
    if handle is not None:
        handle._finish()


def _is_for_system(function):
    """Whether it is the body of a threading.Thread that is to be a thread of the system: the class says so by an
    attribute."""
    return getattr(getattr(function, "__self__", None), "_is_of_the_system", False)


def _run_in_system(function, args, kwargs, handle):
    ident = _originals.get_ident()
    _in_system.add(ident)
    try:
        _run(function, args, kwargs, handle)
    finally:
        del function, args, kwargs, handle
        _tell(ident)
        _in_system.discard(ident)


def _start(function, args, kwargs, handle=None):
    if _is_for_system(function):
        return _originals.start_new_thread(_run_in_system, (function, args, kwargs, handle))
    size = _std.stack_size()
    try:
        # In an empty context, as a thread: not in a copy of the caller's, as other goroutines.
        goroutine = _Context().run(_gosched.spawn, _run, (function, args, kwargs, handle), stack_size=size)
    except MemoryError:
        raise error("can't start new thread") from None
    ident = _ident_of(goroutine)
    _running.setdefault(ident)
    if handle is not None:
        handle._start(ident)
    goroutine.add_done_callback(_ended)
    return ident


def start_new_thread(function, args, kwargs={}, /):
    """Start a new thread, a goroutine here, and return its identity."""
    if not callable(function):
        raise TypeError("first arg must be callable")
    if not isinstance(args, tuple):
        raise TypeError("2nd arg must be a tuple")
    if not isinstance(kwargs, dict):
        raise TypeError("optional 3rd arg must be a dictionary")
    _sys.audit("_thread.start_new_thread", function, args, kwargs)
    return _start(function, args, kwargs)


start_new = start_new_thread


# 3.13: handles

#: identity -> handle, of threads that run
_handles = {}
#: handles of threads that aren't daemons: _shutdown() waits for them
_non_daemon = set()


class _ThreadHandle:
    """What start_joinable_thread() returns: ident, join(), is_done()."""

    __slots__ = ("_ident", "_state", "_done", "__weakref__")

    def __init__(self):
        self._ident = 0
        self._state = "new"
        self._done = _gosched.Event()

    def __repr__(self):
        return "<_ThreadHandle object: ident=%s>" % self._ident

    @property
    def ident(self):
        return self._ident

    def _start(self, ident):
        if self._state == "starting":
            self._ident = ident
            self._state = "running"
            _handles[ident] = self

    def _finish(self):
        if self._state in ("starting", "running"):
            self._state = "done"
            self._done.set()
        _non_daemon.discard(self)

    def is_done(self):
        _gosched.checkpoint()
        return self._state == "done"

    def join(self, timeout=None, /):
        if timeout is not None and not isinstance(timeout, (int, float)):
            if not hasattr(type(timeout), "__index__"):
                raise TypeError("'%s' object cannot be interpreted as an integer" % type(timeout).__name__)
            timeout = timeout.__index__()
        if timeout is not None and timeout > TIMEOUT_MAX:
            raise OverflowError("timestamp too large to convert to C PyTime_t")
        if self._state in ("new", "starting"):
            raise RuntimeError("thread not started")
        if self._state == "running":
            if self._ident == get_ident():
                raise RuntimeError("Cannot join current thread")
            self._done.wait(None if timeout is None or timeout < 0 else timeout)

    def _set_done(self):
        if self._state in ("new", "starting"):
            raise RuntimeError("thread not started")
        self._finish()


def start_joinable_thread(function, handle=None, daemon=True):
    """Start a new thread, a goroutine here, and return its handle."""
    if not callable(function):
        raise TypeError("thread function must be callable")
    if handle is None:
        handle = _ThreadHandle()
    elif not isinstance(handle, _ThreadHandle):
        raise TypeError("'handle' must be a _ThreadHandle")
    _sys.audit("_thread.start_joinable_thread", function, daemon, handle)
    if handle._state != "new":
        raise RuntimeError("thread already started")
    handle._state = "starting"
    if not daemon:
        _non_daemon.add(handle)
    try:
        _start(function, (), {}, handle)
    except BaseException:
        handle._state = "new"
        _non_daemon.discard(handle)
        raise
    return handle


def _make_thread_handle(ident):
    """A handle for a thread that wasn't started here."""
    handle = _ThreadHandle()
    handle._ident = ident
    handle._state = "running"
    if ident in _running:
        _handles[ident] = handle
    return handle


def _get_main_thread_ident():
    """The identity of the main thread."""
    if hasattr(_std, "_get_main_thread_ident"):
        return _std._get_main_thread_ident()
    return _originals.get_ident()


def _shutdown():
    """Wait for all threads that aren't daemons to end."""
    me = get_ident()
    while True:
        for handle in list(_non_daemon):
            if handle._ident != me and not handle.is_done():
                break
        else:
            break
        handle.join()
    if hasattr(_std, "_shutdown") and _originals_shutdown is not None:
        _originals_shutdown()


_originals_shutdown = getattr(_std, "_shutdown", None)


# fork

def _after_fork():
    # The thread stays, whatever its goroutine is called in the child.
    me = _forking.pop(_originals.get_ident(), None)
    _forking.clear()
    _running.clear()
    _in_system.clear()
    for handle in list(_handles.values()):
        handle._done = _gosched.Event()
        if handle._ident == me:
            handle._ident = get_ident()
        else:
            handle._state = "done"
    _handles.clear()
    _non_daemon.clear()


#: threads that are about to fork -> the identities of the goroutines that do so
_forking = {}


def _before_fork():
    _forking[_originals.get_ident()] = get_ident()


def _after_fork_in_parent():
    _forking.pop(_originals.get_ident(), None)


_os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork
)

for _name in _PUBLIC:
    globals()[_name].__module__ = "_thread"
del _name
