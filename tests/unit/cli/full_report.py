"""The largest report: of each rank as many stalls as a report lists, each as a real one was."""

from __future__ import annotations

import dataclasses
import os
from types import SimpleNamespace
from typing import Any

from tests.replay.replay import replay_named
from trainprobe.cli import observe
from trainprobe.config.schema import DaemonConfig
from trainprobe.model.report import Report
from trainprobe.model.steprow import RankSteps, StepRow
from trainprobe.runtime.session.probe_protocol import Order

STALLS = 200


def full(ranks: int) -> tuple[Report, list[RankSteps]]:
    """A run's report, and the rows of its ranks' steps."""
    report = replay_named("checkpoint")
    run = report.runs[0]
    stalls = (run.ranks[0].stalls * STALLS)[:STALLS]
    made = [
        dataclasses.replace(run.ranks[0], rank=number, world_size=ranks, name=str(number), stalls=stalls)
        for number in range(ranks)
    ]
    rows = [StepRow(run.started + at, 1.0, 1, 1.0, 1.0, {"compute": 0.5, "data_wait": 0.5}) for at in range(500)]
    steps = [RankSteps(run.key, rank.name, rows) for rank in made]
    return dataclasses.replace(report, runs=[dataclasses.replace(run, ranks=made)]), steps


def report_as_the_real_half(command: list[str], ranks: int = 64) -> None:
    """What the half that needs rights does once it watches."""
    report, steps = full(ranks)
    nothing, _keep = os.pipe()
    made: Any = SimpleNamespace(
        targets=SimpleNamespace(launched=lambda _pid, _command: None),
        observer=SimpleNamespace(turn=lambda *, woken: None, due_ns=lambda: 1 << 62, finish=lambda: report),
        probes=SimpleNamespace(fileno=lambda: nothing),
        core=SimpleNamespace(take_steps=lambda _now: steps),
    )
    observe._report_on(1, Order(0, command), made, DaemonConfig())
