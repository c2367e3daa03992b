"""What a run with many ranks costs, whose workers die and fail all the time."""

from __future__ import annotations

import time

import pytest

from trainprobe.causes.policy import Policy
from trainprobe.model.event import CallFailed, ProcessEvent, ProcessEventKind, RankSeen, RunStarted
from trainprobe.model.moment import NS
from trainprobe.pipeline.limits import RunLimits
from trainprobe.pipeline.run.state import RunState

RANKS, DEATHS = 64, 200


@pytest.fixture
def run() -> RunState:
    made = RunState(RunStarted("r", NS, 1, ("python", "train.py"), "user", "/"), Policy())
    for number in range(RANKS):
        driver = 1_000 + number
        made.add_rank(RankSeen("r", NS, driver, None, NS))
        for worker in range(10_000 * (number + 1), 10_000 * (number + 1) + DEATHS + 5):
            made.add_process_event(ProcessEvent(ProcessEventKind.FORK, NS, worker, driver, "pt_data_worker"))
            made.add_process_event(ProcessEvent(ProcessEventKind.EXIT, 2 * NS, worker, driver, "x", signal=9))
    return made


def test_whose_a_process_was_is_known_at_once_however_many_have_died(run: RunState) -> None:
    began = time.thread_time()
    assert not any(run.ranks.owns(pid) for pid in range(5_000_000, 5_001_500))
    assert time.thread_time() - began < 0.2
    latest = 10_000 + DEATHS + 4
    assert run.ranks.owns(latest)
    assert not run.ranks.owns(10_000), "too long ago"


def test_calls_that_fail_in_a_loop_are_judged_the_more_seldom_the_more_ranks_there_are(
    run: RunState, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[int] = []
    monkeypatch.setattr(RunLimits, "_check", lambda self, rank, now_ns: judged.append(now_ns) or False)
    for turn in range(40):
        at = 10 * NS + turn * NS // 20
        run.add_failure(CallFailed(at, 1_000, 1_000, "openat", 24, count=turn))
        run.limits.judge(list(run.ranks), at)
    assert RANKS <= len(judged) <= 5 * RANKS
    few = list(run.ranks)[:1]
    judged.clear()
    run.add_failure(CallFailed(20 * NS, 1_000, 1_000, "openat", 24, count=50))
    run.limits.judge(few, 20 * NS)
    run.add_failure(CallFailed(20 * NS, 1_000, 1_000, "openat", 24, count=51))
    run.limits.judge(few, 20 * NS + NS // 100)
    assert judged == [20 * NS, 20 * NS + NS // 100], "of one rank at once"
