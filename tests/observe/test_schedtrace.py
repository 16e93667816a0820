"""GOSCHED_DEBUG=schedtrace: a reader written against Go's format reads it, and reads Go's own output too.

The patterns below follow the calls of print in Go's runtime/proc.go, function schedtrace. What a line has behind Go's
fields is of no interest to them.
"""

from __future__ import annotations

import re
import subprocess

import pytest
from conftest import ROOT, environment, go_root, until

NUMBER = r"(-?\d+)"
MAYBE = r"(nil|-?\d+)"
BOOL = r"(true|false)"

HEAD = re.compile(
    rf"SCHED {NUMBER}ms: gomaxprocs={NUMBER} idleprocs={NUMBER} threads={NUMBER} spinningthreads={NUMBER}"
    rf" needspinning={NUMBER} idlethreads={NUMBER} runqueue={NUMBER}")
SHORT = re.compile(r" \[((?: \d+)+) \] schedticks=\[((?: \d+)+) \]")
LONG = re.compile(rf" gcwaiting={BOOL} nmidlelocked={NUMBER} stopwait={NUMBER} sysmonwait={BOOL}")
P = re.compile(
    rf"  P{NUMBER}: status={NUMBER} schedtick={NUMBER} syscalltick={NUMBER} m={MAYBE} runqsize={NUMBER}"
    rf" gfreecnt={NUMBER} timerslen={NUMBER}")
M = re.compile(
    rf"  M{NUMBER}: p={MAYBE} curg={MAYBE} mallocing={NUMBER} throwing={NUMBER} preemptoff=(\S*) locks={NUMBER}"
    rf" dying={NUMBER} spinning={BOOL} blocked={BOOL} lockedg={MAYBE}")
G = re.compile(rf"  G{NUMBER}: status={NUMBER}\((.*)\) m={MAYBE} lockedm={MAYBE}")

WAITING, RUNNING, RUNNABLE, IN_CALL, DEAD = 4, 2, 1, 3, 6


class Trace:
    """A SCHED line with the lines below it."""

    def __init__(self, line: str, detailed: bool):
        head = HEAD.match(line)
        assert head, line
        numbers = [int(n) for n in head.groups()]
        self.ms, self.procs, self.idle, self.threads, self.spinning, _, self.idle_threads, self.queued = numbers
        rest = line[head.end():]
        tail = (LONG if detailed else SHORT).match(rest)
        assert tail, line
        if not detailed:
            self.queues, self.ticks = ([int(n) for n in part.split()] for part in tail.groups())
            assert len(self.queues) == len(self.ticks) == self.procs
        self.ps, self.ms_, self.gs = [], [], []
        assert 0 <= self.idle <= self.procs
        assert self.idle_threads <= self.threads
        assert self.spinning <= self.threads


def read(text: str, detailed: bool) -> list[Trace]:
    traces: list[Trace] = []
    for line in text.splitlines():
        if line.startswith("SCHED"):
            traces.append(Trace(line, detailed))
        elif line.startswith("  P"):
            assert (found := P.match(line)), line
            traces[-1].ps.append(found.groups())
        elif line.startswith("  M"):
            assert (found := M.match(line)), line
            traces[-1].ms_.append(found.groups())
        elif line.startswith("  G"):
            assert (found := G.match(line)), line
            traces[-1].gs.append(found.groups())
        else:
            raise AssertionError(f"a line that Go doesn't print: {line!r}")
    for before, after in zip(traces, traces[1:]):
        assert before.ms < after.ms
        if not detailed:
            assert all(a <= b for a, b in zip(before.ticks, after.ticks))
    return traces


def check_details(trace: Trace) -> None:
    assert [int(p[0]) for p in trace.ps] == list(range(trace.procs))
    assert all(0 <= int(p[1]) <= 4 for p in trace.ps)
    assert len({m[0] for m in trace.ms_}) == len(trace.ms_)
    assert len({g[0] for g in trace.gs}) == len(trace.gs)


def lines_of(subject) -> str:
    """What the subject has printed, without a line that is being printed."""
    said = subject.said()
    return said[:said.rfind("\n") + 1]


@pytest.mark.parametrize("procs", ["1", "2", "8"])
def test_the_short_form(subject, procs):
    one = subject(GOSCHED_PROCS=procs, GOSCHED_DEBUG="schedtrace=20", GOSCHED_TOPOLOGY="node:2 core:4 pu:1")
    one.tell(f"yield {2 * int(procs)}")
    assert until(lambda: any(t.idle == 0 and sum(t.queues) + t.queued > 0 for t in read(lines_of(one), False)))
    one.tell("calm")
    at = lines_of(one).count("SCHED")
    assert until(lambda: any(t.idle == t.procs for t in read(lines_of(one), False)[at:]))
    assert one.tell("end") == "0"
    # All of the output, and whole lines: the thread has ended.
    traces = read(one.said(), False)
    assert len(traces) >= 2  # a busy one, and a calm one
    assert all(t.procs == int(procs) for t in traces)
    assert one.leave() == 0


@pytest.mark.parametrize("procs", ["1", "2", "8"])
def test_the_long_form(subject, procs):
    one = subject(GOSCHED_PROCS=procs, GOSCHED_DEBUG="schedtrace=50,scheddetail=1")
    one.tell("wait 7")
    one.tell("lock 2")
    one.tell("call 3")
    one.tell("compute 1")
    at = lines_of(one).count("SCHED")
    assert until(lambda: lines_of(one).count("SCHED") >= at + 4)
    one.tell("end")
    traces = read(one.said(), True)
    for trace in traces:
        check_details(trace)

    def has_all(trace: Trace) -> bool:
        states = [int(g[1]) for g in trace.gs]
        return (states.count(WAITING) == 9 and states.count(IN_CALL) == 3 and states.count(RUNNING) == 1
                and len([g for g in trace.gs if g[4] != "nil"]) == 2)

    whole = next(t for t in traces if has_all(t))
    assert all(g[2] == "chan receive" for g in whole.gs if int(g[1]) == WAITING)
    running = next(g for g in whole.gs if int(g[1]) == RUNNING)
    m = next(m for m in whole.ms_ if m[0] == running[3])
    assert m[2] == running[0]
    assert len([m for m in whole.ms_ if m[10] != "nil"]) == 2
    assert len(whole.ms_) == whole.threads


def test_off_by_default(subject):
    one = subject(GOSCHED_DEBUG="schedtrace=0,scheddetail=1")
    one.tell("yield 2")
    one.tell("calm")
    assert one.leave() == 0
    assert one.said() == ""


def test_a_full_pipe_holds_nothing_up(build):
    """Nobody reads the pipe; the program goes on and ends."""
    process = subprocess.Popen([build("tests/observe/subject.c")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True,
                               env=environment(GOSCHED_DEBUG="schedtrace=1,scheddetail=1", GOSCHED_PROCS="2"))
    try:
        for line in ["init", "wait 2000", "yield 2", "calm"]:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert process.stdout.readline().strip() == "0"
        process.stdin.write("end\n")
        process.stdin.flush()
        assert process.stdout.readline().strip() == "0"
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


GO = """
package main

import "time"

func main() {
	c := make(chan int)
	for i := 0; i < 5; i++ {
		go func() { <-c }()
	}
	for i := 0; i < 4; i++ {
		go func() { for time.Now().Nanosecond() >= 0 { } }()
	}
	time.Sleep(300 * time.Millisecond)
}
"""


def test_the_reader_reads_go_s_own_output(tmp_path):
    go_root()
    (tmp_path / "main.go").write_text(GO)
    program = tmp_path / "main"
    subprocess.run([ROOT / ".venv/bin/go", "build", "-o", program, tmp_path / "main.go"], check=True,
                   env=environment(GOFLAGS="-mod=mod", GOCACHE=str(tmp_path / "cache"), HOME=str(tmp_path)))
    for detailed in [False, True]:
        said = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60,
                              env=environment(GOMAXPROCS="2", GODEBUG=f"schedtrace=50,scheddetail={int(detailed)}"))
        # Go's program ends while the last trace is being printed.
        traces = read(said.stderr[:said.stderr.rindex("SCHED")], detailed)
        assert len(traces) >= 3
        for trace in traces if detailed else []:
            check_details(trace)
