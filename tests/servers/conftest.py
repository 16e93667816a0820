"""What the tests of servers share: building examples-c/respd.c, and running it and redis-server on free ports."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LIB = Path(os.environ.get("GOSCHED_LIB", ROOT / "target" / "release")).resolve()
INCLUDE = Path(os.environ.get("GOSCHED_INCLUDE", ROOT / "include")).resolve()
HUNG = 60  # seconds: a limit after which something counts as hung, not a claim about speed
STRESS = "migrate=1,randomorder=1,tinyqueues=1"
SETTINGS = [("8", ""), ("2", STRESS)]  # P's, GOSCHED_DEBUG
if os.environ.get("SETTINGS") == "all":
    SETTINGS += [("1", ""), ("2", "")]


def until(what):
    """Waits for what() to be true; its last value."""
    end = time.monotonic() + HUNG
    while not (value := what()) and time.monotonic() < end:
        time.sleep(0.02)
    return value


def read_all(sock: socket.socket) -> bytes:
    """Up to the end of file; what came before a reset, if that comes first."""
    data = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while block := sock.recv(1 << 16):
            data += block
    return bytes(data)


def read_exactly(sock: socket.socket, n: int) -> bytes:
    data = bytearray()
    while len(data) < n:
        block = sock.recv(min(n - len(data), 1 << 20))
        if not block:
            break
        data += block
    return bytes(data)


class Server:
    """A running server."""

    def __init__(self, name: str, command: list, env: dict[str, str]):
        self.name = name
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=env,
        )
        self.port = 0

    def line(self) -> str:
        """The next line that it prints; "" if it has ended. It is killed if it prints nothing."""
        watchdog = threading.Timer(HUNG, self.process.kill)
        watchdog.start()
        try:
            return self.process.stdout.readline()
        finally:
            watchdog.cancel()

    def connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), HUNG)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def ask(self, data: bytes) -> bytes:
        """What it answers to the data and a QUIT, or until it ends the connection for what is wrong with the data."""
        with self.connect() as sock:
            sock.sendall(data + b"*1\r\n$4\r\nQUIT\r\n")
            return read_all(sock)

    def resident(self) -> int:
        """Bytes of memory."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Respd(Server):
    def __init__(self, program: Path, procs: str, debug: str, *args: str):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GOSCHED_", "GOMAXPROCS"))}
        env |= {"GOSCHED_PROCS": procs, "LC_ALL": "C"} | ({"GOSCHED_DEBUG": debug} if debug else {})
        super().__init__(f"respd, P's: {procs}", [program, "-p", "0", *args], env)
        self.first = self.line()
        match = re.fullmatch(r"respd: listening on 127\.0\.0\.1:(\d+)\n", self.first)
        if not match:
            self.kill()
            pytest.fail(f"respd printed {self.first!r} first")
        self.port = int(match[1])

    def numbers(self) -> tuple[int, int]:
        """What it prints at SIGUSR1: connections open, goroutines."""
        self.process.send_signal(signal.SIGUSR1)
        line = self.line()
        match = re.search(r": now: (\d+) connections open, \d+ accepted, (\d+) goroutines", line)
        assert match, f"printed {line!r} at SIGUSR1"
        return int(match[1]), int(match[2])

    def settle(self) -> None:
        """Once all clients are gone nothing is left of them."""
        until(lambda: self.numbers() == (0, 3))
        assert self.numbers() == (0, 3)
        files = [os.readlink(f"/proc/{self.process.pid}/fd/{n}") for n in os.listdir(f"/proc/{self.process.pid}/fd")]
        assert len([name for name in files if name.startswith("socket:")]) == 1, files  # the listener

    def stop(self, sig: int = signal.SIGTERM) -> str:
        """Ends it; what it has printed."""
        self.process.send_signal(sig)
        return self.ended()

    def ended(self) -> str:
        out, err = self.process.communicate(timeout=HUNG)
        assert self.process.returncode == 0, err
        assert re.search(r"^respd: stopped: 0 connections open, \d+ accepted, \d+ requests, \d+ keys$", out, re.M), out
        assert err == ""
        return out


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Path:
    """respd, built without a warning."""
    home = tmp_path_factory.mktemp("respd")
    shutil.copy(LIB / "libgosched.so", home / "libgosched.so.1")
    (home / "libgosched.so").symlink_to("libgosched.so.1")
    flags = ["-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    command = [*shlex.split(os.environ.get("CC", "cc")), *flags, f"-I{INCLUDE}", ROOT / "examples-c" / "respd.c"]
    command += ["-o", home / "respd", f"-L{home}", "-lgosched", f"-Wl,--disable-new-dtags,-rpath,{home}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return home / "respd"


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """Redis itself, to compare with."""
    home = tmp_path_factory.mktemp("redis")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    command += ["--logfile", home / "log", "--dir", home]
    server = Server("redis-server", command, dict(os.environ))
    server.port = port

    def answers() -> bool:
        with contextlib.suppress(OSError):
            return server.ask(b"PING\r\n") == b"+PONG\r\n+OK\r\n"
        return False

    try:
        assert until(answers), "redis-server doesn't answer"
        yield server
    finally:
        server.kill()


@pytest.fixture
def start(program):
    """start(procs, debug, *args): a respd; all are ended with the test."""
    running = []

    def one(procs: str = "2", debug: str = "", *args: str) -> Respd:
        running.append(Respd(program, procs, debug, *args))
        return running[-1]

    yield one
    for server in running:
        server.kill()


@pytest.fixture(params=SETTINGS, ids=lambda s: f"{s[0]}P" + ("-stress" if s[1] else ""))
def respd(request, start):
    """A respd with each number of P's; at the end it has nothing left and stops as it should."""
    server = start(*request.param)
    yield server
    if server.process.poll() is None:
        server.settle()
        server.stop()
    assert server.process.returncode == 0
