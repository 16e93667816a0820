"""Runs CPython's own tests on goroutines: those of the running Python, under gosched.patch_all().

usage: run.py [--quick | --asyncio] [--list] [--jobs N] [MODULE | MODULE.CLASS.CASE]...

Each module runs in a process of its own (case.py). A case that hangs, or ends the process, is
noted, and the module goes on without it. A case that is not good is run without gosched: what fails
there too is this machine's affair. A case that fails, but neither hangs nor crashes, is also run
again, by itself. What is left differs because of gosched, and has to be in differs.txt, which says why.

  --quick   only the modules that `make test` runs
  --asyncio only those of test_asyncio: not patched, but on gosched's event loops
  --list    prints what differs in the form of differs.txt
  --jobs    modules at a time (default 1)
  --limit   seconds after which a case hangs (default 60)
  -v        the tracebacks of what differs
"""

import argparse
import concurrent.futures
import fnmatch
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
VERSION = "%d.%d" % sys.version_info[:2]

MODULES = """test_socket test_ssl test_select test_selectors test_queue test_threading test_thread
test_threading_local test_subprocess test_socketserver test_httplib test_httpservers
test_urllib2_localnet test_ftplib test_smtplib test_poplib test_imaplib test_telnetlib
test_asyncore test_wsgiref test_signal test_contextlib test_context test_sqlite test_sqlite3""".split()
QUICK = """test_select test_selectors test_queue test_thread test_threading_local
test_socketserver test_httpservers test_poplib test_context test_sqlite test_sqlite3""".split()

ASYNCIO = "base_events buffered_proto context eager_task_factory events futures futures2 locks pep492 queues runners " \
    "selector_events sendfile server sock_lowlevel ssl sslproto staggered streams subprocess taskgroups tasks " \
    "threads timeouts transports unix_events waitfor"
ASYNCIO = ["test_asyncio.test_" + name for name in ASYNCIO.split()]

#: seconds without a case beginning or ending, after which the case that runs counts as hung
CASE_LIMIT = 60


class Differs:
    """The list of cases that differ: NAME VERSIONS KIND, then lines that say why."""

    def __init__(self, path):
        self.entries = []
        with open(path) as file:
            for number, line in enumerate(file, 1):
                if not line.strip() or line[0] in "# \t":
                    continue
                words = line.split()
                if len(words) != 3 or words[2] not in ("fails", "skip", "may-fail"):
                    sys.exit("%s:%d: not 'NAME VERSIONS fails|may-fail|skip'" % (path, number))
                self.entries.append(words)

    @staticmethod
    def _applies(versions):
        if versions == "all":
            return True
        low, _, high = versions.partition("-")
        number = lambda v: tuple(map(int, v.split(".")))  # noqa: E731
        if not _:
            high = low
        this = number(VERSION)
        return (not low or this >= number(low)) and (not high or this <= number(high))

    def kind(self, name):
        for pattern, versions, kind in self.entries:
            if self._applies(versions) and fnmatch.fnmatchcase(name, pattern):
                return kind
        return None

    def patterns(self, module, kind):
        return [p for p, v, k in self.entries if k == kind and self._applies(v) and p.startswith(module + ".")]


class Module:
    """One test module's run: its cases' outcomes."""

    def __init__(self, name, patched=True, skip=(), only=(), tries=8):
        self.name = name
        self.outcomes = {}  # case -> (outcome, text)
        self.skipped = None
        self.seconds = 0
        begin = time.monotonic()
        done = set(skip)
        for _ in range(tries):
            ended, running = self._once(patched, done, only)
            done |= set(self.outcomes)
            if ended:
                break
            if running is None:
                self.outcomes[name + " (the module)"] = ("crash", "the process ended: %s" % self.status)
                break
        self.seconds = time.monotonic() - begin

    def _once(self, patched, skip, only):
        with tempfile.TemporaryDirectory() as directory:
            report = os.path.join(directory, "report")
            open(report, "w").close()
            command = [sys.executable]
            is_asyncio = self.name in ASYNCIO
            if patched and not is_asyncio:
                command += ["-m", "gosched", "--patch-all"]
            command += [os.path.join(HERE, "case.py"), self.name, report]
            if patched and is_asyncio:
                command += ["--policy"]
            for option, names in (("--skip", skip), ("--only", only)):
                if names:
                    path = os.path.join(directory, option[2:])
                    with open(path, "w") as file:
                        file.write("\n".join(names))
                    command += [option, path]
            with open(os.path.join(directory, "output"), "w+", errors="replace") as output:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
                try:
                    return self._follow(process, report, output)
                finally:
                    try:
                        os.killpg(process.pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                    process.wait()

    def _follow(self, process, report, output):
        running = None
        ended = False
        last = time.monotonic()
        with open(report) as file:
            rest = ""
            while True:
                status = process.poll()
                text = rest + file.read()
                *lines, rest = text.split("\n")
                for line in lines:
                    last = time.monotonic()
                    said = json.loads(line)
                    if "begin" in said:
                        running = said["begin"]
                    elif "end" in said:
                        running = None
                        self.outcomes[said["end"]] = (said["outcome"], said["text"])
                    elif said["module"] == "skipped":
                        self.skipped = said["text"]
                        ended = True
                    elif said["module"] == "end":
                        ended = True
                if status is not None and not lines:
                    break
                if status is None and time.monotonic() - last > CASE_LIMIT:
                    process.send_signal(signal.SIGUSR2)
                    time.sleep(0.5)
                    output.seek(0)
                    outcome = ("hang", output.read()[-6000:])
                    if running:
                        self.outcomes[running] = outcome
                    self.status = "hang"
                    return ended, running
                if not lines:
                    time.sleep(0.05)
        self.status = status
        if running is not None:
            output.seek(0)
            self.outcomes[running] = ("crash", "status %s\n%s" % (status, output.read()[-6000:]))
        elif not ended:
            output.seek(0)
            self.status = "%s\n%s" % (status, output.read()[-3000:])
        return ended, running


BAD = ("failure", "error", "hang", "crash")


def all_cases(name):
    """The names of a module's cases that a pattern may match: asked from Python itself."""
    code = (
        "import sys, unittest, importlib\n"
        "def walk(s):\n"
        "    for e in s:\n"
        "        if isinstance(e, unittest.TestSuite): walk(e)\n"
        "        else: print(e.id()[5:])\n"
        "walk(unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module('test.%s')))" % name
    )
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=tempfile.gettempdir())
    return found.stdout.split()


def run_module(name, differs, only=()):
    skip = set()
    patterns = differs.patterns(name, "skip")
    if patterns:
        skip = {case for case in all_cases(name) if any(fnmatch.fnmatchcase(case, p) for p in patterns)}
    module = Module(name, skip=skip, only=only)
    module.not_run = skip
    module.differs, module.flaky, module.elsewhere = {}, {}, {}
    for case, (outcome, text) in list(module.outcomes.items()):
        if outcome not in BAD or differs.kind(case) in ("fails", "may-fail"):
            continue
        if "(" in case:
            module.differs[case] = (outcome, text)
            continue
        plain = Module(name, patched=False, only=[case], tries=1)
        if plain.outcomes.get(case, ("ok",))[0] in BAD:
            module.elsewhere[case] = (outcome, text)
            continue
        if outcome in ("hang", "crash"):
            module.differs[case] = (outcome, text)
            continue
        again = Module(name, only=[case], tries=1)
        if again.outcomes.get(case, ("error",))[0] in BAD:
            module.differs[case] = again.outcomes.get(case, (outcome, text))
        else:
            module.flaky[case] = (outcome, text)
    return module


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--asyncio", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=CASE_LIMIT)
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    globals()["CASE_LIMIT"] = options.limit
    if importlib.util.find_spec("test.support") is None:
        print("skipped: this Python has no test package (Debian: libpython3-testsuite)")
        return 0
    differs = Differs(os.path.join(HERE, "differs.txt"))
    wanted = {}
    for name in options.names or (QUICK if options.quick else ASYNCIO if options.asyncio else MODULES + ASYNCIO):
        module, _, case = name.partition(".")
        if module == "test_asyncio" and case:
            module, _, case = case.partition(".")
            module = "test_asyncio." + module
        if importlib.util.find_spec("test." + module) is None:
            print("%-24s not in Python %s" % (module, VERSION))
            continue
        wanted.setdefault(module, [])
        if case:
            wanted[module] += [c for c in all_cases(module) if fnmatch.fnmatchcase(c, name + "*")]
    total = dict.fromkeys(("run", "ok", "skipped", "known", "elsewhere", "flaky", "differs", "not run"), 0)
    gone = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(run_module, name, differs, only) for name, only in wanted.items()]
        for job in jobs:
            module = job.result()
            if module.skipped is not None:
                print("%-24s skipped: %s" % (module.name, module.skipped), flush=True)
                continue
            count = dict.fromkeys(total, 0)
            for case, (outcome, _) in module.outcomes.items():
                if outcome == "skipped":
                    count["skipped"] += 1
                    continue
                count["run"] += 1
                kind = differs.kind(case)
                if outcome == "ok":
                    count["ok"] += 1
                    if kind == "fails":
                        gone.append(case)
                elif kind in ("fails", "may-fail"):
                    count["known"] += 1
            count["not run"] = len(module.not_run)
            for kind in ("elsewhere", "flaky", "differs"):
                count[kind] = len(getattr(module, kind))
            for key in total:
                total[key] += count[key]
            print("%-24s %s; %.0f s" % (module.name, sentence(count), module.seconds), flush=True)
            for kind, text in (
                ("elsewhere", "fails without gosched too"),
                ("flaky", "failed once, passed alone"),
                ("differs", "DIFFERS"),
            ):
                for case, (outcome, trace) in getattr(module, kind).items():
                    print("    %s (%s): %s" % (case, outcome, text))
                    if options.list and kind == "differs":
                        print("%s %s %s" % (case, VERSION, "skip" if outcome in ("hang", "crash") else "fails"))
                    if options.verbose and kind != "elsewhere":
                        print("\n".join("        " + line for line in trace.splitlines()[-60:]), flush=True)
    for case in gone:
        print("%s passes, though differs.txt lists it" % case)
    print("Python %s: %s" % (VERSION, sentence(total)))
    return 1 if total["differs"] else 0


def sentence(count):
    parts = ["%d cases" % (count["run"] + count["not run"]), "%d passed" % count["ok"]]
    if count["differs"]:
        parts.append("%d DIFFER" % count["differs"])
    if count["known"] or count["not run"]:
        parts.append("%d in the list" % (count["known"] + count["not run"]))
    if count["flaky"]:
        parts.append("%d passed the second time" % count["flaky"])
    if count["elsewhere"]:
        parts.append("%d fail without gosched too" % count["elsewhere"])
    if count["skipped"]:
        parts.append("%d skipped by CPython" % count["skipped"])
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
