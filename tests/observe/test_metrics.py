"""gs_stats_write, by examples-c/httpd.c's page /metrics: Prometheus's own readers accept it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import urllib.parse

import pytest
from conftest import HUNG, TOPOLOGIES, fetch, go_root, needs, until
from prometheus_client.openmetrics import parser


def read(url: str) -> dict:
    """All samples: name and labels, and the value. Prometheus's parser refuses what is no OpenMetrics."""
    kind, text = fetch(url + "metrics")
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    samples = {}
    for family in parser.text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in samples
            samples[key] = (family.type, sample.value)
    return samples


def total(samples: dict, name: str) -> float:
    return sum(value for (other, _), (_, value) in samples.items() if other == name)


@pytest.mark.parametrize(("procs", "topology"), TOPOLOGIES)
def test_prometheus_client_parses_the_page(httpd, procs, topology):
    url, _ = httpd(GOSCHED_PROCS=procs, GOSCHED_TOPOLOGY=topology)
    before = read(url)
    for _ in range(20):
        fetch(url + "file")
    after = read(url)
    assert before.keys() == after.keys()
    for key, (kind, value) in after.items():
        if kind in ("counter", "histogram"):
            assert value >= before[key][1], key
    assert total(after, "go_sched_gomaxprocs_threads") == int(procs)
    assert total(after, "gosched_procs") == int(procs)
    assert total(after, "go_sched_goroutines_created_goroutines_total") >= 20
    nodes = 1 if topology == "flat" else int(topology[5])
    assert len([name for name, _ in after if name == "gosched_steals_total"]) == nodes * nodes
    states = ["runnable", "running", "waiting", "not_in_go"]
    assert sum(total(after, f"go_sched_goroutines_{state}_goroutines") for state in states) >= 1


def test_the_names_are_those_that_go_s_client_gives_go_s_metrics(httpd):
    """By the rule of client_golang's internal.RuntimeMetricsToProm, for the metrics of this Go."""
    text = (go_root() / "src/runtime/metrics/description.go").read_text()
    names = set()
    for entry in re.findall(r'Name:\s+"(/[^"]+)",(.*?)\n\t\}', text, re.DOTALL):
        path, unit = entry[0].split(":")
        name = "go" + path.replace("/", "_").replace("-", "_") + "_" + unit.replace("-", "_").replace("*", "_")
        is_counter = "Cumulative:" in entry[1] and "KindFloat64Histogram" not in entry[1]
        names.add(name + "_total" if is_counter else name)
    url, _ = httpd(GOSCHED_PROCS="2")
    ours = {re.sub("_(bucket|sum|count)$", "", name) for name, _ in read(url) if name.startswith("go_")}
    # Of client_golang's other collector.
    assert ours - names == {"go_goroutines", "go_threads"}
    lacking = {name for name in names if name.startswith(("go_sched_", "go_sync_"))} - ours
    assert lacking == {"go_sched_pauses_stopping_gc_seconds", "go_sched_pauses_total_gc_seconds"}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_a_prometheus_server_scrapes_the_page(httpd, tmp_path):
    prometheus = needs("prometheus")
    url, _ = httpd(GOSCHED_PROCS="2", GOSCHED_TOPOLOGY="node:2 core:1 pu:1")
    target = urllib.parse.urlsplit(url).netloc
    config = tmp_path / "prometheus.yml"
    config.write_text(f"""
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs:
  - job_name: gosched
    static_configs: [{{targets: ["{target}"]}}]
""")
    port = free_port()
    log = tmp_path / "prometheus.log"
    server = subprocess.Popen([prometheus, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
                               f"--web.listen-address=127.0.0.1:{port}"], stderr=log.open("w"))

    def ask(query: str) -> list:
        try:
            text = fetch(f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query}))[1]
        except OSError:
            return []
        return json.loads(text)["data"]["result"]

    def value(query: str) -> float:
        return float(ask(query)[0]["value"][1])

    try:
        assert until(lambda: ask("up") and value("up") == 1), log.read_text()
        assert until(lambda: ask("rate(go_sched_latencies_seconds_count[1m])"))
        assert value("go_sched_gomaxprocs_threads") == 2
        assert value("go_goroutines") >= 1
        assert value("sum(gosched_procs)") == 2
        assert value("sum by (le) (go_sched_latencies_seconds_bucket{le='+Inf'})") >= 0
        assert ask("histogram_quantile(0.99, rate(go_sched_latencies_seconds_bucket[1m]))")
        assert len(ask("gosched_steals_total{distance!='10'}")) == 2
        assert "error" not in log.read_text().lower().replace('"error":null', "")
    finally:
        server.terminate()
        server.wait(HUNG)
