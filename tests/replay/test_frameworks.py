"""Recordings of public frameworks' own loops: what is told of them changes only with ``frameworks.json``."""

from __future__ import annotations

from functools import cache

import pytest

from tests.replay.frameworks import expected, replayed, told
from trainprobe.model.report import Rank

EXPECTED = expected()


@cache
def rank_of(name: str) -> Rank:
    return replayed(name, EXPECTED[name]["pid"])


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_told_is_what_was_told(name: str) -> None:
    assert told(rank_of(name)) == EXPECTED[name]["told"], "python -m tests.replay.frameworks writes it anew"


@pytest.mark.parametrize("name", EXPECTED)
def test_the_accounts_close(name: str) -> None:
    rank = rank_of(name)
    assert sum(rank.ledger.values()) == pytest.approx(rank.wall_seconds, rel=0.01)
    phases = sum(rank.counters.phase_seconds.values())
    assert rank.productive_seconds + phases + sum(rank.lost.values()) == pytest.approx(rank.wall_seconds, rel=1e-6)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_known_to_be_wrong_is_said(name: str) -> None:
    entry = EXPECTED[name]
    top = entry["told"]["verdict"][1]
    right = top == entry["true"]["verdict"] and entry["told"]["steps"][1] == entry["true"]["steps"]
    assert right or entry["wrong"]


def test_saves_from_a_gpu_in_ordinary_steps_are_told_with_the_copies_and_removals_around_them() -> None:
    """107 saves of 30 ms, by the training's own clock; only four of them make their steps late."""
    told, seconds = rank_of("hf_trainer_gpu_saves").lost, EXPECTED["hf_trainer_gpu_saves"]["true"]["seconds"]
    assert told["checkpoint"] == pytest.approx(seconds["checkpoint"], rel=0.1, abs=0.2)


def test_saves_of_two_steps_that_one_row_tells_of_are_two() -> None:
    """A step of 65 ms between them was their serialising: 26.4 s. (The first saves are the start's.)"""
    rank, seconds = rank_of("saves_in_each_step"), EXPECTED["saves_in_each_step"]["true"]["seconds"]
    assert rank.lost["checkpoint"] == pytest.approx(seconds["checkpoint"], rel=0.05)
    assert "one in each step" in rank.verdict.summary


@pytest.mark.parametrize("name", ["epoch_evaluation", "epoch_edges", "distillation", "sampled_pictures"])
def test_what_lies_beside_an_evaluation_or_a_start_of_workers_is_told_by_its_own_cause(name: str) -> None:
    told, seconds = rank_of(name).lost, EXPECTED[name]["true"]["seconds"]
    assert {cause: told[cause] for cause in seconds} == pytest.approx(seconds, rel=0.1, abs=0.2)


def test_what_is_copied_for_a_thread_that_saves_is_the_saves() -> None:
    """Its end takes longer than the call of async_save: the interpreter is shared with the thread that writes."""
    told, seconds = rank_of("dcp_async_on_gpu").lost, EXPECTED["dcp_async_on_gpu"]["true"]["seconds"]
    assert {cause: told[cause] for cause in seconds} == pytest.approx(seconds, rel=0.05)
    assert "evaluation" not in EXPECTED["dcp_async_on_gpu"]["told"]["phases"]


def test_a_gpu_that_others_keep_busy_does_not_hide_saves() -> None:
    told, seconds = rank_of("shared_gpu").lost, EXPECTED["shared_gpu"]["true"]["seconds"]
    assert told["checkpoint"] == pytest.approx(seconds["checkpoint"], rel=0.05)


def test_saves_made_in_memory_behind_an_evaluation_are_not_its_own() -> None:
    """A callback between two files counts as the second one's making, and so does as much before the first one."""
    told, seconds = rank_of("lightning_top_k").lost, EXPECTED["lightning_top_k"]["true"]["seconds"]
    assert 0.95 * seconds["checkpoint"] <= told["checkpoint"] <= 1.15 * seconds["checkpoint"]
    others = ("lock_wait", "cpu_bound", "network", "unknown")
    assert [told[cause] for cause in others] == pytest.approx([seconds[cause] for cause in others], rel=0.02)


def test_the_work_of_a_pool_is_no_start_of_a_loaders_workers() -> None:
    rank = rank_of("pool_of_processes")
    waits = [stall.summary for stall in rank.stalls if "2 processes that the training started" in stall.summary]
    assert len(waits) == 4, "4 maps of 0.9 to 1.7 s"
    assert "worker_startup" not in rank.lost
    assert "data_cpu" not in rank.lost, "of a thread that holds the interpreter, beside a DataLoader"


def test_ranks_that_gather_parameters_with_gradients_off_wait_for_the_one_that_is_late() -> None:
    """It was an evaluation. Saves, in which they wait for each other too, take 1 s."""
    entry = EXPECTED["fsdp_straggler"]
    rank = rank_of("fsdp_straggler")
    assert not rank.counters.phase_seconds.get("evaluation")
    longest = sorted((s for s in rank.stalls if s.cause == "collective_wait"), key=lambda s: -s.seconds)[:3]
    assert sum(s.seconds for s in longest) == pytest.approx(entry["true"]["seconds"]["collective_wait"], rel=0.05)
    assert all("rank 1 was late by cpu_bound" in s.summary for s in longest)
