"""Recordings of real trainings with planted stalls, replayed: the verdicts stay what the trainings' own clocks say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.replay.replay import FOLDER, as_it_is, replay_named
from trainprobe.model.event import StackSeen
from trainprobe.model.frame import Frame
from trainprobe.model.report import Rank

TRUTH: dict[str, Any] = json.loads((FOLDER / "truth.json").read_text())
CLAIMED = 0.3  # seconds: a planted stall of at least this length must be told


@cache
def replayed(name: str, pid: int | None = None, lack: Callable[[Frame], Frame] = as_it_is) -> Rank:
    ranks = [rank for run in replay_named(name, lack).runs for rank in run.ranks]
    wanted = TRUTH[name]["pid"] if pid is None else pid
    return next(rank for rank in ranks if rank.pid == wanted)


@pytest.mark.parametrize("name", TRUTH)
def test_the_verdict_is_what_was_planted(name: str) -> None:
    rank, truth = replayed(name), TRUTH[name]
    assert rank.verdict.cause == truth["verdict"]
    assert rank.steps.count == truth["steps"]
    assert sum(rank.ledger.values()) == pytest.approx(rank.wall_seconds, rel=0.01)
    phases = sum(rank.counters.phase_seconds.values())
    assert rank.productive_seconds + phases + sum(rank.lost.values()) == pytest.approx(rank.wall_seconds, rel=1e-6)


def test_a_host_without_memory_kills_as_the_host() -> None:
    """A plain allocator in a guest of 1 GB; the kernel log's line was read before the victim was known."""
    rank = replayed("host_oom", pid=122)
    assert (rank.verdict.kind, rank.verdict.cause) == ("end", "oom_kill")
    assert rank.memory.limit_scope == "host"
    coming, happened = (warning.summary for warning in rank.warnings)
    assert "memory of the host grows by 20.4 MB a second" in coming
    assert "killed for want of memory: the host's memory, 1.01 GB, was reached; it held 880 MB" in happened


def _without_stacks(frame: Frame) -> Frame:
    return replace(frame, events=tuple(event for event in frame.events if not isinstance(event, StackSeen)))


def _without_pressure(frame: Frame) -> Frame:
    return frame if frame.host is None else replace(frame, host=replace(frame.host, pressure=None))


def _without_proc(frame: Frame) -> Frame:
    return replace(frame, processes=(), memory=(), limits=(), descriptors=())


@pytest.mark.parametrize("lack", [_without_stacks, _without_pressure, _without_proc])
@pytest.mark.parametrize("name", TRUTH)
def test_where_py_spy_or_pressure_or_proc_is_missing_the_verdict_is_the_same(
    name: str, lack: Callable[[Frame], Frame]
) -> None:
    whole, poorer = replayed(name), replayed(name, lack=lack)
    assert poorer.verdict.cause == whole.verdict.cause
    assert [stall.cause for stall in poorer.stalls] == [stall.cause for stall in whole.stalls]
    told, less = Counter(whole.lost), Counter(poorer.lost)
    if lack is _without_pressure:  # a short wait for idle workers is contention only by it
        assert less["cpu_contention"] <= told["cpu_contention"] + 1e-6
        for one in (told, less):
            one["unknown"] += one.pop("cpu_contention", 0.0)
    assert +less == pytest.approx(+told)


@pytest.mark.parametrize("name", TRUTH)
def test_the_mean_ordinary_step_adds_up(name: str) -> None:
    rank = replayed(name)
    ordinary = rank.ordinary
    assert 0 < ordinary.count <= rank.steps.count
    assert ordinary.seconds is not None
    assert sum(ordinary.states.values()) == pytest.approx(ordinary.seconds, rel=0.01)
    assert min(ordinary.stretches) <= (rank.steps.median_seconds or 0) <= max(ordinary.stretches)
    told = ordinary.worker_cpu_seconds_per_batch
    assert (told is None) == (rank.workers.peak == 0 or not ordinary.fetches)


@pytest.mark.parametrize("name", TRUTH)
def test_memory_and_workers_are_told_over_the_runs_life(name: str) -> None:
    rank = replayed(name)
    samples = rank.samples
    assert samples.time == sorted(samples.time)
    assert len(samples.time) >= 2
    assert max(value or 0 for value in samples.pss_bytes) == rank.memory.pss_peak_bytes
    assert max(samples.workers) == rank.workers.peak


@pytest.mark.parametrize("name", [name for name, truth in TRUTH.items() if truth["planted"]])
def test_each_planted_stall_is_told_with_its_seconds(name: str) -> None:
    rank = replayed(name)
    for planted in TRUTH[name]["planted"]:
        if planted["seconds"] < CLAIMED:
            continue
        near = [
            stall
            for stall in rank.stalls
            if stall.start < planted["end"]
            and (stall.end or stall.start) > planted["start"]
            and stall.cause == planted["cause"]
        ]
        assert near, planted
        joined = [p for p in TRUTH[name]["planted"] if p["start"] < (near[0].end or 0) and p["end"] > near[0].start]
        seconds = sum(p["seconds"] for p in joined)
        told = sum(stall.shares.get(planted["cause"], 0.0) for stall in near)
        assert told == pytest.approx(seconds, rel=0.1, abs=0.05), planted


@pytest.mark.parametrize("name", [name for name, truth in TRUTH.items() if "says" in truth])
def test_a_stall_says_what_was_seen_of_it(name: str) -> None:
    told = [stall for stall in replayed(name).stalls if stall.cause == TRUTH[name]["verdict"]]
    for text in TRUTH[name]["says"]:
        assert any(text in part for stall in told for part in (stall.summary, *stall.chain)), text


@pytest.mark.parametrize("name", TRUTH)
def test_what_was_unsafe_is_warned_of_and_nothing_else(name: str) -> None:
    told = {warning.cause for warning in replayed(name).warnings}
    assert ("checkpoint_unsafe" in told) == ("checkpoint_unsafe" in TRUTH[name].get("warnings", []))


def test_waiting_for_the_gpu_is_no_stall_and_a_state_of_its_own() -> None:
    """Two steps of that recording waited more than a second longer for the GPU's work."""
    rank = replayed("gpu_memory")
    assert rank.ledger["gpu_wait"] == pytest.approx(TRUTH["gpu_memory"]["gpu_wait_seconds"], rel=0.02)
    assert set(rank.lost) == {"gpu_memory"}


def test_waiting_for_the_gpu_while_a_save_copies_its_tensors_is_the_saves() -> None:
    """Its file is removed after it: its calls took longer than it was open."""
    planted = sum(one["seconds"] for one in TRUTH["gpu_stalls"]["planted"] if one["cause"] == "checkpoint")
    assert replayed("gpu_stalls").lost["checkpoint"] == pytest.approx(planted, rel=0.01)


def test_a_clean_run_has_no_stall() -> None:
    assert replayed("clean").stalls == []
