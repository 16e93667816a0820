"""grpcio: applied to its modules when these are imported, where threads are goroutines.

grpcio polls its queues in C, in threads of its own: these stay threads of the system. Goroutines wait for them as threads
do, with the locks and conditions of ``threading``. A call that polls by itself is made in another thread. What a server
runs in its pool of threads are goroutines, if the pool is of ``concurrent.futures``.
"""

import os
import sys
import threading
import types

from . import _gosched
from . import _originals


class _Thread:
    """A daemon is a thread of the system, any other a goroutine. What grpcio uses of threading.Thread."""

    def __init__(self, group=None, target=None, name=None, args=(), kwargs=None, *, daemon=None):
        self._target = target
        self._args = args
        self._kwargs = kwargs or {}
        self.name = name or "Thread (grpc)"
        self.daemon = bool(daemon)
        self._ended = _gosched.Event()

    def setDaemon(self, daemonic):
        self.daemon = daemonic

    def start(self):
        if self.daemon:
            _originals.start_new_thread(self._run, ())
        else:
            # The end of the program waits for those that threading has started.
            threading.Thread(target=self._run, name=self.name).start()

    def _run(self):
        try:
            self._target(*self._args, **self._kwargs)
        except SystemExit:
            pass
        except BaseException:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self)))
        finally:
            del self._target, self._args, self._kwargs
            self._ended.set()

    def join(self, timeout=None):
        self._ended.wait(timeout)

    def is_alive(self):
        return not self._ended.is_set()


class _Threading(types.ModuleType):
    """The module threading, with another Thread."""

    Thread = _Thread

    def __getattr__(self, name):
        return getattr(threading, name)


_threading = _Threading("threading")


class _SegregatedCall:
    """A call whose caller polls for its events."""

    __slots__ = ("_call", "_cancelled")

    def __init__(self, call, cancelled):
        self._call = call
        self._cancelled = cancelled

    def __getattr__(self, name):
        return getattr(self._call, name)

    def next_event(self):
        try:
            return _gosched.blocking(self._call.next_event)
        except BaseException:
            # The goroutine is cancelled, or out of time: so is the call.
            self._call.cancel(self._cancelled, "The goroutine that has made the call has given it up")
            raise


def adapt_core(module):
    """For grpc._cython.cygrpc."""
    if _originals.get_native_id() == os.getpid():
        # The main thread is to run the goroutines, though one of grpcio's may be the first to start one.
        _gosched.current()
    module.threading = _threading
    original = module.Channel
    cancelled = module.StatusCode.cancelled

    class Channel(original):
        __doc__ = original.__doc__

        def segregated_call(self, *args, **kwargs):
            return _SegregatedCall(original.segregated_call(self, *args, **kwargs), cancelled)

    Channel.__module__ = original.__module__
    Channel.__qualname__ = original.__qualname__
    module.Channel = Channel


def adapt_server(module):
    """For grpc._server."""
    module.threading = _threading
