"""Memory: what goroutines, channels, waits and errors leave behind. With GOSCHED_LONG=1 each test does 100 times as
much."""

import gc
import os
import sys
import time

import pytest

import gosched
from gosched import Cancelled, Channel, Event, Lock, Semaphore, Timeout, go, select, sleep, yield_
from helpers import run

LONG = 100 if os.environ.get("GOSCHED_LONG") else 1
pytestmark = pytest.mark.timeout(60 * (60 if LONG > 1 else 2))


def resident():
    """KiB of this process."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def flat(act, n=2000, rounds=4, kib=1500, objects=50):
    """Does it again and again: neither memory nor the number of objects grows from round to round."""
    def do():
        for _ in range(n):
            act()

    go(do).result()
    do()
    sleep(0.01)
    gc.collect()
    more = []
    # What a thread takes when it first runs goroutines (a heap of malloc's, its stack) comes once. A leak comes each time.
    for _ in range(3):
        before, count = resident(), len(gc.get_objects())
        for _ in range(rounds * LONG):
            go(do).result()
            do()
        sleep(0.01)
        gc.collect()
        # What is in the free lists of the interpreter and of malloc varies.
        assert len(gc.get_objects()) - count < objects
        more.append(resident() - before)
        if more[-1] < kib:
            break
    assert more[-1] < kib, "KiB more each time: %s" % more


def test_goroutines():
    flat(lambda: go(len, "").join())


def test_a_million_goroutines():
    """Each alive with 1000 others."""
    gs = [go(len, "") for _ in range(1000)]
    for g in gs:
        g.join()
    before = resident()
    for _ in range(25 * LONG):
        gs = [go(yield_) for _ in range(400)]
        for g in gs:
            g.join()
    assert resident() - before < 12000, "%d KiB more" % (resident() - before)


def test_goroutines_that_keep_thread_local_data():
    local = gosched.local()

    def f():
        local.x = [1] * 100

    flat(lambda: go(f).join(), n=500)


def test_errors():
    def f(n):
        big = [n] * 1000
        if n == 0:
            raise KeyError(big)
        f(n - 1)

    flat(lambda: go(f, 5).exception(), n=300)


def test_errors_in_cycles():
    def f():
        try:
            1 / 0
        except ZeroDivisionError as e:
            keep = e  # a cycle: the error, its traceback, this frame
            raise KeyError from keep

    flat(lambda: go(f).exception(), n=300, kib=3000)


def test_channels_with_values():
    def act():
        channel = Channel(10)
        for _ in range(5):
            channel.send([1] * 50)

    flat(act, n=500)


def test_channels_of_all_kinds():
    def act():
        for format in (None, "q", "d"):
            Channel(3, format).send(5)
        c = Channel()
        g = go(c.send, [1])
        c.recv()
        g.join()

    flat(act, n=300)


def test_large_channels():
    flat(lambda: Channel(100_000), n=50, kib=4000)


def test_timers():
    def act():
        gosched.after(0.0001)
        gosched.after(1000)
        with gosched.ticker(1000):
            pass
        with pytest.raises(TimeoutError):
            Channel().recv(0.00001)

    flat(act, n=300)


def test_cancelled_waits():
    channel, lock, sem, event = Channel(), Lock(), Semaphore(0), Event()
    lock.acquire()

    def act():
        for wait in (channel.recv, lambda: channel.send([1]), lock.acquire, sem.acquire, event.wait,
                     lambda: select(channel, ("send", channel, [1])), lambda: sleep(100)):
            g = go(wait)
            yield_()
            g.cancel()
            g.join()

    flat(act, n=60)


def test_timeouts():
    def act():
        with Timeout(0.00001, False):
            sleep(100)
        with Timeout(100):
            yield_()

    flat(act, n=300)


def test_blocking():
    # (Stacks that the library keeps for native goroutines are the larger part.)
    flat(lambda: gosched.blocking(len, [1] * 100), n=100, kib=60_000)


def test_blocking_given_up():
    def act():
        g = go(gosched.blocking, time.sleep, 0.0001)
        yield_()
        g.cancel()
        g.join()

    flat(act, n=100, kib=60_000)


def test_callbacks_and_names():
    def act():
        g = gosched.spawn(len, ("",), name="x" * 100)
        g.add_done_callback(lambda g: None)
        g.join()

    flat(act, n=500)


def test_io():
    r, w = os.pipe()
    os.set_blocking(r, False)

    def act():
        g = go(gosched._gosched.read, r, 10)
        yield_()
        os.write(w, b"x")
        assert g.result() == b"x"
        assert gosched._gosched.wait_fds([(r, 1), (w, 1)], 0.00001) == []

    flat(act, n=200)
    os.close(r), os.close(w)


def test_groups_and_pools():
    def act():
        with gosched.Group() as group:
            group.go(len, "")
            group.go(yield_)
        gosched.Pool(2).map(abs, [1, 2, 3])

    flat(act, n=100)


def test_threads():
    import threading

    channel = Channel()

    def act():
        t = threading.Thread(target=channel.recv)
        t.start()
        channel.send(1)
        t.join()

    flat(act, n=50, kib=4000)


def test_parked_goroutines():
    """Memory of 10,000 that wait, and how long a collection takes beside them."""
    outcome = run("""
        import gc, gosched, time, os
        def resident():
            with open("/proc/self/statm") as f:
                return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024
        event = gosched.Event()
        gosched.go(len, "").join()
        gc.collect()
        before = resident()
        def collection():
            times = []
            for _ in range(5):
                began = time.perf_counter()
                gc.collect()
                times.append(time.perf_counter() - began)
            return min(times) * 1000
        idle = collection()
        gs = [gosched.go(event.wait) for _ in range(10000)]
        while gosched.goroutines().__len__() < 10001:
            gosched.yield_()
        each = (resident() - before) / 10000
        parked = collection()
        event.set()
        for g in gs: g.join()
        del gs, g
        gosched.sleep(0.05)
        gc.collect()
        after = (resident() - before) / 10000
        print("%.1f KiB each, %.1f KiB afterwards; gc %.2f ms, %.2f ms beside them" % (each, after, idle, parked))
        assert each < 60, each
        assert parked < idle + 100, (idle, parked)
    """, timeout=100)
    print(outcome.out)


@pytest.mark.skipif(not hasattr(sys, "gettotalrefcount"), reason="needs a debug build of Python")
def test_total_of_references():
    def act():
        go(len, "").join()
        Channel(1).send([])

    for _ in range(3):
        act()
    before = sys.gettotalrefcount()
    for _ in range(1000):
        act()
    assert sys.gettotalrefcount() - before < 100
