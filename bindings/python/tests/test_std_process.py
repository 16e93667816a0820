"""subprocess, os and signal over goroutines."""

import os
import subprocess
import sys

import pytest
from patched import PRELUDE, run


def test_subprocess():
    run("""
        import os, select, signal, subprocess, sys, time
        with Beside():
            assert subprocess.run(["sleep", "0.05"]).returncode == 0
        with Beside():
            assert subprocess.check_output("sleep 0.05; echo x", shell=True) == b"x\\n"
        big = bytes(3_000_000)
        done = subprocess.run(["cat"], input=big, capture_output=True)
        assert done.stdout == big and done.stderr == b""
        with Beside():
            try:
                subprocess.run(["sleep", "10"], timeout=0.05)
            except subprocess.TimeoutExpired as e:
                pass
            else:
                assert False
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as p:
            gosched.go(lambda: (gosched.sleep(0.05), p.stdin.write("line\\n")))
            with Beside():
                assert p.stdout.readline() == "line\\n"
            p.stdin.close()
            assert p.wait(5) == 0
        # A pipeline: the second child has the pipe of the first as its (blocking) input.
        first = subprocess.Popen("sleep 0.05; echo abc", shell=True, stdout=subprocess.PIPE)
        second = subprocess.Popen(["cat"], stdin=first.stdout, stdout=subprocess.PIPE)
        first.stdout.close()
        assert second.communicate()[0] == b"abc\\n"
        assert first.wait() == 0
        # The other way round: the pipe to the second child, into which was written, is the first one's output.
        code = "import sys, time; time.sleep(0.05); print(len(sys.stdin.buffer.read()))"
        second = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        second.stdin.write(b"head")
        second.stdin.flush()
        code = "import os; os.write(1, bytes(1_000_000))"
        subprocess.run([sys.executable, "-c", code], stdout=second.stdin, check=True)
        assert second.communicate()[0] == b"1000004\\n"
        # Without a buffer all is written.
        with subprocess.Popen(["wc", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as p:
            assert p.stdin.write(bytes(300_000)) == 300_000
            p.stdin.close()
            assert p.stdout.read() == b"300000\\n"
        # An empty pipe that the program has made non-blocking isn't at its end.
        for bufsize in (0, -1):
            command = ["sh", "-c", "echo a; read x; echo b"]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=bufsize) as p:
                os.set_blocking(p.stdout.fileno(), False)
                select.select([p.stdout], [], [])
                assert p.stdout.read() == b"a\\n"
                assert p.stdout.read() is None and p.stdout.read(1) is None
                p.stdin.close()
                assert p.wait() == 0
                assert p.stdout.read() == b"b\\n"
                assert p.stdout.read() == b""
        # What a goroutine that is cancelled has written isn't written again.
        with subprocess.Popen(["wc", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
            os.kill(p.pid, signal.SIGSTOP)
            g = gosched.go(p.stdin.write, bytes(300_000))
            gosched.sleep(0.01)
            g.cancel()
            g.join()
            os.kill(p.pid, signal.SIGCONT)
            p.stdin.close()
            assert int(p.stdout.read()) < 300_000
        began = time.monotonic()
        many = [gosched.go(subprocess.run, ["sleep", "2"]) for _ in range(20)]
        assert all(g.result().returncode == 0 for g in many)
        # One after the other they would take 40 seconds.
        assert time.monotonic() - began < 35
    """)


def test_subprocess_unpatched():
    run("""
        import gosched
        from gosched import subprocess
        ticks = []
        def tick():
            while not done:
                ticks.append(1)
                gosched.sleep(0.001)
        done = []
        g = gosched.go(tick)
        assert subprocess.check_output("sleep 0.05; echo x", shell=True) == b"x\\n"
        assert subprocess.run(["cat"], input=b"y" * 500_000, capture_output=True).stdout == b"y" * 500_000
        p = subprocess.Popen(["sleep", "0.05"])
        assert p.wait(5) == 0
        done.append(1)
        g.join()
        assert ticks
    """, prelude="")


def test_os():
    run("""
        import os, time
        r, w = os.pipe()
        gosched.go(lambda: (gosched.sleep(0.03), os.write(w, b"x")))
        with Beside():
            assert os.read(r, 10) == b"x"
        big = bytes(1_000_000)
        g = gosched.go(os.write, w, big)
        n = 0
        with Beside():
            while n < len(big):
                n += len(os.read(r, 65536))
                gosched.sleep(0.0005)
        assert g.result() == len(big)
        os.set_blocking(r, False)
        try:
            os.read(r, 1)
        except BlockingIOError:
            pass
        else:
            assert False
        os.close(r); os.close(w)
        r2, w2 = os.pipe()
        for wrong in [3, 2], ["text"], [b"x", None]:
            try:
                os.writev(w2, wrong)
            except TypeError as e:
                assert "bytes-like" in str(e)
            else:
                assert False
        assert os.writev(w2, [b"a", bytearray(b"b"), memoryview(b"c")]) == 3 and os.read(r2, 9) == b"abc"
        os.close(r2); os.close(w2)
        for bad in (lambda: os.read(r, 1), lambda: os.write(w, b"x")):
            try:
                bad()
            except OSError as e:
                assert e.errno == 9
            else:
                assert False
        for wait in (
            lambda pid: os.waitpid(pid, 0), lambda pid: os.wait(), lambda pid: os.wait4(pid, 0)[:2], lambda pid: os.wait3(0)[:2],
        ):
            pid = os.posix_spawn("/bin/sh", ["sh", "-c", "sleep 0.05; exit 3"], os.environ)
            with Beside():
                found = wait(pid)
            assert found[0] == pid and os.WEXITSTATUS(found[1]) == 3
        with Beside():
            assert os.WEXITSTATUS(os.system("sleep 0.05; exit 4")) == 4
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            pass
        else:
            assert False
    """)


def test_a_wait_for_any_child_that_ends_early_takes_no_child():
    # Nor does it keep the program from its end: the last child lives for longer than `run` lets the program.
    run("""
        import os, time
        waits = [
            os.wait, lambda: os.waitpid(-1, 0), lambda: os.waitpid(0, os.WUNTRACED), lambda: os.wait3(0),
            lambda: os.wait4(-1, 0), lambda: os.waitid(os.P_ALL, 0, os.WEXITED),
        ]
        for wait in waits:
            r, w = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(w)
                gosched.patch.get_original("os", "read")(r, 1)
                os._exit(3)
            os.close(r)
            goroutine = gosched.go(wait)
            gosched.sleep(0.01)
            goroutine.cancel()
            goroutine.join()
            assert goroutine.cancelled()
            os.close(w)
            gosched.sleep(0.05)
            assert os.waitpid(pid, 0) == (pid, 3 << 8)
            pid = os.posix_spawn("/bin/sh", ["sh", "-c", "sleep 0.05; exit 3"], os.environ)
            with Beside():
                assert wait()
        # It ends with the program's session.
        quiet = [(os.POSIX_SPAWN_CLOSE, 1), (os.POSIX_SPAWN_CLOSE, 2)]
        os.posix_spawn("/bin/sleep", ["sleep", "100"], os.environ, file_actions=quiet)
        gosched.go(os.wait)
        gosched.sleep(0.01)
    """, prelude=PRELUDE + "import warnings; warnings.simplefilter('ignore')\n")


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="os.eventfd is new in Python 3.10")
def test_eventfd_and_splice():
    run("""
        import os, socket
        e = os.eventfd(0)
        gosched.go(lambda: (gosched.sleep(0.03), os.eventfd_write(e, 5)))
        with Beside():
            assert os.eventfd_read(e) == 5
        os.set_blocking(e, False)
        try:
            os.eventfd_read(e)
        except BlockingIOError:
            pass
        else:
            assert False
        # From an empty pipe, and into a full one.
        (r, w), (r2, w2) = os.pipe(), os.pipe()
        gosched.go(lambda: (gosched.sleep(0.03), os.write(w, b"abc")))
        with Beside():
            assert os.splice(r, w2, 100) == 3
        assert os.read(r2, 9) == b"abc"
        os.set_blocking(w2, False)
        while True:
            try:
                os.write(w2, bytes(4096))
            except BlockingIOError:
                break
        os.set_blocking(w2, True)
        os.write(w, b"def")
        gosched.go(lambda: (gosched.sleep(0.03), os.read(r2, 65536)))
        with Beside():
            assert os.splice(r, w2, count=100) == 3
        # Two that wait for one pipe: what there is goes to one of them.
        a, b = (gosched.go(os.splice, r, w2, 100) for _ in range(2))
        gosched.sleep(0.01)
        os.write(w, b"1")
        gosched.sleep(0.01)
        os.write(w, b"2")
        assert a.result() + b.result() == 2
        os.close(w)
        assert os.splice(r, w2, 100) == 0
        try:
            os.splice(w2, w2, 100, flags=os.SPLICE_F_NONBLOCK)
        except OSError as e:
            pass
        else:
            assert False
    """)


def test_closing_what_others_wait_for():
    # A thread goes on as soon as the other end is closed. A goroutine that waits can't be told of a file that is gone.
    run("""
        import errno, os, threading
        ended = []
        def call(fn, *args):
            try:
                fn(*args)
            except OSError as e:
                ended.append((fn.__name__, e.errno))
        r, w = os.pipe()
        reader = threading.Thread(target=call, args=(os.read, r, 1))
        reader.start()
        gosched.yield_()
        os.close(r)
        reader.join()
        os.close(w)
        r, w = os.pipe()
        writer = threading.Thread(target=call, args=(os.write, w, bytes(1 << 20)))
        writer.start()
        gosched.yield_()
        os.close(fd=w)
        writer.join()
        os.close(r)
        assert ended == [("read", errno.EBADF), ("write", errno.EBADF)], ended
        for bad in (-1, r, 1 << 40, "x", None):
            for close in (os.close, patch.get_original("os", "close")):
                try:
                    close(bad)
                except (OSError, OverflowError, TypeError) as e:
                    ended.append(str(e))
            assert ended[-1] == ended[-2], ended[-2:]
    """)


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="a read may be under way there, as in threads")
def test_a_number_that_is_another_file_s_when_its_reader_goes_on():
    run("""
        import errno, linecache, os, time
        write = patch.get_original("os", "write")
        def read(fd):
            try:
                return os.read(fd, 3)
            except OSError as e:
                return e.errno
        def waits(goroutine):
            frame = goroutine.frame
            return frame and "wait_read" in linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        for n in range(80):
            r, w = os.pipe()
            reader = gosched.go(read, r)
            while not waits(reader):
                gosched.sleep(0.001)
            write(w, b"old")
            # Most often the reader is woken meanwhile, and goes on when this goroutine waits.
            until = time.monotonic() + n % 10 / 1000
            while time.monotonic() < until:
                pass
            os.close(r)
            new, v = os.pipe()
            write(v, b"new")
            assert new == r
            assert reader.result() in (b"old", errno.EBADF), reader.result()
            assert os.read(new, 3) == b"new"
            for fd in w, new, v:
                os.close(fd)
    """)


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="the names of the modules are gone by then")
@pytest.mark.parametrize("begin", ["", "gosched.sleep(0)", "t = threading.Thread(target=gosched.sleep, args=(0,)); t.start(); t.join()"])
def test_waits_for_files_and_children_at_the_end_of_python(begin):
    """What is destroyed with the modules may wait for what no goroutine need do."""
    out = run("""
        import os, select, socket, subprocess, sys, threading, time
        class AtEnd:
            def __init__(self, f, *args):
                self.f, self.args = f, args
            def __del__(self, write=os.write):
                write(1, b"%r\\n" % (self.f(*self.args),))
        def pipe(text):
            r, w = os.pipe()
            subprocess.Popen("sleep 0.2; printf " + text, shell=True, stdout=w)
            os.close(w)
            return r
        def later(text):
            a, b = socket.socketpair()
            subprocess.Popen("sleep 0.2; printf " + text, shell=True, stdout=b)
            b.close()
            return a
        child = subprocess.Popen(["true"])
        reads = pipe("pipe")
        receives = later("socket")
        selects = later("select")
        polls = [later("poll"), later("poll")]
        sys.kept = [child, receives, selects, polls]  # Until after those below.
        sleeps = AtEnd(lambda sleep=time.sleep: sleep(0.001))
        locks = AtEnd(lambda lock=threading.Lock(): (lock.acquire(), lock.acquire(timeout=0.001)))
        BEGIN
        things = [
            AtEnd(child.wait), AtEnd(os.read, reads, 9), AtEnd(receives.recv, 9),
            AtEnd(lambda s, select=select.select: len(select([s], [], [])[0]), selects),
            AtEnd(lambda s, select=select.select: 1 <= len(select(s, [], [])[0]) <= 2, polls),
        ]
    """.replace("BEGIN", begin), options=["-W", "ignore::ResourceWarning"])
    assert sorted(out.split("\n")) == sorted(["0", "b'pipe'", "b'socket'", "1", "True", "None", "(True, False)", ""]), out


@pytest.mark.parametrize("first", ["gosched.patch_all()", "import multiprocessing.connection"])
def test_closing_a_connection_of_multiprocessing(first):
    run(first + """
gosched.patch_all()
import errno, multiprocessing, select, threading
ours, theirs = multiprocessing.Pipe(duplex=False)
ended = []
def send():
    try:
        theirs.send_bytes(bytes(1 << 20))
    except OSError as e:
        ended.append(e.errno)
thread = threading.Thread(target=send)
thread.start()
while select.select([], [theirs], [], 0)[1]:
    gosched.yield_()  # until the pipe is full
theirs.close()
thread.join()
ours.close()
assert ended == [errno.EBADF], ended
""", prelude="import gosched\n")


def test_sleep():
    run("""
        import time
        with Beside():
            began = time.monotonic()
            time.sleep(0.05)
            assert time.monotonic() - began >= 0.05
        time.sleep(0); time.sleep(0.0); time.sleep(True)
        for bad, error in ((-1, ValueError), ("x", TypeError), (float("nan"), ValueError), (None, TypeError)):
            try:
                time.sleep(bad)
            except error:
                pass
            else:
                assert False, bad
    """)


def test_signals():
    run("""
        import os, signal, threading, time
        got = []
        signal.signal(signal.SIGUSR1, lambda n, frame: got.append(n))
        threading.Timer(0.03, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with Beside():
            signal.pause()
        assert got == [signal.SIGUSR1]
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        assert signal.sigtimedwait([signal.SIGUSR2], 0.01) is None
        threading.Timer(0.03, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR2)).start()
        with Beside():
            assert signal.sigwait([signal.SIGUSR2]) == signal.SIGUSR2
        threading.Timer(0.03, signal.raise_signal, (signal.SIGINT,)).start()
        try:
            time.sleep(10)
        except KeyboardInterrupt:
            pass
        else:
            assert False
    """)


def test_functions_of_the_c_library_that_take_a_thread():
    run("""
        import signal, threading, time
        got = []
        signal.signal(signal.SIGUSR1, lambda n, frame: got.append(n))
        def call():
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
            return time.clock_gettime(time.pthread_getcpuclockid(threading.get_ident()))
        def in_a_thread():
            seconds.append(call())
        seconds = [call(), gosched.go(call).result()]
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        thread.join()
        other = gosched.go(time.sleep, 60)
        seconds.append(time.clock_gettime(time.pthread_getcpuclockid(other.id)))
        gosched.blocking(signal.pthread_kill, other.id, signal.SIGUSR1)
        other.cancel()
        gosched.sleep(0.001)
        assert got == [signal.SIGUSR1] * 4
        assert len(seconds) == 4 and min(seconds) > 0
    """)


def test_exceptions_of_handlers_reach_the_main_goroutine():
    run("""
        import signal, time
        class Late(OSError):
            pass
        def handler(number, frame):
            raise Late(110, "late")
        signal.signal(signal.SIGALRM, handler)
        for _ in range(3):
            with Beside():
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.03)
                    time.sleep(3600)
                except Late:
                    pass
                else:
                    assert False
    """)


def test_multiprocessing(tmp_path):
    script = tmp_path / "many.py"
    script.write_text("""if True:
        import gosched
        gosched.patch_all()
        import multiprocessing, sys, time
        from concurrent.futures import ProcessPoolExecutor

        def square(x):
            time.sleep(0.01)
            return x * x

        def put(queue, lock):
            with lock:
                queue.put(5)

        if __name__ == "__main__":
            for method in "fork", "spawn", "forkserver":
                context = multiprocessing.get_context(method)
                with context.Pool(2) as pool:
                    assert pool.map(square, range(10)) == [x * x for x in range(10)]
                queue, lock = context.Queue(), context.Lock()
                process = context.Process(target=put, args=(queue, lock))
                with lock:
                    process.start()
                    ticks = []
                    g = gosched.go(lambda: [ticks.append(gosched.sleep(0.001)) for _ in range(20)])
                    assert not lock.acquire(timeout=0.05)
                    g.join()
                assert queue.get() == 5
                process.join()
                assert process.exitcode == 0
                with ProcessPoolExecutor(2, mp_context=context) as executor:
                    assert list(executor.map(square, range(5))) == [0, 1, 4, 9, 16]
            print("ok")
    """)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done


def test_connections_of_multiprocessing():
    """They read from the descriptor of a socket that has connected."""
    run("""
        from multiprocessing.connection import Client, Listener
        for family in "AF_UNIX", "AF_INET":
            with Listener(None, family, authkey=b"key") as listener:
                def serve():
                    with listener.accept() as connection:
                        gosched.sleep(0.03)
                        connection.send(connection.recv() + 1)
                server = gosched.go(serve)
                with Beside(), Client(listener.address, authkey=b"key") as connection:
                    connection.send(41)
                    assert connection.recv() == 42
                server.result()
    """)


def test_locks_that_processes_share(tmp_path):
    """Many goroutines wait for one, some are cancelled meanwhile, and none of its units is lost."""
    script = tmp_path / "locks.py"
    script.write_text("""if True:
        import gosched
        gosched.patch_all()
        import multiprocessing, os, sys

        def hold(lock, held, let):
            with lock:
                held.set()
                let.wait()

        def main():
            context = multiprocessing.get_context("fork")
            for lock in context.Lock(), context.RLock(), context.Semaphore(1):
                held, let = context.Event(), context.Event()
                process = context.Process(target=hold, args=(lock, held, let))
                process.start()
                held.wait()
                assert not lock.acquire(False)
                inside = [0]
                def use():
                    with lock:
                        inside[0] += 1
                        gosched.yield_()
                waiting = [gosched.go(use) for _ in range(20)]
                late = [gosched.go(lock.acquire) for _ in range(20)]
                timed = gosched.go(lock.acquire, True, 0.01)
                assert timed.result() is False
                for g in late:
                    g.cancel()
                for g in late:
                    g.join()
                    assert g.cancelled()
                assert inside == [0]
                let.set()
                for g in waiting:
                    g.result()
                process.join()
                assert inside == [20] and process.exitcode == 0
                assert lock.acquire(False)
                lock.release()
            # The end of the program doesn't wait for a goroutine that waits.
            forever = context.Lock()
            forever.acquire()
            gosched.go(forever.acquire)
            gosched.sleep(0.01)
            print("ok", flush=True)

        if __name__ == "__main__":
            main()
    """)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done


def test_recursive_locks_that_processes_share(tmp_path):
    """They have one owner at a time, also among the goroutines of a process."""
    script = tmp_path / "locks.py"
    script.write_text("""if True:
        import gosched
        gosched.patch_all()
        import multiprocessing, os

        def in_child(lock):
            # Its parent has the lock, and gives it back.
            for _ in range(2):
                lock.acquire()
            for _ in range(2):
                lock.release()
            one_at_a_time(lock)

        def one_at_a_time(lock):
            inside = [0]
            def use():
                with lock, lock:
                    inside[0] += 1
                    gosched.sleep(0.001)
                    assert inside[0] == 1
                    inside[0] -= 1
            for g in [gosched.go(use) for _ in range(5)]:
                g.result()

        def late(call, *args):
            g = gosched.go(call, *args)
            gosched.sleep(0.01)
            return g

        def main():
            for method in "fork", "spawn":
                context = multiprocessing.get_context(method)
                lock = context.RLock()
                one_at_a_time(lock)
                with lock:
                    assert gosched.run(lock.acquire, False) is False
                    assert gosched.run(lock.acquire, True, 0.01) is False
                    try:
                        gosched.run(lock.release)
                    except AssertionError as error:
                        assert "not owned" in str(error)
                    else:
                        assert False
                    g = late(lock.acquire)
                    g.cancel()
                    g.join()
                    child = context.Process(target=in_child, args=(lock,))
                    child.start()
                    gosched.sleep(0.05)
                child.join()
                assert child.exitcode == 0
                one_at_a_time(lock)

                condition = context.Condition()
                def wait():
                    with condition:
                        gosched.sleep(0.01)
                        return condition.wait(30)
                waiting = [gosched.go(wait) for _ in range(3)]
                gosched.sleep(0.2)
                with condition:
                    condition.notify_all()
                assert [g.result() for g in waiting] == [True] * 3

            # The holder isn't in the child, and gives the lock back in the parent.
            lock = multiprocessing.get_context("fork").RLock()
            def hold():
                with lock:
                    gosched.sleep(0.1)
            late(hold)
            pid = os.fork()
            if pid == 0:
                os._exit(7 if lock.acquire(True, 30) else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
            print("ok", flush=True)

        if __name__ == "__main__":
            main()
    """)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done


@pytest.mark.parametrize("module", ["subprocess", "gosched.subprocess"])
def test_no_cancel_leaves_a_child_without_its_object(module):
    # Popen() waits until the child has executed its program: here until it may.
    run("""
        import os, signal, subprocess, sys, warnings
        import gosched.subprocess
        module = sys.modules[sys.argv[1]]
        warnings.simplefilter("ignore")
        r, w = os.pipe()
        forked = gosched.Event()
        os.register_at_fork(after_in_parent=forked.set)
        children = []

        def work():
            children.append(module.Popen(["cat"], stdin=subprocess.PIPE, preexec_fn=lambda: os.read(r, 1)))
            gosched.sleep(60)

        def let(change):
            forked.wait()
            forked.clear()
            gosched.sleep(0.02)
            change()

        def end(child):
            child.stdin.close()
            assert child.wait() == 0

        g = gosched.go(work)
        let(g.cancel)
        assert not g.join(0.02) and not children
        os.write(w, b"x")
        g.join()
        assert g.cancelled()
        end(children.pop())

        gosched.go(let, lambda: (gosched.sleep(0.05), os.write(w, b"x")))
        try:
            with gosched.Timeout(0.04):
                work()
        except gosched.Timeout:
            end(children.pop())
        else:
            assert False

        # A program that isn't there: the wait for the end of the child, too.
        def fails():
            try:
                module.Popen(["/no/such"], preexec_fn=lambda: os.read(r, 1))
            except FileNotFoundError as e:
                children.append(e)
            gosched.sleep(60)

        g = gosched.go(fails)
        let(g.cancel)
        os.write(w, b"x")
        g.join()
        assert g.cancelled() and children.pop()
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pass
        else:
            assert False

        # Ctrl-C ends it, as in a thread.
        gosched.go(let, lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            work()
        except KeyboardInterrupt:
            assert not children
        else:
            assert False
        os.write(w, b"x")
    """, module)


def test_goroutines_that_wait_for_one_child_hold_nothing_up():
    for prelude in (PRELUDE, PRELUDE.replace("patch.patch_all()", "")):
        run("""
            from gosched import subprocess
            child = subprocess.Popen(["sleep", "0.1"])
            waiting = [gosched.go(child.wait) for _ in range(3)]
            with Beside():
                gosched.sleep(0.02)
            assert [g.result() for g in waiting] == [0, 0, 0]
        """, prelude=prelude)


def test_os_write_to_a_socket_is_one_message():
    run("""
        import os, socket
        for kind in socket.SOCK_DGRAM, socket.SOCK_SEQPACKET:
            a, b = socket.socketpair(socket.AF_UNIX, kind)
            with a, b:
                assert os.write(a.fileno(), bytes(10_000)) == 10_000
                assert len(b.recv(100_000)) == 10_000
                assert os.writev(a.fileno(), [bytes(9_000), b"end"]) == 9_003
                assert len(b.recv(100_000)) == 9_003
        a, b = socket.socketpair()
        with a, b:
            writer = gosched.go(os.write, a.fileno(), bytes(1_000_000))
            assert len(b.recv(1_000_000, socket.MSG_WAITALL)) == 1_000_000 == writer.result()
    """)


def test_signals_do_not_end_a_poll():
    run("""
        import os, select, signal, time
        r, w = os.pipe()
        s, v = os.pipe()
        seen = []
        signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
        try:
            while len(seen) < 3000:
                for files in [r], [r, s]:
                    assert select.select(files, [], [], 0.0003) == ([], [], [])
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for fd in r, w, s, v:
            os.close(fd)
    """)
