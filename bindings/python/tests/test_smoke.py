"""The shortest look at everything: what runs with each Python in `make test`."""

import doctest
import importlib
import os
import subprocess
import sys
import threading

import pytest

import gosched


def test_version():
    assert gosched.__version__.count(".") == 2


def test_directories():
    assert doctest.testmod(gosched).failed == 0


def test_goroutines_channels_and_select():
    def square(channel, n):
        gosched.sleep(0.001)
        channel.send(n * n)

    channel = gosched.Channel()
    for n in range(100):
        gosched.go(square, channel, n)
    assert sorted(channel.recv(5) for _ in range(100)) == [n * n for n in range(100)]
    index, value, ok = gosched.select(channel.recv_case(), gosched.after(0.001).recv_case())
    assert (index, ok) == (1, True)


def test_results_errors_and_cancel():
    assert gosched.go(pow, 2, 5).result(5) == 32
    with pytest.raises(ZeroDivisionError):
        gosched.go(lambda: 1 / 0).result(5)
    sleeper = gosched.go(gosched.sleep, 60)
    gosched.yield_()
    assert sleeper.cancel() and sleeper.join(5) and sleeper.cancelled()
    with pytest.raises(gosched.Timeout):
        with gosched.Timeout(0.001):
            gosched.sleep(60)


def test_many_goroutines_and_their_own_state():
    local, wrong = threading.local(), []

    def task(n):
        local.n = n
        for _ in range(3):
            gosched.yield_()
            if local.n != n:
                wrong.append(n)

    group = gosched.WaitGroup()
    for n in range(1000):
        group.go(task, n)
    assert group.wait(30) and wrong == []


def test_threads_and_blocking():
    channel = gosched.Channel()
    thread = threading.Thread(target=lambda: [channel.send(n) for n in range(100)])
    thread.start()
    assert [channel.recv(5) for _ in range(100)] == list(range(100))
    thread.join()
    assert gosched.blocking(threading.get_native_id) != threading.get_native_id()


def test_sockets():
    from gosched import socket

    def serve(listener):
        connection, _ = listener.accept()
        with connection:
            while True:
                data = connection.recv(100)
                if not data:
                    return
                connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = gosched.go(serve, listener)
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(b"hello")
            assert client.recv(100) == b"hello"
        assert server.join(5)


@pytest.mark.parametrize("name", ["socket", "ssl", "select", "selectors", "subprocess", "threading", "queue", "signal", "time", "os", "patch"])
def test_modules(name):
    if name == "ssl":
        pytest.importorskip("_ssl", reason="this Python has no ssl")
    assert importlib.import_module("gosched." + name).__name__ == "gosched." + name


def test_patch_all():
    program = """
import gosched
gosched.patch_all()
import subprocess, sys, threading, time, queue
items, order = queue.Queue(), []
def work(n):
    time.sleep(0.01 * n)
    items.put(n)
threads = [threading.Thread(target=work, args=(n,)) for n in (3, 1, 2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert [items.get() for _ in range(3)] == [1, 2, 3]
assert subprocess.check_output([sys.executable, "-c", "print(7)"]) == b"7\\n"
assert gosched.num_goroutines() >= 1
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_fork():
    gosched.go(gosched.yield_).join()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(gosched.go(pow, 3, 2).result()).encode())
        os._exit(0)
    os.close(writer)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reader, 10) == b"9"
    os.close(reader)


@pytest.mark.parametrize("wait", ["gosched.sleep(30)", "gosched.Channel().recv()", "listener.accept()"])
def test_keyboard_interrupt(wait):
    program = """
import gosched, os, signal, threading, time
from gosched import socket
listener = socket.create_server(("127.0.0.1", 0))
gosched.go(gosched.yield_).join()
def interrupt():
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
begin = time.monotonic()
try:
    {}
except KeyboardInterrupt:
    listener.close()
    print("interrupted", time.monotonic() - begin < 15)
"""
    command = [sys.executable, "-X", "dev", "-c", program.format(wait)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted True\n", "")


def test_exit_with_parked_goroutines():
    program = "import gosched; [gosched.go(gosched.Channel().recv) for _ in range(100)]; gosched.yield_(); print('end')"
    done = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
