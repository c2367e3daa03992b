"""Scrapes of the past, written as a real Prometheus would have them: the exporter's own text with times, as blocks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.observability.servers import Prometheus, running
from trainprobe_exporters.exposition import Format, exposition
from trainprobe_exporters.families import Family

TARGET = {"instance": "node1:19752", "job": "trainprobe"}
Scrape = tuple[float, Iterable[Family]]  # when (UNIX seconds), and what the exporter told then


@contextmanager
def having_scraped(directory: Path, scrapes: Iterable[Scrape]) -> Iterator[Prometheus]:
    """A Prometheus that scraped this in the past, and nothing since."""
    text = directory / "scrapes.txt"
    with text.open("w") as file:
        for at, families in scrapes:
            file.writelines(_lines(at, families))
        file.write("# EOF\n")
    promtool = shutil.which("promtool")
    assert promtool is not None
    blocks = directory / "tsdb"
    command = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(blocks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (directory / "prometheus.yml").write_text("global: {}\n")
    with running(directory) as server:
        yield server


def _lines(at: float, families: Iterable[Family]) -> Iterator[str]:
    """One scrape: each sample with the labels of its target, and what Prometheus adds by itself."""
    target = ",".join(f'{name}="{value}"' for name, value in TARGET.items())
    yield f"up{{{target}}} 1 {at:.3f}\n"
    yield f"scrape_duration_seconds{{{target}}} 0.005 {at:.3f}\n"
    for line in exposition(families, Format.TEXT).decode().splitlines():
        if line.startswith("#"):
            continue
        series, _, value = line.rpartition(" ")
        labelled = f"{series[:-1]},{target}}}" if series.endswith("}") else f"{series}{{{target}}}"
        yield f"{labelled} {value} {at:.3f}\n"
