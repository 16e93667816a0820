"""Signals: Python's handlers run in the main thread, which may be asleep when one arrives."""

import errno
import os
import signal
from _thread import get_ident as _thread_ident

from . import _gosched

# Not what patch_all() puts in its place.
_read = os.read

#: the ends of the pipe that wakes the thread; None: not started
_pipe = None


def _watch(r):
    while True:
        try:
            _gosched.wait_read(r)
            while True:
                try:
                    if not _read(r, 4096):
                        return
                except BlockingIOError:
                    break
            _gosched._check_signals()
        except BaseException as error:
            if isinstance(error, OSError) and error.errno == errno.EBADF:
                return  # the pipe is closed
            # The handlers run between the lines above: what they raise is for the main goroutine.
            main = _gosched.main()
            if main is not None:
                main.throw(error)


def _on_interrupt(number, frame):
    """The handler of SIGINT in place of signal.default_int_handler: KeyboardInterrupt is raised in the main
    goroutine, whichever runs."""
    main = _gosched.main()
    if main is None or _gosched.get_ident() == _thread_ident():
        raise KeyboardInterrupt
    main.throw(KeyboardInterrupt())


def start():
    """Called when the main thread begins to run goroutines."""
    global _pipe
    try:
        r, w = os.pipe()
        os.set_blocking(r, False)
        os.set_blocking(w, False)
        old = signal.set_wakeup_fd(w, warn_on_full_buffer=False)
    except ValueError:
        # Not the main thread of the main interpreter.
        return
    if old != -1:
        # Another library's: it wakes the thread itself.
        signal.set_wakeup_fd(old)
        os.close(r)
        os.close(w)
        return
    _pipe = (r, w)
    watcher = _gosched.spawn(_watch, (r,), name="gosched-signals")
    watcher.add_done_callback(lambda g: None)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _on_interrupt)


def forked():
    """In the child of a fork: the pipe is the parent's too."""
    global _pipe
    if _pipe is None:
        return
    r, w = _pipe
    _pipe = None
    try:
        if signal.set_wakeup_fd(-1) != w:
            pass
    except ValueError:
        pass
    for fd in (r, w):
        try:
            os.close(fd)
        except OSError:
            pass
