"""What a scrape costs: time, bytes, CPU and memory of the exporter at 1, 16 and 64 ranks.

``python -m benchmarks.scrape [--json]``: each scrape finds a new report in which everything was measured, so that
nothing comes from the cache, and has a connection of its own. Wants a quiet host: other work counts in the times, not
in the CPU seconds. Exit code 0: within the limits.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.programs import cpu_seconds, resident
from tests.unit.exporters.programs import Exporter, exporter
from tests.unit.exporters.reports import a_busy_rank, a_report, a_run
from tests.unit.exporters.test_source import publish
from trainprobe.model.report import Run
from trainprobe_exporters.catalogue import MAX_SERIES_PER_RANK
from trainprobe_exporters.exposition import Format

FORMS = {
    "text": {"Accept": Format.TEXT.value},
    "text, gzip": {"Accept": Format.TEXT.value, "Accept-Encoding": "gzip"},
    "OpenMetrics": {"Accept": Format.OPENMETRICS.value},
}
SECONDS_LIMIT = {16: 0.050, 64: 0.150}
BYTES_LIMIT = {64: 1 << 20}


@dataclass
class Cost:
    """Of one form at one number of ranks; seconds are the median of the scrapes."""

    ranks: int
    form: str
    seconds: float
    slowest_seconds: float
    cpu_seconds: float
    bytes: int
    rss_bytes: int
    series_per_rank: int

    @property
    def excess(self) -> str:
        """What is over its limit, in words; empty: nothing."""
        over = []
        if self.seconds > SECONDS_LIMIT.get(self.ranks, 1.0):
            over.append(f"more than {SECONDS_LIMIT[self.ranks] * 1000:.0f} ms")
        if self.bytes > BYTES_LIMIT.get(self.ranks, 1 << 30):
            over.append(f"more than {BYTES_LIMIT[self.ranks]} bytes")
        if self.series_per_rank > MAX_SERIES_PER_RANK:
            over.append(f"more than {MAX_SERIES_PER_RANK} series for a rank")
        return ", ".join(over)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scrape", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--scrapes", type=int, default=15, metavar="N", help="for each form (15)")
    parser.add_argument("--json", action="store_true", help="one JSON line for each row, no table")
    parser.add_argument("--python", help=argparse.SUPPRESS)  # `make nightly` gives it to every benchmark
    options = parser.parse_args(arguments)
    costs = [cost for ranks in options.ranks for cost in measure(ranks, options.scrapes)]
    for cost in costs:
        print(json.dumps(asdict(cost)) if options.json else _line(cost))
    return 1 if any(cost.excess for cost in costs) else 0


def measure(ranks: int, scrapes: int) -> Iterator[Cost]:
    """All forms at this number of ranks, each with an exporter of its own."""
    run = a_run("train.py-3f2a91c0", *[a_busy_rank(str(n)) for n in range(ranks)])
    for form, headers in FORMS.items():
        with tempfile.TemporaryDirectory(prefix="trainprobe-scrape-") as directory:
            yield _of_form(Path(directory), run, form, headers, scrapes)


def _of_form(directory: Path, run: Run, form: str, headers: dict[str, str], scrapes: int) -> Cost:
    took, size = [], 0
    with exporter(directory) as running:
        _scrape(directory, running, run, headers)  # the first one loads modules
        cpu = cpu_seconds(running.process.pid)
        for _ in range(scrapes):
            seconds, size = _scrape(directory, running, run, headers)
            took.append(seconds)
        spent = (cpu_seconds(running.process.pid) - cpu) / scrapes
        memory = resident(running.process.pid)
        text = running.get("/metrics")[1]
    series = sum(b'rank="0"' in line for line in text.splitlines())
    return Cost(
        len(run.ranks),
        form,
        statistics.median(took),
        max(took),
        spent,
        size,
        memory,
        series,
    )


def _scrape(directory: Path, running: Exporter, run: Run, headers: dict[str, str]) -> tuple[float, int]:
    for rank in run.ranks:
        rank.wall_seconds += 1
    publish(directory / "report.json", a_report(run, at=time.time()))
    connection = http.client.HTTPConnection("127.0.0.1", int(running.url.rpartition(":")[2]), timeout=30)
    begun = time.monotonic()
    connection.request("GET", "/metrics", headers=headers)
    size = len(connection.getresponse().read())
    took = time.monotonic() - begun
    connection.close()
    return took, size


def _line(cost: Cost) -> str:
    cells = (
        f"{cost.ranks:3} ranks  {cost.form:<12}",
        f"{cost.seconds * 1000:6.1f} ms (slowest {cost.slowest_seconds * 1000:.1f})",
        f"CPU {cost.cpu_seconds * 1000:5.1f} ms",
        f"{cost.bytes / 1000:6.1f} KB",
        f"RSS {cost.rss_bytes / 1e6:.1f} MB",
        f"{cost.series_per_rank} series for a rank",
        f"OVER: {cost.excess}" if cost.excess else "",
    )
    return "  ".join(cells).rstrip()


if __name__ == "__main__":
    sys.exit(main())
