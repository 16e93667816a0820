"""Goroutines, channels and cooperative I/O for Python.

    import gosched

    def hello(name, channel):
        gosched.sleep(0.1)
        channel.send("hello, " + name)

    channel = gosched.Channel()
    gosched.go(hello, "world", channel)
    print(channel.recv())

The program itself is a goroutine, the main one. Goroutines switch only where they wait: at channels, locks,
sleep() and joins, and at sockets and the like of gosched.socket and its siblings, which patch_all() puts in the
place of the standard library's.
"""

import importlib as _importlib
import os as _os
from threading import local

from . import _supported  # first: refuses other versions of Python
from . import _third_party
from ._gosched import (
    Cancelled,
    Channel,
    Closed,
    Event,
    Goroutine,
    Lock,
    RLock,
    Semaphore,
    after,
    blocking,
    current,
    get_ident,
    go,
    gomaxprocs,
    goroutines,
    main,
    nodes,
    num_goroutines,
    sleep,
    spawn,
    stats,
    version,
    yield_,
)
from ._runtime import (
    Once,
    RWMutex,
    Ticker,
    Timeout,
    WaitGroup,
    excepthook,
    run,
    ticker,
    with_timeout,
)
from ._inspect import dump, dump_json, flight_recorder, leaks, metrics, trace
from . import select  # a module that is called as select() over channels too
from .group import Group, TaskGroup
from .limits import RateLimiter, timeout
from .pool import Pool

#: What `from gosched import *` gives. Without the modules: their names are the standard library's.
__all__ = [
    "after", "as_completed", "as_future", "blocking", "Cancelled", "Channel", "Closed", "Condition", "current", "dump",
    "dump_json", "Event", "EventLoopPolicy", "excepthook", "Executor", "flight_recorder", "get_ident", "get_include", "get_library_dir", "go",
    "gomaxprocs", "Goroutine", "goroutines", "Group", "leaks", "local", "Lock", "main", "metrics", "Mutex", "nodes",
    "num_goroutines", "Once", "patch_all", "PatchWarning", "Pool", "Queue", "RateLimiter", "RLock", "run", "run_coroutine",
    "RWMutex", "select", "Semaphore", "sleep", "spawn", "stats", "TaskGroup", "test", "Ticker", "ticker", "Timeout", "timeout", "trace",
    "version", "wait", "WaitGroup", "watchdog", "with_timeout", "yield_",
]

__version__ = version()

#: Go's name of a lock.
Mutex = Lock

#: What IPython's %load_ext calls, and dir() doesn't list.
_EXTENSION = "load_ipython_extension"

#: What is imported when it is first used: attribute -> (module, name there; None: the module itself).
_LAZY = {
    "Condition": ("threading", "Condition"),
    "Queue": ("queue", "Queue"),
    "PatchWarning": ("patch", "PatchWarning"),
    "patch_all": ("patch", "patch_all"),
    "as_future": ("asyncio", "as_future"),
    "run_coroutine": ("asyncio", "run_coroutine"),
    "EventLoopPolicy": ("asyncio", "EventLoopPolicy"),
    "test": ("testing", "test"),
    "watchdog": ("_watchdog", "watchdog"),
    "Executor": ("futures", "Executor"),
    "as_completed": ("futures", "as_completed"),
    "wait": ("futures", "wait"),
    _EXTENSION: ("ipython", "load_ipython_extension"),
}
for _name in ("asyncio", "futures", "os", "patch", "queue", "selectors", "signal", "socket", "ssl", "subprocess", "testing", "threading", "time"):
    _LAZY[_name] = (_name, None)
del _name


def __getattr__(name):
    try:
        module, attribute = _LAZY[name]
    except KeyError:
        raise AttributeError("module 'gosched' has no attribute %r" % name) from None
    value = _importlib.import_module("." + module, __name__)
    if attribute is not None:
        value = globals()[name] = getattr(value, attribute)
    return value


def __dir__():
    return sorted((set(globals()) | set(_LAZY)) - {_EXTENSION})


def get_include():
    """The directory of gosched.h and gosched_python.h, for C extensions.

    >>> import os, gosched
    >>> os.path.exists(os.path.join(gosched.get_include(), "gosched.h"))
    True
    """
    return _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "include")


def get_library_dir():
    """The directory of libgosched.so, for C extensions to link with.

    >>> import os, gosched
    >>> os.path.exists(os.path.join(gosched.get_library_dir(), "libgosched.so.1"))
    True
    """
    return _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "lib")


_third_party.add("numpy", _third_party.lapack)

if _os.environ.get("GOSCHED_WATCHDOG"):
    from ._watchdog import from_environment as _from_environment

    _from_environment()
