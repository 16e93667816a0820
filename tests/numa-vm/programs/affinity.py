"""The mask of the process is that of all code in Python, and of what it starts. For python.c."""

import os
import subprocess
import threading

MASK = os.sched_getaffinity(0)

import gosched  # noqa: E402: the mask is to be the one from before

NODES = ({0, 1}, {2, 3}, {4, 5}, {6, 7})


def check_here():
    assert os.sched_getaffinity(0) == MASK, os.sched_getaffinity(0)


def check_all():
    """Here, and in a child, a program and a thread that are started here."""
    check_here()
    pid = os.fork()
    if pid == 0:
        os._exit(os.sched_getaffinity(0) != MASK)
    assert os.waitpid(pid, 0)[1] == 0
    said = subprocess.run(["grep", "Cpus_allowed:", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    assert int(said.split()[1], 16) == sum(1 << cpu for cpu in MASK), said
    masks = []
    thread = threading.Thread(target=lambda: masks.append(os.sched_getaffinity(0)))
    thread.start()
    thread.join()
    assert masks == [MASK], masks


def some_time(check):
    for _ in range(20):
        check()
        gosched.sleep(0.001)


def bound_threads():
    """How many threads have the mask of a node."""
    count = 0
    for thread in os.listdir("/proc/self/task"):
        try:
            mask = os.sched_getaffinity(int(thread))
        except ProcessLookupError:
            continue  # it has ended
        count += any(mask == node & MASK for node in NODES)
    return count


assert gosched.nodes() > 1
check_all()
for check in (check_here, check_all):
    gosched.go(some_time, check).result()
for _ in range(5):
    # The threads that make the calls have all been busy with other goroutines before.
    for g in [gosched.go(gosched.blocking, some_time, check_here) for _ in range(8)]:
        g.result()
gosched.blocking(check_all)
gosched.go(gosched.blocking, check_all).result()
check_all()
assert bound_threads() > 0, "the threads of the library serve their nodes again"
