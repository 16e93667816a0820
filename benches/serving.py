"""What benches/servers and benches/clients share: programs, servers that they start, and how they print figures."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

START_LIMIT = 20  # seconds until a server answers

# Settings of the caller's that would change what is measured.
DISTURBING = re.compile(r"GOSCHED_|GOMAXPROCS$|GOGC$|GODEBUG$|GOMEMLIMIT$|GOTRACEBACK$")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not DISTURBING.match(name)}


class Failure(Exception):
    """Something that the user has to know and that is no bug of this script."""


def output_of(command: list, **options) -> str:
    shown = shlex.join(map(str, command))
    try:
        done = subprocess.run(
            [str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, **options
        )
    except OSError as error:
        raise Failure(f"{shown}: {error.strerror}") from None
    except subprocess.TimeoutExpired as late:
        raise Failure(f"{shown}: still running after {late.timeout:g} s") from None
    if done.returncode != 0:
        raise Failure("\n    ".join([f"{shown}: exit status {done.returncode}", *done.stderr.splitlines()[:20]]))
    return done.stdout + (done.stderr if not done.stdout else "")


def redis_server_on(port: int, scratch: Path, *more) -> list:
    """The command of a redis-server that saves nothing."""
    return [program("redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
            "--dir", scratch, *more]


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if not found:
        raise Failure(f"{name} is missing: `make setup` installs it")
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


class Running:
    """A server that answers; `with` ends it."""

    def __init__(self, name: str, command: Callable[[int], list], scratch: Path):
        """`command` gives the command for a port; `scratch` is for what the server says."""
        self.name = name
        self.port = free_port()
        self.log = (scratch / "log").open("w+")
        self.process = subprocess.Popen([str(part) for part in command(self.port)], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, env=ENVIRONMENT)

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read().strip()[-500:]

    def __enter__(self):
        end = time.monotonic() + START_LIMIT
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    self.__exit__()
                    raise Failure(f"{self.name} doesn't answer: {self.said()}") from None
                time.sleep(0.01)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(START_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failure(f"{self.name} didn't stop within {START_LIMIT} s") from None
        finally:
            self.log.close()


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def spread(values: list[float]) -> str:
    middle = number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({number(min(values))}..{number(max(values))})"
