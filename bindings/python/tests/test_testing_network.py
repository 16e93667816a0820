"""The network in memory and the clocks of a bubble, from Python."""

import errno
import os
import socket as std_socket
import struct
import time as std_time

import pytest

import gosched
from gosched import go, select, selectors, sleep, socket, testing, time
from helpers import FREE_THREADED, run

pytestmark = [
    pytest.mark.skipif(FREE_THREADED, reason="a bubble needs a Python with a GIL"),
    pytest.mark.timeout(120),
]


def shout(connection):
    with connection:
        while data := connection.recv(100):
            connection.sendall(data.upper())


def test_a_server_and_its_clients():
    def all_of_it():
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            assert address[0] == "127.0.0.1" and address[1] > 0

            def serve():
                for _ in range(3):
                    connection, peer = server.accept()
                    assert isinstance(connection, socket.socket)
                    assert connection.getpeername() == peer and connection.getsockname() == address
                    go(shout, connection)

            def ask(text):
                with socket.create_connection(address, timeout=10) as connection:
                    assert connection.getpeername() == address and connection.gettimeout() == 10
                    connection.sendall(text)
                    connection.shutdown(socket.SHUT_WR)
                    with connection.makefile("rb") as file:
                        return file.read()

            go(serve)
            asked = [go(ask, text) for text in (b"one", b"two", b"three")]
            return [one.result() for one in asked]

    assert testing.explore(all_of_it, 100) == 100
    assert testing.run(all_of_it) == [b"ONE", b"TWO", b"THREE"]
    for faults in (dict(jitter=0.005, loss=0.1, short_io=0.3), dict(delay=30.0 / 8)):
        assert testing.run(all_of_it, net=testing.Net(**faults), seed=3) == [b"ONE", b"TWO", b"THREE"]


def test_nothing_of_it_is_the_kernels():
    def listen():
        server = socket.create_server(("127.0.0.1", 80))  # a port that may be another process's
        with pytest.raises(OSError) as caught:
            os.read(server.fileno(), 1)
        assert caught.value.errno == errno.EBADF
        assert isinstance(server, socket.socket) and isinstance(server, std_socket.socket)
        server.close()
        assert server.fileno() == -1
        return type(server).__name__

    assert testing.run(listen) == "socket"


def test_timeouts_are_of_the_bubbles_clock():
    def waits():
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(3600)
            began = testing.now()
            with pytest.raises(std_socket.timeout):
                server.accept()
            assert testing.now() - began == 3600
            server.settimeout(0)
            with pytest.raises(BlockingIOError):
                server.accept()
            client = socket.create_connection(server.getsockname())
            client.settimeout(60)
            with pytest.raises(std_socket.timeout):
                client.recv(1)
            with pytest.raises(BlockingIOError):
                client.recv(1, socket.MSG_DONTWAIT)
            client.close()

    began = std_time.monotonic()
    testing.run(waits)
    assert std_time.monotonic() - began < 60


def test_errors():
    def errors():
        one = socket.socket()
        assert (one.family, one.type, one.proto) == (socket.AF_INET, socket.SOCK_STREAM, 0)
        assert one.connect_ex(("127.0.0.1", 9)) == errno.ECONNREFUSED
        with pytest.raises(ConnectionRefusedError):
            one.connect(("localhost", 9))
        with pytest.raises(OSError) as caught:
            one.getpeername()
        assert caught.value.errno == errno.ENOTCONN
        with pytest.raises(OSError) as caught:
            socket.create_connection(("192.0.2.1", 9))
        assert caught.value.errno == errno.ENETUNREACH
        other = socket.create_server(("", 8080))
        with pytest.raises(OSError) as caught:
            socket.create_server(("127.0.0.1", 8080))
        assert caught.value.errno == errno.EADDRINUSE
        with pytest.raises(OverflowError):
            one.bind(("127.0.0.1", 65536))
        with pytest.raises(TypeError):
            one.bind("127.0.0.1")
        with pytest.raises(TypeError):
            one.send("text")
        with pytest.raises(OSError) as caught:
            one.dup()
        assert caught.value.errno == errno.EOPNOTSUPP
        one.setblocking(False)
        assert one.connect_ex(("127.0.0.1", 8080)) == errno.EINPROGRESS
        sleep(1)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert one.getpeername() == ("127.0.0.1", 8080)
        accepted, _ = go(other.accept).result()
        waits = go(other.accept)
        sleep(1)
        other.close()
        with pytest.raises(OSError) as caught:
            waits.result()
        assert caught.value.errno in (errno.EBADF, errno.ECANCELED)
        with pytest.raises(OSError) as caught:
            other.accept()
        assert caught.value.errno == errno.EBADF
        one.close()
        accepted.close()

    testing.explore(errors, 20)


def test_options():
    def options():
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == struct.pack("ii", 1, 5)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
        one.close()
        six = socket.socket(socket.AF_INET6)
        six.bind(("::1", 0))
        assert six.getsockname()[0] == "::1" and len(six.getsockname()) == 4
        again = socket.socket(fileno=six.detach())
        assert again.family == socket.AF_INET6 and again.getsockname()[0] == "::1"
        again.close()

    testing.run(options)


class Noted(socket.socket):
    """One of a program's own classes."""

    def __init__(self, note):
        super().__init__(socket.AF_INET, socket.SOCK_DGRAM)
        self.note = note

    def send(self, data):
        return super().send(data + self.note)


def test_classes_of_programs():
    def datagrams():
        with Noted(b"!") as one, socket.socket(type=socket.SOCK_DGRAM) as other:
            assert isinstance(one, Noted) and type(one).__name__ == "Noted"
            other.bind(("127.0.0.1", 53))
            one.connect(("127.0.0.1", 53))
            assert one.send(b"hello") == 6
            assert other.recv(10) == b"hello!"

    testing.run(datagrams)


def test_a_reset():
    def reset():
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        client.close()
        server.close()

    testing.run(reset)


def test_datagrams_and_pairs():
    def datagrams():
        a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        a.bind(("127.0.0.1", 0))
        b.bind(("127.0.0.1", 0))
        assert b.sendto(b"hello", a.getsockname()) == 5
        assert a.recvfrom(10) == (b"hello", b.getsockname())
        assert b.sendmsg([b"one", b"two"], [], 0, a.getsockname()) == 6
        assert a.recvmsg(10) == (b"onetwo", [], 0, b.getsockname())
        a.connect(b.getsockname())
        a.send(b"back")
        room = bytearray(10)
        assert b.recvfrom_into(room) == (4, a.getsockname()) and room[:4] == b"back"
        a.close()
        b.close()
        one, other = socket.socketpair()
        assert one.family == socket.AF_UNIX and one.getpeername() == ""
        reads = go(other.recv, 200_000, socket.MSG_WAITALL)
        one.sendall(b"x" * 200_000)
        assert reads.result() == b"x" * 200_000
        one.close()
        assert other.recv(1) == b""
        other.close()
        named = socket.socket(socket.AF_UNIX)
        named.bind("/a path that is in no file system")
        named.listen()
        client = socket.socket(socket.AF_UNIX)
        client.connect("/a path that is in no file system")
        connection, peer = named.accept()
        assert peer == "" and client.getpeername() == "/a path that is in no file system"
        assert not os.path.exists("/a path that is in no file system")
        for one in (named, client, connection):
            one.close()

    testing.run(datagrams)


def test_waiting_for_several():
    def several(make):
        server = socket.create_server(("127.0.0.1", 0))
        with make() as selector:
            selector.register(server, selectors.EVENT_READ)
            began = testing.now()
            assert selector.select(60) == []
            assert 60 <= testing.now() - began < 60.001
            clients = [socket.create_connection(server.getsockname()) for _ in range(2)]
            [(key, events)] = selector.select()
            assert key.fileobj is server and events == selectors.EVENT_READ
            for _ in clients:
                selector.register(server.accept()[0], selectors.EVENT_READ)
            assert selector.select(1) == []
            go(lambda: (sleep(30), clients[1].send(b"x")))
            [(key, events)] = selector.select(100)
            assert key.fileobj.recv(10) == b"x"
            assert select.select([server], clients, [], 5) == ([], clients, [])
            for key in list(selector.get_map().values()):
                selector.unregister(key.fileobj)
                key.fileobj.close()
            for client in clients:
                client.close()

    for make in (selectors.PollSelector, selectors.SelectSelector, selectors.EpollSelector):
        assert testing.explore(lambda: several(make), 20) == 20


def test_a_socket_that_is_forgotten_is_closed():
    def forgets():
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
        with pytest.warns(ResourceWarning):
            del client
        assert connection.recv(1) == b""
        connection.close()
        server.close()

    testing.run(forgets)
    left = []
    testing.run(lambda: left.append(socket.socket()))
    assert left[0].fileno() >= 0
    with pytest.raises(OSError) as caught:
        left[0].getsockname()
    assert caught.value.errno == errno.EBADF
    # Its number is another file's by now.
    with open(os.devnull) as file:
        left.clear()
        assert file.read() == ""


def test_sockets_outside_are_the_kernels():
    assert testing.run(lambda: 1) == 1
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        connection, _ = server.accept()
        with connection:
            client.sendall(b"hello")
            assert connection.recv(10) == b"hello"
            os.fstat(connection.fileno())
        one, other = socket.socketpair()
        one.send(b"x")
        assert other.recv(1) == b"x"
        one.close()
        other.close()


def test_the_clocks():
    def clocks():
        began = time.monotonic(), time.monotonic_ns(), time.perf_counter(), time.perf_counter_ns(), time.time(), time.time_ns()
        time.sleep(86400)
        ended = time.monotonic(), time.monotonic_ns(), time.perf_counter(), time.perf_counter_ns(), time.time(), time.time_ns()
        assert [b - a for a, b in zip(began, ended)] == [86400, 86400 * 10**9] * 3
        return began

    assert testing.run(clocks) == (1, 10**9, 1, 10**9, 946684800, 946684800 * 10**9)
    assert abs(time.monotonic() - std_time.monotonic()) < 60
    assert abs(time.time() - std_time.time()) < 60
    assert abs(time.time_ns() - std_time.time_ns()) < 60 * 10**9


def test_what_a_deadlock_shows(capfd):
    def waits_for_a_client(server):
        server.accept()

    def waits_for_a_lock(lock):
        with lock:
            pass

    def waits_for_data(address):
        with socket.create_connection(address) as connection:
            connection.recv(1)

    def waits():
        lock = gosched.Lock()
        lock.acquire()
        server = socket.create_server(("127.0.0.1", 0))
        address = server.getsockname()
        for one in [go(waits_for_a_lock, lock), go(waits_for_data, address), go(waits_for_a_client, socket.create_server(("", 7)))]:
            one.join()

    with pytest.raises(testing.DeadlockError) as caught:
        testing.explore(waits, 10)
    report = caught.value.report
    assert capfd.readouterr().err == report
    places = {f.__name__: f.__code__.co_firstlineno for f in (waits_for_a_client, waits_for_a_lock, waits_for_data, waits)}
    for name, line in places.items():
        lines = {line + 1, line + 2, line + 6}
        assert any("%s (test_testing_network.py:%d)" % (name, n) in report for n in lines), report
    # What of the package they are in, and what of the interpreter, is of no interest.
    for other in ("(_network.py", "(socket.py", "clock_gettime", "_gosched"):
        assert other not in report, report


def test_the_steps_of_a_schedule_name_the_callers(capfd):
    def sends_and_counts():
        counted = [0]

        def count(sock):
            was = counted[0]
            sock.send(b"x")
            counted[0] = was + 1

        pairs = [socket.socketpair() for _ in range(2)]
        for one in [go(count, pair[0]) for pair in pairs]:
            one.join()
        for pair in pairs:
            pair[0].close()
            pair[1].close()
        assert counted == [2]

    with pytest.raises(AssertionError):
        testing.explore(sends_and_counts)
    line = sends_and_counts.__code__.co_firstlineno + 5
    report = capfd.readouterr().err
    assert "count (test_testing_network.py:%d)\n     gives way to goroutine" % line in report
    assert "(_network.py" not in report


PATCHED = """
    import gosched
    gosched.patch_all()
    import http.client, http.server, queue, selectors, socket, socketserver, threading, time
    from gosched import testing
"""


def patched(code, **kwargs):
    import textwrap

    return run(textwrap.dedent(PATCHED) + textwrap.dedent(code), **kwargs).out


def test_the_standard_librarys_server_of_http():
    out = patched(
        """
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                time.sleep(5)
                body = ("%s at %.1f" % (self.path, time.monotonic())).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        def get(address, path):
            connection = http.client.HTTPConnection(*address)
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read().decode()
            connection.close()
            return answer.status, body, answer.headers["Date"]

        def serve_and_ask():
            with http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler) as server:
                threading.Thread(target=server.serve_forever).start()
                found = [gosched.go(get, server.server_address, "/%d" % n) for n in range(3)]
                found = [one.result() for one in found]
                server.shutdown()
            return found

        for answer in testing.run(serve_and_ask):
            print(*answer)
        print(testing.explore(serve_and_ask, 20))
        """
    )
    date = "Sat, 01 Jan 2000 00:00:05 GMT"
    assert out == "".join("200 /%d at 6.0 %s\n" % (n, date) for n in range(3)) + "20\n"


def test_servers_of_socketserver():
    out = patched(
        """
        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                for line in self.rfile:
                    self.wfile.write(line.upper())

        def serve_and_ask():
            with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
                serving = threading.Thread(target=server.handle_request)
                serving.start()
                with socket.create_connection(server.server_address) as connection:
                    connection.sendall(b"hello\\n")
                    got = connection.recv(100)
                serving.join()
                return got

        print(testing.run(serve_and_ask), testing.explore(serve_and_ask, 20))

        def waits():
            server = socketserver.UDPServer(("127.0.0.1", 0), socketserver.DatagramRequestHandler)
            server.timeout = 600
            server.handle_request()
            server.server_close()
            with socket.socketpair()[0] as one, selectors.DefaultSelector() as selector:
                selector.register(one, selectors.EVENT_WRITE)
                assert selector.select(10)
            try:
                queue.Queue().get(timeout=100)
            except queue.Empty:
                return time.monotonic()

        print("%.3f" % testing.run(waits))
        """
    )
    assert out == "b'HELLO\\n' 20\n701.000\n"


def test_servers_of_asyncio():
    out = patched(
        """
        import asyncio

        async def serve(reader, writer):
            line = await reader.readline()
            await asyncio.sleep(3600)
            writer.write(line.upper())
            writer.close()

        async def serve_and_ask():
            server = await asyncio.start_server(serve, "127.0.0.1", 80)
            reader, writer = await asyncio.open_connection("127.0.0.1", 80)
            writer.write(b"hello\\n")
            got = await reader.read()
            writer.close()
            server.close()
            return got, round(time.monotonic(), 2)

        print(testing.run(lambda: asyncio.run(serve_and_ask())), testing.explore(lambda: asyncio.run(serve_and_ask()), 10))
        """
    )
    assert out == "(b'HELLO\\n', 3601.0) 10\n"


def test_tls_says_that_it_is_not_there():
    out = patched(
        """
        import ssl
        def tls():
            one, other = socket.socketpair()
            with one, other:
                try:
                    ssl.create_default_context().wrap_socket(one, server_hostname="a")
                except OSError as error:
                    return str(error)

        print(testing.run(tls))
        """
    )
    assert "no TLS" in out
