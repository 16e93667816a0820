#!/usr/bin/env python3
"""Crawls a web site with many goroutines; without an address it starts a site of its own.

    python crawler.py [URL]

After patch_all() the standard library waits in goroutines: http.server answers each request in one,
and urllib parks while it waits. Neither knows about it.
"""

from __future__ import annotations

import gosched

gosched.patch_all()  # before anything that uses the network is imported

import re
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urldefrag, urljoin, urlsplit

PAGES = 120
CRAWLERS = 20


class Site(BaseHTTPRequestHandler):
    """Page n links to 2n and 2n + 1, and takes its time to answer."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        number = int(self.path.strip("/") or 1)
        time.sleep(0.02)
        links = "".join(f'<a href="/{n}">{n}</a> ' for n in (2 * number, 2 * number + 1, 1) if n <= PAGES)
        body = f"<title>Page {number}</title>{links}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class LocalSite(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def fetch(url: str) -> list[str]:
    """The links of a page."""
    with gosched.Timeout(10), urllib.request.urlopen(url) as answer:
        if "html" not in answer.headers.get("Content-Type", ""):
            return []
        page = answer.read().decode("utf-8", "replace")
    return [urldefrag(urljoin(url, link)).url for link in re.findall(r'href="([^"]+)"', page)]


def crawl(start: str) -> dict[str, int]:
    """How many links each page of the site has; -1 where it could not be had."""
    found: dict[str, int] = {}
    seen = {start}
    room = gosched.Semaphore(CRAWLERS)
    group = gosched.WaitGroup()

    def visit(url: str) -> None:
        with room:
            try:
                links = fetch(url)
            except (OSError, urllib.error.URLError, gosched.Timeout) as error:
                print(f"{url}: {error}", file=sys.stderr)
                found[url] = -1
                return
        found[url] = len(links)
        for link in links:
            if link not in seen and urlsplit(link).netloc == urlsplit(start).netloc:
                seen.add(link)
                group.go(visit, link)

    group.go(visit, start)
    group.wait()
    return found


def main() -> None:
    server = None
    if len(sys.argv) > 1:
        start = sys.argv[1]
    else:
        server = LocalSite(("127.0.0.1", 0), Site)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        start = f"http://127.0.0.1:{server.server_port}/1"
    begin = time.monotonic()
    found = crawl(start)
    seconds = time.monotonic() - begin
    links = sum(count for count in found.values() if count > 0)
    print(f"{len(found)} pages with {links} links")
    print(f"in {seconds:.2f} s, {CRAWLERS} at a time", file=sys.stderr)
    if server is not None:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main()
