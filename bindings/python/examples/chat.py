#!/usr/bin/env python3
"""A chat server: every line that someone sends goes to all others.

    python chat.py [PORT]        serves until Ctrl-C; try `nc localhost PORT`
    python chat.py --demo        three guests talk to each other, then it ends

Each connection has two goroutines: one reads lines, one writes what is in the guest's channel. The
room is a third kind: it alone knows who is there, so nothing needs a lock. A guest who doesn't read
has a full channel and misses lines; the others don't wait.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from gosched import Channel, Closed, WaitGroup, go, select
from gosched import socket


@dataclass(eq=False)
class Guest:
    name: str
    lines: Channel[str] = field(default_factory=lambda: Channel(64))


class Room:
    def __init__(self) -> None:
        self.enter: Channel[Guest] = Channel()
        self.leave: Channel[Guest] = Channel()
        self.said: Channel[tuple[Guest, str]] = Channel(16)
        go(self.run)

    def run(self) -> None:
        guests: list[Guest] = []

        def tell(text: str, but: Guest) -> None:
            for guest in guests:
                if guest is not but:
                    guest.lines.try_send(text)

        while True:
            index, value, _ = select(self.enter.recv_case(), self.leave.recv_case(), self.said.recv_case())
            if index == 0:
                guests.append(value)
                value.lines.try_send("here are: " + ", ".join(guest.name for guest in guests))
                tell(f"* {value.name} is here", value)
            elif index == 1:
                guests.remove(value)
                value.lines.close()
                tell(f"* {value.name} has left", value)
            else:
                guest, text = value
                tell(f"{guest.name}: {text}", guest)


def serve(room: Room, connection: socket.socket) -> None:
    with connection, connection.makefile("r", encoding="utf-8", errors="replace") as lines:
        connection.sendall(b"your name?\n")
        guest = Guest(lines.readline().strip() or "anonymous")
        room.enter.send(guest)
        writer = go(write, connection, guest)
        try:
            for line in lines:
                room.said.send((guest, line.rstrip()))
        except OSError:
            pass
        finally:
            room.leave.send(guest)
            writer.join()


def write(connection: socket.socket, guest: Guest) -> None:
    try:
        for line in guest.lines:
            connection.sendall(line.encode() + b"\n")
    except OSError:
        pass


def accept(listener: socket.socket) -> None:
    room = Room()
    while True:
        connection, _ = listener.accept()
        go(serve, room, connection)


def demo(port: int) -> None:
    """Ann and Bob are there when Eve comes; each says one line and hears the others'."""
    names = ["ann", "bob", "eve"]
    heard: dict[str, list[str]] = {name: [] for name in names}
    here: Channel[str] = Channel(len(names))
    speak: Channel[None] = Channel()
    guests = WaitGroup()

    def guest(name: str) -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            lines = connection.makefile("r", encoding="utf-8")
            lines.readline()
            connection.sendall(name.encode() + b"\n")
            lines.readline()
            here.send(name)
            try:
                speak.recv()
            except Closed:
                connection.sendall(f"hello from {name}\n".encode())
            while len(heard[name]) < len(names) - 1:
                line = lines.readline().strip()
                if not line.startswith("*"):
                    heard[name].append(line)
            here.send(name)
            lines.close()

    for name in names:
        guests.go(guest, name)
    for _ in names:
        here.recv()
    speak.close()
    for _ in names:
        here.recv()
    guests.wait()
    for name in names:
        print(f"{name} heard: {', '.join(sorted(heard[name]))}")


def main() -> None:
    arguments = sys.argv[1:]
    port = 0 if arguments[:1] == ["--demo"] else int(arguments[0]) if arguments else 7070
    listener = socket.create_server(("127.0.0.1", port))
    if arguments[:1] == ["--demo"]:
        go(accept, listener)
        demo(listener.getsockname()[1])
    else:
        print(f"chat: listening on port {listener.getsockname()[1]}", file=sys.stderr)
        accept(listener)


if __name__ == "__main__":
    main()
