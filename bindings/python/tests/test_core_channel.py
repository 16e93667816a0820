"""Channels, select, after and tickers."""

import gc
import sys
import threading
import time
import weakref

import pytest

import gosched
from gosched import Cancelled, Channel, Closed, after, go, select, sleep, ticker, yield_
from helpers import one_at_a_time, park, run, until


class Thing:
    pass


def test_unbuffered():
    channel = Channel()
    g = go(channel.send, 5)
    assert channel.recv() == 5
    assert g.result() is None
    assert len(channel) == 0 and channel.capacity == 0


def test_buffered():
    channel = Channel(3)
    for i in range(3):
        channel.send(i)
    assert len(channel) == 3 and channel.capacity == 3
    assert channel.try_send(3) is False
    assert [channel.recv() for _ in range(3)] == [0, 1, 2]
    assert channel.try_recv() == (False, None)
    assert channel.try_send(4) is True
    assert channel.try_recv() == (True, 4)


def test_order():
    channel = Channel(7)

    def send():
        for i in range(1000):
            channel.send(i)
        channel.close()

    go(send)
    assert list(channel) == list(range(1000))


@one_at_a_time
def test_waiters_come_in_their_order():
    channel, got = Channel(), []
    gs = [park(lambda: got.append((n, channel.recv()))) for n in range(5)]
    for i in range(5):
        channel.send(i)
    for g in gs:
        g.join()
    assert [value for _, value in got] == list(range(5))


def test_any_object():
    channel = Channel(1)
    for value in (None, 0, "", [], channel, Thing, float("nan"), 1 << 100):
        channel.send(value)
        assert channel.recv() is value


def test_timeouts():
    channel = Channel()
    for timeout in (0, -1, 0.001, False):
        with pytest.raises(TimeoutError):
            channel.send(1, timeout)
        with pytest.raises(TimeoutError):
            channel.recv(timeout=timeout)
    channel = Channel(1)
    channel.send(1, timeout=0)
    assert channel.recv(0) == 1
    channel.send(1, float("inf"))
    assert channel.recv(1e300) == 1


def test_close():
    channel = Channel(2)
    channel.send(1)
    channel.send(2)
    assert not channel.closed
    channel.close()
    assert channel.closed and "closed" in repr(channel)
    with pytest.raises(Closed):
        channel.send(3)
    with pytest.raises(Closed):
        channel.try_send(3)
    with pytest.raises(Closed):
        channel.close()
    assert channel.recv() == 1
    assert channel.try_recv() == (True, 2)
    for receive in (channel.recv, channel.try_recv, lambda: channel.recv(0)):
        with pytest.raises(Closed):
            receive()
    assert list(channel) == []


def test_close_wakes_all():
    channel = Channel()
    receivers = [park(channel.recv) for _ in range(5)]
    channel.close()
    for g in receivers:
        with pytest.raises(Closed):
            g.result(10)
    channel = Channel()
    value = Thing()
    before = sys.getrefcount(value)
    senders = [park(channel.send, value) for _ in range(5)]
    channel.close()
    for g in senders:
        with pytest.raises(Closed):
            g.result(10)
    del senders, g
    gc.collect()
    assert sys.getrefcount(value) == before


def test_with():
    with Channel(1) as channel:
        channel.send(1)
    assert channel.closed
    with Channel(1) as channel:
        channel.close()
    with pytest.raises(KeyError):
        with Channel() as channel:
            raise KeyError
    assert channel.closed


def test_iteration_ends_with_the_channel():
    channel = Channel()
    g = park(lambda: list(channel))
    channel.send(1)
    channel.close()
    assert g.result() == [1]


def test_iterator_protocol():
    channel = Channel(1)
    assert iter(channel) is channel
    channel.send(1)
    assert next(channel) == 1
    channel.close()
    with pytest.raises(StopIteration):
        next(channel)


@pytest.mark.parametrize("call, kind", [
    (lambda: Channel(-1), ValueError),
    (lambda: Channel("1"), TypeError),
    (lambda: Channel(1.5), TypeError),
    (lambda: Channel(1 << 62), MemoryError),
    (lambda: Channel(sys.maxsize), MemoryError),
    (lambda: Channel(1 << 70), OverflowError),
    (lambda: Channel(1, "x"), ValueError),
    (lambda: Channel(1, 5), TypeError),
    (lambda: Channel(1).send(), TypeError),
    (lambda: Channel(1).send(1, "1"), TypeError),
    (lambda: Channel(1).send(1, float("nan")), ValueError),
    (lambda: Channel(1).recv(float("nan")), ValueError),
    (lambda: Channel(1).recv("x"), TypeError),
    (lambda: Channel(1, "q").send("x"), TypeError),
    (lambda: Channel(1, "q").send(1.5), TypeError),
    (lambda: Channel(1, "q").send(1 << 63), OverflowError),
    (lambda: Channel(1, "q").try_send(-(1 << 63) - 1), OverflowError),
    (lambda: Channel(1, "d").send("x"), TypeError),
    (lambda: Channel(1, "d").send(1 << 5000), OverflowError),
    (lambda: after("x"), TypeError),
    (lambda: after(5).send(1), TypeError),
    (lambda: after(5).try_send(1), TypeError),
])
def test_bad_input(call, kind):
    with pytest.raises(kind):
        call()


def test_formats():
    channel = Channel(4, "q")
    for value in (0, -1, (1 << 63) - 1, -(1 << 63)):
        channel.send(value)
    assert [channel.recv() for _ in range(4)] == [0, -1, (1 << 63) - 1, -(1 << 63)]
    channel.send(True)
    assert channel.recv() == 1
    channel = Channel(4, "d")
    for value in (0, 1.5, float("inf"), -2.25):
        channel.send(value)
    assert [channel.recv() for _ in range(4)] == [0, 1.5, float("inf"), -2.25]
    with pytest.raises(TypeError):
        channel.send(None)


def test_truth_and_repr():
    channel = Channel(3)
    channel.send(1)
    assert bool(Channel()) and bool(channel)
    assert repr(channel) == "<gosched.Channel 1 of 3>"


def test_subclass_and_weakref():
    class Mine(Channel):
        def __init__(self, capacity):
            self.sent = 0

        def send(self, value):
            self.sent += 1
            super().send(value)

    channel = Mine(1)
    channel.send(5)
    assert (channel.recv(), channel.sent) == (5, 1)
    assert select(("send", channel, 1)) == (0, None, True)
    ref = weakref.ref(channel)
    del channel
    assert ref() is None


def test_reference_counts():
    value, channel = Thing(), Channel(1)
    before = sys.getrefcount(value)
    for _ in range(10):
        channel.send(value)
        assert sys.getrefcount(value) == before + 1
        assert channel.try_send(value) is False
        with pytest.raises(TimeoutError):
            channel.send(value, 0.0001)
        assert sys.getrefcount(value) == before + 1
        g = park(channel.send, value)
        g.cancel()
        with pytest.raises(Cancelled):
            g.result()
        del g
        channel.recv()
        gc.collect()
        assert sys.getrefcount(value) == before
    channel.close()
    for _ in range(5):
        with pytest.raises(Closed):
            channel.send(value)
    assert sys.getrefcount(value) == before


def test_dropped_with_values():
    value = Thing()
    before = sys.getrefcount(value)
    for _ in range(100):
        channel = Channel(10)
        for _ in range(10):
            channel.send(value)
    del channel
    Channel()
    Channel()
    assert sys.getrefcount(value) == before


def test_dropped_with_values_whose_destructors_use_channels():
    dropped = Channel(100)

    class Last:
        def __del__(self):
            sleep(0)
            c = Channel(1)
            c.send(Thing())
            dropped.send(1)

    def fill():
        c = Channel(5)
        for _ in range(5):
            c.send(Last())

    for _ in range(10):
        fill()
    until(lambda: (Channel(), len(dropped) == 50)[1])


def test_dropped_values_don_t_wait_for_the_next_channel():
    """The values of a channel that is dropped go without another channel being made."""
    channel, thing = Channel(1), Thing()
    ref = weakref.ref(thing)
    channel.send(thing)
    del channel, thing
    assert ref() is None


def test_cancelled_receiver_takes_nothing():
    channel = Channel()
    gs = [park(channel.recv) for _ in range(10)]
    for g in gs[:9]:
        g.cancel()
    channel.send(5)
    assert gs[9].result() == 5
    assert all(g.join(20) and g.cancelled() for g in gs[:9])


def test_threads():
    channel, results = Channel(), []

    def thread():
        for value in channel:
            results.append(value)

    threads = [threading.Thread(target=thread) for _ in range(4)]
    for t in threads:
        t.start()
    for i in range(400):
        channel.send(i)
    channel.close()
    gosched.blocking(lambda: [t.join() for t in threads])
    assert sorted(results) == list(range(400))


def test_threads_send():
    channel = Channel(2)
    done = []

    def thread():
        for i in range(100):
            channel.send(i, 30)
        done.append(1)

    threads = [threading.Thread(target=thread) for _ in range(4)]
    for t in threads:
        t.start()
    assert sorted(channel.recv(30) for _ in range(400)) == sorted(list(range(100)) * 4)
    for t in threads:
        t.join()
    with pytest.raises(TimeoutError):
        gosched.blocking(channel.recv, 0.001)


# select

def test_select_receives():
    a, b = Channel(1), Channel(1)
    b.send("x")
    assert select(("recv", a), ("recv", b)) == (1, "x", True)
    assert select(a.recv_case(), ("recv", b), ("send", a, 5)) == (2, None, True)
    assert select(a, b) == (0, 5, True)


def test_select_waits():
    a, b = Channel(), Channel()
    g = park(select, a.recv_case(), b.send_case("v"))
    assert b.recv() == "v"
    assert g.result() == (1, None, True)
    g = park(select, a.recv_case(), b.send_case("v"))
    a.send("w")
    assert g.result() == (0, "w", True)


def test_select_is_fair():
    a, b = Channel(100), Channel(100)
    for _ in range(100):
        a.send(1), b.send(2)
    chosen = [select(a, b)[0] for _ in range(100)]
    assert 20 < sum(chosen) < 80


def test_select_timeout():
    a = Channel()
    for timeout in (0, -1, 0.001):
        with pytest.raises(TimeoutError):
            select(a, ("send", a, 1), timeout=timeout)
    with pytest.raises(TimeoutError):
        select(timeout=0)
    with pytest.raises(TimeoutError):
        select(None, None, timeout=0.001)
    with pytest.raises(ValueError):
        select(a, timeout=float("nan"))


def test_select_closed():
    a, b = Channel(), Channel(1)
    a.close()
    assert select(("recv", a)) == (0, None, False)
    b.send(1)
    b.close()
    assert select(b) == (0, 1, True)
    assert select(b) == (0, None, False)
    for timeout in (None, 0, 1):
        with pytest.raises(Closed):
            select(("send", a, 1), timeout=timeout)


def test_close_ends_a_select():
    a, b = Channel(), Channel()
    value = Thing()
    before = sys.getrefcount(value)
    g = park(select, a, b.send_case(value))
    b.close()
    with pytest.raises(Closed):
        g.result()
    g = park(select, a, None)
    a.close()
    assert g.result() == (0, None, False)
    del g
    gc.collect()
    assert sys.getrefcount(value) == before


@pytest.mark.parametrize("case", [
    1, "recv", (), ("recv",), ("recv", 1), ("send", Channel()), ("recv", Channel(), 1), ("take", Channel()),
    (Channel(), "recv"), (1, Channel()), ["recv", Channel()], ("send", None, 1), ("recv", None), (b"recv", Channel()),
])
def test_select_bad_cases(case):
    with pytest.raises(TypeError):
        select(case)
    # What the cases before it took is given back.
    value, channel = Thing(), Channel(1)
    before = sys.getrefcount(value), sys.getrefcount(channel)
    with pytest.raises(TypeError):
        select(("send", channel, value), case)
    assert (sys.getrefcount(value), sys.getrefcount(channel)) == before
    assert len(channel) == 0


def test_select_bad_values():
    value, a, b, c = Thing(), Channel(1), Channel(1, "q"), Channel(1, "d")
    before = sys.getrefcount(value)
    for case in (("send", b, 1.5), ("send", b, 1 << 64), ("send", c, "x"), ("send", after(9), 1)):
        with pytest.raises((TypeError, OverflowError)):
            select(("send", a, value), case, ("send", a, value))
    assert sys.getrefcount(value) == before and len(a) == len(b) == len(c) == 0
    assert select(("send", b, 7)) == (0, None, True)
    assert select(b) == (0, 7, True)
    assert select(("send", c, 7)) == (0, None, True)
    assert select(c) == (0, 7.0, True)


def test_select_reference_counts():
    value, a, b, full = Thing(), Channel(1), Channel(), Channel(1)
    full.send(1)
    before = [sys.getrefcount(x) for x in (value, a, b, full)]
    for _ in range(20):
        assert select(("send", a, value), ("recv", b), ("send", full, value))[0] == 0
        assert select(("recv", a), ("send", full, value)) == (0, value, True)
        with pytest.raises(TimeoutError):
            select(("send", full, value), ("send", b, value), ("recv", a), timeout=0.0001)
        g = park(select, ("send", full, value), ("send", b, value), ("recv", a))
        g.cancel()
        with pytest.raises(Cancelled):
            g.result()
        del g
    gc.collect()
    assert [sys.getrefcount(x) for x in (value, a, b, full)] == before


def test_select_one_channel_twice():
    a = Channel()
    g = park(select, ("send", a, 1), ("recv", a))
    assert select(("send", a, 2), ("recv", a)) in [(0, None, True), (1, 1, True)]
    assert g.result() in [(0, None, True), (1, 2, True)]


def test_select_many_cases():
    channels = [Channel() for _ in range(500)]
    g = park(lambda: select(*channels))
    channels[317].send("x")
    assert g.result() == (317, "x", True)


def test_select_of_nothing_waits():
    g = park(select)
    h = park(select, None)
    assert not g.join(0.01)
    g.cancel(), h.cancel()
    assert g.join(10) and h.join(10)


def test_select_on_threads():
    a, b = Channel(), Channel()
    got = []
    t = threading.Thread(target=lambda: got.append(select(a, b)))
    t.start()
    b.send(3)
    t.join()
    assert got == [(1, 3, True)]


# timers

def test_after():
    began = time.monotonic()
    at = after(0.02).recv()
    assert began + 0.02 <= at <= time.monotonic()
    after(0).recv(10)
    after(-1).recv(10)
    assert select(after(0.001), Channel())[0] == 0
    with pytest.raises(TimeoutError):
        after(1e9).recv(0.001)
    with pytest.raises(TimeoutError):
        after(float("inf")).recv(0)


def test_ticker():
    with ticker(0.002) as t:
        times = [t.recv() for _ in range(5)]
        assert times == sorted(times)
        assert select(t.recv_case(), timeout=30)[0] == 0
        for _, at in zip(range(3), t):
            assert at > times[-1]
    t.stop()
    t.channel.try_recv()
    with pytest.raises(TimeoutError):
        t.recv(0.01)


def test_tickers_that_are_dropped():
    for _ in range(1000):
        ticker(0.001)
        after(0.001)
    sleep(0.01)
    Channel()


def test_stop_of_what_is_no_ticker():
    with pytest.raises((ValueError, OSError)):
        gosched._gosched._ticker_stop(Channel())
    t = ticker(1)
    t.stop()
    t.stop()


def test_closing_a_timer_s_channel():
    for make in (lambda: after(0.001), lambda: ticker(0.001).channel):
        channel = make()
        try:
            channel.close()
        except (ValueError, OSError, Closed):
            continue
        sleep(0.005)
