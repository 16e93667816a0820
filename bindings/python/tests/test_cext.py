"""The extension of examples/cext: built as a user builds it, and run."""

import os
import shutil
import subprocess
import sys

import pytest

import gosched

SOURCE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples", "cext")


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    if not shutil.which(os.environ.get("CC", "cc")):
        pytest.skip("no C compiler")
    directory = tmp_path_factory.mktemp("cext")
    source = directory / "source"
    shutil.copytree(SOURCE, str(source))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--no-index"]
    env = {**os.environ, "CFLAGS": "-Wall -Wextra -Werror -Wno-missing-field-initializers"}
    done = subprocess.run([*pip, "--target", str(directory / "built"), str(source)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(directory / "built")


def run(extension, program, *arguments):
    env = {**os.environ, "PYTHONPATH": extension}
    done = subprocess.run([sys.executable, "-X", "dev", *program, *arguments], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_goroutines_in_c_and_in_python_share_channels(extension):
    out = run(extension, [os.path.join(SOURCE, "use.py")], "1000")
    assert out == "168 primes, the last is 997\n0 to 99 add up to 4950\n"


def test_there_is_one_library(extension):
    program = """
import gosched, factors
maps = {line.split()[-1] for line in open("/proc/self/maps") if "libgosched" in line}
assert maps == {gosched.get_library_dir() + "/libgosched.so.1"}, maps
"""
    run(extension, ["-c", program])


def test_channels_outlive_their_python_objects(extension):
    program = """
import gc, gosched, factors
def start():
    jobs, results = gosched.Channel(8, format="q"), gosched.Channel(8, format="qq")
    factors.start(jobs, results, 2)
    for n in range(2, 8):
        jobs.send(n)
    jobs.close()
    return results
for _ in range(100):
    assert sorted(start()) == [(2, 2), (3, 3), (4, 2), (5, 5), (6, 2), (7, 7)]
gc.collect()
factors.start(gosched.Channel(8, format="q"), gosched.Channel(8, format="qq"), 3)  # the channels can't be used any more
gc.collect()
gosched.sleep(0.05)
"""
    run(extension, ["-c", program])


def test_wrong_channels_are_refused(extension):
    program = """
import gosched, factors
good = gosched.Channel(format="q")
for bad, error in ((gosched.Channel(format="d"), TypeError), (gosched.Channel(), TypeError), (None, TypeError)):
    for call in (lambda: factors.start(bad, good, 1), lambda: factors.start(good, bad, 1), lambda: factors.total(bad)):
        try:
            call()
        except error:
            pass
        else:
            raise AssertionError(bad)
"""
    run(extension, ["-c", program])


def test_a_wait_in_c_lets_others_run_and_can_be_cancelled(extension):
    program = """
import gosched, factors
channel, ran = gosched.Channel(format="q"), []
g = gosched.go(factors.total, channel)
gosched.sleep(0.01)
gosched.go(ran.append, 1).join()
assert ran == [1] and not g.done()
g.cancel()
assert g.join(10)
"""
    run(extension, ["-c", program])
