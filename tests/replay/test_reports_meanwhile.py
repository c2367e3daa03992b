"""Reports that were made on the way change nothing in the last one: what is kept of them is still true."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.replay.replay import FOLDER, replay
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.model.report import Report
from trainprobe.pipeline import Pipeline
from trainprobe.wire import report as wire

NAMES = ("checkpoint", "checkpoint_unsafe", "collective_wait", "hf_trainer_saves", "logging", "gpu_memory", "suspended")


def replay_with_reports(name: str) -> Report:
    pipeline, due = Pipeline(), 0

    def told(frame: Frame) -> Frame:
        nonlocal due
        if frame.at.monotonic_ns >= due and pipeline.runs:
            due = frame.at.monotonic_ns + NS // 3
            pipeline.report(frame.at, reuse=True)
        pipeline.step(frame)
        return frame

    last: list[Frame] = []
    replay(FOLDER / f"{name}.jsonl.gz", lambda frame: last.append(frame) or told(frame))  # type: ignore[func-returns-value]
    return pipeline.report(last[-1].at)


def changed(value: Any, change: Callable[[float], Any] = float) -> Any:
    """Without texts that show numbers; these ``changed``."""
    if isinstance(value, dict):
        return {key: changed(one, change) for key, one in value.items() if key not in ("summary", "advice")}
    if isinstance(value, list):
        return [changed(one, change) for one in value]
    return change(value) if isinstance(value, float) else value


def nearly(value: float) -> Any:
    """What all stalls of a cause say is kept while it hardly differs."""
    return pytest.approx(value, rel=0.01, abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_a_recordings_report_is_the_same(name: str) -> None:
    made = replay_with_reports(name)
    _, alone = replay(FOLDER / f"{name}.jsonl.gz")
    seen, expected = (json.loads(wire.encode(report))["runs"] for report in (made, alone))
    assert changed(seen) == changed(expected, nearly)
