from threading import Condition as Condition, local as local
from queue import Queue as Queue

from . import asyncio as asyncio, futures as futures, socket as socket, testing as testing
from ._gosched import (
    Cancelled as Cancelled,
    Channel as Channel,
    Closed as Closed,
    Event as Event,
    Goroutine as Goroutine,
    Lock as Lock,
    RLock as RLock,
    Semaphore as Semaphore,
    after as after,
    blocking as blocking,
    current as current,
    get_ident as get_ident,
    go as go,
    gomaxprocs as gomaxprocs,
    goroutines as goroutines,
    main as main,
    nodes as nodes,
    num_goroutines as num_goroutines,
    select as select,
    sleep as sleep,
    spawn as spawn,
    stats as stats,
    version as version,
    yield_ as yield_,
)
from ._inspect import dump as dump, dump_json as dump_json, flight_recorder as flight_recorder, leaks as leaks, metrics as metrics, trace as trace
from ._runtime import (
    Once as Once,
    RWMutex as RWMutex,
    Ticker as Ticker,
    Timeout as Timeout,
    WaitGroup as WaitGroup,
    excepthook as excepthook,
    run as run,
    ticker as ticker,
    with_timeout as with_timeout,
)
from ._watchdog import watchdog as watchdog
from .asyncio import EventLoopPolicy as EventLoopPolicy, as_future as as_future, run_coroutine as run_coroutine
from .group import Group as Group, TaskGroup as TaskGroup
from .patch import PatchWarning as PatchWarning, patch_all as patch_all
from .pool import Pool as Pool
from .testing import test as test

__all__ = [
    "after", "as_completed", "as_future", "blocking", "Cancelled", "Channel", "Closed", "Condition", "current", "dump",
    "dump_json", "Event", "EventLoopPolicy", "excepthook", "Executor", "flight_recorder", "get_ident", "get_include", "get_library_dir", "go",
    "gomaxprocs", "Goroutine", "goroutines", "Group", "leaks", "local", "Lock", "main", "metrics", "Mutex", "nodes",
    "num_goroutines", "Once", "patch_all", "PatchWarning", "Pool", "Queue", "RateLimiter", "RLock", "run", "run_coroutine",
    "RWMutex", "select", "Semaphore", "sleep", "spawn", "stats", "TaskGroup", "test", "Ticker", "ticker", "Timeout", "timeout", "trace",
    "version", "wait", "WaitGroup", "watchdog", "with_timeout", "yield_",
]

__version__: str
from .futures import Executor as Executor, as_completed as as_completed, wait as wait
from .limits import RateLimiter as RateLimiter, timeout as timeout

Mutex = Lock

def get_include() -> str: ...
def get_library_dir() -> str: ...
