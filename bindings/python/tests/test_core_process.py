"""Processes: KeyboardInterrupt, signals, fork, multiprocessing, exit."""

import os
import signal
import subprocess
import sys
import time

import pytest

import gosched
from helpers import FORKS, finish, kill, run, start


def interrupt(code, *args, times=1, number=signal.SIGINT, timeout=40, **kwargs):
    """Runs a program, and sends it a signal when it has printed "ready"."""
    process = start(code, *args, **kwargs)
    try:
        assert process.stdout.readline() == "ready\n", finish(process, 10)
        for _ in range(times):
            time.sleep(0.05)
            process.send_signal(number)
        return finish(process, timeout)
    finally:
        kill(process)


BEGIN = """
import gosched, os, sys, threading, time, signal
from gosched import *
gosched.go(len, "").join()
def ready():
    print("ready", flush=True)
def wait():
    ready()
    %s
try:
    wait()
except KeyboardInterrupt:
    print("interrupted", gosched.current() is gosched.main())
    gosched.sleep(0.01)
    sys.exit(5)
print("no interrupt")
"""

WAITS = {
    "sleep": "sleep(100)",
    "recv": "Channel().recv()",
    "send": "Channel().send(1)",
    "select": "select(Channel(), timeout=50)",
    "select nothing": "select()",
    "lock": "l = Lock(); l.acquire(); l.acquire()",
    "lock with timeout": "l = Lock(); l.acquire(); l.acquire(timeout=50)",
    "rlock": "l = RLock(); go(l.acquire).join(); l.acquire()",
    "semaphore": "Semaphore(0).acquire()",
    "event": "Event().wait()",
    "waitgroup": "w = WaitGroup(); w.add(); w.wait()",
    "rwmutex": "l = RWMutex(); l.lock(); l.rlock()",
    "join": "go(sleep, 100).join()",
    "result": "go(sleep, 100).result()",
    "wait_read": "r, w = os.pipe(); gosched._gosched.wait_read(r)",
    "wait_fds": "r, w = os.pipe(); gosched._gosched.wait_fds([(r, 1), (r, 4)])",
    "wait_fds of nothing": "gosched._gosched.wait_fds([])",
    "blocking": "gosched.blocking(time.sleep, 1)",
    "after": "after(100).recv()",
    "yields": "[yield_() for _ in range(10**12)]",
    "computing": "[None for _ in range(10**12)]",
    "another yields": "go(lambda: [yield_() for _ in range(10**12)]); sleep(100)",
    "a blocking call": "time.sleep(100)",
    "a blocking call in another": "go(time.sleep, 1); sleep(100)",
    "many others": "[go(lambda: [sleep(0.0001) for _ in range(10**12)]) for _ in range(10)]; sleep(100)",
    "group": "\n    with Group() as g:\n        g.go(sleep, 100)",
    "pool": "Pool(2).map(sleep, [100, 100, 100])",
    "timeout": "\n    with Timeout(50):\n        sleep(100)",
}


@pytest.mark.parametrize("wait", WAITS)
def test_keyboard_interrupt(wait):
    outcome = interrupt(BEGIN % WAITS[wait])
    assert outcome.status == 5 and outcome.out == "interrupted True\n", outcome


def test_keyboard_interrupt_without_a_handler_in_the_program():
    outcome = interrupt("""
        import gosched, time
        gosched.go(gosched.sleep, 100)
        print("ready", flush=True)
        gosched.sleep(100)
    """)
    assert outcome.status == -signal.SIGINT, outcome
    assert outcome.err.rstrip().endswith("KeyboardInterrupt"), outcome


@pytest.mark.parametrize("procs", ["", "1"])
@pytest.mark.parametrize("hogs", [1, 3])
def test_keyboard_interrupt_while_others_compute_for_ever(hogs, procs):
    env = {"GOSCHED_PROCS": procs} if procs else None
    outcome = interrupt("""
        import gosched, sys
        def hog(is_first):
            if is_first:
                print("ready", flush=True)
            while True:
                pass
        for i in range(%d):
            gosched.go(hog, i == 0)
        try:
            gosched.sleep(100)
        except KeyboardInterrupt:
            print("interrupted", gosched.current() is gosched.main())
            sys.exit(5)
    """ % hogs, env=env)
    assert outcome.status == 5 and outcome.out == "interrupted True\n", outcome


def test_keyboard_interrupt_while_a_goroutine_computes():
    """The other isn't hurt."""
    outcome = interrupt("""
        import gosched, time
        def f():
            print("ready", flush=True)
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                pass
            return "computed"
        g = gosched.go(f)
        try:
            gosched.sleep(100)
        except KeyboardInterrupt:
            print(g.result())
    """)
    assert outcome.status == 0 and outcome.out == "computed\n", outcome


def test_two_keyboard_interrupts():
    outcome = interrupt("""
        import gosched
        for n in range(2):
            try:
                print("ready", flush=True) if n == 0 else None
                gosched.sleep(100)
            except KeyboardInterrupt:
                print(n)
    """, times=2)
    assert outcome.status == 0 and outcome.out == "0\n1\n", outcome


def test_each_signal_is_one_keyboard_interrupt():
    process = start("""
        import gosched
        main, asked, count = gosched.current(), gosched.Channel(1), 0
        def tell():
            for _ in asked:
                while not main._is_away():
                    gosched.sleep(0.0002)
                print(count, flush=True)
        gosched.go(tell)
        while True:
            try:
                asked.send(None)
                gosched.sleep(100)
            except KeyboardInterrupt:
                count += 1
    """)
    try:
        for count in range(500):
            assert process.stdout.readline() == "%d\n" % count, finish(process, 10)
            process.send_signal(signal.SIGINT)
    finally:
        kill(process)
        process.communicate()


def test_interrupts_while_goroutines_begin():
    """The next one comes through too."""
    for n in range(40):
        process = start("""
            import gosched
            try:
                print("ready", flush=True)
                gosched.sleep(100)
            except KeyboardInterrupt:
                pass
            try:
                print("again", flush=True)
                gosched.sleep(100)
            except KeyboardInterrupt:
                print("end")
        """)
        try:
            for line in ("ready\n", "again\n"):
                assert process.stdout.readline() == line, finish(process, 10)
                time.sleep(n / 20000)
                process.send_signal(signal.SIGINT)
            outcome = finish(process, 20)
            assert outcome.status == 0 and outcome.out == "end\n", outcome
        finally:
            kill(process)


def test_keyboard_interrupt_while_a_condition_takes_its_lock_again():
    outcome = run("""
        import gosched, os, signal
        for lock in gosched.Lock(), gosched.RLock():
            cond = gosched.Condition(lock)
            seen = []
            def other():
                with cond:
                    seen.append(cond.wait(20))
            def notifies():
                gosched.sleep(0.02)
                with cond:
                    cond.notify()
                    gosched.sleep(0.01)
                    os.kill(os.getpid(), signal.SIGINT)
                    gosched.sleep(0.05)
            cond.acquire()
            gs = [gosched.go(notifies), gosched.go(other)]
            try:
                cond.wait()
            except KeyboardInterrupt:
                print("interrupted", cond._is_owned())
            cond.release()
            for g in gs:
                g.join()
            # The notification was the main goroutine's, which has passed it on.
            assert seen == [True]
    """)
    assert outcome.out == "interrupted True\n" * 2 and not outcome.err, outcome


def test_signal_handlers_run_while_all_wait():
    outcome = interrupt("""
        import gosched, signal
        channel = gosched.Channel(5)
        signal.signal(signal.SIGUSR1, lambda n, f: channel.send(n))
        signal.signal(signal.SIGINT, lambda n, f: channel.send(n))
        gosched.go(gosched.sleep, 100)
        print("ready", flush=True)
        print(channel.recv())
    """, number=signal.SIGUSR1)
    assert outcome.status == 0 and outcome.out == "%d\n" % signal.SIGUSR1, outcome


def test_signal_handlers_that_raise():
    """What a handler raises while all wait is the main goroutine's."""
    outcome = interrupt("""
        import gosched, signal
        def handler(n, f):
            raise KeyError("from the handler")
        signal.signal(signal.SIGUSR1, handler)
        g = gosched.go(gosched.sleep, 0.5)
        print("ready", flush=True)
        try:
            gosched.Channel().recv()
        except KeyError as e:
            print(e)
        print(g.result())
    """, number=signal.SIGUSR1)
    assert outcome.status == 0 and outcome.out == "'from the handler'\nNone\n", outcome


@pytest.mark.parametrize("when", ["before", "after"])
def test_signal_handlers_that_raise_while_a_goroutine_computes(when):
    """That goroutine goes on, and the main one has the exception at once."""
    outcome = run("""
        import gosched, os, signal, sys, time
        def handler(n, f):
            sys.exit(3)
        def begin():
            gosched.go(print, "begun").join()
        if sys.argv[1] == "after":
            begin()
        assert signal.signal(signal.SIGUSR1, handler) == signal.SIG_DFL
        signal.signal(signal.SIGALRM, lambda n, f: None)
        signal.siginterrupt(signal.SIGALRM, False)
        begin()
        assert signal.getsignal(signal.SIGUSR1) is handler
        assert gosched._gosched._restarts(signal.SIGALRM) and not gosched._gosched._restarts(signal.SIGUSR1)
        def compute():
            gosched.sleep(0.01)
            os.kill(os.getpid(), signal.SIGUSR1)
            end = time.monotonic() + 20
            while time.monotonic() < end and not seen:
                pass
            print("computed")
        seen = []
        g = gosched.go(compute)
        try:
            gosched.sleep(40)
        except SystemExit:
            seen.append(1)
            assert not g.done()
            g.result()
            assert signal.signal(signal.SIGUSR1, signal.SIG_DFL) is handler
            raise
    """, when, status=3)
    assert outcome.out.endswith("begun\ncomputed\n"), outcome


def test_signal_handlers_that_wait():
    outcome = interrupt("""
        import gosched, signal
        done = gosched.Semaphore(0)
        def handler(n, f):
            gosched.sleep(0.01)
            gosched.go(done.release).join()
        signal.signal(signal.SIGUSR1, handler)
        print("ready", flush=True)
        for _ in range(3):
            done.acquire()
        print("done")
    """, number=signal.SIGUSR1, times=3)
    assert outcome.status == 0 and outcome.out == "done\n", outcome


def test_alarm_and_itimer():
    run("""
        import gosched, signal
        got = []
        signal.signal(signal.SIGALRM, lambda n, f: got.append(n))
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        gs = [gosched.go(lambda: [gosched.sleep(0.0005) for _ in range(200)]) for _ in range(5)]
        x = sum(range(10**6))
        for g in gs: g.result()
        r, w = __import__("os").pipe()
        assert gosched._gosched.wait_read(r, 0.05) is False
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert len(got) > 10, got
    """)


def test_interrupt_main():
    run("""
        import gosched, _thread, threading
        for interrupt in (lambda: gosched.go(_thread.interrupt_main), lambda: threading.Timer(0.05, _thread.interrupt_main).start()):
            try:
                interrupt()
                gosched.sleep(30)
            except KeyboardInterrupt:
                print("interrupted")
            else:
                raise AssertionError
    """)


def test_keyboard_interrupt_where_another_thread_was_first():
    outcome = interrupt("""
        import gosched, threading
        t = threading.Thread(target=lambda: gosched.go(len, "").join())
        t.start()
        t.join()
        assert gosched.main() is None
        print("ready", flush=True)
        try:
            gosched.sleep(100)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    assert outcome.status == 0 and outcome.out == "interrupted\n", outcome


def test_a_wakeup_fd_of_the_program():
    outcome = interrupt("""
        import gosched, os, signal
        r, w = os.pipe()
        os.set_blocking(w, False)
        signal.set_wakeup_fd(w)
        gosched.go(len, "").join()
        assert signal.set_wakeup_fd(w) == w
        print("ready", flush=True)
        try:
            gosched._gosched.wait_read(r)
            os.read(r, 1)
            gosched.sleep(100)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    assert outcome.status == 0 and outcome.out == "interrupted\n", outcome


def test_sigterm():
    outcome = interrupt("import gosched; print('ready', flush=True); gosched.Channel().recv()", number=signal.SIGTERM)
    assert outcome.status == -signal.SIGTERM


# fork

CHILD = """
import gosched, os, sys, threading, time
from gosched import *

def check():
    "All of it works."
    channel = Channel()
    g = go(lambda: [channel.send(n) for n in range(10)])
    assert [channel.recv() for _ in range(10)] == list(range(10))
    g.join()
    assert current() is main() and main().name == "main", (current(), main())
    with Timeout(0.001, False):
        sleep(10)
    assert blocking(pow, 2, 3) == 8
    with Group() as group:
        gs = [group.go(sleep, 0.001) for _ in range(100)]
    r, w = os.pipe()
    g = go(gosched._gosched.wait_read, r)
    os.write(w, b"x")
    assert g.result()
    os.close(r), os.close(w)
    for kind in (Lock, RLock):
        lock = kind()
        with lock:
            assert go(lock.acquire, False).result() is False
    t = threading.Thread(target=lambda: [go(len, "").result() for _ in range(10)])
    t.start(); blocking(t.join)
    # Until 3.12 join() doesn't wait for the thread itself, of which a fork would warn.
    while os.path.exists("/proc/self/task/%d" % t.native_id):
        sleep(0.001)

def parent(pid):
    pid, status = os.waitpid(pid, 0)
    assert status == 0, status

def fork(child=check):
    pid = os.fork()
    if pid == 0:
        try:
            child()
        except BaseException:
            import traceback
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    parent(pid)
"""


def fork_test(code, beside_threads=False, **kwargs):
    """With `beside_threads` Python may warn of those."""
    outcome = run(CHILD + "\n" + __import__("textwrap").dedent(code), flags=FORKS, **kwargs)
    assert beside_threads or "multi-threaded" not in outcome.err, outcome
    return outcome


def test_fork_before_the_first_use():
    fork_test("fork(); check(); fork(); check()")


def test_fork_from_the_main_goroutine():
    fork_test("""
        gs = [go(sleep, 100) for _ in range(50)]
        check()
        for _ in range(10):
            fork()
        check()
    """)


def test_fork_from_a_goroutine():
    fork_test("""
        check()
        gs = [go(sleep, 100) for _ in range(50)]
        for _ in range(5):
            go(fork).result()
            check()
        for g in [go(fork) for _ in range(5)]:
            g.result()
        check()
    """)


def test_fork_in_a_child():
    fork_test("""
        check()
        fork(lambda: (check(), fork(lambda: (check(), go(fork).result(), fork())), check()))
        go(fork, lambda: (check(), fork(lambda: (check(), go(fork).result(), fork())), check())).result()
    """)


def test_fork_from_threads():
    fork_test("""
        check()
        gs = [go(sleep, 100) for _ in range(50)]
        t = threading.Thread(target=fork)
        t.start()
        blocking(t.join)
        def thread_child():
            # The thread that has forked is the main one.
            check()
        for _ in range(3):
            blocking(fork, thread_child)
        check()
    """, beside_threads=True)


def test_child_of_a_goroutine_that_returns():
    """The child runs on to the end of the goroutine's function."""
    outcome = fork_test("""
        def f():
            pid = os.fork()
            if pid == 0:
                check()
                print("child", flush=True)
                return
            assert os.waitpid(pid, 0)[1] == 0
        go(f).result()
        print("parent")
    """)
    assert outcome.out == "child\nparent\n"


@pytest.mark.parametrize("start", [
    "e = Event(); g = go(e.wait); g.add_done_callback(lambda g: f()); e.set()",
    "gosched.excepthook = lambda g, e: f(); g = go(int, 'x')",
    "g = go(lambda: setattr(local, 'end', End()))",
    "g = go(blocking, f)",
], ids=["callback", "hook", "destructor", "blocking"])
def test_child_of_what_a_goroutine_or_thread_calls(start):
    """The child runs on to the end of the function that has forked, and not beyond."""
    outcome = fork_test("""
        local = threading.local()
        class End:
            def __del__(self):
                f()
        def f():
            pid = os.fork()
            if pid == 0:
                check()
                print("child", flush=True)
                return
            status.append(os.waitpid(pid, 0)[1])
        status = []
        START
        g.join()
        while not status:
            sleep(0.001)
        assert status == [0], status
        check()
    """.replace("START", start), beside_threads="blocking" in start)
    assert outcome.out == "child\n"


def test_child_of_a_goroutine_that_exits():
    outcome = fork_test("""
        def f(how):
            pid = os.fork()
            if pid == 0:
                check()
                print("child", flush=True)
                how(0)
            status = os.waitpid(pid, 0)[1]
            assert status == 0, status
        go(f, os._exit).result()
        go(f, sys.exit).result()
    """)
    assert outcome.out == "child\nchild\n"


@pytest.mark.parametrize("end, status, text", [
    ("sys.exit(7)", 7, ""), ("sys.exit()", 0, ""), ("sys.exit('bye')", 1, "bye"), ("1 / 0", 1, "ZeroDivisionError"),
    ("raise Cancelled", 1, "Cancelled"), ("return 5", 0, ""),
])
def test_status_of_the_child_of_a_goroutine(end, status, text):
    outcome = fork_test("""
        import atexit
        def f():
            pid = os.fork()
            if pid == 0:
                atexit.register(lambda: print("atexit of the child"))
                threading.Thread(target=lambda: (sleep(0.01), print("thread of the child"))).start()
                %s
            assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == %d
        gs = [go(sleep, 100) for _ in range(5)]
        go(f).result()
    """ % (end, status))
    assert outcome.out == "thread of the child\natexit of the child\n" and text in outcome.err, outcome


def test_child_of_the_main_goroutine_that_returns():
    outcome = fork_test("""
        import atexit
        atexit.register(lambda: print("atexit", flush=True))
        gs = [go(sleep, 100) for _ in range(5)]
        yield_()
        pid = os.fork()
        if pid:
            parent(pid)
        check()
    """)
    assert outcome.out == "atexit\natexit\n"


def test_locks_and_channels_in_the_child():
    fork_test("""
        held, free, rheld, rfree, sem, event, wg, rw = Lock(), Lock(), RLock(), RLock(), Semaphore(1), Event(), WaitGroup(), RWMutex()
        channel, full = Channel(), Channel(2)
        other = Channel(2)
        for _ in range(2): full.send("v")
        held.acquire(); rheld.acquire(); sem.acquire(); wg.add(1)
        waits = (held.acquire, event.wait, wg.wait, sem.acquire, lambda: sleep(100))
        gs = [go(f) for f in waits * 3] + [go(rheld.acquire), go(rw.lock), go(rw.lock)]
        for _ in range(3):
            yield_()
        gs = [g for g in gs if not g.done()]
        def child():
            # The forking goroutine is who it was; the waiters are gone.
            assert held.locked() and rheld._is_owned()
            held.release(); assert held.acquire(False); held.release()
            rheld.release(); assert go(lambda: rheld.acquire()).result()
            sem.release(); assert sem.acquire(False); sem.release()
            g = go(event.wait); yield_(); event.set(); assert g.result()
            g = go(wg.wait); yield_(); wg.done(); assert g.result()
            assert full.recv() == "v" and full.recv() == "v", len(full)
            full.send(2); assert full.recv() == 2
            g = go(channel.recv); yield_(); channel.send(5); assert g.result() == 5
            g = go(channel.send, 7); assert channel.recv() == 7
            g = go(other.send, 8); assert select(channel, other) == (1, 8, True)
            free.acquire(); rfree.acquire()
            for g in gs:
                # None of the parent's goroutines runs here.
                assert g.done() and g.join() and not g.cancel() and not g.throw(KeyError)
                assert "lost in a fork" in repr(g) and g.frame is None
                for method in (g.result, g.exception):
                    try:
                        method()
                    except Cancelled:
                        pass
                    else:
                        raise AssertionError
            check()
        fork(child)
        assert held.locked()
        held.release(); event.set(); wg.done(); sem.release(3)
        check()
    """)


def test_fork_from_a_goroutine_in_the_midst_of_things():
    fork_test("""
        import contextvars
        var, local = contextvars.ContextVar("var"), threading.local()
        lock = Lock()
        def f():
            var.set(1); local.x = 2
            me = get_ident()
            with lock, Timeout(0.5, False):
                try:
                    raise KeyError
                except KeyError:
                    def child():
                        assert var.get() == 1 and local.x == 2
                        assert lock.locked()
                        assert sys.exc_info()[0] is KeyError
                        check()
                        go(gosched.sleep, 0.001).join()
                        assert sys.exc_info()[0] is KeyError
                    fork(child)
        go(f).result()
        assert not lock.locked()
    """)


def test_fork_with_blocking_calls_under_way():
    fork_test("""
        g = go(blocking, time.sleep, 0.3)
        yield_(); sleep(0.01)
        fork()
        outcome = g.result()
    """, beside_threads=True)


def test_fork_while_other_threads_make_thread_states():
    """Each call of blocking() makes one, in a thread of the library's; goroutines, threads and blocking() fork."""
    fork_test("""
        import _thread
        stop = []
        def calls():
            while not stop:
                assert blocking(len, "abc") == 3
        def child():
            # The child's list of thread states is whole, and nothing of the interpreter's is locked.
            assert len(sys._current_frames()) == 1
            assert blocking(len, "abc") == 3
        def forks():
            for _ in range(15):
                fork(child)
        gs = [go(calls) for _ in range(10)]
        thread = threading.Thread(target=forks)
        thread.start()
        forking = [go(forks), go(blocking, forks)]
        for g in forking:
            g.result()
        blocking(thread.join)
        stop.append(True)
        for g in gs:
            g.result()
    """, beside_threads=True)


def test_functions_for_forks_may_use_goroutines():
    fork_test("""
        lock = Lock()
        os.register_at_fork(
            before=lambda: (blocking(len, ""), go(sleep, 0).join(), lock.acquire()),
            after_in_parent=lambda: (lock.release(), go(sleep, 0).join(), blocking(len, "")),
            after_in_child=lock.release,
        )
        for _ in range(3):
            fork()
            go(fork).result()
            check()
    """)


def test_fork_and_thread_local_data_of_others():
    fork_test("""
        local = threading.local()
        def f():
            local.x = Channel(1)
            sleep(100)
        gs = [go(f) for _ in range(10)]
        yield_()
        import gc
        fork(lambda: (gc.collect(), check(), gc.collect()))
        check()
    """)


def test_many_forks_of_goroutines_at_once():
    fork_test("""
        def f():
            for _ in range(3):
                pid = os.fork()
                if not pid:
                    try:
                        g = go(pow, 2, 3)
                        assert g.result() == 8
                        sleep(0.001)
                    except BaseException:
                        os._exit(1)
                    os._exit(0)
                while True:
                    got, status = os.waitpid(pid, os.WNOHANG)
                    if got:
                        break
                    sleep(0.001)
                assert status == 0
        gs = [go(f) for _ in range(10)]
        for g in gs: g.result()
    """)


def test_subprocess():
    fork_test("""
        import subprocess
        go(sleep, 100)
        def f(n):
            return subprocess.check_output(["echo", str(n)], preexec_fn=(lambda: None) if n % 2 else None)
        assert [g.result() for g in [go(f, n) for n in range(6)]] == [b"%d\\n" % n for n in range(6)]
        check()
    """)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(CHILD + """
import multiprocessing

def work(queue, n):
    check()
    queue.put(n)

def square(n):
    sleep(0.001)
    return go(pow, n, 2).result()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    check()
    gs = [go(sleep, 100) for _ in range(10)]
    yield_()
    queue = context.Queue()
    processes = [context.Process(target=work, args=(queue, n)) for n in range(2)]
    for p in processes: p.start()
    assert sorted(blocking(queue.get) for _ in range(2)) == [0, 1]
    for p in processes:
        p.join()
        assert p.exitcode == 0, p.exitcode
    def from_goroutine():
        p = context.Process(target=work, args=(queue, 7))
        p.start()
        assert blocking(queue.get) == 7
        p.join()
        assert p.exitcode == 0, p.exitcode
    go(from_goroutine).result()
    with context.Pool(2) as pool:
        assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
    check()
    print("done")
""")
    outcome = run("import runpy, sys; sys.argv = [%r, %r]; runpy.run_path(%r, run_name='__main__')" %
                  (str(program), method, str(program)), timeout=120, flags=FORKS) if method == "fork" else None
    if outcome is None:
        import subprocess
        from helpers import Outcome, PACKAGE
        p = subprocess.run([sys.executable, str(program), method], env=dict(os.environ, PYTHONPATH=PACKAGE),
                           capture_output=True, text=True, timeout=120)
        outcome = Outcome(p.returncode, p.stdout, p.stderr)
        assert p.returncode == 0, outcome
    assert outcome.out == "done\n" and "Traceback" not in outcome.err and "multi-threaded" not in outcome.err, outcome


# exit

def test_exit_with_parked_goroutines():
    outcome = run("""
        import gosched
        class Thing:
            def __del__(self):
                print("dropped")
        def f(lock):
            try:
                with lock:
                    gosched.sleep(100)
            finally:
                print("never")
        lock = gosched.Lock()
        gs = [gosched.go(f, lock) for _ in range(100)]
        gs += [gosched.go(gosched.Channel().recv) for _ in range(100)]
        gs += [gosched.go(gosched.Event().wait, 0.001) for _ in range(100)]
        gosched.yield_()
        print("end")
    """)
    assert outcome.out == "end\n" and outcome.err == ""


def test_exit_with_goroutines_that_never_began():
    # One P: on several threads they begin at once.
    outcome = run(
        "import gosched; gs = [gosched.go(print, 'never') for _ in range(100)]; print('end')", env={"GOSCHED_PROCS": "1"}
    )
    assert outcome.out == "end\n" and outcome.err == ""


@pytest.mark.parametrize("how, status", [
    ("sys.exit(7)", 7), ("raise SystemExit(7)", 7), ("os._exit(7)", 7), ("raise KeyError", 1), ("pass", 0),
    ("exit('text')", 1), ("raise gosched.Cancelled", 1), ("gosched.go(os._exit, 7).join()", 7),
    ("gosched.go(sys.exit, 7).join()", 0), ("gosched.go(sys.exit, 7).result()", 7),
    ("raise KeyboardInterrupt", -2), ("os.abort()", -6), ("os.kill(os.getpid(), 9)", -9),
])
def test_exit_status(how, status):
    outcome = run("""
        import gosched, os, sys
        gs = [gosched.go(gosched.sleep, 100) for _ in range(10)]
        gosched.yield_()
        %s
    """ % how, status=status)
    if status == 0:
        assert outcome.err == ""


def test_blocking_calls_where_there_are_several_nodes():
    """Each call locks its thread there, and gives the thread back. (A machine that is made up binds no thread:
    tests/numa-vm/programs/python.c has what that is for.)"""
    run("""
        import os, threading
        import gosched
        from gosched import blocking, go
        from gosched._originals import allocate_lock
        assert gosched.nodes() == 2
        mask = os.sched_getaffinity(0)
        threads = set()
        def work(n):
            threads.add(threading.get_native_id())
            assert os.sched_getaffinity(0) == mask
            return 1 // (n % 7)
        for n in range(300):
            g = go(blocking, work, n)
            g.join()
            assert isinstance(g.exception(), ZeroDivisionError) if n % 7 == 0 else g.result() == 1 // (n % 7)
        assert len(threads) < 300, "each call has had a thread of its own"
        # Many at once, of which each goes on when the next one has begun.
        locks = [allocate_lock() for _ in range(30)]
        for lock in locks:
            lock.acquire()
        def in_turn(n):
            if n:
                locks[n - 1].release()
            locks[n].acquire()
        gs = [go(blocking, in_turn, n) for n in range(30)]
        gs.append(go(blocking, locks[29].release))
        for g in gs:
            g.result()
    """, env={"GOSCHED_TOPOLOGY": "node:2 core:1 pu:1", "GOSCHED_PROCS": "2"})


def test_exit_with_running_blocking_calls():
    began = time.monotonic()
    outcome = run("""
        import gosched, os, time, sys
        def f():
            time.sleep(0.3)
            os.write(1, b"the call has ended\\n")
            return [1]
        gs = [gosched.go(gosched.blocking, f) for _ in range(3)]
        gosched.sleep(0.05)
        gs[0].cancel()
        gosched.yield_()
        print("end", flush=True)
    """)
    assert outcome.out == "end\n" + "the call has ended\n" * 3 and outcome.err == ""
    assert time.monotonic() - began < 30


def test_ctrl_c_at_exit_with_running_blocking_calls():
    process = start("""
        import gosched, time
        gosched.go(gosched.blocking, time.sleep, 10_000)
        gosched.sleep(0.05)
        print("end of main", flush=True)
    """)
    assert process.stdout.readline() == "end of main\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGINT)
    outcome = finish(process)
    assert "KeyboardInterrupt" in outcome.err, outcome


def test_exit_does_not_wait_for_a_read_that_parks():
    for patch in ("", "gosched.patch_all()"):
        outcome = run("""
            import gosched, os, sys
            %s
            read = os.read if gosched.patch.is_patched("os") else gosched.os.read
            stdin, never = os.pipe()
            os.dup2(stdin, 0)
            gosched.go(read, 0, 4096)
            gosched.sleep(0.01)
            print("end of main")
        """ % patch)
        assert outcome.out == "end of main\n" and outcome.err == "", outcome


def test_exit_with_blocking_calls_that_have_not_begun():
    for procs in ("1", "4"):
        outcome = run("""
            import gosched, time
            gs = [gosched.go(gosched.blocking, time.sleep, 0.01) for _ in range(50)]
            gosched.yield_()
        """, env={"GOSCHED_PROCS": procs})
        assert outcome.err == ""


def test_atexit_callbacks_use_goroutines():
    outcome = run("""
        import atexit, sys
        # Those that were registered before the package's run after them.
        def callback(name):
            import gosched
            channel = gosched.Channel()
            g = gosched.go(channel.send, name)
            print(channel.recv(), flush=True)
            gosched.sleep(0.001)
            assert gosched.blocking(pow, 2, 3) == 8
            with lock:
                pass
        atexit.register(callback, "early")
        import gosched
        lock = gosched.Lock()
        def holds():
            with lock:
                gosched.sleep(0.05)
        atexit.register(callback, "late")
        gosched.go(holds)
        gosched.yield_()
    """)
    assert outcome.out == "late\nearly\n" and outcome.err == "", outcome


def test_threads_at_exit():
    outcome = run("""
        import gosched, threading, time
        channel = gosched.Channel()
        def daemon():
            while True:
                gosched.sleep(0.001)
                channel.try_send(1)
        def daemon2():
            gosched.Channel().recv()
        def ordinary():
            gosched.sleep(0.1)
            g = gosched.go(lambda: (gosched.sleep(0.01), 5)[1])
            print(g.result(), flush=True)
        for f in (daemon, daemon2):
            threading.Thread(target=f, daemon=True).start()
        threading.Thread(target=ordinary).start()
        gosched.yield_()
        print("end of main", flush=True)
    """)
    assert outcome.out == "end of main\n5\n" and outcome.err == "", outcome


def test_threads_at_exit_where_a_thread_was_first():
    outcome = run("""
        import gosched, threading, time
        def first():
            g = gosched.go(gosched.sleep, 100)
            h = gosched.go(gosched.blocking, time.sleep, 0.1)
            gosched.go(lambda: [gosched.yield_() for _ in range(10**10)])
            gosched.go(lambda: [gosched.sleep(0.0001) for _ in range(10**10)])
            assert gosched.go(pow, 2, 3).result() == 8
        t = threading.Thread(target=first)
        t.start()
        t.join()
        gosched.sleep(0.05)
    """)
    assert outcome.err == "", outcome


def test_many_exits():
    """Where goroutines and threads are busy when Python ends."""
    for n in range(8):
        outcome = run("""
            import gosched, threading, time, random
            def busy():
                while True:
                    gosched.sleep(random.random() / 1000)
                    gosched.blocking(len, "")
                    gosched.Channel(1).send(1)
            for _ in range(5):
                gosched.go(busy)
            for _ in range(3):
                threading.Thread(target=busy, daemon=True).start()
            gosched.sleep(random.random() / 20)
        """)
        assert outcome.err == "", outcome


def test_destructors_at_shutdown():
    """What runs when modules are torn down may use the library: it doesn't hang."""
    outcome = run("""
        import gosched, os
        class Thing:
            def __init__(self, f):
                self.f = f
            def __del__(self, write=os.write, BaseException=BaseException, type=type):
                try:
                    self.f()
                except BaseException as e:
                    write(1, type(e).__name__.encode() + b"\\n")
                else:
                    write(1, b"ok\\n")
        channel, lock = gosched.Channel(), gosched.Lock()
        lock.acquire()
        gosched.go(channel.send, 1).join(0)
        gosched.go(gosched.sleep, 100)
        gosched.yield_()
        things = [
            Thing(lambda sleep=gosched.sleep: sleep(0.001)),
            Thing(lambda go=gosched.go: go(len, "").join()),
            Thing(lambda lock=lock: lock.acquire()),
            Thing(lambda go=gosched.go, sleep=gosched.sleep: go(sleep, 10).join(0.01)),
            Thing(lambda blocking=gosched.blocking: blocking(len, "")),
            Thing(lambda Channel=gosched.Channel: Channel().recv()),
            Thing(lambda Event=gosched.Event: Event().wait(0.001)),
        ]
    """, timeout=30)
    assert len(outcome.out.split()) == 7, outcome


def test_errors_at_shutdown():
    outcome = run("""
        import gosched, atexit
        atexit.register(lambda: 1 / 0)
        g = gosched.go(lambda: [][1])
        g.join()
        atexit.register(lambda: gosched.go(lambda: {}[1]).result())
        1 .x
    """, status=1)
    assert "IndexError" in outcome.err and "ZeroDivisionError" in outcome.err and "KeyError" in outcome.err


def test_exit_from_a_goroutine_s_callbacks_and_hooks():
    outcome = run("""
        import gosched, sys
        g = gosched.go(len, "")
        g.add_done_callback(lambda g: sys.exit(3))
        g.join()
        gosched.excepthook = lambda g, e: sys.exit(4)
        gosched.go(lambda: 1 / 0).join()
        print("end")
    """)
    assert outcome.out == "end\n"


def test_functions_for_the_child_that_come_first_use_locks():
    """The parent's goroutines that wait for them are not woken in the child."""
    run("""
        import os
        os.register_at_fork(after_in_child=lambda: (held.acquire(False), waited.release()))
        import gosched
        held, waited = gosched.Lock(), gosched.Lock()
        held.acquire(), waited.acquire()
        gs = [gosched.go(waited.acquire) for _ in range(3)]
        while not all(g._is_away() for g in gs):
            gosched.sleep(0.001)
        pid = os.fork()
        if pid == 0:
            os._exit(waited.locked() or not held.locked())
        assert os.waitpid(pid, 0)[1] == 0
    """, flags=FORKS)


def test_exit_while_goroutines_print():
    """Python aborts at its end if a thread that it has stopped has the lock of a file."""
    for _ in range(20):
        outcome = run("""
            import gosched, sys
            def f():
                while True:
                    print("text", file=sys.stderr)
                    gosched.yield_()
            gs = [gosched.go(f) for _ in range(4)]
            gosched.sleep(0.01)
            print("end")
        """)
        assert outcome.out == "end\n" and outcome.err.replace("text", "").strip() == ""


def test_main_thread_exits_by_pthread_exit_of_others():
    outcome = run("""
        import gosched, _thread
        def f():
            gosched.sleep(0.001)
            _thread.exit()
        for _ in range(10):
            _thread.start_new_thread(f, ())
        gosched.sleep(0.1)
        gosched.go(_thread.exit).join()
    """)
    assert outcome.err == ""
