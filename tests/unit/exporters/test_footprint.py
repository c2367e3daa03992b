"""What a scrape costs: the goals are those of the docs, with a rank in which everything was measured."""

from __future__ import annotations

import http.client
import time
from pathlib import Path

import pytest

from benchmarks import pace
from tests.unit.exporters.programs import exporter
from tests.unit.exporters.reports import a_busy_rank, a_report, a_run
from tests.unit.exporters.test_source import publish


@pytest.mark.parametrize(
    ("ranks", "seconds", "text_bytes", "rss_bytes"),
    [(16, 0.050, 256 * 1024, 34 << 20), (64, 0.150, 1 << 20, 45 << 20)],
)
def test_a_scrape_is_quick_and_small(
    tmp_path: Path, ranks: int, seconds: float, text_bytes: int, rss_bytes: int
) -> None:
    """Each scrape finds a new snapshot. What counts is the exporter's own CPU time, and of ten scrapes the cheapest:
    other work on this machine is not what is measured."""
    run = a_run("train.py-3f2a91c0", *[a_busy_rank(str(n)) for n in range(ranks)])
    took, size = [], 0
    with exporter(tmp_path) as running:
        port = int(running.url.rpartition(":")[2])
        for step in range(10):
            for rank in run.ranks:
                rank.wall_seconds += step
            publish(tmp_path / "report.json", a_report(run, at=time.time()))
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            begun = cpu_seconds(running.process.pid)
            connection.request("GET", "/metrics")
            size = len(connection.getresponse().read())
            took.append(cpu_seconds(running.process.pid) - begun)
            connection.close()
        pages = int(Path(f"/proc/{running.process.pid}/statm").read_text().split()[1])
    assert pace.within(min(took), seconds), took
    assert size <= text_bytes
    assert pages * 4096 <= rss_bytes


def cpu_seconds(pid: int) -> float:
    """Of all its threads, to the nanosecond."""
    stats = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(stat.read_text().split()[0]) for stat in stats) / 1e9
