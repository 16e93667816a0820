"""The versions of Python that the package knows, and what is particular to the newest ones."""

import re
import sys
from pathlib import Path

import pytest

import gosched
from gosched import _supported
from helpers import run

PACKAGE = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("this", [
    ((3, 8), "cpython", False), ((3, 99), "cpython", False), ((3, 14), "cpython", True), ((3, 11), "pypy", False),
])
def test_other_pythons_are_refused(this):
    with pytest.raises(ImportError) as caught:
        _supported.check(*this)
    said = str(caught.value)
    assert "CPython 3.9 to 3.15" in said and "%d.%d" % this[0] in said, said


def test_a_newer_python_is_refused_at_import():
    run("""
        import sys
        sys.version_info = (3, 99, 0, "final", 0)
        try:
            import gosched
        except ImportError as e:
            assert "knows CPython 3.9 to 3.15" in str(e) and "CPython 3.99" in str(e), e
        else:
            raise AssertionError
    """)


def test_all_places_name_the_same_versions():
    (oldest, newest), name = (_supported.OLDEST, _supported.NEWEST), "%d.%d"
    minors = range(oldest[1], newest[1] + 1)
    pyproject = (PACKAGE / "pyproject.toml").read_text()
    assert 'requires-python = ">=%d.%d,<%d.%d"' % (*oldest, newest[0], newest[1] + 1) in pyproject
    assert re.findall(r"Python :: (3\.\d+)", pyproject) == ["3.%d" % minor for minor in minors]
    headers = sorted(path.stem for path in (PACKAGE / "src/cpython").glob("3.*[0-9].h"))
    assert headers == sorted("3.%d" % minor for minor in minors)
    said = "CPython %d.%d to %d.%d" % (*oldest, *newest)
    assert said in (PACKAGE / "src/cpython/cpython.h").read_text()
    assert said in (PACKAGE / "README.md").read_text()
    tools = PACKAGE.parents[1] / "tools/pythons"
    assert "OLDEST, NEWEST = %r, %r\n" % (oldest, newest) in tools.read_text()


def test_stacks_and_states_in_any_order():
    """A goroutine may get the state of one that has had another stack: the limit of C recursion is the stack's."""
    class Again:
        def __add__(self, other):
            return self + other

    def body(channel):
        for _ in channel:
            pass
        try:
            Again() + 1
        except RecursionError:
            return "RecursionError"

    for _ in range(3):
        channels = [gosched.Channel() for _ in range(8)]
        goroutines = [gosched.go(body, channel) for channel in channels]
        gosched.yield_()
        for n in (3, 0, 7, 1, 6, 2, 5, 4):
            channels[n].close()
            assert goroutines[n].result() == "RecursionError"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="threads have names for the system from Python 3.14 on")
def test_threads_that_are_goroutines_keep_the_names_of_the_systems_threads():
    run("""
        import gosched
        gosched.patch_all()
        import glob, threading
        def names():
            return sorted(open(path).read().strip() for path in glob.glob("/proc/self/task/*/comm"))
        gosched.go(len, "").join()
        before = open("/proc/self/comm").read()
        thread = threading.Thread(target=lambda: None, name="of-a-goroutine")
        thread.start()
        thread.join()
        def renames():
            threading.current_thread().name = "of-a-goroutine"
        thread = threading.Thread(target=renames)
        thread.start()
        thread.join()
        assert open("/proc/self/comm").read() == before
        assert "of-a-goroutine" not in names(), names()
        gosched.blocking(threading._set_name, "of-a-thread")
        assert "of-a-thread" in names(), names()
    """)
