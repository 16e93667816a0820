"""Starlette under python -m gosched -m hypercorn."""

import signal
import socket

import pytest

from serving import ASGI, Server

pytest.importorskip("hypercorn", reason="hypercorn isn't installed")
pytest.importorskip("starlette", reason="Starlette isn't installed")


def serve(directory, *options, **kwargs):
    (directory / "application.py").write_text(ASGI.replace("VERSION", "1"))
    return Server(directory, "-m", "hypercorn", "application:app", "--bind", "127.0.0.1:PORT", *options, **kwargs)


@pytest.mark.parametrize("options, loop", [
    (("--workers", "0"), "gosched.asyncio"),
    ((), "gosched.asyncio"),
    (("--worker-class", "trio"), "trio"),
], ids=["no-workers", "default", "trio"])
def test_requests_at_the_same_time(tmp_path, options, loop):
    if "trio" in options:
        pytest.importorskip("trio", reason="trio isn't installed")
    client = pytest.importorskip("websockets.sync.client", reason="websockets isn't installed")
    with serve(tmp_path, *options) as server:
        server.meet(40)
        with client.connect("ws://127.0.0.1:%d/ws" % server.port) as ws:
            ws.send("text")
            assert ws.recv(60) == "TEXT"
        assert server.end(signal.SIGINT) == 0
        text = server.text()
        assert "it begins " + loop in text and "it ends" in text and "Traceback" not in text, text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers(tmp_path, number):
    with serve(tmp_path, "--workers", "2") as server:
        server.until(lambda: server.text().count("it begins gosched.asyncio") == 2)
        server.workers()
        assert server.end(number) == 0
        # When one worker has ended, hypercorn sends SIGTERM to the other, which may have got no further.
        assert server.text().count("it ends") in (1, 2) and "Traceback" not in server.text(), server.text()


def test_reload(tmp_path):
    with serve(tmp_path, "--reload") as server:
        server.until(lambda: server.get("/") == (200, "version 1"))
        server.reload(lambda: (tmp_path / "application.py").write_text(ASGI.replace("VERSION", "2")), "version 2")
        assert server.end() == 0
        assert "Traceback" not in server.text(), server.text()


def test_wrong_input(tmp_path):
    def fails(*arguments, port=None):
        with Server(tmp_path, "-m", "hypercorn", *arguments, answers=False, port=port) as server:
            server.end(None)  # hypercorn's own status is 0 whatever happens
            return server.text()

    bind = ("--bind", "127.0.0.1:PORT")
    assert "Cannot load application from 'nothing:app'" in fails("nothing:app", *bind)
    (tmp_path / "empty.py").write_text("app = print\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "in use" in fails("empty:app", *bind, port=taken.getsockname()[1])
    assert "would hold up all goroutines" in fails("empty:app", *bind, "--worker-class", "uvloop")
