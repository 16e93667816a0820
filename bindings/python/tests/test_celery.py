"""A Celery worker with --pool gosched, with redis-server."""

import os
import signal
import subprocess
import sys
import time

import pytest

from test_clients import redis_port, stop  # noqa: F401

celery = pytest.importorskip("celery", reason="celery isn't installed")

TASKS = """
import os, threading, time
import gosched
from celery import Celery

app = Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.broker_connection_retry_on_startup = True

@app.task
def add(a, b):
    return a + b

all_here = threading.Barrier(150)

@app.task
def meet():
    all_here.wait(60)
    return gosched.num_goroutines()

@app.task
def nap(seconds):
    time.sleep(seconds)
    return gosched.num_goroutines()

@app.task(bind=True, max_retries=3)
def flaky(self, n):
    if self.request.retries < 2:
        raise self.retry(countdown=0.05, exc=ValueError("again"))
    return n

@app.task
def fail():
    raise KeyError("on purpose")
"""


@pytest.fixture(scope="module")
def worker(redis_port, tmp_path_factory):  # noqa: F811
    directory = tmp_path_factory.mktemp("celery")
    (directory / "gosched_test_tasks.py").write_text(TASKS)
    os.environ["BROKER"] = "redis://127.0.0.1:%d/0" % redis_port
    command = [sys.executable, "-m", "gosched", "-m", "celery", "-A", "gosched_test_tasks", "worker"]
    command += ["--pool", "gosched", "--concurrency", "200", "--without-mingle", "--without-gossip"]
    log = open(directory / "log", "w+")
    process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    sys.path.insert(0, str(directory))
    try:
        import gosched_test_tasks as tasks

        deadline = time.monotonic() + 60
        while not tasks.app.control.ping(timeout=0.5):
            assert process.poll() is None and time.monotonic() < deadline, (directory / "log").read_text()
        tasks.process = process
        yield tasks
    finally:
        sys.path.remove(str(directory))
        del os.environ["BROKER"]
        stop(process)
        log.close()


def test_tasks_wait_at_the_same_time(worker):
    from celery import group

    results = group(worker.meet.s() for _ in range(150))().get(timeout=120)
    assert len(results) == 150 and max(results) >= 150


def test_results_errors_retries_and_chains(worker):
    from celery import chain

    assert worker.add.delay(1, 2).get(timeout=30) == 3
    assert worker.flaky.delay(7).get(timeout=30) == 7
    assert chain(worker.add.s(1, 2), worker.add.s(3))().get(timeout=30) == 6
    assert worker.add.apply_async((1, 1), countdown=0.2).get(timeout=30) == 2
    with pytest.raises(KeyError, match="on purpose"):
        worker.fail.delay().get(timeout=30)


def test_a_time_limit_ends_a_task(worker):
    from celery.exceptions import TimeLimitExceeded

    with pytest.raises(TimeLimitExceeded):
        worker.nap.apply_async((3600,), time_limit=0.2).get(timeout=30)


def test_a_task_is_revoked(worker):
    from celery.exceptions import TaskRevokedError

    result = worker.nap.delay(3600)
    while not any(worker.app.control.inspect(timeout=1).active().values()):
        pass
    result.revoke(terminate=True)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=30)


def test_the_pool_tells_about_itself(worker):
    (stats,) = worker.app.control.inspect(timeout=2).stats().values()
    assert stats["pool"]["implementation"] == "gosched.celery:TaskPool" and stats["pool"]["max-concurrency"] == 200
    worker.app.control.pool_grow(5, reply=True, timeout=2)
    worker.app.control.pool_shrink(5, reply=True, timeout=2)
    assert worker.add.delay(1, 2).get(timeout=30) == 3


def test_a_warm_shutdown_waits_for_tasks(worker):
    # The last test: the worker ends.
    result = worker.nap.delay(1)
    while not any(worker.app.control.inspect(timeout=1).active().values()):
        pass
    worker.process.send_signal(signal.SIGTERM)
    assert result.get(timeout=30) >= 1
    assert worker.process.wait(60) == 0


def test_it_wants_the_library_patched():
    done = subprocess.run(
        [sys.executable, "-c", "import gosched.celery as c; c.TaskPool(5)"], capture_output=True, text=True, timeout=60
    )
    assert "python -m gosched -m celery" in done.stderr
