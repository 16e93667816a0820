"""Cooperative ``ssl``: handshakes, reads and writes park the goroutine."""

import ssl as _std
import sysconfig as _sysconfig
import types as _types
from time import monotonic as _monotonic

from . import _gosched
from . import socket as _socket
from ._originals import take_names as _take_names

_take_names(_std, globals())

_wait_read = _gosched.wait_read
_wait_write = _gosched.wait_write
_timeout_of = _socket._timeout_of
_timeout_error = _socket._timeout_error
_c_fileno = _socket._c_fileno

_has_no_gil = bool(_sysconfig.get_config_var("Py_GIL_DISABLED"))


def _alone(sock, fn):
    """fn, of which no two calls for a connection go on at a time: OpenSSL allows one, and without a GIL goroutines run in
    parallel."""
    lock = vars(sock).get("_gosched_lock")
    if lock is None:
        lock = vars(sock).setdefault("_gosched_lock", _gosched.Lock())

    def call(*args):
        with lock:
            return fn(*args)

    return call


def _retry(sock, what, fn, *args):
    _gosched.checkpoint()
    timeout = _timeout_of(sock)
    if _has_no_gil:
        fn = _alone(sock, fn)
    if timeout == 0:
        return fn(*args)
    deadline = None if timeout is None else _monotonic() + timeout
    while True:
        try:
            return fn(*args)
        except SSLWantReadError:
            wait = _wait_read
        except SSLWantWriteError:
            wait = _wait_write
        if deadline is not None:
            timeout = max(deadline - _monotonic(), 0)
        if not wait(_c_fileno(sock), timeout):
            raise _timeout_error("The %s operation timed out" % what)


class _Methods:
    """The cooperative methods: in :class:`SSLSocket`, and in the standard class when patched."""

    def read(self, len=1024, buffer=None):
        """Read up to LEN bytes and return them. Zero-length string on EOF."""
        self._checkClosed()
        if self._sslobj is None:
            raise ValueError("Read on closed or unwrapped SSL socket.")
        try:
            if buffer is not None:
                return _retry(self, "read", self._sslobj.read, len, buffer)
            return _retry(self, "read", self._sslobj.read, len)
        except SSLError as x:
            if x.args[0] == SSL_ERROR_EOF and self.suppress_ragged_eofs:
                return 0 if buffer is not None else b""
            raise

    def write(self, data):
        """Write DATA to the underlying SSL channel: the number of bytes written."""
        self._checkClosed()
        if self._sslobj is None:
            raise ValueError("Write on closed or unwrapped SSL socket.")
        return _retry(self, "write", self._sslobj.write, data)

    def send(self, data, flags=0):
        """Send data; the number of bytes sent."""
        self._checkClosed()
        if self._sslobj is not None:
            if flags != 0:
                raise ValueError(
                    "non-zero flags not allowed in calls to send() on %s" % self.__class__
                )
            return _retry(self, "write", self._sslobj.write, data)
        return _socket._Methods.send(self, data, flags)

    def do_handshake(self, block=False):
        """Perform a TLS/SSL handshake."""
        self._check_connected()
        timeout = self.gettimeout()
        if timeout == 0.0 and block:
            self.settimeout(None)
        try:
            _retry(self, "handshake", self._sslobj.do_handshake)
        finally:
            if timeout == 0.0 and block:
                self.settimeout(timeout)

    def unwrap(self):
        """Start the SSL shutdown handshake; the socket beneath."""
        if self._sslobj:
            s = _retry(self, "shutdown", self._sslobj.shutdown)
            self._sslobj = None
            return s
        raise ValueError("No SSL wrapper around " + str(self))

    # The rest of the input and output is made of those, by the standard library.


_METHODS = ("read", "write", "send", "do_handshake", "unwrap")


def _rebind(fn):
    copy = _types.FunctionType(fn.__code__, globals(), fn.__name__, fn.__defaults__, fn.__closure__)
    copy.__kwdefaults__ = fn.__kwdefaults__
    copy.__doc__ = fn.__doc__
    return copy


class SSLSocket(_std.SSLSocket):
    __doc__ = _std.SSLSocket.__doc__

    for _name in _socket._METHODS:
        if _name not in vars(_std.SSLSocket):
            locals()[_name] = vars(_socket._Methods)[_name]
    for _name in _METHODS:
        locals()[_name] = vars(_Methods)[_name]
    del _name

    def recv(self, buflen=1024, flags=0):
        self._checkClosed()
        if self._sslobj is None:
            return _socket._Methods.recv(self, buflen, flags)
        return super().recv(buflen, flags)

    def recv_into(self, buffer, nbytes=None, flags=0):
        self._checkClosed()
        if self._sslobj is None:
            return _socket._Methods.recv_into(self, buffer, nbytes or 0, flags)
        return super().recv_into(buffer, nbytes, flags)

    def sendall(self, data, flags=0):
        self._checkClosed()
        if self._sslobj is None:
            return _socket._Methods.sendall(self, data, flags)
        return super().sendall(data, flags)

    def sendto(self, data, flags_or_addr, addr=None):
        self._checkClosed()
        if self._sslobj is None:
            args = (flags_or_addr,) if addr is None else (flags_or_addr, addr)
            return _socket._Methods.sendto(self, data, *args)
        return super().sendto(data, flags_or_addr, addr)

    def recvfrom(self, buflen=1024, flags=0):
        self._checkClosed()
        if self._sslobj is None:
            return _socket._Methods.recvfrom(self, buflen, flags)
        return super().recvfrom(buflen, flags)

    def recvfrom_into(self, buffer, nbytes=None, flags=0):
        self._checkClosed()
        if self._sslobj is None:
            return _socket._Methods.recvfrom_into(self, buffer, nbytes or 0, flags)
        return super().recvfrom_into(buffer, nbytes, flags)

    def sendfile(self, file, offset=0, count=None):
        if self._sslobj is None:
            return _socket.socket.sendfile(self, file, offset, count)
        return self._sendfile_use_send(file, offset, count)

    def _real_close(self):
        self._sslobj = None
        _socket._Methods._real_close(self)

    def _real_connect(self, addr, connect_ex):
        if self.server_side:
            raise ValueError("can't connect in server-side mode")
        if self._connected or self._sslobj is not None:
            raise ValueError("attempt to connect already-connected SSLSocket!")
        self._sslobj = self.context._wrap_socket(
            self, False, self.server_hostname, owner=self, session=self._session
        )
        try:
            if connect_ex:
                rc = _socket._Methods.connect_ex(self, addr)
            else:
                rc = None
                _socket._Methods.connect(self, addr)
            if not rc:
                self._connected = True
                if self.do_handshake_on_connect:
                    self.do_handshake()
            return rc
        except (OSError, ValueError):
            self._sslobj = None
            raise

    def accept(self):
        """Accept a connection and wrap it; (SSLSocket, address)."""
        newsock, addr = _socket.socket.accept(self)
        newsock = self.context.wrap_socket(
            newsock,
            do_handshake_on_connect=self.do_handshake_on_connect,
            suppress_ragged_eofs=self.suppress_ragged_eofs,
            server_side=True,
        )
        return newsock, addr


class SSLContext(_std.SSLContext):
    __doc__ = _std.SSLContext.__doc__
    sslsocket_class = SSLSocket


# What makes contexts and sockets: the standard library's code with the names of this module.
for _name in (
    "create_default_context",
    "_create_unverified_context",
    "_create_stdlib_context",
    "get_server_certificate",
    "wrap_socket",
):
    if isinstance(vars(_std).get(_name), _types.FunctionType):
        globals()[_name] = _rebind(vars(_std)[_name])
del _name

_create_default_https_context = create_default_context
create_connection = _socket.create_connection
socket = _socket.socket
