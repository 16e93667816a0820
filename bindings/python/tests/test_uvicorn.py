"""FastAPI under python -m gosched -m uvicorn."""

import asyncio
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from serving import ASGI, Server

pytest.importorskip("uvicorn", reason="uvicorn isn't installed")
pytest.importorskip("fastapi", reason="FastAPI isn't installed")
httpx = pytest.importorskip("httpx", reason="httpx isn't installed")
websockets = pytest.importorskip("websockets", reason="websockets isn't installed")

APP = """
import asyncio, contextlib, threading, time
import anyio.to_thread
import gosched
from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse

@contextlib.asynccontextmanager
async def lifespan(app):
    anyio.to_thread.current_default_thread_limiter().total_tokens = 1000
    print("it begins %s\\n" % type(asyncio.get_running_loop()).__module__, end="")
    yield {"begun": "begun"}
    print("it ends\\n", end="")

app = FastAPI(lifespan=lifespan)
waiting, meeting = 0, threading.Condition()

@app.get("/")
async def index(request: Request):
    return request.state.begun

@app.get("/meet/{n}")
def meet(n: int):
    "Waits until there are n such requests at the same time."
    global waiting
    with meeting:
        waiting += 1
        meeting.notify_all()
        meeting.wait_for(lambda: waiting >= n)
    return {"goroutine": gosched.current().id}

@app.get("/slow/{seconds}")
def slow(seconds: float):
    time.sleep(seconds)
    return {}

@app.get("/async/{seconds}")
async def awaits(seconds: float):
    await asyncio.sleep(seconds)
    return {}

@app.get("/goroutine")
async def goroutine():
    def work():
        gosched.sleep(0.01)
        return "from a goroutine"
    return await gosched.as_future(gosched.go(work))

@app.get("/stream")
def stream():
    def parts():
        for i in range(5):
            time.sleep(0.01)
            yield "part %d\\n" % i
    return StreamingResponse(parts())

@app.post("/echo")
async def echo(request: Request):
    return StreamingResponse(iter([await request.body()]))

@app.get("/fails")
def fails():
    raise ValueError("on purpose")

@app.websocket("/ws")
async def socket(ws: WebSocket):
    await ws.accept()
    try:
        while True:
            text = await ws.receive_text()
            await ws.send_text(await asyncio.to_thread(text.upper))
    except WebSocketDisconnect:
        pass
"""


def serve(directory, *options, app=ASGI, **kwargs):
    (directory / "application.py").write_text(app.replace("VERSION", "1"))
    return Server(directory, "-m", "uvicorn", "application:app", "--port", "PORT", "--no-access-log", *options, **kwargs)


def ask(server, n):
    """n requests for synchronous endpoints and as many for asynchronous ones, at the same time; then web sockets."""

    async def main():
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url="http://127.0.0.1:%d" % server.port, limits=limits, timeout=60) as client:
            paths = ["/meet/%d" % n] * n + ["/async/0.2", "/slow/0.2"] * (n // 2)
            answers = await asyncio.gather(*(client.get(path) for path in paths))
            assert {answer.status_code for answer in answers} == {200}, server.text()
            # More than the 40 of anyio's limiter, which the application has raised; each in a goroutine of its own.
            assert len({answer.json()["goroutine"] for answer in answers[:n]}) == n
            assert (await client.get("/goroutine")).json() == "from a goroutine"

        async def talk(i):
            async with websockets.connect("ws://127.0.0.1:%d/ws" % server.port) as ws:
                for text in ("one", "two-%d" % i):
                    await ws.send(text)
                    assert await ws.recv() == text.upper()

        await asyncio.gather(*(talk(i) for i in range(10)))

    asyncio.run(main(), debug=False)


@pytest.mark.parametrize("n, options", [
    (200, ()),
    (50, ("--loop", "gosched.asyncio:EventLoop", "--http", "h11", "--ws", "wsproto")),
    (50, ("--loop", "asyncio", "--http", "httptools", "--ws", "websockets-sansio")),
], ids=["default", "gosched-h11", "asyncio-httptools"])
def test_requests_at_the_same_time(tmp_path, n, options):
    if "httptools" in options:
        pytest.importorskip("httptools", reason="httptools isn't installed")
    if "wsproto" in options:
        pytest.importorskip("wsproto", reason="wsproto isn't installed")
    # On a busy machine the client may have kept a connection for longer than the 5 seconds after which the server ends it.
    with serve(tmp_path, "--timeout-keep-alive", "600", *options, app=APP) as server:
        ask(server, n)
        assert server.get("/stream") == (200, "".join("part %d\n" % i for i in range(5)))
        body = os.urandom(500_000).hex()
        assert server.get("/echo", "POST", body) == (200, body)
        assert server.get("/fails")[0] == 500 and server.get("/nothing")[0] == 404
        assert server.get("/") == (200, '"begun"')
        assert server.end(signal.SIGINT) == 0
        text = server.text()
        assert "it ends" in text and "Finished server process" in text and "Warning" not in text, text
        assert ("it begins asyncio.unix_events" if "asyncio" in options else "it begins gosched.asyncio") in text, text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_requests_are_answered_before_the_end(tmp_path, number):
    with serve(tmp_path) as server:
        with ThreadPoolExecutor() as executor:
            answers = [executor.submit(server.get, "/slow/0.5") for _ in range(3)]
            time.sleep(0.2)
            assert server.end(number) == (0 if number == signal.SIGINT else -number)
            assert [answer.result()[0] for answer in answers] == [200] * 3, server.text()
        assert "it ends" in server.text() and "Traceback" not in server.text(), server.text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers(tmp_path, number):
    with serve(tmp_path, "--workers", "2") as server:
        server.until(lambda: server.text().count("it begins gosched.asyncio") == 2)
        os.kill(int(min(server.workers())), signal.SIGKILL)
        server.until(lambda: server.text().count("it begins gosched.asyncio") == 3)
        assert server.get("/")[0] == 200
        assert server.end(number) == 0
        assert server.text().count("it ends") == 2 and "Traceback" not in server.text(), server.text()


def test_reload(tmp_path):
    with serve(tmp_path, "--reload") as server:
        assert server.get("/") == (200, "version 1")
        server.reload(lambda: (tmp_path / "application.py").write_text(ASGI.replace("VERSION", "2")), "version 2")
        # The new process is patched, too.
        server.meet(30)
        assert server.end(signal.SIGINT) == 0
        assert "Traceback" not in server.text(), server.text()


def test_uvicorns_worker_for_gunicorn(tmp_path):
    pytest.importorskip("uvicorn_worker", reason="uvicorn-worker isn't installed")
    pytest.importorskip("gunicorn", reason="gunicorn isn't installed")
    (tmp_path / "application.py").write_text(ASGI)
    options = ["-k", "uvicorn_worker.UvicornWorker", "-w", "2", "-b", "127.0.0.1:PORT", "application:app"]
    with Server(tmp_path, "-m", "gunicorn", *options) as server:
        server.until(lambda: server.text().count("it begins gosched.asyncio") == 2)
        server.workers()
        assert server.end() == 0
        assert "it ends" in server.text() and "Traceback" not in server.text(), server.text()


def test_a_program_that_patches_itself(tmp_path):
    (tmp_path / "application.py").write_text("import gosched; gosched.patch_all()\n" + ASGI + """
if __name__ == "__main__":
    import sys, uvicorn
    uvicorn.run(app, port=int(sys.argv[1]))
""")
    with Server(tmp_path, "application.py", "PORT", gosched=False) as server:
        server.meet(20)
        assert "it begins gosched.asyncio" in server.text()


def test_wrong_input(tmp_path):
    def fails(*arguments, port=None):
        with Server(tmp_path, "-m", "uvicorn", *arguments, answers=False, port=port) as server:
            assert server.end(None) not in (0, None)
            return server.text()

    assert 'Could not import module "nothing"' in fails("nothing:app")
    (tmp_path / "empty.py").write_text("")
    assert 'Attribute "app" not found' in fails("empty:app")
    (tmp_path / "empty.py").write_text("app = print\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "address already in use" in fails("empty:app", "--port", "PORT", port=taken.getsockname()[1])
    assert "would hold up all goroutines" in fails("empty:app", "--loop", "uvloop")
