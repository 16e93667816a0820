"""Goroutines: go, spawn, their results, errors, callbacks, cancellation and what they leave behind."""

import contextvars
import gc
import io
import os
import sys
import threading
import time
import traceback
import weakref

import pytest

import gosched
from gosched import Cancelled, Channel, Event, Goroutine, go, sleep, spawn, yield_
from helpers import one_at_a_time, park, run, until


def test_result():
    assert go(pow, 2, 10).result() == 1024
    assert go(dict, a=1, b=2).result() == {"a": 1, "b": 2}
    assert go(lambda: None).result() is None


def test_arguments_named_as_the_parameters_of_go():
    def f(**kwargs):
        return kwargs

    assert go(f, function=1, args=2, self=3).result() == {"function": 1, "args": 2, "self": 3}
    assert gosched.run(f, fn=1) == {"fn": 1}
    assert gosched.blocking(f, fn=1, function=2) == {"fn": 1, "function": 2}


def test_spawn():
    g = spawn(pow, (2, 3), name="power")
    assert g.name == "power"
    assert g.result() == 8
    assert spawn(dict, kwargs={"a": 1}).result() == {"a": 1}
    assert spawn(sorted, [[2, 1]], {"reverse": True}, node=0, stack_size=1 << 20).result() == [2, 1]
    g.name = "other"
    assert g.name == "other" and "other" in repr(g)


def test_spawn_copies_its_kwargs():
    kwargs = {"a": 1}
    g = spawn(dict, kwargs=kwargs)
    kwargs["b"] = 2
    assert g.result() == {"a": 1}


@pytest.mark.parametrize("call", [
    lambda: go(),
    lambda: go(1),
    lambda: go(None, 2),
    lambda: spawn(),
    lambda: spawn(1),
    lambda: spawn(print, 1),
    lambda: spawn(print, (), 1),
    lambda: spawn(print, nome="x"),
    lambda: spawn(print, stack_size="x"),
    lambda: gosched.sleep("1"),
    lambda: gosched.sleep(),
    lambda: Goroutine(),
    lambda: go(print).join("x"),
    lambda: go(len, "").throw(1),
    lambda: go(len, "").throw(int),
    lambda: go(len, "").add_done_callback(1),
    lambda: gosched.blocking(1),
    lambda: gosched.blocking(),
    lambda: gosched.gomaxprocs("x"),
])
def test_type_errors(call):
    with pytest.raises(TypeError):
        call()


def test_coroutines_are_no_functions():
    async def f():
        pass

    coroutine = f()
    for start in go, spawn, gosched.run, gosched.blocking:
        with pytest.raises(TypeError, match="run_coroutine"):
            start(coroutine)
    coroutine.close()


@pytest.mark.parametrize("call", [
    lambda: spawn(print, node=-1),
    lambda: spawn(print, stack_size=-1),
    lambda: spawn(print, node=10**6),
    lambda: sleep(-1),
    lambda: sleep(float("nan")),
    lambda: go(len, "").join(float("nan")),
    lambda: gosched.gomaxprocs(0),
    lambda: gosched.gomaxprocs(-1),
    lambda: gosched.gomaxprocs(2**31 - 1),
    lambda: gosched.ticker(0),
    lambda: gosched.ticker(-1),
    lambda: gosched.after(float("nan")),
])
def test_value_errors(call):
    with pytest.raises(ValueError):
        call()


@pytest.mark.parametrize("call", [
    lambda: spawn(print, stack_size=2**70),
    lambda: spawn(print, node=2**40),
    lambda: gosched.gomaxprocs(2**40),
])
def test_overflow_errors(call):
    with pytest.raises(OverflowError):
        call()


def test_too_large_a_stack():
    before = gosched.num_goroutines()
    for size in (1 << 62, sys.maxsize):
        with pytest.raises((ValueError, MemoryError)):
            spawn(print, stack_size=size)
    assert gosched.num_goroutines() <= before


def test_stacks_of_all_sizes():
    for size in (1, 4096, 100_000, 1 << 20, 1 << 22, 1 << 26):
        assert spawn(pow, (2, 3), stack_size=size).result() == 8


def test_run():
    assert gosched.run(pow, 2, 10) == 1024
    with pytest.raises(KeyError):
        gosched.run({}.__getitem__, 1)


def test_join():
    event = Event()
    g = go(event.wait)
    assert g.join(0.001) is False
    assert g.join(0) is False
    assert not g.done()
    event.set()
    assert g.join() is True
    assert g.join(0) is True and g.done()


def test_timeouts_of_result_and_exception():
    event = Event()
    g = go(event.wait)
    for method in (g.result, g.exception):
        with pytest.raises(TimeoutError):
            method(0)
        with pytest.raises(TimeoutError):
            method(0.001)
        with pytest.raises(TimeoutError):
            method(timeout=-1)
    event.set()
    assert g.result() is True
    assert g.exception() is None


def test_many_join_one():
    event = Event()
    g = go(event.wait)
    joiners = [go(g.result) for _ in range(20)]
    yield_()
    event.set()
    assert [j.result() for j in joiners] == [True] * 20


def test_join_itself():
    def f():
        return gosched.current().join()

    with pytest.raises(RuntimeError):
        go(f).result()
    with pytest.raises(RuntimeError):
        gosched.main().join(1)


def test_error(capfd):
    error = KeyError("k")

    def f():
        raise error

    g = go(f)
    with pytest.raises(KeyError) as caught:
        g.result()
    assert caught.value is error and g.exception() is error
    assert any(entry.name == "f" for entry in caught.traceback)
    assert g.done() and not g.cancelled()
    assert "failed" in repr(g)
    with pytest.raises(KeyError):
        g.result()


def test_traceback_of_an_error_that_is_raised_again():
    def fail():
        raise KeyError("k")

    def ask_in_between():
        return g.result()

    g = go(fail)
    g.join()
    seen = []
    for ask in (g.result, ask_in_between, g.result):
        with pytest.raises(KeyError) as caught:
            ask()
        seen.append([entry.name for entry in traceback.extract_tb(caught.value.__traceback__)])
    here = "test_traceback_of_an_error_that_is_raised_again"
    # Of those who have asked before there are no frames.
    assert seen == [[here, "fail"], [here, "ask_in_between", "fail"], [here, "fail"]]


def test_error_that_no_caller_asks_for(monkeypatch):
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)

    def unlucky():
        raise KeyError("some key")

    g = spawn(unlucky, name="the name")
    g.join()
    text = stderr.getvalue()
    assert "Exception in goroutine the name" in text
    assert "in unlucky" in text and "KeyError: 'some key'" in text
    assert g.exception().args == ("some key",)


def test_error_for_which_a_caller_has_asked_in_vain(monkeypatch):
    told = []
    monkeypatch.setattr(gosched, "excepthook", lambda g, e: told.append((g, type(e))))

    def fails():
        go_on.recv()
        raise KeyError

    def with_a_timeout(g):
        with pytest.raises(TimeoutError):
            g.result(timeout=0.001)
        with pytest.raises(TimeoutError):
            g.exception(timeout=0)

    def within_a_timeout(g):
        with gosched.Timeout(0.001, False):
            g.result()

    def until_cancelled(g):
        asks = park(g.exception)
        asks.cancel()
        asks.join()

    for ask in (with_a_timeout, within_a_timeout, until_cancelled):
        go_on = Channel(1)
        g = park(fails)
        ask(g)
        go_on.send(None)
        g.join()
        assert told == [(g, KeyError)], ask
        told.clear()
        # Of two callers one has got it.
        go_on = Channel(1)
        g = park(fails)
        asks = park(g.exception)
        ask(g)
        go_on.send(None)
        assert type(asks.result()) is KeyError and not told, ask


@one_at_a_time
def test_error_for_which_a_caller_asks_until_it_is_cancelled_at_the_end(monkeypatch):
    told = []
    monkeypatch.setattr(gosched, "excepthook", lambda g, e: told.append((g, type(e))))

    def fails():
        go_on.recv()
        raise KeyError

    go_on = Channel(1)
    g = park(fails)
    asks = [park(g.result) for _ in range(2)]
    go_on.send(None)
    # It goes on before those that ask do.
    for caller in asks:
        caller.cancel()
    for caller in asks:
        caller.join()
        assert caller.cancelled()
    assert told == [(g, KeyError)]


def test_excepthook(monkeypatch):
    told = []
    monkeypatch.setattr(gosched, "excepthook", lambda g, e: told.append((g, e)))

    def f(kind):
        raise kind

    goroutines = [go(f, kind) for kind in (KeyError, SystemExit, Cancelled, KeyboardInterrupt)]
    for g in goroutines:
        g.join()
    assert [(g, type(e)) for g, e in told] == [(goroutines[0], KeyError), (goroutines[3], KeyboardInterrupt)]


def test_excepthook_runs_in_the_goroutines_context(monkeypatch):
    name = contextvars.ContextVar("name", default="nobody")
    told = []
    monkeypatch.setattr(gosched, "excepthook", lambda g, e: told.append(name.get()))

    def fails():
        gosched.sleep(0.001)
        name.set(name.get() + "'s")
        raise KeyError

    def start():
        name.set("ann")
        gosched.go(fails)

    contextvars.copy_context().run(start)
    until(lambda: told)
    assert told == ["ann's"] and name.get() == "nobody"


def test_excepthook_that_raises(monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: unraisable.append(type(info.exc_value)))
    monkeypatch.setattr(gosched, "excepthook", lambda g, e: 1 / 0)
    go(lambda: [][0]).join()
    assert unraisable == [ZeroDivisionError]


def test_no_standard_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    g = go(lambda: [][0])
    g.join()
    assert isinstance(g.exception(), IndexError)


def test_system_exit_ends_it_quietly(capfd):
    g = go(sys.exit, 3)
    g.join()
    assert capfd.readouterr().err == ""
    assert isinstance(g.exception(), SystemExit) and g.exception().code == 3
    with pytest.raises(SystemExit):
        g.result()


def test_ids_and_idents():
    ids = {go(gosched.get_ident).result() for _ in range(20)}
    assert len(ids) == 20
    event = Event()
    gs = [go(event.wait) for _ in range(5)]
    assert len({g.id for g in gs} | {gosched.get_ident()}) == 6
    event.set()
    assert gosched.get_ident() == threading.get_ident()
    g = go(lambda: (gosched.current(), gosched.get_ident()))
    assert g.result() == (g, g.id)


def test_current_and_main():
    main = gosched.current()
    assert main is gosched.main()
    assert main.name == "main" and main.id == threading.get_ident()
    assert go(gosched.main).result() is main
    assert "running" in repr(main) and not main.done()
    assert go(gosched.current).result() is not main


@one_at_a_time
def test_repr():
    event = Event()
    g = spawn(event.wait, name="näme")
    assert repr(g) == "<gosched.Goroutine näme new>"
    yield_()
    assert repr(g) == "<gosched.Goroutine näme running>"
    event.set()
    g.join()
    assert repr(g) == "<gosched.Goroutine näme done>"
    g = go(event.wait)
    assert repr(g).startswith("<gosched.Goroutine goroutine-%d" % g.id)


def test_odd_names():
    for name in ("", "a\0b", "x" * 10000, 5, None, "\ud800"):
        g = spawn(len, ("",), name=name)
        assert g.result() == 0
        assert g.name == name or name is None
        try:
            repr(g)
        except UnicodeEncodeError:
            pass

    class Bad:
        def __str__(self):
            raise KeyError

    before = gosched.num_goroutines()
    with pytest.raises(KeyError):
        spawn(len, ("",), name=Bad())
    assert gosched.num_goroutines() == before


@one_at_a_time
def test_done_callbacks():
    got = []
    g = go(lambda: 5)
    first, second = (lambda g: got.append(("first", g.result()))), (lambda g: got.append(("second", g.done())))
    g.add_done_callback(first)
    g.add_done_callback(second)
    g.add_done_callback(second)
    assert g.remove_done_callback(second) == 2
    assert g.remove_done_callback(second) == 0
    g.add_done_callback(second)
    g.join()
    until(lambda: len(got) == 2)
    assert got == [("first", 5), ("second", True)]
    g.add_done_callback(lambda g: got.append("late"))
    assert got[-1] == "late"


def test_done_callback_that_raises(monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: unraisable.append(type(info.exc_value)))
    got = []
    g = go(lambda: 5)
    g.add_done_callback(lambda g: 1 / 0)
    g.add_done_callback(got.append)
    assert g.result() == 5
    until(lambda: got)
    assert unraisable == [ZeroDivisionError] and got == [g]


def test_done_callback_that_waits():
    channel, event = Channel(), Event()
    g = go(lambda: event.wait() and 5)
    g.add_done_callback(lambda g: (sleep(0.001), channel.send(gosched.current())))
    event.set()
    assert g.result() == 5
    assert channel.recv() is g


def test_remove_done_callback_whose_eq_raises():
    class Odd:
        def __eq__(self, other):
            raise KeyError

        def __call__(self, g):
            got.append(g)

    got = []
    event = Event()
    g = go(event.wait)
    g.add_done_callback(Odd())
    g.add_done_callback(got.append)
    with pytest.raises(KeyError):
        g.remove_done_callback(Odd())
    event.set()
    g.join()
    until(lambda: len(got) == 2)


def test_cancel():
    channel = Channel()
    g = park(channel.recv)
    assert g.cancel("why") is True
    with pytest.raises(Cancelled) as caught:
        g.result()
    assert caught.value.args == ("why",)
    assert g.cancelled() and g.done() and "cancelled" in repr(g)
    assert g.cancel() is False


@one_at_a_time
def test_cancel_before_it_has_begun():
    got = []
    g = go(got.append, 1)
    g.cancel()
    g.join()
    assert g.cancelled() and got == []


def test_cancel_is_raised_once():
    def f():
        try:
            sleep(100)
        except Cancelled:
            sleep(0.001)
            yield_()
            return "cleaned up"

    g = park(f)
    g.cancel()
    assert g.result() == "cleaned up"
    assert not g.cancelled()


def test_cancel_itself():
    def f():
        gosched.current().cancel()
        yield_()

    g = go(f)
    g.join()
    assert g.cancelled()


def test_exceptions_are_raised_in_the_order_in_which_they_were_thrown():
    got = []

    def f():
        for _ in range(3):
            try:
                sleep(100)
            except Exception as e:
                got.append(e.args[0])

    g = park(f)
    for i in range(3):
        g.throw(ValueError(i))
    g.result()
    assert got == [0, 1, 2]


def test_throw():
    class MyError(Exception):
        pass

    for thrown in (MyError, MyError("x")):
        g = park(sleep, 100)
        assert g.throw(thrown) is True
        with pytest.raises(MyError):
            g.result()
        assert g.throw(thrown) is False


def test_throw_at_one_that_computes():
    def f():
        gosched.current().throw(KeyError)
        # No wait: no exception.
        x = sum(range(1000))
        try:
            yield_()
        except KeyError:
            return x

    assert go(f).result() == sum(range(1000))


def test_throw_a_class_whose_constructor_fails():
    class Picky(Exception):
        def __init__(self, needed):
            pass

    g = park(sleep, 0.05)
    try:
        g.throw(Picky)
    except TypeError:
        g.result()
    else:
        with pytest.raises(TypeError):
            g.result()


def test_cancelled_is_not_an_exception():
    assert issubclass(Cancelled, BaseException) and not issubclass(Cancelled, Exception)

    def f():
        try:
            sleep(100)
        except Exception:
            return "swallowed"

    g = park(f)
    g.cancel()
    g.join()
    assert g.cancelled()


def test_cancel_while_others_run():
    gs = [go(sleep, 100) for _ in range(100)]
    yield_()
    for g in gs:
        g.cancel()
    for g in gs:
        assert g.join(20)
        assert g.cancelled()


def test_weakref():
    g = go(len, "")
    ref = weakref.ref(g)
    g.join()
    del g
    until(lambda: ref() is None)


def test_a_running_one_keeps_itself_alive():
    event, got = Event(), []
    ref = weakref.ref(go(lambda: got.append(event.wait())))
    yield_()
    gc.collect()
    assert ref() is not None
    event.set()
    until(lambda: got)
    until(lambda: ref() is None)


def test_cycles_are_collected():
    class Cycle:
        pass

    def make(fail):
        cycle = Cycle()

        def f():
            if fail:
                raise KeyError(cycle)
            return cycle

        cycle.g = go(f)
        cycle.g.join()
        cycle.g.exception()
        return weakref.ref(cycle), weakref.ref(cycle.g)

    for fail in (False, True):
        refs = make(fail)
        # Without a GIL the goroutine's last steps may still go on.
        until(lambda: gc.collect() >= 0 and refs[0]() is None)
        assert refs[1]() is None


def test_arguments_are_dropped_at_the_end():
    class Thing:
        pass

    thing = Thing()
    ref = weakref.ref(thing)
    g = go(lambda x: None, thing)
    del thing
    g.join()
    assert ref() is None


def test_reference_counts():
    value, function = object(), (lambda x: x)
    before = sys.getrefcount(value), sys.getrefcount(function)
    for _ in range(10):
        assert go(function, value).result() is value
        g = park(sleep, 100)
        g.cancel()
        g.join()
    del g
    yield_()
    assert (sys.getrefcount(value), sys.getrefcount(function)) == before
    none = sys.getrefcount(None)
    for _ in range(1000):
        go(lambda: None).join()
        go(lambda: None).result()
    assert abs(sys.getrefcount(None) - none) < 100


def test_contextvars():
    var = contextvars.ContextVar("var", default=0)
    var.set(1)

    def f():
        before = var.get()
        var.set(2)
        yield_()
        return before, var.get()

    assert go(f).result() == (1, 2)
    assert var.get() == 1
    assert [g.result() for g in [go(f) for _ in range(3)]] == [(1, 2)] * 3
    # A done callback runs in an empty context: it belongs to no goroutine.
    g = go(f)
    g.join()
    context = contextvars.copy_context()
    assert context.run(lambda: (var.set(7), go(var.get).result())[1]) == 7
    assert var.get() == 1


def test_contextvar_tokens_stay_with_their_goroutine():
    var = contextvars.ContextVar("var")

    def f():
        token = var.set(1)
        sleep(0.001)
        var.reset(token)
        return var.get("none")

    assert [g.result() for g in [go(f) for _ in range(10)]] == ["none"] * 10


def test_thread_local_data():
    local = threading.local()
    local.x = "main"
    died = []

    class Thing:
        def __del__(self):
            died.append(1)

    def f(n):
        assert not hasattr(local, "x")
        local.x = n
        local.thing = Thing()
        yield_()
        return local.x

    assert [g.result() for g in [go(f, n) for n in range(10)]] == list(range(10))
    assert local.x == "main"
    assert len(died) == 10


def test_thread_local_data_of_subclasses():
    class Local(gosched.local):
        def __init__(self, n):
            self.n = n

    local = Local(5)
    assert go(lambda: (setattr(local, "m", 1), local.n)[1]).result() == 5
    assert not hasattr(local, "m")


def test_destructors_of_thread_local_data_may_wait():
    local, got = threading.local(), Channel(1)

    class Thing:
        def __del__(self):
            sleep(0.001)
            got.send(gosched.current())

    def f():
        local.thing = Thing()

    g = go(f)
    g.join()
    assert got.recv() is g


def test_errors_keep_to_their_goroutine():
    """sys.exc_info() of one goroutine isn't seen by others."""
    def f(n):
        try:
            raise KeyError(n)
        except KeyError:
            for _ in range(3):
                yield_()
                assert sys.exc_info()[1].args == (n,)
        assert sys.exc_info() == (None, None, None)
        return True

    try:
        raise ValueError
    except ValueError:
        assert all(g.result() for g in [go(f, n) for n in range(20)])
        assert sys.exc_info()[0] is ValueError
        assert go(sys.exc_info).result() == (None, None, None)


def test_error_context():
    def f():
        try:
            raise KeyError("first")
        except KeyError:
            sleep(100)

    g = park(f)
    g.throw(ValueError("second"))
    error = g.exception()
    assert isinstance(error, ValueError) and isinstance(error.__context__, KeyError)


def test_goroutine_of_a_generic_type():
    assert Goroutine[int] is Goroutine
    assert Channel[int] is Channel


def test_num_goroutines():
    before = gosched.num_goroutines()
    event = Event()
    gs = [go(event.wait) for _ in range(10)]
    assert gosched.num_goroutines() == before + 10
    until(lambda: set(gs) < set(gosched.goroutines()))
    event.set()
    for g in gs:
        g.join()
    until(lambda: gosched.num_goroutines() == before)
    assert not set(gs) & set(gosched.goroutines())


def test_goroutines_of_the_package_do_not_count():
    run("""
        import gosched
        gosched.sleep(0.01)
        assert gosched.num_goroutines() == 1
        assert gosched.goroutines() == [gosched.main()]
        g = gosched.go(gosched.sleep, 10)
        gosched.sleep(0.01)
        assert gosched.num_goroutines() == 2
        assert gosched.goroutines() == [gosched.main(), g]
    """)


def test_dump():
    event = Event()

    def waits_here():
        event.wait()

    g = park(waits_here)
    g.name = "the waiting one"
    out = io.StringIO()
    gosched.dump(out)
    event.set()
    g.join()
    text = out.getvalue()
    assert "the waiting one" in text and "in waits_here" in text
    assert "[running] main" in text and "in test_dump" in text
    assert g.frame is None


def test_dump_of_the_library():
    r, w = os.pipe()
    gosched._gosched._dump(w)
    os.close(w)
    with open(r) as f:
        assert "goroutine" in f.read().lower()
    with pytest.raises(OSError):
        gosched._gosched._dump(r)
    with pytest.raises(OSError):
        gosched._gosched._dump(-1)


def test_stats_and_nodes():
    stats = gosched.stats()
    assert stats["created"] > 0 and stats["procs"] == gosched.gomaxprocs()
    assert all(isinstance(value, int) for value in stats.values())
    assert gosched.nodes() >= 1


def test_gomaxprocs():
    # In a process of its own: without a GIL goroutines run in parallel from then on.
    run("""
        import gosched
        before = gosched.gomaxprocs()
        assert gosched.gomaxprocs(3) == before
        assert gosched.gomaxprocs() == 3
        assert gosched.gomaxprocs(1) == 3
        assert gosched.go(pow, 2, 3).result() == 8
    """)


def test_sleep():
    began = time.monotonic()
    sleep(0.02)
    assert time.monotonic() - began >= 0.02
    sleep(0)
    sleep(False)
    g = park(sleep, float("inf"))
    h = park(sleep, 1e300)
    g.cancel(), h.cancel()
    assert g.join(10) and h.join(10) and g.cancelled() and h.cancelled()


@one_at_a_time
@pytest.mark.parametrize("give_way", [yield_, lambda: sleep(0)], ids=["yield_", "sleep(0)"])
def test_one_that_yields_is_behind_those_that_can_run(give_way):
    late = 0
    for _ in range(2000):
        begun = []
        g = go(begun.append, True)
        give_way()
        late += not begun
        g.join()
    assert late == 0


@one_at_a_time
def test_order_of_sleepers():
    got = []

    def f(n):
        sleep(n / 100)
        got.append(n)

    gs = [go(f, n) for n in (5, 3, 1, 4, 2)]
    for g in gs:
        g.join()
    assert got == [1, 2, 3, 4, 5]


@one_at_a_time
def test_computing_goroutines_are_not_interrupted():
    """Between two waits no other goroutine runs."""
    shared = [0]

    def f():
        for _ in range(100):
            for _ in range(50):
                x = shared[0]
                shared[0] = x + 1
            yield_()

    gs = [go(f) for _ in range(10)]
    for g in gs:
        g.result()
    assert shared == [50000]


def test_before_the_first_use():
    """Each function may be the first to be called."""
    for code in (
        "gosched.sleep(0)", "gosched.yield_()", "gosched.current()", "gosched.main()", "gosched.get_ident()",
        "gosched.Channel(1).send(1)", "gosched.select(timeout=0) if 0 else None", "gosched.Lock().acquire()",
        "gosched.Event().wait(0.01)", "gosched.stats()", "gosched.nodes()", "gosched.gomaxprocs()",
        "gosched.num_goroutines()", "gosched.blocking(len, '')", "gosched.go(len, '').result()",
        "gosched.after(0).recv()", "gosched.dump()", "gosched._gosched.wait_fds([], 0)",
        "gosched._gosched.cancel_fd(1)", "gosched.Timeout(1).__enter__()", "gosched._gosched.wait_write(1, 0)",
        "gosched.goroutines()", "gosched.WaitGroup().wait()", "gosched._gosched._dump(2)",
        "gosched._gosched._finalize()", "gosched._gosched._forked()",
    ):
        run("import gosched; " + code + "; assert gosched.go(pow, 2, 3).result() == 8"
            if "_finalize" not in code else "import gosched; " + code)


def test_a_goroutine_that_is_not_run():
    """The main goroutine never waits."""
    assert "never" not in run("import gosched; gosched.go(print, 'never')", env={"GOSCHED_PROCS": "1"}).out
