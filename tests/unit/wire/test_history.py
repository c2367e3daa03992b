from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.wire.strategies import of_class
from trainprobe.model.report import Stall
from trainprobe.model.steprow import StepRow
from trainprobe.wire import history
from trainprobe.wire.codec import WireError, valid_text

ROWS = [StepRow(1_763_000_000.25 + n, 0.5, 1, 0.5, 0.5, {"compute": 0.4, "data_wait": 0.1}) for n in range(3)]


def segment(rows: list[StepRow]) -> bytes:
    return (history.header(history.STEPS) + "".join(map(history.step_line, rows))).encode()


def test_rows_come_back() -> None:
    assert list(history.read_steps(segment(ROWS).splitlines(keepends=True))) == ROWS


def test_the_form_is_public() -> None:
    assert history.step_line(ROWS[0]) == (
        '[1763000000.250000,0.500000,1,0.500000,0.500000,{"compute":0.400000,"data_wait":0.100000}]\n'
    )
    assert history.header("steps") == '{"trainprobe_history":1,"kind":"steps"}\n'


def test_rows_that_ended_before_are_left_out_and_a_long_one_that_reaches_over_is_not() -> None:
    rows = [StepRow(100.0, 5.0, 1, 5.0, 5.0), StepRow(105.0, 60.0, 1, 60.0, 60.0), StepRow(165.0, 1.0, 1, 1.0, 1.0)]
    assert list(history.read_steps(segment(rows).splitlines(keepends=True), 120.0)) == rows[1:]


def test_the_rows_of_a_rank_come_by_tier_and_one_that_is_told_again_replaces_the_first() -> None:
    unfinished = StepRow(ROWS[2].start, 0.1, 1, 0.1, 0.1)
    files = {
        "0_step_2.jsonl": segment(ROWS[2:]), "0_step_1.jsonl": segment([*ROWS[:2], unfinished]),
        "1_step_1.jsonl": segment([unfinished]), "0_10s_1.jsonl": b"damaged\n", "other": b"",
    }  # fmt: skip
    tiers = history.read_tiers(files, "0", lambda name: files[str(name)].splitlines(keepends=True))
    assert tiers == [ROWS, [], []]


@given(of_class(Stall))
def test_stalls_come_back(stall: Stall) -> None:
    told = history.RankStall("train.py-3f2a91c0", "0", stall)
    line = history.stall_line(told)
    assert line.count("\n") == 1
    lines = [history.header(history.STALLS).encode(), line.encode()]
    assert [valid_text(one.stall.summary) for one in history.read_stalls(lines)] == [valid_text(stall.summary)]


@given(st.data())
def test_a_torn_segment_gives_what_was_whole(data: st.DataObject) -> None:
    """Cut anywhere, with bytes anywhere in the middle overwritten: no error but "no segment", no row made up."""
    raw = bytearray(segment(ROWS))
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
        raw[at] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        rows = list(history.read_steps(bytes(raw).splitlines(keepends=True)))
    except WireError:
        return
    assert len(rows) <= len(ROWS) + 4


def test_a_segment_of_another_kind_or_a_later_version_is_refused() -> None:
    with pytest.raises(WireError):
        list(history.read_stalls(segment(ROWS).splitlines(keepends=True)))
    with pytest.raises(WireError):
        list(history.read_steps([b'{"trainprobe_history":2,"kind":"steps"}\n']))


@pytest.mark.parametrize("name", ["0_step_17.jsonl", "0.1_10s_1.jsonl", "12_5min_99.jsonl"])
def test_names_of_segments_come_back(name: str) -> None:
    assert str(history.segment_name(name)) == name


@pytest.mark.parametrize(
    "name", ["", "../x", "0_step_.jsonl", "0_hour_1.jsonl", "0_step_1.jsonl.new", "0..1_step_1.jsonl"]
)
def test_other_names_are_no_segments(name: str) -> None:
    assert history.segment_name(name) is None


@pytest.mark.parametrize("run", ["..", ".hidden", "a/b", "", "-rf", "a" * 101, "x\n"])
def test_no_run_leads_out_of_its_directory(run: str) -> None:
    assert not history.fit_run(run)
