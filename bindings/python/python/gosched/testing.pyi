from typing import Any, Callable, NoReturn, Protocol, TypeVar, overload

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])

__all__ = ["DeadlockError", "Disturbed", "explore", "fail", "Failure", "Net", "now", "run", "seed", "test", "TooManySteps"]

class Failure(AssertionError):
    seed: int | None
    replay: str | None
    report: str

class DeadlockError(Failure): ...
class TooManySteps(Failure): ...
class Disturbed(Failure): ...

class Net:
    delay: float
    jitter: float
    loss: float
    duplicate: float
    cut: float
    reset: float
    refuse: float
    short_io: float
    def __init__(
        self,
        *,
        delay: float = 0.0,
        jitter: float = 0.0,
        loss: float = 0.0,
        duplicate: float = 0.0,
        cut: float = 0.0,
        reset: float = 0.0,
        refuse: float = 0.0,
        short_io: float = 0.0,
    ) -> None: ...

class _HasFileno(Protocol):
    def fileno(self) -> int: ...

def run(
    f: Callable[[], _T],
    *,
    seed: int | None = None,
    schedule: str = "random",
    depth: int = 3,
    max_steps: int = 1_000_000,
    replay: str | None = None,
    log: _HasFileno | int | None = None,
    net: Net | None = None,
    strict: bool = False,
    quiet: bool = False,
) -> _T: ...
def explore(
    f: Callable[[], object],
    runs: int = 1000,
    *,
    seed: int | None = None,
    schedule: str = "random",
    depth: int = 3,
    max_steps: int = 1_000_000,
    replay: str | None = None,
    log: _HasFileno | int | None = None,
    net: Net | None = None,
    strict: bool = False,
    quiet: bool = False,
) -> int: ...
def seed() -> int: ...
def now() -> float: ...
def fail(message: object) -> NoReturn: ...
@overload
def test(f: _F, /) -> _F: ...
@overload
def test(
    f: None = None,
    /,
    *,
    runs: int = 1000,
    seed: int | None = None,
    schedule: str = "random",
    depth: int = 3,
    max_steps: int = 1_000_000,
    net: Net | None = None,
    strict: bool = False,
    quiet: bool = False,
) -> Callable[[_F], _F]: ...
