"""Goroutines that run in parallel, on a free-threaded Python. On others the same tests show that nothing is lost.

With GOSCHED_LONG=1 each does 20 times as much.
"""

import contextvars
import gc
import os
import random
import sys
import threading
import time
import traceback

import pytest

import gosched
from gosched import Channel, Event, Group, Lock, Pool, RWMutex, Semaphore, WaitGroup, go, sleep, yield_
from helpers import FREE_THREADED, PARALLEL, run, until

LONG = 20 if os.environ.get("GOSCHED_LONG") else 1
pytestmark = pytest.mark.timeout(120 * LONG)


def resident():
    """KiB of this process."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def several(f, n=20):
    return [g.result() for g in [go(f, i) for i in range(n)]]


def test_the_module_needs_no_gil():
    outcome = run("""
        import sys, warnings
        warnings.simplefilter("error")
        import gosched
        print(getattr(sys, "_is_gil_enabled", lambda: True)())
    """)
    assert outcome.out == "%s\n" % (not FREE_THREADED)


@pytest.mark.skipif(not FREE_THREADED, reason="goroutines run one at a time where there is a GIL")
@pytest.mark.parametrize("procs", [2, 4])
def test_two_compute_at_the_same_time(procs):
    """Each waits, without a wait of gosched's, for what the other does."""
    outcome = run("""
        import gosched, threading
        flags, threads = [False, False], set()
        def meet(i):
            threads.add(threading.get_native_id())
            flags[i] = True
            while not flags[1 - i]:
                pass
        gs = [gosched.go(meet, i) for i in range(2)]
        for g in gs:
            g.join()
        print(len(threads), threading.get_native_id() in threads)
    """, env={"GOSCHED_PROCS": str(procs)})
    assert outcome.out == "2 False\n"


def test_a_goroutine_stays_on_its_thread():
    def f(n):
        thread = threading.get_native_id()
        for _ in range(20):
            yield_()
            assert threading.get_native_id() == thread
        sleep(0.001)
        assert threading.get_native_id() == thread
        return thread

    threads = set(several(f, 100))
    assert len(threads) <= max(gosched.gomaxprocs(), os.cpu_count() or 1)


local = threading.local()
variable = contextvars.ContextVar("variable", default=None)


def test_what_is_a_goroutines_own():
    """Handled exceptions, thread-local data, context, recursion, tracing and frames of generators stay with it."""

    def numbers():
        for n in range(5):
            try:
                yield n
            finally:
                yield_()

    def deep(n):
        return 0 if n == 0 else 1 + deep(n - 1)

    def f(i):
        assert not hasattr(local, "x")
        local.x = i
        variable.set(i)
        lines = []
        if i % 4 == 0:
            sys.settrace(lambda frame, event, arg: lines.append(frame.f_code.co_name))
        for _ in range(5):
            yield_()
            assert local.x == i and variable.get() == i
        try:
            raise KeyError(i)
        except KeyError:
            for _ in range(3):
                yield_()
                assert sys.exc_info()[1].args == (i,)
                try:
                    raise ValueError(i)
                except ValueError:
                    yield_()
                    assert sys.exc_info()[1].args == (i,)
        assert list(numbers()) == list(range(5))
        # Not those with a trace function: an error in that, as one of recursion, takes it away.
        if i % 4 == 1:
            with pytest.raises(RecursionError):
                deep(10**6)
        assert deep(100) == 100
        assert (sys.gettrace() is not None) == (i % 4 == 0)
        sys.settrace(None)
        assert "numbers" in lines or i % 4
        yield_()
        return len(traceback.extract_stack())

    assert several(f, 40) == [1] * 40
    assert variable.get() is None and not hasattr(local, "x")


class Key:
    """Waits while it is compared: in list.sort, and in a dictionary."""

    def __init__(self, value):
        self.value = value

    def __lt__(self, other):
        if random.random() < 0.2:
            yield_()
        return self.value < other.value

    def __hash__(self):
        if random.random() < 0.2:
            yield_()
        return hash(self.value)

    def __eq__(self, other):
        if random.random() < 0.2:
            sleep(0.0001)
        return self.value == other.value


def test_waits_inside_of_what_python_guards():
    """list.sort, dictionaries, __del__, weak references and imports: others use the same objects meanwhile."""
    shared_list, shared_dict, dropped = list(range(100)), {}, []

    class Thing:
        def __del__(self):
            yield_()
            dropped.append(1)

    def f(i):
        for n in range(10 * LONG):
            keys = [Key(random.random()) for _ in range(30)]
            keys.sort()
            assert all(a.value <= b.value for a, b in zip(keys, keys[1:]))
            shared_dict[Key(n)] = i
            assert shared_dict[Key(n)] in range(20)
            try:
                shared_list.sort(key=lambda x: (yield_(), -x)[1])
            except ValueError:
                pass  # changed by another while it sorts
            Thing()
            sorted(set(map(Key, range(10))))
            try:
                exec("import json.decoder, colorsys; colorsys.rgb_to_hsv(0, 0, 0)")
            except KeyError:
                pass  # taken out by another in the middle of its import
            sys.modules.pop("colorsys", None)

    several(f)
    assert len(shared_dict) == 10 * LONG
    until(lambda: len(dropped) == 200 * LONG)


def test_rings_of_messages():
    """Goroutines on all threads pass objects around, which die anywhere."""

    class Node:
        __slots__ = ("a", "__weakref__")

        def __del__(self):
            pass

    class Cycle:
        def __init__(self):
            self.me, self.d = self, {1: [self]}

    n, ring, rounds = 100, 10, 60 * LONG
    channels = [Channel(i % 3) for i in range(n)]
    made = [lambda o: [Node(), o], lambda o: {"l": [Node() for _ in range(5)]}, lambda o: (Cycle(), Cycle())[0],
            lambda o: (o, 1.5, "x" * 99), lambda o: (lambda z=o: z)]

    def worker(i, inp, out):
        for k in range(rounds):
            inp.recv()
            if k % 16 == 0:
                go(yield_).join()
            out.send(made[(i + k) % len(made)](None))

    workers = []
    for r in range(0, n, ring):
        for j in range(ring):
            workers.append(go(worker, r + j, channels[r + j], channels[r + (j + 1) % ring]))
        # One for each that can take it, so that none waits at the end.
        for j in range(ring):
            go(channels[r + j].send, "token")
    while not all(w.done() for w in workers):
        gc.collect()
        sleep(0.005)
        for channel in channels:
            # The last message of each has no receiver any more.
            if all(w.done() for w in workers):
                break
        drained = [w for w in workers if not w.done()]
        if len(drained) and all(len(c) == c.capacity for c in channels):
            break
        for i, w in enumerate(workers):
            if w.done():
                try:
                    channels[i].try_recv()
                except gosched.Closed:
                    pass
    for w in workers:
        w.result(60)


def test_counts_agree():
    """Locks exclude, semaphores limit, nothing is lost or woken twice."""
    lock, rw, units, group = Lock(), RWMutex(), Semaphore(3), WaitGroup()
    counts = {"lock": 0, "writes": 0, "readers": 0, "using": 0, "most": 0}
    guard = threading.Lock()

    def f(i):
        for n in range(100 * LONG):
            with lock:
                before = counts["lock"]
                if n % 20 == 0:
                    yield_()
                counts["lock"] = before + 1
            rw.lock()
            before = counts["writes"]
            if n % 10 == 0:
                yield_()
            counts["writes"] = before + 1
            rw.unlock()
            rw.rlock()
            rw.runlock()
            with units:
                with guard:
                    counts["using"] += 1
                    counts["most"] = max(counts["most"], counts["using"])
                if n % 10 == 0:
                    sleep(0.0001)
                with guard:
                    counts["using"] -= 1

    for i in range(10):
        group.go(f, i)
    assert group.wait(100)
    assert counts["lock"] == counts["writes"] == 1000 * LONG
    assert 1 <= counts["most"] <= 3 and units.value == 3


def test_an_event_and_its_waiters():
    """Nobody sleeps through a set() that comes between its look and its wait."""
    for _ in range(200 * LONG):
        event = Event()
        waiters = [go(event.wait) for _ in range(4)]
        setter = go(event.set)
        assert all(w.result(60) for w in waiters)
        setter.join()


def test_cancel_meets_waits():
    for _ in range(100 * LONG):
        channel, lock = Channel(), Lock()
        lock.acquire()
        gs = [go(channel.recv), go(lock.acquire), go(sleep, 100), go(channel.send, 1)]
        received = gs[0]
        for g in gs:
            go(g.cancel)
        for g in gs:
            assert g.join(60)
        assert all(g.cancelled() or g in (received, gs[3]) for g in gs)
        lock.release()
        assert lock.acquire(False)


def test_ends_are_seen():
    """result(), callbacks, pools and groups of goroutines that end at any moment."""
    for _ in range(100 * LONG):
        ended = []
        g = go(abs, -3)
        g.add_done_callback(ended.append)
        assert g.result(60) == 3
        until(lambda: ended == [g])
    pool = Pool(3)
    assert pool.map(abs, range(-200, 0)) == list(range(200, 0, -1))
    assert sorted(pool.imap_unordered(abs, range(-50, 0))) == list(range(1, 51))
    for _ in range(30 * LONG):
        with Group() as group:
            gs = [group.go(yield_) for _ in range(5)]
        assert all(g.done() for g in gs)
        with pytest.raises(BaseException) as caught:
            with Group() as group:
                for n in range(4):
                    group.go([sleep, divmod][n % 2], 1, *([0] * (n % 2)))
        assert not isinstance(caught.value, AssertionError)


def test_an_error_that_is_asked_for_is_not_reported():
    outcome = run("""
        import gosched
        def fails(n):
            raise KeyError(n)
        for n in range(200):
            g = gosched.go(fails, n)
            try:
                g.result()
            except KeyError:
                pass
            else:
                raise SystemExit("no error")
        print("all")
    """)
    assert outcome.out == "all\n" and outcome.err == ""


def test_an_error_that_nobody_asks_for_is_reported():
    outcome = run("""
        import gosched, sys
        kept = gosched.go(int, "kept")
        gosched.go(int, "lost")
        kept.join()
        if sys.argv[1] == "sleep":
            gosched.sleep(0.2)
    """, "sleep")
    assert outcome.err.count("ValueError") == 2, outcome


def test_objects_die_whose_thread_has_nothing_to_do():
    """Each object is freed by the thread that has made it."""

    class Big:
        alive = 0
        guard = threading.Lock()

        def __init__(self):
            self.content = [bytes(1000) for _ in range(10)]
            with Big.guard:
                Big.alive += 1

        def __del__(self):
            with Big.guard:
                Big.alive -= 1

    for _ in range(5):
        kept = several(lambda i: [Big() for _ in range(20)])
        assert Big.alive == 400
        del kept
        until(lambda: Big.alive == 0)


def test_memory_that_goes_from_thread_to_thread():
    """2 GB go through a channel, made by one goroutine and dropped by another."""
    n, size = 2000 * LONG, 1_000_000
    channel, most = Channel(4), 0

    def make():
        for i in range(n):
            channel.send([b"x" * (size + i % 100)])
        channel.close()

    before = resident()
    maker = go(make)
    consumer = go(lambda: sum(1 for _ in channel))
    while not consumer.done():
        sleep(0.02)
        most = max(most, resident() - before)
    maker.join()
    assert consumer.result() == n
    assert most < 400_000, "%d KiB" % most


def test_ten_thousand_wait():
    gc.collect()
    before = resident()
    event = Event()

    def wait(n):
        kept = [n]
        event.wait()
        return kept[0]

    gs = [go(wait, n) for n in range(10_000)]
    until(lambda: all(g._is_away() for g in gs), 60)
    each = (resident() - before) / 10_000
    assert each < 64, "%d KiB each" % each
    gc.collect()
    assert len(gosched.goroutines()) >= 10_000
    event.set()
    assert sum(g.result() for g in gs) == sum(range(10_000))
    del gs


def test_stacks_of_goroutines_that_run():
    stop = []

    def computes_here():
        while not stop:
            sum(range(100))
            if not PARALLEL:
                yield_()

    def waits_here(event):
        event.wait()

    event = Event()
    gs = [go(computes_here)] + [go(waits_here, event) for _ in range(3)]
    try:
        until(lambda: all(g.frame is not None for g in gs))
        for _ in range(50):
            stacks = [[f.name for f in traceback.extract_stack(g.frame)] for g in gs]
            assert all("waits_here" in stack for stack in stacks[1:])
            assert not stacks[0] or stacks[0][0] == "computes_here", stacks
            yield_()
    finally:
        stop.append(1)
        event.set()
        for g in gs:
            g.join()


def test_more_processors_at_any_time():
    outcome = run("""
        import gosched, threading
        def f():
            for _ in range(5):
                gosched.sleep(0.0001)
            return threading.get_native_id()
        threads = set()
        for n in (1, 2, 3, 1, 2):
            gosched.gomaxprocs(n)
            threads |= {g.result() for g in [gosched.go(f) for _ in range(50)]}
        print(len(threads) >= 1, gosched.gomaxprocs())
    """, env={"GOSCHED_PROCS": "1"})
    assert outcome.out == "True 2\n"


def test_forks_beside_others():
    """The child has the goroutine that has forked, and starts afresh; whatever others do in the parent."""
    outcome = run("""
        import gc, os, sys, warnings, gosched
        warnings.simplefilter("ignore", DeprecationWarning)
        stop = []
        def busy(n):
            while not stop:
                gc.collect(0) if n else sum(range(1000))
                gosched.yield_()
        def fork(n):
            pid = os.fork()
            if not pid:
                ok = sum(g.result() for g in [gosched.go(pow, 2, i) for i in range(4)]) == 15
                gc.collect()
                os._exit(0 if ok else 1)
            while True:
                got, status = os.waitpid(pid, os.WNOHANG)
                if got:
                    return status
                gosched.sleep(0.001)
        others = [gosched.go(busy, n) for n in range(3)]
        print([gosched.go(fork, n).result() for n in range(10)])
        stop.append(1)
        for g in others:
            g.join()
    """, timeout=100)
    assert outcome.out == "%s\n" % ([0] * 10), outcome


@pytest.mark.parametrize("way", ["pass", "sys.exit(3)", "gosched.go(sys.exit).join()", "raise KeyError"])
def test_the_program_ends_beside_others(way):
    outcome = run("""
        import gosched, sys
        def computes():
            while True:
                sum(range(100))
        def waits():
            try:
                gosched.sleep(100)
            finally:
                print("never")
        def turns():
            while True:
                gosched.yield_()
        # As many as fit beside the main program.
        if gosched.gomaxprocs() > 1 and not getattr(sys, "_is_gil_enabled", lambda: True)():
            gosched.go(computes)
        for _ in range(50):
            gosched.go(waits)
        for _ in range(3):
            gosched.go(turns)
        gosched.sleep(0.05)
        %s
    """ % way, status=None, timeout=100)
    assert outcome.status == {"pass": 0, "sys.exit(3)": 3, "raise KeyError": 1}.get(way, 0)
    assert "never" not in outcome.out


def test_signals_reach_the_main_program():
    outcome = run("""
        import gosched, os, signal, threading
        from gosched import go, sleep
        threads = []
        signal.signal(signal.SIGUSR1, lambda *args: threads.append(threading.get_native_id()))
        for _ in range(10):
            go(os.kill, os.getpid(), signal.SIGUSR1).join()
            sleep(0.02)
        assert threads and set(threads) == {threading.get_native_id()}, threads
        try:
            go(os.kill, os.getpid(), signal.SIGINT)
            sleep(50)
        except KeyboardInterrupt:
            print("interrupted", gosched.current() is gosched.main())
    """)
    assert outcome.out == "interrupted True\n", outcome


def test_threads_and_goroutines():
    """Plain threads use the same channels and locks."""
    channel, lock, total = Channel(3), Lock(), [0]

    def add(k):
        for _ in range(100):
            x = channel.recv()
            with lock:
                total[0] += x

    threads = [threading.Thread(target=add, args=(k,)) for k in range(3)]
    gs = [go(add, k) for k in range(3)]
    for t in threads:
        t.start()
    senders = [go(lambda: [channel.send(n) for n in range(100)]) for _ in range(6)]
    for g in gs + senders:
        g.result(100)
    for t in threads:
        while t.is_alive():
            sleep(0.001)
    assert total[0] == 6 * sum(range(100))


def test_blocking_calls_beside_all():
    began = time.monotonic()
    slow = [go(gosched.blocking, time.sleep, 0.2) for _ in range(5)]
    assert sum(several(lambda i: i, 100)) == sum(range(100))
    for g in slow:
        g.result()
    assert time.monotonic() - began >= 0.2
