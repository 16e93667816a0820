"""Flask under gunicorn -k gosched.gunicorn.GoschedWorker."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from helpers import gotrace

pytest.importorskip("gunicorn", reason="gunicorn isn't installed")
pytest.importorskip("flask", reason="Flask isn't installed")

APP = """
import os, time, threading
from flask import Flask, Response, request
import gosched

app = Flask(__name__)

@app.route("/")
def index():
    return "version %s" % open(os.path.join(os.path.dirname(__file__), "version")).read().strip()

@app.route("/pid")
def pid():
    return str(os.getpid())

@app.route("/slow/<float:seconds>")
def slow(seconds):
    time.sleep(seconds)
    return "slept in %s" % gosched.current().id

@app.route("/echo", methods=["POST"])
def echo():
    return Response(request.get_data(), mimetype="application/octet-stream")

@app.route("/stream")
def stream():
    def parts():
        for i in range(5):
            time.sleep(0.01)
            yield "part %d\\n" % i
    return Response(parts())

@app.route("/fails")
def fails():
    raise ValueError("on purpose")

@app.route("/spin")
def spin():
    # Holds the worker up, as no program should.
    end = time.monotonic() + 60
    while time.monotonic() < end:
        pass
    return "done"
"""


class Server:
    def __init__(self, directory, *options):
        self.directory = directory
        (directory / "application.py").write_text(APP)
        (directory / "version").write_text("1")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log = open(directory / "log", "w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "-k", "gosched.gunicorn.GoschedWorker", "-b", "127.0.0.1:%d" % self.port,
             "--log-level", "info", "--no-control-socket" if self.has_control_socket() else "--capture-output",
             *options, "application:app"],
            cwd=directory, stdout=self.log, stderr=self.log,
        )
        deadline = time.monotonic() + 30
        while True:
            try:
                if self.get("/") == (200, b"version 1"):
                    break
            except OSError:
                pass
            assert self.process.poll() is None and time.monotonic() < deadline, self.text()
            time.sleep(0.05)

    @staticmethod
    def has_control_socket():
        from gunicorn import config

        return "no_control_socket" in config.KNOWN_SETTINGS or any(
            getattr(s, "name", "") == "control_socket_disable" for s in config.KNOWN_SETTINGS
        )

    def text(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def get(self, path, method="GET", body=None):
        c = self.connection()
        try:
            c.request(method, path, body)
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                assert False, "gunicorn doesn't end\n" + self.text()
        self.log.close()


def in_threads(n, fn):
    results = [None] * n

    def one(i):
        try:
            results[i] = fn(i)
        except Exception as e:
            results[i] = (repr(e), None)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def test_trace_of_a_worker(tmp_path, monkeypatch):
    """GOSCHED_TRACE gives each worker a trace, which Go's tool accepts, with goroutines named by Python's functions."""
    tool = gotrace()
    monkeypatch.setenv("GOSCHED_TRACE", str(tmp_path / "trace-%p"))
    with Server(tmp_path, "-w", "2") as server:
        assert all(r[0] == 200 for r in in_threads(20, lambda i: server.get("/slow/0.05")))
        pid = int(server.get("/pid")[1])
    traces = sorted(tmp_path.glob("trace-*"))
    assert tmp_path / ("trace-%d" % pid) in traces, traces
    for path in traces:
        tool.check_parsed(path)
    text = (tmp_path / ("trace-%d" % pid)).read_bytes()
    assert b"gunicorn.py" in text and b"handle" in text, server.text()


def test_requests_at_the_same_time(tmp_path):
    with Server(tmp_path) as server:
        began = time.monotonic()
        found = in_threads(20, lambda i: server.get("/slow/2.0"))
        # One after the other they would take 40 seconds.
        assert time.monotonic() - began < 35
        assert all(status == 200 for status, _ in found), found
        assert len({body for _, body in found}) == 20  # a goroutine for each
        body = os.urandom(1_000_000)
        assert server.get("/echo", "POST", body) == (200, body)
        assert server.get("/stream") == (200, b"".join(b"part %d\n" % i for i in range(5)))
        assert server.get("/fails")[0] == 500
        assert server.get("/nothing")[0] == 404
        assert server.process.poll() is None
        text = server.text()
        assert "PatchWarning" not in text, text


def test_keep_alive(tmp_path):
    with Server(tmp_path, "--keep-alive", "1") as server:
        c = server.connection()
        for _ in range(5):
            c.request("GET", "/")
            r = c.getresponse()
            assert (r.status, r.read()) == (200, b"version 1")
            sock = c.sock
            assert sock is not None and r.headers.get("Connection", "").lower() != "close"
        # Two at once on one connection
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        sock.settimeout(20)
        got = b""
        while got.count(b"version 1") < 2:
            data = sock.recv(65536)
            assert data
            got += data
        # Idle for longer than it may be: the server ends it.
        began = time.monotonic()
        assert sock.recv(1) == b""
        assert time.monotonic() - began > 0.5
        c.close()


def test_graceful_reload(tmp_path):
    with Server(tmp_path, "--keep-alive", "30", "--graceful-timeout", "15") as server:
        old = server.get("/pid")[1]
        idle = server.connection()
        idle.request("GET", "/pid")
        assert idle.getresponse().read() == old
        slow = []
        t = threading.Thread(target=lambda: slow.append(server.get("/slow/2.0")))
        t.start()
        time.sleep(0.3)
        (tmp_path / "version").write_text("2")
        began = time.monotonic()
        server.process.send_signal(signal.SIGHUP)
        # There's always an answer meanwhile.
        while True:
            status, pid = server.get("/pid")
            assert status == 200
            if pid != old:
                break
            assert time.monotonic() - began < 60, server.text()
            time.sleep(0.05)
        t.join()
        assert slow[0][0] == 200, (slow, server.text())
        # The idle connection doesn't keep the old worker, which ends.
        while True:
            try:
                os.kill(int(old), 0)
            except ProcessLookupError:
                break
            assert time.monotonic() - began < 60, server.text()
            time.sleep(0.05)
        assert server.get("/") == (200, b"version 2")
        assert idle.sock.recv(1) == b""
        idle.close()


def test_max_requests(tmp_path):
    with Server(tmp_path, "--max-requests", "5") as server:
        pids = set()
        for _ in range(20):
            status, pid = server.get("/pid")
            assert status == 200, server.text()
            pids.add(pid)
        assert len(pids) > 2, pids


def test_worker_timeout(tmp_path):
    with Server(tmp_path, "--timeout", "2") as server:
        first = server.get("/pid")[1]
        # A request that waits for longer than the timeout is nothing to end a worker for.
        assert server.get("/slow/3.0")[0] == 200
        assert server.get("/pid")[1] == first

        def spin():
            try:
                return server.get("/spin")
            except (OSError, http.client.HTTPException) as e:
                return e

        t = threading.Thread(target=spin)
        t.start()
        deadline = time.monotonic() + 30
        while True:
            try:
                if server.get("/pid")[1] != first:
                    break
            except (OSError, http.client.HTTPException):
                pass
            assert time.monotonic() < deadline, server.text()
        t.join()
        assert "WORKER TIMEOUT" in server.text()


def test_several_workers_and_unix_socket(tmp_path):
    path = str(tmp_path / "socket")
    with Server(tmp_path, "-w", "2", "-b", "unix:" + path) as server:
        found = in_threads(30, lambda i: server.get("/slow/0.1"))
        assert all(status == 200 for status, _ in found), (found, server.text())
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            got = b""
            while data := s.recv(65536):
                got += data
        assert got.endswith(b"version 1")


CONF = """
import os

def post_worker_init(worker):
    accept = worker._accept

    def look_and_accept(listener):
        print("a listener that blocks" if os.get_blocking(listener.fileno()) else "a listener that doesn't block", flush=True)
        accept(listener)

    worker._accept = look_and_accept
"""


def test_a_new_worker_leaves_the_listeners_of_the_others_alone(tmp_path):
    # The workers share O_NONBLOCK. One that cleared it for a moment when it began let another one block in accept, and
    # that one's requests wait, until the next connection came.
    (tmp_path / "conf.py").write_text(CONF)
    with Server(tmp_path, "-w", "2", "-c", "conf.py") as server:
        deadline = time.monotonic() + 60
        while server.text().count("a listener that doesn't block") < 2:
            assert "a listener that blocks" not in server.text()
            assert time.monotonic() < deadline, server.text()
            time.sleep(0.05)


def test_a_connection_that_ends_before_go_returns_gives_its_slot_back(monkeypatch):
    # As on a Python without a GIL, when the client leaves at once.
    import gosched
    from gosched import gunicorn

    class Listener:
        def __init__(self):
            self.left = 3

        def getsockname(self):
            return ("127.0.0.1", 1)

        def accept(self):
            worker.alive = self.left > 1
            self.left -= 1
            a, b = socket.socketpair()
            b.close()
            return a, None

    def go(fn, *args):
        goroutine = gosched.go(fn, *args)
        goroutine.join()
        return goroutine

    class Config:
        is_ssl = False
        workers = 1

    worker = gunicorn.GoschedWorker.__new__(gunicorn.GoschedWorker)
    worker.alive, worker.cfg, worker.connections, worker._newborn = True, Config, {}, set()
    worker._slots = gosched.Semaphore(3)
    seen = []
    worker.handle = lambda listener, client, address: (seen.append(list(worker.connections)), client.close())
    worker.wake = lambda: None
    monkeypatch.setattr(gunicorn._gosched, "go", go)
    worker._accept(Listener())
    assert [len(ids) for ids in seen] == [1, 1, 1]
    assert not worker.connections and not worker._newborn
    assert worker._slots.value == 3
