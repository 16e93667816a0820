#!/usr/bin/env python3
"""Measures gosched beside gevent, asyncio, uvloop, trio, threads, pyroutine-rt and hypertile, in turn in one run.

usage: make bench-python ARGS="[--quick] [--rounds N] [--only LIBRARY,...] [--draw] [WORKLOAD...]"

  --quick    a tenth of the work, one round: does all of it run?
  --rounds   how often each one is measured (5); the medians count
  --only     these libraries
  --draw     puts the picture into bindings/python/bench.svg, the table into README.md, every value into
             bench/results.json

The workloads: spawn_join pingpong prodcons memory echo http mix (README.md says what they do). With some named
the rows of the others stay what --draw has last put into results.json, with their dates. The table goes to target/python/bench/results.md too.
"""

import argparse
import datetime
import json
import math
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
OUT = ROOT / "target" / "python" / "bench"
# What --draw has drawn: a run of some workloads keeps the others'.
KEPT = HERE / "results.json"

LIBRARIES = ["gosched", "gevent", "asyncio", "uvloop", "uvloop-protocol", "trio", "threading", "pyroutine", "hypertile"]
# What is only there for some Pythons (requirements.txt).
SINCE = {"pyroutine": (3, 14), "hypertile": (3, 11)}
# How much is done; threads do a tenth of spawn_join (peer.py).
COUNTS = {"spawn_join": 100_000, "pingpong": 50_000, "prodcons": 300_000, "memory": 10_000, "mix": 500}
WORKLOADS = [*COUNTS, "echo", "http"]
ECHO_REQUESTS = 60_000  # over all connections
HTTP_SECONDS, HTTP_CONNECTIONS = 5, 64
LIMIT = 120  # seconds for one process

WORKERS = {"gosched": "gosched.gunicorn.GoschedWorker", "gevent": "gevent", "threading": "gthread"}

# Each figure: what it says, its unit in the table, whether more is better.
FIGURES = {
    "spawn_join": ("spawn and join 100,000 tasks", "ns each", False),
    "pingpong": ("a round trip over two channels", "ns", False),
    "prodcons": ("producer to consumer, capacity 1024", "ns an item", False),
    "memory": ("10,000 parked tasks", "KiB each", False),
    "echo.rate_100": ("TCP echo, 100 connections", "requests/s", True),
    "echo.p99_100": ("its 99th percentile", "us", False),
    "echo.rate_1000": ("TCP echo, 1000 connections", "requests/s", True),
    "echo.p99_1000": ("its 99th percentile", "us", False),
    "http.rate": ("gunicorn under wrk, one worker", "requests/s", True),
    "http.p99": ("its 99th percentile", "us", False),
    "mix.idle_p99": ("how late a sleep of 2 ms ends (p99)", "us", False),
    "mix.busy_p99": ("the same beside a CPU-bound native task", "us", False),
}


class Failed(Exception):
    pass


def stop(process, sig=signal.SIGKILL):
    if process.poll() is None:
        process.send_signal(sig)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def peer(library, workload, count):
    command = [sys.executable, str(HERE / "peer.py"), library, workload, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0:
        raise Failed((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])
    return {line.split()[0]: float(line.split()[1]) for line in done.stdout.splitlines()}


def echo(library, requests):
    values = {}
    for connections in (100, 1000):
        command = [sys.executable, str(HERE / "peer.py"), library, "echo", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            line = server.stdout.readline().split()
            if not line:
                raise Failed((server.stderr.read().strip().splitlines() or ["no port"])[-1])
            load = [str(OUT / "echoload"), line[1], str(connections)]
            subprocess.run([*load, str(max(connections, requests // 10))], check=True, capture_output=True, timeout=LIMIT)
            done = subprocess.run([*load, str(requests)], check=True, capture_output=True, text=True, timeout=LIMIT)
            rate, p99 = map(float, done.stdout.split())
            values[f"echo.rate_{connections}"] = rate
            values[f"echo.p99_{connections}"] = p99
        except subprocess.CalledProcessError as error:
            raise Failed(str(error.stderr)[-200:]) from None
        finally:
            stop(server)
            server.stdout.close()
            server.stderr.close()
    return values


def http(library, seconds):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [sys.executable, "-m", "gunicorn", "-k", WORKERS[library], "-w", "1", "--bind", f"127.0.0.1:{port}"]
    command += ["--chdir", str(HERE), "--log-level", "error", "--no-control-socket", "app:app"]
    command += ["--threads", str(HTTP_CONNECTIONS)] if library == "threading" else []
    if b"--no-control-socket" not in subprocess.run([sys.executable, "-m", "gunicorn", "--help"], capture_output=True).stdout:
        command.remove("--no-control-socket")
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if server.poll() is not None:
                    break
                time.sleep(0.05)
        if server.poll() is not None:
            raise Failed((server.stderr.read().strip().splitlines() or ["gunicorn ended"])[-1])
        wrk = ["wrk", "-t1", f"-c{HTTP_CONNECTIONS}", "--latency", f"http://127.0.0.1:{port}/"]
        subprocess.run([*wrk, "-d1s"], check=True, capture_output=True, timeout=LIMIT)
        said = subprocess.run([*wrk, f"-d{seconds}s"], check=True, capture_output=True, text=True, timeout=LIMIT).stdout
        if "Non-2xx" in said:
            raise Failed("other answers than 200")
        rate = float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1])
        value, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", said).groups()
        return {"http.rate": rate, "http.p99": float(value) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]}
    finally:
        stop(server, signal.SIGTERM)
        server.stderr.close()


def measure(library, workload, part):
    try:
        if workload == "echo":
            return echo(library, ECHO_REQUESTS // part)
        if workload == "http":
            return http(library, max(1, HTTP_SECONDS // part))
        return peer(library, workload, COUNTS[workload] // part)
    except subprocess.TimeoutExpired:
        raise Failed(f"longer than {LIMIT} s") from None


def takes_part(library, workload):
    if sys.version_info < SINCE.get(library, ()):
        return False
    if library == "uvloop-protocol":
        return workload == "echo"
    if library == "hypertile":
        return workload == "spawn_join"
    return workload != "http" or library in WORKERS


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def medians(values):
    return {figure: {library: statistics.median(all_) for library, all_ in row.items()} for figure, row in values.items()}


def values_of(results):
    """figure -> library -> values, of all workloads."""
    return {figure: row for run in results.values() for figure, row in run["values"].items()}


def table(results):
    values = values_of(results)
    middle = medians({figure: values[figure] for figure in FIGURES if figure in values})
    libraries = [library for library in LIBRARIES if any(library in row for row in middle.values())]
    lines = ["| | unit | " + " | ".join(libraries) + " |", "| --- | --- |" + " ---: |" * len(libraries)]
    for figure, row in middle.items():
        what, unit, more = FIGURES[figure]
        best = (max if more else min)(row.values())
        cells = [f"**{number(row[n])}**" if row.get(n) == best else number(row[n]) if n in row else "" for n in libraries]
        lines.append(f"| {what} | {unit} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def condition(run):
    rounds = run["rounds"]
    return (
        f"{run['date']}, Python {run['python']}, {run['cpus']} CPUs ({run['cpu']}), medians of {rounds} "
        f"round{'s' if rounds > 1 else ''}, load {run['load'][0]} to {run['load'][1]}"
        + (", a tenth of the usual work" if run["quick"] else "")
    )


def conditions(results):
    """For each set of conditions a line, with the workloads if there are several sets. The load of a set is that of
    all of its workloads."""
    groups = {}
    for workload in WORKLOADS:
        if workload in results:
            run = results[workload]
            key = tuple(str(run[k]) for k in ("date", "python", "cpus", "cpu", "rounds", "quick"))
            groups.setdefault(key, []).append(workload)
    lines = []
    for names in groups.values():
        loads = sorted((load for name in names for load in results[name]["load"]), key=float)
        line = condition({**results[names[0]], "load": [loads[0], loads[-1]]})
        lines.append(line if len(groups) == 1 else f"{', '.join(names)}: {line}")
    return lines


STYLE = """
    text { font: 12px system-ui, sans-serif; fill: #24292f; }
    .title { font-size: 16px; font-weight: 600; }
    .quiet { fill: #57606a; font-size: 11px; }
    .value { font-size: 9px; }
    .line { stroke: #d0d7de; stroke-width: 1; }
    .one { stroke: #57606a; stroke-width: 1.5; }
    .c0 { fill: #0969da; } .c1 { fill: #2da44e; } .c2 { fill: #bf8700; } .c3 { fill: #cf5b00; }
    .c4 { fill: #e0a070; } .c5 { fill: #8250df; } .c6 { fill: #8c959f; } .c7 { fill: #bf3989; }
    .c8 { fill: #57606a; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .quiet { fill: #9198a1; }
      .line { stroke: #3d444d; }
      .one { stroke: #9198a1; }
    }
"""


def draw(results):
    """Bars for each figure: how many times better than gevent, on a logarithmic scale."""
    middle = {figure: row for figure, row in medians(values_of(results)).items() if "gevent" in row}
    middle = {figure: middle[figure] for figure in FIGURES if figure in middle}
    left, width, right, bar, gap, top = 300, 480, 40, 9, 12, 74
    ratios = {}
    for figure, row in middle.items():
        more = FIGURES[figure][2]
        ratios[figure] = {n: row[n] / row["gevent"] if more else row["gevent"] / row[n] for n in LIBRARIES if row.get(n)}
    every = [ratio for row in ratios.values() for ratio in row.values()]
    least, most = math.floor(math.log2(max(1 / 32, min(0.5, *every)))), math.ceil(math.log2(min(64, max(2, *every))))

    def x(ratio):
        return left + (min(max(math.log2(ratio), least), most) - least) / (most - least) * width

    def text(at, y, content, kind="", anchor=""):
        attributes = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
        return f'  <text x="{at:.1f}" y="{y:.1f}"{attributes}>{escape(content)}</text>'

    said = conditions(results)
    height = top + sum(len(row) * bar + gap for row in ratios.values()) + 24 + 16 * len(said)
    whole = left + width + right
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {height}" width="{whole}" height="{height}" '
        'role="img" aria-label="gosched compared with gevent, asyncio, uvloop, trio and threads">',
        f"  <style>{STYLE}  </style>",
        text(8, 22, "Times better than gevent", "title"),
    ]
    at = 8
    for i, library in enumerate(LIBRARIES):
        out.append(f'  <rect x="{at}" y="35" width="12" height="9" class="c{i}"/>')
        out.append(text(at + 16, 44, library))
        at += 34 + 7 * len(library)
    for power in range(least, most + 1):
        place, label = x(2**power), f"{2**power}" if power >= 0 else f"1/{2**-power}"
        kind = "line" if power else "one"
        out.append(f'  <line x1="{place:.1f}" y1="{top - 8}" x2="{place:.1f}" y2="{height - 20 - 16 * len(said)}" class="{kind}"/>')
        out.append(text(place, top - 12, label, "quiet", "middle"))
    y = top
    for figure, row in ratios.items():
        what, unit, _ = FIGURES[figure]
        out.append(text(left - 8, y + len(row) * bar / 2 + 4, what, anchor="end"))
        for library, ratio in row.items():
            begin, end = sorted((x(1), x(ratio)))
            note = escape(f"{what}: {library} {number(middle[figure][library])} {unit}")
            out.append(
                f'  <rect x="{begin:.1f}" y="{y}" width="{max(1.5, end - begin):.1f}" height="{bar - 1}" '
                f'class="c{LIBRARIES.index(library)}"><title>{note}</title></rect>'
            )
            if library == "gosched":
                out.append(text(x(ratio) + (3 if ratio >= 1 else -3), y + bar - 1, f"{ratio:.1f}", "value", "start" if ratio >= 1 else "end"))
            y += bar
        y += gap
    for i, line in enumerate(said):
        out.append(text(8, height - 12 - 16 * (len(said) - 1 - i), line, "quiet"))
    return "\n".join([*out, "</svg>"]) + "\n"


def text_of(results):
    return table(results) + "\n" + "".join(f"{line}.\n\n" for line in conditions(results))[:-1]


def into_readme(results):
    readme = HERE.parent / "README.md"
    content = readme.read_text()
    begin, end = "<!-- bench -->\n", "<!-- /bench -->\n"
    if begin in content and end in content:
        head, rest = content.split(begin, 1)
        tail = rest.split(end, 1)[1]
        readme.write_text(f"{head}{begin}{text_of(results)}{end}{tail}")
    (HERE.parent / "bench.svg").write_text(draw(results))


def cpu():
    try:
        return re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())[1]
    except (OSError, TypeError):
        return platform.machine()


def load_now():
    return "%.1f" % os.getloadavg()[0]


def kept(workloads, common):
    """What --draw has kept of the workloads that are not measured now."""
    if common["quick"]:
        return {}
    try:
        last = json.loads(KEPT.read_text())
    except FileNotFoundError:
        last = {}
    except ValueError as error:
        sys.exit(f"compare: {KEPT.name} is no JSON ({error}): mend it, or remove it and measure all")
    return {workload: run for workload, run in last.items() if workload not in workloads}


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", default=",".join(LIBRARIES))
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("workloads", nargs="*")
    options = parser.parse_args()
    if options.help:
        print(__doc__)
        return
    workloads = options.workloads or WORKLOADS
    libraries = options.only.split(",")
    for name, known in [*((w, WORKLOADS) for w in workloads), *((n, LIBRARIES) for n in libraries)]:
        if name not in known:
            sys.exit(f"compare: '{name}' is none of: {' '.join(known)}")
    if options.draw and (options.quick or libraries != LIBRARIES):
        sys.exit("compare: --draw goes with neither --quick nor --only: each row is of all libraries at once")
    if "http" in workloads and not shutil.which("wrk"):
        sys.exit("compare: no wrk in PATH (Debian: apt-get install wrk)")

    OUT.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CC", "cc")
    load = ROOT / "benches" / "load" / "echoload.c"
    subprocess.run([compiler, "-O2", "-pthread", str(load), "-o", str(OUT / "echoload")], check=True)
    part, rounds = (10, 1) if options.quick else (1, 5)
    rounds = options.rounds or rounds
    common = {
        "date": datetime.date.today().isoformat(), "python": platform.python_version(), "cpus": os.cpu_count(), "cpu": cpu(),
        "rounds": rounds, "quick": options.quick,
    }
    results = kept(workloads, common)
    failed = {}
    for workload in workloads:
        begin, measured = load_now(), {}
        for turn in range(rounds):
            for library in libraries:
                if not takes_part(library, workload) or (library, workload) in failed:
                    continue
                if sys.stderr.isatty():
                    print(f"\r\033[K{workload}, round {turn + 1} of {rounds}: {library}", end="", file=sys.stderr, flush=True)
                try:
                    for figure, value in measure(library, workload, part).items():
                        measured.setdefault(figure, {}).setdefault(library, []).append(value)
                except Failed as error:
                    failed[library, workload] = str(error)
                    print(f"compare: {library} failed in {workload}: {error}", file=sys.stderr, flush=True)
        results[workload] = {**common, "load": sorted([begin, load_now()], key=float), "values": measured}
        (OUT / "results.md").write_text(text_of(results))
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(text_of(results), end="")
    if options.draw:
        KEPT.write_text(json.dumps(results, indent=1) + "\n")
        into_readme(results)
    if any(library == "gosched" for library, _ in failed):
        sys.exit(1)


if __name__ == "__main__":
    main()
