"""Files over pipes, cooperative; what :mod:`gosched.subprocess` opens its pipes with."""

import io as _io
import types as _types
import warnings as _warnings

from . import _gosched
from . import _originals
from .os import _IN, _PIPE_BUF, _wait_for
from .os import write as _write


class PipeReader(_io.FileIO):
    # The descriptor stays blocking: it may become the standard input of another child. What
    # poll(2) calls readable can be read without blocking.

    def readinto(self, buffer, /):
        _wait_for(self.fileno(), _IN)
        return super().readinto(buffer)

    def read(self, size=-1, /):
        if size is None or size < 0:
            return self.readall()
        _wait_for(self.fileno(), _IN)
        return super().read(size)

    def readall(self):
        parts = []
        while True:
            data = self.read(65536)
            if data is None and not parts:
                return None  # the program has made it a non-blocking one, and it isn't at its end
            if not data:
                break
            parts.append(data)
        return b"".join(parts)

    def close(self):
        _close(self, super().close)


class PipeWriter(_io.FileIO):
    # The descriptor stays blocking here too: it may become the output of another child.

    def write(self, data, /):
        # A piece that is written without blocking, so that who is cancelled knows how much was.
        with memoryview(data) as view, view.cast("B") as octets:
            return _write_or_none(self.fileno(), octets[:_PIPE_BUF])

    def close(self):
        _close(self, super().close)


class UnbufferedPipeWriter(PipeWriter):
    def write(self, data, /):
        # All of it, as write(2).
        return _write_or_none(self.fileno(), data)


def _write_or_none(fd, data):
    try:
        return _write(fd, data)
    except BlockingIOError:
        return None  # the program has made it a non-blocking one


def _close(self, close):
    if not self.closed and self.closefd:
        _gosched.cancel_fd(self.fileno())
    close()


class _Io(_types.ModuleType):
    """The ``io`` module for subprocess, whose pipes this module opens."""

    def __getattr__(self, name):
        return getattr(_io, name)

    @staticmethod
    def open(file, mode="r", buffering=-1, *args, **kwargs):
        if isinstance(file, int) and not args and not kwargs and mode in ("rb", "wb"):
            if buffering == 0:
                return PipeReader(file, "r") if mode == "rb" else UnbufferedPipeWriter(file, "w")
            raw = PipeReader(file, "r") if mode == "rb" else PipeWriter(file, "w")
            if buffering == 1:
                _warnings.warn(
                    "line buffering (buffering=1) isn't supported in binary mode, the default"
                    " buffer size will be used",
                    RuntimeWarning,
                    stacklevel=2,
                )
            if buffering in (-1, 1):
                # As io.open() has it: the block size of what is behind the descriptor.
                size = getattr(raw, "_blksize", 0)
                buffering = size if size > 1 else _io.DEFAULT_BUFFER_SIZE
            return (_io.BufferedReader if mode == "rb" else _io.BufferedWriter)(raw, buffering)
        return _io.open(file, mode, buffering, *args, **kwargs)


io = _Io("io")
