"""A Celery pool whose tasks run in goroutines, thousands at a time.

    python -m gosched -m celery -A app worker --pool gosched --concurrency 1000

``python -m gosched`` patches the standard library before Celery is imported. Time limits (``time_limit``,
``--time-limit``) and ``revoke(terminate=True)`` end a task at the wait at which it is, or at its next one: a task that
computes without a wait is not ended, and holds the other tasks of the worker up. More processes need more workers.
"""

from celery.concurrency import base as _base
from celery.exceptions import ImproperlyConfigured as _ImproperlyConfigured

from . import _third_party
from ._gosched import Cancelled, Semaphore, current, go
from ._runtime import Timeout
from .patch import is_patched as _is_patched



def _without_loop(module):
    # The main goroutine waits for messages, and needs no loop of events for that.
    module.WorkController.should_use_eventloop = lambda self: False


_third_party.add("celery.worker.worker", _without_loop)


class TaskPool(_base.BasePool):
    """``--pool gosched``."""

    signal_safe = False
    is_green = True
    task_join_will_block = False
    #: Celery's consumer of commands runs by this
    spawn_n = staticmethod(go)

    def __init__(self, *args, **kwargs):
        if not _is_patched("threading"):
            raise _ImproperlyConfigured(
                "the pool gosched needs the standard library patched: python -m gosched -m celery ... worker --pool gosched"
            )
        self.timeout = kwargs.get("timeout")
        super().__init__(*args, **kwargs)

    def on_start(self):
        self._free = Semaphore(self.limit)
        self._running = {}

    def on_stop(self):
        for goroutine in list(self._running.values()):
            goroutine.join()

    def on_terminate(self):
        for goroutine in list(self._running.values()):
            goroutine.cancel()

    def on_apply(self, target, args=None, kwargs=None, callback=None, accept_callback=None, timeout=None, timeout_callback=None, **_):
        if timeout is None:
            timeout = self.timeout
        self._free.acquire()
        try:
            goroutine = go(self._run, target, args or (), kwargs or {}, callback, accept_callback, timeout, timeout_callback)
        except BaseException:
            self._free.release()
            raise
        self._running[goroutine.id] = goroutine
        goroutine._on_end(self._ended)
        return goroutine

    def _run(self, target, args, kwargs, callback, accept_callback, timeout, timeout_callback):
        limit = Timeout(timeout)
        try:
            with limit:
                _base.apply_target(
                    target, args, kwargs, callback, accept_callback, pid=current().id, propagate=(Timeout, Cancelled)
                )
        except Timeout as error:
            if error is not limit:
                raise
            timeout_callback(False, timeout)
        except Cancelled:
            pass  # revoke() has told Celery already

    def _ended(self, goroutine):
        self._running.pop(goroutine.id, None)
        self._free.release()

    def terminate_job(self, pid, signal=None):
        goroutine = self._running.get(pid)
        if goroutine is not None:
            goroutine.cancel()

    def grow(self, n=1):
        self.limit += n
        self._free.release(n)

    def shrink(self, n=1):
        self.limit -= n
        for _ in range(n):
            self._free.acquire()

    def _get_info(self):
        info = super()._get_info()
        info.update({"max-concurrency": self.limit, "running": len(self._running)})
        return info

    @property
    def num_processes(self):
        return self.limit
