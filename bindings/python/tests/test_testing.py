"""gosched.testing: runs by seeds, the search for one that fails, and pytest's plugin."""

import gc
import importlib
import os
import sys
import textwrap
import threading

import pytest

import gosched
from gosched import Cancelled, Channel, Closed, Condition, Event, Lock, RLock, Semaphore, Timeout, WaitGroup, go, select, sleep, testing
from helpers import FREE_THREADED, run

pytestmark = [
    pytest.mark.skipif(FREE_THREADED, reason="a bubble needs a Python with a GIL"),
    pytest.mark.timeout(120),
]


def order():
    """Who came when."""
    out = []

    def put(name):
        for _ in range(4):
            out.append(name)
            gosched.yield_()

    for one in [go(put, name) for name in "abc"]:
        one.join()
    return "".join(out)


def transfer():
    balance, lock = [100], Lock()

    def take(amount):
        with lock:
            is_enough = balance[0] >= amount
        if is_enough:
            with lock:
                balance[0] -= amount

    for one in [go(take, 100) for _ in range(2)]:
        one.result()
    assert balance[0] >= 0


def lost_wakeup():
    ready, lock = [], Lock()
    changed = Condition(lock)

    def consume():
        if not ready:
            with lock:
                changed.wait()

    def produce():
        with lock:
            ready.append(True)
            changed.notify()

    go(consume)
    go(produce)


def test_a_seed_decides_the_order():
    first = [testing.run(order, seed=n) for n in range(1, 30)]
    assert [testing.run(order, seed=n) for n in range(1, 30)] == first
    assert len(set(first)) > 10


def test_the_order_is_the_same_in_another_process():
    program = """
        import gosched
        from gosched import testing

        def order():
            out = []
            def put(name):
                for _ in range(4):
                    out.append(name)
                    gosched.yield_()
            for one in [gosched.go(put, name) for name in "abc"]:
                one.join()
            return "".join(out)

        print(*(testing.run(order, seed=n) for n in range(1, 20)))
    """
    assert run(program).out.split() == [testing.run(order, seed=n) for n in range(1, 20)]


@pytest.mark.parametrize("schedule", ["random", "pct", "round-robin"])
def test_schedules(schedule):
    first = testing.run(order, seed=3, schedule=schedule)
    assert sorted(first) == sorted("abc" * 4)
    assert testing.run(order, seed=3, schedule=schedule) == first


def test_the_clock():
    def sleeper():
        began = testing.now()
        sleep(3600)
        with pytest.raises(Timeout):
            with Timeout(10):
                Channel().recv()
        assert not Event().wait(5)
        gosched.after(2).recv()
        return testing.now() - began

    began = testing.now()
    assert testing.run(sleeper) == 3617.0
    assert testing.now() - began < 20


def test_what_it_gives():
    assert testing.run(lambda: "value") == "value"
    assert testing.run(testing.seed) == 1
    assert testing.run(testing.seed, seed=17) == 17
    assert testing.seed() == 0
    assert testing.explore(lambda: None, 25) == 25
    assert testing.explore(lambda: None, 0) == 0


def test_all_kinds_of_objects():
    def all_of_them():
        channel, lock, rlock, semaphore, group = Channel(2), Lock(), RLock(), Semaphore(1), WaitGroup()
        counted = []

        def count():
            with lock, rlock, semaphore:
                counted.append(1)
            channel.send(1)

        for _ in range(3):
            group.go(count)
        got = [select(channel.recv_case())[1] for _ in range(3)]
        group.wait()
        queue = gosched.Queue()
        go(queue.put, 7)
        assert (got, len(counted), queue.get()) == ([1, 1, 1], 3, 7)
        channel.close()
        with pytest.raises(Closed):
            channel.recv()
        waiting = go(Event().wait)
        waiting.cancel()
        with pytest.raises(Cancelled):
            waiting.result()

    assert testing.explore(all_of_them, 200) == 200


def test_a_failure_is_raised_with_the_shortest_schedule(capfd):
    with pytest.raises(AssertionError) as caught:
        testing.explore(transfer)
    [note] = caught.value.__notes__
    assert "to have this run again: replay=" in note
    again = note.split("replay='")[1].split("'")[0]
    report = capfd.readouterr().err
    assert "The shortest schedule that fails has 1 choice" in report
    assert "take (test_testing.py:" in report
    assert "GOSCHED_TEST=replay=" + again in report
    for _ in range(20):
        with pytest.raises(AssertionError):
            testing.run(transfer, replay=again, quiet=True)
    assert capfd.readouterr().err == ""


def test_a_deadlock(capfd):
    with pytest.raises(testing.DeadlockError) as caught:
        testing.explore(lost_wakeup, 10_000)
    error = caught.value
    assert isinstance(error, testing.Failure) and isinstance(error, AssertionError)
    assert error.seed >= 1 and error.replay
    report = capfd.readouterr().err
    assert error.report == report
    assert "waits for" in report and "consume (test_testing.py:" in report
    for _ in range(20):
        with pytest.raises(testing.DeadlockError):
            testing.run(lost_wakeup, replay=error.replay, quiet=True)


def fails():
    raise ValueError("it fails")


def test_errors_of_goroutines(capfd):
    def unasked():
        go(fails)
        sleep(1)

    def kept():
        kept = go(fails)
        sleep(1)
        return kept is None

    def asked():
        one = go(fails)
        sleep(1)
        with pytest.raises(ValueError):
            one.result()

    for f in (fails, unasked, kept):
        with pytest.raises(ValueError, match="it fails") as caught:
            testing.run(f, seed=5, quiet=True)
        assert caught.traceback[-1].name == "fails"
        assert "seed=5" in caught.value.__notes__[0]
    testing.explore(asked, 50)
    assert capfd.readouterr().err == ""


def test_fail():
    def swallows():
        try:
            go(testing.fail, "enough").result()
        except testing.Failure:
            pass

    for f in (swallows, lambda: testing.fail("enough")):
        with pytest.raises(testing.Failure, match="enough") as caught:
            testing.run(f, seed=4, quiet=True)
        assert (caught.value.seed, caught.value.replay) == (4, None)
    with pytest.raises(testing.Failure):
        testing.fail("outside")


def test_too_many_steps():
    def spin():
        while True:
            gosched.yield_()

    with pytest.raises(testing.TooManySteps):
        testing.run(spin, max_steps=1000, quiet=True)


def test_what_is_outside_disturbs():
    outside = Event()

    def waits():
        r, w = os.pipe()
        thread = threading.Timer(0.02, outside.set)
        thread.start()
        try:
            go(gosched.os.read, r, 1)
            outside.wait()
        finally:
            os.close(w)

    with pytest.raises(testing.Disturbed):
        testing.run(waits, quiet=True)


def test_strict_runs_name_what_else_has_a_say(capfd):
    assert testing.run(order, strict=True) is not None
    assert testing.explore(order, 20, strict=True) == 20

    clock = importlib.import_module("gosched._originals").monotonic

    def reads_the_clock():
        clock()

    with pytest.raises(testing.Disturbed, match="not only the seed"):
        testing.run(reads_the_clock, strict=True)
    said = capfd.readouterr().err
    assert " reads the system's clock (clock_gettime)\n    in " in said and "reads_the_clock (" in said, said
    testing.run(reads_the_clock)

    kept = []

    def keeps_state():
        kept.append(1)
        for _ in kept:
            gosched.yield_()
        Event().wait(1 + len(kept))

    with pytest.raises(testing.Disturbed):
        testing.explore(keeps_state, 5, strict=True)
    assert "a second run differs: first " in capfd.readouterr().err


def test_arguments():
    with pytest.raises(TypeError):
        testing.run(None)
    for wrong in (dict(seed=0), dict(depth=0), dict(max_steps=0), dict(schedule="none"), dict(replay="nonsense")):
        with pytest.raises(ValueError):
            testing.run(order, **wrong)
    with pytest.raises(ValueError):
        testing.explore(order, -1)
    with pytest.raises(ValueError):
        testing.Net(loss=20)
    assert testing.run(order, net=testing.Net(delay=0.001, loss=0.02)) == testing.run(order)
    with pytest.raises(RuntimeError):
        testing.run(lambda: testing.run(order), quiet=True)


def test_the_log(tmp_path):
    def logged(name):
        with open(tmp_path / name, "w") as log:
            testing.run(order, seed=2, log=log)
        return (tmp_path / name).read_text()

    assert logged("a") == logged("b")
    assert "1.000000000 " in logged("a")


def test_where_it_is_called():
    assert go(testing.run, testing.seed, seed=9).result() == 9
    got = []
    thread = threading.Thread(target=lambda: got.append(testing.run(testing.seed, seed=8)))
    thread.start()
    gosched.blocking(thread.join)
    assert got == [8]
    assert testing.run(lambda: gosched.blocking(pow, 2, 3)) == 8


def test_a_context_is_the_callers():
    import contextvars

    var = contextvars.ContextVar("var", default=0)
    var.set(3)

    def changes():
        found = go(var.get).result()
        var.set(found + 1)
        return found

    assert [testing.run(changes) for _ in range(3)] == [3, 3, 3]
    assert var.get() == 3


def test_what_is_left_behind():
    def deadlock():
        go(Channel().recv)
        Channel().recv()

    before, threads = gosched.num_goroutines(), threading.active_count()
    listed = len(gosched.goroutines())
    for _ in range(50):
        with pytest.raises(testing.DeadlockError):
            testing.run(deadlock, quiet=True)
    gc.collect()
    assert gosched.num_goroutines() == before
    assert len(gosched.goroutines()) == listed
    assert threading.active_count() == threads
    left = []

    def leaves():
        left.append(go(Channel().recv))
        Channel().recv()

    with pytest.raises(testing.DeadlockError):
        testing.run(leaves, quiet=True)
    assert left[0].done() and left[0].cancelled()
    with pytest.raises(Cancelled):
        left[0].result()


def test_a_program_that_ends_after_failures():
    program = """
        import gosched
        from gosched import testing

        def lost():
            lock = gosched.Lock()
            changed = gosched.Condition(lock)
            with lock:
                changed.wait()

        for _ in range(3):
            try:
                testing.explore(lost, 5)
            except testing.DeadlockError as error:
                print(error)
    """
    assert run(program).out == "all goroutines are asleep - deadlock!\n" * 3


def test_ctrl_c():
    program = """
        import os, signal, threading
        import gosched
        from gosched import testing

        def spin():
            while True:
                gosched.yield_()

        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            testing.run(spin, max_steps=10**12)
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert run(program, timeout=20).out == "interrupted\n"


TESTS = """
    import gosched
    import pytest

    @pytest.fixture
    def amount():
        return 100

    @gosched.test
    def test_passes(amount):
        assert gosched.go(lambda: amount).result() == 100

    @gosched.test(seed=1, runs=500)
    def test_transfer(amount):
        balance, lock = [100], gosched.Lock()

        def take():
            with lock:
                is_enough = balance[0] >= amount
            if is_enough:
                with lock:
                    balance[0] -= amount

        for one in [gosched.go(take) for _ in range(2)]:
            one.result()
        assert balance[0] >= 0

    class TestMethods:
        @gosched.test(runs=3)
        def test_seed(self):
            print("seed", gosched.testing.seed())
"""


def pytest_run(directory, *options, status):
    (directory / "test_it.py").write_text(textwrap.dedent(TESTS))
    code = "import os, sys, pytest; os.chdir(sys.argv[1]); sys.exit(pytest.main(sys.argv[2:]))"
    return run(code, directory, "-p", "no:cacheprovider", *options, status=status).out


def test_the_plugin(tmp_path):
    out = pytest_run(tmp_path, status=1)
    assert "1 failed, 2 passed" in out
    assert "The shortest schedule that fails has 1 choice" in out
    again = out.split("To have it again: GOSCHED_TEST=replay=")[1].split()[0]
    if sys.version_info >= (3, 11):
        assert "replay=%r" % again in out
    out = pytest_run(tmp_path, "--gosched-replay", again, "-k", "transfer", status=1)
    assert "gosched: replay=" + again in out and "1 failed" in out
    out = pytest_run(tmp_path, "--gosched-seed", "70", "--gosched-runs", "2", "-s", "-k", "seed", status=0)
    assert "seed 70\nseed 71\n" in out and "seed 72" not in out
    out = pytest_run(tmp_path, "--gosched-seed=random", "-k", "seed", status=0)
    assert "gosched: seed=" in out
    assert "1 passed" in out
    pytest_run(tmp_path, "--gosched-runs", "none", status=4)
