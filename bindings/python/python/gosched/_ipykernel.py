"""ipykernel: applied to its modules, so that a kernel answers, and its goroutines run, while no cell runs.

A kernel has threads of its own for the heartbeat, for output, and for messages that can't wait for a cell's end. They wait
in C, and are there to run while a cell computes: where threads are goroutines, these stay threads of the system.
"""

import threading
import types

from . import _gosched
from ._zmq import SystemThread


class _Threading(types.ModuleType):
    """The module threading, with another Thread."""

    Thread = SystemThread

    def __getattr__(self, name):
        return getattr(threading, name)


_CLASSES = ("BaseThread", "ControlThread", "Heartbeat", "ParentPollerUnix")


def adapt_classes(module):
    """For the modules that have a class of threads."""
    for name in _CLASSES:
        cls = vars(module).get(name)
        if cls is not None:
            cls._is_of_the_system = True


def adapt_threads_of_streams(module):
    """For ipykernel.iostream."""
    module.threading = _Threading("threading")


class _Waker:
    """Wakes the thread for output, as a thread's own socket of ZeroMQ does."""

    __slots__ = ("_thread",)

    def __init__(self, thread):
        self._thread = thread

    def send(self, message):
        self._thread.io_loop.add_callback(self._thread._handle_event, message)


def adapt_streams(module):
    """For ipykernel.iostream: goroutines need no sockets, of which there are 1023, to print."""
    cls = module.IOPubThread
    original = cls._event_pipe
    if not isinstance(original, property) or hasattr(original, "_is_adapted"):
        return

    class EventPipe(property):
        _is_adapted = True

    def event_pipe(self):
        if _gosched.current() in (None, _gosched.main()):
            return original.fget(self)
        return _Waker(self)

    cls._event_pipe = EventPipe(event_pipe, doc=original.__doc__)


def adapt_kernel(module):
    """For ipykernel.kernelbase. It may have been imported before goroutines began, when signal had other functions: the
    interrupt of a cell is the main goroutine's."""
    import signal

    _gosched.current()
    module.signal = signal.signal
    module.default_int_handler = signal.default_int_handler
