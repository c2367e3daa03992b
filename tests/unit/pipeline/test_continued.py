"""A rank's figures of two lives add up to those of one."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainprobe.model.report import (
    SUM,
    Checkpoint,
    Counters,
    LogFile,
    Memory,
    Rank,
    Samples,
    Stall,
    Steps,
    Totals,
    Verdict,
    Workers,
)
from trainprobe.pipeline.report.restart_merge import closed, continued, cut
from trainprobe.pipeline.report.verdict import BECAUSE, HEALTHY, STALLS_COST, TOO_FEW, stalls

seconds = st.floats(0.0, 1e5)


@st.composite
def ranks(draw: st.DrawFn) -> Rank:
    """A rank whose account adds up, perhaps with a stall open."""
    productive, phases = draw(seconds), draw(seconds)
    before = draw(st.lists(st.floats(0.1, 50.0), max_size=3))
    opened = draw(st.none() | st.floats(0.1, 50.0))
    stalls = [
        Stall(f"s{n}", 100.0 * n, 100.0 * n + one, one, "swap", {"swap": one}, n, 1) for n, one in enumerate(before)
    ]
    if opened is not None:
        stalls.append(Stall("open", 1000.0, None, opened, "swap", {"swap": opened}, 9, 1))
    lost = sum(stall.seconds for stall in stalls)
    wall = productive + 0.5 + phases + lost
    counters = Counters(
        phase_seconds={"startup": phases}, stall_seconds={"swap": lost}, stalls={"swap": len(stalls)}, last_step=999.5
    )
    return Rank(
        0, 1, 7, wall_seconds=wall, productive_seconds=productive + 0.5, ledger={"compute": wall},
        lost={"swap": lost} if lost else {}, stalls=stalls, totals=Totals(stalls=len(stalls)), counters=counters,
        steps=Steps(draw(st.integers(0, 1000)), "autograd"),
    )  # fmt: skip


def adds_up(rank: Rank) -> None:
    phases = sum(rank.counters.phase_seconds.values())
    told = rank.productive_seconds + phases + sum(rank.lost.values())
    assert told == pytest.approx(rank.wall_seconds, rel=1e-6, abs=1e-6)


@given(ranks(), ranks(), st.booleans())
def test_wall_is_productive_phases_and_lost_in_any_two_lives(told: Rank, live: Rank, same_step: bool) -> None:
    """And each stall is counted once."""
    before = cut(told) if same_step else closed(told)
    both = continued(before, live)
    adds_up(before)
    adds_up(both)
    assert both.totals.stalls == both.counters.stalls["swap"] == len(both.stalls)
    assert both.steps.count == told.steps.count + live.steps.count
    assert sum(both.ledger.values()) >= both.wall_seconds - 1e-6
    assert sum(stall.end is None for stall in both.stalls) == sum(stall.end is None for stall in live.stalls)


def test_every_counter_is_added_or_told_as_it_is_now() -> None:
    told, live = Counters(), Counters()
    for field in dataclasses.fields(Counters):
        value = getattr(told, field.name)
        number = {dict: {"a": 2}, list: [2, 2], int: 2, float: 2.0, str: "x"}.get(type(value), 2)
        setattr(told, field.name, number)
        setattr(live, field.name, number)
    both = continued(Rank(0, 1, 7, counters=told), Rank(0, 1, 7, counters=live)).counters
    for field in dataclasses.fields(Counters):
        once, found = getattr(told, field.name), getattr(both, field.name)
        twice = {dict: {"a": 4}, list: [4, 4], int: 4, float: 4.0}.get(type(once))
        assert found == (twice if field.metadata == SUM else once), field.name


def test_what_counts_from_a_begin_is_added_and_a_size_is_the_latest() -> None:
    """A log's size, read by both, is its size; of a log that this process has not looked at yet the earlier one's."""
    told = Counters(log_file_bytes={"log": 500, "wandb": 7}, log_bytes={"log": 100}, stall_active={"swap": 1})
    live = Counters(log_file_bytes={"log": 600}, log_bytes={"log": 50}, stall_active={"swap": 0})
    both = continued(Rank(0, 1, 7, counters=told), Rank(0, 1, 7, counters=live)).counters
    assert (both.log_file_bytes, both.log_bytes) == ({"log": 600, "wandb": 7}, {"log": 150})
    assert both.stall_active == {"swap": 0}


def test_a_number_that_is_0_before_it_is_read_counts_from_a_begin() -> None:
    """Of a gauge 0 would be a reading: it is None until then."""
    numbers = [field for field in dataclasses.fields(Counters) if field.type in ("int", "float")]
    assert [field.name for field in numbers if field.metadata != SUM] == []


def test_what_was_not_measured_yet_is_what_was_told() -> None:
    told = Rank(0, 1, 7, memory=Memory(pss_bytes=5, pss_peak_bytes=9), steps=Steps(40, "autograd", median_seconds=0.5))
    both = continued(told, Rank(0, 1, 7, memory=Memory(pss_peak_bytes=7), steps=Steps(2, "autograd")))
    assert (both.memory.pss_bytes, both.memory.pss_peak_bytes) == (5, 9)
    assert (both.steps.count, both.steps.median_seconds) == (42, 0.5)


def test_readings_of_both_lives_stand_in_one_column() -> None:
    told = Rank(0, 1, 7, samples=Samples([1.0, 2.0], [5, None], [0, 0], [2, 2]))
    both = continued(told, Rank(0, 1, 7, samples=Samples([9.0], [7], [1], [3], [0.5]))).samples
    assert both == Samples([1.0, 2.0, 9.0], [5, None, 7], [0, 0, 1], [2, 2, 3], [None, None, 0.5])
    many = Rank(0, 1, 7, samples=Samples([float(n) for n in range(128)], list(range(128)), [0] * 128, [1] * 128))
    both = continued(many, many).samples
    assert len(both.time) == len(both.pss_bytes) == 128
    assert max(value or 0 for value in both.pss_bytes) == 127


def test_a_save_that_was_open_is_one_save() -> None:
    told = Rank(0, 1, 7, checkpoints=[Checkpoint("/a", 1.0, 2.0, 10, 1.0), Checkpoint("/b", 10.0, None, 100, 2.0)])
    live = Rank(0, 1, 7, checkpoints=[Checkpoint("/b", 15.0, 17.0, 50, 2.0, write_seconds=1.5, outcome="complete")])
    both = continued(told, live).checkpoints
    assert [(saved.path, saved.start, saved.end, saved.bytes) for saved in both] == [
        ("/a", 1.0, 2.0, 10),
        ("/b", 10.0, 17.0, 150),
    ]
    assert both[1].seconds == pytest.approx(7.0)


def test_saves_are_numbered_on() -> None:
    """A file that was open stays in its save."""
    told = Rank(0, 1, 7, checkpoints=[Checkpoint("/a", 1.0, None, 10, 1.0, save=3)], totals=Totals(saves=3))
    files = [Checkpoint("/a", 3.0, 4.0, 9, 1.0, save=1), Checkpoint("/b", 9.0, 10.0, 9, 1.0, save=2)]
    both = continued(told, Rank(0, 1, 7, checkpoints=files, totals=Totals(saves=2)))
    assert [saved.save for saved in both.checkpoints] == [3, 5]
    assert both.totals.saves == 5


def test_an_end_is_the_last_word_and_else_what_cost_more() -> None:
    told = Rank(0, 1, 7, wall_seconds=100.0, verdict=Verdict("stall", "swap", 20.0, 0.2, "swap took 20 s"))
    live = Rank(0, 1, 7, wall_seconds=100.0, verdict=Verdict("stall", "logging", 5.0, 0.05, "logging took 5 s"))
    assert continued(told, live).verdict == Verdict("stall", "swap", 20.0, 0.1, "swap took 20 s")
    cost = STALLS_COST(
        cause="swap", seconds=20.0, share=0.2, times=stalls(1), rhythm=None, what=BECAUSE(what="read"), first=None
    )
    told.verdict = Verdict.of(cost, "stall", "swap", 20.0, 0.2)
    told.lost, live.lost = {"swap": 20.0}, {"swap": 4.0, "logging": 5.0}
    told.counters.stalls, live.counters.stalls = {"swap": 1}, {"swap": 2}
    verdict = continued(told, live).verdict
    assert (verdict.seconds, verdict.share) == (24.0, 0.12)
    assert verdict.summary == str(verdict.message) == "swap cost 24.0 s (12.0 % of the run) in 3 stalls: read"
    healthy, few = Verdict.of(HEALTHY(steps=90, seconds=9.0)), Verdict.of(TOO_FEW(steps=3))
    before = Rank(0, 1, 7, wall_seconds=9.0, steps=Steps(90, "autograd"), verdict=healthy)
    started = Rank(0, 1, 7, wall_seconds=1.0, steps=Steps(3, "autograd"), verdict=few)
    assert continued(before, started).verdict.message == HEALTHY(steps=93, seconds=10.0)
    live.verdict = Verdict("end", "oom_kill", 0.0, 0.0, "killed")
    assert continued(told, live).verdict.cause == "oom_kill"


def test_logs_and_workers_add_up() -> None:
    told = Rank(0, 1, 7, logs=[LogFile("/l", 10, 1, 0.5)], workers=Workers(started=4, ended=2, live=2))
    live = Rank(0, 1, 7, logs=[LogFile("/l", 30, 2, 0.5), LogFile("/m", 1, 1, 0.1)], workers=Workers(3, 3, 0))
    both = continued(told, live)
    assert [(log.path, log.bytes, log.writes) for log in both.logs] == [("/l", 40, 3), ("/m", 1, 1)]
    assert (both.workers.started, both.workers.ended, both.workers.live) == (5, 5, 0)
