"""A real Prometheus that scrapes one exporter, and the questions one asks it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIG = """\
global: {{scrape_interval: {interval}, evaluation_interval: {interval}}}
scrape_configs:
  - job_name: trainprobe
    static_configs: [{{targets: ["{target}"]}}]
"""


@dataclass
class Prometheus:
    url: str

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an API answer; an error of Prometheus is an error of the test."""
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]

    def value(self, query: str) -> float | None:
        """The value of a query with one result or none."""
        result = self.ask("/api/v1/query", query=query)["result"]
        assert len(result) <= 1, result
        return float(result[0]["value"][1]) if result else None

    def vector(self, query: str, label: str, at: float | None = None) -> dict[str, float]:
        """The values of a query by one label, now or ``at`` that time (UNIX seconds)."""
        when = {} if at is None else {"time": str(at)}
        result = self.ask("/api/v1/query", query=query, **when)["result"]
        return {sample["metric"].get(label, ""): float(sample["value"][1]) for sample in result}

    def points(self, query: str, start: float, end: float, step: float) -> list[tuple[float, float]]:
        """The points of a range query with one result or none, as Grafana asks for them."""
        result = self.ask("/api/v1/query_range", query=query, start=str(start), end=str(end), step=str(step))["result"]
        assert len(result) <= 1, result
        return [(float(at), float(value)) for at, value in result[0]["values"]] if result else []

    def wait_for(self, query: str, seconds: float = 20) -> float:
        """The first value of a query that has one."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if (value := self.value(query)) is not None:
                return value
            time.sleep(0.2)
        raise AssertionError(f"nothing for {query} in {seconds} s; targets: {self.ask('/api/v1/targets')}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def prometheus(directory: Path, target: str, interval: str = "1s") -> Iterator[Prometheus]:
    """A Prometheus that scrapes one target."""
    (directory / "prometheus.yml").write_text(CONFIG.format(interval=interval, target=target))
    with running(directory) as server:
        yield server


@contextmanager
def running(directory: Path) -> Iterator[Prometheus]:
    """A Prometheus with this directory's configuration and blocks."""
    program = shutil.which("prometheus")
    assert program is not None
    port = free_port()
    log = directory / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=output,
            stderr=output,
        )
        try:
            server = Prometheus(f"http://127.0.0.1:{port}")
            _wait_until_ready(server, process, log)
            yield server
        finally:
            process.terminate()
            process.wait(20)


def _wait_until_ready(server: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(150):
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{server.url}/-/ready", timeout=5) as response:
                if response.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"Prometheus is not ready: {log.read_text()}")
