"""What other packages need, to wait in goroutines: applied when they are imported.

Most need nothing. Those here wait in C, and have a setting for it.
"""

import os
import sys
from importlib import import_module
from time import monotonic
from weakref import WeakSet


def _psycopg(module):
    # Version 3, where it's installed with its module in C, waits with that.
    wait = getattr(module, "wait_poll", None) or getattr(module, "wait_selector", None)
    for name in ("wait_c", "wait"):
        if hasattr(module, name):
            setattr(module, name, wait)
    if hasattr(module, "_ready_poll") and hasattr(module, "_ready"):
        module._ready = module._ready_poll


#: libpq's PQTRANS_ACTIVE: a command is in progress
_ACTIVE = 1


def _psycopg_connection(module):
    # What ends a wait for an answer: the server is told then, and the connection is free for the next query.
    from ._gosched import Cancelled
    from ._runtime import Timeout

    if hasattr(module, "_INTERRUPTED"):
        module._INTERRUPTED = (*module._INTERRUPTED, Cancelled, Timeout, TimeoutError)


def _psycopg2(module):
    from . import _gosched

    ok, read, write = module.POLL_OK, module.POLL_READ, module.POLL_WRITE

    def wait(connection):
        try:
            wait_for_answer(connection)
        except BaseException:
            # psycopg2 closes the connection. The server would notice that at the query's end only, and keep its locks.
            if connection.info.transaction_status == _ACTIVE:
                try:
                    _gosched.blocking(connection.cancel)
                except module.Error:
                    pass  # the server is gone
            raise

    def wait_for_answer(connection):
        while True:
            state = connection.poll()
            if state == ok:
                return
            if state == read:
                _gosched.wait_read(connection.fileno())
            elif state == write:
                _gosched.wait_write(connection.fileno())
            else:
                raise connection.OperationalError("poll() gave %r" % (state,))

    module.set_wait_callback(wait)


# How long a thread waits at a time for a lock that processes share, in seconds: as long may the end of the program
# have to wait for one whose goroutine was cancelled.
_SLICE = 0.2


def multiprocessing_locks(module):
    """multiprocessing's locks are semaphores of the system, for which only a thread can wait. Each is taken by the
    thread for goroutines, as the owner is a thread; another one waits until that is possible. Where the owner may
    take a lock again, goroutines of the process first take one of their own."""
    from . import _gosched

    make_methods = module.SemLock._make_methods
    locks = WeakSet()

    def after_fork():
        for lock in list(locks):
            if not lock._is_owned():
                lock._at_fork_reinit()

    os.register_at_fork(after_in_child=after_fork)

    def renew(self):
        # In a child of multiprocessing's the goroutine that forked doesn't hold it either.
        self._gosched_lock._at_fork_reinit()

    def wait(semlock, seconds):
        _gosched._wait_for_semaphore(semlock.handle, seconds)

    def _make_methods(self):
        make_methods(self)
        semlock = self._semlock
        take = semlock.acquire

        def wait_and_take(block=True, timeout=None):
            if take(False):
                return True
            if not block:
                _gosched.checkpoint()
                return False
            end = None if timeout is None else monotonic() + timeout
            left = _SLICE
            while True:
                if end is not None:
                    left = end - monotonic()
                    if left <= 0:
                        return False
                if _gosched._is_ending():
                    _gosched.sleep(min(left, _SLICE))
                else:
                    _gosched.blocking(wait, semlock, min(left, _SLICE))
                if take(False):
                    return True

        if semlock.kind != module.RECURSIVE_MUTEX:
            self.acquire = wait_and_take
            return

        give = semlock.release
        lock = self._gosched_lock = _gosched.RLock()
        locks.add(lock)
        module.util.register_after_fork(self, renew)

        def acquire(block=True, timeout=None):
            begin = monotonic()
            if not block:
                is_first = lock.acquire(False)
            elif timeout is None:
                is_first = lock.acquire()
            else:
                is_first = lock.acquire(True, max(timeout, 0))
                timeout -= monotonic() - begin
            if not is_first:
                return False
            is_taken = False
            try:
                is_taken = wait_and_take(block, timeout)
            finally:
                if not is_taken:
                    lock.release()
            return is_taken

        def release():
            if semlock._is_mine() and not lock._is_owned():
                raise AssertionError("attempt to release recursive lock not owned by thread")
            give()
            lock.release()

        self.acquire, self.release = acquire, release

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *args):
        self.release()

    module.SemLock._make_methods = _make_methods
    module.SemLock.__enter__ = __enter__
    module.SemLock.__exit__ = __exit__


def trio_threads(module):
    """trio names its threads by a function of the C library, which knows nothing of goroutines."""
    module.set_os_thread_name = None


def _mysqlclient(module):
    from . import _mysql

    _mysql.adapt(module)


def grpc_core(module):
    from . import _grpc

    _grpc.adapt_core(module)


def grpc_server(module):
    from . import _grpc

    _grpc.adapt_server(module)


def _by(name, adapt):
    """What a module of this package does."""

    def adapt_module(module):
        getattr(import_module("gosched." + name), adapt)(module)

    return adapt_module


#: what is adapted where threads are goroutines
THREADS = {
    "multiprocessing.synchronize": multiprocessing_locks,
    "trio._core._thread_cache": trio_threads,
    "grpc._cython.cygrpc": grpc_core,
    "grpc._server": grpc_server,
    "ipykernel.control": _by("_ipykernel", "adapt_classes"),
    "ipykernel.heartbeat": _by("_ipykernel", "adapt_classes"),
    "ipykernel.iostream": _by("_ipykernel", "adapt_threads_of_streams"),
    "ipykernel.parentpoller": _by("_ipykernel", "adapt_classes"),
    "ipykernel.thread": _by("_ipykernel", "adapt_classes"),
    "zmq.devices.basedevice": _by("_zmq", "adapt_devices"),
    "zmq.utils.garbage": _by("_zmq", "adapt_garbage"),
}


#: Bytes of stack, with the guard 8 MiB, which is what threads have. OpenBLAS inverts and factorizes matrices by recursion,
#: with half a MiB for each level.
_STACK_FOR_LAPACK = (8 << 20) - (16 << 10)


def lapack(module):
    """NumPy calls LAPACK, which takes it that the stack is a thread's."""
    from . import _gosched

    _gosched._want_stack(_STACK_FOR_LAPACK)


def _celery(module):
    module.ALIASES["gosched"] = "gosched.celery:TaskPool"


def _django(module):
    # 10 connections may wait to be accepted; the goroutine that accepts them takes turns with those that answer.
    module.WSGIServer.request_queue_size = max(module.WSGIServer.request_queue_size, 1024)


def _uvicorn_auto(module):
    # uvicorn takes uvloop where that is installed, which would hold all goroutines up while it waits. The first name is
    # that of uvicorn before 0.36.
    if hasattr(module, "auto_loop_setup"):
        module.auto_loop_setup = _set_up_loops
    if hasattr(module, "auto_loop_factory"):
        module.auto_loop_factory = _loop_factory


def _set_up_loops(use_subprocess=False):
    import asyncio

    from .asyncio import EventLoopPolicy

    asyncio.set_event_loop_policy(EventLoopPolicy())


def _loop_factory(use_subprocess=False):
    from .asyncio import EventLoop

    return EventLoop


_REFUSAL = (
    "%s: an event loop of %s waits in C, and would hold up all goroutines, those of synchronous endpoints too: leave %s"
    " out, for the loop of gosched.asyncio"
)


def _uvicorn_uvloop(module):
    def refuse(use_subprocess=False):
        sys.exit(_REFUSAL % ("uvicorn", module.__name__.rpartition(".")[2], "--loop"))

    for name in ("uvloop_setup", "uvloop_loop_factory", "zuvloop_loop_factory"):
        if hasattr(module, name):
            setattr(module, name, refuse)


def _hypercorn(module):
    runner = module.Runner

    def runner_of_ours(*, debug=None, loop_factory=None):
        return runner(debug=debug, loop_factory=loop_factory or _loop_factory())

    module.Runner, module.uvloop_worker = runner_of_ours, _hypercorn_uvloop


def _hypercorn_uvloop(config, sockets=None, shutdown_event=None):
    # Called in a child, which finds it by its name.
    sys.exit(_REFUSAL % ("hypercorn", "uvloop", "--worker-class"))


#: module -> what is done with it once it's imported, one after the other
_ADAPT = {}
_PACKAGES = {
    "celery.concurrency": _celery,
    "django.core.servers.basehttp": _django,
    "hypercorn.asyncio.run": _hypercorn,
    "ipykernel.iostream": _by("_ipykernel", "adapt_streams"),
    "ipykernel.kernelbase": _by("_ipykernel", "adapt_kernel"),
    "MySQLdb._mysql": _mysqlclient,
    "psycopg.connection": _psycopg_connection,
    "psycopg.waiting": _psycopg,
    "psycopg2.extensions": _psycopg2,
    "uvicorn.loops.auto": _uvicorn_auto,
    "uvicorn.loops.uvloop": _uvicorn_uvloop,
    "uvicorn.loops.zuvloop": _uvicorn_uvloop,
    "zmq.sugar.poll": _by("_zmq", "adapt_poll"),
    "zmq.sugar.socket": _by("_zmq", "adapt_socket"),
}


def add(name, adapt):
    """Adapts one more module."""
    adapts = _ADAPT.setdefault(name, [])
    if adapt not in adapts:
        adapts.append(adapt)
    if name in sys.modules:
        adapt(sys.modules[name])
    _hook()


def _hook():
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Loader:
    """The loader of one of those modules, with the adaption after it."""

    def __init__(self, loader, adapts):
        self._loader = loader
        self._adapts = adapts

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        for adapt in self._adapts:
            adapt(module)


class _Finder:
    """First in sys.meta_path: finds those modules as the others do."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        adapts = _ADAPT.get(name)
        if adapts is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is _Finder or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, adapts)
                return spec
        return None


def install():
    """Adapts other packages' modules: those that are imported already, and from now on the others."""
    for name, adapt in _PACKAGES.items():
        add(name, adapt)
