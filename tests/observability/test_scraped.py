"""A real Prometheus scrapes a real exporter whose snapshot changes as a daemon's does; stalls are planted in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.observability.annotations import regions
from tests.observability.servers import Prometheus, prometheus
from tests.unit.exporters.programs import Exporter, exporter
from tests.unit.exporters.reports import a_report, a_run, a_stepping_rank
from tests.unit.exporters.test_source import publish
from trainprobe.model.cause import LOST
from trainprobe.model.report import Source

RUN = 'run="train.py-3f2a91c0",rank="0"'


@dataclass
class Daemon:
    """Publishes each half second, on paper: a training that steps, and stalls when it is told to."""

    path: Path
    started: float = field(default_factory=time.time)
    stalled: dict[str, float] = field(default_factory=dict)
    stalls: dict[str, int] = field(default_factory=dict)
    starts: dict[str, float] = field(default_factory=dict)
    open_cause: str = ""
    ended: float | None = None

    def publish(self) -> None:
        now = time.time()
        rank = a_stepping_rank(
            wall=now - self.started,
            stall_seconds=dict(self.stalled),
            stalls=dict(self.stalls),
            stall_active={self.open_cause: 1} if self.open_cause else {},
            stall_last_start=dict(self.starts),
        )
        rank.lost = dict(self.stalled)
        run = a_run("train.py-3f2a91c0", rank, started=self.started, ended=self.ended)
        publish(self.path, a_report(run, at=now, sources={"bpf": Source("up")}))

    def train(self, seconds: float) -> None:
        until = time.time() + seconds
        while time.time() < until:
            self.publish()
            time.sleep(0.2)

    def stall(self, cause: str, seconds: float) -> tuple[float, float]:
        """An open stall that grows in each report; returns its start and end."""
        start, before = time.time(), self.stalled.get(cause, 0.0)
        self.open_cause, self.starts[cause] = cause, start
        self.stalls[cause] = self.stalls.get(cause, 0) + 1
        while time.time() < start + seconds:
            self.stalled[cause] = before + time.time() - start
            self.publish()
            time.sleep(0.2)
        self.stalled[cause] = before + seconds
        self.open_cause = ""
        self.publish()
        return start, start + seconds


@dataclass
class Scene:
    daemon: Daemon
    exporter: Exporter
    server: Prometheus


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    daemon = Daemon(tmp_path / "report.json")
    daemon.publish()
    with exporter(tmp_path) as running, prometheus(tmp_path, running.url.removeprefix("http://")) as server:
        yield Scene(daemon, running, server)


def test_planted_stalls_are_found_by_the_queries_that_people_will_use(scene: Scene) -> None:
    daemon, server = scene.daemon, scene.server
    server.wait_for(f"trainprobe_steps_total{{{RUN}}}")
    daemon.train(4)
    checkpoint = daemon.stall("checkpoint", 3.0)
    daemon.train(4)
    swap = daemon.stall("swap", 0.4)
    daemon.train(4)

    assert server.value('up{job="trainprobe"}') == 1
    assert server.value('trainprobe_source_up{source="daemon"}') == 1

    # Every cause was there at 0 from the first scrape on, so increase() sees the first stall.
    seconds = server.vector(f"trainprobe_stall_seconds_total{{{RUN}}}", "cause")
    assert seconds == {**dict.fromkeys(map(str, LOST), 0.0), "checkpoint": 3.0, "swap": 0.4}
    assert set(server.vector(f"trainprobe_stall_seconds_total{{{RUN}}}", "cause", at=checkpoint[0]).values()) == {0}
    assert server.vector(f"increase(trainprobe_stalls_total{{{RUN}}}[30s]) > 0", "cause").keys() == {
        "checkpoint",
        "swap",
    }

    for cause, (start, end) in {"checkpoint": checkpoint, "swap": swap}.items():
        drawn = regions(server, ".*", cause, start - 4, end + 4, 1)
        assert len(drawn) == 1, (cause, drawn)
        assert drawn[0][0] == pytest.approx(start, abs=2.5)
        assert drawn[0][1] == pytest.approx(end, abs=2.5)
        # The exact start, for the hidden toggle.
        query = f'trainprobe_stall_last_start_timestamp_seconds{{{RUN},cause="{cause}"}}'
        assert server.value(query) == pytest.approx(start, abs=0.001)
    assert regions(server, ".*", "data_cpu", checkpoint[0] - 4, swap[1] + 4, 1) == []

    # No counter of ours was ever seen to fall.
    names = server.ask("/api/v1/label/__name__/values")
    counters = [name for name in names if name.startswith("trainprobe_") and name.endswith("_total")]
    assert {"trainprobe_lost_seconds_total", "trainprobe_run_wall_seconds_total"} < set(counters)
    for name in counters:
        assert server.ask("/api/v1/query", query=f"resets({name}[1m]) > 0")["result"] == [], name


def test_the_end_of_the_daemon_is_told_and_nothing_turns_into_zero(scene: Scene) -> None:
    daemon, server = scene.daemon, scene.server
    daemon.stall("checkpoint", 2.0)
    server.wait_for(f'trainprobe_stall_seconds_total{{{RUN},cause="checkpoint"}} == 2')
    daemon.path.unlink()
    server.wait_for('trainprobe_source_up{source="daemon"} == 0')
    assert scene.exporter.get("/-/ready")[0] == 503
    assert server.value(f'trainprobe_stall_seconds_total{{{RUN},cause="checkpoint"}}') == 2
    assert server.value(f'trainprobe_phase_active{{{RUN},phase="train"}}') is None
    daemon.train(1)
    server.wait_for('trainprobe_source_up{source="daemon"} == 1')


def test_an_ended_run_leaves_prometheus_after_its_time(tmp_path: Path) -> None:
    (tmp_path / "exporter.yaml").write_text("run_linger_seconds: 3\nlisten: 127.0.0.1:1\n")
    daemon = Daemon(tmp_path / "report.json")
    daemon.publish()
    arguments = ("--config", str(tmp_path / "exporter.yaml"), "--listen", "127.0.0.1:0")
    with (
        exporter(tmp_path, *arguments) as running,
        prometheus(tmp_path, running.url.removeprefix("http://")) as server,
    ):
        server.wait_for(f"trainprobe_steps_total{{{RUN}}}")
        daemon.ended = time.time()
        daemon.train(2)
        assert server.value(f"trainprobe_steps_total{{{RUN}}}") is not None
        assert server.value(f'trainprobe_phase_active{{{RUN},phase="train"}}') == 0
        daemon.train(4)
        assert server.value(f"trainprobe_steps_total{{{RUN}}}") is None, "stale at the scrape after it left"
        assert server.value('trainprobe_source_up{source="daemon"}') == 1
