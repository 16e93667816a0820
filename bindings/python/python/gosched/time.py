"""``time``, with a :func:`sleep` that parks the goroutine and leaves its thread to the others, and with clocks that in a
bubble of :mod:`gosched.testing` are the bubble's."""

import operator as _operator
import time as _std

from . import _gosched
from ._originals import sleep as _sleep
from ._originals import take_names as _take_names

_take_names(_std, globals())

_core_sleep = _gosched.sleep

# In a bubble time() begins with the year 2000.
monotonic = perf_counter = _gosched.monotonic
monotonic_ns = perf_counter_ns = _gosched.monotonic_ns
time = _gosched.time
time_ns = _gosched.time_ns

#: names in time that the first bubble replaces if sleep() is patched
_CLOCKS = ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns")
_pthread_getcpuclockid = _std.pthread_getcpuclockid


def sleep(seconds, /):
    """Suspend the calling goroutine for that many seconds. Other goroutines run meanwhile."""
    if not isinstance(seconds, (int, float)):
        if not hasattr(type(seconds), "__index__"):
            _sleep(seconds)  # it raises the right TypeError
        seconds = _operator.index(seconds)
    if 0 <= seconds < 1e9:
        _core_sleep(seconds)
    else:
        _check(seconds)
        _core_sleep(seconds)


def _check(seconds):
    if seconds != seconds:
        raise ValueError("Invalid value NaN (not a number)")
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    if seconds > 9.2e9:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")


def pthread_getcpuclockid(thread_id, /):
    """The clock of a thread's CPU time; a goroutine has the clock of its thread."""
    from . import _thread

    return _pthread_getcpuclockid(_thread._ident_of_thread(thread_id))
