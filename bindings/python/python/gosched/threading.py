"""``threading`` whose threads are goroutines, and whose locks park them.

It's the standard library's own code over :mod:`gosched._thread`. After
:func:`gosched.patch_threading` it's the standard module itself.
"""

import sys as _sys
import threading as _std


def _load():
    import importlib.util

    from . import _locks
    from . import _thread
    from . import time

    spec = importlib.util.find_spec("threading")
    code = spec.loader.get_code("threading")
    namespace = globals()
    saved = {name: _sys.modules[name] for name in ("_thread", "time")}
    _sys.modules["_thread"] = _thread
    _sys.modules["time"] = time
    doc = __doc__
    try:
        exec(code, namespace)
    finally:
        _sys.modules.update(saved)
    _locks.adapt_threading(_sys.modules[__name__])
    namespace["__doc__"] = doc
    main = namespace["_main_thread"]
    # Its threads that aren't daemons are waited for at the interpreter's end.
    _std._register_atexit(namespace["_shutdown"])
    return main


from .patch import is_patched as _is_patched  # noqa: E402

if _is_patched("threading"):
    _sys.modules[__name__] = _std
else:
    _load()
