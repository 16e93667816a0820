"""Runs programs on a patched standard library, each in a process of its own."""

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest
from helpers import finish

HERE = os.path.dirname(os.path.abspath(__file__))

PRELUDE = """
import gosched
from gosched import patch
patch.patch_all()

class Beside:
    "Counts, in a goroutine beside what it's wrapped around: that the thread was free meanwhile."
    def __init__(self):
        self.ticks = 0
        self.running = True
    def run(self):
        while self.running:
            self.ticks += 1
            gosched.sleep(0.001)
    def __enter__(self):
        self.goroutine = gosched.go(self.run)
        return self
    def __exit__(self, *exc):
        self.running = False
        self.goroutine.join()
        if exc[0] is None:
            assert self.ticks, "no tick: the thread was held up"
"""


def need(*names):
    """Skips the test, or the file, if these modules aren't installed. Doesn't import them: pandas brings a thread that blocks
    all signals, and much memory."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(name + " isn't installed", allow_module_level=True)


def run(code, *args, timeout=60, prelude=PRELUDE, options=(), env=None):
    """The output of a program; it has to end well, and quietly."""
    program = prelude + textwrap.dedent(code)
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", *options, "-c", program, *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=HERE,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )
    done = finish(process, timeout)
    assert done.status == 0, done
    assert not done.err, done.err
    return done.out
