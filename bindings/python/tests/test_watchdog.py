"""gosched.watchdog(): what it reports, and that it reports nothing else."""

import os
import subprocess
import sys
import textwrap
import time

import pytest

import gosched

_sleep = time.sleep


def _program(source, **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        env=dict(os.environ, **environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=60,
    )


def _hold_by_sleeping():
    _sleep(0.4)  # what it's to name


def _hold_by_computing():
    until = time.monotonic() + 0.4
    while time.monotonic() < until:
        pass


def _line_of(function, offset):
    return function.__code__.co_firstlineno + offset


def test_names_a_call_that_gives_the_gil_back():
    incidents = []
    with gosched.watchdog(0.05, incidents.append):
        gosched.spawn(_hold_by_sleeping, name="sleeper").join()
        gosched.sleep(0.1)
    assert [i.ended for i in incidents] == [False, True]
    first, last = incidents
    assert first.name == "sleeper" and first.goroutine.name == "sleeper"
    assert first.filename == __file__
    assert first.lineno == _line_of(_hold_by_sleeping, 1)
    assert first.function == "_hold_by_sleeping"
    assert first.call.startswith("_sleep(0.4)")
    assert first.stack[-1].name == "_hold_by_sleeping"
    assert 0.05 <= first.seconds <= last.seconds
    for part in ("sleeper", __file__, str(first.lineno), "_hold_by_sleeping", "_sleep(0.4)"):
        assert part in str(first)


def test_names_python_code_that_computes():
    incidents = []
    with gosched.watchdog(0.05, incidents.append):
        gosched.go(_hold_by_computing).join()
        gosched.sleep(0.1)
    assert [i.ended for i in incidents] == [False, True]
    assert incidents[0].function == "_hold_by_computing"
    assert incidents[0].filename == __file__


def test_sees_c_code_that_keeps_the_gil():
    incidents = []
    with gosched.watchdog(0.05, incidents.append):
        n = 1 << 22
        while not incidents:
            n *= 2
            gosched.go(sum, range(n)).join()
            gosched.sleep(0.1)
    assert incidents[-1].seconds >= 0.05


def test_the_main_goroutine_is_one_too():
    incidents = []
    with gosched.watchdog(0.05, incidents.append):
        _hold_by_sleeping()
    assert incidents[0].name == "main"


def test_says_nothing_of_waits():
    incidents = []
    with gosched.watchdog(0.1, incidents.append):
        channel = gosched.Channel()
        sleepers = [gosched.go(gosched.sleep, 0.5) for _ in range(10)]
        waiter = gosched.go(channel.recv)
        blocked = gosched.go(gosched.blocking, _sleep, 0.5)
        for g in sleepers:
            g.join()
        blocked.join()
        channel.send(1)
        assert waiter.result() == 1
    assert incidents == []


def test_says_nothing_of_goroutines_that_give_way():
    incidents = []

    def spin():
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            gosched.yield_()

    def pass_checkpoints():
        channel = gosched.Channel(1)
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            channel.send(1)
            channel.recv()

    with gosched.watchdog(0.2, incidents.append):
        for g in [gosched.go(spin), gosched.go(spin), gosched.go(pass_checkpoints)]:
            g.join()
    assert incidents == []


def test_stops():
    incidents = []
    dog = gosched.watchdog(0.02, incidents.append)
    assert dog.running
    dog.stop()
    dog.stop()
    assert not dog.running
    _sleep(0.1)
    assert incidents == []


def test_stops_from_its_report():
    incidents = []

    def report(incident):
        incidents.append(incident)
        dog.stop()

    dog = gosched.watchdog(0.02, report)
    _sleep(0.2)
    gosched.sleep(0.1)
    _sleep(0.2)
    assert len(incidents) == 1


def test_a_report_that_fails_is_printed(capsys):
    def report(incident):
        raise KeyError("report")

    with gosched.watchdog(0.02, report):
        _sleep(0.2)
        gosched.sleep(0.1)
    assert "KeyError: 'report'" in capsys.readouterr().err


def test_several():
    short, long = [], []
    with gosched.watchdog(0.05, short.append), gosched.watchdog(10, long.append):
        _hold_by_sleeping()
        gosched.sleep(0.1)
    assert len(short) == 2 and not long


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_refuses_what_is_no_time(seconds):
    with pytest.raises(ValueError):
        gosched.watchdog(seconds)


def test_writes_to_stderr_and_leaves_threads_alone():
    done = _program(
        """
        import threading, warnings
        import gosched
        from gosched.patch import get_original
        dog = gosched.watchdog(1)
        warnings.simplefilter("error", gosched.PatchWarning)
        gosched.patch_all()
        assert threading.enumerate() == [threading.main_thread()]
        get_original("time", "sleep")(1.5)
        gosched.sleep(0.1)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("gosched: goroutine main has held all others up for ") == 1
    assert done.stderr.count("gosched: goroutine main held all others up for ") == 1


def test_works_under_patch_all():
    done = _program(
        """
        import gosched; gosched.patch_all()
        import threading, time
        from gosched.patch import get_original
        sleep = get_original("time", "sleep")
        found = []
        with gosched.watchdog(0.05, found.append):
            time.sleep(0.3)
            assert not found, found
            t = threading.Thread(target=sleep, args=(0.3,), name="t")
            t.start(); t.join()
            gosched.sleep(0.1)
        assert [i.ended for i in found] == [False, True], found
        assert found[0].function == "run" and found[0].filename == threading.__file__, found
        """
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("value, reports", [("0.05", 1), ("0", 0), ("", 0), ("soon", 0)])
def test_environment(value, reports):
    done = _program("import time, gosched; time.sleep(0.3); gosched.sleep(0.1)", GOSCHED_WATCHDOG=value)
    assert done.returncode == 0
    assert done.stderr.count("has held all others up") == reports
    assert ("not a number" in done.stderr) == (value == "soon")


def test_goes_on_in_the_child_of_a_fork():
    done = _program(
        """
        import os, sys, time, gosched
        def report(incident):
            if os.getpid() != parent:
                os.write(1, ("%s\\n" % incident).encode())
        parent = os.getpid()
        gosched.watchdog(0.05, report)
        pid = os.fork()
        if pid == 0:
            gosched.sleep(0)
            time.sleep(0.3)
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """
    )
    assert done.returncode == 0, done.stderr
    assert "has held all others up" in done.stdout


def test_the_program_ends_while_held_up():
    done = _program("import gosched, time; gosched.watchdog(0.02); time.sleep(0.1)")
    assert done.returncode == 0, done.stderr
    assert "Fatal" not in done.stderr and "Traceback" not in done.stderr
