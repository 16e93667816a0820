"""Every listing of the documentation runs.

A block ```python is a program of its own; the block ```text after it is what it prints. A comment
before it says what else there is to know:

<!-- test: serve 7070 PING PONG -->   a server: a client sends PING to the port, wants PONG, then Ctrl-C
<!-- test: 3.11 -->                   needs this Python
<!-- test: needs flask -->            needs this package
<!-- test: with name.py -->           is a file that the next ones import
<!-- test: web 7070 /path needs flask -->   a web application, app.py, needs this package: the first line of the block
    ```sh after it serves it, and the answer to GET /path is the block ```text after that; then Ctrl-C
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from patched import need

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(PACKAGE))
DOCUMENTS = [os.path.join(PACKAGE, "README.md")]
DOCUMENTS += [
    os.path.join(ROOT, "docs", name) for name in sorted(os.listdir(os.path.join(ROOT, "docs"))) if re.fullmatch(r"python.*\.md", name)
]
BLOCK = re.compile(r"(?:<!-- test: (?P<how>[^\n]*?) -->\n+)?^```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


def listings():
    for path in DOCUMENTS:
        with open(path) as file:
            content = file.read()
        blocks = list(BLOCK.finditer(content))
        files = {}
        for block, after, second in zip(blocks, [*blocks[1:], None], [*blocks[2:], None, None]):
            if block["kind"] != "python":
                continue
            how = (block["how"] or "").split()
            if how[:1] == ["with"]:
                files = {**files, how[1]: block["code"]}
            close = after is not None and after["kind"] == "text" and after.start() - block.end() < 80
            expected = after["code"] if close else None
            if how[:1] == ["web"]:
                how.append(after["code"].splitlines()[0])
                expected = second["code"]
            name = "{}:{}".format(os.path.basename(path), content[: block.start("code")].count("\n") + 1)
            yield pytest.param(block["code"], expected, how, files, id=name)


@pytest.mark.parametrize("code, expected, how, files", list(listings()))
def test_listing(code, expected, how, files, tmp_path):
    if how and re.fullmatch(r"3\.\d+", how[0]) and sys.version_info < tuple(map(int, how[0].split("."))):
        pytest.skip("needs Python " + how[0])
    if how[:1] == ["needs"]:
        need(*how[1:])
    if how[:1] == ["web"]:
        need(*how[4:-1])
        (tmp_path / "app.py").write_text(code)
        python, *arguments = shlex.split(how[-1])
        assert python == "python"
        fetch([sys.executable, *arguments], int(how[1]), how[2], expected, tmp_path)
        return
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    program = tmp_path / "listing.py"
    program.write_text(code)
    command = [sys.executable, "-X", "dev", str(program)]
    if how[:1] == ["serve"]:
        serve(command, int(how[1]), how[2].encode() + b"\n", how[3].encode(), tmp_path)
        return
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=str(tmp_path))
    assert done.returncode == 0, done.stderr
    if expected is not None:
        assert done.stdout == expected
    assert "ResourceWarning" not in done.stderr


def connect(server, port):
    """A connection to a server that begins."""
    for _ in range(1500):
        try:
            return socket.create_connection(("127.0.0.1", port), 10)
        except OSError:
            assert server.poll() is None, server.stderr.read()
            time.sleep(0.02)
    raise AssertionError("the server doesn't begin")


def fetch(command, port, path, answer, directory):
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=str(directory))
    try:
        connect(server, port).close()
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, path), timeout=20) as got:
            assert got.read().decode() == answer.rstrip("\n")
        server.send_signal(signal.SIGINT)
        out, errors = server.communicate(timeout=20)
        assert server.returncode == 0 and "Traceback" not in out + errors, out + errors
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        server.stderr.close()


def serve(command, port, ask, answer, directory):
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=str(directory))
    try:
        with connect(server, port) as client:
            client.settimeout(20)
            client.sendall(ask)
            got = b""
            while answer not in got:
                piece = client.recv(1000)
                assert piece, got
                got += piece
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=20)
        assert errors == "" or "KeyboardInterrupt" in errors, errors
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        server.stderr.close()
