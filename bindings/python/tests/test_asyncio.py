"""asyncio beside goroutines: loops in goroutines, as_future() and run_coroutine()."""

import asyncio
import contextvars
import functools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import gosched
import gosched.asyncio
from helpers import FORKS, until

@pytest.fixture
def policy():
    asyncio.set_event_loop_policy(gosched.EventLoopPolicy())
    yield
    asyncio.set_event_loop_policy(None)


_RUNS = ["asyncio.run and the policy", "gosched.asyncio.run"]
if sys.version_info >= (3, 12):
    _RUNS.append("asyncio.run and the loop factory")


@pytest.fixture(params=_RUNS)
def run(request):
    if request.param == "gosched.asyncio.run":
        yield gosched.asyncio.run
    elif request.param == "asyncio.run and the loop factory":
        yield functools.partial(asyncio.run, loop_factory=gosched.asyncio.EventLoop)
    else:
        asyncio.set_event_loop_policy(gosched.EventLoopPolicy())
        yield asyncio.run
        asyncio.set_event_loop_policy(None)


#: asyncio's policies are deprecated from Python 3.14 on
_QUIET = ("-W", "ignore:'asyncio.set_event_loop_policy'")


def _program(source, *args, timeout=60, flags=(), **options):
    return subprocess.run(
        [sys.executable, "-X", "dev", *_QUIET, *flags, "-c", textwrap.dedent(source), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=timeout,
        **options,
    )


#: programs run without patching, and with
_PATCHES = pytest.mark.parametrize("patch", ["", "gosched.patch_all()"])


def _check(source, patch="", flags=()):
    done = _program("import gosched\n%s\n%s" % (patch, textwrap.dedent(source)), flags=flags)
    assert done.returncode == 0, done.stdout + done.stderr
    # What asyncio says of a slow machine, in its debug mode.
    lines = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]
    assert lines == []
    return done.stdout


async def _add(a, b):
    await asyncio.sleep(0.001)
    return a + b


# The loop


def test_other_goroutines_run_while_it_waits(run):
    seen = []

    def tick():
        for n in range(5):
            seen.append(n)
            gosched.sleep(0.005)

    async def main():
        gosched.go(tick)
        await asyncio.sleep(0.2)

    run(main())
    assert seen == [0, 1, 2, 3, 4]


def test_other_goroutines_run_while_it_is_busy(run):
    seen = []

    async def main():
        goroutine = gosched.go(lambda: [(seen.append(n), gosched.yield_()) for n in range(5)])
        while not goroutine.done():
            await asyncio.sleep(0)

    run(main())
    assert seen == [0, 1, 2, 3, 4]


def test_each_goroutine_runs_its_own(run):
    loops = []

    async def main(n):
        loop = asyncio.get_running_loop()
        loops.append(loop)
        for _ in range(5):
            await asyncio.sleep(0.002)
            assert asyncio.get_running_loop() is loop
            assert asyncio.current_task().get_name() == str(n)
        return n

    async def named(n):
        asyncio.current_task().set_name(str(n))
        return await main(n)

    goroutines = [gosched.go(run, named(n)) for n in range(10)]
    assert asyncio._get_running_loop() is None
    assert [g.result() for g in goroutines] == list(range(10))
    assert len(set(map(id, loops))) == 10


def test_a_loop_within_a_loops_goroutine_is_refused(run):
    async def main():
        coroutine = _add(1, 2)
        with pytest.raises(RuntimeError):
            run(coroutine)
        coroutine.close()
        # In a goroutine of its own it's none.
        return await gosched.as_future(gosched.go(run, _add(1, 2)))

    assert run(main()) == 3


def test_running_loops_end_with_their_goroutines():
    # asyncio remembers a running loop by the id of its thread state, without a reference, and goroutines use
    # the states of others that have ended. The numbers get the memory of what has gone, and look like it.
    _check(
        """
        import asyncio, os
        class Loop:
            pass
        pid = str(os.getpid())
        def leave_one():
            asyncio._set_running_loop(Loop())
            assert asyncio._get_running_loop() is not None
        def look():
            numbers = [int(pid) for _ in range(100)]
            return asyncio._get_running_loop()
        for _ in range(100):
            gosched.go(leave_one).join()
            assert gosched.go(look).result() is None
        """
    )


def test_tasks_are_those_of_each_goroutines_loop():
    """From Python 3.14 on the running task and the list of tasks are in the thread state, which goroutines pass on."""
    loops = []

    async def main(n):
        me = asyncio.current_task()
        loops.append((asyncio.get_running_loop(), me))
        go_on = asyncio.Event()
        other = asyncio.ensure_future(go_on.wait())
        for _ in range(5):
            await asyncio.sleep(0.001)
            assert asyncio.current_task() is me and asyncio.all_tasks() == {me, other}
        go_on.set()
        await other
        assert asyncio.all_tasks() == {me}
        return n

    for _ in range(3):
        goroutines = [gosched.go(gosched.asyncio.run, main(n)) for n in range(10)]
        until(lambda: len(loops) == 10)
        for loop, task in loops:
            assert task in asyncio.all_tasks(loop) or task.done()
        assert asyncio.current_task(loops[0][0]) is None
        assert [g.result() for g in goroutines] == list(range(10))
        assert not any(asyncio.all_tasks(loop) for loop, _ in loops)
        loops.clear()


def test_get_event_loop_is_each_goroutines_own(policy):
    def loop():
        mine = asyncio.new_event_loop()
        asyncio.set_event_loop(mine)
        gosched.sleep(0.005)
        assert asyncio.get_event_loop_policy().get_event_loop() is mine
        mine.close()
        return isinstance(mine, gosched.asyncio.EventLoop) and id(mine)

    loops = [g.result() for g in [gosched.go(loop) for _ in range(5)]]
    assert all(loops) and len(set(loops)) == 5


def test_call_soon_threadsafe_from_goroutines_and_threads(run):
    async def main():
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        gosched.go(lambda: (gosched.sleep(0.01), loop.call_soon_threadsafe(event.set)))
        await asyncio.wait_for(event.wait(), 10)
        event.clear()
        thread = threading.Thread(
            target=lambda: (time.sleep(0.01), loop.call_soon_threadsafe(event.set))
        )
        thread.start()
        await asyncio.wait_for(event.wait(), 10)
        thread.join()

    run(main())


def test_no_wakeup_is_lost(run):
    # The loop is in any state when another goroutine calls: about to wait, waiting, busy.
    async def main():
        loop = asyncio.get_running_loop()
        left = 300
        done = loop.create_future()

        def count():
            nonlocal left
            left -= 1
            if not left:
                done.set_result(True)

        def call(n):
            for _ in range(100):
                loop.call_soon_threadsafe(count)
                gosched.sleep(n * 0.0001) if n else gosched.yield_()

        goroutines = [gosched.go(call, n) for n in range(3)]
        assert await asyncio.wait_for(done, 30)
        for goroutine in goroutines:
            await gosched.as_future(goroutine)

    run(main())


def test_timers_keep_their_order(run):
    async def main():
        order = []
        loop = asyncio.get_running_loop()
        began = loop.time()
        for n in (3, 1, 2, 0):
            loop.call_at(began + n * 0.01, order.append, n)
        await asyncio.sleep(0.05)
        assert loop.time() - began >= 0.049
        return order

    assert run(main()) == [0, 1, 2, 3]


def test_cancelling_the_goroutine_ends_the_run(run):
    ended = []
    has_begun = gosched.Event()

    async def main():
        try:
            has_begun.set()
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.001)
            ended.append(True)

    goroutine = gosched.go(run, main())
    assert has_begun.wait(60)
    goroutine.cancel()
    assert goroutine.join(10)
    assert goroutine.cancelled() and ended == [True]


def test_a_timeout_ends_the_run(run):
    with pytest.raises(gosched.Timeout):
        with gosched.Timeout(0.02):
            run(asyncio.sleep(100))
    assert run(_add(1, 2)) == 3


def test_signal_handlers_of_several_loops(run):
    async def main(number):
        event = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(number, event.set)
        await asyncio.wait_for(event.wait(), 10)
        assert loop.remove_signal_handler(number)
        assert not loop.remove_signal_handler(number)
        return number

    numbers = [signal.SIGUSR1, signal.SIGUSR2]
    goroutines = [gosched.go(run, main(number)) for number in numbers]
    until(lambda: all(signal.getsignal(number) != signal.SIG_DFL for number in numbers))
    for number in numbers:
        os.kill(os.getpid(), number)
    assert [g.result(10) for g in goroutines] == numbers
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def test_bad_signal_handlers():
    loop = gosched.asyncio.new_event_loop()
    try:
        with pytest.raises(TypeError):
            loop.add_signal_handler(signal.SIGUSR1, _add)
        with pytest.raises(TypeError):
            loop.add_signal_handler("SIGUSR1", print)
        with pytest.raises(ValueError):
            loop.add_signal_handler(1000, print)
        with pytest.raises(RuntimeError):
            loop.add_signal_handler(signal.SIGKILL, print)
        assert not loop.remove_signal_handler(signal.SIGUSR1)
        outcome = []

        def in_a_thread():
            try:
                loop.add_signal_handler(signal.SIGUSR1, print)
            except RuntimeError as error:
                outcome.append(error)

        thread = threading.Thread(target=in_a_thread)
        thread.start()
        thread.join()
        assert len(outcome) == 1
    finally:
        loop.close()


def test_signals_wake_the_thread_after_others_had_its_wakeup_fd():
    _check(
        """
        import asyncio, os, signal, threading, time
        gosched.sleep(0)
        async def main():
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGUSR1, print)
            loop.remove_signal_handler(signal.SIGUSR1)
        asyncio.run(main())  # asyncio's own loop
        assert signal.set_wakeup_fd(-1) == -1
        got = []
        signal.signal(signal.SIGUSR1, lambda *args: got.append(1))
        threading.Thread(target=lambda: (time.sleep(0.1), os.kill(os.getpid(), signal.SIGUSR1))).start()
        while not got:
            gosched.sleep(0.01)
        signal.signal(signal.SIGALRM, lambda *args: done.set())
        done = gosched.Event()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        assert done.wait(10)
        """
    )


@pytest.mark.parametrize("where", ["before select", "before the wait"])
def test_a_goroutine_that_wakes_the_loop_just_before_it_waits(where, monkeypatch):
    # There a finalizer, or the handler of a signal, may give way to it.
    loop = gosched.asyncio.new_event_loop()
    wakers = []

    def give_way():
        # Twice, as several may wake it.
        while wakers:
            gosched.go(loop.call_soon_threadsafe, wakers.pop()).join()

    def after_giving_way(fn):
        def call(*args):
            give_way()
            return fn(*args)

        return call

    if where == "before select":
        monkeypatch.setattr(loop._selector, "select", after_giving_way(loop._selector.select))
    else:
        monkeypatch.setattr(gosched.asyncio, "_wait_read", after_giving_way(gosched.asyncio._wait_read))

    async def main():
        future = loop.create_future()
        await asyncio.sleep(0)
        wakers.extend([lambda: None, lambda: future.set_result("woken")])
        return await asyncio.wait_for(future, 20)

    try:
        began = time.monotonic()
        for _ in range(3):
            assert loop.run_until_complete(main()) == "woken"
        assert time.monotonic() - began < 10
    finally:
        loop.close()


@_PATCHES
def test_subprocesses(patch):
    _check(
        """
        import asyncio, sys
        import gosched.asyncio
        async def one(n):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", "print(input() * 2)",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
            out, _ = await process.communicate(b"%d\\n" % n)
            assert out == b"%d%d\\n" % (n, n), out
            return await process.wait()
        async def main():
            assert await asyncio.gather(*map(one, range(3))) == [0, 0, 0]
            shell = await asyncio.create_subprocess_shell("exit 3")
            assert await shell.wait() == 3
        gosched.asyncio.run(main())
        asyncio.set_event_loop_policy(gosched.EventLoopPolicy())
        asyncio.run(main())
        """,
        patch,
    )


@_PATCHES
def test_executors(patch):
    _check(
        """
        import asyncio, threading, time
        import concurrent.futures
        import gosched.asyncio
        from gosched.patch import get_original
        native, sleep = get_original("_thread", "get_native_id"), get_original("time", "sleep")
        async def main():
            loop = asyncio.get_running_loop()
            assert await loop.run_in_executor(None, native) != native()
            # What blocks blocks none of the others.
            began = time.monotonic()
            blocked = [loop.run_in_executor(None, sleep, 0.2) for _ in range(5)]
            ticks = 0
            while not all(f.done() for f in blocked):
                await asyncio.sleep(0.01)
                ticks += 1
            assert ticks
            try:
                await loop.run_in_executor(None, int, "x")
            except ValueError:
                pass
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                assert await loop.run_in_executor(pool, pow, 2, 10) == 1024
            assert await loop.getaddrinfo("localhost", 80)
            await loop.shutdown_default_executor()
            try:
                await loop.run_in_executor(None, int)
            except RuntimeError:
                pass
            else:
                assert False
        gosched.asyncio.run(main())
        """,
        patch,
    )


_ECHO = """
import asyncio, socket
import gosched.asyncio, gosched.socket
{prelude}
async def echo(reader, writer):
    while True:
        data = await reader.read(100)
        if not data:
            break
        writer.write(data)
        await writer.drain()
    writer.close()

def client(port):
    with gosched.socket.create_connection(("127.0.0.1", port)) as s:
        for n in range(20):
            s.sendall(b"%d" % n)
            assert s.recv(100) == b"%d" % n
    return True

async def coroutine_client(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port{client_ssl})
    for n in range(20):
        writer.write(b"%d\\n" % n)
        assert await reader.readline() == b"%d\\n" % n
    writer.close()
    await writer.wait_closed()
    return True

async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0{server_ssl})
    port = server.sockets[0].getsockname()[1]
    {clients}
    server.close()
    await server.wait_closed()

gosched.asyncio.run(main())
"""


@_PATCHES
def test_streams(patch):
    # Goroutines and coroutines talk to a server of coroutines.
    _check(
        _ECHO.format(
            prelude="",
            client_ssl="",
            server_ssl="",
            clients="assert all(await asyncio.gather(*[gosched.as_future(gosched.go(client, port))"
            " for _ in range(5)], *[coroutine_client(port) for _ in range(5)]))",
        ),
        patch,
    )


@_PATCHES
def test_ssl_streams(patch, tmp_path):
    certificate = tmp_path / "certificate.pem"
    made = subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout {0} -out {0}.crt -days 2 -subj /CN=localhost"
        " -addext subjectAltName=DNS:localhost,IP:127.0.0.1 && cat {0}.crt >> {0}".format(certificate),
        shell=True,
        stderr=subprocess.PIPE,
    )
    if made.returncode != 0:
        pytest.skip("no openssl")
    prelude = """
import ssl
server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
server_context.load_cert_chain({0!r})
client_context = ssl.create_default_context(cafile={0!r})
""".format(str(certificate))
    _check(
        _ECHO.format(
            prelude=prelude,
            client_ssl=", ssl=client_context",
            server_ssl=", ssl=server_context",
            clients="assert all(await asyncio.gather(*[coroutine_client(port) for _ in range(5)]))",
        ),
        patch,
    )


def test_asyncios_own_loop_under_patch_all():
    _check(
        """
        import asyncio
        seen = []
        def tick():
            for n in range(5):
                seen.append(n)
                gosched.sleep(0.005)
        async def main():
            assert type(asyncio.get_running_loop()) is asyncio.SelectorEventLoop
            g = gosched.go(tick)
            await asyncio.sleep(0.1)
            assert len(seen) == 5
            # A busy loop lets others run too.
            g = gosched.go(tick)
            while not g.done():
                await asyncio.sleep(0)
            return await gosched.as_future(gosched.go(len, seen))
        assert asyncio.run(main()) == 10
        """,
        "gosched.patch_all()",
    )


def test_async_generators_end_with_their_loop(run):
    ended = []

    async def numbers(end):
        try:
            for n in range(100):
                yield n
                await asyncio.sleep(0.001)
        finally:
            await asyncio.sleep(0.001)
            ended.append(True)
            end.set()

    async def main():
        end = asyncio.Event()
        async for n in numbers(end):
            if n == 2:
                break
        await end.wait()
        mine = numbers(asyncio.Event())
        kept.append(mine)
        return await mine.__anext__()

    kept = []
    assert [g.result() for g in [gosched.go(run, main()) for _ in range(3)]] == [0, 0, 0]
    assert len(ended) == 6
    assert sys.get_asyncgen_hooks() == (None, None)
    assert gosched.go(sys.get_asyncgen_hooks).result() == (None, None)


@pytest.mark.parametrize("which", ["asyncio.run", "gosched.asyncio.run"])
def test_ctrl_c_ends_a_run_in_the_main_goroutine(which):
    out = _check(
        """
        import asyncio, os, signal
        import gosched.asyncio
        asyncio.set_event_loop_policy(gosched.EventLoopPolicy())
        async def main():
            gosched.go(lambda: (gosched.sleep(0.1), os.kill(os.getpid(), signal.SIGINT)))
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                print("cancelled")
                raise
        for _ in range(2):
            try:
                %s(main())
            except KeyboardInterrupt:
                print("interrupted")
        """
        % which
    )
    assert out == "cancelled\ninterrupted\n" * 2


def test_ctrl_c_is_the_main_goroutines_while_others_run_loops():
    out = _check(
        """
        import asyncio, os, signal
        import gosched.asyncio
        asyncio.set_event_loop_policy(gosched.EventLoopPolicy())
        async def main():
            await asyncio.sleep(0.5)
            return "undisturbed"
        g = gosched.go(asyncio.run, main())
        gosched.go(lambda: (gosched.sleep(0.1), os.kill(os.getpid(), signal.SIGINT)))
        try:
            gosched.sleep(100)
        except KeyboardInterrupt:
            print("interrupted")
        print(g.result())
        """
    )
    assert out == "interrupted\nundisturbed\n"


def test_a_thread_may_run_one():
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(gosched.asyncio.run(_add(1, 2))))
    thread.start()
    thread.join()
    assert outcome == [3]


# as_future


def test_as_future_gives_the_result(run):
    async def main():
        def answer():
            gosched.sleep(0.01)
            return 42

        futures = [gosched.as_future(gosched.go(answer)) for _ in range(10)]
        assert await asyncio.gather(*futures) == [42] * 10
        ended = gosched.go(answer)
        ended.join()
        assert await gosched.as_future(ended) == 42
        assert await gosched.as_future(ended) == 42

    run(main())


def test_as_future_gives_the_exception(run, capsys):
    async def main():
        def fail(error):
            gosched.sleep(0.001)
            raise error

        with pytest.raises(KeyError, match="x"):
            await gosched.as_future(gosched.go(fail, KeyError("x")))
        with pytest.raises(RuntimeError, match="StopIteration"):
            await gosched.as_future(gosched.go(fail, StopIteration(1)))

    run(main())
    assert capsys.readouterr().err == ""


def test_as_future_on_asyncios_own_loop():
    # It waits for goroutines of its own thread from then on, without patch_all().
    out = _check(
        """
        import asyncio, warnings
        warnings.simplefilter("error", RuntimeWarning)
        async def main():
            channel = gosched.Channel()
            taken = gosched.as_future(gosched.go(channel.recv))
            await asyncio.sleep(0.01)
            assert not taken.done()
            def work():
                gosched.sleep(0.01)
                channel.send(42)
            gosched.go(work)
            answer = await asyncio.wait_for(taken, 30)
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
            writer.write(b"hello")
            assert await asyncio.wait_for(reader.read(), 30) == b"HELLO"
            writer.close()
            return answer
        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.sendall(connection.recv(100).upper())
        listener = gosched.socket.create_server(("127.0.0.1", 0))
        with listener:
            gosched.go(serve)
            print(asyncio.run(main()))
        """
    )
    assert out == "42\n"


def test_as_future_warns_of_loops_that_hold_goroutines_up():
    out = _check(
        """
        import asyncio, selectors, warnings
        goroutine = gosched.go(int, "7")
        goroutine.join()
        async def main():
            return await gosched.as_future(goroutine)
        loop = asyncio.SelectorEventLoop(selectors.PollSelector())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert loop.run_until_complete(main()) == 7
            # Not of a loop in another thread, where it holds none up.
            assert gosched.blocking(loop.run_until_complete, main()) == 7
        loop.close()
        for warning in caught:
            print(warning.category.__name__, warning.filename, str(warning.message).split()[:4])
        """
    )
    assert out == "RuntimeWarning <string> ['asyncio.unix_events._UnixSelectorEventLoop', 'holds', 'up', 'all']\n"


def test_as_future_cancels_the_goroutine(run):
    async def main():
        goroutine = gosched.go(gosched.sleep, 100)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(gosched.as_future(goroutine), 0.01)
        await gosched.as_future(gosched.go(goroutine.join, 10))
        assert goroutine.cancelled()
        # So does cancelling the task that awaits it.
        goroutine = gosched.go(gosched.sleep, 100)

        async def wait():
            await gosched.as_future(goroutine)

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gosched.as_future(gosched.go(goroutine.join, 10))
        assert goroutine.cancelled()

    run(main())


def test_as_future_is_cancelled_with_the_goroutine(run):
    async def main():
        goroutine = gosched.go(gosched.sleep, 100)
        future = gosched.as_future(goroutine)
        asyncio.get_running_loop().call_later(0.01, goroutine.cancel)
        with pytest.raises(asyncio.CancelledError):
            await future
        assert future.cancelled()

    run(main())


def test_as_future_of_a_loop_that_is_closed(run, capsys):
    goroutines = []

    async def main():
        goroutines.append(gosched.go(gosched.sleep, 0.05))
        gosched.as_future(goroutines[0])

    run(main())
    assert goroutines[0].join(10) and not goroutines[0].cancelled()
    assert capsys.readouterr().err == ""


def test_as_future_wants_a_goroutine_and_a_loop():
    with pytest.raises(TypeError):
        gosched.as_future(3)
    with pytest.raises(RuntimeError):
        gosched.as_future(gosched.go(int))


# run_coroutine


def test_run_coroutine_from_several_goroutines():
    goroutines = [gosched.go(gosched.run_coroutine, _add(n, 1)) for n in range(100)]
    assert [g.result() for g in goroutines] == list(range(1, 101))
    assert gosched.run_coroutine(_add(1, 2)) == 3


def test_run_coroutine_from_threads():
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(gosched.run_coroutine(_add(1, 2))))
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        gosched.blocking(thread.join)
    assert results == [3] * 5


def test_run_coroutine_uses_one_loop():
    async def loop():
        return asyncio.get_running_loop()

    loops = {gosched.go(gosched.run_coroutine, loop()).result() for _ in range(5)}
    assert len(loops) == 1


def test_run_coroutine_raises():
    async def fail(error):
        await asyncio.sleep(0.001)
        raise error

    for error in (KeyError("x"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            gosched.run_coroutine(fail(error))
    # The loop goes on.
    assert gosched.run_coroutine(_add(1, 2)) == 3


def test_run_coroutine_takes_awaitables_only():
    class Awaitable:
        def __await__(self):
            return _add(1, 2).__await__()

    assert gosched.run_coroutine(Awaitable()) == 3
    with pytest.raises(TypeError):
        gosched.run_coroutine(_add)
    with pytest.raises(TypeError):
        gosched.run_coroutine(3)


def test_run_coroutine_in_a_coroutine_is_refused(run):
    async def main():
        with pytest.raises(RuntimeError, match="await"):
            gosched.run_coroutine(_add(1, 2))

    run(main())


def test_run_coroutine_has_the_callers_context():
    variable = contextvars.ContextVar("variable", default=0)

    async def get():
        await asyncio.sleep(0.001)
        value = variable.get()
        variable.set(-1)
        return value

    def call(n):
        variable.set(n)
        return gosched.run_coroutine(get()), variable.get()

    assert [g.result() for g in [gosched.go(call, n) for n in range(5)]] == [(n, n) for n in range(5)]


def test_cancelling_the_goroutine_cancels_the_task():
    ended = []

    async def wait():
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            ended.append(True)
            raise

    goroutine = gosched.go(gosched.run_coroutine, wait())
    gosched.sleep(0.01)
    goroutine.cancel()
    assert goroutine.join(10)
    assert goroutine.cancelled() and ended == [True]
    with pytest.raises(gosched.Timeout):
        with gosched.Timeout(0.01):
            gosched.run_coroutine(wait())
    assert ended == [True, True]


def test_cancelling_before_it_began():
    async def never():
        assert False

    coroutine = never()
    goroutine = gosched.go(gosched.run_coroutine, coroutine)
    goroutine.cancel()
    assert goroutine.join(10) and goroutine.cancelled()
    coroutine.close()


def test_cancelling_twice_leaves_the_task_behind():
    release = gosched.Event()

    async def stubborn():
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass

    goroutine = gosched.go(gosched.run_coroutine, stubborn())
    gosched.sleep(0.02)
    goroutine.cancel()
    assert not goroutine.join(0.05)
    goroutine.cancel()
    assert goroutine.join(10)
    release.set()


def test_run_coroutine_on_a_loop_elsewhere():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def where():
        return threading.get_ident(), await gosched.as_future(gosched.go(pow, 2, 5))

    goroutines = [gosched.go(gosched.run_coroutine, where(), loop=loop) for _ in range(5)]
    assert [g.result(10) for g in goroutines] == [(thread.ident, 32)] * 5
    loop.call_soon_threadsafe(loop.stop)
    gosched.blocking(thread.join)
    loop.close()
    with pytest.raises(RuntimeError):
        gosched.run_coroutine(_add(1, 2), loop=loop)


def test_the_loop_begins_again_when_its_goroutine_was_cancelled():
    async def wait():
        await asyncio.sleep(100)

    waiting = gosched.go(gosched.run_coroutine, wait())
    gosched.sleep(0.01)
    (background,) = [g for g in gosched.goroutines() if g.name == "gosched-asyncio"]
    background.cancel()
    with pytest.raises(asyncio.CancelledError):
        waiting.result(10)
    assert background.join(10)
    assert gosched.run_coroutine(_add(1, 2)) == 3


@_PATCHES
def test_fork(patch):
    out = _check(
        """
        import asyncio, os, sys
        async def add(a, b):
            await asyncio.sleep(0.01)
            return a + b
        waiting = gosched.go(gosched.run_coroutine, asyncio.sleep(0.5, "parent"))
        assert gosched.run_coroutine(add(1, 2)) == 3
        pid = os.fork()
        if pid == 0:
            assert gosched.run_coroutine(add(3, 4)) == 7
            sys.exit(0)
        assert gosched.blocking(os.waitpid, pid, 0)[1] == 0
        assert gosched.run_coroutine(add(5, 6)) == 11
        print(waiting.result())
        """,
        patch,
        FORKS,
    )
    assert out == "parent\n"


@_PATCHES
def test_exit(patch):
    out = _check(
        """
        import asyncio
        began = gosched.Event()
        async def wait():
            began.set()
            try:
                await asyncio.sleep(100)
            finally:
                print("ended")
        def call():
            try:
                gosched.run_coroutine(wait())
            except asyncio.CancelledError:
                print("cancelled")
        gosched.go(call)
        began.wait()
        """,
        patch,
    )
    assert "ended\n" in out


@_PATCHES
def test_exit_is_quiet_for_callers_that_go_on(patch):
    out = _check(
        """
        import atexit
        # Before the package's, so it's called after that. It waits, so the callers go on.
        atexit.register(lambda: gosched.sleep(0.05))
        import asyncio, gosched, os, threading
        began = gosched.Semaphore(0)
        async def wait():
            began.release()
            await asyncio.sleep(100)
        def call(name):
            try:
                gosched.run_coroutine(wait())
            finally:
                os.write(1, name.encode() + b"\\n")
        gosched.go(call, "goroutine")
        threading.Thread(target=call, args=("thread",), daemon=True).start()
        for _ in range(2):
            began.acquire()
        """,
        patch,
    )
    assert "goroutine\n" in out


def test_exit_before_the_loop_begins():
    _check(
        """
        import asyncio, gosched.asyncio
        async def wait():
            await asyncio.sleep(100)
        def call():
            try:
                gosched.run_coroutine(wait())
            except asyncio.CancelledError:
                pass
        gosched.go(call)
        while gosched.asyncio._background is None:
            gosched.yield_()
        """
    )


def test_exit_while_a_coroutine_refuses_to_end():
    done = _program(
        """
        import asyncio, gosched
        import gosched.asyncio
        gosched.asyncio._EXIT = 0.2
        began = gosched.Event()
        async def stubborn():
            began.set()
            while True:
                try:
                    await asyncio.sleep(100)
                except asyncio.CancelledError:
                    pass
        gosched.go(gosched.run_coroutine, stubborn())
        began.wait()
        """
    )
    assert done.returncode == 0, done.stderr


# Libraries


def test_aiohttp_beside_goroutines():
    pytest.importorskip("aiohttp")
    _check(
        """
        import asyncio, http.client
        gosched.patch_all(); import warnings; warnings.simplefilter("ignore")
        import aiohttp, aiohttp.web
        async def hello(request):
            await asyncio.sleep(0.01)
            name = await gosched.as_future(gosched.go(str.upper, request.query["name"]))
            return aiohttp.web.Response(text="hello, " + name)
        def get(port, name):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/?name=" + name)
            return connection.getresponse().read()
        async def main():
            app = aiohttp.web.Application()
            app.router.add_get("/", hello)
            runner = aiohttp.web.AppRunner(app)
            await runner.setup()
            site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            futures = [gosched.as_future(gosched.go(get, port, "g")) for n in range(5)]
            async with aiohttp.ClientSession() as session:
                async with session.get("http://127.0.0.1:%d/?name=c" % port) as answer:
                    assert await answer.text() == "hello, C"
            assert await asyncio.gather(*futures) == [b"hello, G"] * 5
            await runner.cleanup()
        asyncio.set_event_loop_policy(gosched.EventLoopPolicy())
        asyncio.run(main())
        """
    )


def test_httpx_beside_goroutines():
    pytest.importorskip("httpx")
    pytest.importorskip("anyio")
    _check(
        """
        import http.server, threading
        gosched.patch_all(); import warnings; warnings.simplefilter("ignore")
        import httpx
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(self.path.encode())
            def log_message(self, *args):
                pass
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            async def get(n):
                async with httpx.AsyncClient(trust_env=False) as client:
                    answer = await client.get("http://127.0.0.1:%d/%d" % (server.server_port, n))
                    return answer.text
            goroutines = [gosched.go(gosched.run_coroutine, get(n)) for n in range(5)]
            assert [g.result() for g in goroutines] == ["/%d" % n for n in range(5)]
            server.shutdown()
        """
    )


def test_uvloop_in_a_thread():
    pytest.importorskip("uvloop")
    out = _check(
        """
        import asyncio, warnings
        warnings.simplefilter("ignore")
        import uvloop
        async def main():
            ticks = gosched.go(lambda: [gosched.sleep(0.01) for _ in range(5)])
            loop = asyncio.get_running_loop()
            assert isinstance(loop, uvloop.Loop)
            channel = gosched.Channel()
            async def double(n):
                await asyncio.sleep(0.001)
                return 2 * n
            def call():
                channel.send(gosched.run_coroutine(double(21), loop=loop))
            gosched.go(call)
            answer = await gosched.as_future(gosched.go(channel.recv))
            assert len(await gosched.as_future(ticks)) == 5
            return answer
        def in_a_thread():
            loop = uvloop.new_event_loop()
            try:
                return loop.run_until_complete(main())
            finally:
                loop.close()
        print(gosched.blocking(in_a_thread))
        """
    )
    assert out == "42\n"
