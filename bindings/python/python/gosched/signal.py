"""``signal``, with cooperative waits for signals."""

import os as _os
import signal as _std
from time import monotonic as _monotonic

from . import _gosched
from . import _originals
from . import _signals
from ._originals import take_names as _take_names

_take_names(_std, globals())

# How often a wait for blocked signals asks whether one is pending, in seconds.
_POLL = 0.005


signal = _signals._signal
getsignal = _signals._getsignal


def pause():
    """Wait until a signal arrives and its handler was called."""
    r, w = _os.pipe()
    try:
        _os.set_blocking(r, False)
        _os.set_blocking(w, False)
        old = _std.set_wakeup_fd(w, warn_on_full_buffer=False)
        try:
            _gosched.wait_read(r)
        finally:
            _std.set_wakeup_fd(old, warn_on_full_buffer=old != -1)
            try:
                numbers = _originals.os_read(r, 4096)
                if old != -1:
                    _originals.os_write(old, numbers)
            except OSError:
                pass
    finally:
        _gosched.cancel_fd(r)
        _os.close(r)
        _os.close(w)


def sigtimedwait(sigset, timeout, /):
    """Like sigwaitinfo(), but with a timeout in seconds."""
    if timeout < 0:
        raise ValueError("timeout must be non-negative")
    sigset = list(sigset)
    deadline = _monotonic() + timeout
    while True:
        found = _originals.sigtimedwait(sigset, 0)
        if found is not None:
            return found
        left = deadline - _monotonic()
        if left <= 0:
            return None
        _gosched.sleep(min(left, _POLL))


def sigwaitinfo(sigset, /):
    """Wait until one of the (blocked) signals is pending, and take it."""
    sigset = list(sigset)
    while True:
        found = _originals.sigtimedwait(sigset, 0)
        if found is not None:
            return found
        _gosched.sleep(_POLL)


def sigwait(sigset, /):
    """As sigwaitinfo(), with the signal's number as its result."""
    return _std.Signals(sigwaitinfo(sigset).si_signo)


def pthread_kill(thread_id, signalnum, /):
    """Send a signal to a thread; a goroutine's thread is the thread that all goroutines run in."""
    from . import _thread

    return _originals.pthread_kill(_thread._ident_of_thread(thread_id), signalnum)


_NAMES = ("signal", "getsignal", "pause", "sigtimedwait", "sigwaitinfo", "sigwait", "pthread_kill")
