"""What of a report is published where not all of it fits."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings

from tests.unit.exporters.reports import a_busy_rank
from tests.unit.wire import strategies
from tests.unit.wire.test_report import filled
from trainprobe.model.report import Checkpoint, Evidence, Rank, Report, Run, Samples, Stall, Totals
from trainprobe.model.settled import settled
from trainprobe.wire import bounded as bounded_report
from trainprobe.wire import report as wire
from trainprobe.wire.bounded import BoundedReport, Encoded

LIMIT = 1 << 21


def a_rank(name: str, stalls: int, start: float = 0.0) -> Rank:
    """One that was stalled so often, by its saves."""
    evidence = [Evidence("seconds in fsync", 0.5), Evidence("bytes", 2e8, "bytes", 4711, "/out/model.pth")]
    found = [
        Stall(f"s{n}", start + n, start + n + 0.9, 0.9, "checkpoint", {"checkpoint": 0.9}, n, 1, summary="x" * 200,
              chain=["training thread writes /out/model.pth"], evidence=evidence, advice=["y" * 300])
        for n in range(stalls)
    ]  # fmt: skip
    saves = [Checkpoint(f"/out/{n}.pth", start + n, start + n + 1, 9, 0.9) for n in range(stalls)]
    samples = Samples([1.5] * 60, [1 << 30] * 60, [0] * 60, [4] * 60, [0.5] * 60)
    return replace(
        a_busy_rank(name), stalls=found, checkpoints=saves, samples=samples, totals=Totals(stalls, stalls)
    )  # fmt: skip


def a_run(name: str, ranks: int = 1, stalls: int = 12, user: str = "ann", ended: float | None = None) -> Run:
    made = [a_rank(str(number), stalls) for number in range(ranks)]
    return Run(name, ["python", "train.py"], user, "/w", 1.0, ended, ranks=made)


def read(data: bytes, limit: int = LIMIT) -> dict[str, Run]:
    assert len(data) <= limit
    return {run.run: run for run in wire.decode(data).runs}


def bounded(*runs: Run, limit: int = LIMIT) -> dict[str, Run]:
    return read(BoundedReport(Report(generated=1.0, runs=list(runs))).encode(limit), limit)


def cpu_seconds(part: Callable[[], object]) -> float:
    begun = time.process_time()
    part()
    return time.process_time() - begun


def test_what_stood_in_the_report_before_is_not_encoded_again() -> None:
    report, encoded = Report(generated=1.0, runs=[a_run("r", 8, 200)]), Encoded()
    first = BoundedReport(report, encoded=encoded.next_report()).encode(1 << 26)
    rank = report.runs[0].ranks[0]
    rank.stalls = [*rank.stalls[1:], replace(rank.stalls[-1], summary="another")]
    later = replace(
        report, generated=2.0, runs=[replace(report.runs[0], ranks=[replace(r) for r in report.runs[0].ranks])]
    )
    turns = [  # by turns: the processors' speed wanders
        (
            cpu_seconds(lambda: BoundedReport(later, encoded=encoded.next_report()).encode(1 << 26)),
            cpu_seconds(lambda: wire.encode(later)),
        )
        for _ in range(10)
    ]
    again, whole = map(min, zip(*turns))
    assert again < 0.5 * whole
    second = BoundedReport(later, encoded=encoded.next_report()).encode(1 << 26)
    assert json.loads(second) == json.loads(wire.encode(later)) != json.loads(first)
    (text,) = encoded._texts.values()
    assert len(text._known) < 2 * len(text._entries), "what is gone is forgotten"


def test_a_report_that_did_not_fit_is_not_tried_whole_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [a_run(str(number), stalls=200) for number in range(8)]
    encoded = Encoded()
    few, many = 1 << 19, 1 << 26
    first = BoundedReport(Report(generated=1.0, runs=runs), encoded=encoded.next_report()).encode(few)
    changed = Report(generated=1.0, runs=[*runs[:-1], replace(runs[-1])])
    tried: list[int] = []
    whole = bounded_report._all
    monkeypatch.setattr(bounded_report, "_all", lambda texts, room: tried.append(room) or whole(texts, room))
    later = BoundedReport(changed, encoded=encoded.next_report())
    assert later.encode(few) == first
    assert not tried
    assert json.loads(later.encode(many)) == json.loads(wire.encode(changed))
    assert tried


def test_a_report_that_fits_is_left_whole() -> None:
    whole = Report(generated=1.0, runs=[filled().runs[0], a_run("r", 3)])
    assert json.loads(BoundedReport(whole).encode(1 << 20)) == json.loads(wire.encode(whole))


@given(strategies.of_class(Report))
@settings(max_examples=40, deadline=None)
def test_no_report_is_larger_than_the_limit_and_each_can_be_read(made: Report) -> None:
    made.version = 1
    whole = wire.encode(made).encode()
    for limit in (len(whole) // 2, len(whole)):
        data = BoundedReport(made).encode(max(limit, 1000))
        assert len(data) <= max(limit, 1000)
        wire.decode(data)


def test_the_latest_entries_and_the_totals_are_kept() -> None:
    given = a_run("r", stalls=200)
    (rank,) = bounded(given, limit=100_000)["r"].ranks
    assert 50 < len(rank.stalls) < 150
    assert [stall.id for stall in rank.stalls] == [f"s{n}" for n in range(200)][-len(rank.stalls) :]
    assert rank.totals.stalls == 200
    assert rank.samples.time
    assert len(given.ranks[0].stalls) == 200, "the report itself is left as it is"


def test_the_run_that_ended_first_is_left_out_first() -> None:
    runs = [Run(f"r{n}", ["x" * 2000], "u", "/", float(n), ended=None if n == 0 else n + 1.0) for n in range(10)]
    assert list(bounded(*runs, limit=8_500)) == ["r0", "r8", "r9"]


def test_a_giant_run_drops_no_other_run_and_none_of_its_stalls() -> None:
    giant = a_run("giant", ranks=1500, stalls=2)
    others = [a_run(f"r{n}") for n in range(20)]
    kept = bounded(giant, *others)
    assert list(kept) == ["giant", *(run.run for run in others)]
    assert all(kept[run.run] == run for run in others)
    assert 100 < len(kept["giant"].ranks) < 1500


def test_many_runs_of_one_user_leave_half_the_room_to_another() -> None:
    """Ranks with most of their stalls, though each of the crowd's runs is smaller."""
    crowd = [a_run(f"c{n}", ranks=8, user="bob") for n in range(64)]
    victim = a_run("v", ranks=8, stalls=50)
    kept = bounded(*crowd, victim)
    assert kept["v"] == victim
    assert len(kept) == 65


def test_ranks_come_before_the_stalls_of_other_runs() -> None:
    kept = bounded(a_run("wide", ranks=8), *(a_run(f"r{n}", stalls=100) for n in range(60)))
    assert len(kept["wide"].ranks) == 8
    assert min(len(run.ranks[0].stalls) for name, run in kept.items() if name != "wide") >= 3


def test_sixty_ordinary_runs_keep_their_stalls_and_cost_little() -> None:
    """It was 0.22 s of a CPU and a quarter of the stalls. The limit leaves room for a slow machine."""
    made = Report(generated=1.0, runs=[a_run(f"r{n}") for n in range(60)])
    assert sum(len(run.ranks[0].stalls) for run in read(BoundedReport(made).encode(LIMIT)).values()) == 720
    whole = cpu_seconds(lambda: wire.encode(made))
    assert min(cpu_seconds(lambda: BoundedReport(made).encode(LIMIT)) for _ in range(3)) < 2.5 * whole


def test_what_cannot_fit_is_not_encoded() -> None:
    """256 ranks with 200 stalls each are 80 MB."""
    giant = Report(generated=1.0, runs=[a_run("giant", ranks=256, stalls=200)])
    small = Report(runs=[a_run("r", ranks=4, stalls=200)])
    one = min(cpu_seconds(lambda: wire.encode(small)) for _ in range(3))
    assert min(cpu_seconds(lambda: BoundedReport(giant).encode(LIMIT)) for _ in range(3)) < 10 * one


def test_a_users_file_holds_more_of_his_runs_than_the_report_of_all() -> None:
    made = BoundedReport(
        Report(generated=1.0, runs=[a_run("v", ranks=8, stalls=200), a_run("w", ranks=8, stalls=200, user="bob")])
    )
    together, own = read(made.encode(LIMIT)), read(made.encode(LIMIT, {"v"}))
    assert list(own) == ["v"]
    assert len(own["v"].ranks[0].stalls) > len(together["v"].ranks[0].stalls) > 0


@pytest.mark.parametrize("limit", [100, 3_000])
def test_what_stands_beside_the_runs_does_not_keep_them_out(limit: int) -> None:
    made = Report(generated=1.0, events_lost_by={"x" * 4000: 1}, runs=[Run("r", [], "ann", "/", 1.0)])
    kept = wire.decode(BoundedReport(made).encode(limit))
    assert [run.run for run in kept.runs] == (["r"] if limit == 3_000 else [])


def test_ids_that_a_user_was_lent_share_his_part_of_the_bytes() -> None:
    """A container's ids would else leave the others a small part."""
    lent = [a_run(f"lent{number}", stalls=200, user=str(100_000 + number)) for number in range(8)]
    report = Report(generated=1.0, runs=[*lent, a_run("ours", stalls=200, user="ann")])
    limit = 1 << 18
    payer = {one.user: "1000" for one in lent}
    apart, together = (
        len(read(BoundedReport(report, who).encode(limit), limit)["ours"].ranks[0].stalls)
        for who in (str, lambda user: payer.get(user, user))
    )
    assert together > 2 * apart


def test_a_settled_run_is_published_as_it_was_whatever_room_there_is() -> None:
    runs = [a_run("a", 3, 40, ended=5.0), a_run("b", 2, 30, user="bob", ended=6.0)]
    before = Report(generated=1.0, runs=runs)
    after, encoded = replace(before, runs=[settled(run) for run in runs]), Encoded()
    size = len(BoundedReport(before).encode(LIMIT))
    for limit in (size, size // 2, size, size // 4, size - 1, size):
        made = BoundedReport(after, encoded=encoded.next_report())
        whole, own = BoundedReport(before), ({"b"}, replace(after, runs=[]))
        assert made.encode(limit) == whole.encode(limit)
        assert made.encode(limit, *own) == whole.encode(limit, *own)


def test_of_a_settled_run_no_objects_stay() -> None:
    """Thousands of small ones that live for hours hold the memory of all that was beside them."""
    report, encoded = Report(generated=1.0, runs=[settled(a_run("r", 8, 200, ended=5.0))]), Encoded()

    def left() -> tuple[int, int]:
        gc.collect()
        found = gc.get_objects()
        return sum(isinstance(one, (Rank, Stall)) for one in found), len(found)

    told, before = left()
    for _ in range(3):
        BoundedReport(report, encoded=encoded.next_report()).encode(LIMIT)
    told_after, after = left()
    assert told_after == told
    assert after < before + 50
