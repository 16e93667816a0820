"""One workload on one library: python peer.py LIBRARY WORKLOAD COUNT

It prints lines `figure value unit`. The server workloads (echo) print `port N` and serve until
they are killed. Each workload does a tenth of its work unmeasured first, apart from memory, which
used memory would hide. All sides do the same work, written as one writes it there.
"""

import os
import resource
import socket
import sys
import time

now = time.perf_counter


def report(figure, value, unit):
    print(f"{figure} {value:.3f} {unit}", flush=True)


def resident():
    """The resident bytes of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def burn(seconds, stop):
    """Native work without the GIL, in slices of a tenth of a second or so."""
    import hashlib

    end = now() + seconds
    while now() < end and not stop:
        hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 50_000)


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * part))]


def listener():
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    sock.listen(1024)
    print(f"port {sock.getsockname()[1]}", flush=True)
    return sock


def no_delay(sock):
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def measure(figure, count, work, unit="ns"):
    """Calls work(n), for the time of one of n."""
    work(max(1, count // 10))
    begin = now()
    work(count)
    report(figure, (now() - begin) / count * 1e9, unit)


class Blocking:
    """The workloads for libraries whose calls block. Each subclass names its own functions."""

    pair = None  # gives a channel as (put, get)
    buffer = None  # the same with a capacity of 1024

    def spawn(self, function, *args):  # gives what join takes
        raise NotImplementedError

    def run(self, workload, count):
        getattr(self, workload)(count)

    def spawn_join(self, count):
        def task():
            pass

        def work(n):
            for task_ in [self.spawn(task) for _ in range(n)]:
                task_.join()

        measure("spawn_join", count, work)

    def pingpong(self, count):
        def work(n):
            (ping, take_ping), (pong, take_pong) = self.pair(), self.pair()

            def other():
                for _ in range(n):
                    pong(take_ping())

            task = self.spawn(other)
            for i in range(n):
                ping(i)
                assert take_pong() == i
            task.join()

        measure("pingpong", count, work)

    def prodcons(self, count):
        def work(n):
            put, get = self.buffer()

            def produce():
                for i in range(n):
                    put(i)

            task = self.spawn(produce)
            total = 0
            for _ in range(n):
                total += get()
            task.join()
            assert total == n * (n - 1) // 2

        measure("prodcons", count, work)

    def memory(self, count):
        event = self.event()
        parked = [0]

        def task():
            parked[0] += 1
            event.wait()

        before = resident()
        tasks = [self.spawn(task) for _ in range(count)]
        while parked[0] < count:
            self.sleep(0.01)
        report("memory", (resident() - before) / count / 1024, "KiB")
        event.set()
        for task_ in tasks:
            task_.join()

    def echo(self, count):
        self.prepare_echo()
        sock = self.listen()

        def serve(connection):
            no_delay(connection)
            with connection:
                while True:
                    data = connection.recv(4096)
                    if not data:
                        return
                    connection.sendall(data)

        while True:
            self.spawn(serve, sock.accept()[0])

    def prepare_echo(self):
        pass

    def listen(self):
        return listener()

    def mix(self, count):
        def late(n):
            times = []
            for _ in range(n):
                begin = now()
                self.sleep(0.002)
                times.append((now() - begin - 0.002) * 1e6)
            return times

        late(50)
        report("mix.idle_p99", percentile(late(count), 0.99), "us")
        stop = []
        task = self.spawn_native(burn, 60, stop)
        self.sleep(0.2)
        report("mix.busy_p99", percentile(late(count), 0.99), "us")
        stop.append(True)
        task.join()


class Gosched(Blocking):
    def __init__(self):
        import gosched

        self.library = gosched
        self.spawn, self.sleep, self.event = gosched.go, gosched.sleep, gosched.Event

    def pair(self, capacity=0):
        channel = self.library.Channel(capacity)
        return channel.send, channel.recv

    def buffer(self):
        return self.pair(1024)

    def spawn_native(self, function, *args):
        return self.library.go(self.library.blocking, function, *args)

    def listen(self):
        import gosched.socket

        plain = listener()
        return gosched.socket.socket(fileno=plain.detach())


class Threading(Blocking):
    def __init__(self):
        import threading

        threading.stack_size(256 * 1024)
        self.library, self.sleep, self.event = threading, time.sleep, threading.Event

    def spawn(self, function, *args):
        thread = self.library.Thread(target=function, args=args)
        thread.start()
        return thread

    spawn_native = spawn

    def spawn_join(self, count):
        def task():
            pass

        def work(n):
            for begin in range(0, n, 500):
                for thread in [self.spawn(task) for _ in range(min(500, n - begin))]:
                    thread.join()

        measure("spawn_join", count // 10, work)

    def pair(self):
        import queue

        channel = queue.SimpleQueue()
        return channel.put, channel.get

    def buffer(self):
        import queue

        channel = queue.Queue(1024)
        return channel.put, channel.get


class Gevent(Blocking):
    def __init__(self):
        import gevent
        import gevent.event

        self.library, self.spawn, self.sleep, self.event = gevent, gevent.spawn, gevent.sleep, gevent.event.Event

    def spawn_join(self, count):
        def task():
            pass

        def work(n):
            self.library.joinall([self.library.spawn(task) for _ in range(n)])

        measure("spawn_join", count, work)

    def pair(self):
        import gevent.queue

        channel = gevent.queue.Channel()
        return channel.put, channel.get

    def buffer(self):
        import gevent.queue

        channel = gevent.queue.Queue(1024)
        return channel.put, channel.get

    def spawn_native(self, function, *args):
        return self.library.spawn(self.library.get_hub().threadpool.apply, function, args)

    def listen(self):
        import gevent.socket

        plain = listener()
        return gevent.socket.socket(fileno=plain.detach())


class Pyroutine(Blocking):
    def __init__(self):
        import pyroutine

        self.library, self.spawn, self.sleep = pyroutine, pyroutine.spawn, pyroutine.sleep

    def pair(self, capacity=1):
        queue = self.library.Queue(capacity)
        return queue.put, queue.get

    def buffer(self):
        return self.pair(1024)

    def event(self):
        """It has none: a number in a queue, which each waiter passes on."""
        queue = self.library.Queue()

        class Event:
            def wait(self):
                queue.put(queue.get())

            def set(self):
                queue.put(0)

        return Event()

    def spawn_native(self, function, *args):
        return self.spawn(self.library.run_blocking, function, *args)

    def listen(self):
        return self.library.Socket(_sock=listener())


class Asyncio:
    def run(self, workload, count):
        import asyncio

        self.library = asyncio
        self.start(getattr(self, workload)(count))

    def start(self, coroutine):
        self.library.run(coroutine)

    async def measure(self, figure, count, work):
        await work(max(1, count // 10))
        begin = now()
        await work(count)
        report(figure, (now() - begin) / count * 1e9, "ns")

    async def spawn_join(self, count):
        async def task():
            pass

        async def work(n):
            create = self.library.create_task
            for task_ in [create(task()) for _ in range(n)]:
                await task_

        await self.measure("spawn_join", count, work)

    async def pingpong(self, count):
        async def work(n):
            ping, pong = self.library.Queue(1), self.library.Queue(1)

            async def other():
                for _ in range(n):
                    await pong.put(await ping.get())

            task = self.library.create_task(other())
            for i in range(n):
                await ping.put(i)
                assert await pong.get() == i
            await task

        await self.measure("pingpong", count, work)

    async def prodcons(self, count):
        async def work(n):
            queue = self.library.Queue(1024)

            async def produce():
                for i in range(n):
                    await queue.put(i)

            task = self.library.create_task(produce())
            total = 0
            for _ in range(n):
                total += await queue.get()
            await task
            assert total == n * (n - 1) // 2

        await self.measure("prodcons", count, work)

    async def memory(self, count):
        event = self.library.Event()
        parked = [0]

        async def task():
            parked[0] += 1
            await event.wait()

        before = resident()
        tasks = [self.library.create_task(task()) for _ in range(count)]
        while parked[0] < count:
            await self.library.sleep(0.01)
        report("memory", (resident() - before) / count / 1024, "KiB")
        event.set()
        for task_ in tasks:
            await task_

    async def echo(self, count):
        async def serve(reader, writer):
            no_delay(writer.get_extra_info("socket"))
            while True:
                data = await reader.read(4096)
                if not data:
                    break
                writer.write(data)
                await writer.drain()
            writer.close()

        server = await self.library.start_server(serve, sock=listener(), backlog=1024)
        async with server:
            await server.serve_forever()

    async def mix(self, count):
        async def late(n):
            times = []
            for _ in range(n):
                begin = now()
                await self.library.sleep(0.002)
                times.append((now() - begin - 0.002) * 1e6)
            return times

        await late(50)
        report("mix.idle_p99", percentile(await late(count), 0.99), "us")
        stop = []
        task = self.library.get_running_loop().run_in_executor(None, burn, 60, stop)
        await self.library.sleep(0.2)
        report("mix.busy_p99", percentile(await late(count), 0.99), "us")
        stop.append(True)
        await task


class Hypertile(Asyncio):
    """Calls on the threads of its pool, which asyncio awaits; the rest is asyncio's."""

    async def spawn_join(self, count):
        import hypertile

        def task():
            pass

        async def work(n):
            for task_ in [hypertile.to_thread(task) for _ in range(n)]:
                await task_

        await self.measure("spawn_join", count, work)


class Uvloop(Asyncio):
    def start(self, coroutine):
        import uvloop

        loop = uvloop.new_event_loop()
        self.library.set_event_loop(loop)
        loop.run_until_complete(coroutine)


class Protocol(Uvloop):
    """uvloop with callbacks in place of a task for each connection."""

    async def echo(self, count):
        class Echo(self.library.Protocol):
            def connection_made(self, transport):
                self.transport = transport
                no_delay(transport.get_extra_info("socket"))

            def data_received(self, data):
                self.transport.write(data)

        server = await self.library.get_running_loop().create_server(Echo, sock=listener(), backlog=1024)
        async with server:
            await server.serve_forever()


class Trio:
    def run(self, workload, count):
        import trio

        self.library = trio
        trio.run(getattr(self, workload), count)

    measure = Asyncio.measure

    async def spawn_join(self, count):
        async def task():
            pass

        async def work(n):
            async with self.library.open_nursery() as nursery:
                for _ in range(n):
                    nursery.start_soon(task)

        await self.measure("spawn_join", count, work)

    async def pingpong(self, count):
        async def work(n):
            ping, take_ping = self.library.open_memory_channel(0)
            pong, take_pong = self.library.open_memory_channel(0)

            async def other():
                for _ in range(n):
                    await pong.send(await take_ping.receive())

            async with self.library.open_nursery() as nursery:
                nursery.start_soon(other)
                for i in range(n):
                    await ping.send(i)
                    assert await take_pong.receive() == i

        await self.measure("pingpong", count, work)

    async def prodcons(self, count):
        async def work(n):
            put, get = self.library.open_memory_channel(1024)

            async def produce():
                for i in range(n):
                    await put.send(i)

            async with self.library.open_nursery() as nursery:
                nursery.start_soon(produce)
                total = 0
                for _ in range(n):
                    total += await get.receive()
            assert total == n * (n - 1) // 2

        await self.measure("prodcons", count, work)

    async def memory(self, count):
        event = self.library.Event()
        parked = [0]

        async def task():
            parked[0] += 1
            await event.wait()

        before = resident()
        async with self.library.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(task)
            while parked[0] < count:
                await self.library.sleep(0.01)
            report("memory", (resident() - before) / count / 1024, "KiB")
            event.set()

    async def echo(self, count):
        sock = self.library.socket.from_stdlib_socket(listener())

        async def serve(connection):
            no_delay(connection)
            stream = self.library.SocketStream(connection)
            async with stream:
                while True:
                    data = await stream.receive_some(4096)
                    if not data:
                        return
                    await stream.send_all(data)

        async with self.library.open_nursery() as nursery:
            while True:
                nursery.start_soon(serve, (await sock.accept())[0])

    async def mix(self, count):
        async def late(n):
            times = []
            for _ in range(n):
                begin = now()
                await self.library.sleep(0.002)
                times.append((now() - begin - 0.002) * 1e6)
            return times

        await late(50)
        report("mix.idle_p99", percentile(await late(count), 0.99), "us")
        stop = []
        async with self.library.open_nursery() as nursery:
            nursery.start_soon(self.library.to_thread.run_sync, burn, 60, stop)
            await self.library.sleep(0.2)
            report("mix.busy_p99", percentile(await late(count), 0.99), "us")
            stop.append(True)


LIBRARIES = {
    "gosched": Gosched,
    "gevent": Gevent,
    "asyncio": Asyncio,
    "uvloop": Uvloop,
    "uvloop-protocol": Protocol,
    "trio": Trio,
    "threading": Threading,
    "pyroutine": Pyroutine,
    "hypertile": Hypertile,
}


def main():
    library, workload, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    LIBRARIES[library]().run(workload, count)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
