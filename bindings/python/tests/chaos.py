"""A random tester of the core: python tests/chaos.py [--seed N] [--seconds N] [--goroutines N].

Goroutines and threads do random things to shared channels, locks and files, and are cancelled at random; what is
sent, received, taken and given back is counted, and must agree at the end. A seed gives the same choices, though not
the same order. `make test` runs it for some seconds, `make soak` for long.
"""

import _thread
import argparse
import faulthandler
import gc
import os
import random
import signal
import socket
import sys
import threading
import time
import traceback

import gosched
from gosched import (
    Cancelled, Channel, Closed, Event, Group, Lock, Pool, RLock, RWMutex, Semaphore, Timeout, WaitGroup, after,
    blocking, current, go, select, sleep, spawn, yield_,
)

core = gosched._gosched


class Wrong(Exception):
    """Something that must not happen."""


class Thrown(Exception):
    """What the tester throws at goroutines."""


class Chaos:
    def __init__(self, random_, forks=True):
        self.random = random_
        self.forks = forks
        self.channels = [Channel(n) for n in (0, 0, 1, 3, 100)]
        self.numbers = Channel(5, "q")
        self.locks = [Lock(), Lock(), RLock(), RLock()]
        self.inside = [0] * len(self.locks)
        self.semaphores = [Semaphore(1), Semaphore(3)]
        self.units = [1, 3]
        self.using0 = self.using1 = 0
        self.rw = RWMutex()
        self.readers = self.writers = 0
        self.events = [Event() for _ in range(3)]
        self.sent = self.received = 0
        #: for what threads count too; held for a moment only
        self.guard = _thread.allocate_lock()
        self.alive = set()
        self.threads = []
        self.calls = set()
        self.counts = {}
        self.errors = []
        self.stopping = False
        self.local = threading.local()
        self.fork_lock = Lock()
        self.names = [name[3:] for name in dir(self) if name.startswith("do_")]

    # waits and what they give

    def count(self, name, n):
        numbers = vars(self)
        # No call and no new container with the guard held: the collector would run, and with it a __del__ that yields. A
        # goroutine that waits for the guard blocks its thread, on which the goroutine that yields has to go on.
        with self.guard:
            now = numbers[name] = numbers[name] + n
        return now

    def timeout(self):
        return self.random.choice([None, 0, 0.00001, 0.0005, 0.002])

    def sometimes(self, chance=0.5):
        return self.random.random() < chance

    def do_yield(self):
        yield_()

    def do_sleep(self):
        sleep(self.random.choice([0, 0.00001, 0.0002, 0.001]))

    def do_send(self):
        channel = self.random.choice(self.channels)
        value = [self.random.random()]
        self.count("sent", 1)
        done = False
        try:
            if self.sometimes(0.2):
                done = channel.try_send(value)
            else:
                channel.send(value, self.random.choice([0, 0.0001, 0.002]))
                done = True
        except TimeoutError:
            pass
        finally:
            if not done:
                self.count("sent", -1)

    def do_recv(self):
        channel = self.random.choice(self.channels)
        try:
            if self.sometimes(0.2):
                ok, value = channel.try_recv()
                if not ok:
                    return
            else:
                value = channel.recv(self.random.choice([0, 0.0001, 0.002]))
        except TimeoutError:
            return
        self.count("received", 1)
        if not isinstance(value, list) or len(value) != 1:
            raise Wrong("received %r" % (value,))

    def do_select(self):
        cases, sends = [], []
        for _ in range(self.random.randrange(1, 6)):
            channel = self.random.choice(self.channels)
            if self.sometimes():
                cases.append(channel.recv_case())
            else:
                cases.append(channel.send_case([1]))
        # Counted before: the receiver may be first.
        self.count("sent", 1)
        chosen = None
        try:
            chosen, value, ok = select(*cases, timeout=self.random.choice([0, 0.0001, 0.001]))
        except TimeoutError:
            pass
        finally:
            if chosen is None or cases[chosen][0] != "send":
                self.count("sent", -1)
        if chosen is not None and cases[chosen][0] == "recv":
            self.count("received", 1)
            if not ok or not isinstance(value, list):
                raise Wrong("selected %r" % ((value, ok),))

    def do_numbers(self):
        try:
            if self.sometimes():
                self.numbers.send(self.random.randrange(-(1 << 63), 1 << 63), 0.0002)
            else:
                self.numbers.recv(0.0002)
        except TimeoutError:
            pass

    def do_lock(self):
        i = self.random.randrange(len(self.locks))
        lock = self.locks[i]
        again = isinstance(lock, RLock) and lock._is_owned()
        timeout = self.timeout()
        if again:
            return
        if not lock.acquire(timeout=-1 if timeout is None else timeout):
            return
        try:
            self.inside[i] += 1
            if self.inside[i] != 1:
                raise Wrong("%d inside a lock" % self.inside[i])
            try:
                if self.sometimes():
                    self.do_short()
            finally:
                self.inside[i] -= 1
        finally:
            lock.release()

    def do_short(self):
        self.random.choice([self.do_yield, self.do_sleep, self.do_gc_young])()

    def do_semaphore(self):
        i = self.random.randrange(2)
        if not self.semaphores[i].acquire(timeout=self.timeout()):
            return
        try:
            using = self.count("using%d" % i, 1)
            if using > self.units[i]:
                raise Wrong("%d have a semaphore of %d" % (using, self.units[i]))
            try:
                self.do_short()
            finally:
                self.count("using%d" % i, -1)
        finally:
            self.semaphores[i].release()

    def do_rwmutex(self):
        if self.sometimes(0.3):
            if not self.rw.lock(self.timeout()):
                return
            try:
                self.count("writers", 1)
                if self.writers != 1 or self.readers:
                    raise Wrong("%d writers, %d readers" % (self.writers, self.readers))
                try:
                    self.do_short()
                finally:
                    self.count("writers", -1)
            finally:
                self.rw.unlock()
        else:
            if not self.rw.rlock(self.timeout()):
                return
            try:
                self.count("readers", 1)
                if self.writers:
                    raise Wrong("a writer beside readers")
                try:
                    self.do_short()
                finally:
                    self.count("readers", -1)
            finally:
                self.rw.runlock()

    def do_event(self):
        event = self.random.choice(self.events)
        what = self.random.randrange(3)
        if what == 0:
            event.set()
        elif what == 1:
            event.clear()
        else:
            event.wait(self.random.choice([0, 0.0001, 0.001]))

    def do_after(self):
        after(self.random.random() / 1000).recv()

    def do_timeout(self):
        if current() is None:
            return
        with Timeout(self.random.random() / 1000, False):
            with Timeout(self.random.random() / 1000, False):
                self.act()
            self.act()

    # goroutines

    def do_spawn(self):
        if len(self.alive) > 200:
            return
        g = go(self.some, self.random.randrange(1, 10))
        self.alive.add(g)
        g.add_done_callback(self.ended)
        if self.sometimes(0.3):
            try:
                g.result(self.random.choice([0, 0.001]))
            except (TimeoutError, Cancelled, Thrown):
                if g.done() is False and not isinstance(sys.exc_info()[1], TimeoutError):
                    raise

    def ended(self, g):
        self.alive.discard(g)
        self.check(g.exception())

    def check(self, error):
        if error is not None and not isinstance(error, (Cancelled, Thrown, Timeout)):
            self.errors.append(error)

    def do_cancel(self):
        if self.alive:
            g = self.random.choice(list(self.alive))
            if self.sometimes():
                g.cancel("chaos")
            else:
                g.throw(Thrown("chaos"))

    def do_join(self):
        if self.alive:
            g = self.random.choice(list(self.alive))
            if g is not current():
                g.join(self.random.choice([0, 0.0002, 0.001]))

    def do_group(self):
        try:
            with Group() as group:
                for _ in range(self.random.randrange(4)):
                    group.go(self.random.choice([yield_, lambda: sleep(0.0001), self.do_short, self.fail]))
                if self.sometimes(0.1):
                    group.cancel()
        except Exception as error:
            for e in getattr(error, "exceptions", [error]):
                if not isinstance(e, (Thrown, RuntimeError)):
                    raise

    def fail(self):
        yield_()
        raise Thrown("failed")

    def do_pool(self):
        if self.sometimes(0.1):
            if Pool(2).map(abs, range(-5, 0)) != [5, 4, 3, 2, 1]:
                raise Wrong("map")

    def do_wait_group(self):
        wg = WaitGroup()
        for _ in range(self.random.randrange(4)):
            wg.go(yield_)
        wg.wait()

    def do_local(self):
        self.local.x = x = self.random.random()
        self.do_short()
        if self.local.x != x:
            raise Wrong("thread-local data of another")

    def do_error(self):
        try:
            try:
                raise KeyError(1)
            finally:
                yield_()
        except KeyError as e:
            self.do_short()
            if sys.exc_info()[1] is not e:
                raise Wrong("the error of another")

    def do_recurse(self):
        def f(n):
            if n == 0:
                yield_()
                return 0
            return 1 + f(n - 1)

        n = self.random.randrange(1, 100)
        if f(n) != n:
            raise Wrong("recursion")

    # threads, processes, files

    def do_blocking(self):
        what = self.random.randrange(4)
        if what == 0:
            if blocking(pow, 2, 10) != 1024:
                raise Wrong("blocking")
        elif what == 1:
            blocking(time.sleep, 0.0003)
        elif what == 2:
            try:
                blocking(lambda: {}[1])
            except KeyError:
                pass
            else:
                raise Wrong("no error")
        else:
            blocking(self.apart)

    def apart(self):
        """Goes on when the caller of blocking() is cancelled."""
        this = object()
        self.calls.add(this)
        try:
            self.some(2)
        except BaseException as error:
            self.check(error)
            raise
        finally:
            self.calls.discard(this)

    def do_thread(self):
        if self.threads_left() < 5 and self.sometimes(0.2):
            t = threading.Thread(target=self.thread, daemon=True)
            self.threads.append(t)
            t.start()

    def threads_left(self):
        return sum(t.is_alive() for t in list(self.threads))

    def thread(self):
        try:
            self.some(5)
        except BaseException as error:
            self.check(error)

    def do_fork(self):
        if not self.forks or not self.sometimes(0.03) or not self.fork_lock.acquire(False):
            return
        try:
            pid = os.fork()
            if pid == 0:
                self.child()
            try:
                end = time.monotonic() + 60
                while True:
                    got, status = os.waitpid(pid, os.WNOHANG)
                    if got:
                        break
                    if time.monotonic() > end:
                        raise Wrong("the child of a fork hangs: %d" % pid)
                    try:
                        sleep(0.001)
                    except (Cancelled, Thrown, Timeout):
                        pass
            finally:
                self.counts["children"] = self.counts.get("children", 0) + 1
            if status:
                raise Wrong("the child of a fork has ended with %d" % status)
        finally:
            self.fork_lock.release()

    def child(self):
        try:
            faulthandler.cancel_dump_traceback_later() if current() is None else None
            other = Chaos(random.Random(self.random.random()), forks=False)
            other.run(0.02, 5)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def do_gc_young(self):
        gc.collect(0)

    def do_gc(self):
        if self.sometimes(0.1):
            gc.collect()

    def do_cycle(self):
        class Thing:
            def __del__(self, yield_=yield_):
                try:
                    yield_()
                except (Cancelled, Thrown, Timeout):
                    pass

        a = Thing()
        if self.sometimes():
            a.a = a

    def do_file(self):
        r, w = os.pipe()
        try:
            os.set_blocking(r, False)
            os.set_blocking(w, False)
            g = go(core.read, r, 10, 0.001)
            try:
                if self.sometimes():
                    core.write(w, b"x")
                try:
                    if g.result(0.01) != b"x":
                        raise Wrong("read")
                except (TimeoutError, OSError):
                    pass
            finally:
                g.cancel()
                core.cancel_fd(r)
                while not g.done():
                    try:
                        g.join()
                    except (Cancelled, Thrown, Timeout):
                        pass
        finally:
            os.close(r)
            os.close(w)

    def do_socket(self):
        a, b = socket.socketpair()
        with a, b:
            a.setblocking(False)
            b.setblocking(False)
            n = self.random.choice([1, 1000, 300_000])
            g = go(core.sendall, a.fileno(), b"x" * n)
            try:
                got = 0
                while got < n:
                    got += len(core.recv(b.fileno(), 65536, 0, 5))
            finally:
                g.cancel()
                while not g.done():
                    try:
                        g.join()
                    except (Cancelled, Thrown, Timeout):
                        pass
                g.exception()

    def do_poll(self):
        r, w = os.pipe()
        try:
            if self.sometimes():
                os.write(w, b"x")
            core.wait_fds([(r, 1), (w, 4)], 0.0001)
            core.wait_read(r, 0.0001)
        finally:
            os.close(r)
            os.close(w)

    def do_reports(self):
        if self.sometimes(0.05):
            gosched.stats()
            with open(os.devnull, "w") as f:
                gosched.dump(f)
            [repr(g) for g in gosched.goroutines()]
            [g.frame for g in gosched.goroutines()]

    def do_gomaxprocs(self):
        if self.sometimes(0.02):
            gosched.gomaxprocs(self.random.choice([1, 2, 3, 8]))

    # the whole

    def act(self):
        name = self.random.choice(self.names)
        self.counts[name] = self.counts.get(name, 0) + 1
        getattr(self, "do_" + name)()

    def some(self, n):
        for _ in range(n):
            if self.stopping:
                return
            self.act()

    def forever(self):
        while not self.stopping:
            try:
                self.act()
            except (Cancelled, Thrown, Timeout):
                pass

    def run(self, seconds, goroutines):
        gs = [go(self.forever) for _ in range(goroutines)]
        for g in gs:
            self.alive.add(g)
            g.add_done_callback(self.ended)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.errors:
            sleep(0.005)
        self.stopping = True
        end = time.monotonic() + 60
        while self.alive:
            # What waits for others that have stopped is set free.
            for g in list(self.alive):
                g.cancel()
            sleep(0.001)
            if time.monotonic() > end:
                gosched.dump()
                core._dump(2)
                raise Wrong("%d goroutines don't end: %r" % (len(self.alive), list(self.alive)[:5]))
        # Other threads, and the goroutines of groups.
        deadline = time.monotonic() + 30
        while self.threads_left() or self.calls:
            sleep(0.001)
            if time.monotonic() > deadline:
                gosched.dump()
                core._dump(2)
                raise Wrong("%d threads and %d calls don't end" % (self.threads_left(), len(self.calls)))
        if self.errors:
            raise Wrong("errors: %r" % self.errors[:3]) from self.errors[0]
        deadline = time.monotonic() + 30
        while self.sent != self.received:
            for channel in self.channels:
                while True:
                    ok, value = channel.try_recv()
                    if not ok:
                        break
                    self.count("received", 1)
            if self.sent != self.received:
                sleep(0.001)
                if time.monotonic() > deadline:
                    raise Wrong("sent %d, received %d" % (self.sent, self.received))
        for lock in self.locks:
            if lock.locked():
                raise Wrong("a lock without a holder is locked: %r" % lock)
        for semaphore, units in zip(self.semaphores, self.units):
            if semaphore.value != units:
                raise Wrong("a semaphore of %d has %d" % (units, semaphore.value))
        if not self.rw.lock(0):
            raise Wrong("an RWMutex without a holder is locked")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--goroutines", type=int, default=30)
    parser.add_argument("--no-forks", action="store_true")
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    seed = random.randrange(1 << 30) if args.seed is None else args.seed
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    import warnings

    warnings.filterwarnings("ignore", message="This process", category=DeprecationWarning)
    rounds = 0
    counts = {}
    while True:
        random_ = random.Random(seed + rounds)
        print("seed", seed + rounds, end=" ", flush=True)
        chaos = Chaos(random_, forks=not args.no_forks)
        chaos.run(min(1.0, max(0.2, end - time.monotonic())), args.goroutines)
        for name, n in chaos.counts.items():
            counts[name] = counts.get(name, 0) + n
        rounds += 1
        print(sum(chaos.counts.values()), flush=True)
        if time.monotonic() > end:
            break
    print("done:", " ".join("%s %d" % item for item in sorted(counts.items())))


if __name__ == "__main__":
    main()
