"""What the programs that check one part of libgosched share: reports, builds, runs, listings of pages, and servers.

Such a program puts tools/ into sys.path, makes its options with `parser`, and hands its kinds of checks to `run_kinds`.
Of the environment: GOSCHED_LIB and GOSCHED_INCLUDE say where libgosched.so and gosched.h are, if they aren't this
project's own; CC, which C compiler; MAKE, which make.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import pwd
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = Path(os.environ.get("GOSCHED_LIB", ROOT / "target" / "release")).resolve()
INCLUDE = Path(os.environ.get("GOSCHED_INCLUDE", ROOT / "include")).resolve()
CC = shlex.split(os.environ.get("CC", "cc"))
MAKE = [os.environ.get("MAKE", "make"), "--no-print-directory"]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
WIDENED = {"GOSCHED_DEBUG": "migrate=1,randomorder=1,tinyqueues=1"}  # the switches that widen races
SETTINGS = [{"GOSCHED_PROCS": procs} for procs in ("1", "2", "8")] + [{"GOSCHED_PROCS": "2"} | WIDENED]
LIMIT = 240  # seconds for one run of a program: a scheduler's bugs are hangs
SKIPPED = 77  # the exit status of a program that can't run here

Done = subprocess.CompletedProcess
Env = dict[str, str]

# ---- Reports ----

counts: Counter[str] = Counter()  # the checks so far by their kind: ok, FAIL, skip, or the caller's own


noting = threading.Lock()


def note(kind: str, what: str, text: str = "") -> None:
    """Counts and prints a check, with `text` below it: its first 20 and last 40 lines."""
    lines = text.splitlines()
    if len(lines) > 60:
        lines[20:-40] = [f"... {len(lines) - 60} lines ..."]
    with noting:
        counts[kind] += 1
        print(f"{kind:5} {what}", *(f"      | {line[:300]}" for line in lines), sep="\n", flush=True)


def ok(what: str) -> None:
    note("ok", what)


def bad(what: str, text: str = "") -> None:
    note("FAIL", what, text)


def skipped(what: str, why: str) -> None:
    note("skip", f"{what}: {why}")


def verdict(what: str, good: object, text: str = "") -> None:
    """`text` is shown if the check has failed."""
    ok(what) if good else bad(what, text)


def same(what: str, got: str, wanted: str) -> None:
    if got == wanted:
        return ok(what)
    return bad(what, "\n".join(difflib.unified_diff(wanted.splitlines(), got.splitlines(), "wanted", "got", "", "", 1, "")))


@contextlib.contextmanager
def attempt(what: str) -> Iterator[None]:
    """A check: what `with` does goes through without an exception."""
    try:
        yield
    except Exception:
        bad(what, traceback.format_exc())
    else:
        ok(what)


def finish() -> NoReturn:
    """Prints 'N passed, N failed'; the exit status is 1 if a check has failed."""
    names = {"ok": "passed", "FAIL": "failed", "skip": "skipped"}
    kinds = dict.fromkeys(["ok", "FAIL", *counts])
    print(", ".join(f"{counts[kind]} {names.get(kind, kind)}" for kind in kinds), flush=True)
    sys.exit(counts["FAIL"] > 0)


# ---- The command line ----


def parser(doc: str, kinds: Iterable[str] = (), *forms: str, add_help: bool = True) -> argparse.ArgumentParser:
    """A parser whose help is `doc`. `forms` are switches, such as --quick. --only takes a list of `kinds`, which is all
    of them by default. From here on signals end the program in order, with what it has started."""

    def chosen(text: str) -> list[str]:
        for kind in (names := text.split(",")):
            if kind not in kinds:
                raise argparse.ArgumentTypeError(f"there is no '{kind}'; there are: {','.join(kinds)}")
        return names

    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=add_help
    )
    for form in forms:
        made.add_argument(form, action="store_true", help=argparse.SUPPRESS)
    if kinds:
        made.add_argument("--only", type=chosen, default=list(kinds), metavar="KIND,...", help=argparse.SUPPRESS)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    # A shell's background job ignores it, and so would all that the program runs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return made


def run_kinds(kinds: Mapping[str, Callable[[argparse.Namespace], None]], options: argparse.Namespace, *needed: Path) -> NoReturn:
    """Calls those that --only has chosen with the options, and ends the program. An exception is a failed check.
    `needed`: files that must be built before."""
    for path in needed:
        if not path.exists():
            sys.exit(f"{sys.argv[0]}: {path} isn't built: make build examples")
    for name in options.only:
        print(f"-- {name}", flush=True)
        begin = time.monotonic()
        try:
            kinds[name](options)
        except Exception:
            bad(name, traceback.format_exc())
        print(f"-- {name}: {time.monotonic() - begin:.0f} s", flush=True)
    finish()


def lacking(group: str, tools: Iterable[str] = ()) -> str | None:
    """Installs a group of tools/setup; None if that has succeeded and the tools are there, else the reason."""
    done = subprocess.run([ROOT / "tools" / "setup", group])
    missing = [tool for tool in tools if not shutil.which(tool)]
    if done.returncode == 0 and not missing:
        return None
    what = f"no {', no '.join(missing)}" if missing else "its packages are missing and can't be installed"
    return f"{what} (tools/setup {group} installs what is needed, as root)"


def cannot(name: str, why: str) -> NoReturn:
    """Ends a program that can't run here. tools/test shows the reason."""
    print(f"{name}: skipped: {why}", flush=True)
    sys.exit(SKIPPED)


# ---- Running ----


def environment(setting: Env | None = None, *, flat: bool = True) -> Env:
    """The caller's, without what changes the library or its hosts, and with `setting`. flat: on a machine of one node."""
    dropped = ("GOSCHED_", "GOMAXPROCS", "LD_PRELOAD", "OMPI_", "LUA_", "LUAROCKS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"LC_ALL": "C"} | ({"GOSCHED_TOPOLOGY": "flat"} if flat else {}) | (setting or {})


def words(setting: Env) -> str:
    return " ".join(f"{name}={value}" for name, value in setting.items())


def run(command: Sequence[object], env: Env | None = None, *, limit: float | None = LIMIT, **options: Any) -> Done:
    """Runs a command, by default in environment(), with an empty input. After `limit` seconds its process group is
    ended, and its status is 124; it is 127 if the command can't be started. stderr then says so."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    options = pipes | {"env": environment() if env is None else env, "text": True, "errors": "replace"} | options
    args = [str(word) for word in command]
    try:
        process = subprocess.Popen(args, start_new_session=True, **options)
    except OSError as error:
        return Done(args, 127, "", str(error))
    with process:
        try:
            out, err = process.communicate(timeout=limit)
            return Done(args, process.returncode, out, err)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # mpirun ends its ranks then
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            return Done(args, 124, out, f"{err or ''}\nno end after {limit} s")
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def text_of(done: Done) -> str:
    return f"{shlex.join(done.args)}\n{done.stdout}\n{done.stderr}\nexit status {done.returncode}"


def ends(what: str, command: Sequence[object], env: Env | None = None, *, status: int = 0, **options: Any) -> Done | None:
    """Runs a command; None, and a failed check, if it ends with another status."""
    done = run(command, env, **options)
    if done.returncode == status:
        return done
    bad(what, text_of(done))
    return None


def prints(what: str, command: Sequence[object], wanted: str, env: Env | None = None, **options: Any) -> None:
    """A check: the command ends well and prints this, and nothing else, on its standard output."""
    if done := ends(what, command, env, **options):
        same(what, done.stdout, wanted)


def runs(what: str, command: Sequence[object], settings: Iterable[Env] = SETTINGS, wanted: str | None = None, *,
         more: Env | None = None, **options: Any) -> None:
    """A check for each setting, with `more` in the environment: the command ends well, and prints what is wanted."""
    for setting in settings:
        named = f"{what}: {words(setting)}"
        if done := ends(named, command, environment((more or {}) | setting), **options):
            same(named, done.stdout, done.stdout if wanted is None else wanted)


def says(what: str, status: int, text: str, command: Sequence[object], env: Env | None = None, **options: Any) -> Done | None:
    """A check: the command ends with this status, and the text is in what it prints. None if the status is another."""
    if done := ends(what, command, env, status=status, **options):
        verdict(what, text in done.stdout + done.stderr, text_of(done))
    return done


class Failed(Exception):
    """What went wrong, for people."""


def must(command: Sequence[object], **options: Any) -> Done:
    """Runs a command; Failed, with all that it says, if it fails."""
    done = run(command, **options)
    if done.returncode != 0:
        raise Failed(f"this has failed: {text_of(done)}")
    return done


def example(name: str) -> Path:
    """A program of examples-c, which is built if need be."""
    must(["make", "--no-print-directory", "-C", ROOT, f"target/examples/{name}"])
    return ROOT / "target" / "examples" / name


# ---- Building ----


def compiles(what: str, command: Sequence[object], *, report: bool = True) -> bool:
    """A check: the compiler succeeds (with -Werror: without a warning). Without `report` success isn't counted."""
    done = run(command, limit=900)
    what = f"{what}: builds without a warning"
    if done.returncode != 0:
        bad(what, done.stderr)
    elif report:
        ok(what)
    return done.returncode == 0


def at_once(call: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
    """What map(call, *arguments) gives, by as many calls at a time as there are CPUs."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(call, *arguments))


def linked(library: Path = LIBRARY) -> list[str]:
    """The compiler's options for a program that uses libgosched.so in this folder, when it runs too."""
    return [f"-L{library}", "-lgosched", "-pthread", f"-Wl,--disable-new-dtags,-rpath,{library}"]


def build(program: Path, source: Path, flags: Sequence[str], link: Sequence[object] = (), *, what: str = "",
          compiler: Sequence[str] = CC, library: Path = LIBRARY, report: bool = True) -> Path | None:
    """The program, built from a source and, by `link`, other objects; None, and a failed check, if that fails."""
    program.parent.mkdir(parents=True, exist_ok=True)
    command = [*compiler, *flags, f"-I{INCLUDE}", source, "-o", program, *link, *linked(library)]
    return program if compiles(what or program.name, command, report=report) else None


def flags_of(*packages: str) -> list[str] | None:
    """What pkg-config says of the first of these packages that it knows."""
    found = (run(["pkg-config", "--cflags", "--libs", package]) for package in packages)
    return next((done.stdout.split() for done in found if done.returncode == 0), None)


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A fresh folder as the working directory, with a copy of the library. All users may read it."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        work = Path(folder)
        shutil.copy(LIBRARY / "libgosched.so", work / "libgosched.so.1")
        (work / "libgosched.so").symlink_to("libgosched.so.1")
        os.chdir(work)
        try:
            yield work
        finally:
            os.chdir(ROOT)


class Listing(NamedTuple):
    marks: str  # the comment on the line before
    code: str
    text: str  # what it prints: the block of text behind it, with at most a line between


def listings(page: Path, kind: str) -> list[Listing]:
    """The blocks of a Markdown page that begin with ``` and `kind`."""
    text = r"(?:\n(?:[^\n]+\n\n)?```text[^\n]*\n(?P<text>.*?)^```\n)?"
    pattern = rf"(?:^<!-- (?P<marks>[^>\n]*) -->\n)?^```{re.escape(kind)}\n(?P<code>.*?)^```\n{text}"
    found = re.finditer(pattern, page.read_text(), re.M | re.S)
    return [Listing(match["marks"] or "", match["code"], match["text"] or "") for match in found]


# ---- Servers ----


def until(what: Callable[[], Any], seconds: float = LIMIT) -> Any:
    """Waits until what() is true; its last value."""
    end = time.monotonic() + seconds
    while not (value := what()) and time.monotonic() < end:
        time.sleep(0.02)
    return value


class Server:
    """A server that answers, which `with` stops: by `stop`, and by SIGKILL if it hasn't ended 30 s later. It answers once
    ready() is true; without `ready`, once it has said 'port N', which is its `port`. root runs it as `user`."""

    def __init__(self, command: Sequence[object], env: Env | None = None, *, ready: Callable[[], bool] | None = None,
                 user: str | None = None, stop: int = signal.SIGTERM, **options: Any):
        self.stop = stop
        self.port = 0
        self.log = tempfile.TemporaryFile()
        args = [*as_user(user), "setpriv", "--pdeathsig", "KILL", *map(str, command)]
        self.process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env=environment() if env is None else env, **options)
        answers = ready or self.has_port
        if not until(lambda: self.process.poll() is not None or answers()) or self.process.poll() is not None:
            self.__exit__()
            raise Failed(f"{command[0]} doesn't start: {self.said()[-2000:]}")

    def has_port(self) -> bool:
        if found := re.search(r"port (\d+)\b.*\n", self.said()):
            self.port = int(found[1])
        return found is not None

    def said(self) -> str:
        """What it has printed so far."""
        return os.pread(self.log.fileno(), 1 << 20, 0).decode(errors="replace")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, _: object = None, error: BaseException | None = None, __: object = None) -> None:
        self.process.send_signal(self.stop)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        finally:
            self.process.wait()
        if isinstance(error, Exception):
            raise Failed(f"the server has said: {self.said()[-2000:]}") from error


def as_user(user: str | None) -> list[str]:
    """The words before a command that root runs as this user; none for others."""
    if not user or os.getuid() != 0:
        return []
    return ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--clear-groups"]


def free_port() -> int:
    """Below those that the system gives to outgoing connections, so that none of these takes it meanwhile."""
    while True:
        with socket.socket() as s, contextlib.suppress(OSError):
            port = random.randrange(20_000, 32_000)
            s.bind(("127.0.0.1", port))
            return port


def listens(port: int) -> Callable[[], bool]:
    def ready() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False
    return ready


@contextlib.contextmanager
def redis_server(env: Env | None = None, directory: str = "/") -> Iterator[int]:
    """Its port. It saves into the directory, and only when it is told to."""
    port = free_port()
    command = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", directory, "--save", "",
               "--appendonly", "no", "--maxclients", "3000", "--tcp-backlog", "2000"]
    with Server(command, env, ready=listens(port)):
        yield port


@contextlib.contextmanager
def postgres_server(connections: int) -> Iterator[int]:
    """Its port: of PostgreSQL with a new database, whose superuser postgres needs no password, for this many clients."""
    binaries = max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[-3])).parent
    users = {entry.pw_name for entry in pwd.getpwall()}
    user = "postgres" if "postgres" in users else "nobody"  # PostgreSQL refuses to run as root
    with tempfile.TemporaryDirectory(prefix="gosched-", dir="/tmp") as directory:
        if os.getuid() == 0:
            shutil.chown(directory, user)
        db = Path(directory, "db")
        initdb = [binaries / "initdb", "-D", db, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        must([*as_user(user), *initdb])
        with open(db / "postgresql.conf", "a") as conf:  # nothing needs to outlive the test
            conf.write(f"max_connections = {connections}\nshared_buffers = 32MB\nfsync = off\nsynchronous_commit = off\n"
                       "full_page_writes = off\nautovacuum = off\nwal_level = minimal\nmax_wal_senders = 0\n"
                       "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nclient_min_messages = warning\n")
        port = free_port()
        ready = [binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", port]
        with Server([binaries / "postgres", "-D", db, "-p", port], ready=lambda: run(ready).returncode == 0, user=user,
                    stop=signal.SIGINT):
            yield port
