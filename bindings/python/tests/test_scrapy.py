"""Scrapy under python -m gosched, with each of Twisted's reactors, against a server here."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from helpers import PACKAGE

pytest.importorskip("scrapy", reason="Scrapy isn't installed")

SPIDER = """
import os, threading, time
import gosched, scrapy
from twisted.internet.threads import deferToThread
from scrapy.utils.defer import maybe_deferred_to_future

ticks = 0

def tick():
    global ticks
    while True:
        ticks += 1
        gosched.sleep(0.001)

class Links(scrapy.Spider):
    name = "links"
    start_urls = [os.environ["BASE"] + "/page/%d" % n for n in range(30)]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # A goroutine beside the reactor.
        gosched.go(tick)

    def lookup(self, n):
        # Run by the reactor's pool of threads, which are goroutines.
        time.sleep(0.02)
        return n * n, gosched.current().id == threading.get_ident()

    async def parse(self, response):
        from twisted.internet import reactor

        n = int(response.url.rpartition("/")[2])
        square, is_goroutine = await maybe_deferred_to_future(deferToThread(self.lookup, n))
        if type(reactor).__name__ == "AsyncioSelectorReactor":
            assert await gosched.as_future(gosched.go(self.lookup, n)) == (square, True)
        yield {"n": n, "title": response.css("title::text").get(), "square": square, "is_goroutine": is_goroutine,
               "reactor": type(reactor).__name__, "ticks": ticks}
        if n < 5:
            yield response.follow("/page/%d" % (n + 100))
"""

REACTORS = {
    "asyncioreactor.AsyncioSelectorReactor": "AsyncioSelectorReactor",
    "epollreactor.EPollReactor": "EPollReactor",
    "pollreactor.PollReactor": "PollReactor",
    "selectreactor.SelectReactor": "SelectReactor",
}


@pytest.fixture(scope="module")
def server():
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        at_once = most = 0

        def do_GET(self):
            Handler.at_once += 1
            Handler.most = max(Handler.most, Handler.at_once)
            time.sleep(3600 if self.path == "/page/never" else 0.1)
            Handler.at_once -= 1
            body = b"<title>%s</title>" % self.path.encode()
            self.send_response(404 if self.path == "/robots.txt" else 200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 100
        handler = Handler
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()


def command(directory, reactor):
    (directory / "links.py").write_text(SPIDER)
    options = {"LOG_LEVEL": "INFO", "CONCURRENT_REQUESTS": 16, "CONCURRENT_REQUESTS_PER_DOMAIN": 16, "DOWNLOAD_DELAY": 0}
    options.update({"TELNETCONSOLE_ENABLED": 0, "TWISTED_REACTOR": "twisted.internet." + reactor})
    if not reactor.startswith("asyncio"):
        # The command takes the reactor of asyncio for granted otherwise.
        options["FORCE_CRAWLER_PROCESS"] = 1
    settings = [word for option in options.items() for word in ("-s", "%s=%s" % option)]
    return [sys.executable, "-m", "gosched", "-m", "scrapy", "runspider", *settings, "links.py", "-O", "out.json"]


def environment(server):
    return {**os.environ, "PYTHONPATH": PACKAGE, "BASE": "http://localhost:%d" % server.server_port}


@pytest.mark.parametrize("reactor", REACTORS)
def test_a_spider(server, reactor, tmp_path):
    server.handler.most = 0
    done = subprocess.run(
        command(tmp_path, reactor), cwd=tmp_path, env=environment(server), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr and "ERROR" not in done.stderr, done.stderr
    items = sorted(json.loads((tmp_path / "out.json").read_text()), key=lambda item: item["n"])
    assert [item["n"] for item in items] == [*range(30), *range(100, 105)]
    for item in items:
        assert item["title"] == "/page/%d" % item["n"] and item["square"] == item["n"] ** 2, item
        assert item["is_goroutine"] and item["reactor"] == REACTORS[reactor], item
    assert items[-1]["ticks"] > 10, items[-1]
    assert server.handler.most > 5, server.handler.most


@pytest.mark.parametrize("reactor", ["asyncioreactor.AsyncioSelectorReactor", "epollreactor.EPollReactor"])
def test_an_interrupt_ends_the_spider(server, reactor, tmp_path):
    begin = command(tmp_path, reactor)
    (tmp_path / "links.py").write_text(SPIDER.replace("for n in range(30)]", "for n in range(10)] + [os.environ['BASE'] + '/page/never']"))
    process = subprocess.Popen(begin, cwd=tmp_path, env=environment(server), stderr=subprocess.PIPE, text=True)
    try:
        said = ""
        for line in process.stderr:
            said += line
            if "Spider opened" in line:
                break
        time.sleep(1)
        process.send_signal(signal.SIGINT)  # it finishes what is under way
        for line in process.stderr:
            said += line
            if "SIGINT" in line:
                break
        process.send_signal(signal.SIGINT)  # at once
        said += process.communicate(timeout=60)[1]
        assert process.returncode in (0, 1) and "twice" in said, said
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
