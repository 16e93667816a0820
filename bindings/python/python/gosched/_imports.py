"""The locks of modules that are being imported.

Python keeps one for each module, and takes the thread that holds it for its owner: another goroutine of that
thread would be given the module half made. So from the first goroutine on these locks are cooperative ones, which
goroutines own.
"""

import sys
import types

from . import _gosched


def _cooperative():
    """What `importlib` finds in the place of the module `_thread`."""
    import _thread

    names = types.SimpleNamespace(**vars(_thread))
    names.get_ident = _gosched.get_ident
    names.allocate_lock = names.Lock = _gosched.Lock
    names.RLock = _gosched.RLock
    return names


def start():
    """Called when goroutines begin."""
    bootstrap = sys.modules.get("_frozen_importlib")
    locks = getattr(bootstrap, "_module_locks", None)
    if locks is None or getattr(bootstrap._thread, "get_ident", None) is _gosched.get_ident:
        return
    bootstrap._thread = _cooperative()
    # Modules that are being imported at this moment: their locks are held by the thread, which is the main
    # goroutine now and has the same identity.
    for ref in list(locks.values()):
        module_lock = ref()
        if module_lock is None or not hasattr(module_lock, "wakeup") or module_lock.waiters:
            continue
        module_lock.lock = bootstrap._thread.RLock() if sys.version_info >= (3, 12) else _gosched.Lock()
        module_lock.wakeup = _gosched.Lock()
