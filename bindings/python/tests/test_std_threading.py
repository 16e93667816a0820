"""threading, queue and the import system over goroutines."""

import sys

import pytest
from helpers import FORKS
from patched import run


def test_threads_are_goroutines():
    run("""
        import threading, time, _thread
        seen = []
        local = threading.local()
        go_on = threading.Event()
        def work(i):
            local.i = i
            go_on.wait()
            assert local.i == i
            seen.append((threading.get_ident(), threading.current_thread().name, gosched.current() is not None))
        threads = [threading.Thread(target=work, args=(i,), name="t%d" % i) for i in range(20)]
        for t in threads: t.start()
        assert threading.active_count() == 21
        go_on.set()
        for t in threads: t.join()
        assert threading.active_count() == 1
        assert len({ident for ident, _, _ in seen}) == 20
        assert {name for _, name, _ in seen} == {t.name for t in threads}
        assert all(goroutine for _, _, goroutine in seen)
        assert threading.current_thread() is threading.main_thread()
        assert patch.get_original("_thread", "get_ident")() == threading.get_ident()
    """)


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="thread states are the threads' there")
def test_the_interpreter_knows_the_threads():
    run("""
        import sys, threading
        begun, go_on = [], threading.Event()
        def waits():
            begun.append(threading.get_ident())
            go_on.wait()
        early = gosched.go(waits)
        threads = [threading.Thread(target=waits) for _ in range(3)]
        for t in threads: t.start()
        gosched.yield_()
        def is_in(frame, name):
            while frame is not None and frame.f_code.co_name != name:
                frame = frame.f_back
            return frame is not None
        frames = sys._current_frames()
        assert len(begun) == 4 and {t.ident for t in threads} < set(begun), begun
        assert all(is_in(frames[ident], "waits") for ident in begun)
        assert frames[threading.main_thread().ident] is sys._getframe()
        if hasattr(sys, "_current_exceptions"):
            assert set(begun) < set(sys._current_exceptions())
        go_on.set()
        early.join()
        for t in threads: t.join()
        assert not set(begun) & set(sys._current_frames())
    """)


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="thread states are the threads' there")
def test_goroutines_from_before_are_known_too():
    run("""
        import sys
        def waits():
            gosched.sleep(60)
        g = gosched.go(waits)
        gosched.yield_()
        gosched.patch_all()
        assert g.id in sys._current_frames()
        import os, threading
        def forks():
            pid = os.fork()
            if not pid:
                known = list(sys._current_frames()) == [threading.get_ident()] == [threading.main_thread().ident]
                os._exit(0 if known else 1)
            return os.waitpid(pid, 0)[1]
        assert gosched.go(forks).result() == 0
    """, prelude="import gosched\n")


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="thread states are the threads' there")
def test_exceptions_for_a_thread():
    # As programs end a thread that takes too long.
    run("""
        import ctypes, threading
        def throw(ident, error):
            return ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))
        class Stop(Exception): pass
        caught = []
        go_on = threading.Event()
        def work(name):
            try:
                go_on.wait()
                for _ in range(1000): pass
            except Stop:
                caught.append(name)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for t in threads: t.start()
        assert throw(threads[1].ident, Stop) == 1
        go_on.set()
        for t in threads: t.join()
        assert caught == [1], caught
        # Nothing is left for those who get their thread states.
        assert [throw(t.ident, Stop) for t in threads] == [0, 0, 0]
        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert caught == [1], caught
        try:
            assert throw(threading.get_ident(), Stop) == 1
            for _ in range(1000): pass
        except Stop:
            caught.append("main")
        assert caught == [1, "main"], caught
    """)


def test_context_of_a_thread_is_empty():
    # As that of a thread of the system, where a goroutine has a copy of the context that it was started in.
    run("""
        import contextvars, decimal, threading
        from concurrent.futures import ThreadPoolExecutor
        variable = contextvars.ContextVar("variable", default="default")
        variable.set("main's")
        decimal.getcontext().prec = 5
        def look():
            return variable.get(), decimal.getcontext().prec
        seen = []
        thread = threading.Thread(target=lambda: seen.append(look()))
        thread.start()
        thread.join()
        with ThreadPoolExecutor(1) as pool:
            seen.append(pool.submit(look).result())
        assert seen == [("default", 28)] * 2, seen
        assert gosched.go(look).result() == look() == ("main's", 5)
    """)


def test_synchronization():
    run("""
        import threading, queue, time
        lock = threading.Lock()
        n = 0
        def add():
            global n
            for _ in range(50):
                with lock:
                    v = n
                    gosched.yield_()
                    n = v + 1
        threads = [threading.Thread(target=add) for _ in range(10)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert n == 500
        assert not threading.Lock().locked()
        lock.acquire()
        with Beside():
            assert not lock.acquire(timeout=0.05)
        lock.release()
        event = threading.Event()
        threading.Timer(0.03, event.set).start()
        with Beside():
            assert event.wait(5)
        barrier = threading.Barrier(3)
        for _ in range(2): threading.Thread(target=barrier.wait).start()
        barrier.wait()
        rlock = threading.RLock()
        with rlock, rlock:
            t = threading.Thread(target=lambda: seen.append(rlock.acquire(False)))
            seen = []
            t.start(); t.join()
            assert seen == [False]
        for q in queue.Queue(), queue.SimpleQueue(), queue.LifoQueue(), queue.PriorityQueue():
            threading.Timer(0.03, q.put, (1,)).start()
            with Beside():
                assert q.get() == 1
            try:
                q.get(timeout=0.01)
            except queue.Empty:
                pass
            else:
                assert False
        import copy, pickle
        for reproduce in copy.copy, copy.deepcopy, pickle.dumps:
            try:
                reproduce(queue.SimpleQueue())
            except TypeError as e:
                assert str(e) == "cannot pickle '_queue.SimpleQueue' object"
            else:
                assert False
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda x: (time.sleep(0.01), x)[1], range(20))) == list(range(20))
    """)


def test_conditions_of_cancelled_goroutines():
    run("""
        import threading, queue
        def waits(cond):
            with cond:
                cond.wait()
        class Own:
            def __init__(self):
                lock = threading.Lock()
                self.acquire, self.release, self.locked = lock.acquire, lock.release, lock.locked
            def __enter__(self):
                return self.acquire()
            def __exit__(self, *exc):
                self.release()
        for lock in threading.Lock(), threading.RLock(), threading._RLock(), Own():
            cond = threading.Condition(lock)
            g = gosched.go(waits, cond)
            gosched.sleep(0.01)
            with cond:
                for _ in range(2):
                    g.cancel()
                    gosched.sleep(0.01)
                assert gosched.go(lock.acquire, False).result() is False
            g.join()
            assert g.cancelled()
            with cond:
                pass
        q = queue.Queue()
        first, second = gosched.go(q.get), gosched.go(q.get)
        gosched.sleep(0.01)
        with q.mutex:
            first.cancel()
            gosched.sleep(0.01)
            q._put("item")
            q.not_empty.notify()
        assert second.result(timeout=20) == "item"
    """)


CALLS_THAT_WAIT_FOR_NOTHING = """
    import concurrent.futures as futures, queue, threading
    done = []
    def calls():
        for cls in threading.Semaphore, threading.BoundedSemaphore:
            semaphore = cls(1)
            semaphore.acquire()
            yield semaphore._cond, semaphore.release, lambda: semaphore.acquire(False)
        event = threading.Event()
        yield event._cond, event.set, event.is_set
        yield event._cond, event.clear, lambda: not event.is_set()
        barrier = threading.Barrier(2)
        yield barrier._cond, barrier.abort, lambda: barrier.broken
        yield barrier._cond, barrier.reset, lambda: not barrier.broken
        for cls in queue.Queue, queue.LifoQueue, queue.PriorityQueue:
            q = cls(1)
            yield q.mutex, lambda: q.put_nowait(1), q.full
            yield q.mutex, q.qsize, lambda: True
            yield q.mutex, q.get_nowait, q.empty
            yield q.mutex, q.task_done, lambda: not q.unfinished_tasks
        future = futures.Future()
        yield future._condition, lambda: future.set_result(1), future.done
        future = futures.Future()
        yield future._condition, future.cancel, future.cancelled
"""


def test_calls_that_wait_for_nothing_are_not_cancelled():
    run(CALLS_THAT_WAIT_FOR_NOTHING + """
    def cancelled(call):
        call()
        done.append("call")
        gosched.sleep(20)
    def out_of_time(call):
        try:
            with gosched.Timeout(0.001):
                cancelled(call)
        except gosched.Timeout:
            done.append("time")
    for f in cancelled, out_of_time:
        for lock, call, check in calls():
            with lock:
                g = gosched.go(f, call)
                gosched.sleep(0.01)
                if f is cancelled:
                    g.cancel()
                    g.cancel()
                    gosched.sleep(0.01)
                assert not g.done(), call
            g.join()
            assert check(), call
            if f is cancelled:
                assert g.cancelled() and done == ["call"], (call, g.exception())
            else:
                assert g.exception() is None and done == ["call", "time"], (call, g.exception())
            done.clear()
    """)


def test_calls_that_wait_are_cancelled():
    run("""
        import queue, threading
        from concurrent.futures import Future
        lock = threading.Lock()
        lock.acquire()
        cond = threading.Condition(threading.Lock())
        cond.acquire()
        q = queue.Queue(1)
        q.put(1)
        for wait in (
            lock.acquire, cond.acquire, lambda: q.put(2), q.join, queue.Queue().get, threading.Semaphore(0).acquire,
            threading.Event().wait, threading.Barrier(2).wait, Future().result,
        ):
            g = gosched.go(wait)
            gosched.sleep(0.01)
            g.cancel()
            assert g.join(20) and g.cancelled(), wait
    """)


def test_ctrl_c_where_a_call_waits_for_nothing():
    run("""
        import os, signal, threading
        semaphore = threading.Semaphore(0)
        semaphore._cond.acquire()
        def interrupt():
            gosched.main().cancel()
            gosched.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        gosched.go(interrupt)
        try:
            semaphore.release()
        except KeyboardInterrupt:
            pass
        else:
            assert False
        try:
            gosched.sleep(20)
        except gosched.Cancelled:
            pass
        else:
            assert False
        gosched.sleep(0.001)
    """)


def test_start_of_a_thread_is_not_cancelled():
    """start() waits until the thread has begun. So does submit() of an executor, which knows of its thread only then."""
    run("""
        import threading
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(8)
        done = []
        def begin(start):
            start()
            done.append("begun")
            gosched.sleep(20)
        def cancelled(start):
            gosched.current().cancel()
            begin(start)
        def out_of_time(start):
            try:
                with gosched.Timeout(1e-9):
                    begin(start)
            except gosched.Timeout:
                done.append("time")
        for start in lambda: threading.Thread(target=int).start(), lambda: pool.submit(gosched.sleep, 0.02):
            g = gosched.go(cancelled, start)
            g.join()
            assert g.cancelled() and done == ["begun"], done
            # Threads of the main goroutine's are no daemons: the end of the program waits for them.
            out_of_time(start)
            assert done == ["begun", "begun", "time"], done
            done.clear()
        assert len(pool._threads) == 2
        gosched.sleep(0.05)
    """)


def test_handlers_that_raise_while_a_simple_queue_is_used():
    """The trace function raises wherever the handler of a signal may: the queue is as before the call or after it."""
    run("""
        import queue, sys
        def use(q):
            q.put(1)
            q.put_nowait(2)
            q.get()
            q.put(3)
            q.get_nowait()
            q.put(4)
            q.get(timeout=1)
        def calls_until(step, q):
            left = step
            def trace(frame, event, arg):
                nonlocal left
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt
                return trace
            sys.settrace(trace)
            try:
                use(q)
            except KeyboardInterrupt:
                return False
            finally:
                sys.settrace(None)
            return True
        step, is_over = 0, False
        while not is_over:
            q = queue.SimpleQueue()
            is_over = calls_until(step, q)
            step += 1
            for _ in range(q.qsize()):
                q.get_nowait()
            assert q.empty(), step
            q.put(5)
            assert q.get_nowait() == 5
    """)


def test_simple_queue():
    run("""
        import gc, queue, threading, types, weakref
        q = queue.SimpleQueue()
        q.put(1, False), q.put(2, block=True, timeout=-1), q.put_nowait(item=3)
        assert (q.qsize(), q.empty(), q.get(0), q.get(block=True, timeout=0), q.get(1, None)) == (3, False, 1, 2, 3)
        for call, error in (
            (q.get_nowait, queue.Empty), (lambda: q.get(timeout=0), queue.Empty), (lambda: q.get(False, -1), queue.Empty),
            (lambda: q.get(timeout=-1), ValueError), (lambda: q.get(timeout="x"), TypeError),
        ):
            try:
                call()
            except error as e:
                assert type(e) is error
            else:
                assert False, call
        assert type(queue.SimpleQueue[int]) is types.GenericAlias
        # Each item is for the caller that has waited longest, and for none that has been cancelled.
        got = []
        def take(n):
            got.append((n, q.get()))
        takers = [gosched.go(take, n) for n in range(6)]
        gosched.sleep(0.01)
        for n in range(3):
            q.put(n)
            takers[2 * n + 1].cancel()
        gosched.sleep(0.01)
        while q.qsize():
            got.append((None, q.get()))
        assert sorted(item for _, item in got) == [0, 1, 2]
        for g in takers:
            g.cancel()
            g.join()
        assert q.empty()
        # The collector looks into it.
        class Own(queue.SimpleQueue):
            def __init__(self, name):
                self.name = name
        own = Own("own")
        own.put(own)
        assert own.name == "own" and own.get() is own
        own.put(own)
        ref = weakref.ref(own)
        del own
        gc.collect()
        assert ref() is None
        # Threads of the system.
        numbers = queue.SimpleQueue()
        gs = [gosched.go(gosched.blocking, lambda: [numbers.put(n) for n in range(1000)]) for _ in range(3)]
        assert sum(numbers.get() for _ in range(3000)) == 3 * sum(range(1000))
        for g in gs:
            g.result()
    """)


def test_locks_of_the_library_s_classes():
    run("""
        import copy, inspect, queue, threading
        from concurrent.futures import Future
        assert type(queue.Queue().mutex) is type(threading.Lock())
        assert type(threading.Event()._cond) is type(Future()._condition) is threading.Condition
        assert list(inspect.signature(queue.Queue).parameters) == ["maxsize"]
        assert list(inspect.signature(threading.Barrier).parameters) == ["parties", "action", "timeout"]
        class Own(queue.Queue):
            def __init__(self, name):
                super().__init__(1)
                self.name = name
        q = Own("name")
        q.put(1)
        assert q.get() == 1 and isinstance(q, queue.Queue) and q.name == "name"
        class Counted(threading.Semaphore):
            def __init__(self):
                threading.Semaphore.__init__(self, 2)
        assert Counted().acquire()
        try:
            copy.deepcopy(queue.Queue())
        except TypeError:
            pass
        else:
            assert False
    """)


def test_join_of_the_main_thread_and_threads_that_outlive_it():
    assert run("""
        import threading, time
        def last():
            threading.main_thread().join()
            time.sleep(0.02)
            print("after main")
        threading.Thread(target=last).start()
        threading.Thread(target=lambda: time.sleep(100), daemon=True).start()
        print("main")
    """) == "main\nafter main\n"


def test_errors_of_threads():
    assert "ok" in run("""
        import threading, _thread, sys, time
        said = []
        threading.excepthook = lambda args: said.append(args.exc_type)
        t = threading.Thread(target=lambda: 1 / 0)
        t.start(); t.join()
        assert said == [ZeroDivisionError]
        sys.unraisablehook = lambda args: said.append(args)
        def fails(): raise ValueError("why")
        _thread.start_new_thread(fails, ())
        time.sleep(0.02)
        assert said[1].exc_type is ValueError and (said[1].object is fails or repr(fails) in said[1].err_msg), said
        t = threading.Thread(target=sys.exit)
        t.start(); t.join()
        print("ok")
    """)


def test_dummy_threads_go_with_their_goroutines():
    run("""
        import threading, gc
        def work():
            me = threading.current_thread()
            assert me.name.startswith("Dummy-") and me.is_alive()
            gosched.sleep(0.001)
            assert threading.current_thread() is me
        for _ in range(5):
            for g in [gosched.go(work) for _ in range(20)]: g.join()
        gosched.sleep(0.01)
        gc.collect()
        assert threading.active_count() == 1, threading.enumerate()
    """)


def test_locks_of_before_are_replaced():
    run("""
        import threading, logging, queue, functools
        module_lock = threading.Lock()
        class Slots:
            __slots__ = ("lock",)
        class Plain:
            pass
        slots, plain = Slots(), Plain()
        slots.lock = plain.lock = threading.RLock()
        condition = threading.Condition()
        event = threading.Event()
        q = queue.Queue()
        held = threading.Lock(); held.acquire()
        def closure():
            lock = threading.Lock()
            return lambda: lock
        inner = closure()
        handler = logging.StreamHandler()
        before = [type(module_lock)]
        import gosched
        from gosched import patch
        patch.patch_all()
        after = type(threading.Lock())
        assert after is not before[0]
        for lock in module_lock, inner(), event._cond._lock, q.mutex, q.not_empty._lock:
            assert type(lock) is after, lock
        assert q.mutex is q.not_empty._lock and q.not_full._lock is q.mutex
        assert type(held) is before[0]
        r = type(threading.RLock())
        for lock in slots.lock, plain.lock, condition._lock, handler.lock, logging._lock:
            assert type(lock) is r, lock
        assert slots.lock is plain.lock
        # They work, among goroutines.
        def put(): gosched.sleep(0.01); q.put(1); event.set()
        gosched.go(put)
        assert q.get() == 1 and event.wait(5)
        def hold():
            with condition:
                gosched.sleep(0.02)
        gosched.go(hold); gosched.yield_()
        with condition:
            pass
    """, prelude="")


def test_imports_in_goroutines(tmp_path):
    (tmp_path / "slow_one.py").write_text("import time; time.sleep(0.05); value = 1\n")
    run("""
        import sys
        sys.path.insert(0, sys.argv[1])
        def get():
            import slow_one
            return slow_one.value
        with Beside():
            assert [g.result() for g in [gosched.go(get) for _ in range(5)]] == [1] * 5
    """, tmp_path)


def test_fork_in_a_thread():
    run("""
        import os, threading, sys
        def work():
            pid = os.fork()
            if pid == 0:
                ok = threading.current_thread() is threading.main_thread() and threading.active_count() == 1
                t = threading.Thread(target=lambda: None)
                t.start(); t.join()
                os._exit(0 if ok else 7)
            assert os.waitpid(pid, 0)[1] == 0, "in the child"
            done.append(1)
        done = []
        t = threading.Thread(target=work)
        t.start(); t.join()
        assert done
    """, options=FORKS)


def test_fork_where_threading_knows_no_thread():
    outcome = run("""
        import _thread, os, threading
        def child():
            alone = threading.active_count() == 1 and threading.enumerate() == [threading.main_thread()]
            assert alone and threading.current_thread() is threading.main_thread()
            assert threading.main_thread().ident == threading.get_ident()
            t = threading.Thread(target=lambda: None)
            t.start(); t.join()
        def fork(child, done=None):
            pid = os.fork()
            if pid == 0:
                try:
                    child()
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                    os._exit(7)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0, "in the child"
            if done is not None:
                done.release()
        stays = threading.Thread(target=gosched.Event().wait, daemon=True)
        stays.start()
        gosched.go(fork, child).result()
        gosched.go(fork, lambda: (child(), fork(child), gosched.go(fork, child).result())).result()
        done = threading.Semaphore(0)
        _thread.start_new_thread(fork, (child, done))
        assert done.acquire(timeout=60)
    """, options=FORKS)
    # An error in a function of threading's for the fork goes no further than this.
    assert "ignored" not in str(outcome), outcome


def test_threads_of_the_system():
    # What adapts other packages has them by an attribute of the class.
    assert run("""
        import _thread, threading, time

        class Thread(threading.Thread):
            _is_of_the_system = True

        begun, go_on = threading.Event(), threading.Event()

        def work(name):
            assert gosched.current() is None and threading.current_thread().name == name
            assert threading.get_ident() != main and threading.get_native_id() == threading.current_thread().native_id
            assert threading.get_native_id() != threading.get_ident()
            begun.set()
            assert go_on.wait(60)
            gone.append(name)

        main, gone = threading.get_ident(), []
        thread = Thread(target=work, args=("one",), name="one")
        thread.start()
        assert begun.wait(60) and thread.is_alive() and thread in threading.enumerate()
        assert _thread._count() == 1, _thread._count()
        thread.join(0.01)
        assert thread.is_alive()
        go_on.set()
        thread.join()
        assert gone == ["one"] and not thread.is_alive()
        try:
            thread.start()
        except RuntimeError:
            pass
        else:
            assert False
        # It computes beside a goroutine that computes; a goroutine joins it; the end of the program waits for it.
        busy = Thread(target=lambda: gone.append(sum(range(1000))))
        busy.start()
        end = time.monotonic() + 60
        while len(gone) < 2 and time.monotonic() < end:
            pass
        assert gosched.go(busy.join).result() is None and gone[1] == 499500
        Thread(target=lambda: (time.sleep(0.2), print("last"))).start()
    """) == "last\n"


def test_unpatched():
    assert run("""
        import gosched
        from gosched import threading, queue
        import threading as std
        assert threading.Thread is not std.Thread and type(std.Lock()) is not type(threading.Lock())
        q = queue.Queue()
        t = threading.Thread(target=lambda: (gosched.sleep(0.01), q.put(threading.current_thread().name)), name="n")
        t.start()
        assert q.get() == "n"
        t.join()
        s = queue.SimpleQueue()
        threading.Timer(0.01, s.put, (1,)).start()
        assert s.get() == 1
        with threading.Condition() as c: pass
        threading.Thread(target=lambda: (gosched.sleep(0.05), print("last"))).start()
        print("main")
    """, prelude="") == "main\nlast\n"
