"""The plugin of pytest: options for tests with gosched.test."""

import random

import pytest

from . import testing


def _seed(text):
    return random.randrange(1, 1 << 32) if text == "random" else _positive(text)


def _positive(text):
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def pytest_addoption(parser):
    group = parser.getgroup("gosched", "tests with gosched.test")
    group.addoption("--gosched-seed", metavar="N|random", help="the seed of the first run of each test")
    group.addoption("--gosched-runs", metavar="N", help="how many runs each test has")
    group.addoption("--gosched-replay", metavar="STRING", help="one run with this schedule, as a report has printed it")


def pytest_configure(config):
    said = {}
    for name, convert in [("seed", _seed), ("runs", _positive), ("replay", str)]:
        text = config.getoption("--gosched-" + name)
        if text is not None:
            try:
                said[name] = convert(text)
            except ValueError:
                raise pytest.UsageError("--gosched-%s: %r is no number from 1 on" % (name, text)) from None
    testing._said.clear()
    testing._said.update(said)


def pytest_report_header(config):
    if testing._said:
        return "gosched: " + ", ".join("%s=%s" % item for item in testing._said.items())
