"""A real Prometheus with the committed rules, and a real Alertmanager with the committed example."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from grafana.rules.build import DIRECTORY
from tests.observability.servers import Prometheus, free_port, running

PROGRAM = "prometheus-alertmanager"
TEMPLATE = Path("/usr/share/prometheus/alertmanager/default.tmpl")
"""Where Debian's build looks for it, wherever the program lies."""
_OVERLAID = 'mount -t overlay overlay -o "lowerdir=$1:/usr/share" /usr/share && shift && exec "$@"'
CONFIG = """\
global: {{scrape_interval: {interval}, evaluation_interval: {interval}}}
rule_files: [{rules}/recording.yml, {rules}/alerts.yml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["{alertmanager}"]}}]}}]}}
scrape_configs:
  - job_name: trainprobe
    static_configs: [{{targets: ["{target}"]}}]
"""


@dataclass(frozen=True)
class Arrived:
    """An alert as Alertmanager has it; ``muted``: another one hides it."""

    name: str
    labels: dict[str, str]
    summary: str
    muted: bool


@dataclass
class Alertmanager:
    address: str

    def alerts(self) -> list[Arrived]:
        with urllib.request.urlopen(f"http://{self.address}/api/v2/alerts", timeout=10) as response:
            rows = json.load(response)
        return [
            Arrived(
                row["labels"]["alertname"], row["labels"], row["annotations"]["summary"],
                row["status"]["state"] == "suppressed",
            )
            for row in rows
        ]  # fmt: skip

    def wait_for_run(self, name: str, run: str, seconds: float) -> Arrived:
        """The alert about the run whose id begins so; the daemon watches every training of the host."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for alert in self.alerts():
                if alert.name == name and alert.labels.get("run", "").startswith(run):
                    return alert
            time.sleep(0.5)
        raise AssertionError(f"no {name} in {seconds} s; there are {self.alerts()}")

    def wait_for(self, name: str, seconds: float = 30) -> Arrived:
        """The first alert of this name."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for alert in self.alerts():
                if alert.name == name:
                    return alert
            time.sleep(0.2)
        raise AssertionError(f"no {name} in {seconds} s; there are {self.alerts()}")


@contextmanager
def alerting(directory: Path, target: str, interval: str = "1s") -> Iterator[tuple[Prometheus, Alertmanager]]:
    """Both servers, with one target scraped and the rules evaluated each ``interval``, those with a longer one too."""
    rules = directory / "rules"
    rules.mkdir()
    for path in DIRECTORY.glob("*.yml"):
        groups = yaml.safe_load(path.read_text())
        for group in groups.get("groups", ()):
            group.pop("interval", None)
        (rules / path.name).write_text(yaml.safe_dump(groups))
    with alertmanager(directory) as manager:
        configuration = CONFIG.format(interval=interval, rules=rules, alertmanager=manager.address, target=target)
        (directory / "prometheus.yml").write_text(configuration)
        with running(directory) as prometheus:
            yield prometheus, manager


@contextmanager
def alertmanager(directory: Path) -> Iterator[Alertmanager]:
    """With the committed example of a configuration."""
    program = shutil.which(PROGRAM)
    if program is None:
        pytest.skip(f"no {PROGRAM} on PATH (make test unpacks it)")
    server = Alertmanager(f"127.0.0.1:{free_port()}")
    log = directory / "alertmanager.log"
    command = [
        *_finding_its_template(Path(program)),
        program,
        f"--config.file={DIRECTORY / 'alertmanager.yml'}",
        f"--storage.path={directory / 'alertmanager'}",
        f"--web.listen-address={server.address}",
        "--cluster.listen-address=",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            _wait_until_ready(server, process, log)
            yield server
        finally:
            process.terminate()
            process.wait(20)


def _finding_its_template(program: Path) -> list[str]:
    """An unpacked program sees its own /usr/share over the host's, in a mount namespace of its own."""
    if TEMPLATE.exists():
        return []
    if os.geteuid() != 0:
        pytest.skip(f"{TEMPLATE} is not there, and only root can show it to {PROGRAM}")
    share = program.resolve().parents[1] / "share"
    return ["unshare", "--mount", "sh", "-c", _OVERLAID, "sh", str(share)]


def _wait_until_ready(server: Alertmanager, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(150):
        assert process.poll() is None, log.read_text()
        try:
            server.alerts()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"Alertmanager is not ready: {log.read_text()}")
