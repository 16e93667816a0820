"""Make the standard library cooperative: :func:`patch_all`.

Classes are patched in place where they are Python's (``socket.socket``, ``ssl.SSLSocket``,
``subprocess.Popen``, the selectors), so that it doesn't matter which modules have imported them,
or made classes from them, before. Functions and types of C modules are replaced by name, in the
module they belong to and in those modules of the standard library that have taken them. Locks
that exist already are replaced where they are found free.

A module outside the standard library that has taken a function by name (``from time import
sleep``) keeps what it has: a :class:`PatchWarning` names it.
"""

import gc as _gc
import os.path as _path
import sys as _sys
import types as _types
import warnings as _warnings

from . import _blocking
from . import _gosched
from . import _identities
from . import _locks
from . import _originals
from . import _third_party

__all__ = [
    "PatchWarning",
    "add_blocking",
    "get_original",
    "is_patched",
    "patch_all",
    "patch_dns",
    "patch_os",
    "patch_queue",
    "patch_select",
    "patch_signal",
    "patch_socket",
    "patch_sqlite3",
    "patch_ssl",
    "patch_subprocess",
    "patch_threading",
    "patch_time",
]


class PatchWarning(RuntimeWarning):
    """Patching came too late for something; the message names the module."""


get_original = _originals.get_original
add_blocking = _blocking.add_blocking

_patched = set()


def is_patched(module):
    """Whether the standard library's module of that name is cooperative.

    The names are the arguments of :func:`patch_all`.
    """
    return module in _patched


#: functions of Python -> what stands for them where a built-in function was
_built_in = {}


def _like(original, value, module):
    """The value as a built-in function, if the original is one: no method as an attribute of a class."""
    if not isinstance(value, _types.FunctionType):
        return value
    # For pickles, and those who ask.
    value.__module__ = module
    if not isinstance(original, _types.BuiltinFunctionType):
        return value
    if value not in _built_in:
        doc = value.__doc__ or original.__doc__ or ""
        if original.__text_signature__ is not None:
            doc = "%s%s\n--\n\n%s" % (value.__name__, original.__text_signature__, doc)
        _built_in[value] = _gosched._built_in(value, doc, module)
    return _built_in[value]


class _Patch:
    """One call of a patch function: what it has replaced, to be told from what came too late."""

    def __init__(self):
        self.replaced = {}  # id(original) -> (original, replacement, its name)
        self.messages = []

    def set(self, module, name, value):
        original = getattr(module, name, None)
        if original is None or original is value:
            return
        if isinstance(module, _types.ModuleType):
            namespace = module.__name__
            value = _like(original, value, namespace)
            _originals.saved.setdefault(namespace, {}).setdefault(name, original)
            full = "%s.%s" % (namespace, name)
            known = self.replaced.get(id(original))
            if name not in _NOT_TAKEN and (known is None or known[2][0] == "_"):
                self.replaced[id(original)] = (original, value, full)
        setattr(module, name, value)

    def methods(self, cls, names, source):
        for name in names:
            self.set(cls, name, vars(source)[name])

    def warn(self, message):
        self.messages.append(message)

    def sweep(self):
        """Rebinds names that modules have taken, and notes those outside the library."""
        for modname, module in sorted(_sys.modules.items(), key=lambda item: str(item[0])):
            if not isinstance(module, _types.ModuleType) or modname.split(".")[0] == "gosched":
                continue
            taken = []
            for name, value in list(vars(module).items()):
                found = self.replaced.get(id(value))
                if found is None or found[0] is not value:
                    continue
                if modname in _originals.saved and name in _originals.saved[modname]:
                    continue
                if _is_stdlib(modname, module):
                    setattr(module, name, found[1])
                else:
                    taken.append(found[2] if found[2].endswith("." + name) else found[2] + " as " + name)
            if taken:
                self.warn(
                    "module %r has taken %s before it was patched, and isn't cooperative there;"
                    " call gosched.patch_all() before it is imported" % (modname, ", ".join(sorted(taken)))
                )

    def finish(self, stacklevel=3):
        self.sweep()
        for message in self.messages:
            _warnings.warn(message, PatchWarning, stacklevel=stacklevel)


#: What modules may have without having taken it by name: type(threading.Lock()).
_NOT_TAKEN = ("LockType", "_LockType", "lock", "io")

_STDLIB = _path.dirname(_path.realpath(_path.__file__))


def _is_stdlib(name, module):
    if name == "__main__":
        return False
    names = getattr(_sys, "stdlib_module_names", None)
    if names is not None and name.split(".")[0] not in names:
        return False
    file = getattr(module, "__file__", None)
    if file is None:
        return names is not None or name in _sys.builtin_module_names
    file = _path.realpath(file)
    return file.startswith(_STDLIB + _path.sep) and "site-packages" not in file


def _patch_function(fn):
    """A patch function: at most once, with its own or the caller's record."""
    name = fn.__name__[len("patch_") :]

    def patch():
        if name in _patched:
            return
        record = _Patch()
        _patched.add(name)
        fn(record)
        record.finish()

    patch.__name__ = patch.__qualname__ = fn.__name__
    patch.__doc__ = fn.__doc__
    patch._into = lambda record: (name in _patched) or (_patched.add(name), fn(record))
    return patch


@_patch_function
def patch_time(record):
    """Make time.sleep cooperative."""
    import time

    from . import time as ours

    record.set(time, "sleep", ours.sleep)
    # Not cooperative, but safe with the identities of goroutines.
    record.set(time, "pthread_getcpuclockid", ours.pthread_getcpuclockid)


def _patch_clocks():
    """For the first bubble: its clock in the place of the clocks of `time`."""
    import time

    from . import time as ours

    record = _Patch()
    for name in ours._CLOCKS:
        record.set(time, name, getattr(ours, name))
    # What a module outside of the library has taken shows the time of the system.
    record.sweep()


@_patch_function
def patch_os(record):
    """Make os.read, os.write, os.waitpid and their relations cooperative."""
    import os

    from . import os as ours

    connection = _sys.modules.get("multiprocessing.connection")
    if connection is not None:
        cls = connection.Connection
        if cls._read is os.read and cls._recv.__defaults__:
            cls._read, cls._write = ours.read, ours.write
            cls._recv.__defaults__ = (ours.read,)
            cls._send.__defaults__ = (ours.write,)
            cls._close.__defaults__ = (ours.close,)
    for name in ours._NAMES:
        record.set(os, name, getattr(ours, name))


@_patch_function
def patch_select(record):
    """Make select.select, poll and epoll, and the selectors, cooperative."""
    import select
    import selectors

    from . import select as ours

    _third_party.install()
    record.set(select, "select", ours.select)
    record.set(select, "poll", ours.poll)
    record.set(select, "epoll", ours.epoll)
    record.set(selectors.SelectSelector, "_select", staticmethod(ours.select))
    record.set(selectors.PollSelector, "_selector_cls", staticmethod(ours.poll))
    record.set(selectors.EpollSelector, "_selector_cls", ours.epoll)


@_patch_function
def patch_socket(record):
    """Make socket.socket cooperative, in place."""
    import socket

    from . import socket as ours

    record.methods(socket.socket, ours._METHODS, ours._Methods)


@_patch_function
def patch_dns(record):
    """Make getaddrinfo, gethostbyname and their relations cooperative."""
    import _socket
    import socket

    from . import socket as ours

    for name, value in ours._DNS.items():
        record.set(_socket, name, value)
        if name != "getaddrinfo":
            record.set(socket, name, value)


@_patch_function
def patch_ssl(record):
    """Make ssl.SSLSocket cooperative, in place."""
    try:
        import ssl
    except ImportError:
        return

    from . import ssl as ours

    record.methods(ssl.SSLSocket, ours._METHODS, ours._Methods)


@_patch_function
def patch_subprocess(record):
    """Make subprocess.Popen and its pipes cooperative."""
    import subprocess

    from . import _pipe
    from . import subprocess as ours

    # Its pipes are opened with ``io.open``, its children waited for with ``os.waitpid``.
    record.set(subprocess, "io", _pipe.io)
    record.set(subprocess.Popen, "_wait", ours._wait)
    record.set(subprocess.Popen, "_execute_child", ours._execute_child)
    record.set(subprocess.Popen, "_get_handles", ours._get_handles)
    if "os" not in _patched:
        from . import os

        subprocess.os = os
    if "select" not in _patched:
        from . import selectors

        subprocess._PopenSelector = selectors.PollSelector
        subprocess.selectors = selectors


@_patch_function
def patch_queue(record):
    """Make queue.SimpleQueue cooperative. (The other queues are, with threading.)"""
    import _queue
    import queue

    from . import _queue as ours

    record.set(_queue, "SimpleQueue", ours.SimpleQueue)
    record.set(queue, "SimpleQueue", ours.SimpleQueue)

    def afresh(module):
        # For those who import it afresh.
        module.SimpleQueue = ours.SimpleQueue
        module.Empty = ours.Empty

    _third_party.add("_queue", afresh)


@_patch_function
def patch_signal(record):
    """Make the waits for signals cooperative."""
    import signal

    from . import _originals
    from . import signal as ours

    if signal.signal is ours.signal:
        # Since the start of the goroutines. Modules may have taken the names before.
        signal.signal, signal.getsignal = _originals.signal_signal, _originals.getsignal
    for name in ours._NAMES:
        record.set(signal, name, getattr(ours, name))


@_patch_function
def patch_sqlite3(record):
    """Make the calls of sqlite3 wait in other threads."""

    def replace(record, *names):
        from . import _sqlite

        for module in names:
            for name, value in _sqlite.REPLACEMENTS.items():
                record.set(_sys.modules[module], name, value)

    if "_sqlite3" in _sys.modules:
        replace(record, *(name for name in ("_sqlite3", "sqlite3", "sqlite3.dbapi2") if name in _sys.modules))
    else:
        # No module has taken its names then.
        _third_party.add("_sqlite3", lambda module: replace(_Patch(), "_sqlite3"))


_THREAD_NAMES = (
    "LockType",
    "RLock",
    "_ThreadHandle",
    "_count",
    "_make_thread_handle",
    "_set_sentinel",
    "_shutdown",
    "allocate",
    "allocate_lock",
    "get_ident",
    "get_native_id",
    "lock",
    "set_name",
    "start_joinable_thread",
    "start_new",
    "start_new_thread",
)
_THREADING_NAMES = {
    "Lock": "allocate_lock",
    "_CRLock": "RLock",
    "_LockType": "LockType",
    "_ThreadHandle": "_ThreadHandle",
    "_allocate_lock": "allocate_lock",
    "_make_thread_handle": "_make_thread_handle",
    "_set_name": "set_name",
    "_set_sentinel": "_set_sentinel",
    "_start_joinable_thread": "start_joinable_thread",
    "_start_new_thread": "start_new_thread",
    "_thread_shutdown": "_shutdown",
    "get_ident": "get_ident",
    "get_native_id": "get_native_id",
}


@_patch_function
def patch_threading(record):
    """Make threads goroutines, and threading's locks (and the import system's) cooperative."""
    import _thread
    import threading

    from . import _thread as ours

    others = [t for t in threading.enumerate() if t is not threading.current_thread()]
    if others:
        record.warn(
            "threads are running that threading started before it was patched, and stay threads: "
            + ", ".join("%s (of module %r)" % (t.name, _module_of(t)) for t in others)
        )
    elif _originals.thread_count():
        record.warn(
            "%d threads are running that _thread started before threading was patched"
            % _originals.thread_count()
        )
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main:
        record.warn("threading is patched outside the main thread")

    for name in _THREAD_NAMES:
        if hasattr(_thread, name) and hasattr(ours, name):
            record.set(_thread, name, getattr(ours, name))
    # trio asks whether this is the class of _thread, in C, or threading's in Python.
    ours.RLock.__module__ = "_thread"
    for name, source in _THREADING_NAMES.items():
        if hasattr(threading, name):
            record.set(threading, name, getattr(ours, source))

    _locks.adapt_threading(threading)
    _third_party.add("queue", _locks.adapt_queue)
    _third_party.add("concurrent.futures._base", _locks.adapt_futures)

    if not hasattr(threading, "_DeleteDummyThreadOnDel"):
        threading._DummyThread = _dummy_thread(threading, ours)

    main = threading.main_thread()
    if in_main:
        if hasattr(main, "_tstate_lock"):
            # It's released at the end of the program, for goroutines that join the main thread.
            locks = threading._shutdown_locks
            known = main._tstate_lock in locks
            locks.discard(main._tstate_lock)
            main._tstate_lock = ours._Sentinel()
            main._tstate_lock.acquire()
            if known:
                locks.add(main._tstate_lock)
        elif hasattr(main, "_handle"):
            main._handle = ours._make_thread_handle(main.ident)
        elif hasattr(main, "_os_thread_handle"):
            main._os_thread_handle = ours._make_thread_handle(main.ident)
    _fork_hooks(threading)
    _gosched._are_threads()
    if _identities.IS_NEEDED:
        record.set(_sys, "_current_frames", _identities._current_frames)
        record.set(_sys, "_current_exceptions", _identities._current_exceptions)
        _third_party.add("ctypes", _identities.adapt_ctypes)
    for name, adapt in _third_party.THREADS.items():
        _third_party.add(name, adapt)
    if not others:
        _replace_locks(ours)

    import gosched

    if "gosched.threading" in _sys.modules:
        _sys.modules["gosched.threading"] = threading
        gosched.threading = threading


def _module_of(thread):
    target = getattr(thread, "_target", None)
    return getattr(target, "__module__", None) or type(thread).__module__


def _dummy_thread(threading, ours):
    # A goroutine that threading didn't start gets one of these from current_thread(); it goes
    # when the goroutine does. From 3.12.2 on threading sees to that itself.
    class _DummyThread(threading._DummyThread):
        def __init__(self):
            threading.Thread.__init__(self, name=_dummy_name(threading), daemon=True)
            self._started.set()
            self._set_ident()
            self._set_native_id()
            ident = self._ident
            active = threading._active
            with threading._active_limbo_lock:
                active[ident] = self
            goroutine = ours._current()
            if goroutine is not None:
                goroutine.add_done_callback(lambda _: active.pop(ident, None))

        def is_alive(self):
            assert not self._is_stopped and self._started.is_set()
            return True

        def join(self, timeout=None):
            assert False, "cannot join a dummy thread"

    _DummyThread.__qualname__ = "_DummyThread"
    _DummyThread.__module__ = "threading"
    return _DummyThread


def _dummy_name(threading):
    name = threading._newname("Dummy-%d")
    return name


def _fork_hooks(threading):
    # In the child the goroutine that forked is the main thread's, and has its identity, while
    # threading looks for the thread with the identity that it had, and makes one if it knows none.
    import os

    originals = {
        name: getattr(threading, name)
        for name in ("get_ident", "_get_main_thread_ident")  # the latter from 3.13 on
        if hasattr(threading, name)
    }
    get_ident = originals["get_ident"]

    def before_fork():
        parent, ident = os.getpid(), get_ident()

        def in_child(original):
            # Other threads of the parent may ask meanwhile.
            return lambda: original() if os.getpid() == parent else ident

        for name, original in originals.items():
            setattr(threading, name, in_child(original))

    def after_in_parent():
        for name, original in originals.items():
            setattr(threading, name, original)

    def after_in_child():
        after_in_parent()
        main = threading._main_thread
        ident = get_ident()
        if main._ident != ident:
            threading._active.pop(main._ident, None)
            threading._active[ident] = main
            main._ident = ident
        for name in ("_handle", "_os_thread_handle"):
            handle = getattr(main, name, None)
            if hasattr(handle, "_ident"):
                handle._ident = ident

    os.register_at_fork(
        before=before_fork, after_in_parent=after_in_parent, after_in_child=after_in_child
    )


# Locks that exist

def _replace_locks(ours):
    """Replaces the interpreter's locks that nothing holds with cooperative ones, where it can.

    A lock may hang on several things (a queue's is in three conditions, with its methods): all
    of them get the same new one.
    """
    kinds = {_originals.LockType: ours.LockType, _originals.RLockType: ours.RLock}
    method = _types.BuiltinMethodType
    replacements = {}

    def replacement(value):
        kind = type(value)
        if kind is method:
            lock = value.__self__
            if type(lock) not in kinds:
                return None
            new = replacement(lock)
            return None if new is None else getattr(new, value.__name__, None)
        if kind not in kinds:
            return None
        found = replacements.get(id(value))
        if found is None:
            found = replacements[id(value)] = (value, None if _is_held(value) else kinds[kind]())
        return found[1]

    def interesting(value):
        kind = type(value)
        return kind in kinds or (kind is method and type(value.__self__) in kinds)

    def in_dict(holder):
        for key, value in list(holder.items()):
            if interesting(value):
                new = replacement(value)
                if new is not None:
                    holder[key] = new

    def in_attributes(holder):
        for name in _attributes(holder):
            try:
                value = getattr(holder, name)
            except Exception:
                continue
            if interesting(value):
                new = replacement(value)
                if new is not None:
                    try:
                        object.__setattr__(holder, name, new)
                    except (AttributeError, TypeError):
                        pass

    leave = {id(vars(_originals)), id(replacements), id(kinds)}
    skip = (tuple, frozenset, _types.FunctionType, _types.CodeType, _types.FrameType, type)
    is_tracked, referents = _gc.is_tracked, _gc.get_referents
    for holder in _gc.get_objects():
        if id(holder) in leave:
            continue
        kind = type(holder)
        if kind is dict:
            in_dict(holder)
        elif kind is list:
            for index, value in enumerate(holder):
                if interesting(value):
                    new = replacement(value)
                    if new is not None:
                        holder[index] = new
        elif kind is _types.CellType:
            try:
                value = holder.cell_contents
            except ValueError:
                continue
            if interesting(value):
                new = replacement(value)
                if new is not None:
                    holder.cell_contents = new
        elif not issubclass(kind, skip) and kind is not method:
            found = False
            for value in referents(holder):
                if type(value) is dict:
                    # The attributes of an object, if that is all there is in them, are in a
                    # dictionary that the collector doesn't know.
                    if not is_tracked(value):
                        in_dict(value)
                elif interesting(value):
                    found = True
            if found:
                in_attributes(holder)


def _attributes(holder):
    names = list(getattr(holder, "__dict__", ()))
    for cls in type(holder).__mro__:
        slots = vars(cls).get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return names


def _is_held(lock):
    if type(lock) is _originals.LockType:
        return lock.locked()
    if lock._is_owned() or not lock.acquire(False):
        return True
    lock.release()
    return False


_ALL = (
    ("os", patch_os),
    ("time", patch_time),
    ("threading", patch_threading),
    ("queue", patch_queue),
    ("select", patch_select),
    ("socket", patch_socket),
    ("dns", patch_dns),
    ("ssl", patch_ssl),
    ("subprocess", patch_subprocess),
    ("signal", patch_signal),
    ("sqlite3", patch_sqlite3),
)


def patch_all(
    socket=True,
    dns=True,
    time=True,
    select=True,
    threading=True,
    queue=True,
    subprocess=True,
    ssl=True,
    os=True,
    signal=True,
    sqlite3=True,
    *,
    blocking=None,
):
    """Make the standard library cooperative, all of it or what the arguments say.

    blocking="auto": besides, well-known functions that block or compute for long (gosched._blocking.KNOWN;
    :func:`add_blocking` adds others) run in other threads, and a watchdog says once of each other call that holds the
    goroutines up for more than 20 ms what to do about it.

    Call it first thing in a program, before other modules are imported. It may be called more
    than once. Warns (:class:`PatchWarning`) of modules for which it comes too late.
    """
    if blocking not in (None, "auto"):
        raise ValueError("blocking must be None or 'auto', not %r" % (blocking,))
    wanted = dict(
        socket=socket,
        dns=dns,
        time=time,
        select=select,
        threading=threading,
        queue=queue,
        subprocess=subprocess,
        ssl=ssl,
        os=os,
        signal=signal,
        sqlite3=sqlite3,
    )
    record = _Patch()
    for name, patch in _ALL:
        if wanted[name]:
            patch._into(record)
    record.finish()
    if blocking is not None:
        _blocking.add_known()
        _watch()


def _watch():
    from . import _watchdog

    if _watchdog.automatic is None:
        _watchdog.automatic = _watchdog.watchdog(0.02, _watchdog.Advice())
