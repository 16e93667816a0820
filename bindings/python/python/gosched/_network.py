"""Sockets in a bubble of :mod:`gosched.testing`: of its network in memory.

The kernel knows only the numbers of their descriptors, so that no call of CPython's reaches them. A socket that is made
in a bubble becomes one of a class with the methods of :class:`_Socket`, which call the library. It is made from the
socket's own class, so ``isinstance`` says what it says elsewhere. :func:`install` puts this in front of the classes
with the first bubble; programs without one pay nothing.
"""

import _socket
import errno as _errno
import os as _os
import select as _std_select
import socket as _std
import struct as _struct
import sys as _sys
import warnings as _warnings
import weakref as _weakref
from operator import index as _index

from . import _gosched
from . import select as _select
from . import socket as _ours

_run = _gosched._net_run

_FAMILIES = (_socket.AF_INET, _socket.AF_INET6, _socket.AF_UNIX)
_KINDS = (_socket.SOCK_STREAM, _socket.SOCK_DGRAM)
_FLAGS = _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC
_DONTWAIT = _socket.MSG_DONTWAIT
_WAITALL = _socket.MSG_WAITALL
#: the most bytes of an address of AF_UNIX
_PATH = 108


def _error(number):
    return OSError(number, _os.strerror(number))


if _socket.timeout is TimeoutError:

    def _timed(function):
        return function

else:
    _timed = _ours._with_socket_timeout

_accept = _timed(_gosched._net_accept)
_connect = _timed(_gosched._net_connect)
_recv = _timed(_gosched._net_recv)
_recv_into = _timed(_gosched._net_recv_into)
_send = _timed(_gosched._net_send)


class _State:
    """What a socket is, in its `_closed`: false until the socket is closed."""

    __slots__ = ("fd", "family", "kind", "proto", "timeout", "closed", "run")

    def __init__(self, fd, family, kind, proto, timeout):
        self.fd = fd
        self.family = family
        self.kind = kind
        self.proto = proto
        self.timeout = timeout
        self.closed = False
        self.run = _run()

    def __bool__(self):
        return self.closed

    def __repr__(self):
        return repr(self.closed)

    def number(self):
        """The descriptor, if the caller is in the run that has made it: elsewhere it is another file."""
        if self.fd == -1 or self.run != _run():
            raise _error(_errno.EBADF)
        return self.fd


# Addresses


def _numbers(host, port, what):
    port = _index(port)
    if not 0 <= port <= 65535:
        raise OverflowError("%s(): port must be 0-65535." % what)
    if isinstance(host, (bytes, bytearray)):
        host = bytes(host).decode("ascii")
    elif not isinstance(host, str):
        raise TypeError("str, bytes or bytearray expected, not %s" % type(host).__name__)
    return host, port


def _pack(state, address, what):
    """The address as the kernel has it."""
    if state.family == _socket.AF_UNIX:
        if not isinstance(address, (str, bytes, bytearray, memoryview)):
            raise TypeError("a bytes-like object is required, not '%s'" % type(address).__name__)
        path = _os.fsencode(address) if isinstance(address, str) else bytes(address)
        if len(path) > _PATH or len(path) == _PATH and path[0]:
            raise OSError("AF_UNIX path too long")
        return _struct.pack("H", _socket.AF_UNIX) + path + (b"\0" if path[:1] not in (b"", b"\0") else b"")
    six = state.family == _socket.AF_INET6
    if not isinstance(address, tuple):
        name = "AF_INET6" if six else "AF_INET"
        raise TypeError("%s(): %s address must be tuple, not %s" % (what, name, type(address).__name__))
    if not (2 <= len(address) <= 4 if six else len(address) == 2):
        raise TypeError("%s(): wrong number of parts of an address" % what)
    host, port = _numbers(address[0], address[1], what)
    raw = _packed_host(host, six)
    if six:
        flow, scope = (*address[2:], 0, 0)[:2]
        return _struct.pack("=HHI", _socket.AF_INET6, _socket.htons(port), _socket.htonl(flow)) + raw + _struct.pack("=I", scope)
    return _struct.pack("=HH", _socket.AF_INET, _socket.htons(port)) + raw + bytes(8)


def _packed_host(host, six):
    if host == "":
        return bytes(16 if six else 4)
    if host == "<broadcast>" and not six:
        return b"\xff" * 4
    if host == "localhost":
        return bytes(15) + b"\1" if six else b"\x7f\0\0\1"
    try:
        return _socket.inet_pton(_socket.AF_INET6, host) if six else _socket.inet_aton(host)
    except OSError:
        family = _socket.AF_INET6 if six else _socket.AF_INET
        found = _ours.getaddrinfo(host, None, family, _socket.SOCK_STREAM)
        return _socket.inet_pton(family, found[0][4][0])


def _unpack(raw):
    if len(raw) < 2:
        return None
    (family,) = _struct.unpack("H", raw[:2])
    if family == _socket.AF_UNIX:
        path = raw[2:]
        return path if path[:1] == b"\0" else _os.fsdecode(path.split(b"\0")[0])
    (port,) = _struct.unpack("!H", raw[2:4])
    if family == _socket.AF_INET:
        return _socket.inet_ntoa(raw[4:8]), port
    (flow,) = _struct.unpack("!I", raw[4:8])
    (scope,) = _struct.unpack("=I", raw[24:28])
    return _socket.inet_ntop(_socket.AF_INET6, raw[8:24]), port, flow, scope


# Sockets


def _take(self, fd, family, kind, proto):
    """Makes a socket object, of which nothing has been made yet, that of a descriptor of the network."""
    timeout = 0.0 if kind & _socket.SOCK_NONBLOCK else _std.getdefaulttimeout()
    self._io_refs = 0
    self._closed = _State(fd, family, kind & ~_FLAGS, proto, timeout)
    self.__class__ = _class_for(type(self))


_classes = _weakref.WeakKeyDictionary()


def _class_for(cls):
    found = _classes.get(cls)
    if found is None:
        names = {"__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        meta = _Meta if type(cls) is type else type("_Meta", (_Meta, type(cls)), {})
        found = _classes[cls] = meta(cls.__name__, (cls,), names)
    return found


class _Meta(type):
    """Puts the methods of :class:`_Socket` in front of the library's class, and behind those of a program's."""

    def mro(cls):
        classes = super().mro()
        at = next(i for i, one in enumerate(classes) if one in (_ours.socket, _std.socket))
        return [*classes[:at], _Socket, *classes[at:]]


def _number_of(fd, level, name):
    return _struct.unpack("i", _gosched._net_getsockopt(fd, level, name, 4))[0]


class _Socket:
    """The methods of a socket of the network."""

    __slots__ = ()

    # What it is

    family = property(lambda self: _std._intenum_converter(self._closed.family, _std.AddressFamily), doc="the address family")
    type = property(lambda self: _std._intenum_converter(self._closed.kind, _std.SocketKind), doc="the socket type")
    proto = property(lambda self: self._closed.proto, doc="the socket protocol")

    def fileno(self):
        """The descriptor's number, with which only this package can do something."""
        return self._closed.fd

    def gettimeout(self):
        """The timeout in seconds, None if the socket has none."""
        return self._closed.timeout

    timeout = property(gettimeout, doc="the socket timeout")

    def settimeout(self, value, /):
        """Set a timeout in seconds for the blocking operations. None: none; 0: don't block."""
        if value is not None:
            value = float(value)
            if value != value:
                raise ValueError("Invalid value NaN (not a number)")
            if value < 0:
                raise ValueError("Timeout value out of range")
        self._closed.timeout = value

    def setblocking(self, flag, /):
        """True: no timeout. False: the operations don't block."""
        self._closed.timeout = None if flag else 0.0

    def getblocking(self):
        """Whether the operations may block."""
        return self._closed.timeout != 0

    # Life

    def close(self):
        """Close the socket. Goroutines that wait for it get OSError(EBADF)."""
        self._closed.closed = True
        if self._io_refs <= 0:
            self._real_close()

    def _real_close(self, _ss=None):
        state = self._closed
        fd, state.fd, state.closed = state.fd, -1, True
        if fd != -1 and state.run == _run():
            _gosched.close(fd)

    def __del__(self):
        state = self._closed
        if type(state) is _State and state.fd != -1 and state.run == _run():
            _warnings.warn("unclosed %r" % self, ResourceWarning, source=self)
            self._real_close()

    def detach(self):
        """Close the socket, but not its descriptor, and give that."""
        state = self._closed
        fd, state.fd, state.closed = state.fd, -1, True
        return fd

    def dup(self):
        """Not in a bubble."""
        raise _error(_errno.EOPNOTSUPP)

    # Connections

    def bind(self, address, /):
        """Bind the socket to a local address."""
        _gosched._net_bind(self._closed.number(), _pack(self._closed, address, "bind"))

    def listen(self, backlog=128, /):
        """Enable a server to accept connections."""
        _gosched._net_listen(self._closed.number(), min(max(_index(backlog), 0), 2**31 - 1))

    def _accept(self):
        fd, address = _accept(self._closed.number(), self._closed.timeout)
        return fd, _unpack(address)

    def accept(self):
        """accept() -> (socket object, address info)"""
        fd, address = self._accept()
        cls = _ours.socket if isinstance(self, _ours.socket) else _std.socket
        sock = cls.__new__(cls)
        _take(sock, fd, self._closed.family, self._closed.kind, self._closed.proto)
        return sock, address

    def connect(self, address, /):
        """Connect to a remote address."""
        state = self._closed
        try:
            _connect(state.number(), _pack(state, address, "connect"), state.timeout)
        except BlockingIOError:
            raise _error(_errno.EINPROGRESS) from None

    def connect_ex(self, address, /):
        """As connect(), with the error's number as its result."""
        try:
            self.connect(address)
        except _socket.timeout as error:
            return error.errno or _errno.EWOULDBLOCK
        except OSError as error:
            if error.errno is None or isinstance(error, _socket.gaierror):
                raise
            return error.errno
        return 0

    def getsockname(self):
        """The socket's own address."""
        return _unpack(_gosched._net_name(self._closed.number(), False))

    def getpeername(self):
        """The address of the other end."""
        return _unpack(_gosched._net_name(self._closed.number(), True))

    def shutdown(self, how, /):
        """Shut down the reading side, the writing side, or both."""
        _gosched._net_shutdown(self._closed.number(), _index(how))

    def getsockopt(self, level, option, buflen=0, /):
        """A socket option: a number, or bytes if there is a length."""
        fd = self._closed.number()
        if buflen == 0:
            return _number_of(fd, level, option)
        if not 0 < buflen <= 1024:
            raise OSError("getsockopt buflen out of range")
        return _gosched._net_getsockopt(fd, level, option, buflen)

    def setsockopt(self, level, option, value, optlen=None, /):
        """Set a socket option to a number, or bytes, or, with None and a length, zeros."""
        if value is None:
            value = bytes(optlen)
        elif isinstance(value, int) or hasattr(value, "__index__"):
            value = _struct.pack("i", _index(value))
        _gosched._net_setsockopt(self._closed.number(), level, option, bytes(value))

    # Input

    def _time_for(self, flags):
        return 0.0 if flags & _DONTWAIT else self._closed.timeout

    def _waits_for_all(self, flags):
        return flags & _WAITALL and not flags & _socket.MSG_PEEK and self._closed.kind == _socket.SOCK_STREAM

    def recv(self, bufsize, flags=0, /):
        """Receive up to bufsize bytes."""
        return self.recvfrom(bufsize, flags)[0]

    def recvfrom(self, bufsize, flags=0, /):
        """recvfrom(buffersize[, flags]) -> (data, address)"""
        bufsize = _index(bufsize)
        data, address = _recv(self._closed.number(), bufsize, flags, self._time_for(flags))
        if self._waits_for_all(flags):
            parts = [data]
            got = len(data)
            while got < bufsize and parts[-1]:
                parts.append(_recv(self._closed.number(), bufsize - got, flags, self._time_for(flags))[0])
                got += len(parts[-1])
            data = b"".join(parts)
        return data, _unpack(address)

    def recv_into(self, buffer, nbytes=0, flags=0):
        """Receive up to nbytes bytes (0: as many as fit) into a buffer."""
        return self.recvfrom_into(buffer, nbytes, flags)[0]

    def recvfrom_into(self, buffer, nbytes=0, flags=0):
        """Receive into a buffer -> (number of bytes, address)"""
        if nbytes < 0:
            raise ValueError("negative buffersize in recv_into")
        if not self._waits_for_all(flags):
            n, address = _recv_into(self._closed.number(), buffer, nbytes, flags, self._time_for(flags))
            return n, _unpack(address)
        with memoryview(buffer) as whole, whole.cast("B") as view:
            data, address = self.recvfrom(nbytes or len(view), flags)
            view[: len(data)] = data
        return len(data), address

    def recvmsg(self, bufsize, ancbufsize=0, flags=0, /):
        """recvmsg(bufsize[, ancbufsize[, flags]]) -> (data, ancdata, msg_flags, address); never with ancillary data"""
        data, address = self.recvfrom(bufsize, flags)
        return data, [], 0, address

    def recvmsg_into(self, buffers, ancbufsize=0, flags=0, /):
        """recvmsg_into(buffers[, ancbufsize[, flags]]) -> (nbytes, ancdata, msg_flags, address)"""
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        data, address = self.recvfrom(sum(map(len, views)), flags)
        at = 0
        for view in views:
            part = data[at : at + len(view)]
            view[: len(part)] = part
            at += len(part)
        return len(data), [], 0, address

    # Output

    def send(self, data, flags=0, /):
        """Send data; the number of bytes that were sent, which may be less than all."""
        return _send(self._closed.number(), data, flags, b"", self._time_for(flags))

    def sendall(self, data, flags=0, /):
        """Send all the data."""
        timeout = self._time_for(flags)
        deadline = None if not timeout else _gosched.monotonic() + timeout
        with memoryview(data) as whole, whole.cast("B") as view:
            sent = 0
            while True:
                with view[sent:] as rest:
                    sent += _send(self._closed.number(), rest, flags, b"", timeout)
                if sent >= len(view):
                    return
                if deadline is not None:
                    timeout = max(deadline - _gosched.monotonic(), 1e-9)

    def sendto(self, data, *args):
        """sendto(data[, flags], address) -> number of bytes"""
        if len(args) not in (1, 2):
            raise TypeError("sendto() takes 2 or 3 arguments (%d given)" % (len(args) + 1))
        flags = args[0] if len(args) == 2 else 0
        to = _pack(self._closed, args[-1], "sendto")
        return _send(self._closed.number(), data, flags, to, self._time_for(flags))

    def sendmsg(self, buffers, ancdata=(), flags=0, address=None, /):
        """sendmsg(buffers[, ancdata[, flags[, address]]]) -> number of bytes; without ancillary data"""
        if list(ancdata):
            raise _error(_errno.EOPNOTSUPP)
        to = b"" if address is None else _pack(self._closed, address, "sendmsg")
        return _send(self._closed.number(), b"".join(map(bytes, buffers)), flags, to, self._time_for(flags))

    def sendmsg_afalg(self, *args, **kwargs):
        """Not in a bubble."""
        raise _error(_errno.EOPNOTSUPP)

    def _sendfile_use_sendfile(self, file, offset=0, count=None):
        raise _std._GiveupOnSendfile(_error(_errno.EOPNOTSUPP))


def _init_in_front_of(original):
    def __init__(self, family=-1, type=-1, proto=-1, fileno=None):
        if _run():
            ssl = _sys.modules.get("ssl")
            if ssl is not None and isinstance(self, ssl.SSLSocket):
                raise OSError(_errno.EOPNOTSUPP, "a bubble's network has no TLS")
            if fileno is None:
                family = _socket.AF_INET if family == -1 else family
                type = _socket.SOCK_STREAM if type == -1 else type
                proto = 0 if proto == -1 else proto
                if family in _FAMILIES and type & ~_FLAGS in _KINDS:
                    return _take(self, _gosched._net_socket(family, type, proto), family, type, proto)
            elif isinstance(fileno, int) and _gosched._net_knows(fileno):
                option = _socket.SOL_SOCKET
                family = _number_of(fileno, option, _socket.SO_DOMAIN) if family == -1 else family
                type = _number_of(fileno, option, _socket.SO_TYPE) if type == -1 else type
                return _take(self, fileno, family, type, 0 if proto == -1 else proto)
        original(self, family, type, proto, fileno)

    __init__.__doc__ = original.__doc__
    return __init__


def _socketpair_in_front_of(original, cls):
    def socketpair(family=None, type=_std.SOCK_STREAM, proto=0):
        if not _run() or family not in (None, _socket.AF_UNIX) or type & ~_FLAGS != _socket.SOCK_STREAM:
            return original(family, type, proto)
        pair = []
        for fd in _gosched._net_pair():
            pair.append(cls.__new__(cls))
            _take(pair[-1], fd, _socket.AF_UNIX, type, proto)
        return tuple(pair)

    socketpair.__doc__ = original.__doc__
    return socketpair


# Waiting for several


def _poll_in_front_of(original):
    def poll(self, timeout=None, /):
        if not _run():
            return original(self, timeout)
        if self._polling:
            raise RuntimeError("concurrent poll() invocation")
        self._polling = True
        try:
            return _gosched.wait_fds(list(self._fds.items()), None if timeout is None or timeout < 0 else timeout / 1000)
        finally:
            self._polling = False

    poll.__doc__ = original.__doc__
    return poll


def _select_now_in_front_of(original):
    def _select_now(rlist, wlist, xlist):
        if not _run():
            return original(rlist, wlist, xlist)
        every = {}
        for fds, event in ((rlist, _std_select.POLLIN), (wlist, _std_select.POLLOUT), (xlist, _std_select.POLLPRI)):
            for fd in fds:
                every[_select._fileno(fd)] = every.get(_select._fileno(fd), 0) | event
        ready = dict(_gosched.wait_fds(list(every.items()), 0))
        if any(event & _std_select.POLLNVAL for event in ready.values()):
            raise _error(_errno.EBADF)
        wanted = ((rlist, _select._READ), (wlist, _select._WRITE), (xlist, _select._EXCEPT))
        return tuple([fd for fd in fds if ready.get(_select._fileno(fd), 0) & event] for fds, event in wanted)

    return _select_now


class _Watched:
    """What an epoll object of a bubble has."""

    def __init__(self):
        #: the network's files, which the kernel can't have there: their events
        self.network = {}
        #: the kernel's; while a goroutine waits for one, the bubble's clock goes as the real one does
        self.kernel = set()


_watched = _weakref.WeakKeyDictionary()


def _epoll_init_in_front_of(original):
    def __init__(self, sizehint=-1, flags=0):
        original(self, sizehint, flags)
        if _run():
            _watched[self] = _Watched()

    return __init__


def _change_in_front_of(original):
    name = original.__name__

    def change(self, fd, *args, **kwargs):
        own = _watched.get(self) if _run() else None
        number = _select._fileno(fd)
        if own is None or not _gosched._net_knows(number):
            original(self, fd, *args, **kwargs)
            if own is not None:
                (own.kernel.discard if name == "unregister" else own.kernel.add)(number)
            return
        if (name == "register") == (number in own.network):
            raise _error(_errno.EEXIST if name == "register" else _errno.ENOENT)
        if name == "unregister":
            del own.network[number]
        else:
            default = _std_select.EPOLLIN | _std_select.EPOLLPRI | _std_select.EPOLLOUT
            own.network[number] = (*args, *kwargs.values(), default)[0]

    change.__name__, change.__doc__ = name, original.__doc__
    return change


def _epoll_in_front_of(original):
    def poll(self, timeout=None, maxevents=-1):
        own = _watched.get(self) if _run() else None
        if own is None:
            return original(self, timeout, maxevents)
        # A file that was closed is in no epoll object any more.
        for fd in [fd for fd in own.network if not _gosched._net_knows(fd)]:
            del own.network[fd]
        events = [(fd, mask & 0xFFFF) for fd, mask in own.network.items()]
        if own.kernel:
            events.append((self.fileno(), _std_select.POLLIN))
        ready = dict(_gosched.wait_fds(events, None if timeout is None or timeout < 0 else timeout))
        found = self._epoll.poll(0, maxevents) if ready.pop(self.fileno(), 0) else []
        found.extend(ready.items())
        return found if maxevents < 1 else found[:maxevents]

    poll.__doc__ = original.__doc__
    return poll


# Putting it in front


_installed = set()


def _put(owner, name, front, *args):
    if (owner, name) not in _installed:
        _installed.add((owner, name))
        value = front(getattr(owner, name), *args)
        if isinstance(owner, type):
            value.__qualname__ = "%s.%s" % (owner.__qualname__, name)
        setattr(owner, name, value)


def install():
    """Called before a bubble begins. Sockets of the standard library become the network's only if they are patched."""
    from . import patch

    _gosched._hide_frames(_os.path.dirname(__file__) + _os.sep)
    _put(_ours.socket, "__init__", _init_in_front_of)
    _put(_ours, "socketpair", _socketpair_in_front_of, _ours.socket)
    _put(_select._Poll, "poll", _poll_in_front_of)
    _put(_select, "_select_now", _select_now_in_front_of)
    _put(_select.epoll, "__init__", _epoll_init_in_front_of)
    for name in ("register", "modify", "unregister"):
        _put(_select.epoll, name, _change_in_front_of)
    _put(_select.epoll, "poll", _epoll_in_front_of)
    if patch.is_patched("socket"):
        _put(_std.socket, "__init__", _init_in_front_of)
        _put(_std, "socketpair", _socketpair_in_front_of, _std.socket)
    if patch.is_patched("time") and "time" not in _installed:
        _installed.add("time")
        patch._patch_clocks()
