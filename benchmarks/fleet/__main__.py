"""A Prometheus on this host that scrapes a fleet of simulated hosts, with the project's rules and dashboards.

``python -m benchmarks.fleet [--hosts 1000] [--seconds 120] [--json FILE]``: each host has eight ranks and GPUs, and
serves what the exporter's own code makes of a report (``hosts``); runs span up to 32 hosts, and come and go. Printed
are series, scrapes, rules, the queries of the dashboards of many runs as Grafana asks them, memory and processor time.
What the rules recorded in the past is written before the start (``history``), so queries over a day and over two weeks
have what they read on a real server. Wants a quiet host with 8 GB free. Exit code 0: within the limits.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.fleet.measure import Found, measure
from benchmarks.programs import ProgramError
from trainprobe_exporters.catalogue import MAX_SERIES_PER_RANK

SERIES_PER_HOST = 1650
QUERY_SECONDS = 1.0
RULES_SECONDS = 60.0  # the interval of the rules: longer, and they miss turns


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=120.0, help="of scraping before the questions (%(default)s)")
    parser.add_argument("--interval", type=int, default=15, help="of scrapes, in seconds (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures")
    parser.add_argument("--python", help=argparse.SUPPRESS)  # `make nightly` gives it to every benchmark
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="trainprobe-fleet-") as directory:
            found = measure(Path(directory), options.hosts, options.seconds, options.interval)
    except ProgramError as error:
        print(f"fleet: {error}", file=sys.stderr)
        return 2
    for line in _lines(found):
        print(line)
    if options.json:
        options.json.write_text(json.dumps(asdict(found), indent=1) + "\n")
    wrong = [*problems(found)]
    for text in wrong:
        print(f"  OVER: {text}")
    return 1 if wrong else 0


def problems(found: Found) -> Iterator[str]:
    if found.series_per_rank > MAX_SERIES_PER_RANK:
        yield f"{found.series_per_rank} series for a rank, more than {MAX_SERIES_PER_RANK}"
    if found.series_per_host > SERIES_PER_HOST:
        yield f"{found.series_per_host} series for a host, more than {SERIES_PER_HOST}"
    if found.hosts_up < found.hosts:
        yield f"{found.hosts - found.hosts_up} hosts are not up"
    if sum(found.rule_seconds.values()) > RULES_SECONDS or found.rules_missed:
        yield f"rules take {sum(found.rule_seconds.values()):.1f} s; {found.rules_missed} turns missed"
    yield from (f"rule {rule}: {error}" for rule, error in found.rule_errors.items())
    for asked in found.queries:
        if asked.error or asked.seconds > QUERY_SECONDS:
            yield f"{asked.name}: {asked.error or f'{asked.seconds:.2f} s'}"


def _lines(found: Found) -> Iterator[str]:
    yield (
        f"{found.hosts} hosts, {found.runs} runs, {found.head_series} series in memory; {found.series_per_rank} for a"
        f" rank, {found.series_per_host} for a host, {found.series_with_ended_run} while an ended run lingers"
    )
    yield (
        f"scrape: p50 {found.scrape_p50 * 1000:.0f} ms, p99 {found.scrape_p99 * 1000:.0f} ms,"
        f" {found.samples_per_second:.0f} samples/s"
    )
    yield (
        f"Prometheus: {found.rss_bytes / 1e9:.2f} GB, {found.cpu_share:.2f} cores while it scrapes and records"
        f" (the simulator beside it: {found.simulator_share:.2f})"
    )
    for group, seconds in found.rule_seconds.items():
        yield f"rules {group}: {seconds:.2f} s each {found.rule_intervals[group]}"
    for rule, seconds in found.slowest_rules.items():
        yield f"  {seconds:6.3f} s  {rule}"
    for asked in sorted(found.queries, key=lambda one: -one.seconds):
        yield f"  {asked.seconds:6.3f} s  {asked.series:5} series  {asked.name}"


if __name__ == "__main__":
    sys.exit(main())
