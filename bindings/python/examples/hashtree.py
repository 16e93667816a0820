#!/usr/bin/env python3
"""Hashes all files of a directory tree, on all processors.

    python hashtree.py [DIRECTORY]

A goroutine walks the tree and sends what it finds down a channel; a few others take files from it
and hash them with gosched.blocking, in other OS threads: hashlib gives up the GIL for large pieces,
so they run at the same time. The last line is one hash over all of them, the same in each run.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time

import gosched
from gosched import Channel, WaitGroup, go

try:
    from tqdm import tqdm
except ImportError:  # only for the looks
    tqdm = None  # type: ignore[assignment, misc]

PIECE = 1 << 20


def walk(directory: str, files: Channel[tuple[str, int]]) -> None:
    for parent, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names):
            path = os.path.join(parent, name)
            if os.path.isfile(path) and not os.path.islink(path):
                files.send((path, os.path.getsize(path)))
        gosched.yield_()
    files.close()


def digest(path: str) -> str:
    """Runs in another thread: it may block and need not give way."""
    result = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(PIECE):
            result.update(piece)
    return result.hexdigest()


def worker(files: Channel[tuple[str, int]], results: Channel[tuple[str, int, str]]) -> None:
    for path, size in files:
        try:
            results.send((path, size, gosched.blocking(digest, path)))
        except OSError as error:
            results.send((path, 0, f"unreadable: {error.strerror}"))


def main() -> None:
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.__file__)
    files: Channel[tuple[str, int]] = Channel(256)
    results: Channel[tuple[str, int, str]] = Channel(256)
    begin = time.monotonic()

    go(walk, directory, files)
    workers = WaitGroup()
    for _ in range(2 * gosched.gomaxprocs()):
        workers.go(worker, files, results)

    def close_when_finished() -> None:
        workers.wait()
        results.close()

    go(close_when_finished)

    bar = tqdm(unit="B", unit_scale=True, desc="hashing", disable=None) if tqdm is not None else None
    found: list[tuple[str, str]] = []
    total = 0
    for path, size, hexadecimal in results:
        found.append((os.path.relpath(path, directory), hexadecimal))
        total += size
        if bar is not None:
            bar.update(size)
    if bar is not None:
        bar.close()

    seconds = time.monotonic() - begin
    whole = hashlib.sha256()
    for path, hexadecimal in sorted(found):
        whole.update(f"{hexadecimal}  {path}\n".encode("utf-8", "surrogateescape"))
    print(f"{len(found)} files, {total / 1e6:.1f} MB in {seconds:.2f} s on {gosched.gomaxprocs()} P's", file=sys.stderr)
    print(whole.hexdigest())


if __name__ == "__main__":
    main()
