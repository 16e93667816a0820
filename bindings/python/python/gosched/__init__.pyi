from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from threading import local as local
from typing import Any, TypeVar
from typing_extensions import ParamSpec, Self

from . import socket as socket
from ._gosched import (
    Cancelled as Cancelled,
    Channel as Channel,
    Closed as Closed,
    Goroutine as Goroutine,
    Lock as Lock,
    Mutex as Mutex,
    Once as Once,
    RLock as RLock,
    RWMutex as RWMutex,
    Semaphore as Semaphore,
    Ticker as Ticker,
    Timeout as Timeout,
    WaitGroup as WaitGroup,
    after as after,
    blocking as blocking,
    current as current,
    dump as dump,
    get_ident as get_ident,
    go as go,
    gomaxprocs as gomaxprocs,
    main as main,
    nodes as nodes,
    num_goroutines as num_goroutines,
    select as select,
    sleep as sleep,
    spawn as spawn,
    stats as stats,
    ticker as ticker,
    version as version,
    yield_ as yield_,
)

_P = ParamSpec("_P")
_T = TypeVar("_T")

__version__: str

def run(fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...
def patch_all() -> None: ...
def get_include() -> str: ...
def get_library_dir() -> str: ...
