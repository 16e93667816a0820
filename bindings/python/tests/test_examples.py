"""Each program of examples/ does what it says, as a user runs it."""

import os
import re
import subprocess
import sys

import pytest

EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples")


def run(name, *arguments, **kwargs):
    command = [sys.executable, "-X", "dev", os.path.join(EXAMPLES, name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, **kwargs)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "ResourceWarning" not in done.stderr, done.stderr
    return done


def test_pipeline():
    out = run("pipeline.py", "1000").stdout
    assert out.startswith("168 primes up to 1001\n   168 numbers with 1 prime factor\n"), out


def test_hashtree(tmp_path):
    for i in range(40):
        directory = tmp_path / str(i % 4)
        directory.mkdir(exist_ok=True)
        (directory / "{}.txt".format(i)).write_bytes(b"x" * i * 10000)
    first = run("hashtree.py", str(tmp_path))
    assert "40 files" in first.stderr
    assert re.fullmatch(r"[0-9a-f]{64}\n", first.stdout)
    assert run("hashtree.py", str(tmp_path)).stdout == first.stdout
    (tmp_path / "0" / "0.txt").write_bytes(b"y")
    assert run("hashtree.py", str(tmp_path)).stdout != first.stdout


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_hashtree_goes_on_after_an_unreadable_file(tmp_path):
    (tmp_path / "closed").write_bytes(b"x")
    (tmp_path / "closed").chmod(0)
    assert "1 files" in run("hashtree.py", str(tmp_path)).stderr


def test_crawler():
    assert run("crawler.py").stdout == "120 pages with 239 links\n"


def test_chat():
    assert run("chat.py", "--demo").stdout.splitlines() == [
        "ann heard: bob: hello from bob, eve: hello from eve",
        "bob heard: ann: hello from ann, eve: hello from eve",
        "eve heard: ann: hello from ann, bob: hello from bob",
    ]
