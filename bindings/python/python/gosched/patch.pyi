from typing import Any, Literal

class PatchWarning(RuntimeWarning): ...

def is_patched(module: str) -> bool: ...
def patch_all(
    socket: bool = True,
    dns: bool = True,
    time: bool = True,
    select: bool = True,
    threading: bool = True,
    queue: bool = True,
    subprocess: bool = True,
    ssl: bool = True,
    os: bool = True,
    signal: bool = True,
    sqlite3: bool = True,
    *,
    blocking: Literal["auto"] | None = None,
) -> None: ...
def add_blocking(module: str, *names: str) -> None: ...
def get_original(module: str, name: str) -> Any: ...
