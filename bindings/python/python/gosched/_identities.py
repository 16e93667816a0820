"""What finds a thread by its identity, for goroutines that are threads: from Python 3.14 on.

Up to 3.13 the interpreter itself knows each goroutine by its identity. Later ones take an identity for the address of
what the C library has of a thread, so they get those of goroutines only while such a function is called.
"""

import functools
import sys

from . import _gosched

IS_NEEDED = sys.version_info >= (3, 14)

# No functions of Python's own, which would be in the caller's frames.
_current_frames = functools.partial(_gosched._as_threads, sys._current_frames)
_current_exceptions = functools.partial(_gosched._as_threads, getattr(sys, "_current_exceptions", None))


class _Function:
    """One of ctypes.pythonapi, with its attributes: argtypes, restype, errcheck."""

    def __init__(self, function):
        vars(self)["_function"] = function

    def __call__(self, *args):
        return _gosched._as_threads(self._function, *args)

    def __getattr__(self, name):
        return getattr(self._function, name)

    def __setattr__(self, name, value):
        setattr(self._function, name, value)


def adapt_ctypes(ctypes):
    """For PyThreadState_SetAsyncExc, which programs call by way of ctypes."""
    api = ctypes.pythonapi
    api.PyThreadState_SetAsyncExc = _Function(api.PyThreadState_SetAsyncExc)
