"""What the tests of the core have in common."""

import os
import subprocess
import sys
import textwrap
import time

import pytest

import gosched

#: Whether this Python has no GIL; whether goroutines run in parallel, on several threads.
FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()
PARALLEL = FREE_THREADED and gosched.gomaxprocs() > 1

#: Flags for programs that fork: where goroutines run in parallel to the one that forks, Python may warn of them.
FORKS = ["-W", "ignore:This process:DeprecationWarning"] if PARALLEL else []

#: For tests of what happens in which order, where one goroutine runs at a time.
one_at_a_time = pytest.mark.skipif(
    PARALLEL, reason="goroutines run in parallel here, in no fixed order: see GOSCHED_PROCS=1"
)

#: where the repository is
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

#: where the package is, for the processes that tests start
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(gosched.__file__)))


def start(code, *args, flags=(), env=None, **kwargs):
    """A process that runs a program of Python's, with this Python and its flags."""
    options = ["-X", "dev"] if sys.flags.dev_mode else []
    options += ["-X", "faulthandler"]
    variables = dict(os.environ, PYTHONPATH=PACKAGE, PYTHONIOENCODING="utf-8", **(env or {}))
    kwargs.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen(
        [sys.executable, *options, *flags, "-c", textwrap.dedent(code), *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        env=variables,
        start_new_session=True,
        **kwargs,
    )


def kill(process):
    """With all processes that it has made."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass


class Outcome:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def __repr__(self):
        return "status %s\n--- out\n%s\n--- err\n%s" % (self.status, self.out[-1000:], self.err[:1000] + '\n...\n' + self.err[-500:])


def finish(process, timeout=40, input=None):
    """Waits for its end; a process that hangs fails the test."""
    try:
        out, err = process.communicate(input, timeout)
    except subprocess.TimeoutExpired:
        kill(process)
        out, err = process.communicate()
        pytest.fail("the process hangs\n%r" % Outcome("killed", out, err))
    finally:
        # What it has left behind, if anything.
        kill(process)
    return Outcome(process.returncode, out, err)


def run(code, *args, timeout=40, status=0, input=None, **kwargs):
    """Runs a program of Python's to its end, which must be with this status (None: any but a signal)."""
    if input is not None:
        kwargs["stdin"] = subprocess.PIPE
    outcome = finish(start(code, *args, **kwargs), timeout, input)
    if status is None:
        assert outcome.status >= 0, outcome
    else:
        assert outcome.status == status, outcome
    return outcome


def until(condition, seconds=20):
    """Waits until it is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it doesn't come true"
        gosched.sleep(0.001)


def park(fn, *args):
    """Starts a goroutine, and waits until it waits."""
    g = gosched.go(fn, *args)
    if FREE_THREADED:
        until(lambda: g.done() or g._is_away())
        # It may just have given way.
        gosched.sleep(0.005)
        until(lambda: g.done() or g._is_away())
        return g
    for _ in range(3):
        gosched.yield_()
    return g


def gotrace():
    """The module that checks traces with Go's tool. Skips the test where there is none."""
    sys.path.insert(0, os.path.join(REPOSITORY, "tests", "trace"))
    try:
        import gotrace
    except ImportError as error:
        pytest.skip("the repository's tests/trace/gotrace.py can't be imported: %s" % error)
    finally:
        del sys.path[0]
    why = gotrace.cannot()
    if why:
        pytest.skip(why)
    return gotrace
