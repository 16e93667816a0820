from collections.abc import Callable, Sequence
from traceback import FrameSummary
from types import FrameType
from typing import Any
from typing_extensions import Self

from ._gosched import Goroutine

class Incident:
    goroutine: Goroutine[Any] | None
    name: str | None
    seconds: float
    ended: bool
    filename: str | None
    lineno: int | None
    function: str | None
    call: str
    stack: Sequence[FrameSummary]
    remedy: str
    def __init__(self, goroutine: Goroutine[Any] | None, frame: FrameType | None) -> None: ...

class Watchdog:
    seconds: float
    def __init__(self, seconds: float, report: Callable[[Incident], object] | None) -> None: ...
    @property
    def running(self) -> bool: ...
    def stop(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *args: object) -> None: ...

def watchdog(seconds: float = 0.1, report: Callable[[Incident], object] | None = None) -> Watchdog: ...
def from_environment() -> None: ...

class Advice:
    def __init__(self) -> None: ...
    def __call__(self, incident: Incident) -> None: ...

automatic: Watchdog | None
