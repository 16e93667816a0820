"""The shortest look at everything: what runs with each Python in `make test`."""

import doctest

import gosched


def test_version():
    assert gosched.__version__.count(".") == 2


def test_directories():
    assert doctest.testmod(gosched).failed == 0
