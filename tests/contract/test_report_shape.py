"""The report's keys are public: none of these may go or be renamed. Further ones may come."""

from __future__ import annotations

import json
from typing import Any

from trainprobe.model import report as model
from trainprobe.wire import report as wire

EVIDENCE = {"what", "value", "unit", "pid", "path"}
KEYS: dict[str, set[str]] = {
    "": {"version", "generated", "host", "sources", "events_lost", "cost", "runs"},
    "host": {"name", "kernel", "cpus", "memory_bytes"},
    "sources.ledger": {"state", "reason", "remedy"},
    "cost": {"cpu_seconds", "rss_bytes", "bpf_seconds", "share_of_run"},
    "runs": {"run", "command", "user", "cwd", "started", "ended", "labels", "ranks", "goodput"},
    "runs.goodput": {
        *("productive_seconds", "badput", "wasted_progress_seconds", "attempt", "between_attempts_seconds"),
    },
    "runs.ranks": {
        *("rank", "world_size", "pid", "container_pid", "exit", "wall_seconds", "productive_seconds", "verdict"),
        *("bound", "steps", "phases", "ledger", "lost", "stalls", "bottlenecks", "warnings", "checkpoints", "workers"),
        *("memory", "fds", "gpus", "slow_files", "logs", "totals", "framework"),
        *("startup", "restores", "changes"),
    },
    "runs.ranks.exit": {"code", "signal", "reason", "ending"},
    "runs.ranks.verdict": {"kind", "cause", "seconds", "share", "summary"},
    "runs.ranks.bound": {"by", "why"},
    "runs.ranks.steps": {
        *("count", "source", "reason", "median_seconds", "p99_seconds", "per_second", "variation_ratio"),
        "drift_ratio_per_1000_steps",
    },
    "runs.ranks.phases": {"phase", "start", "end"},
    "runs.ranks.stalls": {
        *("id", "start", "end", "seconds", "cause", "shares", "first_step", "steps", "period", "summary", "chain"),
        *("evidence", "python_stack", "advice"),
    },
    "runs.ranks.stalls.period": {"steps", "seconds"},
    "runs.ranks.stalls.evidence": EVIDENCE,
    "runs.ranks.bottlenecks": {"cause", "share", "seconds", "summary", "evidence", "advice"},
    "runs.ranks.changes": {"cause", "advice"},
    "runs.ranks.bottlenecks.evidence": EVIDENCE,
    "runs.ranks.warnings": {"cause", "time", "eta_seconds", "summary", "evidence", "advice"},
    "runs.ranks.checkpoints": {
        *("path", "start", "end", "bytes", "seconds", "write_seconds", "fsync_seconds", "rename_seconds"),
        *("serialize_seconds", "blocked_seconds", "by", "outcome", "error"),
    },
    "runs.ranks.workers": {"started", "ended", "live", "exits"},
    "runs.ranks.workers.exits": {"pid", "time", "code", "signal", "reason", "sender_pid"},
    "runs.ranks.memory": {
        *("pss_bytes", "pss_peak_bytes", "swap_bytes", "shm_bytes", "shm_bytes_per_batch", "limit_bytes"),
        "limit_scope",
    },
    "runs.ranks.framework": {"name", "version"},
    "runs.ranks.startup": {"imports", "dataset", "restore", "workers", "compile", "other"},
    "runs.ranks.restores": {"path", "bytes", "seconds"},
    "runs.ranks.fds": {"open_peak", "limit"},
    "runs.ranks.gpus": {"uuid", "index", "utilization_mean", "idle_seconds"},
    "runs.ranks.slow_files": {"path", "reads", "seconds"},
    "runs.ranks.logs": {"path", "bytes", "writes", "seconds"},
    "runs.ranks.totals": {"stalls", "checkpoints", "exits", "warnings"},
}


def full_report() -> model.Report:
    """A report with one entry in every list."""
    evidence = [model.Evidence("waited")]
    rank = model.Rank(0, 1, 10, exit=model.Exit(0, None))
    rank.phases = [model.PhaseSpan("startup", 0.0, 1.0)]
    rank.stalls = [
        model.Stall("a", 1.0, 2.0, 1.0, "unknown", {"unknown": 1.0}, 9, 1, model.Period(30, 4.0), evidence=evidence)
    ]
    rank.bottlenecks = [model.Bottleneck("data_cpu", 0.1, 1.0, evidence=evidence)]
    rank.warnings = [model.Warning_("worker_death", 1.0)]
    rank.checkpoints = [model.Checkpoint("/m.pt", 1.0, 2.0, 10, 1.0)]
    rank.workers.exits = [model.WorkerExit(11, 1.0, None, 9, "killed")]
    rank.gpus = [model.Gpu("GPU-0", 0)]
    rank.slow_files = [model.SlowFile("/d", 1, 1.0)]
    rank.restores = [model.Restore("/m.pt", 1, 1.0)]
    rank.changes = [model.Change("data_cpu", ["num_workers=3"])]
    rank.logs = [model.LogFile("/l", 1, 1, 1.0)]
    run = model.Run("train.py-00000000", ["python"], "ada", "/", 0.0, ranks=[rank])
    return model.Report(runs=[run], sources={"ledger": model.Source("up")})


def level(value: Any, path: str) -> dict[str, Any]:
    """The object at a dotted path, the first entry being taken of a list."""
    for name in path.split(".") if path else ():
        value = value[name]
        value = value[0] if isinstance(value, list) else value
    assert isinstance(value, dict)
    return value


def test_every_key_of_the_contract_is_written() -> None:
    written = json.loads(wire.encode(full_report()))
    missing = {path: keys - level(written, path).keys() for path, keys in KEYS.items()}
    assert {path: keys for path, keys in missing.items() if keys} == {}


def test_what_was_not_measured_is_null() -> None:
    written = json.loads(wire.encode(full_report()))
    rank = level(written, "runs.ranks")
    assert rank["memory"]["pss_bytes"] is None
    assert rank["steps"]["median_seconds"] is None
    assert rank["fds"]["limit"] is None
    assert written["cost"]["bpf_seconds"] is None


def test_the_version_is_one() -> None:
    assert json.loads(wire.encode(model.Report()))["version"] == 1
