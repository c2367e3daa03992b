"""The measuring: a Prometheus with the committed rules that scrapes the simulated hosts, and what it takes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from benchmarks.fleet.asking import Asked, ask_all
from benchmarks.fleet.history import write_history
from benchmarks.fleet.server import address
from benchmarks.programs import ROOT, ProgramError, cpu_seconds, environment, resident
from tests.observability.servers import Prometheus, running

LIFE_SECONDS = 1200.0  # of a run: each two minutes those of a tenth of the hosts end and are launched anew
EVALUATION_SECONDS = 60
RECORDING = ROOT / "grafana/rules/recording.yml"
CONFIG = """\
global: {{scrape_interval: {interval}s, evaluation_interval: {evaluation}s}}
rule_files: ["{directory}/recording.yml", "{rules}/alerts.yml"]
scrape_configs:
  - job_name: trainprobe
    file_sd_configs: [{{files: ["{targets}"]}}]
    relabel_configs:
      - {{source_labels: [__address__], target_label: instance}}
      - {{source_labels: [__address__], replacement: /$1, target_label: __metrics_path__}}
      - {{replacement: "127.0.0.1:{port}", target_label: __address__}}
"""


@dataclass
class Found:
    """Shares are of one processor."""

    hosts: int
    interval: int = 15
    hosts_up: int = 0
    runs: int = 0
    head_series: int = 0
    series_per_rank: int = 0
    series_per_host: int = 0
    series_with_ended_run: int = 0
    scrape_p50: float = 0.0
    scrape_p99: float = 0.0
    samples_per_second: float = 0.0
    rss_bytes: int = 0
    cpu_share: float = 0.0
    simulator_share: float = 0.0
    rules_missed: int = 0
    rule_seconds: dict[str, float] = field(default_factory=dict)  # by group
    rule_intervals: dict[str, str] = field(default_factory=dict)
    slowest_rules: dict[str, float] = field(default_factory=dict)
    rule_errors: dict[str, str] = field(default_factory=dict)
    queries: list[Asked] = field(default_factory=list)


def measure(directory: Path, hosts: int, seconds: float, interval: int) -> Found:
    """Raises ProgramError."""
    found = Found(hosts, interval)
    for group in yaml.safe_load(RECORDING.read_text())["groups"]:
        found.rule_intervals[group["name"]] = group.get("interval", f"{EVALUATION_SECONDS}s")
    # Each group has its turn while this looks; how long one takes does not depend on how often it comes.
    (directory / RECORDING.name).write_text(re.sub(r"\binterval: \w+", "interval: 1m", RECORDING.read_text()))
    write_history(directory, hosts, time.time())
    with _simulator(interval) as (process, port):
        targets = directory / "targets.json"
        listed = ", ".join(f'"{address(host)}"' for host in range(hosts))
        targets.write_text(f'[{{"targets": [{listed}]}}]')
        config = CONFIG.format(
            interval=interval,
            evaluation=EVALUATION_SECONDS,
            directory=directory,
            rules=RECORDING.parent,
            targets=targets,
            port=port,
        )
        (directory / "prometheus.yml").write_text(config)
        with running(directory) as server:
            _watch(server, process.pid, seconds, found)
            _scrapes(server, found)
            _rules(server, found)
            found.queries = ask_all(server, interval)
            found.rss_bytes = max(found.rss_bytes, resident(_pid(server)))
    return found


@contextmanager
def _simulator(interval: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "benchmarks.fleet.server", str(LIFE_SECONDS), str(interval)]
    path = f"{ROOT}:{ROOT / 'daemon'}:{ROOT / 'exporters'}"
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(PYTHONPATH=path))
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise ProgramError("the simulator did not start")
        yield process, int(line)
    finally:
        process.terminate()
        process.communicate()


def _pid(server: Prometheus) -> int:
    """Of the Prometheus that listens there: it is a child of ours."""
    port = server.url.rpartition(":")[2]
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            if f":{port}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    raise ProgramError("Prometheus has ended")


def _watch(server: Prometheus, simulator: int, seconds: float, found: Found) -> None:
    """Its processor time without the first scrapes, which make the series."""
    pid, settle = _pid(server), min(45.0, seconds / 3)
    time.sleep(settle)
    begin, ours, others = time.monotonic(), cpu_seconds(pid), cpu_seconds(simulator)
    while time.monotonic() - begin < seconds - settle:
        time.sleep(1)
        found.rss_bytes = max(found.rss_bytes, resident(pid))
    took = time.monotonic() - begin
    found.cpu_share = (cpu_seconds(pid) - ours) / took
    found.simulator_share = (cpu_seconds(simulator) - others) / took


def _scrapes(server: Prometheus, found: Found) -> None:
    def number(query: str) -> float:
        return server.value(query) or 0.0

    found.hosts_up = int(number("count(up == 1)"))
    found.runs = int(number("count(count by (run) (trainprobe_run_info))"))
    found.scrape_p50 = number("quantile(0.5, scrape_duration_seconds)")
    found.scrape_p99 = number("quantile(0.99, scrape_duration_seconds)")
    found.samples_per_second = number("sum(scrape_samples_scraped)") / found.interval
    # Each scrape has five series of Prometheus's own beside the host's: up and scrape_*.
    of_one_run = "on (instance) count by (instance) (count by (instance, run) (trainprobe_run_info)) == 1"
    found.series_per_host = int(number(f"max(scrape_samples_scraped and {of_one_run})") + 5)
    found.series_with_ended_run = int(number("max(scrape_samples_scraped)") + 5)
    rank = 'max(count by (instance, run, rank) ({__name__=~"trainprobe_.+",rank!="",instance=~"host0000.+"}))'
    found.series_per_rank = int(number(rank))
    found.head_series = int(server.ask("/api/v1/status/tsdb")["headStats"]["numSeries"])


def _rules(server: Prometheus, found: Found) -> None:
    rules: dict[str, float] = {}
    for group in server.ask("/api/v1/rules")["groups"]:
        found.rule_seconds[group["name"]] = group["evaluationTime"]
        found.rule_intervals.setdefault(group["name"], f"{EVALUATION_SECONDS}s")
        for rule in group["rules"]:
            rules[rule["name"]] = max(rule["evaluationTime"], rules.get(rule["name"], 0.0))
            if rule["health"] == "err":
                found.rule_errors[rule["name"]] = rule["lastError"]
    found.slowest_rules = dict(sorted(rules.items(), key=lambda one: -one[1])[:10])
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as answer:
        missed = re.findall(r"\nprometheus_rule_group_iterations_missed_total\{.*\} (\S+)", answer.read().decode())
    found.rules_missed = sum(int(float(number)) for number in missed)
