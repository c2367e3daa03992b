"""The clock of last resort on real trainings whose marks are taken away: new waits are told, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.replay.replay import replay_named
from tests.replay.test_recordings import TRUTH, replayed
from trainprobe.model.cells import RowKind
from trainprobe.model.event import MarkRow, RankSeen
from trainprobe.model.frame import Frame
from trainprobe.model.report import Rank

WAITS = ("network",)
"""Recordings whose faults are the driver's own waits."""
OWN_WAYS = ("clean", "data_inline", "drift")
"""Recordings without any such fault."""


def _unmarked(frame: Frame) -> Frame:
    events = tuple(
        replace(event, marks="no libtorch mapped") if isinstance(event, RankSeen) else event
        for event in frame.events
        if not (isinstance(event, MarkRow) and event.kind != RowKind.EXIT)
    )
    return replace(frame, events=events)


def without_marks(name: str) -> Rank:
    ranks = [rank for run in replay_named(name, _unmarked).runs for rank in run.ranks]
    return next(rank for rank in ranks if rank.pid == TRUTH[name]["pid"])


@pytest.mark.parametrize("name", WAITS)
def test_waits_that_are_new_are_told_with_their_cause_and_seconds(name: str) -> None:
    rank, truth = without_marks(name), TRUTH[name]
    assert rank.steps.source == "rhythm"
    assert "held against the usual ones" in rank.steps.reason
    learnt = min(span.end or 0 for span in rank.phases if span.phase in ("startup", "attaching"))
    planted = [p for p in truth["planted"] if p["start"] > learnt and p["seconds"] > 0.5]
    assert planted
    told = [stall for stall in rank.stalls if stall.cause == truth["verdict"]]
    assert rank.lost[truth["verdict"]] == pytest.approx(sum(p["seconds"] for p in planted), rel=0.3)
    for p in planted:
        assert any(stall.start < p["end"] + 1 and (stall.end or 0) > p["start"] for stall in told), p


@pytest.mark.parametrize("name", OWN_WAYS)
def test_what_a_training_always_does_is_no_stall(name: str) -> None:
    rank = without_marks(name)
    assert rank.stalls == []
    assert rank.steps.source == "rhythm"


@pytest.mark.parametrize("name", TRUTH)
def test_the_account_adds_up_without_marks(name: str) -> None:
    rank = without_marks(name)
    phases = sum(rank.counters.phase_seconds.values())
    assert rank.productive_seconds + phases + sum(rank.lost.values()) == pytest.approx(rank.wall_seconds, rel=1e-6)


def test_a_hang_behind_a_worker_that_died_is_told_without_marks() -> None:
    rank = without_marks("death_hang")
    assert rank.verdict.cause == "worker_hang"
    assert "was killed by signal 11" in rank.verdict.summary


def test_the_quota_that_throttles_is_named_without_marks() -> None:
    throttled = [stall for stall in without_marks("cpu_throttled").stalls if stall.cause == "cpu_throttled"]
    assert throttled
    assert all("quota of 0.2 CPUs" in stall.summary for stall in throttled)


def test_a_training_that_has_no_marks_is_told_by_its_rhythm() -> None:
    """NumPy, 58 s, a fifth of them in the run queue: two slow servers, two saves."""
    rank = replayed("unmarked", 16381)
    assert rank.steps.source == "rhythm"
    waits = [stall.seconds for stall in rank.stalls if stall.cause == "network"]
    assert waits == pytest.approx([0.993, 0.839], abs=0.05)
    assert rank.lost.keys() == {"network", "checkpoint", "cpu_contention"}
    judged = rank.wall_seconds - sum(rank.counters.phase_seconds.values())
    assert 0.15 <= rank.lost["cpu_contention"] / judged <= 0.22
    written = sum(save.write_seconds + save.fsync_seconds for save in rank.checkpoints)
    assert len(rank.checkpoints) == 2
    assert rank.lost["checkpoint"] == pytest.approx(written, rel=0.15)


def test_without_steps_nothing_is_numbered_by_steps() -> None:
    rank = replayed("unmarked", 16381)
    assert {(stall.first_step, stall.steps) for stall in rank.stalls} == {(0, 0)}
    texts = [advice for stall in rank.stalls for advice in [stall.summary, *stall.advice]]
    assert not [text for text in texts if "steps instead of" in text or "of 2 steps" in text]


def _unpaced(frame: Frame) -> Frame:
    return replace(frame, host=None if frame.host is None else replace(frame.host, pace_ns=0))


def test_a_fixed_piece_of_work_that_took_nothing_tells_no_pace() -> None:
    """Of a training whose steps become longer, and whose backward does not tell the machine's pace."""
    paced, unpaced = (
        replay_named("flax_rhythm").runs[0].ranks[0],
        replay_named("flax_rhythm", _unpaced).runs[0].ranks[0],
    )
    assert unpaced.verdict.cause == paced.verdict.cause
