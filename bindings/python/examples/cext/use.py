#!/usr/bin/env python3
"""Numbers go to goroutines in C, their least factors come back.

    pip install --no-build-isolation . && python use.py [COUNT]
"""

from __future__ import annotations

import sys

import gosched
from gosched import Channel, go

import factors


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    jobs: Channel[int] = Channel(64, format="q")
    results: Channel[tuple[int, int]] = Channel(64, format="qq")
    factors.start(jobs, results, gosched.gomaxprocs())

    def produce() -> None:
        for number in range(2, count + 2):
            jobs.send(number)
        jobs.close()

    go(produce)
    primes = sorted(number for number, factor in results if number == factor)
    print(f"{len(primes)} primes, the last is {primes[-1]}")

    numbers: Channel[int] = Channel(format="q")

    def count_up() -> None:
        for number in range(100):
            numbers.send(number)
        numbers.close()

    go(count_up)
    print(f"0 to 99 add up to {factors.total(numbers)}")  # waits in C


if __name__ == "__main__":
    main()
