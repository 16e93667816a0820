"""Cooperative ``subprocess``: the waits for children and their pipes park the goroutine."""

import subprocess as _std
import types as _types
from time import monotonic as _monotonic

from . import _gosched
from . import os
from . import selectors
from . import time
from ._pipe import io
from ._originals import take_names as _take_names

_take_names(_std, globals())
__all__ = list(_std.__all__)

_PopenSelector = selectors.PollSelector
_std_wait = _std.Popen._wait
_std_get_handles = _std.Popen._get_handles
_std_execute_child = _std.Popen._execute_child


def _wait(self, timeout):
    """Popen._wait: waits for the end of the child instead of asking every now and then."""
    if self.returncode is None and timeout is None:
        # Before Popen's own wait, which holds a lock meanwhile: where threading isn't patched that lock blocks the thread,
        # and so all goroutines, if two of them wait.
        os._wait_child(self.pid)
        return _std_wait(self, None)
    if self.returncode is not None or timeout <= 0:
        return _std_wait(self, timeout)
    deadline = _monotonic() + timeout
    if os._wait_child(self.pid, timeout) is None:
        return _std_wait(self, timeout)
    try:
        return _std_wait(self, max(deadline - _monotonic(), 0))
    except TimeoutExpired:
        raise TimeoutExpired(self.args, timeout) from None


def _execute_child(self, *args):
    # It waits until the child has executed its program. A cancel that ended this wait would leave a child of which the
    # program knows nothing.
    return _gosched._through(_std_execute_child, self, *args)


def _get_handles(self, stdin, stdout, stderr):
    handles = _std_get_handles(self, stdin, stdout, stderr)
    for fd in handles[::3] + handles[-1:]:
        if fd in os._sockets:
            from . import socket

            socket._give(fd)
    return handles


def _rebind(fn):
    copy = _types.FunctionType(fn.__code__, globals(), fn.__name__, fn.__defaults__, fn.__closure__)
    copy.__kwdefaults__ = fn.__kwdefaults__
    copy.__doc__ = fn.__doc__
    return copy


class Popen(_std.Popen):
    __doc__ = _std.Popen.__doc__

    __init__ = _rebind(_std.Popen.__init__)
    _own_execute_child = _rebind(_std_execute_child)
    _communicate = _rebind(_std.Popen._communicate)
    _try_wait = _rebind(_std.Popen._try_wait)
    _std_wait = _rebind(_std.Popen._wait)

    def _execute_child(self, *args):
        return _gosched._through(self._own_execute_child, *args)

    def _wait(self, timeout):
        return _wait(self, timeout)

    _get_handles = _get_handles


def _std_wait(self, timeout):
    if isinstance(self, Popen):
        return Popen._std_wait(self, timeout)
    return _patched_wait(self, timeout)


_patched_wait = _std.Popen._wait

for _name in ("call", "check_call", "check_output", "run", "getoutput", "getstatusoutput"):
    globals()[_name] = _rebind(vars(_std)[_name])
del _name
