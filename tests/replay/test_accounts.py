"""The accounts of each recording close: ordinary steps' waits are lost or a named exception, and sums are exact."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.replay.replay import RECORDINGS, name_of, replay
from trainprobe.derive.steps.ledger import by_state
from trainprobe.model.cause import Cause
from trainprobe.model.cells import COMPUTING
from trainprobe.model.report import Rank
from trainprobe.pipeline.bottlenecks import bottlenecks, lost_waits, waits
from trainprobe.pipeline.rank.state import RankState

OTHERWISE = {Cause.DRIFT, Cause.GPU_THROTTLE, Cause.GPU_MEMORY}
"""Bottlenecks that are found otherwise than by waits."""
NOISE = 0.05
"""Of ordinary steps: more than this of waits in no cause and no exception is a hole in the account."""


@cache
def replayed(recording: Path) -> list[tuple[RankState, Rank]]:
    pipeline, report = replay(recording)
    ranks = {(rank.pid, rank.name): rank for run in report.runs for rank in run.ranks}
    named = ((state, name) for run in pipeline.runs.values() for state, _, name in run.ranks.named())
    return [(state, ranks[state.seen.pid, name]) for state, name in named]


EACH = pytest.mark.parametrize("recording", RECORDINGS, ids=name_of)


@EACH
def test_wall_time_is_productive_phases_and_lost_exactly(recording: Path) -> None:
    for _, rank in replayed(recording):
        phases = sum(rank.counters.phase_seconds.values())
        both = rank.productive_seconds + phases + sum(rank.lost.values())
        assert both == pytest.approx(rank.wall_seconds, abs=1e-9)


@EACH
def test_each_wait_of_an_ordinary_step_is_lost_or_an_exception(recording: Path) -> None:
    for state, _ in replayed(recording):
        if state.ordinary.count < 8:
            continue
        lost = lost_waits(state, waits(state))
        free = {item: ns for item, ns in waits(state).items() if item not in lost and item[2] not in COMPUTING}
        assert sum(free.values()) <= NOISE * state.ordinary.ns, by_state(free)
        of_waits = (one for one in bottlenecks(state, waits(state)) if one.cause not in OTHERWISE)
        late = 1 + state.ordinary.late_ns / state.ordinary.ns
        assert sum(one.ns for one in of_waits) >= sum(lost.values()) * late * (1 - 1e-9)
