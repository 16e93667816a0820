"""From Python 3.12 on os.fork() warns of other threads. It doesn't warn of the package's own, and still does of the
program's."""

import sys
from textwrap import dedent

import pytest
from helpers import FREE_THREADED, run

WARNS = sys.version_info >= (3, 12)
before_that = pytest.mark.skipif(not WARNS, reason="Python warns of forks beside threads from 3.12 on")

PRELUDE = """
import os, sys, time, warnings, gosched
if sys.argv[1] == "patched":
    gosched.patch_all()

def fork():
    "The warnings that it gives."
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        pid = os.fork()
        if pid == 0:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    return [w for w in given if "multi-threaded" in str(w.message)]
"""


def check(code, patched, procs, flags=(), **kwargs):
    if FREE_THREADED and procs > 1:
        pytest.skip("goroutines run in parallel to the one that forks, as threads of the program do")
    flags = ["-W", "error::DeprecationWarning", *flags]
    outcome = run(PRELUDE + dedent(code), patched, flags=flags, env={"GOSCHED_PROCS": str(procs)}, **kwargs)
    assert "multi-threaded" not in outcome.err, outcome
    return outcome


several = pytest.mark.parametrize("patched, procs", [("plain", 1), ("plain", 2), ("patched", 2), ("patched", 8)])


@several
def test_of_own_threads(patched, procs):
    check("""
        def work(n):
            gosched.sleep(0.001)
            return sum(range(100))
        assert not fork()
        for round in range(40):
            # Threads of the library are just being started, and end.
            gs = [gosched.go(work, n) for n in range(3)]
            gs += [gosched.go(gosched.blocking, work, n) for n in range(3)]
            for g in gs:
                g.result()
            gosched.go(gosched.blocking, int)
            assert not fork(), "from the main goroutine"
            assert not gosched.go(fork).result(), "from a goroutine"
        with gosched.watchdog(10):
            assert not fork(), "beside a watchdog"
        for round in range(40):
            gosched.watchdog(10).stop()
            assert not fork(), "after a watchdog"
    """, patched, procs)


@several
def test_of_own_threads_by_other_calls(patched, procs):
    """Everything that forks and warns; if the warning is an error, what it raises, or Python drops."""
    check("""
        import multiprocessing, pty, subprocess
        gosched.go(gosched.blocking, int).result()
        for call in (os.forkpty, pty.fork):
            pid, fd = call()
            if pid == 0:
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            os.close(fd)
        context = multiprocessing.get_context("fork")
        process = context.Process(target=int)
        process.start()
        process.join()
        assert process.exitcode == 0
        with context.Pool(2) as pool:
            pool.terminate()
        subprocess.run(["true"], preexec_fn=lambda: None, check=True)
    """, patched, procs, flags=["-W", "always:This process:DeprecationWarning"])


@several
def test_while_a_goroutine_waits_for_a_lock_of_processes(patched, procs):
    check("""
        import multiprocessing
        context = multiprocessing.get_context("fork")
        lock = context.Lock()
        lock.acquire()
        waits = gosched.go(gosched.blocking, lock.acquire) if sys.argv[1] == "plain" else gosched.go(lock.acquire)
        for round in range(30):
            gosched.sleep(0.01)
            given = fork()
            # Unpatched, it's a function of the program's that waits in a thread.
            assert sys.argv[1] == "plain" or not given
        lock.release()
        assert waits.result()
    """, patched, procs)


@before_that
@several
def test_of_threads_of_the_program(patched, procs):
    check("""
        import threading
        from gosched._originals import allocate_lock, start_new_thread
        gosched.go(gosched.blocking, int).result()

        def beside(start):
            begun, end = allocate_lock(), allocate_lock()
            begun.acquire(), end.acquire()
            def stay():
                begun.release()
                end.acquire()
                done.release()
            done = allocate_lock()
            done.acquire()
            start(start_new_thread, stay, ())
            gosched.blocking(begun.acquire)
            given = fork() + gosched.go(fork).result()
            end.release()
            gosched.blocking(done.acquire)
            return len(given)

        assert beside(lambda start, *args: start(*args)) == 2
        # Such a thread inherits what it can, its name too, from one of the library's.
        assert beside(gosched.blocking) == 2
        # The thread may take a moment to end.
        while fork():
            time.sleep(0.001)

        # A call in another thread is the only one that runs the program's code; or a goroutine does too.
        assert not gosched.blocking(fork)
        from gosched._originals import sleep
        called, go_on = allocate_lock(), allocate_lock()
        called.acquire(), go_on.acquire()
        given = []
        g = gosched.go(gosched.blocking, lambda: (go_on.acquire(), given.append(len(fork()))))
        gosched.yield_()
        go_on.release()
        while not given:
            sleep(0.001)
        assert given == [1]
        g.result()
        g = gosched.go(gosched.blocking, lambda: (called.release(), go_on.acquire()))
        while not called.acquire(False):
            gosched.sleep(0.001)
        assert len(fork()) == 1
        go_on.release()
        g.result()
        assert not fork()

        # The function that a watchdog reports to.
        def report(incident):
            if not incident.ended:
                called.release()
                go_on.acquire()
        with gosched.watchdog(0.01, report):
            while not called.acquire(False):
                sleep(0.05)
                gosched.yield_()
            assert len(fork()) == 1
            go_on.release()
        assert not fork()
    """, patched, procs)


@before_that
def test_goroutines_on_another_thread():
    """With a GIL these have a thread of their own if another than the main thread is the first to use them."""
    check("""
        import threading
        from gosched._originals import sleep
        thread = threading.Thread(target=lambda: gosched.go(int).join())
        thread.start()
        thread.join()
        assert not fork(), "that thread runs nothing"
        begun, end = [], []
        def stays():
            begun.append(1)
            while not end:
                sleep(0.001)
        g = gosched.go(stays)
        while not begun:
            sleep(0.001)
        assert len(fork()) == 1
        end.append(1)
        g.join()
        assert not fork()
    """, "plain", 2)


@before_that
def test_the_program_s_own_filters():
    check("""
        import copy, pickle
        gosched.go(gosched.blocking, int).result()
        before = list(warnings.filters)
        assert not fork() and not fork()
        ours = [f for f in warnings.filters if f not in before]
        assert len(ours) <= 1
        warnings.resetwarnings()
        warnings.simplefilter("error")
        def forks():
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        shown = []
        warnings.showwarning = lambda *args: shown.append(args)
        for action in ("error", "always", "default", "once", "module"):
            warnings.simplefilter(action)
            forks()
            gosched.go(forks).result()
        assert not shown, shown
        # They are copied, and passed to other processes; other warnings are none of its business.
        assert pickle.loads(pickle.dumps(warnings.filters)) == copy.deepcopy(warnings.filters) == warnings.filters
        assert all(isinstance(message.pattern, str) for _, message, *_ in warnings.filters if message is not None)
        for category, text in ((DeprecationWarning, "old"), (UserWarning, "This process is multi-threaded, use of it")):
            with warnings.catch_warnings(record=True) as given:
                warnings.warn(text, category)
            assert len(given) == 1
        # One goroutine is within a block while another forks.
        def within():
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                gosched.sleep(0.02)
        g = gosched.go(within)
        gosched.yield_()
        for _ in range(5):
            forks()
            gosched.sleep(0.01)
        assert not shown, shown
    """, "plain", 2)
