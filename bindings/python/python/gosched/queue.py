"""Cooperative ``queue``: :class:`Queue`, :class:`LifoQueue`, :class:`PriorityQueue`, :class:`SimpleQueue`."""

import queue as _std
import sys as _sys
import types as _types

from . import _locks
from . import threading
from ._queue import SimpleQueue
from ._originals import take_names as _take_names

_take_names(_std, globals())
__all__ = list(_std.__all__)

Empty = _std.Empty
Full = _std.Full


def _rebound(cls, bases):
    # The class with this module's ``threading``.
    namespace = {}
    for name, value in vars(cls).items():
        if name in ("__dict__", "__weakref__"):
            continue
        if isinstance(value, _types.FunctionType):
            copy = _types.FunctionType(
                value.__code__, globals(), name, value.__defaults__, value.__closure__
            )
            copy.__kwdefaults__ = value.__kwdefaults__
            copy.__doc__ = value.__doc__
            value = copy
        namespace[name] = value
    namespace["__module__"] = __name__
    return type(cls.__name__, bases, namespace)


Queue = _rebound(_std.Queue, (_std.Queue,))
PriorityQueue = _rebound(_std.PriorityQueue, (Queue,))
LifoQueue = _rebound(_std.LifoQueue, (Queue,))
_locks.adapt_queue(_sys.modules[__name__])
