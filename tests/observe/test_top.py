"""GOSCHED_TOP and gosched-top: what a viewer sees is what gs_stats says, and no viewer disturbs the program."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import socket
import stat
import struct
import subprocess
import termios
import time

import pytest
from conftest import HUNG, TOP, TOPOLOGIES, environment, fetch, until


def top(*arguments, status: int = 0) -> str:
    said = subprocess.run([TOP, *map(str, arguments)], capture_output=True, text=True, timeout=HUNG)
    assert said.returncode == status, said.stderr
    return said.stdout if status == 0 else said.stderr


def once(target) -> dict:
    text = top("--once", "--json", target)
    assert text.count("\n") == 1
    return json.loads(text)


def connect(name) -> socket.socket:
    """Retried until the program listens."""
    def attempt():
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(str(name) if not str(name).startswith("@") else "\0" + str(name)[1:])
            return s
        except OSError:
            s.close()
            return None

    s = until(attempt)
    assert s, f"no process listens on {name}"
    s.settimeout(HUNG)
    return s


def ask(s: socket.socket) -> dict:
    s.sendall(b"\n")
    text = b""
    while not text.endswith(b"\n"):
        assert (part := s.recv(1 << 16))
        text += part
    return json.loads(text)


def wait_for_socket(name) -> None:
    connect(name).close()


@pytest.mark.parametrize(("procs", "topology"), TOPOLOGIES)
def test_the_figures_are_those_of_gs_stats(subject, procs, topology):
    one = subject(GOSCHED_TOP="1", GOSCHED_PROCS=procs, GOSCHED_TOPOLOGY=topology)
    wait_for_socket(f"@gosched-{one.pid}")
    one.tell("wait 30")
    one.tell("call 2")
    # All is at rest once nothing changes any more.
    assert until(lambda: one.stats()["waiting"] == 30 and one.stats() == one.stats())
    before = one.stats()
    seen = once(one.pid)
    after = one.stats()
    assert before.keys() == seen["stats"].keys() - {"stops", "pauses"}
    for name, value in after.items():
        low, high = before[name], value
        if isinstance(value, list):
            assert all(a <= b <= c for a, b, c in zip(low, seen["stats"][name], high)), name
        else:
            assert min(low, high) <= seen["stats"][name] <= max(low, high), name
    assert seen["gosched_top"] == 1
    assert seen["pid"] == one.pid
    assert seen["gomaxprocs"] == len(seen["ps"]) == int(procs)
    assert seen["waits"] == {"chan receive": 30}
    assert seen["stats"]["in_calls"] == 2
    assert sum(node["procs"] for node in seen["nodes"]) == int(procs)
    assert sum(sum(node["steals_from"]) for node in seen["nodes"]) == sum(
        seen["stats"][name] for name in ["steals_near", "steals_remote_queue", "steals_remote_p"])
    one.tell("end")


def test_a_p_shows_the_goroutine_that_it_runs(subject):
    one = subject(GOSCHED_TOP="1", GOSCHED_PROCS="2")
    wait_for_socket(f"@gosched-{one.pid}")
    one.tell("compute 1")
    running = [p for p in once(one.pid)["ps"] if p["g"]]
    assert [p["name"] for p in running] == ["compute"]
    assert running[0]["status"] == "running"
    assert running[0]["tid"] in {int(t) for t in os.listdir(f"/proc/{one.pid}/task")}
    text = top("--once", one.pid)
    assert re.search(r"compute, spawned at subject\+0x[0-9a-f]+\n", text), text
    assert f"subject ({one.pid})" in text
    one.tell("calm")


def test_the_web_server_is_shown(httpd):
    url, process = httpd(GOSCHED_TOP="1", GOSCHED_PROCS="2", GOSCHED_TOPOLOGY="node:2 core:1 pu:1")
    before = once(process.pid)["stats"]
    for _ in range(50):
        fetch(url + "file")
    after = once(process.pid)["stats"]
    assert after["created"] >= before["created"] + 50
    text = top("--once", process.pid)
    assert "on 2 nodes" in text
    assert "IO wait" in text
    assert re.search(r"^ +0 +0 (idle|running|syscall) ", text, re.MULTILINE), text


def test_it_follows_a_program_until_that_ends(subject):
    one = subject(GOSCHED_TOP="1", GOSCHED_PROCS="2")
    wait_for_socket(f"@gosched-{one.pid}")
    viewer = subprocess.Popen([TOP, "-d", "0.1", str(one.pid)], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                              text=True)
    one.tell("yield 4")  # two on each P: a goroutine that is alone on its P doesn't switch when it yields
    rates = []
    for line in viewer.stdout:
        if found := re.match(r"Per second: switches ([\d,]+)", line):
            rates.append(int(found[1].replace(",", "")))
            if len(rates) >= 3:
                break
    assert max(rates) > 0
    one.tell("end")
    assert f"process {one.pid} (subject) has ended" in viewer.stdout.read()
    assert viewer.wait(HUNG) == 0
    viewer.stdout.close()


def test_a_file_has_mode_0600_and_is_removed(subject, tmp_path):
    path = tmp_path / "a socket %p"
    one = subject(GOSCHED_TOP=str(path), GOSCHED_PROCS="2")
    path = tmp_path / f"a socket {one.pid}"
    wait_for_socket(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert once(path)["pid"] == once(one.pid)["pid"] == one.pid
    # With the runtime.
    assert one.tell("end") == "0"
    assert not path.exists()
    # It comes again with the next, and goes with the process.
    assert one.tell("init") == "0"
    wait_for_socket(path)
    assert one.leave() == 0
    assert not path.exists()


def test_a_file_that_a_killed_program_left_is_replaced(subject, tmp_path):
    path = tmp_path / "socket"
    one = subject(GOSCHED_TOP=str(path))
    wait_for_socket(path)
    one.process.kill()
    one.process.wait()
    assert path.exists()
    assert "no program listens" in top(path, status=1)
    two = subject(GOSCHED_TOP=str(path))
    wait_for_socket(path)
    assert once(path)["pid"] == two.pid
    # A third finds the name in use, says so, and runs on.
    three = subject(GOSCHED_TOP=str(path))
    assert until(lambda: "is in use" in three.said())
    assert three.tell("wait 1") == "0"
    assert three.leave() == 0
    assert once(path)["pid"] == two.pid


def test_no_other_file_is_replaced(subject, tmp_path):
    path = tmp_path / "file"
    path.write_text("precious")
    one = subject(GOSCHED_TOP=str(path))
    assert until(lambda: "is in use" in one.said())
    assert one.leave() == 0
    assert path.read_text() == "precious"


def test_off_by_default(subject):
    one = subject()
    said = top("--once", one.pid, status=1)
    assert "no socket for viewers" in said
    assert "GOSCHED_TOP=1" in said
    assert not [t for t in threads(one.pid) if t == "gosched-top"]


def threads(pid: int) -> list[str]:
    names = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/comm") as f:
            names.append(f.read().strip())
    return names


def test_wrong_use_is_explained(tmp_path):
    assert "there is no process" in top(2**22 + 1, status=1)
    assert "no program listens on" in top(tmp_path / "nothing", status=1)
    assert "no program listens on @" in top("@gosched-nothing", status=1)
    assert "usage:" in top(status=2)
    assert "usage:" in top("--what", status=2)
    assert "seconds" in top("-d", "0", "1", status=2)
    assert top("--help").startswith("usage:")


def test_several_viewers_are_answered(subject):
    one = subject(GOSCHED_TOP="1", GOSCHED_PROCS="2")
    one.tell("yield 4")
    viewers = [connect(f"@gosched-{one.pid}") for _ in range(8)]
    for _ in range(20):
        for viewer in viewers:
            assert ask(viewer)["stats"]["goroutines"] == 4
    for viewer in viewers:
        viewer.close()
    one.tell("calm")


def test_a_viewer_that_hangs_holds_nothing_up(subject):
    one = subject(GOSCHED_TOP="1", GOSCHED_PROCS="8")
    name = f"@gosched-{one.pid}"
    hanging = [connect(name) for _ in range(12)]
    for viewer in hanging:
        viewer.setblocking(False)
        # Asks, and never takes an answer, until the program hears it no more.
        with contextlib.suppress(BlockingIOError):
            while True:
                viewer.send(b"\n" * 4096)
    one.tell("wait 10")
    assert one.stats()["goroutines"] == 10
    for _ in range(3):
        assert once(one.pid)["stats"]["goroutines"] == 10
    # More than there is room for: the silent ones lose their places.
    more = [connect(name) for _ in range(40)]
    assert once(one.pid)["stats"]["goroutines"] == 10
    assert one.tell("end") == "0"
    assert one.leave() == 0
    for viewer in hanging + more:
        viewer.close()


def test_viewers_that_come_and_go_leave_nothing_behind(subject):
    one = subject(GOSCHED_TOP="1", GOSCHED_PROCS="2")
    name = f"@gosched-{one.pid}"
    connect(name).close()
    thread = next(t for t in os.listdir(f"/proc/{one.pid}/task")
                  if open(f"/proc/{one.pid}/task/{t}/comm").read().strip() == "gosched-top")
    files = lambda: len(os.listdir(f"/proc/{one.pid}/task/{thread}/fd"))
    assert until(lambda: files() == 2), "the bell and the listener"
    for i in range(200):
        viewer = connect(name)
        if i % 2:
            viewer.send(b"\n")
        viewer.close()
    assert until(lambda: files() == 2)
    # The process's own table has neither the listener nor a viewer.
    kinds = [os.readlink(f"/proc/{one.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{one.pid}/fd")]
    assert not [kind for kind in kinds if kind.startswith("socket:")]


def test_the_child_of_a_fork_has_no_part_in_it(subject, tmp_path):
    path = tmp_path / "socket"
    one = subject(GOSCHED_TOP=str(path), GOSCHED_DEBUG="schedtrace=1000000", GOSCHED_PROCS="2")
    viewer = connect(path)
    ask(viewer)
    one.tell("wait 3")
    assert one.tell("fork") == "0 0"
    # The child has ended by exit(3), and the file and the viewer are still there.
    assert path.exists()
    assert ask(viewer)["stats"]["goroutines"] == 3
    assert once(path)["pid"] == one.pid
    viewer.close()
    assert one.tell("end") == "0"
    assert not path.exists()


def test_a_deadlock_is_reported_all_the_same(build):
    for variables in [{}, {"GOSCHED_TOP": "1", "GOSCHED_DEBUG": "schedtrace=100"}]:
        said = subprocess.run([build("tests/observe/subject.c"), "deadlock"], env=environment(**variables),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HUNG)
        assert said.returncode == -signal.SIGABRT
        assert "deadlock" in said.stderr


def test_a_name_that_makes_no_socket_is_reported(subject, tmp_path):
    one = subject(GOSCHED_TOP=str(tmp_path / "no" / "where"))
    assert until(lambda: "can't listen" in one.said())
    two = subject(GOSCHED_TOP=str(tmp_path / ("x" * 200)))
    assert until(lambda: "can't listen" in two.said())
    assert one.tell("wait 1") == two.tell("wait 1") == "0"


class Terminal:
    """gosched-top on a terminal of its own."""

    def __init__(self, pid: int, rows: int, columns: int):
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        self.process = subprocess.Popen([TOP, "-d", "0.2", str(pid)], stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True, preexec_fn=self.take)
        self.before = termios.tcgetattr(slave)
        os.close(slave)
        self.text = b""

    @staticmethod
    def take() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, what: bytes) -> bytes:
        """What the terminal gets up to this, from the last call on."""
        while what not in self.text:
            self.text += os.read(self.master, 1 << 16)
        at = self.text.index(what) + len(what)
        part, self.text = self.text[:at], self.text[at:]
        return part

    def end(self) -> bytes:
        rest = self.text
        with contextlib.suppress(OSError):
            while part := os.read(self.master, 1 << 16):
                rest += part
        os.close(self.master)
        return rest


def lines_of(screen: bytes) -> list[bytes]:
    return re.sub(rb"\x1b\[[?\d]*[A-Za-z]", b"", screen).replace(b"\r", b"").split(b"\n")


@pytest.mark.parametrize("how", ["q", "interrupt"])
def test_on_a_terminal(subject, how):
    one = subject(GOSCHED_TOP="1", GOSCHED_PROCS="8")
    wait_for_socket(f"@gosched-{one.pid}")
    terminal = Terminal(one.pid, 30, 70)
    guard = time.monotonic() + HUNG
    assert b"\x1b[?1049h" in terminal.read_until(b"\x1b[J")
    screen = terminal.read_until(b"\x1b[J")
    assert b"subject" in screen and b"Per second:" in screen
    lines = lines_of(screen)
    assert len(lines) <= 30 and max(map(len, lines)) <= 70
    # The kernel tells of the new size, and the screen is drawn anew for it.
    terminal.resize(5, 20)
    os.kill(terminal.process.pid, signal.SIGWINCH)
    while True:
        screen = terminal.read_until(b"\x1b[J")
        lines = lines_of(screen)
        if len(lines) <= 5 and max(map(len, lines)) <= 20:
            break
        assert time.monotonic() < guard
    os.write(terminal.master, b"q" if how == "q" else b"\x03")
    assert terminal.process.wait(HUNG) == 0
    assert b"\x1b[?1049l" in terminal.end()
