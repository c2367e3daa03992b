"""A stall after a quiet time: steps in time are told together by then, and it is told as exactly as any other."""

from __future__ import annotations

import json
import random

import pytest

from benchmarks.stalls import faults
from tests.training.conftest import Watched, kept

CAUSES = ("network", "suspended", "worker_hang", "gc_pause", "data_cpu")
STYLES = frozenset(("plain", "trainer", "lightning_fit", "handmade", "amp"))
"""One step of an optimiser for each of the training's: others are told one by one."""
SCALE = 4
"""Faults twelve seconds apart where 21 steps take one: steps are told together after ten that were even."""
TOGETHER = 8
"""Rows at least that tell of several steps: of a second each."""


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_what_comes_after_a_calm_is_told(
    seed: int, styles: tuple[str, ...], right: Watched, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(f"{seed}/calm")
    plan = faults.make(rng.choice(CAUSES), rng.randrange(24), seed, [s for s in styles if s in STYLES], SCALE)
    right(plan)
    frames = map(json.loads, (kept(request) / "recording.jsonl").read_text().splitlines())
    rows = [event for frame in frames for event in frame.get("events", ()) if event.get("lengths")]
    assert len(rows) >= TOGETHER, plan.key
    assert sum(len(row["lengths"]) for row in rows) > 4 * len(rows), plan.key
