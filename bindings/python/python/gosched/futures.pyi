import concurrent.futures as _futures
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar
from typing_extensions import ParamSpec

from ._gosched import Goroutine

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Item = TypeVar("_Item", bound=Goroutine[Any] | _futures.Future[Any])

FIRST_COMPLETED: str
FIRST_EXCEPTION: str
ALL_COMPLETED: str

class BrokenExecutor(_futures.BrokenExecutor): ...
class Future(_futures.Future[_T]): ...

class Executor(_futures.Executor):
    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None: ...
    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]: ...
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None: ...

class DoneAndNotDone(NamedTuple, Generic[_Item]):
    done: set[_Item]
    not_done: set[_Item]

def as_completed(items: Iterable[_Item], timeout: float | None = None) -> Iterator[_Item]: ...
def wait(items: Iterable[_Item], timeout: float | None = None, return_when: str = ...) -> DoneAndNotDone[_Item]: ...
