from collections.abc import Callable
from typing import TypeVar
from typing_extensions import ParamSpec, Self

from ._gosched import Goroutine

_P = ParamSpec("_P")
_T = TypeVar("_T")

class Group:
    def __init__(self) -> None: ...
    def go(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Goroutine[_T]: ...
    create_task = go
    def cancel(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool | None: ...

TaskGroup = Group
