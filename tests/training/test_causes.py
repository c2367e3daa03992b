"""Each cause in a real training: named, with its seconds, by a run that nobody tuned to it."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.programs import environment, trainprobe
from benchmarks.stalls import faults
from benchmarks.stalls.run import Outcome
from tests.training.conftest import Watched, kept

SCALE = 0.35
"""Of the suite's trainings: two to four faults each."""
LONGER = {"drift": 0.55}
"""What grows needs the time to stand out of a host's own changes of pace."""


@pytest.mark.timeout(200)
@pytest.mark.parametrize("cause", faults.CAUSES)
def test_what_was_planted_is_told(
    cause: str, seed: int, styles: tuple[str, ...], right: Watched, request: pytest.FixtureRequest
) -> None:
    """Verdict, stalls, seconds, totals, steps, ledger, saves, deaths, exit code; and the recording says the same."""
    number = random.Random(f"{seed}/{cause}").randrange(24)
    plan = faults.make(cause, number, seed, styles, LONGER.get(cause, SCALE))
    outcome = right(plan)
    _replays(outcome, kept(request))


def _replays(outcome: Outcome, folder: Path) -> None:
    again = folder / "again.json"
    command = trainprobe("replay", str(folder / "recording.jsonl"), "-o", str(again))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(), check=False)
    assert ended.returncode == 0, ended.stderr
    assert outcome.report is not None
    assert _verdicts(json.loads(again.read_text())) == _verdicts(outcome.report)


def _verdicts(report: dict[str, Any]) -> list[Any]:
    kinds = ("verdict", "lost", "stalls", "bottlenecks", "checkpoints", "workers", "steps", "ledger", "phases")
    return [{kind: rank[kind] for kind in kinds} for run in report["runs"] for rank in run["ranks"]]
