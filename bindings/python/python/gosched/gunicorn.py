"""A gunicorn worker that serves each connection in a goroutine.

    gunicorn -k gosched.gunicorn.GoschedWorker application:app

Its workers patch the standard library (:func:`gosched.patch_all`) before they load the
application. ``--worker-connections`` bounds the connections of a worker, ``--keep-alive`` how long
one may be idle, ``--graceful-timeout`` how long the requests of a worker that stops may go on.

``--timeout`` ends a worker in which a request computes for that long without a wait.
"""

import errno
import os
import socket
import sys

import gunicorn
from gunicorn.workers.base_async import AsyncWorker

from . import _gosched
from ._runtime import Timeout
from .patch import patch_all

try:
    from gunicorn.sock import ssl_wrap_socket
except ImportError:  # before gunicorn 21
    import ssl

    def ssl_wrap_socket(sock, cfg):
        return ssl.wrap_socket(sock, server_side=True, **cfg.ssl_options)


#: errors of accept that say nothing about the listener
_PASSING = (errno.EAGAIN, errno.ECONNABORTED, errno.EINTR, errno.EPROTO)
#: out of descriptors or memory: the next try comes after that many seconds
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_EXHAUSTED_DELAY = 0.1


class _Idle:
    """What a request's head is read in: at most the keep-alive time, then the connection ends."""

    __slots__ = ("worker", "timeout")

    def __init__(self, worker, seconds):
        self.worker = worker
        self.timeout = Timeout(seconds)

    def __enter__(self):
        connection = self.worker.connections.get(_gosched.get_ident())
        if connection is not None:
            connection.idle = connection.requests > 0
            connection.requests += 1
            if connection.idle and not self.worker.alive:
                connection.end_input()
        self.timeout.__enter__()

    def __exit__(self, kind, value, traceback):
        self.timeout.__exit__(kind, value, traceback)
        connection = self.worker.connections.get(_gosched.get_ident())
        if connection is not None:
            connection.idle = False
        return value is self.timeout


class _Connection:
    __slots__ = ("sock", "goroutine", "idle", "requests")

    def __init__(self, sock, goroutine):
        self.sock = sock
        self.goroutine = goroutine
        self.idle = False  # between two requests
        self.requests = 0

    def end_input(self):
        # A request that has arrived is still answered; then comes the end of the connection.
        try:
            self.sock.shutdown(socket.SHUT_RD)
        except OSError:
            pass


class _Listener:
    """What a connection asks its listener, which may be closed by then."""

    __slots__ = ("name",)

    def __init__(self, listener):
        self.name = listener.getsockname()

    def getsockname(self):
        return self.name


class GoschedWorker(AsyncWorker):
    """The worker; see the module."""

    connections = None
    _quit = False

    def init_process(self):
        patch_all()
        super().init_process()

    def timeout_ctx(self):
        return _Idle(self, self.cfg.keepalive)

    # The main goroutine

    def run(self):
        from .socket import _wait_on

        self.connections = {}
        # Those whose goroutine has not begun.
        self._newborn = set()
        self._slots = _gosched.Semaphore(self.worker_connections)
        acceptors = []
        for listener in self.sockets:
            # Other workers accept on it, too.
            _wait_on(listener.sock)
            acceptors.append(_gosched.go(self._accept, listener))
        ticks = []
        while self.alive:
            # Without a GIL there are several threads. A request that computes holds up others on its thread.
            before, ticks = ticks, _gosched._ticks()
            if not any(then is not None and then == now for then, now in zip(before, ticks)):
                self.notify()
            if self.ppid != os.getppid():
                self.log.info("Parent changed, shutting down: %s", self)
                self.alive = False
                break
            self._wait(1.0)
        for acceptor in acceptors:
            acceptor.cancel()
        for listener in self.sockets:
            listener.close()
        if self._quit:
            return
        self._finish()

    def _wait(self, seconds):
        """Until a signal has come, a request says that the worker ends, or the time is over."""
        if _gosched.wait_read(self.PIPE[0], seconds):
            try:
                os.read(self.PIPE[0], 4096)
            except BlockingIOError:
                pass

    def wake(self):
        """End the main goroutine's wait."""
        try:
            os.write(self.PIPE[1], b"!")
        except OSError:
            pass

    def _finish(self):
        import time

        deadline = time.monotonic() + self.cfg.graceful_timeout
        for connection in list(self.connections.values()):
            if connection.idle:
                connection.end_input()
        while (self._newborn or self.connections) and not self._quit:
            left = deadline - time.monotonic()
            if left <= 0:
                self.log.warning("Worker graceful timeout (pid:%s)", self.pid)
                for connection in list(self.connections.values()):
                    connection.goroutine.cancel()
                _gosched.sleep(0.1)
                return
            self.notify()
            self._wait(min(left, 1.0))

    # The others

    def _accept(self, listener):
        name = _Listener(listener)
        while self.alive:
            self._slots.acquire()
            client = None
            try:
                client, address = listener.accept()
                client.setblocking(True)
                self._newborn.add(client)
                _gosched.go(self._serve, name, client, address)
            except OSError as e:
                self._slots.release()
                if client is not None:
                    self._newborn.discard(client)
                    client.close()
                if e.errno in _EXHAUSTED:
                    _gosched.sleep(_EXHAUSTED_DELAY)
                elif e.errno not in _PASSING:
                    if self.alive:
                        self.log.exception("accept")
                    return
            if self.cfg.workers > 1:
                # The other workers get their share of a burst.
                _gosched.yield_()

    def _serve(self, listener, client, address):
        me = _gosched.current()
        connection = self.connections[me.id] = _Connection(client, me)
        self._newborn.discard(client)
        try:
            if self.cfg.is_ssl:
                client = connection.sock = ssl_wrap_socket(client, self.cfg)
            self.handle(listener, client, address)
        except OSError as e:
            self.log.debug("Error of the connection: %s", e)
            client.close()
        finally:
            self.connections.pop(me.id, None)
            self._slots.release()
            if not self.alive:
                self.wake()

    def handle_request(self, listener_name, req, sock, addr):
        try:
            return super().handle_request(listener_name, req, sock, addr)
        except _gosched.Cancelled:
            raise StopIteration from None
        finally:
            if not self.alive:
                self.wake()

    # Signals

    def handle_quit(self, sig, frame):
        self.alive = False
        self._quit = True
        _gosched.go(self._interrupted)

    def _interrupted(self):
        self.cfg.worker_int(self)
        self.wake()

    def handle_usr1(self, sig, frame):
        # It takes the locks of logging, which the goroutine that was interrupted may hold.
        _gosched.go(super().handle_usr1, sig, frame)

    def handle_abort(self, sig, frame):
        self.alive = False
        self.cfg.worker_abort(self)
        sys.exit(1)


VERSION = "gosched gunicorn/%s" % gunicorn.__version__
