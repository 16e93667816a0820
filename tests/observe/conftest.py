"""What the tests of metrics, schedtrace and gosched-top share: building programs, and running them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LIB = Path(os.environ.get("GOSCHED_LIB", ROOT / "target" / "release")).resolve()
TOP = ROOT / "target" / "release" / "gosched-top"
HUNG = 60  # seconds: a limit after which something counts as hung, not a claim about speed
TOPOLOGIES = [("1", "flat"), ("2", "node:2 core:1 pu:1"), ("8", "node:4 core:2 pu:1")]  # P's, GOSCHED_TOPOLOGY


def until(what):
    """Waits for what() to be true; its last value."""
    end = time.monotonic() + HUNG
    while not (value := what()) and time.monotonic() < end:
        time.sleep(0.02)
    return value


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GOSCHED_") and k != "GOMAXPROCS"}
    return kept | more


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Compiles a program of the repository against the library; the path of the program."""
    folder = tmp_path_factory.mktemp("programs")

    def compile_(source: str) -> Path:
        program = folder / Path(source).stem
        if not program.exists():
            compiler = shlex.split(os.environ.get("CC", "cc"))
            subprocess.run(
                [*compiler, "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{ROOT / 'include'}",
                 str(ROOT / source), "-o", str(program), f"-L{LIB}", "-lgosched", f"-Wl,-rpath,{LIB}"],
                check=True)
        return program

    return compile_


class Subject:
    """subject.c, which does what it is told."""

    def __init__(self, program: Path, env: dict[str, str], errors: Path):
        self.errors = errors
        self.process = subprocess.Popen([program], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=errors.open("w"))
        self.pid = self.process.pid

    def tell(self, line: str) -> str:
        guard = threading.Timer(HUNG, self.process.kill)
        guard.start()
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            return self.process.stdout.readline().strip()
        finally:
            guard.cancel()

    def stats(self) -> dict:
        return json.loads(self.tell("stats"))

    def leave(self) -> int:
        """Lets the program end by returning from main."""
        self.process.stdin.close()
        return self.process.wait(HUNG)

    def said(self) -> str:
        return self.errors.read_text()


@pytest.fixture
def subject(build, tmp_path):
    """Starts subject.c with these variables."""
    started = []

    def start(**env: str) -> Subject:
        program = build("tests/observe/subject.c")
        errors = tmp_path / f"errors-{len(started)}"
        started.append(Subject(program, environment(**env), errors))
        assert started[-1].tell("init") == "0"
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        one.process.stdout.close()


@pytest.fixture
def httpd(build, tmp_path):
    """Starts examples-c/httpd.c with these variables; its URL and its process."""
    started = []

    def start(**env: str):
        (tmp_path / "site").mkdir(exist_ok=True)
        (tmp_path / "site" / "file").write_text("text\n")
        process = subprocess.Popen([build("examples-c/httpd.c"), "-p", "0", "-m", tmp_path / "site"],
                                   env=environment(**env), stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process.stdout.readline().split()[-1], process

    yield start
    for process in started:
        process.terminate()
        assert process.wait(HUNG) == 0
        process.stdout.close()


def fetch(url: str):
    """The answer's content type and text."""
    with urllib.request.urlopen(url, timeout=HUNG) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def needs(program: str) -> str:
    """The path of a program that may not be there: then the test is skipped, with the reason."""
    path = shutil.which(program)
    if not path:
        pytest.skip(f"{program} is not installed (tools/setup observe)")
    return path


def go_root() -> Path:
    """Where Go of the environment has its sources."""
    go = ROOT / ".venv" / "bin" / "go"
    if not go.exists():
        pytest.skip("Go is not in .venv (tools/setup observe)")
    said = subprocess.run([go, "env", "GOROOT"], capture_output=True, text=True, check=True)
    return Path(said.stdout.strip())
