"""Servers of web applications under python -m gosched, each in processes of its own."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time

#: an application of Starlette's, for servers of ASGI
ASGI = """
import asyncio, contextlib, os, threading, time
import gosched
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute

def loop():
    try:
        return type(asyncio.get_running_loop()).__module__
    except RuntimeError:
        return "trio"

@contextlib.asynccontextmanager
async def lifespan(app):
    print("it begins %s\\n" % loop(), end="")  # in one piece, as other processes write too
    yield
    print("it ends\\n", end="")

waiting, meeting = 0, threading.Condition()

def meet(request):
    "Waits until there are n such requests at the same time. It runs in a thread, which is a goroutine."
    global waiting
    n = int(request.path_params["n"])
    with meeting:
        waiting += 1
        meeting.notify_all()
        meeting.wait_for(lambda: waiting >= n)
    return PlainTextResponse(str(gosched.current().id))

def slow(request):
    time.sleep(float(request.path_params["seconds"]))
    return PlainTextResponse(str(os.getpid()))

async def socket(ws):
    await ws.accept()
    async for text in ws.iter_text():
        await ws.send_text(await run_in_threadpool(text.upper))

async def index(request):
    return PlainTextResponse("version VERSION")

app = Starlette(lifespan=lifespan, routes=[
    Route("/", index), Route("/meet/{n}", meet), Route("/slow/{seconds}", slow), WebSocketRoute("/ws", socket),
])
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A server that runs, once it accepts connections. Its end is that of the block; it fails a test that waits for
    something that doesn't come with what the server has written."""

    def __init__(self, directory, *arguments, port=None, answers=True, gosched=True):
        """The arguments are those of python -m gosched, or else of python, and PORT among them is replaced. It needn't
        answer."""
        self.port = port or free_port()
        self.log = open(directory / "log", "a+")
        command = [sys.executable, *(["-m", "gosched"] if gosched else [])]
        self.process = subprocess.Popen(
            [*command, *(str(argument).replace("PORT", str(self.port)) for argument in arguments)],
            cwd=directory, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True,
            # A file that is written twice within a second must not be taken from the cache of the first.
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        if answers:
            try:
                self.until(self.answers)
            except BaseException:
                self.__exit__()
                raise

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 20).close()
        except OSError:
            assert self.process.poll() is None, self.text()
            return False
        return True

    def until(self, condition, seconds=60):
        """Waits until it is true, and gives what it gives."""
        deadline = time.monotonic() + seconds
        while True:
            found = condition()
            if found:
                return found
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.02)

    def text(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def get(self, path, method="GET", body=None, headers={}):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def get_many(self, paths):
        """The answers to requests that are made at the same time, or the errors."""
        answers = [None] * len(paths)

        def one(index):
            try:
                answers[index] = self.get(paths[index])
            except Exception as error:
                answers[index] = repr(error), None

        threads = [threading.Thread(target=one, args=(index,)) for index in range(len(paths))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def reload(self, write, text):
        """Calls write(), which changes the application, and waits until the answer to / is this text. The server may answer
        before it begins to watch its files, and then never sees the change; so the application is written again every 10
        seconds."""
        again = 0

        def answers():
            nonlocal again
            if time.monotonic() >= again:
                write()
                again = time.monotonic() + 10
            try:
                return self.get("/") == (200, text)
            except (OSError, http.client.HTTPException):  # while no server runs, or from one that ends meanwhile
                return False

        self.until(answers)

    def meet(self, n):
        """Makes n requests to an application's /meet, which are all under way before one ends, each in a goroutine of its
        own."""
        answers = self.get_many(["/meet/%d" % n] * n)
        assert {status for status, _ in answers} == {200}, (answers, self.text())
        assert len({goroutine for _, goroutine in answers}) == n

    def workers(self):
        """The processes of two workers, once both have answered."""
        pids = set()
        self.until(lambda: len(pids) == 2 or pids.update(pid for _, pid in self.get_many(["/slow/0.1"] * 20)))
        return pids

    def end(self, number=signal.SIGTERM):
        """The status with which it ends after this signal; None: it has ended by itself."""
        if number == signal.SIGINT:
            # As a terminal has it: to all processes.
            os.killpg(self.process.pid, number)
        elif number is not None:
            self.process.send_signal(number)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            raise AssertionError("the server doesn't end\n" + self.text()) from None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        try:
            if self.process.poll() is None:
                self.end()
        finally:
            # With the processes that it has left behind.
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()
            self.log.close()
