"""What a running program shows of itself: traces, the flight recorder, dumps."""

import atexit
import errno
import io
import json
import os
import sys
import tempfile
import traceback

from . import _gosched


def _opened(file):
    """A descriptor for what is to be written, and whether it is to be closed. file: a path, a descriptor, or an object
    with fileno()."""
    if isinstance(file, int):
        return file, False
    fileno = getattr(file, "fileno", None)
    if fileno is None:
        return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666), True
    flush = getattr(file, "flush", None)
    if flush is not None:
        flush()
    return fileno(), False


def _written_by(write):
    """The bytes that write(fd) writes."""
    with tempfile.TemporaryFile(buffering=0) as file:
        write(file.fileno())
        file.seek(0)
        return file.readall()


#: traces and flight recorders that go on
_going_on = set()


class _Recorder:
    """What trace() and flight_recorder() give."""

    def __init__(self):
        _going_on.add(self)

    @property
    def running(self):
        """Whether it goes on: it was not stopped, and this process is not the child of a fork."""
        return self in _going_on

    def stop(self):
        """Ends it; the second time this does nothing. OSError: not all of a trace was written."""
        if self in _going_on:
            _going_on.discard(self)
            self._stop()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.stop()


class Trace(_Recorder):
    """A trace of events that is being written. See :func:`gosched.trace`."""

    def __init__(self, file):
        try:
            # A trace that goes on may be in this file.
            _gosched._trace_start(-1)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
        #: kept open until the trace ends
        self._file = file
        self._fd, self._is_own = _opened(file)
        try:
            _gosched._trace_start(self._fd)
        except BaseException:
            self._close()
            raise
        super().__init__()

    def _close(self):
        self._file = None
        if self._is_own:
            self._is_own = False
            os.close(self._fd)

    def _stop(self):
        try:
            _gosched._trace_stop()
        finally:
            self._close()


class FlightRecorder(_Recorder):
    """Keeps the latest events. See :func:`gosched.flight_recorder`."""

    def __init__(self, seconds):
        _gosched._flight_start(seconds)
        super().__init__()

    def _stop(self):
        _gosched._flight_stop()

    def write(self, file):
        """Writes the events that are kept, as a trace, to a file: a path, a descriptor, or an object with fileno(). More
        events are kept afterwards."""
        fd, is_own = _opened(file)
        try:
            _gosched._flight_write(fd)
        finally:
            if is_own:
                os.close(fd)


def trace(file):
    """Begins to write a trace of all goroutines, with the events of the scheduler: when each goroutine ran, what it
    waited for, and who woke it. `go tool trace` and gosched-trace show such a file.

    `file` is a path, a descriptor, or an object with fileno(): a file, pipe or socket. Gives an object whose stop()
    ends the trace, and so does leaving its `with` block.

    >>> import gosched, tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     with gosched.trace(file):
    ...         gosched.go(gosched.sleep, 0.01).join()
    ...     _ = file.seek(0)
    ...     file.read(5)
    True
    b'go 1.'

    OSError: the file can't be written; or, with errno EBUSY, there is a trace already, as there is one at a time in a
    process. The environment's GOSCHED_TRACE=path begins a trace of the whole process, in which %p stands for its number.
    """
    return Trace(file)


def flight_recorder(seconds):
    """Begins to keep the events of the last `seconds` at least in memory, 64 MiB at most, so that a program can write
    them when something has gone wrong. Gives an object with write(file), which writes them as a trace, and with stop(),
    which forgets them; leaving its `with` block calls stop().

    >>> import gosched, tempfile
    >>> with gosched.flight_recorder(10) as recorder, tempfile.TemporaryFile() as file:
    ...     gosched.go(gosched.sleep, 0.01).join()
    ...     recorder.write(file)
    ...     _ = file.seek(0)
    ...     file.read(5)
    True
    b'go 1.'

    OSError with errno EBUSY: there is one in the process already.
    """
    return FlightRecorder(seconds)


def dump(file=None):
    """Writes the stack of each goroutine of Python, with the tasks of its event loop if it runs one, to `file`, standard
    error if none is given: a text file, or as faulthandler.dump_traceback() takes it, a descriptor or an object with
    fileno().

    >>> import gosched, io
    >>> text = io.StringIO()
    >>> gosched.dump(text)
    >>> text.getvalue().splitlines()[0].endswith("[running] main:")
    True

    With GOSCHED_DEBUG=sigquit=1 in the environment the signal SIGQUIT (Ctrl-\\ on a terminal) has the library write the
    goroutines of C, too, while Python is at a loss: faulthandler.register(signal.SIGQUIT) would show threads.
    """
    if file is None:
        file = sys.stderr
        if file is None:
            return
    text = io.StringIO()
    me = _gosched.current()
    for goroutine in _gosched.goroutines():
        state = "waiting" if goroutine._is_away() else "running"
        text.write("goroutine %d [%s] %s:\n" % (goroutine.id, state, goroutine.name))
        frame = sys._getframe(1) if goroutine is me else goroutine.frame
        if frame is not None:
            text.write("".join(traceback.format_stack(frame)))
        for task in _tasks_of(goroutine):
            task.print_stack(file=text)
        text.write("\n")
    _put(text.getvalue(), file)


def _tasks_of(goroutine):
    """The tasks of the event loops that run in the goroutine. Without a GIL only the caller's own: others may run."""
    module = sys.modules.get("gosched.asyncio")
    if module is None or not (module._is_one_thread or goroutine is _gosched.current()):
        return []
    loops = [loop for loop in list(module._running_loops) if loop._goroutine is goroutine]
    return [task for loop in loops for task in sorted(module._asyncio.all_tasks(loop), key=lambda task: task.get_name())]


def _put(text, file):
    """Writes a text to a text file, a descriptor, or an object with fileno()."""
    if not isinstance(file, int):
        if hasattr(file, "write"):
            try:
                file.write(text)
            except TypeError:  # a file of bytes
                file.write(text.encode(errors="backslashreplace"))
            if hasattr(file, "flush"):
                file.flush()
            return
        file = file.fileno()
    data = text.encode(errors="backslashreplace")
    while data:
        data = data[os.write(file, data) :]


def dump_json():
    """The state and the stack of each goroutine, those of C included, as a dict. Its "goroutines" is a list of dicts with
    id, name, state, wait_reason, wait_ns and frames, whose first ones are those of Python, with function, file and line.
    The id is the library's, as in traces; the name is that with which the goroutine was started.

    >>> import gosched
    >>> "goroutines" in gosched.dump_json()
    True
    """
    return json.loads(_written_by(_gosched._dump_json).decode(errors="replace"))


def leaks():
    """A report of goroutines that can never go on, because they wait for an object to which nothing refers. Every word of
    memory that could be a pointer counts as one, and Python's own objects are memory, too: so the report has what code in
    C has leaked, and seldom what Python has. All threads stand still meanwhile, and calls of theirs that Linux doesn't
    restart fail with EINTR. OSError with EBUSY: a thread doesn't react, because it blocks the preemption signal (SIGURG), as
    the threads of jemalloc do, which comes with pyarrow.

    >>> import gosched
    >>> isinstance(gosched.leaks(), str)
    True
    """
    return _written_by(_gosched._leaks).decode(errors="replace")


def metrics():
    """The scheduler's statistics in the text format of OpenMetrics, for a server to answer Prometheus with (content type
    application/openmetrics-text; version=1.0.0).

    >>> import gosched
    >>> gosched.metrics().endswith("# EOF\\n")
    True
    """
    return _written_by(_gosched._metrics).decode()


@atexit.register
def _at_exit():
    for recorder in list(_going_on):
        try:
            recorder.stop()
        except OSError as error:
            sys.stderr.write("gosched: a trace was not written: %s\n" % error)


# In a child of a fork there is neither a trace nor a flight recorder.
os.register_at_fork(after_in_child=_going_on.clear)
