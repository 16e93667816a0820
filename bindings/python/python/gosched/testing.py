"""Tests of concurrent code by seeds: the same number gives the same run again, with a clock that needs no waiting.

run() calls a function in a *bubble*: it and all goroutines that come of it run one at a time, and a seed decides at
each step (an operation on a channel, a lock, a sleep, go() and the like) who goes on. explore() looks for a seed with
which the function fails, and then for the shortest schedule that does.

    import gosched
    from gosched import testing

    def transfer():
        balance, lock = [100], gosched.Lock()

        def take(amount):
            with lock:
                enough = balance[0] >= amount
            if enough:
                with lock:
                    balance[0] -= amount

        both = [gosched.go(take, 100) for _ in range(2)]
        for one in both:
            one.result()
        assert balance[0] >= 0

    testing.explore(transfer)  # AssertionError, with a note that says how to have it again
"""

import contextlib as _contextlib
import errno as _errno
import functools as _functools
import inspect as _inspect
import os as _os
import re as _re
import sys as _sys
import tempfile as _tempfile
import types as _types

from . import _gosched, _originals
from ._gosched import Event as _Event

__all__ = ["DeadlockError", "Disturbed", "explore", "fail", "Failure", "Net", "now", "run", "seed", "test", "TooManySteps"]


class Failure(AssertionError):
    """A run has failed. `seed` and `replay`, if they are known, give the same run again: as arguments of run()."""

    #: the number that has decided the run; None: not known
    seed = None
    #: its schedule, for run(replay=...); None: the seed is enough, or nothing is
    replay = None
    #: what the library says of it
    report = ""


class DeadlockError(Failure):
    """All goroutines of the run wait, and nothing can wake any of them."""


class TooManySteps(Failure):
    """The run takes more steps than max_steps."""


class Disturbed(Failure):
    """A goroutine of the bubble was woken by something outside of it, or has woken a goroutine outside. Such a run can't
    be had again."""


class Net:
    """How the network of a bubble behaves: delay (0: 100 us) and jitter are in seconds, all others chances from 0 to 1.

    loss: a datagram is lost; a part of a stream comes 200 ms later or more. duplicate: a datagram comes twice. cut: with
    a call that sends, the connection falls silent for good. reset: with a call that sends, it is reset. refuse: an
    attempt to connect is refused. short_io: a call reads or writes less than it could."""

    def __init__(self, *, delay=0.0, jitter=0.0, loss=0.0, duplicate=0.0, cut=0.0, reset=0.0, refuse=0.0, short_io=0.0):
        self.delay = delay
        self.jitter = jitter
        self.loss = loss
        self.duplicate = duplicate
        self.cut = cut
        self.reset = reset
        self.refuse = refuse
        self.short_io = short_io
        self._fields()

    def _fields(self):
        times = (self.delay, self.jitter)
        chances = (self.loss, self.duplicate, self.cut, self.reset, self.refuse, self.short_io)
        if not all(0 <= value < 1e9 for value in times):
            raise ValueError("delay and jitter must not be negative")
        if not all(0 <= value <= 1 for value in chances):
            raise ValueError("a chance is from 0 to 1")
        return (*(round(value * 1e9) for value in times), *(round(value * 1000) for value in chances))


class _Options:
    """What decides a run, for _gosched."""


_SCHEDULES = {"random": 0, "pct": 1, "round-robin": 2}
_KINDS = {_errno.EDEADLK: DeadlockError, _errno.ETIMEDOUT: TooManySteps, _errno.EPERM: Disturbed}
_SEED = _re.compile(r"gosched: test: seed (\d+)(?:, run \d+ of \d+)?: (.*)")
_AGAIN = _re.compile(r"^To have it again: GOSCHED_TEST=replay=(\S*)$", _re.MULTILINE)
#: how long a run that is to end has for that, in seconds
_PATIENCE = 5


def run(f, *, seed=None, schedule="random", depth=3, max_steps=1_000_000, replay=None, log=None, net=None, strict=False, quiet=False):
    """Calls f() in a bubble, and gives what it returns when all goroutines have ended.

    seed decides the run (None: 1). schedule: "random"; "pct", random priorities that change depth - 1 times;
    "round-robin". replay: a schedule that a report has given, in the place of a seed. log: a file with a descriptor, for
    the events of the run. strict: the run is made twice, and Disturbed is raised if not only the seed decides it: if the
    two differ, or one reads the system's clock, gets random bytes of the system or starts a thread. quiet: no report
    goes to standard error.

    An exception that leaves f, or a goroutine whose result() is not called, ends the run and is raised here.
    DeadlockError, TooManySteps, Disturbed: see there.

    >>> from gosched import testing
    >>> def sleeper():
    ...     began = testing.now()
    ...     gosched.sleep(3600)
    ...     return testing.now() - began
    >>> testing.run(sleeper, seed=7)
    3600.0
    """
    return _execute(f, None, seed, schedule, depth, max_steps, replay, log, net, strict, quiet)


def explore(
    f, runs=1000, *, seed=None, schedule="random", depth=3, max_steps=1_000_000, replay=None, log=None, net=None, strict=False,
    quiet=False,
):
    """As run(), with `runs` seeds from `seed` on, until a run fails. Then it looks for the shortest schedule that fails in
    the same way, reports it, and raises the exception of that run. Gives the number of runs."""
    if runs < 0:
        raise ValueError("runs must not be negative")
    return _execute(f, runs, seed, schedule, depth, max_steps, replay, log, net, strict, quiet)


def seed():
    """The seed of the run that the caller is in; 0: it is in none."""
    return _gosched._test_seed()


def now():
    """The time that timeouts and sleeps go by, in seconds: in a bubble its own, which begins at 1; elsewhere that of
    time.monotonic()."""
    return _gosched._test_now()


def fail(message):
    """Ends the run that the caller is in as failed: raises Failure in the caller of run() or explore(). The calling
    goroutine goes on no more. Outside of a bubble Failure is raised here."""
    failure = Failure(message)
    if not _gosched._test_seed():
        raise failure
    frame = _sys._getframe().f_back
    traceback = None
    while frame is not None:
        traceback = _types.TracebackType(traceback, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    _gosched._test_fail(failure.with_traceback(traceback))


def _execute(f, runs, seed, schedule, depth, max_steps, replay, log, net, strict, quiet):
    if not callable(f):
        raise TypeError("the first argument must be callable, not %s" % type(f).__name__)
    if _gosched._test_seed():
        raise RuntimeError("a bubble has no bubbles in it")
    if schedule not in _SCHEDULES:
        raise ValueError("schedule is one of %s" % ", ".join(map(repr, _SCHEDULES)))
    if seed is not None and seed < 1 or depth < 1 or max_steps < 1:
        raise ValueError("seed, depth and max_steps must be at least 1")
    options = _Options()
    options.seed = seed or 0
    options.schedule = _SCHEDULES[schedule]
    options.depth = depth
    options.max_steps = max_steps
    options.strict = strict
    options.replay = replay
    options.net = (net or Net())._fields()
    options.log = 0
    if log is not None:
        if hasattr(log, "flush"):
            log.flush()
        options.log = log if isinstance(log, int) else log.fileno()
    with _tempfile.TemporaryFile() as file:
        options.report = file.fileno()
        result, value, error = _in_thread(f, runs, options)
        file.seek(0)
        report = file.read().decode(errors="replace")
    if report and not quiet and _sys.stderr is not None:
        _sys.stderr.write(report)
    if result >= 0:
        if error is not None:
            raise error
        return value if runs is None else result
    _raise(-result, error, report)


def _raise(number, error, report):
    """Raises the error of a run that has failed."""
    found = None
    for found in _SEED.finditer(report):
        pass
    kind = _KINDS.get(number)
    if number == _errno.EINVAL:
        raise ValueError("replay is no schedule, or GOSCHED_TEST is neither seed=NUMBER nor replay=SCHEDULE")
    if kind is None and number != _errno.EPROTO:
        raise OSError(number, _os.strerror(number))
    if kind is not None or error is None:
        failure = (kind or Failure)(found[2] if found else "the run has failed")
        failure.__cause__, error = error, failure
    again = _AGAIN.search(report)
    number = int(found[1]) if found else None
    if isinstance(error, Failure):
        error.seed, error.report = number, report
        error.replay = again[1] if again else None
    if number is not None:
        note = "gosched: seed %d" % number
        if not isinstance(error, Disturbed):
            note += "; to have this run again: "
            note += "replay=%r, or GOSCHED_TEST=replay=%s" % (again[1], again[1]) if again else "seed=%d" % number
        _add_note(error, note)
    raise error


def _add_note(error, text):
    if text in getattr(error, "__notes__", ()):
        return
    if hasattr(error, "add_note"):
        error.add_note(text)
    else:  # before Python 3.11 nothing shows it, but who looks for it finds it there
        error.__notes__ = [*getattr(error, "__notes__", ()), text]


def _in_thread(f, runs, options):
    """Runs a bubble on a thread of its own: the caller's may run goroutines already."""
    import contextvars

    # Not for the first time in the bubble: `threading` takes the goroutine that imports it for the main thread.
    from . import queue  # noqa: F401
    from . import _network

    _network.install()

    stop, done, outcome = _gosched._Stop(), _Event(), []
    context = contextvars.copy_context()

    def work():
        _originals.own_threads.add(_originals.get_ident())
        try:
            outcome.append(_gosched._test_run(f, context, runs, options, stop))
        except BaseException as error:
            outcome.append(error)
        finally:
            _forget_thread()
            done.set()

    _originals.start_new_thread(work, ())
    try:
        done.wait()
    except BaseException:
        stop.set()
        with _contextlib.suppress(BaseException):
            done.wait(_PATIENCE)
        raise
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _forget_thread():
    """What `threading` has noted of the calling thread."""
    ident = _originals.get_ident()
    _originals.own_threads.discard(ident)
    threading = _sys.modules.get("threading")
    if threading is not None:
        thread = threading._active.get(ident)
        if isinstance(thread, threading._DummyThread):
            threading._active.pop(ident, None)


#: What pytest's options say, for all tests: seed, runs, replay.
_said = {}


def test(f=None, /, *, runs=1000, seed=None, schedule="random", depth=3, max_steps=1_000_000, net=None, strict=False, quiet=False):
    """Makes a test function one that explore() calls, with its arguments (pytest's fixtures, say):

        @gosched.test(runs=2000)
        def test_transfer():
            ...

    With pytest, --gosched-seed, --gosched-runs and --gosched-replay go before the decorator's arguments."""
    if f is None:
        return lambda f: test(
            f, runs=runs, seed=seed, schedule=schedule, depth=depth, max_steps=max_steps, net=net, strict=strict, quiet=quiet
        )
    if _inspect.iscoroutinefunction(f):
        raise TypeError("gosched.test is for functions, not for coroutines: run_coroutine() runs one in a function")

    @_functools.wraps(f)
    def wrapper(*args, **kwargs):
        call = _functools.partial(f, *args, **kwargs) if args or kwargs else f
        options = dict(schedule=schedule, depth=depth, max_steps=max_steps, net=net, strict=strict, quiet=quiet)
        options["seed"] = _said.get("seed", seed)
        if _said.get("replay") is not None:
            run(call, replay=_said["replay"], **options)
        else:
            explore(call, _said.get("runs", runs), **options)

    return wrapper


test.__test__ = False  # pytest doesn't take it for a test
