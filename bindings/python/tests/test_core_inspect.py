"""What a running program shows of itself: traces, the flight recorder, dumps."""

import errno
import io
import os
import threading
import time

import pytest

import gosched
from gosched import Channel, Event, go, sleep, yield_
from helpers import FORKS, gotrace, run, until


def make_events():
    channel = Channel()

    def worker():
        for n in channel:
            sleep(n / 10000)
            yield_()

    workers = [go(worker) for _ in range(5)]
    for n in range(50):
        channel.send(n % 7)
    channel.close()
    for g in workers:
        g.join()


def is_trace(path):
    with open(path, "rb") as file:
        content = file.read()
    return content.startswith(b"go 1.") and len(content) > 200


def test_trace_to_a_path(tmp_path):
    for path in (tmp_path / "of a Path", str(tmp_path / "of a str"), os.fsencode(str(tmp_path / "of bytes"))):
        with gosched.trace(path) as trace:
            make_events()
            assert trace.running
        assert not trace.running and is_trace(path)


def test_trace_to_files_and_descriptors(tmp_path):
    with open(tmp_path / "binary", "wb") as file:
        with gosched.trace(file):
            make_events()
        file.write(b"")  # it is open still
    fd = os.open(tmp_path / "descriptor", os.O_WRONLY | os.O_CREAT)
    with gosched.trace(fd):
        make_events()
    os.close(fd)
    assert is_trace(tmp_path / "binary") and is_trace(tmp_path / "descriptor")


def test_trace_in_a_goroutine(tmp_path):
    def traced():
        with gosched.trace(tmp_path / "trace"):
            make_events()

    go(traced).result()
    assert is_trace(tmp_path / "trace")


def test_trace_in_a_thread(tmp_path):
    def traced():
        with gosched.trace(tmp_path / "trace"):
            time.sleep(0.01)

    # While this waits, no goroutine runs.
    thread = threading.Thread(target=traced)
    thread.start()
    thread.join()
    with open(tmp_path / "trace", "rb") as file:
        assert file.read(5) == b"go 1."


def test_trace_ends_with_an_exception_and_stops_once(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with gosched.trace(tmp_path / "one"):
            1 / 0
    trace = gosched.trace(tmp_path / "two")
    trace.stop()
    trace.stop()
    assert is_trace(tmp_path / "one") and is_trace(tmp_path / "two")


def test_a_second_trace_leaves_the_file_of_the_first_alone(tmp_path):
    with gosched.trace(tmp_path / "trace"):
        go(lambda: None).result()
        with pytest.raises(OSError) as caught:
            gosched.trace(tmp_path / "trace")
        assert caught.value.errno == errno.EBUSY
        with pytest.raises(OSError):
            gosched.trace(tmp_path / "other")
        assert not (tmp_path / "other").exists()
    assert is_trace(tmp_path / "trace")


def test_trace_has_the_frames_of_python(tmp_path):
    with gosched.trace(tmp_path / "trace"):
        make_events()
        go(sleep, 0.001).join()
    content = (tmp_path / "trace").read_bytes()
    for part in (b"worker", b"make_events", b"test_core_inspect.py", b"\x05sleep"):
        assert part in content


def test_there_is_one_trace(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    with gosched.trace(tmp_path / "one"):
        with pytest.raises(OSError) as failed:
            gosched.trace(tmp_path / "two")
    assert failed.value.errno == errno.EBUSY
    assert len(os.listdir("/proc/self/fd")) == before


def test_trace_that_cannot_be_written(tmp_path):
    with pytest.raises(FileNotFoundError):
        gosched.trace(tmp_path / "no folder" / "file")
    with pytest.raises(OSError) as failed:
        gosched.trace(-1)
    assert failed.value.errno == errno.EBADF
    with pytest.raises(TypeError):
        gosched.trace(1.5)
    trace = gosched.trace("/dev/full")
    make_events()
    with pytest.raises(OSError) as failed:
        trace.stop()
    assert failed.value.errno == errno.ENOSPC
    assert not trace.running
    r, w = os.pipe()
    os.close(r)
    trace = gosched.trace(w)
    make_events()
    with pytest.raises(BrokenPipeError):
        trace.stop()
    os.close(w)


def test_trace_ends_with_the_program(tmp_path):
    run("""
        import sys, gosched
        trace = gosched.trace(sys.argv[1])
        gosched.go(gosched.sleep, 0.01).join()
    """, tmp_path / "trace")
    assert is_trace(tmp_path / "trace")


def test_trace_and_fork(tmp_path):
    outcome = run("""
        import os, sys, gosched
        with gosched.trace(sys.argv[1]) as trace:
            gosched.go(gosched.sleep, 0.01).join()
            if os.fork() == 0:
                # The parent's trace goes on there. Here there may be another.
                assert not trace.running
                with gosched.trace(sys.argv[2]):
                    gosched.go(gosched.sleep, 0.01).join()
                sys.exit(7)
            print(os.waitstatus_to_exitcode(os.wait()[1]) if hasattr(os, "waitstatus_to_exitcode") else 7)
    """, tmp_path / "parent", tmp_path / "child", flags=FORKS)
    assert outcome.out == "7\n", outcome
    assert is_trace(tmp_path / "parent") and is_trace(tmp_path / "child")


def test_flight_recorder(tmp_path):
    with gosched.flight_recorder(10) as recorder:
        assert recorder.running
        make_events()
        recorder.write(tmp_path / "one")
        make_events()
        with open(tmp_path / "two", "wb") as file:
            recorder.write(file)
        with pytest.raises(FileNotFoundError):
            recorder.write(tmp_path / "no folder" / "file")
        with pytest.raises(OSError) as failed:
            gosched.flight_recorder(1)
        assert failed.value.errno == errno.EBUSY
    assert is_trace(tmp_path / "one") and is_trace(tmp_path / "two")
    recorder.stop()
    with pytest.raises(OSError) as failed:
        recorder.write(tmp_path / "three")
    assert failed.value.errno == errno.EINVAL
    for seconds in (0, -1, float("nan")):
        with pytest.raises(ValueError):
            gosched.flight_recorder(seconds)
    gosched.flight_recorder(float("inf")).stop()


def test_metrics():
    make_events()
    text = gosched.metrics()
    assert "\ngo_sched_gomaxprocs_threads " in text and text.endswith("# EOF\n")


def test_go_reads_the_traces(tmp_path):
    with gosched.trace(tmp_path / "trace"):
        make_events()
    with gosched.flight_recorder(10) as recorder:
        make_events()
        recorder.write(tmp_path / "flight")
    tool = gotrace()
    tool.check_parsed(tmp_path / "trace")
    tool.check_parsed(tmp_path / "flight")


# Dumps

def dumped():
    text = io.StringIO()
    gosched.dump(text)
    return text.getvalue()


def test_dump_to_files_and_descriptors(tmp_path, capfd):
    with open(tmp_path / "binary", "wb") as file:
        gosched.dump(file)
    with open(tmp_path / "descriptor", "w") as file:
        gosched.dump(file.fileno())
    for name in ("binary", "descriptor"):
        assert "in test_dump_to_files_and_descriptors" in (tmp_path / name).read_text()
    gosched.dump()
    assert "in test_dump_to_files_and_descriptors" in capfd.readouterr().err


def test_dump_of_tasks():
    import asyncio

    import gosched.asyncio

    event = Event()

    async def waits_in_a_task():
        await gosched.asyncio.as_future(go(event.wait))

    async def main():
        tasks = [asyncio.ensure_future(waits_in_a_task()) for _ in range(2)]
        tasks[0].set_name("the first task")
        await asyncio.wait(tasks)

    g = go(gosched.asyncio.run, main())
    while dumped().count("in waits_in_a_task") < 2:
        sleep(0.001)
    text = dumped()
    event.set()
    g.result()
    assert "name='the first task'" in text and "in main" in text
    assert "name='the" + " first task'" not in dumped()


def frames_of(found):
    return [(f["function"], os.path.basename(f["file"] or ""), f["line"]) for f in found["frames"]]


def goroutine_in(function):
    """The frames of the goroutine that is in this function, in a dump by the library, without the GIL."""
    for found in gosched.dump_json()["goroutines"]:
        frames = frames_of(found)
        if any(str(name).endswith(function) for name, _, _ in frames):
            return frames
    return None


def test_dump_of_the_library_has_the_frames_of_python():
    event = Event()

    def inner():
        event.wait()

    def outer():
        inner()

    g = go(outer)
    until(lambda: goroutine_in("outer"))
    frames = goroutine_in("outer")
    event.set()
    g.join()
    here = [(name.rpartition(".")[2], file, line) for name, file, line in frames[:2]]
    first = inner.__code__.co_firstlineno
    assert here == [("inner", "test_core_inspect.py", first + 1), ("outer", "test_core_inspect.py", first + 4)]
    assert goroutine_in("outer") is None
    assert goroutine_in("test_dump_of_the_library_has_the_frames_of_python")  # the main goroutine


def test_dump_while_a_goroutine_computes():
    """Another thread dumps, again and again, while a goroutine runs Python code that changes its stack all the time."""
    import ctypes

    library = ctypes.CDLL(os.path.join(gosched.get_library_dir(), "libgosched.so.1"))  # calls without the GIL
    fd = os.open(os.devnull, os.O_WRONLY)
    results = []

    def dump():
        for _ in range(100):
            results.append(library.gs_dump_json(fd))

    def recurse(n):
        return n and 1 + recurse(n - 1)

    thread = threading.Thread(target=dump)
    thread.start()
    while thread.is_alive():
        assert go(recurse, 50).result() == 50
        exec("def f(n):\n return n and f(n - 1)\nf(30)", {})  # code that is freed
    thread.join()
    os.close(fd)
    assert results == [0] * 100
