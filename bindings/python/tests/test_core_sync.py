"""Locks and the like: waiting, handing over, timeouts, and cancellation that loses nothing."""

import gc
import random
import sys
import threading
import time
import weakref

import pytest

import gosched
from gosched import (
    Cancelled, Channel, Event, Group, Lock, Mutex, Once, Pool, RLock, RWMutex, Semaphore, Timeout, WaitGroup, go,
    sleep, with_timeout, yield_,
)
from helpers import one_at_a_time, park, run, until


@pytest.fixture(params=[Lock, RLock])
def kind(request):
    return request.param


@pytest.mark.parametrize("make", [Lock, RLock, Semaphore])
def test_acquire_takes_numbers_as_python_s_does(make):
    lock = make()
    assert lock.acquire(1) is True
    assert go(lock.acquire, 0).result() is False
    assert go(lock.acquire, blocking=0).result() is False
    lock.release()
    assert lock.acquire(2) is True


def test_lock(kind):
    lock = kind()
    assert lock.acquire() is True
    assert lock.locked()
    other = go(lock.acquire, False)
    assert other.result() is False
    assert go(lock.acquire, timeout=0.001).result() is False
    lock.release()
    assert not lock.locked()
    with pytest.raises(RuntimeError):
        lock.release()
    with lock as held:
        assert held is True and lock.locked()
    assert not lock.locked()
    assert "unlocked" in repr(lock)


def test_lock_bad_input(kind):
    lock = kind()
    for args, error in [((False, 1), ValueError), ((True, -2), ValueError), ((True, 1e300), OverflowError),
                        ((True, float("nan")), ValueError), (("x", "y"), TypeError)]:
        with pytest.raises(error):
            lock.acquire(*args)
        assert not lock.locked()


def test_lock_names():
    lock = Lock()
    assert Mutex is Lock
    lock.lock()
    assert lock.try_lock() is False
    lock.unlock()
    assert lock.try_lock() is True
    assert go(lock.release).join()
    assert not lock.locked()


def test_mutual_exclusion(kind):
    lock, inside, most = kind(), [0], [0]

    def f():
        for _ in range(20):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                if random.random() < 0.5:
                    yield_()
                inside[0] -= 1

    gs = [go(f) for _ in range(20)]
    for g in gs:
        g.result()
    assert most == [1]


def test_mutual_exclusion_with_threads(kind):
    lock, inside, most = kind(), [0], [0]

    def f():
        for _ in range(50):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.00001)
                inside[0] -= 1

    threads = [threading.Thread(target=f) for _ in range(4)]
    gs = [go(f) for _ in range(4)]
    for t in threads:
        t.start()
    for g in gs:
        g.result()
    for t in threads:
        gosched.blocking(t.join)
    assert most == [1]


def test_lock_is_handed_over_in_order():
    lock, got = Lock(), []

    def f(n):
        with lock:
            got.append(n)

    with lock:
        gs = [park(f, n) for n in range(10)]
    # It has been given away: the giver comes last.
    with lock:
        assert got == list(range(10))
    for g in gs:
        g.join()


def test_rlock():
    lock = RLock()
    with lock, lock:
        assert lock._is_owned() and lock._recursion_count() == 2 and "count=2" in repr(lock)
        assert go(lock._is_owned).result() is False and go(lock._recursion_count).result() == 0
        with pytest.raises(RuntimeError):
            go(lock.release).result()
        saved = lock._release_save()
        assert not lock._is_owned() and not lock.locked()
        assert go(lambda: lock.acquire() and lock.release()).result() is None
        lock._acquire_restore(saved)
        assert lock._recursion_count() == 2
    with pytest.raises(RuntimeError):
        lock.release()
    with pytest.raises(RuntimeError):
        lock._release_save()
    with pytest.raises(TypeError):
        lock._acquire_restore(1)


def test_rlock_of_goroutines_on_one_thread():
    lock = RLock()
    with lock:
        assert go(lock.acquire, False).result() is False
        g = park(lock.__enter__)
        assert not g.done()
    assert g.result() is True
    assert lock.locked()


def cancel_some(make_waiter, count=20):
    """Starts many that wait, and cancels some of them; gives the rest."""
    waiters = [park(make_waiter) for _ in range(count)]
    gone = waiters[::3] + waiters[1::3]
    for g in gone:
        g.cancel()
    return waiters[2::3], gone


def test_cancelled_waiters_lose_no_lock(kind):
    lock = kind()

    def use():
        with lock:
            yield_()

    with lock:
        rest, gone = cancel_some(use)
    for g in rest:
        assert g.result(20) is None
    for g in gone:
        g.join()
        assert g.cancelled()
    assert not lock.locked()


def test_cancel_and_release_at_once(kind):
    """Some are cancelled when they have been woken already."""
    lock = kind()

    def use():
        with lock:
            pass

    for count in range(1, 8):
        lock.acquire()
        gs = [park(use) for _ in range(count)]
        lock.release()
        for g in gs[::2]:
            g.cancel()
        for g in gs:
            assert g.join(20)
        assert not lock.locked()


@pytest.mark.parametrize("make", [Lock, RLock])
def test_condition_has_its_lock_again_however_the_wait_ends(make):
    cond = gosched.Condition(make())

    def waits():
        with cond:
            cond.wait()

    def takes():
        if not cond.acquire(False):
            return False
        cond.release()
        return True

    g = park(waits)
    with cond:
        # The second cancel finds it where it waits for the lock.
        for _ in range(2):
            g.cancel()
            sleep(0.01)
        assert not g.done() and go(takes).result() is False
    g.join()
    assert g.cancelled() and go(takes).result() is True


@pytest.mark.parametrize("make", [Lock, RLock])
def test_condition_passes_the_notification_of_a_cancelled_one_on(make):
    cond = gosched.Condition(make())

    def waits():
        with cond:
            return cond.wait()

    first, second = park(waits), park(waits)
    with cond:
        first.cancel()
        sleep(0.01)
        cond.notify()
    assert second.result(timeout=20) is True
    first.join()
    assert first.cancelled()


@pytest.mark.parametrize("pause", [0, 0.01])
def test_queue_and_a_cancelled_consumer(pause):
    for kind in (gosched.Queue, gosched.queue.LifoQueue):
        q = kind()
        consumers = [park(q.get) for _ in range(2)]
        with q.mutex:
            # Twice, as above.
            for _ in range(2):
                consumers[0].cancel()
                if pause:
                    sleep(pause)
        q.put("item")
        until(lambda: any(g.done() and not g.cancelled() for g in consumers))
        consumers[1].cancel()
        for g in consumers:
            g.join()
        assert [g.result() for g in consumers if not g.cancelled()] == ["item"]
        assert q.mutex.acquire(False)


def test_queue_and_a_cancelled_call_that_waits_for_nothing():
    q = gosched.Queue(1)
    for call, size in (lambda: q.put_nowait("item"), 1), (q.get_nowait, 0), (q.task_done, 0):
        with q.mutex:
            g = park(lambda: (call(), sleep(20)))
            g.cancel()
            sleep(0.01)
            assert not g.done()
        g.join()
        assert g.cancelled() and q.qsize() == size
    q.join()


def test_semaphore():
    s = Semaphore(2)
    assert s.acquire() and s.acquire()
    assert s.value == 0
    assert s.acquire(False) is False
    assert s.acquire(timeout=0.001) is False
    s.release()
    assert s.value == 1
    with s:
        assert s.value == 0
    s.release(5)
    assert s.value == 6
    with pytest.raises(ValueError):
        Semaphore(-1)
    with pytest.raises(ValueError):
        s.release(0)
    for n in -1, 2**40:
        with pytest.raises(ValueError):
            s.release(n)
    assert s.value == 6
    with pytest.raises(ValueError):
        s.acquire(False, 1)
    with pytest.raises(ValueError):
        s.acquire(timeout=float("nan"))
    with pytest.raises(TypeError):
        Semaphore("x")
    assert s.value == 6


def test_semaphore_limits():
    s, lock, inside, most = Semaphore(3), Mutex(), [0], [0]

    def f():
        with s:
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            sleep(0.0005)
            with lock:
                inside[0] -= 1

    gs = [go(f) for _ in range(30)]
    for g in gs:
        g.result()
    assert most == [3] and s.value == 3


def test_semaphore_with_as_many_units_as_it_can_have():
    most = 2**63 - 1
    semaphore = Semaphore(most)
    for n in (1, 2, 2**32 - 1):
        with pytest.raises(OverflowError):
            semaphore.release(n)
        assert semaphore.value == most
    with semaphore:
        assert semaphore.value == most - 1
        with pytest.raises(OverflowError):
            semaphore.release(2)
    assert semaphore.value == most


def test_cancelled_waiters_lose_no_unit():
    s = Semaphore(0)
    rest, gone = cancel_some(s.acquire)
    s.release(len(rest))
    for g in rest:
        assert g.result(20) is True
    for g in gone:
        g.join()
    assert s.value == 0
    for count in range(1, 8):
        gs = [park(s.acquire) for _ in range(count)]
        s.release(count)
        for g in gs[::2]:
            g.cancel()
        for g in gs:
            assert g.join(20)
        got = sum(not g.cancelled() for g in gs)
        assert s.value == count - got
        while s.acquire(False):
            pass


def test_timeouts_lose_no_unit():
    s, got = Semaphore(0), []

    def f():
        for _ in range(20):
            if s.acquire(timeout=random.random() / 1000):
                got.append(1)

    gs = [go(f) for _ in range(20)]
    threads = [threading.Thread(target=f) for _ in range(2)]
    for t in threads:
        t.start()
    given = 0
    while not all(g.done() for g in gs) or any(t.is_alive() for t in threads):
        s.release()
        given += 1
        sleep(random.random() / 2000)
    assert s.value == given - len(got)


def test_event():
    event = Event()
    assert not event.is_set()
    assert event.wait(0) is False and event.wait(0.001) is False
    gs = [park(event.wait) for _ in range(10)]
    event.set()
    assert all(g.result() for g in gs)
    assert event.is_set() and event.wait(0) is True and event.wait() is True
    event.set()
    event.clear()
    assert not event.is_set()
    g = park(event.wait, 100)
    event.set()
    event.clear()
    assert g.result() is True


def test_event_and_threads():
    event, got = Event(), []
    threads = [threading.Thread(target=lambda: got.append(event.wait(60))) for _ in range(5)]
    for t in threads:
        t.start()
    sleep(0.005)
    event.set()
    for t in threads:
        t.join()
    assert got == [True] * 5
    event = Event()
    t = threading.Timer(0.005, event.set)
    t.start()
    assert event.wait(60)
    t.join()


def test_wait_group():
    wg, got = WaitGroup(), []
    for n in range(5):
        wg.go(lambda: (sleep(0.001), got.append(1)))
    assert wg.count == 5
    assert wg.wait() is True and len(got) == 5
    assert wg.wait(0) is True
    wg.add(2)
    assert wg.wait(0) is False and wg.wait(0.001) is False
    g = park(wg.wait)
    wg.done()
    assert not g.join(0.001)
    wg.done()
    assert g.result() is True
    with pytest.raises(ValueError):
        wg.done()
    with pytest.raises(ValueError):
        wg.add(-1)
    assert wg.count == 0
    with pytest.raises(OverflowError):
        wg.add(1 << 70)


def test_wait_group_and_errors(monkeypatch):
    monkeypatch.setattr(gosched, "excepthook", lambda g, e: None)
    wg = WaitGroup()
    gs = [wg.go(lambda: 1 / 0), wg.go(sleep, 100), wg.go(pow, 2, 3)]
    gs[1].cancel()
    assert wg.wait(20)
    assert gs[2].result() == 8
    with pytest.raises(TypeError):
        wg.go(1)
    assert wg.wait(20), "a goroutine that couldn't start counts"


def test_wait_group_cancelled_before_it_began():
    wg = WaitGroup()
    g = wg.go(sleep, 100)
    g.cancel()
    assert wg.wait(20)


def test_rwmutex():
    m = RWMutex()
    assert m.rlock() and m.rlock()
    assert m.lock(0) is False and m.lock(0.001) is False
    m.runlock()
    m.runlock()
    assert m.lock() is True
    assert m.rlock(0) is False and m.rlock(0.001) is False and m.lock(0.001) is False
    with pytest.raises(RuntimeError):
        m.runlock()
    m.unlock()
    for release in (m.unlock, m.runlock):
        with pytest.raises(RuntimeError):
            release()
    with pytest.raises(ValueError):
        m.lock(float("nan"))


def test_rwmutex_in_with_blocks():
    m = RWMutex()
    with m.rlocker() as first, m.rlocker() as second:
        assert first is True and second is True
        assert m.lock(0) is False
    with m as held:
        assert held is True and m.rlocker().lock(0) is False
    with pytest.raises(KeyError), m:
        raise KeyError
    with pytest.raises(KeyError), m.rlocker():
        raise KeyError
    with pytest.raises(RuntimeError):
        m.rlocker().unlock()
    assert m.lock(0) is True


def test_rwmutex_prefers_writers_to_new_readers():
    m, got = RWMutex(), []

    def write(n):
        m.lock()
        got.append(("write", n))
        m.unlock()

    def read(n):
        m.rlock()
        got.append(("read", n))
        m.runlock()

    m.rlock()
    gs = [park(write, 1), park(read, 1), park(read, 2), park(write, 2)]
    assert m.rlock(0) is False
    m.runlock()
    for g in gs:
        g.join()
    assert got[0] == ("write", 1) and set(got[1:3]) == {("read", 1), ("read", 2)}


def test_rwmutex_writer_that_gives_up():
    m = RWMutex()
    m.rlock()
    for end in (lambda g: g.cancel(), lambda g: g.throw(KeyError())):
        writer = park(m.lock)
        readers = [park(m.rlock) for _ in range(3)]
        end(writer)
        for g in readers:
            assert g.result(20) is True
            m.runlock()
    assert m.lock(0.001) is False
    assert m.rlock(0)


def test_rwmutex_stress():
    # Lists: append and pop are one step where goroutines run in parallel, too.
    m, readers, writers, bad = RWMutex(), [], [], []

    def check():
        counts = len(readers), len(writers)
        if counts[1] > 1 or counts[1] and counts[0]:
            bad.append(counts)

    def f(seed):
        random_ = random.Random(seed)
        for _ in range(40):
            write = random_.random() < 0.3
            timeout = random_.choice([None, 0.0005])
            try:
                if not (m.lock if write else m.rlock)(timeout):
                    continue
            except Cancelled:
                continue
            inside = writers if write else readers
            inside.append(seed)
            check()
            try:
                yield_()
            except Cancelled:
                pass
            check()
            inside.pop()
            (m.unlock if write else m.runlock)()

    gs = [go(f, n) for n in range(20)]
    for _ in range(100):
        random.choice(gs).cancel()
        yield_()
    for g in gs:
        assert g.join(60)
    assert not bad
    assert m.lock(0)


def test_once():
    once, got = Once(), []

    def init():
        sleep(0.001)
        got.append(1)

    gs = [go(once.do, init) for _ in range(10)]
    for g in gs:
        g.result()
    assert got == [1]
    once = Once()
    with pytest.raises(ZeroDivisionError):
        once.do(lambda: 1 / 0)
    once.do(got.append, 2)
    assert got == [1]


def test_objects_with_waiters_are_kept():
    """A goroutine that waits for an object keeps it."""
    for kind in (Lock, RLock, Event, WaitGroup, Semaphore, RWMutex, Channel):
        thing = kind(0) if kind is Semaphore else kind()
        if kind in (Lock, RLock):
            thing.acquire()
        if kind is RWMutex:
            thing.lock()
        if kind is WaitGroup:
            thing.add()
        wait = next(getattr(thing, name) for name in ("recv", "acquire", "wait", "lock") if hasattr(thing, name))
        g = park(wait)
        ref = weakref.ref(thing)
        del thing, wait
        gc.collect()
        assert ref() is not None
        g.cancel()
        g.join()
        del g
        until(lambda: ref() is None)


def test_weakrefs_and_subclasses():
    for kind in (Lock, RLock, Event, WaitGroup, Semaphore, RWMutex):
        class Mine(kind):
            x = 5

        thing = Mine()
        ref = weakref.ref(thing)
        assert thing.x == ref().x == 5
        thing.y = 1
        del thing
        assert ref() is None


def test_subclasses_with_arguments_of_their_own():
    for kind in (Lock, RLock, Event, WaitGroup, Semaphore, RWMutex):
        class Named(kind):
            def __init__(self, name, *, size=1):
                super().__init__()
                self.name = name

        assert Named("a").name == Named(name="b", size=2).name.replace("b", "a") == "a"

    class Seats(Semaphore):
        def __init__(self, name, n):
            super().__init__(n)

    seats = Seats("a", 2)
    assert seats.value == 2 and seats.acquire() and seats.acquire() and not seats.acquire(False)
    with pytest.raises(ValueError):
        Seats("a", -1)
    assert Semaphore().value == 1 and Semaphore(5).value == Semaphore(value=5).value == 5
    for kind in (Lock, Event, WaitGroup, RWMutex):
        class Same(kind):
            pass

        for cls in (kind, Same):
            with pytest.raises(TypeError):
                cls(1)
            with pytest.raises(TypeError):
                cls(size=1)
    for args in ((1, 2), ("x",)):
        with pytest.raises(TypeError):
            Semaphore(*args)


def test_dropped_while_locked():
    for _ in range(1000):
        Lock().acquire()
        RLock().acquire()


# Timeout

def test_timeout():
    with pytest.raises(Timeout) as caught:
        with Timeout(0.001) as t:
            assert t.pending
            sleep(100)
    assert caught.value is t and not t.pending
    sleep(0.005)


def test_timeout_that_is_not_needed():
    with Timeout(100):
        sleep(0)
    with Timeout(None) as t:
        assert not t.pending
        sleep(0)


def test_timeout_false():
    with Timeout(0.001, False):
        sleep(100)
        pytest.fail("goes on")


def test_timeout_exceptions():
    with pytest.raises(KeyError):
        with Timeout(0.001, KeyError):
            sleep(100)
    error = ValueError("mine")
    with pytest.raises(ValueError) as caught:
        with Timeout(0.001, error):
            sleep(100)
    assert caught.value is error
    with pytest.raises(Timeout):
        with Timeout(0.001, True):
            sleep(100)
    for wrong in 3, int, "late":
        timeout = Timeout(0.001, wrong)
        with pytest.raises(TypeError, match="must derive from BaseException"):
            timeout.start()
        assert not timeout.pending
    sleep(0.002)


@pytest.mark.parametrize("wait", [
    lambda: sleep(100), lambda: Channel().recv(), lambda: Channel().send(1), lambda: Event().wait(),
    lambda: Semaphore(0).acquire(), lambda: gosched.select(Channel()), lambda: gosched.select(),
    lambda: go(sleep, 0.05).join(), lambda: gosched.blocking(time.sleep, 0.05), lambda: Channel().recv(100),
    lambda: gosched._gosched.wait_fds([], None), lambda: Event().wait(50), lambda: gosched.after(100).recv(),
    lambda: [yield_() for _ in range(10**9)],
])
def test_timeout_ends_each_wait(wait):
    with pytest.raises(Timeout):
        with Timeout(0.001):
            wait()
    yield_()


def test_timeout_of_nothing():
    for seconds in (0, -1):
        with pytest.raises(Timeout):
            with Timeout(seconds):
                sleep(100)
    with pytest.raises(ValueError):
        with Timeout(float("nan")):
            pass
    with pytest.raises(TypeError):
        with Timeout("x"):
            pass
    sleep(0)


def test_nested_timeouts():
    with pytest.raises(Timeout) as caught:
        with Timeout(0.002) as outer:
            with Timeout(100):
                sleep(100)
    assert caught.value is outer
    with Timeout(100):
        with pytest.raises(Timeout) as caught:
            with Timeout(0.001) as inner:
                sleep(100)
        assert caught.value is inner
        sleep(0.001)
    with pytest.raises(Timeout) as caught:
        with Timeout(0.01) as outer:
            with Timeout(0.001, False):
                sleep(100)
            sleep(100)
    assert caught.value is outer
    # Both at once: each is raised in its turn.
    with pytest.raises(Timeout) as caught:
        with Timeout(0.001) as outer:
            try:
                with Timeout(0.001) as inner:
                    time.sleep(0.003)
                    sleep(100)
            except Timeout as e:
                assert e in (inner, outer)
                if e is outer:
                    raise
                sleep(100)
    assert caught.value is outer


def test_timeout_is_raised_once():
    with Timeout(0.001):
        try:
            sleep(100)
        except Timeout:
            sleep(0.002)


def test_timeout_against_timeout_of_the_call():
    with Timeout(100):
        with pytest.raises(TimeoutError):
            Channel().recv(0.001)
    with Timeout(0.001, False):
        Channel().recv(100)
        pytest.fail("goes on")


def test_timeout_belongs_to_its_goroutine():
    with Timeout(0.002, False):
        g = go(sleep, 0.01)
        sleep(100)
    assert g.result() is None


def test_timeout_started_twice():
    with Timeout(100) as t:
        with pytest.raises(RuntimeError):
            t.start()
    t.start()
    t.cancel()
    t.cancel()
    assert "100" in str(Timeout(100))


def test_timeout_on_threads():
    def f():
        with pytest.raises(RuntimeError):
            with Timeout(1):
                pass
        return True

    assert gosched.blocking(f)


def test_timeout_keeps_units():
    s = Semaphore(0)
    for _ in range(50):
        with Timeout(0.0005, False):
            s.acquire()
        s.release()
        assert s.acquire(False)
    assert s.value == 0


def test_with_timeout():
    assert with_timeout(10, pow, 2, 3) == 8
    with pytest.raises(Timeout):
        with_timeout(0.001, sleep, 100)


# Group

def test_group():
    with Group() as group:
        gs = [group.go(pow, 2, n) for n in range(5)]
    assert [g.result(0) for g in gs] == [1, 2, 4, 8, 16]
    with pytest.raises(RuntimeError):
        group.go(pow, 2, 3)
    with pytest.raises(RuntimeError):
        Group().go(pow, 2, 3)
    with pytest.raises(RuntimeError):
        with group:
            pass


def errors_of(caught):
    error = caught.value
    return list(getattr(error, "exceptions", [error]))


def test_group_error_cancels_the_rest():
    with pytest.raises(BaseException) as caught:
        with Group() as group:
            other = group.go(sleep, 100)
            group.go(lambda: 1 / 0)
    assert [type(e) for e in errors_of(caught)] == [ZeroDivisionError]
    assert isinstance(caught.value, Exception)
    assert other.cancelled()


def test_group_error_interrupts_the_block():
    with pytest.raises(BaseException) as caught:
        with Group() as group:
            group.go(lambda: [][1])
            sleep(100)
            pytest.fail("goes on")
    assert [type(e) for e in errors_of(caught)] == [IndexError]
    sleep(0.001)
    yield_()


def test_group_error_of_the_block():
    with pytest.raises(KeyError):
        with Group() as group:
            g = group.go(sleep, 100)
            raise KeyError
    assert g.cancelled()


def test_group_of_a_cancelled_goroutine():
    inner = []

    def f():
        with Group() as group:
            inner.append(group.go(sleep, 100))
            inner.append(group.go(sleep, 100))

    g = park(f)
    until(lambda: len(inner) == 2)
    yield_()
    g.cancel()
    g.join()
    assert g.cancelled() and all(i.cancelled() for i in inner)


def test_group_cancel():
    with Group() as group:
        gs = [group.go(sleep, 100) for _ in range(5)]
        group.cancel()
    assert all(g.cancelled() for g in gs)


def test_group_timeout():
    with pytest.raises(Timeout):
        with Timeout(0.002):
            with Group() as group:
                g = group.go(sleep, 100)
    assert g.done() and g.cancelled()


@pytest.mark.parametrize("kind", [Timeout, KeyboardInterrupt, SystemExit])
def test_group_timeout_beside_an_error(kind):
    """What is meant for the outside isn't hidden among the errors of goroutines."""
    def fails_at_the_end():
        try:
            has_begun.set()
            sleep(100)
        except Cancelled:
            raise KeyError("cause")

    for wait in (lambda: sleep(100), lambda: None):
        has_begun = Event()
        timeout = Timeout(0.002, None if kind is Timeout else kind)
        with pytest.raises(kind) as caught:
            with Group() as group:
                group.go(fails_at_the_end)
                has_begun.wait()
                timeout.start()
                wait()
        timeout.cancel()
        assert "cause" in repr(caught.value.__cause__)
        assert repr(caught.value.__cause__).startswith("KeyError" if sys.version_info < (3, 11) else "ExceptionGroup")


@one_at_a_time
def test_group_waits_for_one_that_cleans_up():
    got = []

    def f():
        try:
            sleep(100)
        finally:
            sleep(0.005)
            got.append(1)

    with pytest.raises(KeyError):
        with Group() as group:
            group.go(f)
            yield_()
            raise KeyError
    assert got == [1]


def test_nested_groups():
    def f(n):
        if n == 0:
            raise KeyError
        with Group() as group:
            for _ in range(3):
                group.go(f, n - 1)
            sleep(100)

    with pytest.raises(BaseException):
        with Group() as group:
            group.go(f, 3)
    yield_()


def test_group_takes_back_what_it_did_not_raise():
    """The block's wait has succeeded when a goroutine of the group fails."""
    for _ in range(10):
        channel = Channel(1)
        with pytest.raises(BaseException) as caught:
            with Group() as group:
                group.go(lambda: (channel.send(1), 1 / 0))
                channel.recv()
        assert [type(e) for e in errors_of(caught)] == [ZeroDivisionError]
        for _ in range(3):
            yield_()
            sleep(0.0001)


def test_group_on_threads():
    def f():
        with Group() as group:
            gs = [group.go(pow, 2, n) for n in range(3)]
        return [g.result() for g in gs]

    assert gosched.blocking(f) == [1, 2, 4]

    def fails():
        with Group() as group:
            group.go(lambda: 1 / 0)
            group.go(sleep, 100)

    with pytest.raises(BaseException) as caught:
        gosched.blocking(fails)
    assert [type(e) for e in errors_of(caught)] == [ZeroDivisionError]


def test_group_goroutines_start_others():
    got = []
    with Group() as group:
        def f(n):
            got.append(n)
            if n:
                group.go(f, n - 1)
                group.go(f, n - 1)

        group.go(f, 4)
    assert len(got) == 31


# Pool

def test_pool():
    pool = Pool(3)
    assert pool.map(pow, [2, 3, 4], [2, 2, 2]) == [4, 9, 16]
    assert pool.map(abs, []) == []
    assert sorted(pool.imap_unordered(abs, range(-50, 0))) == list(range(1, 51))
    assert list(pool.imap_unordered(abs, [])) == []
    assert pool.join(10)
    with pytest.raises(ValueError):
        Pool(0)


def test_pool_limits():
    lock, inside, most = Mutex(), [0], [0]

    def f(n):
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        sleep(0.0005)
        with lock:
            inside[0] -= 1
        return n

    pool = Pool(4)
    assert pool.map(f, range(30)) == list(range(30))
    assert sorted(pool.imap_unordered(f, range(30))) == list(range(30))
    assert most == [4]


def test_pool_errors():
    pool = Pool(2)
    with pytest.raises(ZeroDivisionError):
        pool.map(lambda n: 1 / n, [1, 2, 0, 3, 4])
    with pytest.raises(ZeroDivisionError):
        list(pool.imap_unordered(lambda n: 1 / n, [1, 2, 0, 3, 4]))

    def items():
        yield 1
        raise KeyError("from the items")

    with pytest.raises(KeyError):
        pool.map(abs, items())
    with pytest.raises(KeyError):
        list(pool.imap_unordered(abs, items()))
    assert pool.join(10)
    assert pool.map(abs, [-1]) == [1]


def test_pool_map_raises_the_first_error_at_once(monkeypatch):
    told = []
    monkeypatch.setattr(gosched, "excepthook", lambda g, e: told.append(e))
    pool = Pool(3)
    ended, begun = [], Event()

    def work(n):
        try:
            if n == 0:
                begun.set()
                sleep(1000)
            begun.wait()
            raise KeyError(n)
        finally:
            ended.append(n)

    with pytest.raises(KeyError):
        pool.map(work, range(1000))
    assert pool.join(20)
    # The rest didn't begin, and no error is reported beside the one that was raised.
    assert 0 in ended and len(ended) < 10
    assert told == []


def test_pool_cancelled_while_it_maps():
    pool = Pool(2)

    def both(how):
        return lambda: list(how(lambda n: (sleep(0.001), n)[1], range(10**6)))

    for how in pool.map, pool.imap_unordered:
        g = park(both(how))
        while not g.done():
            pool.cancel()
            sleep(0.0007)
        assert isinstance(g.exception(), Cancelled)
        assert pool.join(20)


def test_pool_join_has_one_timeout_for_all(monkeypatch):
    pool, clock, waited = Pool(3), [100.0], []
    monkeypatch.setattr(gosched.pool, "_monotonic", lambda: clock[0])

    class Slow:
        def join(self, timeout):
            waited.append(timeout)
            clock[0] += 2
            return True

    pool._alive = [Slow(), Slow(), Slow()]
    assert pool.join(3) and waited == [3, 1, 0]
    assert pool.join() and waited[3:] == [None] * 3


def test_pool_given_up():
    pool = Pool(2)
    results = pool.imap_unordered(lambda n: (sleep(0.0005), n)[1], range(10**9))
    next(results)
    results.close()
    assert pool.join(20)
    with pytest.raises(Timeout):
        with Timeout(0.005):
            pool.map(sleep, [100] * 10)
    assert pool.join(20)
    with pytest.raises(KeyError):
        with pool:
            g = pool.go(sleep, 100)
            raise KeyError
    assert g.cancelled()
    with pool:
        g = pool.go(sleep, 0.001)
    assert g.result(0) is None


def test_pool_reports_errors(monkeypatch):
    told = []
    monkeypatch.setattr(gosched, "excepthook", lambda g, e: told.append(type(e)))
    Pool(2).go(lambda: 1 / 0).join()
    WaitGroup().go(lambda: [][1]).join()
    assert told == [ZeroDivisionError, IndexError]


def test_pool_cancel():
    pool = Pool(2)
    gs = [pool.go(sleep, 100), pool.go(sleep, 100)]
    pool.cancel()
    assert pool.join(20) and all(g.cancelled() for g in gs)
    assert pool.go(pow, 2, 3).result() == 8
