"""asyncio beside goroutines.

- An event loop that runs in a goroutine, and waits as one: :func:`run`, :func:`new_event_loop`,
  :class:`EventLoopPolicy`. Each goroutine may run its own.
- :func:`as_future`: what a coroutine awaits the end of a goroutine with.
- :func:`run_coroutine`: what a goroutine calls a coroutine with. It needs no loop of its own.

    import gosched, gosched.asyncio

    async def main():
        answer = await gosched.as_future(gosched.go(ask_in_a_goroutine))
        ...

    gosched.asyncio.run(main())

A call that parks the goroutine (``gosched.sleep()``, ``channel.recv()``) inside a coroutine holds up the other
coroutines of its loop, though no other goroutine: start a goroutine for it, and await that.

Loops that don't wait as goroutines hold all goroutines up while they run in the thread of the goroutines:
asyncio's own, until :func:`gosched.patch_all` or, in such a loop, :func:`as_future` is called, and uvloop's always.
Run uvloop's in a thread: ``gosched.blocking(uvloop.run, main())``. :func:`as_future` works there too, and
``run_coroutine(coroutine, loop=loop)`` runs a coroutine on such a loop.
"""

import asyncio as _asyncio
import atexit as _atexit
import concurrent.futures as _futures
import contextvars as _contextvars
import errno as _errno
import functools as _functools
import inspect as _inspect
import os as _os
import signal as _signal
import sys as _sys
import warnings as _warnings
from time import monotonic as _monotonic

from . import _gosched
from . import _originals
from . import patch as _patch
from . import select as _select
from . import selectors as _selectors
from ._gosched import Cancelled, Event, Goroutine, Lock, Semaphore
from ._runtime import WaitGroup

__all__ = [
    "EventLoop",
    "EventLoopPolicy",
    "as_future",
    "new_event_loop",
    "run",
    "run_coroutine",
]

_yield = _gosched.yield_
_wait_read = _gosched.wait_read


# The event loop


class _Selector(_selectors.EpollSelector):
    """Parks the goroutine while it waits, and lets others run when it needn't."""

    # Whether a goroutine waits in select(), or is about to; whether another has called wake() since the last select(),
    # for what the next one would wait for.
    _is_parked = False
    _is_woken = False

    def wake(self):
        """Ends the wait of a goroutine of this thread, or its next one. False: it can't, as the wait is about to
        begin: a finalizer or the handler of a signal has given way there."""
        self._is_woken = True
        if not self._is_parked:
            return True
        self._is_parked = False
        return _gosched.cancel_fd(self._selector.fileno())

    def _park(self, timeout):
        self._is_parked = True
        try:
            if not self._is_woken:
                return _wait_read(self._selector.fileno(), timeout)
        except OSError as error:
            if not self._is_woken or error.errno != _errno.EBADF:
                raise  # the selector was closed
        finally:
            self._is_parked = False
        return False

    def select(self, timeout=None):
        try:
            return self._select(timeout)
        finally:
            # The loop looks at what it has to do from here on, but not just before the call.
            self._is_woken = False

    def _select(self, timeout):
        poll = super().select
        if timeout is not None and timeout <= 0:
            _yield()
            return poll(0)
        ready = poll(0)
        if ready:
            _yield()
            return ready
        deadline = None if timeout is None else _monotonic() + timeout
        while True:
            can_read = self._park(timeout)
            ready = poll(0)
            if ready or not can_read:
                return ready
            if deadline is not None:
                timeout = max(deadline - _monotonic(), 0)


class _Executor(_futures.Executor):
    """Where the loop runs what blocks, once threads are goroutines: in threads still."""

    def __init__(self):
        self._free = Semaphore(min(32, (_os.cpu_count() or 1) + 4))
        self._running = WaitGroup()
        self._waiting = set()
        self._is_shut = False

    def submit(self, fn, /, *args, **kwargs):
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = _futures.Future()
        self._waiting.add(future)
        self._running.go(self._work, future, fn, args, kwargs)
        return future

    def _work(self, future, fn, args, kwargs):
        with self._free:
            self._waiting.discard(future)
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = _gosched.blocking(fn, *args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
                # The future has the frames, and would be in them.
                future = None
            else:
                future.set_result(result)

    def shutdown(self, wait=True, *, cancel_futures=False):
        self._is_shut = True
        if cancel_futures:
            for future in list(self._waiting):
                future.cancel()
        if wait:
            self._running.wait()


_SIGINT_OF_RUNNERS = getattr(getattr(_asyncio, "Runner", None), "_on_sigint", None)


# Whether all goroutines run in one thread. If not, a goroutine that wakes a loop may run at the same time as the loop's
# goroutine, which wake() of the loop's selector takes to stand still.
_is_one_thread = getattr(_sys, "_is_gil_enabled", lambda: True)()


def _in_main_thread(fn, *args):
    """Calls what only the main thread may call, on behalf of a goroutine of another thread."""
    main = _gosched.main()
    if _is_one_thread or main is None or _gosched.current() is None or _originals.get_ident() == main.id:
        return fn(*args)
    helper = _gosched._spawn_first(fn, *args, name="gosched-main")
    return helper.result()


#: the loops that run in goroutines
_running_loops = set()


class EventLoop(_asyncio.SelectorEventLoop):
    """asyncio's event loop, waiting as a goroutine. It runs in the goroutine that calls run_forever(); in a
    thread that runs no goroutines it works too.

    Signal handlers are independent of those of other loops: each runs in the loop that it was added to.
    """

    def __init__(self, selector=None):
        super().__init__(_Selector() if selector is None else selector)
        #: the goroutine in which it runs
        self._goroutine = None

    def _write_to_self(self):
        # Called for what other goroutines and threads have put into the queue.
        is_near = self._goroutine is not None and _is_one_thread and _gosched.current() is not None
        if not (is_near and self._selector.wake()):
            super()._write_to_self()

    def run_forever(self):
        handler = _signal.getsignal(_signal.SIGINT)
        if (
            isinstance(handler, _functools.partial)
            and getattr(handler.func, "__func__", None) is _SIGINT_OF_RUNNERS is not None
            and handler.func.__self__.get_loop() is self
            and _gosched.current() not in (None, _gosched.main())
        ):
            # asyncio.run() takes this for the main thread. Ctrl-C is the main goroutine's.
            _in_main_thread(_signal.signal, _signal.SIGINT, _signal.default_int_handler)
        is_first = self._goroutine is None
        if is_first and isinstance(self._selector, _Selector):
            self._goroutine = _gosched.current()
            _running_loops.add(self)
        try:
            super().run_forever()
        finally:
            if is_first:
                self._goroutine = None
                _running_loops.discard(self)

    def run_in_executor(self, executor, func, *args):
        if executor is None and self._default_executor is None and _patch.is_patched("threading"):
            self._check_closed()
            self._check_default_executor()
            self._default_executor = _Executor()
        return super().run_in_executor(executor, func, *args)

    # asyncio has the numbers of signals written into the loop's own pipe: there is one loop that they can
    # go to, and then none that wakes this thread. These have Python's handlers tell the loop.

    def add_signal_handler(self, sig, callback, *args):
        if _asyncio.iscoroutine(callback) or _inspect.iscoroutinefunction(callback):
            raise TypeError("coroutines cannot be used with add_signal_handler()")
        self._check_signal(sig)
        self._check_closed()
        before = self._signal_handlers.get(sig)
        self._signal_handlers[sig] = _asyncio.Handle(callback, args, self, None)
        try:
            _gosched.current()  # a main thread that runs goroutines is woken by signals
            _in_main_thread(_signal.signal, sig, self._on_signal)
            _signal.siginterrupt(sig, False)
        except (ValueError, OSError) as error:
            if before is None:
                del self._signal_handlers[sig]
            else:
                self._signal_handlers[sig] = before
            if isinstance(error, OSError) and error.errno != _errno.EINVAL:
                raise
            if isinstance(error, OSError):
                raise RuntimeError("sig %s cannot be caught" % sig) from None
            raise RuntimeError(str(error)) from None

    def _on_signal(self, sig, frame):
        if not self.is_closed():
            self._handle_signal(sig)
            # This may be the goroutine of the loop, and about to wait.
            super()._write_to_self()

    def remove_signal_handler(self, sig):
        self._check_signal(sig)
        if self._signal_handlers.pop(sig, None) is None:
            return False
        is_int = sig == _signal.SIGINT
        try:
            _in_main_thread(_signal.signal, sig, _signal.default_int_handler if is_int else _signal.SIG_DFL)
        except OSError as error:
            if error.errno != _errno.EINVAL:
                raise
            raise RuntimeError("sig %s cannot be caught" % sig) from None
        return True


EventLoop.add_signal_handler.__doc__ = "Has callback(*args) called by this loop when the signal arrives."
EventLoop.remove_signal_handler.__doc__ = "Takes it back. Whether there was a handler."


def new_event_loop():
    """A new :class:`EventLoop`."""
    return EventLoop()


# Its public name, DefaultEventLoopPolicy, is deprecated from 3.14 on.
class EventLoopPolicy(_asyncio.unix_events._UnixDefaultEventLoopPolicy):
    """With ``asyncio.set_event_loop_policy(gosched.EventLoopPolicy())``, asyncio.run() and
    asyncio.new_event_loop() make loops that wait as goroutines. asyncio's policies are deprecated from Python 3.14 on:
    from 3.12 on ``asyncio.run(main(), loop_factory=gosched.asyncio.EventLoop)`` does without."""

    _loop_factory = EventLoop


def run(main, *, debug=None):
    """asyncio.run(), on a loop that waits as a goroutine, whatever the policy is.

    >>> import asyncio, gosched, gosched.asyncio
    >>> gosched.asyncio.run(asyncio.sleep(0.001, "slept"))
    'slept'
    """
    if _sys.version_info >= (3, 12):
        return _asyncio.run(main, debug=debug, loop_factory=EventLoop)
    if _asyncio._get_running_loop() is not None:
        raise RuntimeError("asyncio.run() cannot be called from a running event loop")
    if not _asyncio.iscoroutine(main):
        raise ValueError("a coroutine was expected, got {!r}".format(main))
    if _sys.version_info >= (3, 11):
        with _asyncio.Runner(debug=debug, loop_factory=EventLoop) as runner:
            return runner.run(main)
    loop = EventLoop()
    try:
        _asyncio.set_event_loop(loop)
        if debug is not None:
            loop.set_debug(debug)
        return loop.run_until_complete(main)
    finally:
        try:
            _asyncio.runners._cancel_all_tasks(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            _asyncio.set_event_loop(None)
            loop.close()


# From a coroutine to a goroutine

_poll_type = type(_originals.select_poll())


def _let_goroutines_run(loop):
    """Has a loop of asyncio's own, which runs in this goroutine, wait as one from now on."""
    selector = getattr(loop, "_selector", None)
    poller = getattr(selector, "_selector", None)
    if isinstance(poller, _originals.select_epoll):
        selector._selector = _select.epoll._of(poller)
    if selector is not None and not isinstance(poller, _poll_type):
        return
    _warnings.warn(
        "%s.%s holds up all goroutines of this thread while it waits, and may wait for ever for one of them;"
        " use gosched.asyncio.run(), or run the loop in a thread with gosched.blocking()"
        % (type(loop).__module__, type(loop).__qualname__),
        RuntimeWarning,
        stacklevel=3,
    )


def as_future(goroutine, *, loop=None):
    """An asyncio future that ends as the goroutine does: with what its function returns or raises, and
    cancelled if it was cancelled. Cancelling the future cancels the goroutine. The future belongs to the
    running loop, or to the one given.

        answer = await gosched.as_future(gosched.go(connection.recv, 100))

    The future is cancelled at once, while the goroutine gets its Cancelled at its present or next wait:
    join() it to know that it has ended.

    A loop of asyncio's own that runs in a goroutine waits as one from then on. Warns (RuntimeWarning) of a running
    loop that can't, such as uvloop's: the goroutine runs only while that loop's callbacks wait.
    """
    if not isinstance(goroutine, Goroutine):
        raise TypeError("a Goroutine is required, not %r" % type(goroutine).__name__)
    if loop is None:
        loop = _asyncio.get_running_loop()
    if _gosched.current() is not None and _asyncio._get_running_loop() is loop:
        _let_goroutines_run(loop)
    future = loop.create_future()

    def end():
        if future.done():
            return
        if goroutine.cancelled():
            future.cancel()
            return
        error = goroutine.exception()
        if error is None:
            future.set_result(goroutine.result())
        elif isinstance(error, StopIteration):
            # A future can't have one, for `await` means something else by it.
            replaced = RuntimeError("the goroutine raised StopIteration")
            replaced.__cause__ = error
            future.set_exception(replaced)
        else:
            future.set_exception(error)

    def ended(_):
        try:
            loop.call_soon_threadsafe(end)
        except RuntimeError:
            pass  # the loop is closed

    def cancelled(_):
        if future.cancelled() and not goroutine.done():
            goroutine.remove_done_callback(ended)
            goroutine.cancel()

    future.add_done_callback(cancelled)
    goroutine.add_done_callback(ended)
    return future


# From a goroutine to a coroutine


class _Call:
    """A coroutine that a goroutine waits for."""

    def __init__(self, coroutine, loop, background=None):
        self.coroutine = coroutine
        self.loop = loop
        self.background = background
        self.task = None
        self.error = None
        self.done = Event()
        self.is_cancelled = False

    def start(self):
        """Called by the loop."""
        coroutine, self.coroutine = self.coroutine, None
        if self.is_cancelled:
            coroutine.close()
            self.done.set()
            return
        try:
            self.task = self.loop.create_task(coroutine)
        except BaseException as error:
            self.error = error
            self.done.set()
        else:
            self.task.add_done_callback(self.ended)

    def ended(self, task):
        self.done.set()

    def cancel(self):
        """Called by the loop."""
        self.is_cancelled = True
        if self.task is not None:
            self.task.cancel()

    def wait(self):
        try:
            self.done.wait()
        except BaseException:
            # Cancelled, or out of time. The coroutine ends before its caller goes on; being cancelled once
            # more ends this wait too.
            try:
                self.loop.call_soon_threadsafe(self.cancel)
            except RuntimeError:
                pass  # the loop is closed
            else:
                self.done.wait()
                if self.task is not None and not self.task.cancelled():
                    self.task.exception()
            raise
        if self.error is not None:
            raise self.error
        if self.background is not None and self.background.is_at_exit and self.task.cancelled():
            # Cancelled by the end of the program. That is no error of the caller's, be it a goroutine or a thread.
            raise SystemExit
        return self.task.result()


async def _await(awaitable):
    return await awaitable


def run_coroutine(coroutine, *, loop=None):
    """Runs a coroutine in an event loop, and waits as a goroutine until it has ended; gives what it returns, or
    raises what it raises. Any number of goroutines, and threads, may do so at once.

    The loop is the package's own, which it keeps in a goroutine for all such calls; or a loop that runs
    elsewhere: `loop`. The coroutine has a copy of the caller's context.

    If the goroutine is cancelled while it waits, or its Timeout passes, the coroutine's task is cancelled, and
    has ended when the exception goes on. At the end of the program the tasks on the package's own loop are cancelled,
    and callers that go on then get SystemExit.

    >>> import asyncio, gosched
    >>> gosched.run_coroutine(asyncio.sleep(0.001, "slept"))
    'slept'
    """
    if not _asyncio.iscoroutine(coroutine):
        if not _inspect.isawaitable(coroutine):
            raise TypeError("a coroutine is required, not %r" % type(coroutine).__name__)
        coroutine = _await(coroutine)
    if _asyncio._get_running_loop() is not None:
        coroutine.close()
        raise RuntimeError("run_coroutine() would hold up the event loop that runs here: await the coroutine")
    context = _contextvars.copy_context()
    while True:
        background = None
        if loop is None:
            background = _the_background()
        call = _Call(coroutine, loop if background is None else background.loop, background)
        try:
            if background is not None:
                background.calls.add(call)
            call.loop.call_soon_threadsafe(call.start, context=context)
        except RuntimeError:
            # It's closed.
            if background is None:
                coroutine.close()
                raise
            continue
        del coroutine
        try:
            return call.wait()
        finally:
            if background is not None:
                background.calls.discard(call)
            # An exception has this frame.
            del call


class _Background:
    """The loop of run_coroutine(), and the goroutine in which it runs."""

    def __init__(self):
        self.loop = EventLoop()
        self.calls = set()
        self.is_closing = False
        self.is_at_exit = False
        self.is_serving = False
        self.goroutine = _gosched.spawn(self._run, name="gosched-asyncio")

    def _run(self):
        _asyncio.set_event_loop(self.loop)
        try:
            while not self.is_closing:
                self.is_serving = True
                try:
                    self.loop.run_forever()
                except (KeyboardInterrupt, SystemExit) as error:
                    if not self._is_known(error):
                        # As in the loop of a main thread: it ends the program.
                        main = _gosched.main()
                        if main is None:
                            raise
                        main.throw(error)
                finally:
                    self.is_serving = False
        except Cancelled:
            pass
        finally:
            self._close()

    def _is_known(self, error):
        # Whether a caller of run_coroutine() gets it.
        for call in self.calls:
            task = call.task
            if task is not None and task.done() and not task.cancelled():
                if task.exception() is error:
                    return True
        return False

    def _close(self):
        global _background
        if _background is self:
            _background = None
        loop = self.loop
        try:
            while True:
                # Once more, so that what was begun meanwhile is seen.
                loop.run_until_complete(_asyncio.sleep(0))
                tasks = _asyncio.all_tasks(loop)
                if not tasks:
                    break
                for task in tasks:
                    task.cancel()
                loop.run_until_complete(_asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            try:
                loop.run_until_complete(loop.shutdown_default_executor())
            except RuntimeError:
                pass  # no thread can start any more
        finally:
            _asyncio.set_event_loop(None)
            loop.close()

    def _stop(self):
        if self.is_serving:
            self.loop.stop()

    def stop(self):
        self.is_closing = self.is_at_exit = True
        try:
            self.loop.call_soon_threadsafe(self._stop)
        except RuntimeError:
            pass  # it's closed
        self.goroutine.join(_EXIT)


#: how long the end of the program waits for coroutines that are cancelled then, in seconds
_EXIT = 5

_background = None
_background_lock = Lock()


def _the_background():
    global _background
    with _background_lock:
        if _background is None or _background.goroutine.done():
            _background = _Background()
        return _background


@_atexit.register
def _at_exit():
    background = _background
    if background is not None:
        background.stop()


#: loops of a parent: what they have is the parent's too, and must not be closed by a destructor
_abandoned = []


def _after_fork():
    global _background, _background_lock
    _background_lock = Lock()
    background, _background = _background, None
    if background is not None:
        loop = background.loop
        _abandoned.append(background)
        # Not unregistered: that would be in the parent's selector.
        loop._selector._selector.close()
        loop._ssock.close()
        loop._csock.close()


_os.register_at_fork(after_in_child=_after_fork)
