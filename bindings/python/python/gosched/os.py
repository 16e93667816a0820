"""``os``, with cooperative :func:`read`, :func:`write`, :func:`waitpid` and their relations."""

import fcntl as _fcntl
import os as _std
import select as _select
import stat as _stat
import weakref as _weakref

from . import _gosched
from . import _originals
from ._originals import take_names as _take_names

_take_names(_std, globals())
__all__ = list(_std.__all__)

_IN = _select.POLLIN | _select.POLLHUP | _select.POLLERR | _select.POLLNVAL
_OUT = _select.POLLOUT | _select.POLLHUP | _select.POLLERR | _select.POLLNVAL
# How a descriptor is open that never gets ready for these: the call fails at once.
_WRONG_WAY = {_IN: _std.O_WRONLY, _OUT: _std.O_RDONLY}
# A pipe that poll(2) calls writable takes this many bytes without blocking.
_PIPE_BUF = _select.PIPE_BUF


#: descriptor -> a socket of which gosched has made it a non-blocking one
_sockets = _weakref.WeakValueDictionary()


def _blocks(fd):
    """Whether a descriptor that doesn't block is that of a socket that blocks for the program."""
    socket = _sockets.get(fd)
    # A socket has a timeout there while its descriptor is non-blocking for gosched's sake.
    return socket is not None and socket.fileno() == fd and getattr(socket._closed, "timeout", 0) is None


def _ready_now(fd, events):
    poller = _originals.select_poll()
    try:
        poller.register(fd, events)
    except (TypeError, ValueError, OverflowError):
        return True  # the call itself says what's wrong with it
    return bool(poller.poll(0))


def _wait_for(fd, events):
    """Parks until a call on a blocking descriptor won't block; False if it's a non-blocking one."""
    _gosched.checkpoint()
    while not _ready_now(fd, events):
        flags = _fcntl.fcntl(fd, _fcntl.F_GETFL)
        if flags & _std.O_ACCMODE == _WRONG_WAY[events] or flags & _std.O_NONBLOCK and not _blocks(fd):
            return False
        if events == _IN:
            _gosched.wait_read(fd)
        else:
            _gosched.wait_write(fd)
    return True


def read(fd, length, /):
    """Read from a file descriptor. Returns a bytes object."""
    _wait_for(fd, _IN)
    return _originals.os_read(fd, length)


def readv(fd, buffers, /):
    """Read from a file descriptor into an iterable of buffers."""
    _wait_for(fd, _IN)
    return _originals.os_readv(fd, buffers)


def write(fd, data, /):
    """Write a bytes object to a file descriptor: the number of bytes written."""
    with memoryview(data) as view:
        size = view.nbytes
        if size <= _PIPE_BUF or not view.c_contiguous:
            _wait_for(fd, _OUT)
            return _originals.os_write(fd, data)
        mode = _std.fstat(fd).st_mode
        if not _std.get_blocking(fd) and not _blocks(fd) or _stat.S_ISREG(mode):
            return _originals.os_write(fd, data)
        is_socket = _stat.S_ISSOCK(mode)
        if not is_socket and not _stat.S_ISFIFO(mode) and not _std.isatty(fd):
            # A device: what is written at once may be one message.
            _wait_for(fd, _OUT)
            return _originals.os_write(fd, data)
        # A blocking write(2) takes everything, piece by piece here. A socket may have messages, and takes what there is
        # room for.
        written = 0
        with view.cast("B") as octets:
            while written < size:
                if not is_socket and not _wait_for(fd, _OUT) and written:
                    break
                try:
                    if is_socket:
                        written += _gosched.send(fd, octets[written:])
                    else:
                        written += _originals.os_write(fd, octets[written : written + _PIPE_BUF])
                except OSError:
                    if not written:
                        raise
                    break
        return written


def writev(fd, buffers, /):
    """Write an iterable of buffers to a file descriptor: the number of bytes written."""
    if not _std.get_blocking(fd) and not _blocks(fd):
        return _originals.os_writev(fd, buffers)
    buffers = list(buffers)
    try:
        data = b"".join(buffers)
    except (TypeError, BufferError):
        return _originals.os_writev(fd, buffers)  # it says what's wrong with them
    return write(fd, data) if buffers else _originals.os_writev(fd, buffers)


if hasattr(_std, "eventfd_read"):  # from Python 3.10 on

    def eventfd_read(fd):
        """Read an eventfd's value."""
        _wait_for(fd, _IN)
        return _originals.os_eventfd_read(fd)

    def splice(src, dst, count, offset_src=None, offset_dst=None, flags=0):
        """Transfer bytes between two file descriptors, of which one is a pipe: the number of bytes."""
        if not flags & _std.SPLICE_F_NONBLOCK:
            # Others may have emptied the one while this goroutine waited for the other.
            while _wait_for(src, _IN) and _wait_for(dst, _OUT) and not _ready_now(src, _IN):
                pass
        return _originals.os_splice(src, dst, count, offset_src, offset_dst, flags)


def close(fd):
    """Close a file descriptor. Goroutines that wait for it get OSError(EBADF)."""
    if isinstance(fd, int) and 0 <= fd < 1 << 31:
        _gosched.cancel_fd(fd)
    _originals.os_close(fd)


# Children

_pidfd_open = getattr(_std, "pidfd_open", None)
# What tells about changes that a pidfd doesn't tell.
_NOT_EXIT = _std.WUNTRACED | _std.WCONTINUED


def _wait_child(pid, timeout=None):
    """Parks until a child has ended, without reaping it. None: there's no way to wait for it."""
    if _pidfd_open is None or not isinstance(pid, int) or pid <= 0:
        return None
    try:
        fd = _pidfd_open(pid)
    except OSError:
        return None
    try:
        return _gosched.wait_read(fd, timeout)
    finally:
        _gosched.cancel_fd(fd)
        _std.close(fd)


# How long a wait for one of several children sleeps before it looks at them again: the first time, and at most.
_FIRST_SLEEP, _LONGEST_SLEEP = 0.0005, 0.01


def _wait_any(look):
    """A wait for one of several children: until look() gives something. A thread that waited for one would take its status
    from the program even if the goroutine was cancelled, and the end of the program would wait for it."""
    seconds = _FIRST_SLEEP
    while True:
        _gosched.sleep(seconds)
        found = look()
        if found is not None:
            return found
        seconds = min(2 * seconds, _LONGEST_SLEEP)


def waitpid(pid, options, /):
    """Wait for completion of a child process. Returns (pid, status)."""
    _gosched.checkpoint()
    if isinstance(options, int) and not options & _std.WNOHANG:

        def look():
            found = _originals.waitpid(pid, options | _std.WNOHANG)
            return found if found[0] else None

        found = look()
        if found is not None:
            return found
        if options & _NOT_EXIT or _wait_child(pid) is None:
            return _wait_any(look)
    return _originals.waitpid(pid, options)


def wait():
    """Wait for completion of a child process. Returns (pid, status)."""
    return waitpid(-1, 0)


def wait4(pid, options):
    """As waitpid, with the resource usage. Returns (pid, status, rusage)."""
    if isinstance(options, int) and not options & _std.WNOHANG:

        def look():
            found = _originals.wait4(pid, options | _std.WNOHANG)
            return found if found[0] else None

        found = look()
        if found is not None:
            return found
        if options & _NOT_EXIT or _wait_child(pid) is None:
            return _wait_any(look)
    return _originals.wait4(pid, options)


def wait3(options):
    """As wait, with the resource usage. Returns (pid, status, rusage)."""
    return wait4(-1, options)


def waitid(idtype, id, options, /):
    """Wait for a child process' state; see waitid(2)."""
    if options & _std.WNOHANG:
        return _originals.waitid(idtype, id, options)

    def look():
        return _originals.waitid(idtype, id, options | _std.WNOHANG)

    found = look()
    return _wait_any(look) if found is None else found


def system(command):
    """Execute the command in a subshell."""
    return _gosched.blocking(_originals.system, command)


_NAMES = (
    "read",
    "readv",
    "write",
    "writev",
    "close",
    "waitpid",
    "wait",
    "wait3",
    "wait4",
    "waitid",
    "system",
)
if hasattr(_std, "eventfd_read"):
    _NAMES += ("eventfd_read", "splice")
