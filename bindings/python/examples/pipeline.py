#!/usr/bin/env python3
"""A pipeline: numbers go through channels from stage to stage, three workers factor them.

    python pipeline.py [COUNT]

The stages run at the same time. Channels of a small capacity keep a quick stage from running away
from a slow one; closing a channel tells the next stage that nothing more comes.
"""

from __future__ import annotations

import sys
from collections import Counter

import gosched
from gosched import Channel, WaitGroup, go

Factors = tuple[int, list[int]]


def numbers(count: int, out: Channel[int]) -> None:
    for number in range(2, count + 2):
        out.send(number)
    out.close()


def factor(number: int) -> list[int]:
    factors, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return factors + [number] if number > 1 else factors


def worker(source: Channel[int], out: Channel[Factors]) -> None:
    for number in source:  # ends when the channel is closed and empty
        out.send((number, factor(number)))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    source: Channel[int] = Channel(16)
    done: Channel[Factors] = Channel(16)

    go(numbers, count, source)
    workers = WaitGroup()
    for _ in range(3):
        workers.go(worker, source, done)

    def close_when_finished() -> None:
        workers.wait()
        done.close()

    go(close_when_finished)

    primes, lengths, shown = 0, Counter[int](), gosched.ticker(0.2)
    while True:
        index, value, ok = gosched.select(done.recv_case(), shown.recv_case())
        if index == 1:
            print(f"... {sum(lengths.values())} of {count}", file=sys.stderr)
            continue
        if not ok:
            break
        _, factors = value
        primes += len(factors) == 1
        lengths[len(factors)] += 1
    shown.stop()
    print(f"{primes} primes up to {count + 1}")
    for length, how_many in sorted(lengths.items()):
        print(f"{how_many:6} numbers with {length} prime factor{'s' if length > 1 else ''}")


if __name__ == "__main__":
    main()
