"""An exporter, a real Prometheus with the rules, a real Alertmanager with the example: what people would be told."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from tests.observability.alerting import alerting
from tests.unit.exporters.programs import exporter
from tests.unit.exporters.reports import a_full_report, a_report, a_run, a_stepping_rank, ended_rank
from tests.unit.exporters.test_source import publish
from trainprobe.model.report import Source


def tell(directory: Path, started: float, **counters: dict[str, int]) -> None:
    """A report of now, of a run that steps, with these counters."""
    now = time.time()
    rank = a_stepping_rank(wall=now - started)
    rank = replace(rank, counters=replace(rank.counters, last_step=now, baseline_seconds=0.1, **counters))
    sources = {"bpf": Source("up"), "nvml": Source("unavailable", "no GPU")}
    publish(directory / "report.json", a_report(a_run("train.py-3f2a91c0", rank), at=now, sources=sources))


def test_events_reach_alertmanager_within_seconds_and_the_cause_hides_its_consequence(tmp_path: Path) -> None:
    started = time.time() - 3600
    tell(tmp_path, started)
    with (
        exporter(tmp_path) as running,
        alerting(tmp_path, running.url.removeprefix("http://")) as (prometheus, alertmanager),
    ):
        prometheus.wait_for("trainprobe_steps_total")
        for _ in range(4):
            tell(tmp_path, started)
            time.sleep(1)
        assert alertmanager.alerts() == [], "a healthy run is no news"

        tell(tmp_path, started, checkpoints={"error": 1}, worker_exits={"oom_kill": 2})
        failed = alertmanager.wait_for("TrainingCheckpointFailed")
        assert failed.summary.startswith("Checkpoints of train.py-3f2a91c0 on 127.0.0.1:")
        assert failed.summary.endswith("failed in the last 10m: 1")
        assert failed.labels["severity"] == "critical"
        killed = alertmanager.wait_for("TrainingOOMKill")
        assert killed.labels["run"] == "train.py-3f2a91c0"
        died = alertmanager.wait_for("TrainingWorkerDied")
        until = time.monotonic() + 20
        while not died.muted and time.monotonic() < until:
            time.sleep(0.2)
            died = alertmanager.wait_for("TrainingWorkerDied")
        assert died.muted, "the worker died because the kernel killed it: one message is enough"
        assert not killed.muted


def test_no_rule_fails_on_what_an_exporter_tells(tmp_path: Path) -> None:
    """Evaluated for real, on a run with everything in it and after its end: no rule has an error."""
    full = a_full_report()
    publish(tmp_path / "report.json", replace(full, generated=time.time()))
    with (
        exporter(tmp_path) as running,
        alerting(tmp_path, running.url.removeprefix("http://")) as (prometheus, _),
    ):
        prometheus.wait_for("trainprobe_steps_total")
        time.sleep(3)
        ended = a_run("train.py-3f2a91c0", ended_rank(), ended=time.time())
        publish(tmp_path / "report.json", a_report(ended, at=time.time()))
        time.sleep(3)
        groups = prometheus.ask("/api/v1/rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert len(rules) > 25
        assert [(rule["name"], rule["lastError"]) for rule in rules if rule.get("lastError")] == []
        assert {rule["health"] for rule in rules} == {"ok"}
