"""What the exporter makes of the published history."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from trainprobe.derive.steps.tiers import TierRows
from trainprobe.model.report import Rank, Report, Run, Stall
from trainprobe.model.steprow import TIERS, StepRow
from trainprobe.wire import history as wire
from trainprobe_exporters.history import History

RUN = "train.py-3f2a91c0"
NOW = 1_763_000_000.0
STEP = 0.5


def publish(directory: Path, hours: float, *, rank: str = "0") -> list[StepRow]:
    """Steps of half a second over ``hours`` until NOW, published as the daemon would with today's retention."""
    count = int(hours * 3600 / STEP)
    begin = NOW - count * STEP
    rows = [StepRow(begin + n * STEP, STEP, 1, STEP, STEP, {"compute": STEP}) for n in range(count)]
    where = directory / wire.STEPS / RUN
    where.mkdir(parents=True, exist_ok=True)
    for tier, done in zip(TIERS, TierRows().add(rows)):
        kept = [row for row in done if tier.keep is None or row.start >= NOW - tier.keep]
        text = wire.header(wire.STEPS) + "".join(map(wire.step_line, kept))
        (where / str(wire.SegmentName(rank, tier.name, 1))).write_text(text)
    return rows


def stall(name: str, start: float, end: float | None, cause: str = "checkpoint") -> Stall:
    return Stall(name, start, end, (end or NOW) - start, cause, {cause: (end or NOW) - start}, 1, 1)


def tell(directory: Path, number: int, *stalls: Stall) -> None:
    (directory / wire.STALLS).mkdir(exist_ok=True)
    lines = "".join(wire.stall_line(wire.RankStall(RUN, "0", one)) for one in stalls)
    (directory / wire.STALLS / f"{number}{wire.SUFFIX}").write_text(wire.header(wire.STALLS) + lines)


@pytest.fixture(scope="module")
def two_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("published")
    publish(directory, 48)
    return directory


def test_the_last_minutes_are_there_step_by_step(two_days: Path) -> None:
    rows = History(two_days).steps(RUN, "0", since=NOW - 60)
    assert 120 <= len(rows) <= 121
    assert {row.count for row in rows} == {1}


@pytest.mark.parametrize("points", [50, 500, 5000])
def test_two_days_are_told_once_without_gap_or_overlap(two_days: Path, points: int) -> None:
    """Three tiers, each with its own reach, make one line."""
    rows = History(two_days).steps(RUN, "0", points=points)
    assert len(rows) <= points
    for before, after in itertools.pairwise(rows):
        assert abs(after.start - before.end) < 0.01
    assert rows[-1].end == pytest.approx(NOW)
    assert sum(row.count for row in rows) == pytest.approx(48 * 3600 / STEP, abs=700)


def test_a_rank_and_a_run_that_nobody_knows_have_no_rows(two_days: Path) -> None:
    history = History(two_days)
    assert history.steps(RUN, "1") == []
    assert history.steps("../" + RUN, "0") == []
    assert History(two_days / "absent").steps(RUN, "0") == []


def test_the_last_word_on_a_stall_counts_and_the_report_has_it(tmp_path: Path) -> None:
    tell(tmp_path, 9, stall("a", NOW - 500, NOW - 490), stall("b", NOW - 300, None))
    tell(tmp_path, 10, stall("b", NOW - 300, NOW - 200), stall("c", NOW - 100, None, "swap"))
    live = Report(
        runs=[Run(RUN, [], "u", "/", NOW - 900, ranks=[Rank(0, 1, 7, stalls=[stall("c", NOW - 100, NOW - 1)])])]
    )
    history = History(tmp_path)
    assert [(told.stall.id, told.stall.end) for told in history.stalls(live)] == [
        ("a", NOW - 490),
        ("b", NOW - 200),
        ("c", NOW - 1),
    ]
    assert [told.stall.id for told in history.stalls(since=NOW - 250)] == ["b", "c"]


def test_only_the_report_says_what_is_open_now(tmp_path: Path) -> None:
    """One turned out to be no stall, one was open when its run was seen last, one is open."""
    tell(tmp_path, 1, stall("none", NOW - 300, None), stall("open", NOW - 20, None))
    lost = wire.RankStall("gone.py-00000001", "0", stall("lost", NOW - 400, None))
    lost.stall.seconds = 30.0
    lines = wire.header(wire.STALLS) + wire.stall_line(lost)
    (tmp_path / wire.STALLS / "2.jsonl").write_text(lines)
    rank = Rank(0, 1, 7, stalls=[stall("open", NOW - 20, None)])
    live = Report(runs=[Run(RUN, [], "u", "/", NOW - 900, ranks=[rank])])
    told = [(one.stall.id, one.stall.end) for one in History(tmp_path).stalls(live)]
    assert told == [("lost", NOW - 370), ("open", None)]
    assert [one.stall.id for one in History(tmp_path).stalls()] == ["lost", "none", "open"]


def test_a_link_or_a_pipe_where_a_segment_should_be_is_no_segment(tmp_path: Path) -> None:
    publish(tmp_path, 0.1)
    where = tmp_path / wire.STEPS / RUN
    segment = where / "0_step_1.jsonl"
    segment.rename(tmp_path / "elsewhere")
    segment.symlink_to(tmp_path / "elsewhere")
    assert all(row.count > 1 for row in History(tmp_path).steps(RUN, "0"))
