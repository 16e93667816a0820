"""gosched.socket, select and selectors, patched and not."""

import pytest
from patched import run


def test_echo_leaves_the_thread_free():
    run("""
        import socket, time
        listener = socket.create_server(("127.0.0.1", 0))
        def serve():
            client, _ = listener.accept()
            with client:
                while data := client.recv(100):
                    time.sleep(0.03)
                    client.sendall(data)
        server = gosched.go(serve)
        with Beside(), socket.create_connection(listener.getsockname()) as s:
            s.sendall(b"hello")
            assert s.recv(5, socket.MSG_WAITALL) == b"hello"
        server.join()
        listener.close()
    """)


def test_waitall_waits_for_all_bytes_of_streams_that_are_taken():
    run("""
        import socket, time
        def halves(read):
            a, b = socket.socketpair()
            with a, b:
                b.send(b"hello")
                sends = gosched.go(lambda: (time.sleep(0.05), b.send(b"world"), b.shutdown(socket.SHUT_WR)))
                got = read(a)
                sends.join()
                return got
        buffer = bytearray(12)
        assert halves(lambda a: a.recv_into(buffer, 10, socket.MSG_WAITALL)) == 10
        assert buffer == b"helloworld\\0\\0"
        # The end comes before all.
        assert halves(lambda a: a.recv_into(buffer, 0, socket.MSG_WAITALL)) == 10
        def peek_first(a):
            return a.recv(10, socket.MSG_PEEK | socket.MSG_WAITALL)[:5], a.recv(10, socket.MSG_WAITALL)
        assert halves(peek_first) == (b"hello", b"helloworld")
        def into_too_little(a):
            try:
                a.recv_into(bytearray(2), 3, socket.MSG_WAITALL)
            except ValueError:
                return a.recv(10, socket.MSG_WAITALL)
        assert halves(into_too_little) == b"helloworld"
        to, sender = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        with to, sender:
            to.bind(("127.0.0.1", 0))
            for word in b"one", b"two":
                sender.sendto(word, to.getsockname())
            assert to.recv(100, socket.MSG_WAITALL) == b"one" and to.recv(100) == b"two"
    """)


def test_waitall_of_recvfrom():
    run("""
        import socket, time
        def halves(read, timeout=None, seconds=0.05):
            a, b = socket.socketpair()
            with a, b:
                a.settimeout(timeout)
                b.send(b"hello")
                g = gosched.go(lambda: (time.sleep(seconds), b.send(b"world"), b.shutdown(socket.SHUT_WR)))
                got = read(a)
                g.join()
                return got
        assert halves(lambda a: a.recvfrom(10, socket.MSG_WAITALL))[0] == b"helloworld"
        # The end, or that of the time, comes before all.
        assert halves(lambda a: a.recvfrom(12, socket.MSG_WAITALL))[0] == b"helloworld"
        assert halves(lambda a: a.recvfrom(10, socket.MSG_WAITALL), 0.01, 1)[0] == b"hello"
        buffer = bytearray(12)
        assert halves(lambda a: a.recvfrom_into(buffer, 10, socket.MSG_WAITALL))[0] == 10
        assert buffer == b"helloworld\\0\\0"
        assert halves(lambda a: a.recvfrom_into(buffer, 0, socket.MSG_WAITALL))[0] == 10
        assert halves(lambda a: a.recvfrom_into(buffer, 0, socket.MSG_WAITALL), 0.01, 1)[0] == 5
        to, sender = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        with to, sender:
            to.bind(("127.0.0.1", 0))
            sender.bind(("127.0.0.1", 0))
            for word in b"one", b"two":
                sender.sendto(word, to.getsockname())
            assert to.recvfrom(100, socket.MSG_WAITALL) == (b"one", sender.getsockname())
    """)


def test_arguments_of_the_wrong_type():
    run("""
        import _socket, socket, sys
        std = _socket.socket
        def said(fn, *args):
            try:
                fn(*args)
            except TypeError as e:
                # Python 3.9 words the errors of each format of arguments otherwise.
                return str(e) if sys.version_info >= (3, 10) else type(e)
        a, b = socket.socketpair()
        with a, b:
            for args in ("x",), (1.5,), (None,), (1, "x"), (1, None), ("x", socket.MSG_WAITALL):
                assert said(a.recv, *args) == said(std.recv, a, *args) is not None, args
            for args in (b"abc",), ("abc",), (3,), (bytearray(3), "x"), (bytearray(3), 0, "x"), (b"abc", 0, socket.MSG_WAITALL), \
                    (3, 0, socket.MSG_WAITALL), (memoryview(bytearray(4))[::2],):
                assert said(a.recv_into, *args) == said(std.recv_into, a, *args) is not None, args
    """)


def test_a_descriptor_stays_non_blocking_when_the_timeout_goes():
    run("""
        import os, socket
        from gosched import socket as ours
        a, b = socket.socketpair()
        set_timeout, seen = ours._c_settimeout, []
        def watched(sock, value):
            set_timeout(sock, value)
            seen.append(os.get_blocking(sock.fileno()))
        ours._c_settimeout = watched
        with a, b:
            a.send(b"x")
            assert b.recv(1) == b"x"
            for value in 5, None, 0.5, None:
                b.settimeout(value)
                assert b.gettimeout() == value
            b.settimeout(3)
            b.setblocking(True)
            assert b.gettimeout() is None and not os.get_blocking(b.fileno())
            assert True not in seen
        try:
            b.settimeout(None)
        except OSError:
            pass
        else:
            assert False
    """)


def test_nothing_is_waited_for_without_room():
    run("""
        import socket
        a, b = socket.socketpair()
        with a, b:
            assert a.recv_into(bytearray()) == 0
    """)


def test_select_takes_any_iterables():
    run("""
        import select, socket, time
        a, b = socket.socketpair()
        with a, b:
            gosched.go(lambda: (time.sleep(0.05), b.send(b"x")))
            with Beside():
                assert select.select((s for s in [a]), iter([]), map(int, []), 10) == ([a], [], [])
        try:
            select.select(1, [], [])
        except TypeError as e:
            assert "arguments 1-3 must be sequences" in str(e)
        else:
            assert False
    """)


def test_sockets_of_before_and_classes_made_before_are_cooperative():
    run("""
        import socket, ssl
        from socket import socket as taken
        class Own(socket.socket):
            pass
        a, b = socket.socketpair()
        import gosched
        from gosched import patch
        patch.patch_all()
        assert socket.socket is taken
        gosched.go(lambda: (gosched.sleep(0.02), b.sendall(b"x")))
        assert a.recv(10) == b"x"
        own = Own(socket.AF_UNIX, socket.SOCK_DGRAM)
        own.settimeout(0.01)
        own.bind("")
        try:
            own.recv(1)
        except socket.timeout as e:
            assert str(e) == "timed out"
        else:
            assert False
        for s in a, b, own:
            s.close()
    """, prelude="")


def test_modules_need_no_import_of_their_own():
    run("""
        import gosched, sys, types
        names = "asyncio os patch queue select selectors signal socket ssl subprocess threading time".split()
        for name in names:
            assert isinstance(getattr(gosched, name), types.ModuleType), name
            assert getattr(gosched, name) is sys.modules["gosched." + name] and name in dir(gosched)
        a, b = gosched.socket.socketpair()
        a.close(), b.close()
    """, prelude="")


def test_import_star():
    run("""
        import gosched, socket, sys, types
        from gosched import *
        assert socket is sys.modules["socket"]  # no module of the standard library is hidden
        public = {name for name in dir(gosched) if name[0] != "_"}
        modules = {name for name in public if isinstance(getattr(gosched, name), types.ModuleType)} - {"select"}
        assert set(gosched.__all__) == public - modules
        assert all(globals()[name] is getattr(gosched, name) for name in gosched.__all__)
    """, prelude="")


def test_unpatched():
    run("""
        import gosched
        from gosched import socket
        import socket as std
        listener = socket.create_server(("127.0.0.1", 0))
        def serve():
            client, _ = listener.accept()
            assert type(client) is socket.socket
            with client, client.makefile("rw") as f:
                for line in f:
                    f.write(line.upper())
                    f.flush()
        server = gosched.go(serve)
        with socket.create_connection(("localhost", listener.getsockname()[1]), timeout=10) as s:
            assert isinstance(s, std.socket)
            with s.makefile("rw") as f:
                f.write("one\\n"); f.flush()
                assert f.readline() == "ONE\\n"
        server.join()
        listener.close()
        a, b = socket.socketpair()
        assert type(a) is socket.socket
        a.close(); b.close()
        assert not hasattr(std.socket, "_timeout_of") and std.socket.recv is std.socket.__mro__[1].recv
    """, prelude="")


def test_timeouts():
    run("""
        import socket, time
        a, b = socket.socketpair()
        def times_out(fn, *args):
            begin = time.monotonic()
            try:
                fn(*args)
            except socket.timeout as e:
                assert str(e) == "timed out", e
                assert time.monotonic() - begin >= 0.02
            else:
                assert False, fn
        a.settimeout(0.03)
        assert a.gettimeout() == 0.03 and a.getblocking()
        for call in (
            lambda: a.recv(1), lambda: a.recv_into(bytearray(1)), lambda: a.recvfrom(1),
            lambda: a.recvfrom_into(bytearray(1)), lambda: a.recvmsg(1), lambda: a.recvmsg_into([bytearray(1)]),
        ):
            times_out(call)
        big = bytes(10_000_000)
        times_out(a.sendall, big)
        b.setblocking(False)
        try:
            while b.recv(1 << 20): pass
        except BlockingIOError:
            pass
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(0.03)
        times_out(listener.accept)
        a.setblocking(False)
        assert a.gettimeout() == 0 and not a.getblocking()
        for call in lambda: a.recv(1), lambda: a.recvmsg(1):
            try:
                call()
            except BlockingIOError:
                pass
            else:
                assert False
        a.settimeout(None)
        assert a.gettimeout() is None
        for bad in (-1, "x", float("nan")):
            try:
                a.settimeout(bad)
            except (ValueError, TypeError):
                pass
            else:
                assert False, bad
        assert a.gettimeout() is None
        for s in a, b, listener:
            s.close()
        socket.setdefaulttimeout(0.03)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            assert listener.gettimeout() == 0.03
            times_out(listener.accept)
    """)


def test_calls_on_the_descriptor_of_a_socket():
    """That of a socket whose calls have waited doesn't block any more, though the socket does."""
    run("""
        import os, socket, subprocess
        def later(send, *args):
            def f():
                gosched.sleep(0.02)
                send(*args)
            return gosched.go(f)
        a, b = socket.socketpair()
        b.send(b"x")
        assert a.recv(1) == b"x"
        later(b.send, b"read")
        assert os.read(a.fileno(), 9) == b"read"
        buffer = bytearray(5)
        later(b.send, b"readv")
        assert os.readv(a.fileno(), [buffer]) == 5 and buffer == b"readv"
        for write in os.write, lambda fd, data: os.writev(fd, [data[:9], data[9:]]):
            data = os.urandom(1 << 21)
            reader = gosched.go(b.recv, len(data), socket.MSG_WAITALL)
            assert write(a.fileno(), data) == len(data) and reader.result() == data
        # With a timeout, or none to wait, it's non-blocking without gosched too.
        for timeout in 5, 0:
            a.settimeout(timeout)
            try:
                os.read(a.fileno(), 1)
            except BlockingIOError:
                pass
            else:
                assert False
        a.settimeout(None)
        # A child finds it blocking.
        a.send(b"y")
        for stdin in a, a.fileno():
            later(b.send, b"child")
            done = subprocess.run(["head", "-c5"], stdin=stdin, stdout=subprocess.PIPE)
            assert done.stdout == b"child" and done.returncode == 0
            with Beside():
                later(b.send, b"parent")
                assert a.recv(9) == b"parent"
        # The number of a socket that is gone may be another file's.
        fd = a.detach()
        os.set_blocking(fd, False)
        try:
            os.read(fd, 1)
        except BlockingIOError:
            pass
        else:
            assert False
        os.close(fd), b.close()
    """)


def test_close_wakes_those_who_wait():
    run("""
        import socket, errno
        a, b = socket.socketpair()
        def receive():
            try:
                a.recv(1)
            except OSError as e:
                return e.errno
        g = gosched.go(receive)
        gosched.sleep(0.02)
        a.close()
        assert g.result() == errno.EBADF
        b.close()
    """)


def test_close_ends_a_poll_without_an_error():
    """socketserver's loop ends quietly then, as that of a thread does."""
    run("""
        import select, selectors, socket
        (a, b), (c, d) = socket.socketpair(), socket.socketpair()
        p = select.poll()
        p.register(a, select.POLLIN)
        with selectors.PollSelector() as s:
            s.register(b, selectors.EVENT_READ)
            s.register(c, selectors.EVENT_READ)
            polls = [gosched.go(p.poll), gosched.go(s.select)]
            gosched.sleep(0.02)
            number = a.fileno()
            a.close(); c.close()
            assert polls[0].result() == [(number, select.POLLNVAL)]
            assert c in [key.fileobj for key, events in polls[1].result()]
        b.close(); d.close()
    """)


def test_timeout_survives_close_with_an_open_file():
    # http.client closes the socket while the response's file is still read.
    run("""
        import socket
        a, b = socket.socketpair()
        f = a.makefile("rb")
        a.settimeout(5)
        gosched.go(lambda: (gosched.sleep(0.02), b.sendall(b"line\\n"), b.close()))
        assert f.readline() == b"line\\n"
        a.close()
        assert f.read() == b""
        f.close()
        assert a.fileno() == -1
    """)


def test_dup_and_detach_stay_non_blocking_below():
    run("""
        import socket
        a, b = socket.socketpair()
        gosched.go(lambda: (gosched.sleep(0.01), b.send(b"1")))
        assert a.recv(1) == b"1"
        c = a.dup()
        c.settimeout(None)
        with Beside():
            gosched.go(lambda: (gosched.sleep(0.05), b.send(b"2")))
            assert a.recv(1) == b"2"
        with Beside():
            gosched.go(lambda: (gosched.sleep(0.05), b.send(b"3")))
            assert c.recv(1) == b"3"
        d = socket.socket(fileno=c.detach())
        d.settimeout(5)
        gosched.go(lambda: (gosched.sleep(0.01), b.send(b"4")))
        assert d.recv(1) == b"4"
        for s in a, b, d:
            s.close()
    """)


def test_detach_gives_back_what_the_program_has_set():
    run("""
        import os, socket
        for timeout, blocks in (None, True), (5, False), (0, False):
            a, b = socket.socketpair()
            b.sendall(b"1")
            assert a.recv(1) == b"1"
            a.settimeout(timeout)
            fd = a.detach()
            assert a.fileno() == -1 and repr(a).startswith("<socket.socket [closed]")
            assert os.get_blocking(fd) is blocks, timeout
            if blocks:
                with Beside():
                    gosched.go(lambda: (gosched.sleep(0.05), b.send(b"2")))
                    assert os.read(fd, 1) == b"2"
            os.close(fd), b.close()
        assert a.detach() == -1
    """)


@pytest.mark.parametrize("procs", ["1", "2"])
def test_who_polls_what_is_always_ready_lets_others_run(procs):
    """The others waited for ever once the thread of Python had lost its P to native goroutines."""
    run("""
        import select, socket, sys, threading, time
        gosched.gomaxprocs(int(sys.argv[1]))
        a, b = socket.socketpair()
        poll = select.poll()
        poll.register(a, select.POLLOUT)
        stop = []
        def by_select():
            while not stop:
                assert select.select([], [a], [], 0.1)[1]
        def by_poll():
            while not stop:
                assert poll.poll(100)
        for spin in by_select, by_poll:
            stop.clear()
            thread = threading.Thread(target=spin)
            thread.start()
            for _ in range(30):
                time.sleep(0.005)
            stop.append(1)
            thread.join()
        a.close(), b.close()
    """, procs)


def test_numbers_of_files_that_come_back():
    """Whatever closes a socket, its number may be another file's next: a socket's, a pipe's, an epoll's."""
    run("""
        import gc, os, select, socket, warnings
        warnings.simplefilter("ignore", ResourceWarning)
        listener = socket.create_server(("127.0.0.1", 0))
        def pair():
            a = socket.create_connection(listener.getsockname())
            return a, listener.accept()[0]
        def talk(a, b):
            g = gosched.go(a.recv, 10)
            gosched.yield_()
            b.sendall(b"talk")
            assert g.result() == b"talk"
        came_back = 0
        ways = {
            "close": lambda s: s.close(),
            "lost": lambda s: None,
            "detached": lambda s: os.close(s.detach()),
            "closed below": lambda s: (socket.close(s.fileno()), s.detach()),
        }
        for name, way in ways.items():
            for other in "socket", "pipe", "select":
                a, b = pair()
                talk(a, b), talk(b, a)
                numbers = {a.fileno(), b.fileno()}
                way(a), way(b)
                del a, b
                gc.collect()
                if other == "socket":
                    a, b = pair()
                    came_back += bool({a.fileno(), b.fileno()} & numbers)
                    talk(a, b), talk(b, a)
                    a.close(), b.close()
                elif other == "pipe":
                    r, w = os.pipe()
                    came_back += bool({r, w} & numbers)
                    g = gosched.go(os.read, r, 10)
                    gosched.yield_()
                    os.write(w, b"x")
                    assert g.result() == b"x"
                    os.close(r), os.close(w)
                else:
                    a, b = socket.socketpair()
                    g = gosched.go(select.select, [a, b], [], [])
                    gosched.yield_()
                    b.send(b"y")
                    assert g.result()[0] == [a]
                    a.close(), b.close()
        listener.close()
        # The library takes numbers itself, for its own files.
        assert came_back > 0
    """)


def test_two_sockets_of_one_number():
    run("""
        import socket
        a, b = socket.socketpair()
        first = gosched.go(a.recv, 1)
        gosched.yield_()
        c = socket.socket(fileno=a.fileno())
        second = gosched.go(c.recv, 1)
        gosched.yield_()
        b.send(b"12")
        assert {first.result(), second.result()} == {b"1", b"2"}
        third = gosched.go(c.recv, 1)
        gosched.yield_()
        b.send(b"3")
        assert third.result() == b"3"
        c.detach()
        a.close(), b.close()
    """)


def test_connect_errors():
    run("""
        import socket, errno
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        for timeout in (None, 5):
            with socket.socket() as s:
                s.settimeout(timeout)
                assert s.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
            with socket.socket() as s:
                s.settimeout(timeout)
                try:
                    s.connect(("localhost", port))
                except ConnectionRefusedError:
                    pass
                else:
                    assert False
    """)


def test_sendfile_and_datagrams(tmp_path):
    (tmp_path / "file").write_bytes(bytes(range(256)) * 20_000)
    run("""
        import socket, sys
        a, b = socket.socketpair()
        def receive():
            n = 0
            while data := b.recv(65536):
                n += len(data)
            return n
        g = gosched.go(receive)
        with open(sys.argv[1], "rb") as f:
            assert a.sendfile(f) == 256 * 20_000
        a.close()
        assert g.result() == 256 * 20_000
        b.close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as u, \\
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as v:
            u.bind(("127.0.0.1", 0))
            gosched.go(lambda: (gosched.sleep(0.02), v.sendto(b"x", ("localhost", u.getsockname()[1]))))
            with Beside():
                assert u.recvfrom(10)[0] == b"x"
    """, tmp_path / "file")


def test_sizes_of_recv():
    run("""
        import socket
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for size in (1, 100, 4095, 4096, 4097, 20000):
            data = bytes(range(256)) * (size // 256) + bytes(size % 256)
            for room in (1, 4096, 4097, 65536):
                a.send(data)
                assert b.recv(room) == data[:room]
                g = gosched.go(b.recv, room)
                gosched.yield_()
                a.send(data)
                assert g.result() == data[:room]
        # The size of the datagram, as the interpreter's own method gives it, and none of the memory behind the data.
        a.send(b"x" * 100)
        assert b.recv(10, socket.MSG_TRUNC) == b"x" * 10 + bytes(90)
        a.close()
        b.close()
    """)


def test_names():
    run("""
        import socket
        found = socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
        assert ("127.0.0.1", 80) in [f[4] for f in found] or ("::1", 80, 0, 0) in [f[4] for f in found]
        assert socket.getaddrinfo("127.0.0.1", "80")[0][0] is socket.AF_INET
        assert socket.gethostbyname("127.0.0.1") == "127.0.0.1"
        assert socket.gethostbyname("localhost").startswith("127.")
        assert socket.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV) == ("127.0.0.1", "80")
        socket.getfqdn("localhost")
        try:
            socket.getaddrinfo("name.invalid", 80)
        except socket.gaierror:
            pass
        else:
            assert False
    """)


def test_select_poll_epoll_selectors():
    run("""
        import select, selectors, socket, os
        a, b = socket.socketpair()
        def later(n=0.03):
            gosched.go(lambda: (gosched.sleep(n), b.send(b"x")))
        with Beside():
            assert select.select([a], [], [], 0.02) == ([], [], [])
            later()
            assert select.select([a], [], []) == ([a], [], [])
            a.recv(1)
        assert select.select([], [b], [], 1) == ([], [b], [])
        p = select.poll()
        p.register(a, select.POLLIN)
        assert p.poll(10) == []
        later()
        with Beside():
            assert p.poll() == [(a.fileno(), select.POLLIN)]
        a.recv(1)
        with select.epoll() as e:
            e.register(a, select.EPOLLIN)
            assert e.poll(0.01) == []
            later()
            with Beside():
                assert e.poll() == [(a.fileno(), select.EPOLLIN)]
            a.recv(1)
        for cls in selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector, selectors.DefaultSelector:
            with cls() as s:
                s.register(a, selectors.EVENT_READ, "data")
                assert s.select(0.01) == []
                later()
                with Beside():
                    (key, events), = s.select()
                assert key.data == "data" and events == selectors.EVENT_READ
                a.recv(1)
        r, w = os.pipe()
        assert select.select([r], [w], [], None) == ([], [w], [])
        os.close(r); os.close(w)
        a.close(); b.close()
    """)


def test_unpatched_select_is_also_the_select_over_channels():
    run("""
        import gosched
        import gosched.select
        from gosched import selectors, socket
        ch = gosched.Channel(1)
        ch.send(7)
        assert gosched.select(("recv", ch))[1] == 7
        a, b = socket.socketpair()
        gosched.go(lambda: (gosched.sleep(0.02), b.send(b"x")))
        assert gosched.select.select([a], [], [], 5)[0] == [a]
        with selectors.DefaultSelector() as s:
            s.register(a, selectors.EVENT_READ)
            assert len(s.select(5)) == 1
        a.close(); b.close()
    """, prelude="")


@pytest.mark.parametrize("count", [300])
def test_many_connections(count):
    run("""
        import socket, socketserver, threading, sys
        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                for line in self.rfile:
                    self.wfile.write(line)
        class Server(socketserver.ThreadingTCPServer):
            request_queue_size = 1000
            daemon_threads = True
        with Server(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
            def client(i):
                with socket.create_connection(server.server_address) as s, s.makefile("rwb") as f:
                    for j in range(5):
                        f.write(b"%d %d\\n" % (i, j)); f.flush()
                        assert f.readline() == b"%d %d\\n" % (i, j)
                return 1
            clients = [gosched.go(client, i) for i in range(int(sys.argv[1]))]
            assert sum(c.result() for c in clients) == int(sys.argv[1])
            server.shutdown()
    """, count)


def test_sendto_with_msg_dontwait_does_not_wait():
    run("""
        import socket, tempfile, os
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "socket")
            receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            receiver.bind(path)
            with receiver, sender:
                sent = 0
                try:
                    while sent < 100_000:
                        sent += sender.sendto(b"x", socket.MSG_DONTWAIT, path)
                except BlockingIOError:
                    pass
                assert 0 < sent < 100_000, sent
    """)
