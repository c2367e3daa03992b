"""Which headlines count as right: those that name the planted function of the verdict's cause."""

from __future__ import annotations

from benchmarks.headlines import Headline, counted, planted

PLAN = {
    "driver": [{"cause": "cpu_bound", "how": "python"}, {"cause": "logging", "how": "fsync_lines"}],
    "data": [{"cause": "data_cpu", "how": "numeric"}],
}


def named(summary: str) -> bool:
    return Headline("run", "data_cpu", planted(PLAN, "data_cpu"), summary).names_it


def test_the_planted_function_of_the_cause_is_named_or_not() -> None:
    assert planted(PLAN, "cpu_bound") == {"busy", "optimal_sequence_search"}
    assert planted(PLAN, "gc_pause") == frozenset()
    assert named("loading data cost 2 s, in numeric (samples.py:38), there in sort (numpy/fromnumeric.py:1092)")
    assert not named("loading data cost 2 s, in busy (samples.py:30)")
    assert not named("workers spent 2 s of CPU")


def test_the_count_has_a_lower_bound() -> None:
    right, wrong = (Headline("a", "cpu_bound", frozenset(["busy"]), text) for text in ("in busy (samples.py:30)", ""))
    assert counted([right, right, wrong]) == "the planted line is named in 2 of 3, lower 95 % bound 0.208"
