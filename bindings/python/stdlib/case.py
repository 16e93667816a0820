"""Runs the cases of one of CPython's test modules; run.py starts it, once for each module.

usage: python [-m gosched --patch-all] case.py MODULE REPORT [--policy] [--skip FILE] [--only FILE]

Each case's beginning and end is a line of JSON in the file REPORT. With --policy asyncio's event
loops are gosched's. The other options name files of case names, one a line.
"""

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
import traceback
import unittest


def short(case):
    name = case.id()
    return name[len("test.") :] if name.startswith("test.") else name


class Result(unittest.TestResult):
    def __init__(self, report):
        super().__init__()
        self.report = report
        self.outcome = None

    def say(self, **what):
        os.write(self.report, (json.dumps(what) + "\n").encode())

    def startTest(self, test):
        super().startTest(test)
        self.outcome = ("ok", "")
        self.begin = time.monotonic()
        self.running = test
        self.say(begin=short(test))

    def stopTest(self, test):
        super().stopTest(test)
        if self.running is None:
            return  # Python 3.12 doesn't begin what is skipped
        outcome, text = self.outcome
        self.running = None
        self.say(end=short(test), outcome=outcome, text=text, took=round(time.monotonic() - self.begin, 2))

    running = None

    def note(self, test, outcome, text=""):
        if self.running is not None and test is not None and getattr(test, "id", None):
            self.outcome = (outcome, text)
        else:
            # A fixture of a class or a module
            self.say(end=short(test), outcome=outcome, text=text, took=0)

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "error", "".join(traceback.format_exception(*err)))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "failure", "".join(traceback.format_exception(*err)))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "failure", "".join(traceback.format_exception(*err)))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.note(test, "ok")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, "failure", "unexpected success")


def cases(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from cases(each)
        else:
            yield each


def names(path):
    if not path:
        return set()
    with open(path) as file:
        return set(file.read().split("\n"))


def set_policy():
    """Makes all loops gosched's: those that cases get from a policy, and those that they make by name."""
    import asyncio

    import gosched

    set_event_loop_policy = asyncio.set_event_loop_policy

    def set_policy(policy):
        # Modules put the default back with None.
        set_event_loop_policy(gosched.EventLoopPolicy() if policy is None else policy)

    set_policy(None)
    asyncio.set_event_loop_policy = set_policy
    asyncio.SelectorEventLoop = gosched.asyncio.EventLoop
    if hasattr(asyncio, "EventLoop"):
        asyncio.EventLoop = gosched.asyncio.EventLoop


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("report")
    parser.add_argument("--policy", action="store_true")
    parser.add_argument("--skip")
    parser.add_argument("--only")
    options = parser.parse_args()
    skip, only = names(options.skip), names(options.only)
    report = os.open(options.report, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    import faulthandler
    import signal

    if options.policy:
        set_policy()
    if "gosched" in sys.modules:
        import gosched

        signal.signal(signal.SIGUSR2, lambda number, frame: gosched.dump(sys.__stderr__))
    faulthandler.register(signal.SIGUSR2, all_threads=True, chain=True)
    from test import support

    support.verbose = 0
    # Without "network" (but where it only means this machine), "largefile" and what asks a desktop.
    support.use_resources = {name: None for name in ("cpu", "subprocess", "walltime", "decimal")}
    if options.module == "test_socketserver":
        support.use_resources["network"] = None
    with tempfile.TemporaryDirectory(prefix="gosched-") as directory:
        os.chdir(directory)
        result = Result(report)
        try:
            module = importlib.import_module("test." + options.module)
            suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        except unittest.SkipTest as e:
            result.say(module="skipped", text=str(e))
            return
        chosen = unittest.TestSuite()
        for case in cases(suite):
            name = short(case)
            if name not in skip and (not only or name in only):
                chosen.addTest(case)
        result.say(module="begin", cases=chosen.countTestCases())
        # A runner groups the cases of a class and of a module by themselves.
        chosen.run(result)
        result.say(module="end")
        os.chdir("/")


if __name__ == "__main__":
    main()
    # What a case leaves running must not keep this process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
