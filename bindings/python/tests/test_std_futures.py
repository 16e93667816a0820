"""The executor, waits for the first of several, and limits."""

import asyncio
import concurrent.futures
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import gosched
from gosched import Executor, RateLimiter, TaskGroup, as_completed, go, sleep, timeout, wait
from helpers import until


# the executor

def test_calls_run_at_the_same_time():
    begun = gosched.WaitGroup()
    begun.add(1000)

    def meet(n):
        begun.done()
        begun.wait()
        return n

    with Executor() as executor:
        futures = [executor.submit(meet, n) for n in range(1000)]
        assert [future.result() for future in futures] == list(range(1000))


def test_max_workers_bounds_them():
    running, most = 0, 0

    def work(n):
        nonlocal running, most
        running += 1
        most = max(most, running)
        sleep(0.001)
        running -= 1
        return n * n

    with Executor(max_workers=3) as executor:
        assert list(executor.map(work, range(20))) == [n * n for n in range(20)]
    assert most == 3


def test_an_exception_is_the_results():
    with Executor() as executor:
        future = executor.submit(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            future.result()
        assert isinstance(executor.submit(sys.exit, 3).exception(), SystemExit)


def test_a_future_that_has_not_begun_can_be_cancelled():
    gate = gosched.Event()
    with Executor(max_workers=1) as executor:
        first = executor.submit(gate.wait)
        second = executor.submit(list)
        until(first.running)
        assert second.cancel() and not first.cancel()
        gate.set()
        assert first.result() is True
    with pytest.raises(concurrent.futures.CancelledError):
        second.result()


def test_results_have_timeouts():
    gate = gosched.Event()
    with Executor() as executor:
        future = executor.submit(gate.wait)
        with pytest.raises(concurrent.futures.TimeoutError):
            future.result(timeout=0.01)
        gate.set()
        assert future.result(10) is True


def test_shutdown():
    gate = gosched.Event()
    executor = Executor(max_workers=1)
    first, second = executor.submit(gate.wait), executor.submit(list)
    until(first.running)
    executor.shutdown(wait=False, cancel_futures=True)
    assert second.cancelled()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(list)
    gate.set()
    executor.shutdown()
    assert first.result() is True
    executor.shutdown()


def test_the_initializer_runs_in_each_worker():
    local = gosched.local()

    def begin(value):
        local.value = value

    with Executor(initializer=begin, initargs=(5,), thread_name_prefix="worker") as executor:
        assert executor.submit(lambda: (local.value, gosched.current().name)).result() == (5, "worker_0")


def test_an_initializer_that_fails_breaks_the_executor():
    def fail():
        raise ValueError("no")

    executor = Executor(initializer=fail)
    future = executor.submit(list)
    with pytest.raises(concurrent.futures.BrokenExecutor):
        future.result()
    with pytest.raises(concurrent.futures.BrokenExecutor):
        executor.submit(list)
    executor.shutdown()


def test_wrong_arguments():
    for workers in (0, -1):
        with pytest.raises(ValueError):
            Executor(workers)
    with pytest.raises(TypeError):
        Executor(initializer=5)


def test_a_worker_that_is_cancelled_leaves_no_call_behind():
    gate = gosched.Event()
    with Executor(max_workers=1) as executor:
        first = executor.submit(gate.wait)
        second = executor.submit(list)
        until(first.running)
        for worker in list(executor._workers):
            worker.cancel()
        assert isinstance(first.exception(), gosched.Cancelled)
        assert second.result() == []
        third = executor.submit(list)
        for worker in list(executor._workers):
            worker.cancel()
        assert third.result() == []


def test_threads_wait_for_its_futures():
    with Executor() as executor:
        future = executor.submit(sleep, 0.02)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(future.result()))
        thread.start()
        until(lambda: seen == [None])
        thread.join()


def test_asyncio_waits_for_its_futures():
    async def main():
        with Executor() as executor:
            loop = asyncio.get_running_loop()
            return await asyncio.gather(*(loop.run_in_executor(executor, abs, -n) for n in range(10)))

    loop = gosched.asyncio.EventLoop()
    try:
        assert loop.run_until_complete(main()) == list(range(10))
    finally:
        loop.close()


def test_the_program_waits_for_its_calls():
    program = textwrap.dedent("""
        import gosched
        def late():
            gosched.sleep(0.05)
            print("done", flush=True)
        gosched.Executor().submit(late)
        kept = gosched.Executor()
        kept.submit(late)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.count("done") == 2 and done.returncode == 0, done


# the first of several

def tell_after(seconds):
    sleep(seconds)
    return seconds


def test_as_completed_gives_goroutines_and_futures():
    with Executor() as executor:
        items = [go(tell_after, 0.03), executor.submit(tell_after, 0.01), go(tell_after, 0.02)]
        assert [item.result() for item in as_completed(items)] == [0.01, 0.02, 0.03]
        assert set(as_completed(items + items)) == set(items)
    assert list(as_completed([])) == []


def test_as_completed_has_a_timeout():
    gate = gosched.Event()
    quick, slow = go(list), go(gate.wait)
    found = as_completed([quick, slow], timeout=0.05)
    assert next(found) is quick
    with pytest.raises(TimeoutError, match=r"1 \(of 2\)"):
        next(found)
    gate.set()
    slow.join()


def test_as_completed_wants_goroutines_and_futures():
    with pytest.raises(TypeError):
        list(as_completed([5]))


def test_wait():
    gate = gosched.Event()
    quick, slow, bad = go(list), go(gate.wait), None
    done, not_done = wait([quick, slow], return_when=gosched.futures.FIRST_COMPLETED)
    assert (done, not_done) == ({quick}, {slow})
    assert wait([quick, slow], timeout=0.01).not_done == {slow}
    with Executor() as executor:
        bad = executor.submit(lambda: 1 / 0)
        assert wait([slow, bad], return_when=gosched.futures.FIRST_EXCEPTION) == ({bad}, {slow})
        assert wait([slow, bad], return_when=gosched.futures.FIRST_EXCEPTION) == ({bad}, {slow})
    gate.set()
    assert wait([quick, slow]) == ({quick, slow}, set())
    assert wait([]) == (set(), set())
    with pytest.raises(ValueError):
        wait([], return_when="SOME")


# groups by asyncio's names

def test_task_group():
    with TaskGroup() as group:
        tasks = [group.create_task(tell_after, 0.001 * n) for n in range(5)]
    assert [task.result() for task in tasks] == [0.001 * n for n in range(5)]


# limits

def test_timeout_raises_timeout_error():
    with pytest.raises(TimeoutError), timeout(0.01) as limit:
        sleep(60)
    assert limit.expired()
    with timeout(60) as limit:
        sleep(0)
    assert not limit.expired()
    with timeout(None):
        sleep(0.001)
    with pytest.raises(KeyError), timeout(60):
        raise KeyError


def test_timeouts_nest():
    with timeout(60) as outer:
        with pytest.raises(TimeoutError):
            with timeout(0.01):
                sleep(60)
        sleep(0.001)
    assert not outer.expired()
    with pytest.raises(TimeoutError):
        with timeout(0.01) as outer:
            with timeout(60) as inner:
                sleep(60)
    assert outer.expired() and not inner.expired()


def test_a_rate_is_kept():
    limiter = RateLimiter(100, per=1, burst=5)
    begin = time.monotonic()
    for _ in range(15):
        with limiter:
            pass
    # 5 at once, and 10 more, one every 10 ms.
    assert time.monotonic() - begin >= 0.1 - 0.001


def test_a_limiter_says_no_in_time():
    limiter = RateLimiter(1, per=60)
    assert limiter.acquire(timeout=0)
    assert not limiter.acquire(timeout=0.01)
    waiting = go(limiter.acquire)
    sleep(0.001)
    waiting.cancel()
    waiting.join()
    assert limiter._paid <= time.monotonic() + 60


def test_limiters_want_numbers_that_make_sense():
    for args in ((0,), (1, 0), (1, 1, 0.5)):
        with pytest.raises(ValueError):
            RateLimiter(*args)
    for amount in (0, 3):
        with pytest.raises(ValueError):
            RateLimiter(2).acquire(amount)
