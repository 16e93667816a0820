"""Signals: Python's handlers run in the main thread, which may be asleep when one arrives."""

import functools
import os
import signal
from _thread import get_ident as _thread_ident

from . import _gosched
from . import _originals

#: the ends of the pipe that wakes the thread; None: not started
_pipe = None


def _watch():
    while True:
        try:
            _gosched._wait_for_signal()
            _gosched._check_signals()
        except BaseException as error:
            # The handlers run between the lines above: what they raise is for the main goroutine.
            main = _gosched.main()
            if main is not None:
                main.throw(error)


def _on_interrupt(number, frame):
    """The handler of SIGINT in place of signal.default_int_handler: KeyboardInterrupt is raised in the main
    goroutine, whichever runs."""
    if _gosched._is_raising():
        return
    main = _gosched.main()
    if main is None or _gosched.get_ident() == _thread_ident():
        raise KeyboardInterrupt
    # And gives way: the goroutine that runs may compute for long.
    _gosched._interrupt_main()


class _Handler:
    """A handler of signals whose exceptions are the main goroutine's, whichever it has interrupted."""

    __slots__ = ("handler",)

    def __init__(self, handler):
        self.handler = handler

    def __call__(self, number, frame):
        main = _gosched.main()
        if main is None or _gosched.get_ident() == _thread_ident():
            return self.handler(number, frame)
        try:
            self.handler(number, frame)
        except BaseException as error:
            main.throw(error)
            # The goroutine that runs may compute for long.
            _gosched._give_way()


def _unwrapped(handler):
    if type(handler) is _Handler:
        return handler.handler
    if handler is _on_interrupt:
        return signal.default_int_handler
    return handler


def _signal(signalnum, handler):
    """Set the handler of a signal. Returns the handler that it had."""
    if callable(handler) and handler is not _on_interrupt and type(handler) is not _Handler:
        handler = _Handler(handler)
    return _unwrapped(_originals.signal_signal(signalnum, handler))


def _getsignal(signalnum):
    """The handler of a signal."""
    return _unwrapped(_originals.getsignal(signalnum))


# What they are in gosched.signal, and in signal once the main thread has begun to run goroutines.
_signal.__name__ = _signal.__qualname__ = "signal"
_getsignal.__name__ = _getsignal.__qualname__ = "getsignal"


def _wrap_handlers():
    """The handlers that are set already are as those that are set from now on."""
    for number in signal.valid_signals():
        handler = _originals.getsignal(number)
        if callable(handler) and handler is not _on_interrupt and type(handler) is not _Handler:
            restarts = _gosched._restarts(number)
            _originals.signal_signal(number, _Handler(handler))
            if restarts:
                signal.siginterrupt(number, False)


_std_set_wakeup_fd = signal.set_wakeup_fd


@functools.wraps(_std_set_wakeup_fd)
def _set_wakeup_fd(*args, **kwargs):
    ours = -1 if _pipe is None else _pipe[1]
    if args == (-1,) and ours != -1:
        # asyncio and others say so at their end: signals must wake the thread still.
        old = _std_set_wakeup_fd(ours, warn_on_full_buffer=False)
    else:
        old = _std_set_wakeup_fd(*args, **kwargs)
    return -1 if old == ours else old


def _adapt():
    signal.set_wakeup_fd = _set_wakeup_fd
    # What a handler raises is the main goroutine's.
    signal.signal = _signal
    signal.getsignal = _getsignal
    # What asks for the handler of Ctrl-C, as asyncio.run() does, or puts it back, means the handler that is in
    # use here. Last: it tells start() that the rest is done.
    functools.update_wrapper(_on_interrupt, signal.default_int_handler)
    signal.default_int_handler = _on_interrupt


def start():
    """Called when the main thread begins to run goroutines; again if a signal's handler has ended it half way."""
    global _pipe
    if _pipe is None:
        r, w = os.pipe()
        os.set_blocking(r, False)
        os.set_blocking(w, False)
        _pipe = (r, w)
    r, w = _pipe
    try:
        old = _std_set_wakeup_fd(w, warn_on_full_buffer=False)
    except ValueError:
        # Not the main thread of the main interpreter.
        old = None
    if old not in (-1, w):
        _pipe = None
        if old is not None:
            # Another library's: it wakes the thread itself.
            _std_set_wakeup_fd(old)
        os.close(r)
        os.close(w)
        return
    # On the main thread: Python runs the handlers there only.
    _gosched._listen(r, _watch)
    if signal.default_int_handler is not _on_interrupt:
        if _originals.getsignal(signal.SIGINT) is signal.default_int_handler:
            _originals.signal_signal(signal.SIGINT, _on_interrupt)
        _wrap_handlers()
        _adapt()


def _settle():
    """For threads that run goroutines, on a free-threaded Python."""
    while True:
        try:
            if not _gosched._settle():
                return
        except BaseException as error:
            # That of a handler, as in _watch().
            main = _gosched.main()
            if main is not None:
                main.throw(error)


def forked():
    """In the child of a fork: the pipe is the parent's too."""
    global _pipe
    if _pipe is None:
        return
    r, w = _pipe
    _pipe = None
    try:
        old = _std_set_wakeup_fd(-1)
        if old not in (-1, w):
            _std_set_wakeup_fd(old)
    except ValueError:
        pass
    for fd in (r, w):
        try:
            os.close(fd)
        except OSError:
            pass
