"""Cooperative ``socket``: every call that would block parks the goroutine instead of its thread.

The class :class:`socket` here is a subclass of the standard one. :func:`gosched.patch_socket`
sets the same methods on the standard class itself, so that sockets, and classes made from
``socket.socket``, that exist already are cooperative from then on too.

How a socket is used: as long as nothing that could block was called on it, it is exactly what
CPython made of it. The first such call makes the file descriptor non-blocking and
puts a :class:`_Mode` in the place of ``False`` in the socket's ``_closed``: it holds the timeout
that the program sees. (``socket.socket`` has slots and no dictionary, and ``_closed`` is only
ever asked whether it's true.) detach() takes that back.
"""

import _socket
import errno as _errno
import io as _io
import os as _os
import socket as _std
import sys as _sys
import types as _types
from _socket import socket as _base
from operator import index as _index

from . import _gosched
from . import _originals
from ._gosched import monotonic as _monotonic
from .os import _blocks, _sockets
from .select import poll as _poll_object
from ._originals import take_names as _take_names

_take_names(_std, globals())
__all__ = list(_std.__all__)

_wait_read = _gosched.wait_read
# A call that needn't wait lets others run from time to time, for programs that poll in a loop.
_checkpoint = _gosched.checkpoint
_wait_write = _gosched.wait_write
_blocking = _gosched.blocking

_timeout_error = _socket.timeout

if _sys.version_info >= (3, 10):
    _recv = _gosched.recv
    _recv_into = _gosched.recv_into
    _send = _gosched.send
    _sendall = _gosched.sendall
else:
    # socket.timeout isn't TimeoutError there.
    def _with_socket_timeout(fn):
        def call(*args):
            try:
                return fn(*args)
            except TimeoutError as e:
                if e.errno is not None:
                    raise
            raise _timeout_error("timed out")

        return call

    _recv = _with_socket_timeout(_gosched.recv)
    _recv_into = _with_socket_timeout(_gosched.recv_into)
    _send = _with_socket_timeout(_gosched.send)
    _sendall = _with_socket_timeout(_gosched.sendall)

_c_fileno = _base.fileno
_c_gettimeout = _base.gettimeout
_c_settimeout = _base.settimeout
_c_setblocking = _base.setblocking
_c_recv = _base.recv
_c_recv_into = _base.recv_into
_c_recvfrom = _base.recvfrom
_c_recvfrom_into = _base.recvfrom_into
_c_recvmsg = _base.recvmsg
_c_recvmsg_into = _base.recvmsg_into
_c_send = _base.send
_c_sendall = _base.sendall
_c_sendto = _base.sendto
_c_sendmsg = _base.sendmsg
_c_sendmsg_afalg = getattr(_base, "sendmsg_afalg", None)
_c_accept = _base._accept
_c_connect = _base.connect
_c_connect_ex = _base.connect_ex
_c_detach = _base.detach

_DONTWAIT = _socket.MSG_DONTWAIT
_WAITALL = _socket.MSG_WAITALL
_PEEK = _socket.MSG_PEEK
_IN_PROGRESS = (_errno.EINPROGRESS, _errno.EALREADY)


class _Mode:
    """The state of a socket whose descriptor was made non-blocking: false until it's closed."""

    __slots__ = ("timeout", "closed")

    def __init__(self, timeout):
        self.timeout = timeout
        self.closed = False

    def __bool__(self):
        return self.closed

    def __repr__(self):
        return repr(self.closed)


# Several may be the first to use a socket. A goroutine's lock, as a finalizer or the handler of a signal may give way
# while it is held; they may come here too.
_enter_lock = _gosched.RLock()
_os.register_at_fork(after_in_child=_enter_lock._at_fork_reinit)


def _enter(self):
    """The timeout of a socket; a socket that may block gets its :class:`_Mode`."""
    with _enter_lock:
        mode = self._closed
        if type(mode) is _Mode:
            return mode.timeout
        timeout = _c_gettimeout(self)
        if timeout == 0 or _c_fileno(self) == -1:
            return timeout
        mode = _Mode(timeout)
        mode.closed = bool(self._closed)
        _c_setblocking(self, False)
        self._closed = mode
        _sockets[_c_fileno(self)] = self
    # This may wait.
    _gosched.adopt(_c_fileno(self))
    return timeout


def _give(fd):
    """A child of the program gets a socket's descriptor, and is to find it blocking if the socket is, until the program
    uses the socket again. (They share one open file description.)"""
    with _enter_lock:
        if _blocks(fd):
            sock = _sockets[fd]
            sock._closed = bool(sock._closed)
            _c_settimeout(sock, None)


def _wait_on(self):
    """The operations of a socket that doesn't block wait from now on, and its file descriptor stays as it is.

    setblocking(True) clears O_NONBLOCK, which processes share after a fork: another process that has seen a listener
    ready for a connection, which a third one took, would block in accept.
    """
    with _enter_lock:
        if type(self._closed) is not _Mode:
            mode = _Mode(None)
            mode.closed = bool(self._closed)
            self._closed = mode
    _gosched.adopt(_c_fileno(self))


def _timeout_of(self):
    mode = self._closed
    return mode.timeout if type(mode) is _Mode else _enter(self)


def _retry(self, wait, timeout, fn, *args):
    """Calls a method of a non-blocking socket until it doesn't ask for more time."""
    _checkpoint()
    try:
        return fn(self, *args)
    except BlockingIOError:
        if timeout == 0:
            raise
    deadline = None if timeout is None else _monotonic() + timeout
    while True:
        if deadline is not None:
            timeout = max(deadline - _monotonic(), 0)
        if not wait(_c_fileno(self), timeout):
            raise _timeout_error("timed out")
        try:
            return fn(self, *args)
        except BlockingIOError:
            pass


def _resolved(self, address):
    """The address with its host name resolved without blocking the thread."""
    if (
        type(address) is tuple
        and len(address) >= 2
        and isinstance(address[0], str)
        and self.family in (AF_INET, AF_INET6)
    ):
        host = address[0]
        if host and host != "<broadcast>" and not _is_numeric(host) and isinstance(address[1], int):
            found = getaddrinfo(host, None, self.family, SOCK_STREAM)
            if len(address) == 2:
                return (found[0][4][0], address[1])
            return (found[0][4][0],) + address[1:]
    return address


def _is_numeric(host):
    if ":" in host:
        return True
    try:
        _socket.inet_aton(host)
        return True
    except (OSError, ValueError):
        return False


def _until(self, deadline):
    if deadline is None:
        return None
    return max(deadline - _monotonic(), 0)


class _Methods:
    """The cooperative methods: in :class:`socket`, and in the standard class when it's patched."""

    __slots__ = ()

    # How long to wait

    def gettimeout(self):
        """The timeout in seconds, None if the socket has none."""
        mode = self._closed
        return mode.timeout if type(mode) is _Mode else _c_gettimeout(self)

    def settimeout(self, value, /):
        """Set a timeout in seconds for the blocking operations. None: none; 0: don't block."""
        mode = self._closed
        if value is None and type(mode) is _Mode and _c_fileno(self) != -1:
            # CPython's would have the descriptor block for a moment, and the thread in the calls of others.
            mode.timeout = None
            return
        _c_settimeout(self, value)
        if type(mode) is _Mode:
            timeout = _c_gettimeout(self)
            if timeout == 0:
                self._closed = mode.closed
            else:
                mode.timeout = timeout
                _c_setblocking(self, False)

    def setblocking(self, flag, /):
        """True: no timeout. False: the operations don't block."""
        if type(self._closed) is _Mode:
            self.settimeout(None if flag else 0.0)
        else:
            _c_setblocking(self, flag)

    def getblocking(self):
        """Whether the operations may block."""
        return type(self._closed) is _Mode or _c_gettimeout(self) != 0

    timeout = property(gettimeout, doc="the socket timeout")

    # Life

    def close(self):
        """Close the socket. Goroutines that wait for it get OSError(EBADF)."""
        mode = self._closed
        if type(mode) is _Mode:
            mode.closed = True
        else:
            self._closed = True
        if self._io_refs <= 0:
            self._real_close()

    def _real_close(self, _ss=_base):
        fd = _c_detach(self)
        if fd != -1:
            try:
                _gosched.close(fd)
            except ConnectionResetError:
                pass  # as CPython's

    def detach(self):
        """Close the socket, but not its file descriptor, and give that: it blocks if the socket has no timeout."""
        mode = self._closed
        self._closed = True
        fd = _c_detach(self)
        if type(mode) is _Mode and mode.timeout is None and fd != -1:
            try:
                _os.set_blocking(fd, True)
            except OSError:
                pass  # closed already, by its number
        return fd

    def dup(self):
        """Duplicate the socket: a new one for the same connection, not inheritable."""
        fd = _socket.dup(_c_fileno(self))
        sock = self.__class__(self.family, self.type, self.proto, fileno=fd)
        mode = self._closed
        if type(mode) is _Mode:
            # Both share one open file description, which must stay non-blocking.
            _c_setblocking(sock, False)
            _gosched.adopt(fd)
            sock._closed = _Mode(mode.timeout)
            _sockets[fd] = sock
        else:
            sock.settimeout(_c_gettimeout(self))
        return sock

    # Connections

    def _accept(self):
        return _retry(self, _wait_read, _timeout_of(self), _c_accept)

    def connect(self, address, /):
        """Connect to a remote address."""
        timeout = _timeout_of(self)
        if timeout == 0:
            _checkpoint()
            return _c_connect(self, address)
        error = _connect(self, address, timeout)
        if error == _errno.EWOULDBLOCK:
            raise _timeout_error("timed out")
        if error:
            raise OSError(error, _os.strerror(error))

    def connect_ex(self, address, /):
        """As connect(), with the error's number as its result."""
        timeout = _timeout_of(self)
        if timeout == 0:
            _checkpoint()
            return _c_connect_ex(self, address)
        return _connect(self, address, timeout)

    # Input

    def recv(self, bufsize, flags=0, /):
        """Receive up to bufsize bytes."""
        mode = self._closed
        timeout = mode.timeout if type(mode) is _Mode else _enter(self)
        if timeout == 0:
            _checkpoint()
            return _c_recv(self, bufsize, flags)
        try:
            if flags:
                if flags & _DONTWAIT:
                    return _c_recv(self, bufsize, flags)
                if _waits_for_all(self, flags):
                    return _recv_all(self, bufsize, flags & ~_WAITALL, timeout)
            if bufsize <= 0:
                return _c_recv(self, bufsize, flags)
            return _recv(_c_fileno(self), bufsize, flags, timeout)
        except TypeError:
            _check_integers(bufsize, flags)
            raise

    def recv_into(self, buffer, nbytes=0, flags=0):
        """Receive up to nbytes bytes (0: as many as fit) into a buffer."""
        mode = self._closed
        timeout = mode.timeout if type(mode) is _Mode else _enter(self)
        try:
            if timeout == 0 or flags & _DONTWAIT:
                _checkpoint()
                return _c_recv_into(self, buffer, nbytes, flags)
            if flags and _waits_for_all(self, flags):
                return _recv_all_into(self, buffer, nbytes, flags & ~_WAITALL, timeout)
            if nbytes == 0:
                return _recv_into(_c_fileno(self), buffer, flags, timeout)
            return _retry(self, _wait_read, timeout, _c_recv_into, buffer, nbytes, flags)
        except TypeError:
            _check_integers(nbytes, flags)
            raise

    def recvfrom(self, *args):
        """recvfrom(buffersize[, flags]) -> (data, address)"""
        if len(args) == 2 and isinstance(args[1], int) and _waits_for_all(self, args[1]):
            timeout = _timeout_for(self, args, 1)
            if timeout != 0:
                return _recvfrom_all(self, args[0], args[1] & ~_WAITALL, timeout)
        return _retry(self, _wait_read, _timeout_for(self, args, 1), _c_recvfrom, *args)

    def recvfrom_into(self, buffer, nbytes=0, flags=0):
        """Receive into a buffer -> (number of bytes, address)"""
        timeout = _timeout_for(self, (flags,), 0)
        if timeout != 0 and flags and _waits_for_all(self, flags):
            return _recvfrom_all_into(self, buffer, nbytes, flags & ~_WAITALL, timeout)
        return _retry(self, _wait_read, timeout, _c_recvfrom_into, buffer, nbytes, flags)

    def recvmsg(self, *args):
        """recvmsg(bufsize[, ancbufsize[, flags]]) -> (data, ancdata, msg_flags, address)"""
        return _retry(self, _wait_read, _timeout_for(self, args, 2), _c_recvmsg, *args)

    def recvmsg_into(self, buffers, *args):
        """recvmsg_into(buffers[, ancbufsize[, flags]]) -> (nbytes, ancdata, msg_flags, address)"""
        if not isinstance(buffers, (list, tuple)) and hasattr(buffers, "__iter__"):
            buffers = list(buffers)
        timeout = _timeout_for(self, args, 1)
        return _retry(self, _wait_read, timeout, _c_recvmsg_into, buffers, *args)

    # Output

    def send(self, data, flags=0, /):
        """Send data; the number of bytes that were sent, which may be less than all."""
        mode = self._closed
        timeout = mode.timeout if type(mode) is _Mode else _enter(self)
        if timeout == 0 or flags & _DONTWAIT:
            _checkpoint()
            return _c_send(self, data, flags)
        return _send(_c_fileno(self), data, flags, timeout)

    def sendall(self, data, flags=0, /):
        """Send all the data."""
        mode = self._closed
        timeout = mode.timeout if type(mode) is _Mode else _enter(self)
        if timeout == 0 or flags & _DONTWAIT:
            _checkpoint()
            return _c_sendall(self, data, flags)
        _sendall(_c_fileno(self), data, flags, timeout)

    def sendto(self, *args):
        """sendto(data[, flags], address) -> number of bytes"""
        if len(args) in (2, 3):
            args = args[:-1] + (_resolved(self, args[-1]),)
        # Of two arguments the second is the address.
        timeout = _timeout_for(self, args, 1) if len(args) == 3 else _timeout_of(self)
        return _retry(self, _wait_write, timeout, _c_sendto, *args)

    def sendmsg(self, buffers, *args):
        """sendmsg(buffers[, ancdata[, flags[, address]]]) -> number of bytes"""
        if not isinstance(buffers, (list, tuple)) and hasattr(buffers, "__iter__"):
            buffers = list(buffers)
        if args and not isinstance(args[0], (list, tuple)) and hasattr(args[0], "__iter__"):
            args = (list(args[0]),) + args[1:]
        timeout = _timeout_for(self, args, 1)
        return _retry(self, _wait_write, timeout, _c_sendmsg, buffers, *args)

    if _c_sendmsg_afalg is not None:

        def sendmsg_afalg(self, *args, **kwargs):
            """sendmsg_afalg([msg], *, op[, iv[, assoclen[, flags=MSG_MORE]]])"""
            return _retry(
                self, _wait_write, _timeout_of(self), lambda s: _c_sendmsg_afalg(s, *args, **kwargs)
            )

    def _sendfile_use_sendfile(self, file, offset=0, count=None):
        self._check_sendfile_params(file, offset, count)
        fd = self.fileno()
        try:
            fileno = file.fileno()
        except (AttributeError, _io.UnsupportedOperation) as err:
            raise _std._GiveupOnSendfile(err)  # not a regular file
        try:
            size = _os.fstat(fileno).st_size
        except OSError as err:
            raise _std._GiveupOnSendfile(err)  # not a regular file
        if not size:
            return 0
        blocksize = min(count or size, 2**30)
        timeout = _timeout_of(self)
        if timeout == 0:
            raise ValueError("non-blocking sockets are not supported")
        total = 0
        try:
            while True:
                if count:
                    blocksize = min(count - total, 2**30)
                    if blocksize <= 0:
                        break
                try:
                    # Through the module, for programs that put a function of their own there.
                    sent = _os.sendfile(fd, fileno, offset, blocksize)
                except BlockingIOError:
                    if not _wait_write(fd, timeout):
                        raise _timeout_error("timed out") from None
                    continue
                except OSError as err:
                    if total == 0:
                        raise _std._GiveupOnSendfile(err)
                    raise err from None
                if sent == 0:
                    break
                offset += sent
                total += sent
            return total
        finally:
            if total > 0 and hasattr(file, "seek"):
                file.seek(offset)


def _timeout_for(self, args, index):
    """The timeout of a call with flags at that index: 0 if they say MSG_DONTWAIT."""
    timeout = _timeout_of(self)
    if len(args) > index and isinstance(args[index], int) and args[index] & _DONTWAIT:
        return 0
    return timeout


def _check_integers(*values):
    for value in values:
        try:
            _index(value)
        except TypeError as error:
            raise error from None


def _waits_for_all(self, flags):
    """Whether a call with these flags waits until all bytes are there: not to peek, and not for datagrams."""
    return flags & _WAITALL and not flags & _PEEK and self.type == _socket.SOCK_STREAM


def _recv_all_into(self, buffer, size, flags, timeout):
    deadline = None if timeout is None else _monotonic() + timeout
    try:
        whole = memoryview(buffer)
    except TypeError:
        return _c_recv_into(self, buffer, size, flags)  # says what is wrong
    with whole, whole.cast("B") as view:
        if size < 0 or size > len(view) or view.readonly:
            return _c_recv_into(self, buffer, size, flags)  # says what is wrong
        size, got = size or len(view), 0
        while got < size:
            with view[got:size] as rest:
                try:
                    n = _recv_into(_c_fileno(self), rest, flags, _until(self, deadline))
                except OSError:
                    if got:
                        break
                    raise
            if n == 0:
                break
            got += n
    return got


def _recv_all(self, size, flags, timeout):
    deadline = None if timeout is None else _monotonic() + timeout
    parts = []
    while size > 0:
        try:
            data = _recv(_c_fileno(self), size, flags, _until(self, deadline))
        except OSError:
            if parts:
                break
            raise
        if not data:
            break
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _recvfrom_all(self, size, flags, timeout):
    deadline = None if timeout is None else _monotonic() + timeout
    data, address = _retry(self, _wait_read, timeout, _c_recvfrom, size, flags)
    if 0 < len(data) < size:
        try:
            data += _recv_all(self, size - len(data), flags, _until(self, deadline))
        except OSError:
            pass  # the next call says so
    return data, address


def _recvfrom_all_into(self, buffer, size, flags, timeout):
    deadline = None if timeout is None else _monotonic() + timeout
    got, address = _retry(self, _wait_read, timeout, _c_recvfrom_into, buffer, size, flags)
    with memoryview(buffer) as whole, whole.cast("B") as view:
        size = size or len(view)
        if 0 < got < size:
            with view[got:size] as rest:
                try:
                    got += _recv_all_into(self, rest, 0, flags, _until(self, deadline))
                except OSError:
                    pass  # the next call says so
    return got, address


def _connect(self, address, timeout):
    """The error number of a connect on a socket that isn't non-blocking for the program."""
    deadline = None if timeout is None else _monotonic() + timeout
    error = _c_connect_ex(self, _resolved(self, address))
    while error == _errno.EAGAIN and self.family == AF_UNIX:
        # The backlog of the listener is full, and nothing says when it no longer is.
        if deadline is not None and _monotonic() >= deadline:
            return _errno.EWOULDBLOCK
        _gosched.sleep(0.002)
        error = _c_connect_ex(self, address)
    if error in _IN_PROGRESS:
        if not _wait_write(_c_fileno(self), _until(self, deadline)):
            return _errno.EWOULDBLOCK
        error = self.getsockopt(SOL_SOCKET, SO_ERROR)
    return error


#: the names in the standard class that patching replaces
_METHODS = tuple(
    name
    for name in vars(_Methods)
    if not name.startswith("__") and hasattr(_std.socket, name)
)


class socket(_std.socket):
    __doc__ = _std.socket.__doc__
    __slots__ = ()

    for _name in _METHODS:
        locals()[_name] = vars(_Methods)[_name]
    del _name

    def accept(self):
        """accept() -> (socket object, address info)"""
        fd, address = self._accept()
        sock = socket(self.family, self.type, self.proto, fileno=fd)
        if getdefaulttimeout() is None and self.gettimeout():
            sock.setblocking(True)
        return sock, address


SocketType = _socket.SocketType


# Names

def _numeric_getaddrinfo(host, port, family, type, proto, flags):
    try:
        return _originals.getaddrinfo(host, port, family, type, proto, flags | AI_NUMERICHOST)
    except gaierror:
        return None


def _getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
    # The work is done at once where no name server need be asked.
    if host is None or isinstance(host, (str, bytes)):
        if host is None or not host:
            return _originals.getaddrinfo(host, port, family, type, proto, flags)
        if not flags & AI_CANONNAME:
            found = _numeric_getaddrinfo(host, port, family, type, proto, flags)
            if found is not None:
                return found
    return _blocking(_originals.getaddrinfo, host, port, family, type, proto, flags)


# In _socket.
_getaddrinfo.__name__ = _getaddrinfo.__qualname__ = "getaddrinfo"


def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
    addrlist = []
    for af, kind, proto, canonname, address in _getaddrinfo(
        host, port, family, type, proto, flags
    ):
        addrlist.append(
            (
                _std._intenum_converter(af, AddressFamily),
                _std._intenum_converter(kind, SocketKind),
                proto,
                canonname,
                address,
            )
        )
    return addrlist


getaddrinfo.__doc__ = _std.getaddrinfo.__doc__


def gethostbyname(hostname, /):
    """gethostbyname(host) -> address"""
    if isinstance(hostname, str) and (not hostname or _is_numeric(hostname)):
        return _originals.gethostbyname(hostname)
    return _blocking(_originals.gethostbyname, hostname)


def gethostbyname_ex(hostname, /):
    """gethostbyname_ex(host) -> (name, aliaslist, addresslist)"""
    return _blocking(_originals.gethostbyname_ex, hostname)


def gethostbyaddr(hostname, /):
    """gethostbyaddr(host) -> (name, aliaslist, addresslist)"""
    return _blocking(_originals.gethostbyaddr, hostname)


def getnameinfo(sockaddr, flags, /):
    """getnameinfo(sockaddr, flags) -> (host, port)"""
    try:
        if not isinstance(sockaddr, tuple) or not isinstance(flags, int):
            return _originals.getnameinfo(sockaddr, flags)
        return _blocking(_originals.getnameinfo, sockaddr, flags)
    finally:
        # A traceback must not keep them.
        del sockaddr, flags


#: names in _socket (and socket) that patch_dns replaces
_DNS = {
    "getaddrinfo": _getaddrinfo,
    "gethostbyname": gethostbyname,
    "gethostbyname_ex": gethostbyname_ex,
    "gethostbyaddr": gethostbyaddr,
    "getnameinfo": getnameinfo,
}


# The functions made of those: the standard library's code with the names of this module.

def _rebind(fn):
    copy = _types.FunctionType(fn.__code__, globals(), fn.__name__, fn.__defaults__, fn.__closure__)
    copy.__kwdefaults__ = fn.__kwdefaults__
    copy.__doc__ = fn.__doc__
    copy.__annotations__ = fn.__annotations__
    return copy


for _name in (
    "create_connection",
    "create_server",
    "fromfd",
    "getfqdn",
    "has_dualstack_ipv6",
    "recv_fds",
    "send_fds",
    "socketpair",
):
    if isinstance(vars(_std).get(_name), _types.FunctionType):
        globals()[_name] = _rebind(vars(_std)[_name])
del _name
